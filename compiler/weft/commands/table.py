"""A table of finite numbers with the names of its columns, and how a user chooses among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.errors import InputError
from weft.source import printable

SHOWN_COLUMNS = 8  # columns named in a message before it becomes a riddle
LONGEST_CELL = 40  # characters of a cell shown in a message


@dataclass(frozen=True, slots=True)
class Table:
    """The numbers of one data file, and the names of its columns when it has any."""

    path: str
    values: NDArray[np.float64] | NDArray[np.float32]  # (rows, columns); float32 only where the file has it
    names: tuple[str, ...] | None = None


def choose_columns(path: str, count: int, names: Sequence[str] | None, columns: str | None) -> list[int]:
    """Positions (from 0) of the columns asked for, by name or by position from 1; all when none are asked for."""
    if columns is None:
        _refuse_duplicates(path, names or ())
        return list(range(count))
    picked = [_column(path, count, names, part.strip()) for part in columns.split(",")]
    if len(set(picked)) < len(picked):
        raise InputError(f"--columns {printable(columns)} names a column twice")
    return picked


def chosen_names(names: Sequence[str] | None, picked: Sequence[int]) -> tuple[str, ...] | None:
    """The names of the chosen columns, when there are names."""
    return None if names is None else tuple(names[c] for c in picked)


def _refuse_duplicates(path: str, names: Sequence[str]) -> None:
    for at, name in enumerate(names):
        first = names.index(name)
        if name and first < at:
            raise InputError(
                f"{path} has two columns named {quote(name)} (columns {first + 1} and {at + 1}); rename one, "
                f"or choose by position, as in --columns {first + 1}"
            )


def _column(path: str, count: int, names: Sequence[str] | None, part: str) -> int:
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
    raise InputError(f"{path} has no column {quote(part)}; {_available(count, names)}")


def _available(count: int, names: Sequence[str] | None) -> str:
    if names is None:
        return f"it has no header: choose by position, 1 to {count}"
    more = ", ..." if len(names) > SHOWN_COLUMNS else ""
    return "its columns are " + ", ".join(printable(n) for n in names[:SHOWN_COLUMNS]) + more


def quote(cell: str) -> str:
    """A cell as it is shown in a message: in quotes, escaped, not too long."""
    return f"'{printable(cell if len(cell) <= LONGEST_CELL else cell[:LONGEST_CELL] + '...')}'"


def plural(count: int, noun: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
