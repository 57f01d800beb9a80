"""`weft inspect`: any stage between text and weights, as text; the graph also as a picture."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from weft.commands.options import Settings, UsageError, add_definitions, add_json, add_styles, natural, settings, styles
from weft.commands.target import Target, compile_target, open_target, refuse_changes
from weft.errors import InputError
from weft.lowering.styles import CHOICES
from weft.source import printable

SUMMARY = "print a stage of the compilation of a spec or model"
EXAMPLE = """example:
  weft inspect mine.weft --stage graph
  weft inspect mine.weft -D d=2 -D k=3 --stage weights
  weft inspect mine.weft --stage graph -o graph.svg

The stages, in the order of the pipeline: syntax, graph, normal (attention normal form), ir (transformer),
weights (block matrices with slot names), plan (what a backend will do). All but the first two need every dimension.
-o writes the text to a file; -o graph.svg draws the graph: what is given on the left, a band for each step with its
equations, the answers on the right. --json prints {ok, name, stage, text}, and with -o the file. Colour only in a
terminal; NO_COLOR turns it off."""

NAMES = ("syntax", "graph", "normal", "ir", "weights", "plan")
OF_SPEC = frozenset({"syntax", "graph", "normal"})  # stages that exist before there are weights


def arguments(parser: argparse.ArgumentParser) -> None:
    """A target, a stage, and what is needed to compile a spec."""
    parser.add_argument("target", metavar="SPEC|MODEL", help="a built-in spec, a .weft file or a .safetensors model")
    parser.add_argument("--stage", choices=NAMES, help="what to print (default: graph of a spec, ir of a model)")
    add_definitions(parser)
    parser.add_argument("--layers", type=natural, metavar="N", help="number of layers to compile for")
    add_styles(parser)
    parser.add_argument("-o", dest="output", metavar="FILE", help="write to a file; graph.svg draws the graph")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Prints one stage."""
    target = open_target(options.target)
    stage = options.stage or ("graph" if target.checkpoint is None else "ir")
    written = None if options.output is None else _file(options.output, stage)
    chosen = replace(_settings(options, target), colour=written is None and not options.json and in_colour())
    text = _drawn(target) if written is not None and written.suffix.lower() == ".svg" else _text(target, stage, chosen)
    if written is not None:
        _write(written, text)
    if options.json:
        file = {} if written is None else {"file": str(written)}
        print(json.dumps({"ok": True, "name": target.name, "stage": stage, **file, "text": text}))
    else:
        print(text if written is None else f"wrote {printable(str(written))}")
    return 0


def _file(name: str, stage: str) -> Path:
    path = Path(name)
    shown = printable(name)
    if path.is_dir():
        raise UsageError(f"-o {shown} is a folder; name the file to write")
    if path.suffix.lower() == ".svg" and stage != "graph":
        raise UsageError(f"-o {shown}: only the graph can be drawn here; weft plot draws weights, streams and runs")
    if path.suffix.lower() in (".png", ".pdf"):
        raise UsageError(f"-o {shown}: a drawing is written as .svg; weft plot --what graph writes .png and .pdf")
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder {printable(str(path.parent))} to put {printable(path.name)} into")
    return path


def _drawn(target: Target) -> str:
    from weft.lowering.graph import build_graph
    from weft.plotting.graph_layout import layout
    from weft.plotting.graph_svg import svg

    return svg(layout(build_graph(target.checked)))


def _write(path: Path, text: str) -> None:
    from weft.plotting.saving import write_whole

    whole = text if text.endswith("\n") else text + "\n"
    write_whole(path, lambda part: Path(part).write_text(whole, encoding="utf-8"))


def _text(target: Target, stage: str, chosen: Settings) -> str:
    value = target.checked if stage in OF_SPEC else compile_target(target, chosen)
    try:
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
    from weft.inspection import STAGES

    return dict(STAGES)


def in_colour() -> bool:
    """Whether stdout is a terminal whose user has not asked for plain text."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
