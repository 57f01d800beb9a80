"""Markdown -> the dated block of a page, between two comments; everything else on the page stays."""

from __future__ import annotations

import re
from pathlib import Path

from weftc.core.errors import InputError
from weftc.core.source import printable
from weftc_runtime.format.whole_file import whole_file

BEGIN, END = "<!-- bench: written by `weftc bench --markdown` -->", "<!-- /bench -->"
BLOCK = re.compile(f"(?<={re.escape(BEGIN)}\n).*?(?={re.escape(END)})", re.S)


def check(path: Path) -> None:
    """Refuses a page that cannot be written to, before anything is measured."""
    if path.is_dir() or not path.parent.is_dir():
        raise InputError(f"--markdown {printable(str(path))}: not a file in a folder that exists")
    if path.exists() and len(BLOCK.findall(path.read_text(encoding="utf-8"))) != 1:
        raise InputError(f"--markdown {printable(str(path))}: the page must hold one block {BEGIN} ... {END}")


def write(path: Path, text: str) -> None:
    """Puts the text into the block of the page; a page that does not exist becomes that block alone."""
    page = path.read_text(encoding="utf-8") if path.exists() else f"{BEGIN}\n{END}\n"
    with whole_file(path) as beside:
        beside.write_text(BLOCK.sub(lambda _: f"\n{text}\n\n", page), encoding="utf-8")
