"""Text tables (comma, tab, semicolon or white space between the cells) -> a `Table` of finite float64 numbers.

Nothing is guessed in silence: what cannot be a number, a missing value, a ragged line, or a first line that may or may
not be a header is an error that names line and column and says what to do.
"""

from __future__ import annotations

import csv
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from math import isfinite
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from weft.commands.table import SHOWN_COLUMNS, Table, choose_columns, chosen_names, plural, quote
from weft.errors import InputError
from weft.source import printable

Header = Literal["auto", "yes", "no"]
Row = tuple[int, list[str]]  # line number, cells

SEPARATORS = {"\t": "tabs", ";": "semicolons", ",": "commas", None: "spaces"}
MISSING = frozenset({"", "na", "n/a", "#n/a", "nan", "null", "none", "nil", "?", "-", "missing"})
DECIMAL_COMMA = re.compile(r"[+-]?[\d.]+(,\d+)+")  # 1,5 or 1,234: a number, but not as we write it
SAMPLE_LINES = 20  # lines looked at to find the separator


def read_delimited(path: Path, shown: str, columns: str | None = None, header: Header = "auto") -> Table:
    """Reads a text table that messages call `shown`; `columns` picks some by name or position (from 1), `header` says
    whether line 1 has names. The path is opened more than once, so it must be a file, not a stream."""
    refuse_binary(path, shown)
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            return _read(lines, shown, columns, header)
    except UnicodeDecodeError:
        raise InputError(f"{shown} is not UTF-8 text ({_undecodable(path)}); save it as UTF-8") from None
    except csv.Error as error:
        raise InputError(f"{shown} cannot be split into cells: {error}; is a quotation mark left open?") from None


def _read(lines: Iterable[str], path: str, columns: str | None, header: Header) -> Table:
    stream = iter(lines)
    sample = list(islice(stream, SAMPLE_LINES))
    separator = find_separator(sample)
    rows = _full_rows(_split(chain(sample, stream), separator), path)
    start = list(islice(rows, 2))
    if not start:
        raise InputError(f"{path} is empty; a data file has one row of numbers per token")
    names = _names(start, path, columns, header)
    body = chain(start[1:] if names is not None else start, rows)
    picked = choose_columns(path, len(start[0][1]), names, columns)
    reader = _Reader(path, separator, start[0][0], len(start[0][1]), names, picked)
    values = reader.numbers(body)
    return Table(path, values, chosen_names(names, picked))


# ---- lines and cells -------------------------------------------------------------------------------------------------


def refuse_binary(path: Path, shown: str) -> None:
    """Says what a file is when it is plainly not a text table."""
    with path.open("rb") as file:
        start = file.read(4096)
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError(f"{shown} is UTF-16 text; save it as UTF-8")
    if start.startswith(b"PK\x03\x04"):
        raise InputError(f"{shown} is a zip archive (perhaps a spreadsheet); export it as CSV")
    if b"\0" in start:
        raise InputError(f"{shown} is not text; data files are CSV, TSV, .npy, .npz or .parquet")


def _undecodable(path: Path) -> str:
    """Where the first byte stands that is not UTF-8."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                return f"byte 0x{line[error.start]:02x} in line {number}"
    return "at its end"


def find_separator(lines: Sequence[str]) -> str | None:
    """The separator of a sample of lines; None is white space. A single column counts as commas."""
    full = [re.sub(r'"[^"]*"', "", line).strip("\r\n") for line in lines if line.strip() and line.lstrip()[0] != "#"]
    candidates = ("\t", ";", ",")
    for candidate in candidates:
        counts = {line.count(candidate) for line in full}
        if len(counts) == 1 and counts != {0}:
            return candidate
    for candidate in candidates:
        if any(candidate in line for line in full):
            return candidate
    words = [line.split() for line in full]
    named = len(words) > 1 and not any(is_number(w) for w in words[0])
    return "," if named and all(len(w) == 1 for w in words[1:]) else None


def _split(lines: Iterable[str], separator: str | None) -> Iterator[Row]:
    if separator is None:
        for number, line in enumerate(lines, 1):
            yield number, line.split()
    else:
        reader = csv.reader(lines, delimiter=separator, skipinitialspace=True)
        for cells in reader:
            yield reader.line_num, cells


def _full_rows(rows: Iterable[Row], path: str) -> Iterator[Row]:
    """Leaves out empty lines at both ends and comment lines at the top; an empty line in between is an error."""
    started, gap = False, 0
    for line, cells in rows:
        if not (cells and cells[0].strip()) and not any(cell.strip() for cell in cells):
            gap = gap or line
            if started and len(cells) > 1:
                yield line, cells  # separators without values: missing values, told apart by the reader
            continue
        if gap and started:
            raise InputError(f"{path} line {gap} is empty, but rows follow below it; remove the empty line")
        if started or not cells[0].lstrip().startswith("#"):
            started, gap = True, 0
            yield line, cells


# ---- the first line --------------------------------------------------------------------------------------------------


def is_number(cell: str) -> bool:
    """Whether a cell reads as a number, NaN and infinity included."""
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell


def _is_word(cell: str) -> bool:
    text = cell.strip()
    return not is_number(text) and text.lower() not in MISSING and not DECIMAL_COMMA.fullmatch(text)


def _names(start: Sequence[Row], path: str, columns: str | None, header: Header) -> list[str] | None:
    """The header's names, or None when the first line is data."""
    line, cells = start[0]
    below = start[1][1] if len(start) > 1 else []
    by_name = columns is not None and not all(part.strip().isdecimal() for part in columns.split(","))
    if header == "no" or (header == "auto" and not by_name and not _is_header(path, line, cells, below)):
        return None
    if not below:
        raise InputError(f"{path} has a header in line {line}, but no rows of numbers below it")
    return [cell.strip() for cell in cells]


def _is_header(path: str, line: int, cells: Sequence[str], below: Sequence[str]) -> bool:
    """Whether the first line holds names. A line that could be either is an error: a lost row would go unnoticed."""
    words = [_is_word(cell) for cell in cells]
    numbers_below = any(word and is_number(cell) for word, cell in zip(words, below, strict=False))
    if all(words):
        unclear = numbers_below and any(re.match(r"\s*[+-]?\.?\d", cell) for cell in cells)
    elif any(words):
        unclear = numbers_below and any(is_number(cell) for cell in cells)
    else:
        counted = [cell.strip() for cell in cells] == [str(at) for at in range(len(cells))]
        unclear = counted and len(cells) > 1 and bool(below) and all(re.search(r"[.eE]", cell) for cell in below)
    if unclear:
        text = ", ".join(quote(cell) for cell in cells[:SHOWN_COLUMNS])
        raise InputError(
            f"{path} line {line} ({text}) may be a header or data; say which with --header yes or --header no"
        )
    return all(words) or numbers_below


# ---- numbers ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Reader:
    """What every row of one file is held against."""

    path: str
    separator: str | None
    first_line: int
    width: int
    names: Sequence[str] | None
    picked: Sequence[int]

    def numbers(self, rows: Iterable[Row]) -> NDArray[np.float64]:
        values = array("d")
        for line, cells in rows:
            if len(cells) != self.width:
                raise self.ragged(line, cells)
            chosen = [cells[c] for c in self.picked]
            try:
                numbers = [float(cell) for cell in chosen]
            except ValueError:
                raise self.guilty(line, cells) from None
            if not all(map(isfinite, numbers)) or "_" in "".join(chosen):
                raise self.guilty(line, cells)
            values.extend(numbers)
        return np.frombuffer(values, dtype=np.float64).reshape(-1, len(self.picked)).copy()

    def ragged(self, line: int, cells: Sequence[str]) -> InputError:
        return InputError(
            f"{self.path} line {line} has {plural(len(cells), 'cell')}, but line {self.first_line} has {self.width}; "
            f"every line needs the same number, separated by {SEPARATORS[self.separator]}"
        )

    def guilty(self, line: int, cells: Sequence[str]) -> InputError:
        """The error for the first chosen cell of a row that is not a finite number."""
        at = next(c for c in self.picked if not is_number(cells[c]) or not isfinite(float(cells[c])))
        cell = cells[at].strip()
        name = f" ({printable(self.names[at])})" if self.names and self.names[at] else ""
        text = f"{self.path} line {line}, column {at + 1}{name}: {_complaint(cell)}{self.advice(cells)}"
        if line == self.first_line and self.names is None:
            text += "; if this line names the columns, say --header yes"
        return InputError(text)

    def advice(self, cells: Sequence[str]) -> str:
        """Which columns could be chosen instead: those that hold a number in this row."""
        good = [c for c in self.picked if is_number(cells[c]) and isfinite(float(cells[c]))]
        if not good:
            return ""
        usable = self.names and all(n and "," not in n and self.names.count(n) == 1 for n in self.names)
        shown = [printable(self.names[c]) if self.names and usable else str(c + 1) for c in good]
        listed = f" {','.join(shown)}" if len(good) <= SHOWN_COLUMNS else ""
        return f", or leave the column out with --columns{listed}"


def _complaint(cell: str) -> str:
    if cell.lower() in MISSING:
        shown = f" ({quote(cell)})" if cell else ""
        return f"the value is missing{shown}; fill it in or remove the row"
    if is_number(cell):
        return f"{quote(cell)} is not finite; correct it or remove the row"
    if DECIMAL_COMMA.fullmatch(cell):
        return f"{quote(cell)} is not a number; write decimals with a point, without thousands separators"
    return f"{quote(cell)} is not a number; correct it"
