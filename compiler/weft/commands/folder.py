"""A folder of results that appears whole or not at all.

Files are written into a folder beside the wanted one, which is renamed into place at the end. An old folder is replaced
only on request, and only when it holds nothing but files of the same names.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from weft.commands.options import UsageError
from weft.source import printable


def refuse_existing(target: Path, file_names: Sequence[str], force: bool) -> None:
    """Says why a folder cannot be written, before any work is done for it."""
    shown = printable(str(target))
    if not target.parent.is_dir():
        raise UsageError(f"there is no folder {printable(str(target.parent))} to put {printable(target.name)} into")
    if target.is_symlink():
        raise UsageError(f"{shown} is a link; name the folder itself with -o")
    if target.exists() and not target.is_dir():
        raise UsageError(f"{shown} exists and is not a folder; choose another place with -o")
    if not target.exists():
        return
    if not force:
        raise UsageError(f"the folder {shown} exists; add --force to replace it, or choose another with -o")
    others = sorted(p.name for p in target.iterdir() if p.name not in file_names or not p.is_file())
    if others:
        raise UsageError(
            f"the folder {shown} also holds {printable(others[0])}, which this run would not write, so --force does "
            "not replace it; remove the folder yourself, or choose another with -o"
        )


@contextmanager
def whole_folder(target: Path, file_names: Sequence[str], force: bool) -> Iterator[Path]:
    """A fresh folder to write into; it becomes `target` when the block ends well and vanishes when it does not."""
    refuse_existing(target, file_names, force)
    target = target.absolute()  # `.` has no name to put beside
    partial = _beside(target, "partial")
    try:
        partial.mkdir()
    except OSError as error:
        raise UsageError(f"cannot make {printable(str(partial))}: {error.strerror}") from None
    try:
        yield partial
        _put_in_place(partial, target)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _beside(target: Path, ending: str) -> Path:
    """A name that nothing has: what a killed run left, under whatever process number, is in nobody's way."""
    return target.with_name(f".{target.name}.{secrets.token_hex(8)}.{ending}")


def _put_in_place(partial: Path, target: Path) -> None:
    if not target.exists():
        partial.rename(target)
        return
    old = _beside(target, "old")
    target.rename(old)
    try:
        partial.rename(target)
    except OSError:
        old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)


@contextmanager
def whole_file(target: Path) -> Iterator[Path]:
    """A path to write to; it becomes `target` when the block ends well and vanishes when it does not."""
    if not target.parent.is_dir():
        raise UsageError(f"there is no folder {printable(str(target.parent))} to put {printable(target.name)} into")
    from weft_runtime.whole_file import whole_file as beside  # loads numpy

    with beside(target) as partial:
        yield partial
