"""`weftc circuit`: the circuit of a model, from its matrices."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from weftc.commands.options import UsageError, add_definitions, add_json, add_styles, positive, settings
from weftc.commands.progress import progress
from weftc.commands.target import compile_target, open_target, refuse_changes
from weftc.files.folder import refuse_file, whole_file
from weftc.files.locate import find_model, is_model

if TYPE_CHECKING:
    from weftc_runtime.format.checkpoint import Checkpoint

SUMMARY = "write the circuit of a model: what reads what, from the matrices alone"
EXAMPLE = """example:
  weftc circuit lloyd -D d=2 -D k=3 --layers 2
  weftc circuit model.safetensors --format graphml -o model.graphml
  weftc circuit model.safetensors --check          # cut every edge and see

Nodes are heads, feed-forwards, slots that are filled from outside, and outputs; an edge ends at the queries, keys or
values of a head (<q>, <k>, <v>, <self>) and says which slots it carries. `json` lists the edges inside and outside,
`mib` has the form of the Mechanistic Interpretability Benchmark, `graphml` is for graph tools. --check cuts every edge
on inputs of all kinds: outside nothing may change, inside something must. Exit code 1 if it does not hold."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """A target, a form, and whether to check."""
    parser.add_argument("target", metavar="SPEC|MODEL", help="a built-in spec, a .weft file or a .safetensors model")
    add_definitions(parser)
    parser.add_argument("--layers", type=positive, metavar="N", help="how many layers (default: as the spec or model)")
    add_styles(parser)
    parser.add_argument("--format", choices=("json", "graphml", "mib"), help="how to write it (default: as the file)")
    parser.add_argument("-o", "--output", metavar="FILE", help="a .json or .graphml file (default: a list on screen)")
    parser.add_argument("--check", action="store_true", help="cut every edge, inside and outside")
    parser.add_argument("--cases", type=positive, default=12, metavar="N", help="inputs for --check (default 12)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of these inputs (default 0)")
    parser.add_argument("--force", action="store_true", help="replace an existing file")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Writes or lists the circuit, and checks it on request."""
    checkpoint = _checkpoint(options)
    path = None if options.output is None else Path(options.output)
    if path is not None:
        refuse_file(path, options.force, "circuit.json")
    if options.check and not checkpoint.spec_text:
        raise UsageError("--check draws inputs as the spec declares them, and there is no spec in this file")
    from weftc.circuits.circuit import circuit
    from weftc.circuits.writing import as_data

    found = circuit(checkpoint, options.layers)
    form = options.format or ("graphml" if path is not None and path.suffix == ".graphml" else "json")
    told = ""
    if path is not None:
        with whole_file(path) as part:
            part.write_text(found.written(form), encoding="utf-8")
        told = f"wrote {path}: {len(found.members)} nodes, {len(found.edges)} of {len(found.candidates)} edges"
    elif options.format is not None:
        sys.stdout.write(found.written(form))
    elif not options.json:
        told = "\n".join(f"{edge.name}  {', '.join(edge.carries)}" for edge in found.edges)
    verdict = None
    if options.check:
        with progress(f"cutting {len(found.candidates)} edges"):
            verdict = found.check(options.cases, options.seed)
    if options.json:
        checked = {} if verdict is None else {"check": verdict.json()}
        print(json.dumps({**as_data(found), **checked}))
    else:
        print("\n".join(line for line in (told, verdict.text() if verdict is not None else "") if line))
    return 0 if verdict is None or verdict.ok else 1


def _checkpoint(options: argparse.Namespace) -> Checkpoint:
    """The model, compiled if it is a spec; one without a spec in it will do."""
    if is_model(options.target) and (path := find_model(options.target)).is_file():
        from weftc_runtime.format.checkpoint import Checkpoint

        with progress(f"reading {path.name}"):
            checkpoint = Checkpoint.load(path)
        if not checkpoint.spec_text:
            return checkpoint
    target = open_target(options.target)
    chosen = settings(options, target.checked)
    if target.checkpoint is not None:
        refuse_changes(target, options.definitions, dict(chosen.styles))
    return compile_target(target, chosen)
