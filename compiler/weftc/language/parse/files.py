"""Files -> the text of specs."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from weftc.core.errors import InputError
from weftc.core.source import Source, printable

LARGEST = 1_000_000  # bytes of a spec; the longest real one has a few thousand


def read_spec(path: str | PathLike[str]) -> Source:
    """The text of a spec file, named by its path; an `InputError` when it is no text of sensible size."""
    return Source(str(path), spec_text(read_bytes(path), str(path)))


def read_bytes(path: str | PathLike[str]) -> bytes:
    """The bytes of a spec file, or one more than a spec may have."""
    shown = printable(str(path))
    try:
        with Path(path).open("rb") as file:
            return file.read(LARGEST + 1)
    except IsADirectoryError:
        raise InputError(f"{shown} is a folder, not a spec file") from None
    except FileNotFoundError:
        raise InputError(f"there is no file {shown}") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "not a usable file name"
        raise InputError(f"cannot read {shown}: {reason}") from None


def spec_text(data: bytes, name: str) -> str:
    """The text in the bytes of a spec, its lines ended by line feeds alone."""
    shown = printable(name)
    if len(data) > LARGEST:
        raise InputError(f"{shown} is too large for a spec: more than {LARGEST // 1_000_000} MB; is it a data file?")
    if b"\0" in data:
        at = data.index(b"\0")
        raise InputError(f"{shown} is not a text file: byte {at} is zero; a spec is plain text in UTF-8")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{shown} is not UTF-8 text: byte 0x{data[error.start]:02x} in line {line} has no meaning; save it as UTF-8"
        ) from None
    return text.replace("\r\n", "\n")
