"""`weft run`: a spec or model and data -> a folder of results and a summary."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.feeds import Feeds, gather, require_all
from weft.folder import refuse_existing, whole_folder
from weft.options import (
    Settings,
    UsageError,
    add_data,
    add_definitions,
    add_json,
    add_styles,
    natural,
    positive,
    settings,
    styles,
)
from weft.progress import progress
from weft.source import printable
from weft.target import Target, compile_target, open_target, refuse_changes

if TYPE_CHECKING:
    from weft.results import Result

SUMMARY = "run a spec or model on data"
EXAMPLE = """example:
  weft run mine.weft --data points.csv -D k=5 -o out/
  weft run model.safetensors --data points.csv --init centers.csv --layers 10 -o out/

Dimensions that the data determine need not be given. One file per output appears in the folder, named as the spec
names it; a one-hot output is a column of indices counted from 0. Without --layers the spec's `repeat` counts, else it
runs until nothing changes. Outputs over two open sets are written only when asked for (--outputs).
--json prints {ok, name, dims, params, layers, stable, objective, settled, folder,
outputs: [{name, file, rows, columns, meaning}]}."""
LIMIT = 300  # layers that --until-stable runs at most


def arguments(parser: argparse.ArgumentParser) -> None:
    """A target, its data, how long to run, and where to write."""
    parser.add_argument("target", metavar="SPEC|MODEL", help="a built-in spec, a .weft file or a .safetensors model")
    add_definitions(parser)
    add_data(parser)
    depth = parser.add_mutually_exclusive_group()
    depth.add_argument("--layers", type=positive, metavar="N", help="how many layers to run")
    depth.add_argument("--until-stable", action="store_true", help="run until a layer changes nothing (see --limit)")
    parser.add_argument("--limit", type=positive, metavar="N", help=f"most layers of --until-stable (default {LIMIT})")
    parser.add_argument("--seed", type=natural, default=0, metavar="N", help="seed of starts and noise (default 0)")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float64", help="precision (default float64)")
    parser.add_argument("--device", default="cpu", help="where to run, as torch names it (default cpu)")
    add_styles(parser)
    parser.add_argument("-o", dest="output", metavar="FOLDER", help="folder to write (default NAME-out)")
    parser.add_argument("--force", action="store_true", help="replace an existing folder of results")
    parser.add_argument("--outputs", metavar="A,B", help="outputs to write (default: all but those over two open sets)")
    parser.add_argument("--format", choices=("csv", "tsv", "npy"), default="csv", help="format of the files (default csv)")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Feeds, runs, writes, and prints a summary."""
    _refuse_contradictions(options)
    target = open_target(options.target)
    chosen = _settings(options, target)
    folder = Path(options.output or f"{target.name}-out")
    feeds = gather(options, target.checked, chosen.dims, "-D" if target.checkpoint is None else "the model")
    require_all(target.checked, feeds)
    checkpoint = compile_target(target, Settings(feeds.dims, chosen.params, chosen.layers, chosen.styles))
    from weft.results import chosen_outputs, to_results

    names = chosen_outputs(checkpoint.program.outputs, options.outputs)
    files = [f"{name}.{options.format}" for name in names]
    refuse_existing(folder, files, options.force)
    model, values = _compute(options, target, checkpoint, feeds)
    results = to_results(values, names, target.checked, feeds)
    _write(folder, results, options)
    summary = _account(target, checkpoint, model, results, folder, files)
    print(json.dumps(summary) if options.json else describe(summary, feeds))
    return 0


def _refuse_contradictions(options: argparse.Namespace) -> None:
    if options.limit is not None and options.layers is not None:
        raise UsageError("--limit is for runs until stable; with --layers the number is fixed")


def _settings(options: argparse.Namespace, target: Target) -> Settings:
    if target.checkpoint is None:
        return settings(options, target.checked)
    refuse_changes(target, options.definitions, styles(options))
    return Settings(target.checkpoint.dims, target.checkpoint.params, options.layers)
