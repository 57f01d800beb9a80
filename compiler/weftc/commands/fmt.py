"""`weftc fmt`: spec files as they are usually written."""

from __future__ import annotations

import argparse
import codecs
import difflib
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from weftc.commands.check import problems
from weftc.commands.options import UsageError, add_json
from weftc.commands.telling import json_text
from weftc.core.errors import InputError, SpecError
from weftc.core.source import Source, printable
from weftc.files.folder import whole_file
from weftc.language.format.formatter import format, line_end
from weftc.language.parse.files import LARGEST, read_bytes, spec_text

SUMMARY = "format spec files; comments and meaning stay"
EXAMPLE = """example:
  weftc fmt mine.weft              # rewrites the file
  weftc fmt --check --diff specs/  # every .weft file below a folder: shows what would change, changes nothing
  weftc fmt - < mine.weft          # prints it formatted

A file that does not parse is reported and left as it is. --json prints {ok, files: [{file, changed, written, error,
problems, diff, text}]} (diff with --diff, text of -). The exit code is 1 when a file could not be formatted, and with
--check when one would change."""

STDIN = "-"
SUFFIX = ".weft"


@dataclass(frozen=True, slots=True)
class FormatOutcome:
    """What became of one file: its bytes before and after, or what is wrong with it."""

    name: str
    before: bytes = b""
    after: bytes = b""
    error: Exception | None = None
    written: bool = False

    @property
    def changed(self) -> bool:
        return self.error is None and self.before != self.after


def arguments(parser: argparse.ArgumentParser) -> None:
    """Files and folders, and whether to write them."""
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help=f"a spec, a folder with {SUFFIX} files, or - for stdin"
    )
    parser.add_argument("--check", action="store_true", help="name the files that would change, and change none")
    parser.add_argument("--diff", action="store_true", help="show what would change, and change nothing")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Formats every file; one that cannot be does not keep the others from it."""
    writes = not (options.check or options.diff)
    outcomes = [_outcome(name, writes) for name in list(_named(options.files))]
    failed = any(outcome.error for outcome in outcomes)
    refused = failed or (options.check and any(outcome.changed for outcome in outcomes))
    if options.json:
        told = [_told(outcome, options.diff) for outcome in outcomes]
        print(json_text(options, {"ok": not refused, "files": told}))
    else:
        for outcome in outcomes:
            _show(outcome, options)
    return 1 if refused else 0


# ---- which files -----------------------------------------------------------------------------------------------------


def _named(words: Sequence[str]) -> Iterator[str]:
    """The files that were named, those in folders included, each once. Nothing is touched if one is missing."""
    seen: set[Path] = set()
    for word in words:
        for name in [word] if word == STDIN else _below(word):
            place = Path(name).resolve()
            if place not in seen:
                seen.add(place)
                yield name


def _below(word: str) -> list[str]:
    path = Path(word)
    if not path.is_dir():
        if not path.is_file():  # nor a pipe or a device: what is read is also written
            raise UsageError(f"there is no file {printable(word)}; weftc fmt takes files, folders and - for stdin")
        return [word]
    found: list[str] = []
    for folder, folders, files in os.walk(path, onerror=_cannot_look):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += (os.path.join(folder, name) for name in sorted(files) if name.endswith(SUFFIX))
    if not found:
        raise UsageError(f"there is no {SUFFIX} file in the folder {printable(word)}")
    return found


def _cannot_look(error: OSError) -> NoReturn:
    raise UsageError(f"cannot look into the folder {printable(str(error.filename))}: {error.strerror}")


# ---- one file --------------------------------------------------------------------------------------------------------


def _outcome(name: str, writes: bool) -> FormatOutcome:
    shown = "stdin" if name == STDIN else name
    try:
        before = sys.stdin.buffer.read(LARGEST + 1) if name == STDIN else read_bytes(name)
        after = formatted(before, shown)
        writes = writes and name != STDIN and after != before
        if writes:
            _replace(Path(name), after)
        return FormatOutcome(name, before, after, written=writes)
    except (SpecError, InputError, OSError) as error:
        return FormatOutcome(name, error=error)


def formatted(data: bytes, name: str) -> bytes:
    """The bytes of a spec, formatted; a byte order mark and the kind of line ends stay as they are."""
    mark = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
    text = format(Source(name, spec_text(data, name)))
    first = data[: data.find(b"\n") + 1].decode("latin-1")
    return mark + text.replace("\n", line_end(first)).encode()


def _replace(path: Path, data: bytes) -> None:
    """Puts new bytes in the place of a file at once; a link stays a link, permissions stay as they are."""
    path = path.resolve()
    if not os.access(path, os.W_OK):
        raise InputError(f"cannot write {printable(str(path))}: it is read-only")
    try:
        with whole_file(path) as partial:
            partial.write_bytes(data)
            shutil.copymode(path, partial)
    except OSError as error:
        raise InputError(f"cannot write {printable(str(path))}: {error.strerror or error}") from None


# ---- what is said ----------------------------------------------------------------------------------------------------


def _show(outcome: FormatOutcome, options: argparse.Namespace) -> None:
    shown = printable(outcome.name)
    if outcome.error is not None:
        text = str(outcome.error)
        print(text if text.startswith("error") else f"error: {text}", file=sys.stderr)
    elif options.diff:
        print(_diff(outcome), end="")
    elif outcome.name == STDIN and not options.check:
        sys.stdout.flush()
        sys.stdout.buffer.write(outcome.after)
    if outcome.changed and options.check:
        print(f"would change {shown}", file=sys.stderr if options.diff else sys.stdout)
    elif outcome.written:
        print(f"formatted {shown}")


def _told(outcome: FormatOutcome, with_diff: bool) -> dict[str, Any]:
    told: dict[str, Any] = {"file": outcome.name, "changed": outcome.changed, "written": outcome.written}
    if outcome.error is not None:
        told["error"] = str(outcome.error)
        told["problems"] = problems(outcome.error) if isinstance(outcome.error, SpecError) else []
    elif with_diff:
        told["diff"] = _diff(outcome)
    if outcome.name == STDIN and outcome.error is None:
        told["text"] = outcome.after.decode()
    return told


def _diff(outcome: FormatOutcome) -> str:
    """How a file would change, as `diff -u` shows it; control characters are escaped."""
    old, new = (data.decode("utf-8").replace("\r\n", "\n").split("\n") for data in (outcome.before, outcome.after))
    shown = printable(outcome.name)
    lines = difflib.unified_diff(old, new, f"{shown} (now)", f"{shown} (formatted)", lineterm="")
    return "".join(f"{printable(line)}\n" for line in lines)
