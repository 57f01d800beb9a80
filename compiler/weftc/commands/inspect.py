"""`weftc inspect`: any stage between text and weights, as text; the graph also as a picture."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from weftc.commands.options import (
    Settings,
    UsageError,
    add_definitions,
    add_force,
    add_json,
    add_styles,
    natural,
    settings,
    styles,
)
from weftc.commands.target import Target, compile_target, open_target, refuse_changes
from weftc.commands.telling import json_text
from weftc.core.errors import InputError
from weftc.core.source import printable
from weftc.core.styles import CHOICES
from weftc.files.folder import refuse_file

SUMMARY = "print a stage of the compilation of a spec or model"
EXAMPLE = """example:
  weftc inspect mine.weft --stage graph
  weftc inspect mine.weft -D d=2 -D k=3 --stage weights
  weftc inspect mine.weft --stage graph -o graph.svg
  weftc inspect mine.weft -D d=2 -D k=3 --after ranking --diff

The stages, in the order of the pipeline: syntax, graph, normal (attention normal form), ir (transformer),
weights (block matrices with slot names), plan (what a backend will do). All but the first two need every dimension.
--after PASS prints the graph or normal form after a pass (build, bind, lengths, ranking, objective, normal_form,
null_tokens), --diff what the pass changed, and --check verifies the graph's own rules after every pass.
-o writes the text to a file; -o graph.svg draws the graph: what is given on the left, a band for each step with its
equations, the answers on the right. --json prints {ok, name, stage, text}, and with -o the file. Colour only in a
terminal; NO_COLOR turns it off."""

NAMES = ("syntax", "graph", "normal", "ir", "weights", "plan")
OF_SPEC = frozenset({"syntax", "graph", "normal"})  # stages that exist before there are weights


def arguments(parser: argparse.ArgumentParser) -> None:
    """A target, a stage, and what is needed to compile a spec."""
    parser.add_argument("target", metavar="SPEC|MODEL", help="a built-in spec, a .weft file or a .safetensors model")
    parser.add_argument("--stage", choices=NAMES, help="what to print (default: graph of a spec, ir of a model)")
    parser.add_argument("--after", metavar="PASS", help="print what there is after a pass of the compiler")
    parser.add_argument("--diff", action="store_true", help="with --after: print what the pass changed")
    parser.add_argument("--check", action="store_true", help="verify the rules of the graph after every pass")
    add_definitions(parser)
    parser.add_argument("--layers", type=natural, metavar="N", help="number of layers to compile for")
    add_styles(parser)
    parser.add_argument("-o", dest="output", metavar="FILE", help="write to a file; graph.svg draws the graph")
    add_force(parser, "file")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Prints one stage."""
    target = open_target(options.target)
    stage = options.stage or ("graph" if target.checkpoint is None or options.after or options.check else "ir")
    _passes(options, stage)
    written = None if options.output is None else _file(options.output, stage, options.force)
    chosen = replace(_settings(options, target), colour=written is None and not options.json and in_colour())
    if written is not None and written.suffix.lower() == ".svg":
        text = _drawn(target)
    else:
        text = _text(target, stage, chosen, options)
    if written is not None:
        _write(written, text)
    if options.json:
        file = {} if written is None else {"file": str(written)}
        print(json_text(options, {"ok": True, "name": target.name, "stage": stage, **file, "text": text}))
    else:
        print(text if written is None else f"wrote {printable(str(written))}")
    return 0


def _file(name: str, stage: str, force: bool) -> Path:
    path = Path(name)
    shown = printable(name)
    if path.suffix.lower() == ".svg" and stage != "graph":
        raise UsageError(f"-o {shown}: only the graph can be drawn here; weftc plot draws weights, streams and runs")
    if path.suffix.lower() in (".png", ".pdf"):
        raise UsageError(f"-o {shown}: a drawing is written as .svg; weftc plot --what graph writes .png and .pdf")
    refuse_file(path, force)
    return path


def _drawn(target: Target) -> str:
    from weftc.graph.build import build_graph
    from weftc.show.figures.graph_layout import layout
    from weftc.show.figures.graph_svg import svg

    return svg(layout(build_graph(target.checked)))


def _write(path: Path, text: str) -> None:
    from weftc.show.figures.saving import write_whole

    whole = text if text.endswith("\n") else text + "\n"
    write_whole(path, lambda part: Path(part).write_text(whole, encoding="utf-8"))


def _passes(options: argparse.Namespace, stage: str) -> None:
    """Refuses what --after, --diff and --check cannot mean."""
    from weftc.passes.pipeline import PASSES

    if options.after is not None and options.after not in PASSES:
        raise UsageError(f"--after {printable(options.after)}: the passes are {', '.join(PASSES)}")
    if options.after is not None and stage not in ("graph", "normal"):
        raise UsageError(f"--after shows the graph or the normal form, not the stage {stage}")
    if options.diff and options.after in (None, "build", "normal_form"):
        raise UsageError("--diff needs --after a pass that changes the graph or the normal form, such as --after bind")


def _text(target: Target, stage: str, chosen: Settings, options: argparse.Namespace) -> str:
    value = target.checked if stage in OF_SPEC else compile_target(target, chosen)
    try:
        if options.after is not None or options.check:
            from weftc.show.stages import after, check

            parts = [] if options.after is None else [after(target.checked, chosen, options.after, options.diff)]
            return "\n".join([*parts, *([check(target.checked, chosen)] if options.check else [])])
        return _printers()[stage](value, chosen)
    except InputError as error:  # dimensions and parameters, which were typed
        raise UsageError(str(error)) from None


def _settings(options: argparse.Namespace, target: Target) -> Settings:
    if target.checkpoint is None:
        return settings(options, target.checked)
    refuse_changes(target, options.definitions, styles(options))
    made = target.checkpoint
    chosen = {name: value for name, value in made.program.options.items() if name in (*CHOICES, "sharpness")}
    return Settings(made.dims, made.params, styles=chosen)


def _printers() -> dict[str, Callable[[Any, Settings], str]]:
    from weftc.show.stages import STAGES

    return dict(STAGES)


def in_colour() -> bool:
    """Whether stdout is a terminal whose user has not asked for plain text."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
