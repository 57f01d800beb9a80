"""`weftc report`: a spec or model and data -> one self-contained HTML page."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weftc.commands.options import (
    Settings,
    UsageError,
    add_backend,
    add_data,
    add_definitions,
    add_force,
    add_json,
    add_styles,
    natural,
    positive,
    settings,
    styles,
)
from weftc.commands.progress import progress
from weftc.commands.target import Target, compile_target, open_target, refuse_changes
from weftc.commands.telling import tell
from weftc.core.errors import InputError
from weftc.core.source import printable
from weftc.files.feeds import Feeds, gather, require_dims, require_inputs, told_by_file
from weftc.files.folder import refuse_file

if TYPE_CHECKING:
    from weftc.show.page.making import Made
    from weftc_runtime.format.checkpoint import Checkpoint

SUMMARY = "make an HTML page about a transformer, its run on data, and its proof"
EXAMPLE = """example:
  weftc report mine.weft --data points.csv -D k=5 -o report.html
  weftc report model.safetensors --data points.csv --layers 10 --no-verify -o report.html

One file that works offline: the spec and what became of each equation, the run layer by layer, every matrix as blocks
with slot names, and the evidence of weftc verify. Without --layers, the spec's `repeat` says how long to run; if it has
none, the run goes on until nothing visible changes (at most 50 layers; --until-stable waits for the last bit). Only a
sample of a large input is drawn.
--json prints {ok, name, file, bytes, dims, params, layers, stable, objective, verdict, drawn, warnings}."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """A target, its data, how long to run, and where to write."""
    parser.add_argument("target", metavar="SPEC|MODEL", help="a built-in spec, a .weft file or a .safetensors model")
    add_definitions(parser)
    add_data(parser)
    depth = parser.add_mutually_exclusive_group()
    depth.add_argument("--layers", type=natural, metavar="N", help="how many layers to run")
    depth.add_argument("--until-stable", action="store_true", help="run until a layer changes nothing (see --limit)")
    parser.add_argument("--limit", type=positive, metavar="N", help="most layers of a run that ends by itself")
    parser.add_argument("--seed", type=natural, default=0, metavar="N", help="seed of starts and noise (default 0)")
    parser.add_argument("--no-verify", action="store_true", help="leave the evidence out (it takes a few seconds)")
    parser.add_argument("--cases", type=positive, default=10, metavar="N", help="random cases of it (default 10)")
    add_backend(parser)
    add_styles(parser)
    parser.add_argument("-o", dest="output", metavar="FILE", help="file to write (default NAME-report.html)")
    add_force(parser, "file")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Feeds, runs, verifies, writes, and prints a summary; 1 when verification failed."""
    from weftc.show.page.writing import write_page

    if options.limit is not None and options.layers is not None:
        raise UsageError("--limit is for runs that end by themselves; with --layers the number is fixed")
    target = open_target(options.target)
    path = Path(options.output or f"{target.name}-report.html")
    if path.is_symlink():
        raise UsageError(f"{printable(str(path))} is a link; name the file itself")
    refuse_file(path, options.force, "report.html")
    chosen = _settings(options, target)
    feeds = gather(options, target.checked, chosen.dims, "-D" if target.checkpoint is None else "the model")
    require_inputs(target.checked, feeds)
    require_dims(target.checked, feeds)
    checkpoint = compile_target(target, Settings(feeds.dims, chosen.params, chosen.layers, chosen.styles))
    made = _make(options, target, checkpoint, feeds)
    write_page(path, made.html)
    summary = {
        "ok": made.verdict is None or made.verdict.ok,
        "name": target.name,
        "file": str(path),
        "bytes": len(made.html.encode("utf-8")),
        "dims": dict(checkpoint.dims),
        "params": dict(checkpoint.params),
        "layers": made.layers,
        "stable": made.stable,
        "objective": made.objective,
        "verdict": None if made.verdict is None else made.verdict.verdict,
        "drawn": dict(made.drawn),
        "warnings": [*feeds.notes, *made.run.warnings],
    }
    tell(options, summary, _describe(summary))
    return 0 if summary["ok"] else 1


def _settings(options: argparse.Namespace, target: Target) -> Settings:
    if target.checkpoint is None:
        return settings(options, target.checked)
    refuse_changes(target, options.definitions, styles(options))
    return Settings(target.checkpoint.dims, target.checkpoint.params, options.layers)


def _make(options: argparse.Namespace, target: Target, checkpoint: Checkpoint, feeds: Feeds) -> Made:
    with progress(f"reporting on {target.name}") as line, told_by_file(feeds):
        from weftc.show.page.making import Request, depth_of, make

        compiled = target.checkpoint is not None
        try:
            depth = depth_of(target.checked, checkpoint, compiled, options.layers, options.until_stable, options.limit)
        except InputError as error:
            raise UsageError(str(error)) from None
        request = Request(
            target.checked,
            checkpoint,
            dict(feeds.arrays),
            depth,
            options.seed,
            {name: table.names for name, table in feeds.tables.items() if table.names},
            {name: Path(table.path).name for name, table in feeds.tables.items()},
            not options.no_verify,
            options.cases,
            options.backend,
            _command(options),
        )
        return make(request, line)


def _command(options: argparse.Namespace) -> str:
    """The command that makes the page again; files by their names, not by where they are on this machine."""
    words = ["weftc", "report", Path(options.target).name]
    for flag, given in (("-D", options.definitions), ("--data", options.data), ("--init", options.init)):
        for word in given:
            name, equals, rest = word.partition("=")
            bare = f"{name}={Path(rest).name}" if equals and flag != "-D" else word if flag == "-D" else Path(word).name
            words += [flag, bare]
    for columns in options.columns:
        words += ["--columns", columns]
    for column in options.id:
        words += ["--id", column]
    for flag, value, plain in (("header", options.header, "auto"), ("decimal", options.decimal, "auto")):
        words += [f"--{flag}", value] if value != plain else []
    words += ["--missing", options.missing] if options.missing != "error" else []
    words += ["--standardize"] * options.standardize + ["--unit"] * options.unit
    if options.layers is not None:
        words += ["--layers", str(options.layers)]
    words += ["--until-stable"] * options.until_stable
    words += ["--limit", str(options.limit)] if options.limit is not None else []
    words += ["--seed", str(options.seed)] if options.seed else []
    for name, value in styles(options).items():
        words += [f"--{name}", str(value)]
    return shlex.join(words)


def _describe(summary: dict[str, Any]) -> str:
    ending = {True: ", nothing changes any more", False: ", still changing", None: ""}[summary["stable"]]
    lines = [f"{summary['name']}: {summary['layers']} layers{ending}"]
    if summary["objective"] is not None:
        lines.append(f"  objective  {summary['objective']:.17g}")
    lines.append(f"  verdict    {summary['verdict'] or 'not asked for'}")
    lines += [f"  warning    {warning}" for warning in summary["warnings"]]
    lines.append(f"  {summary['file']}  {summary['bytes'] / 1000:.0f} kB")
    return "\n".join(printable(line) for line in lines)
