"""`weftc list`: the built-in specs and what they do."""

from __future__ import annotations

import argparse

from weftc.commands.options import UsageError, add_json
from weftc.commands.telling import tell
from weftc.core.source import printable
from weftc.files.locate import Catalogue, catalogue

SUMMARY = "name the specs that ship with weftc"
EXAMPLE = """example:
  weftc list
  weftc list clustering     # those whose name, description or keywords have the word
  weftc show lloyd          # the text of one

--json prints {ok, specs: [{name, subject, doc, keywords}], warnings}."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Words to look for."""
    parser.add_argument("words", metavar="WORD", nargs="*", help="show only specs that all these words fit")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Prints name and docstring of built-in specs, by subject."""
    entries = Catalogue(entry for entry in catalogue() if all(entry.fits(word) for word in options.words))
    if not entries:
        raise UsageError(f"no built-in spec fits {printable(' '.join(options.words))}; weftc list names them all")
    listed = [{"name": e.name, "subject": e.subject, "doc": e.doc, "keywords": list(e.keywords)} for e in entries]
    tell(options, {"ok": True, "specs": listed}, repr(entries))
    return 0
