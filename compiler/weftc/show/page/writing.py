"""A page -> a file, whole or not at all; an existing file is replaced only on request."""

from __future__ import annotations

from pathlib import Path

from weftc.core.errors import InputError
from weftc.core.source import printable
from weftc_runtime.format.whole_file import whole_file


def refuse_existing_file(path: Path, force: bool, flag: str = "force=True") -> None:
    """Says why a file cannot be written, before any work is done for it."""
    shown = printable(str(path))
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {printable(str(path.parent))} to put {printable(path.name)} into")
    if path.is_dir():
        raise InputError(f"{shown} is a folder; name a file, such as {printable(str(path / 'report.html'))}")
    if path.is_symlink():
        raise InputError(f"{shown} is a link; name the file itself")
    if path.exists() and not force:
        raise InputError(f"the file {shown} exists; add {flag} to replace it, or choose another")


def write_page(path: Path, html: str) -> Path:
    """Writes beside the wanted file and renames."""
    path = path.absolute()
    try:
        with whole_file(path) as partial:
            partial.write_text(html, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write {printable(str(path))}: {error.strerror}") from None
    return path
