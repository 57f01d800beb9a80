"""`weft list`: the built-in specs and what they do."""

from __future__ import annotations

import argparse
import json

from weft.commands.options import add_json
from weft.locate import catalogue
from weft.source import printable

SUMMARY = "name the specs that ship with weft"
EXAMPLE = "example:\n  weft list"


def arguments(parser: argparse.ArgumentParser) -> None:
    """No arguments but --json: a list of {name, doc}."""
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Prints name and docstring of every built-in spec."""
    entries = catalogue()
    if options.json:
        print(json.dumps({"ok": True, "specs": [{"name": e.name, "doc": e.doc} for e in entries]}))
        return 0
    widest = max((len(e.name) for e in entries), default=0)
    for entry in entries:
        print(f"{printable(entry.name):<{widest}}  {printable(entry.doc)}".rstrip())
    return 0
