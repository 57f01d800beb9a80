"""A table of numbers with the names of its columns and rows, and how a user chooses among its columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from weftc.core.errors import InputError
from weftc.core.source import printable
from weftc.core.words import joined, plural

Header = Literal["auto", "yes", "no"]
Decimal = Literal["auto", "point", "comma"]
Missing = Literal["error", "drop", "mean"]

SHOWN_COLUMNS = 8  # columns named in a message before it becomes a riddle
SHOWN_PLACES = 10  # missing values whose places are named
LONGEST_CELL = 40  # characters of a cell shown in a message
FEWEST_COUNTED = 3  # rows from which on 0, 1, 2, ... is no accident
INDEX_NAMES = frozenset({"", "unnamed: 0", "index", "idx", "id", "row", "rowid", "row_id", "no", "nr", "#"})


@dataclass(frozen=True, slots=True)
class Reading:
    """How the user wants a file read."""

    columns: str | None = None  # by name or by position from 1; all when None
    header: Header = "auto"
    decimal: Decimal = "auto"
    id: str | None = None  # the column that names the rows
    missing: Missing = "error"
    array: str = ""  # the array to prefer in an .npz file
    whole: bool = False  # whether every cell is kept as it is written, to be joined to results
    symbols: tuple[str, ...] = ()  # a single column holds these, and is read as their places from 0
    part: tuple[int, int] = (0, 1)  # which of how many parts of the rows is read: one for each process
    by_bytes: bool = False  # whether parts of text may be cut anywhere: no other file has to be cut at the same rows

    def share(self, total: int) -> tuple[int, int]:
        """The first row of this part of so many, and its end."""
        at, parts = self.part
        return total * at // parts, total * (at + 1) // parts


AS_IT_IS = Reading()


@dataclass(frozen=True, slots=True)
class TextColumns:
    """Columns of text, row by row."""

    names: tuple[str, ...]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class DataTable:
    """The numbers of one data file. Where the user fills or drops missing values, they are NaN until that is done."""

    path: str
    values: NDArray[np.float64] | NDArray[np.float32]  # (rows, columns); float32 only where the file has it
    names: tuple[str, ...] | None = None
    ids: TextColumns | None = None  # one column: what --id calls the rows
    cells: TextColumns | None = None  # all rows and columns of the file as written
    rows: NDArray[np.intp] | None = None  # where each row stands in the file, from 0, once some are left out
    notes: tuple[str, ...] = ()
    part: bool = False  # whether these are some of the rows of the file
    first: int = 0  # rows of the file before these
    total: int | None = None  # rows of the whole file, where these are some of them

    @property
    def count(self) -> int:
        """How many rows the file has, as far as is known."""
        return len(self.values) if self.total is None else self.total

    def row_number(self, at: int) -> int:
        """The number of a row in its file, from 1; the header does not count."""
        return 1 + self.first + (at if self.rows is None else int(self.rows[at]))


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a file that are used: as numbers, and to name the rows."""

    path: str
    count: int
    names: Sequence[str] | None
    picked: tuple[int, ...]
    id: int | None
    chosen: bool  # whether the user said which

    @property
    def picked_names(self) -> tuple[str, ...] | None:
        return None if self.names is None else tuple(self.names[c] for c in self.picked)

    @property
    def id_name(self) -> str:
        """What the column of names is called in results."""
        return "id" if self.id is None or self.names is None or not self.names[self.id] else self.names[self.id]

    def label(self, at: int) -> str:
        """`column 2 (height)`."""
        name = f" ({printable(self.names[at])})" if self.names and self.names[at] else ""
        return f"column {at + 1}{name}"

    def listed(self, some: Sequence[int]) -> str:
        """Columns as --columns takes them."""
        names = self.names
        usable = names and all(n and "," not in n and names.count(n) == 1 for n in names)
        return ",".join(printable(names[c]) if names and usable else str(c + 1) for c in some)

    def as_id(self, at: int) -> str:
        """What to do about a column of text that may name the rows."""
        taken = self.id is not None or len(self.picked) == 1
        return "" if taken else f"; if it names the rows, add --id {self.listed([at])}"

    def without(self, bad: Sequence[int]) -> str:
        """How to leave columns out; nothing where none is left."""
        good = [c for c in self.picked if c not in bad]
        if not good:
            return ""
        listed = f" {self.listed(good)}" if len(good) <= SHOWN_COLUMNS else ""
        return f", or leave the column out with --columns{listed}"


def choose(path: str, count: int, names: Sequence[str] | None, reading: Reading) -> Columns:
    """The columns that a user asks for; without a wish all but the one that names the rows."""
    id = None if reading.id is None else _column(path, count, names, reading.id.strip(), "--id")
    if reading.columns is None:
        picked = tuple(c for c in range(count) if c != id)
        _refuse_duplicates(path, [names[c] for c in picked] if names else ())
        if not picked:
            raise InputError(f"{path} has no column but the one that --id names; data need at least one more")
        return Columns(path, count, names, picked, id, False)
    picked = tuple(_column(path, count, names, part.strip(), "--columns") for part in reading.columns.split(","))
    if len(set(picked)) < len(picked):
        raise InputError(f"--columns {printable(reading.columns)} names a column twice")
    return Columns(path, count, names, picked, id, True)


def _refuse_duplicates(path: str, names: Sequence[str]) -> None:
    for at, name in enumerate(names):
        first = names.index(name)
        if name and first < at:
            raise InputError(
                f"{path} has two columns named {quote(name)} (columns {first + 1} and {at + 1}); rename one, "
                f"or choose by position, as in --columns {first + 1}"
            )


def _column(path: str, count: int, names: Sequence[str] | None, part: str, option: str) -> int:
    matches = [at for at, name in enumerate(names or ()) if name == part]
    if len(matches) == 1:
        return matches[0]
    if matches:
        places = " and ".join(str(at + 1) for at in matches)
        raise InputError(f"{path} has several columns named {quote(part)} ({places}); choose by position")
    if part.isdecimal() and 1 <= int(part) <= count:
        return int(part) - 1
    if part.isdecimal():
        raise InputError(f"{path} has {plural(count, 'column')}, so there is no column {part}; positions count from 1")
    raise InputError(f"{path} has no column {quote(part)} for {option}; {_available(count, names)}")


def _available(count: int, names: Sequence[str] | None) -> str:
    if names is None:
        return f"it has no header: choose by position, 1 to {count}"
    more = ", ..." if len(names) > SHOWN_COLUMNS else ""
    return "its columns are " + ", ".join(printable(n) for n in names[:SHOWN_COLUMNS]) + more


# ---- what is odd about the numbers -----------------------------------------------------------------------------------


def missing_values(columns: Columns, places: Sequence[tuple[str, int]], count: int) -> InputError:
    """The error for missing values: where the first of them are (`line 3`, column), how many, and what to do."""
    bad = sorted({column for _, column in places})
    remedy = "fill it in" if count == 1 else "fill them in"
    remedy += ", drop such rows with --missing drop, or use the mean of the column with --missing mean"
    if count == len(places):
        remedy += columns.without(bad)
    if count == 1:
        where, column = places[0]
        return InputError(f"{columns.path} {where}, {columns.label(column)}: the value is missing; {remedy}")
    shown = []
    for column in bad:
        kind, numbers = _places([where for where, at in places if at == column])
        shown.append(f"{columns.label(column)}: {kind} {joined(numbers)}")
    more = f"; and {count - len(places)} more" if count > len(places) else ""
    return InputError(f"{columns.path} has {count} missing values ({'; '.join(shown)}{more}); {remedy}")


def _places(some: Sequence[str]) -> tuple[str, list[str]]:
    """`line 3`, `line 5` -> lines, 3 and 5."""
    kinds, numbers = zip(*(one.split() for one in some), strict=True)
    return f"{kinds[0]}s" if len(some) > 1 else kinds[0], list(numbers)


def notice_index(columns: Columns, values: NDArray[Any]) -> tuple[str, ...]:
    """Refuses an index that would be taken for data; of another column that counts the rows there is a note."""
    if columns.chosen or columns.id is not None or len(columns.picked) < 2 or len(values) < FEWEST_COUNTED:
        return ()
    first = values[:, 0]
    start = first[0]
    if start not in (0, 1) or not np.array_equal(first, np.arange(len(first)) + start):
        return ()
    at = columns.picked[0]
    name = columns.names[at] if columns.names else None
    title = f"column {at + 1} (unnamed)" if name == "" else columns.label(at)
    count = f"{columns.path} {title} only counts the rows ({start:g}, {start + 1:g}, {start + 2:g}, ...)"
    leave = f"leave it out with --id {columns.listed([at])}"
    if name is not None and name.strip().lower() in INDEX_NAMES:
        everything = f" {columns.listed(columns.picked)}" if len(columns.picked) <= SHOWN_COLUMNS else ""
        raise InputError(f"{count}; if it is an index, {leave}; if it is data, say so with --columns{everything}")
    return (f"{count} and is used as data; if it is an index, {leave}",)


def quote(cell: str) -> str:
    """A cell as it is shown in a message: in quotes, escaped, not too long."""
    return f"'{printable(cell if len(cell) <= LONGEST_CELL else cell[:LONGEST_CELL] + '...')}'"
