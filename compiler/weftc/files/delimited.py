"""Text tables (comma, tab, semicolon or white space between the cells) -> a `DataTable` of float64 numbers.

Nothing is guessed in silence: what cannot be a number, a missing value, a ragged line, or a first line that may or may
not be a header is an error that names line and column and says what to do.
"""

from __future__ import annotations

import csv
import mmap
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from math import isfinite, nan
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from weftc.core.errors import InputError
from weftc.core.words import plural
from weftc.files.table import (
    SHOWN_COLUMNS,
    SHOWN_PLACES,
    Columns,
    DataTable,
    Decimal,
    Reading,
    TextColumns,
    choose,
    missing_values,
    notice_index,
    quote,
)

Row = tuple[int, list[str]]  # line number, cells

SEPARATORS = {"\t": "tabs", ";": "semicolons", ",": "commas", None: "spaces"}
MISSING = frozenset({"", "na", "n/a", "#n/a", "nan", "null", "none", "nil", "?", "-", "missing"})
COMMA_NUMBER = re.compile(r"[+-]?[\d.]+(,\d+)+")  # 1,5 or 1,234: a number, but not as we write it
DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")
PLAIN_COMMA = re.compile(r"[+-]?\d*,(\d{1,2}|\d{4,})([eE][+-]?\d+)?")  # three digits may be thousands
DATE = re.compile(r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})([T ].*)?|\d{1,2}:\d{2}(:\d{2}.*)?")
SMALLEST_PART = 2**20  # bytes; where processes would get less, each reads all of the text
SAMPLE_LINES = 20  # lines looked at to find the separator and the decimal sign


def read_delimited(path: Path, shown: str, reading: Reading) -> DataTable:
    """Reads a text table that messages call `shown`. The path is opened more than once: a file, not a stream."""
    refuse_binary(path, shown)
    try:
        part = _part(path, reading) if reading.by_bytes else None
        with path.open(encoding="utf-8-sig", newline="") as lines:
            return _read(lines, shown, reading, part)
    except UnicodeDecodeError:
        raise InputError(f"{shown} is not UTF-8 text ({_undecodable(path)}); save it as UTF-8") from None
    except csv.Error as error:
        raise InputError(f"{shown} cannot be split into cells: {error}; is a quotation mark left open?") from None


def _read(lines: Iterable[str], path: str, reading: Reading, part: _Part | None) -> DataTable:
    stream = iter(lines)
    sample = list(islice(stream, SAMPLE_LINES))
    separator = find_separator(sample)
    rows = _full_rows(_split(chain(sample, stream), separator), path)
    if part is not None and not part.start:
        rows = part.rows(separator, path)
    start = list(islice(rows, 2))
    if not start:
        raise InputError(f"{path} is empty; a data file has one row of numbers per token")
    comma = _has_decimal_comma(path, sample, separator, reading.decimal)
    names = _names(start, path, reading)
    single = len(start[0][1]) - (reading.id is not None) == 1 if reading.columns is None else "," not in reading.columns
    if reading.symbols and not single and len(start[0][1]) != len(reading.symbols):
        count = plural(len(start[0][1]), "column")
        raise InputError(f"{path} has {count}, and {reading.array} is one symbol per row; choose one with --columns")
    if not single:
        reading = replace(reading, symbols=())
    body = chain(start[1:] if names is not None else start, rows)
    if part is not None and part.start:
        body = chain(part.rows(separator, path))
    columns = choose(path, len(start[0][1]), names, reading)
    reader = _Reader(path, separator, start[0][0], columns, reading, comma)
    values = reader.numbers(body)
    if reader.missing and reading.missing == "error":
        raise missing_values(columns, reader.places, reader.missing)
    notes = notice_index(columns, values)
    if comma and reading.decimal == "auto":
        notes += (f"{path} is read with a decimal comma (1,5 is one and a half); --decimal point says otherwise",)
    ids = None if columns.id is None else TextColumns((columns.id_name,), reader.ids)
    every = tuple(names) if names is not None else tuple(f"column_{at + 1}" for at in range(columns.count))
    cells = TextColumns(every, reader.cells) if reading.whole else None
    return DataTable(path, values, columns.picked_names, ids, cells, notes=notes, part=part is not None)


def _has_decimal_comma(path: str, sample: Sequence[str], separator: str | None, wish: Decimal) -> bool:
    """Whether numbers are written 1,5. Found out only where no number has a point and commas cannot be thousands."""
    if wish == "comma" and separator == ",":
        raise InputError(f"{path} has commas between its cells, so --decimal comma cannot be meant; use semicolons")
    if wish != "auto" or separator == ",":
        return wish == "comma"
    cells = [cell.strip() for _, cells in _split(sample, separator) for cell in cells]
    points = any(is_number(cell) and "." in cell for cell in cells)
    return not points and any(PLAIN_COMMA.fullmatch(cell) for cell in cells)


# ---- parts -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Part:
    """The lines that begin from `start` to before `end`, in bytes; both begin a line with text or end the file."""

    path: Path
    start: int
    end: int
    line: int  # lines before the first

    def rows(self, separator: str | None, shown: str) -> Iterator[Row]:
        """Their cells. The line after the last is looked at, too: lines without text may stand only before no other."""
        with self.path.open("rb") as file:
            file.seek(self.start)
            found = _full_rows(_split(self._lines(file), separator, self.line), shown, self.start > 0)
            kept = next(found, None)
            for row in found:
                if kept is not None:
                    yield kept
                kept = row
            if kept is not None and self.end == self.path.stat().st_size:
                yield kept

    def _lines(self, file: BinaryIO) -> Iterator[str]:
        at = self.start
        for line in file:
            yield line.decode("utf-8" if at else "utf-8-sig")
            if at >= self.end:
                return
            at += len(line)


def _part(path: Path, reading: Reading) -> _Part | None:
    """Where a part of the lines lies; None where the file is small, or cells may hold ends of lines."""
    size, (at, parts) = path.stat().st_size, reading.part
    if parts == 1 or size < parts * SMALLEST_PART:
        return None
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data.find(b'"') >= 0 or re.search(rb"\r(?!\n)", data):
            return None
        start, end = (_line_with_text(data, size * cut // parts) for cut in (at, at + 1))
        blocks = range(0, start, SMALLEST_PART)
        line = sum(data[block : min(start, block + SMALLEST_PART)].count(b"\n") for block in blocks)
    return _Part(path, start, end, line)


def _line_with_text(data: mmap.mmap, at: int) -> int:
    """The first place from `at` where a line begins that has text."""
    if not at:
        return 0
    data.seek(at - 1)
    data.readline()
    while (start := data.tell()) < len(data) and not data.readline().strip():
        pass
    return start


# ---- lines and cells -------------------------------------------------------------------------------------------------


def refuse_binary(path: Path, shown: str) -> None:
    """Says what a file is when it is plainly not a text table."""
    with path.open("rb") as file:
        start = file.read(4096)
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError(f"{shown} is UTF-16 text; save it as UTF-8")
    if start.startswith(b"PK\x03\x04"):
        raise InputError(f"{shown} is a zip archive, perhaps a spreadsheet; save it as CSV (UTF-8) and give that file")
    if b"\0" in start:
        raise InputError(f"{shown} is not text; data files are CSV, TSV, .npy, .npz, Parquet, Arrow or Feather")


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


def _split(lines: Iterable[str], separator: str | None, before: int = 0) -> Iterator[Row]:
    """The cells of every line, and its number; `before`: so many lines go before."""
    if separator is None:
        for number, line in enumerate(lines, before + 1):
            yield number, line.split()
    else:
        reader = csv.reader(lines, delimiter=separator, skipinitialspace=True)
        for cells in reader:
            yield before + reader.line_num, cells


def _full_rows(rows: Iterable[Row], path: str, started: bool = False) -> Iterator[Row]:
    """Leaves out empty lines at both ends and comment lines at the top; an empty line in between is an error."""
    gap = 0
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
    return not is_number(text) and text.lower() not in MISSING and not COMMA_NUMBER.fullmatch(text)


def _names(start: Sequence[Row], path: str, reading: Reading) -> list[str] | None:
    """The header's names, or None when the first line is data."""
    line, cells = start[0]
    below = start[1][1] if len(start) > 1 else []
    if reading.symbols and reading.header == "auto":  # a first line without symbols names the columns
        return None if {*map(str.strip, cells)} & {*reading.symbols} else [cell.strip() for cell in cells]
    asked = ([] if reading.columns is None else reading.columns.split(",")) + ([reading.id] if reading.id else [])
    by_name = not all(part.strip().isdecimal() for part in asked)
    header = reading.header
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


@dataclass(slots=True)
class _Reader:
    """What every row of one file is held against, and what is collected on the way."""

    path: str
    separator: str | None
    first_line: int
    columns: Columns
    reading: Reading
    comma: bool
    missing: int = 0
    places: list[tuple[str, int]] = field(default_factory=list)  # of the first missing values
    ids: list[tuple[str]] = field(default_factory=list)
    cells: list[list[str]] = field(default_factory=list)

    def numbers(self, rows: Iterable[Row]) -> NDArray[np.float64]:
        values = array("d")
        picked, id, whole = self.columns.picked, self.columns.id, self.reading.whole
        places = {symbol: str(place) for place, symbol in enumerate(self.reading.symbols)}
        for line, cells in rows:
            if len(cells) != self.columns.count:
                raise self.ragged(line, cells)
            chosen = [cells[c] for c in picked]
            if places:
                chosen = [self.place(line, cells, c, places) for c in picked]
            try:
                numbers = [float(cell) for cell in chosen]
            except ValueError:
                numbers = [self.number(line, cells, c) for c in picked]
            if not all(map(isfinite, numbers)) or "_" in "".join(chosen):
                numbers = [self.number(line, cells, c) for c in picked]
                self.note_missing(line, numbers)
            values.extend(numbers)
            if id is not None:
                self.ids.append((cells[id].strip(),))
            if whole:
                self.cells.append(cells)
        return np.frombuffer(values, dtype=np.float64).reshape(-1, len(picked)).copy()

    def place(self, line: int, cells: Sequence[str], at: int, places: Mapping[str, str]) -> str:
        """The place of the symbol in a cell."""
        cell = cells[at].strip()
        if cell in places:
            return places[cell]
        known = ", ".join(map(quote, places))
        text = (
            f"{self.path} line {line}, {self.columns.label(at)}: {quote(cell)} is no symbol of the vocabulary, {known}"
        )
        if line == self.first_line and self.columns.names is None:
            text += "; if this line names the columns, say --header yes"
        raise InputError(text)

    def number(self, line: int, cells: Sequence[str], at: int) -> float:
        """The number in a cell, NaN where it is missing."""
        cell = cells[at].strip()
        if cell.lower() in MISSING:
            return nan
        if self.comma and DECIMAL_COMMA.fullmatch(cell):
            cell = cell.replace(",", ".")
        if not is_number(cell) or not isfinite(float(cell)):
            raise self.guilty(line, cells, at)
        return float(cell)

    def note_missing(self, line: int, numbers: Sequence[float]) -> None:
        absent = [c for c, number in zip(self.columns.picked, numbers, strict=True) if number != number]
        self.missing += len(absent)
        self.places += [(f"line {line}", c) for c in absent[: max(0, SHOWN_PLACES - len(self.places))]]

    def ragged(self, line: int, cells: Sequence[str]) -> InputError:
        return InputError(
            f"{self.path} line {line} has {plural(len(cells), 'cell')}, but line {self.first_line} has "
            f"{self.columns.count}; every line needs the same number, separated by {SEPARATORS[self.separator]}"
        )

    def guilty(self, line: int, cells: Sequence[str], at: int) -> InputError:
        """The error for a cell that is not a finite number."""
        bad = [c for c in self.columns.picked if not is_number(cells[c]) or not isfinite(float(cells[c]))]
        complaint = self.complaint(cells[at].strip())
        if self.columns.names is not None and line == self.first_line + 1 and complaint.endswith("; correct it"):
            complaint = complaint.removesuffix("; correct it") + (self.columns.as_id(at) or "; correct it")
        text = f"{self.path} line {line}, {self.columns.label(at)}: {complaint}{self.columns.without(bad)}"
        if line == self.first_line and self.columns.names is None:
            text += "; if this line names the columns, say --header yes"
        return InputError(text)

    def complaint(self, cell: str) -> str:
        if is_number(cell):
            return f"{quote(cell)} is not finite; correct it or remove the row"
        if DATE.fullmatch(cell):
            what = "time" if ":" in cell[:3] else "date"
            return f"{quote(cell)} is a {what}; turn it into a number first, such as days since the first of them"
        if self.comma and COMMA_NUMBER.fullmatch(cell):
            return f"{quote(cell)} is not a number; write it without thousands separators"
        if COMMA_NUMBER.fullmatch(cell) and self.separator != ",":
            return f"{quote(cell)} is not a number with a decimal point; if its comma is one, say --decimal comma"
        if COMMA_NUMBER.fullmatch(cell):
            return f"{quote(cell)} is not a number; write decimals with a point, without thousands separators"
        return f"{quote(cell)} is not a number; correct it"
