"""A folder of results that appears whole or not at all.

Files are written into a folder beside the wanted one, which is renamed into place at the end. An old folder is replaced
only on request, and only when it holds nothing but results of the same kind.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from weftc.commands.options import UsageError
from weftc.core.source import printable


def refuse_existing_folder(target: Path, file_names: Sequence[str] | None, force: bool) -> None:
    """Says why a folder cannot be written, before any work is done for it; None: what may be in it is not known yet."""
    shown = printable(str(target))
    if not target.parent.is_dir():
        raise UsageError(f"there is no folder {printable(str(target.parent))} to put {printable(target.name)} into")
    if target.is_symlink():
        raise UsageError(f"{shown} is a link; name the folder itself with -o")
    if target.exists() and not target.is_dir():
        raise UsageError(f"{shown} exists and is not a folder; choose another place with -o")
    if not target.exists():
        _require_writable(target.parent, shown)
        return
    if not force:
        raise UsageError(f"the folder {shown} exists; add --force to replace it, or choose another with -o")
    if file_names is not None:
        others = sorted(p.name for p in target.iterdir() if p.name not in file_names or not p.is_file())
        if others:
            raise UsageError(
                f"the folder {shown} also holds {printable(others[0])}, which is no result of this spec, so --force "
                "does not replace it; remove the folder yourself, or choose another with -o"
            )
    _require_writable(target.absolute().parent, shown)


def refuse_file(target: Path, force: bool, example: str = "") -> None:
    """Says why a file cannot be written, before any work is done for it."""
    shown = printable(str(target))
    if target.is_dir():
        hint = f": -o {printable(str(target / example))}" if example else ""
        raise UsageError(f"-o {shown} is a folder; name the file to write{hint}")
    if not target.parent.is_dir():
        raise UsageError(f"there is no folder {printable(str(target.parent))} to put {printable(target.name)} into")
    if target.exists() and not force:
        raise UsageError(f"the file {shown} exists; add --force to replace it, or choose another with -o")
    _require_writable(target.parent, shown)


def _require_writable(folder: Path, shown: str) -> None:
    """Tries it: permissions alone do not tell about read-only and full file systems."""
    trial = folder / f".{secrets.token_hex(8)}.trial"
    try:
        os.close(os.open(trial, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        trial.unlink()
    except OSError as error:
        where = printable(str(folder.absolute()))
        raise UsageError(
            f"cannot write {shown}: {where} does not allow it ({error.strerror}); choose another place with -o"
        ) from None


@contextmanager
def whole_folder(target: Path, file_names: Sequence[str], force: bool) -> Iterator[Path]:
    """A fresh folder to write into; it becomes `target` when the block ends well and vanishes when it does not."""
    refuse_existing_folder(target, file_names, force)
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
    from weftc_runtime.format.whole_file import whole_file as beside  # loads numpy

    with beside(target) as partial:
        yield partial
