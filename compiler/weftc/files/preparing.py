"""Tables as they were read -> tables as a model takes them: no missing values, and scaled where the user asks for it.

Rows that --missing drop leaves out are left out of every input of the same set, so that rows still belong together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weftc.commands.options import UsageError
from weftc.core.errors import InputError
from weftc.core.source import printable
from weftc.core.types import Checked
from weftc.core.words import joined, plural
from weftc.files.table import SHOWN_PLACES, DataTable, Missing, TextColumns


@dataclass(frozen=True, slots=True)
class Scaling:
    """What --standardize did to vectors of one width: (value - mean) / scale, column by column."""

    inputs: tuple[str, ...]
    columns: tuple[str, ...]
    mean: NDArray[np.float64]
    scale: NDArray[np.float64]  # the standard deviation; 1 where that is 0


def completed(
    tables: Mapping[str, DataTable], checked: Checked, missing: Missing
) -> tuple[dict[str, DataTable], tuple[str, ...]]:
    """The tables without missing values, and what the user should know about it."""
    notes: list[str] = []
    if missing == "drop":
        return _dropped(dict(tables), checked, notes), tuple(notes)
    if missing == "mean":
        return {name: _filled(table, notes) for name, table in tables.items()}, tuple(notes)
    return dict(tables), ()


def scaled(
    tables: Mapping[str, DataTable], checked: Checked, standardize: bool, unit: bool
) -> tuple[dict[str, DataTable], tuple[Scaling, ...], tuple[str, ...]]:
    """The tables in other units where the user asks for them, how, and what the user should know about it."""
    notes: list[str] = []
    found = dict(tables)
    scalings: tuple[Scaling, ...] = ()
    if standardize:
        found, scalings = _standardized(found, checked, notes)
    return _of_unit_length(found, checked) if unit else found, scalings, tuple(notes)


# ---- missing values --------------------------------------------------------------------------------------------------


def _dropped(tables: dict[str, DataTable], checked: Checked, notes: list[str]) -> dict[str, DataTable]:
    """Only rows that are complete in every input of their set."""
    complete: dict[str, NDArray[np.bool_]] = {}
    for name, table in tables.items():
        full = np.asarray(~np.isnan(table.values).any(axis=1), dtype=np.bool_)
        home = checked.fields[name].home
        complete[home] = np.logical_and(complete[home], full) if home in complete else full
    for home, full in complete.items():
        gone = np.flatnonzero(~full)
        if not len(gone):
            continue
        table = next(t for name, t in tables.items() if checked.fields[name].home == home)
        if len(gone) == len(full):
            raise InputError(f"{table.path}: every row has a missing value, so --missing drop leaves none")
        some = ", ".join(str(at + 1) for at in gone[:SHOWN_PLACES]) + (", ..." if len(gone) > SHOWN_PLACES else "")
        notes.append(f"{plural(len(gone), 'row')} of {len(full)} left out for missing values (row {some})")
    return {name: _without_rows(table, complete[checked.fields[name].home]) for name, table in tables.items()}


def _without_rows(table: DataTable, kept: NDArray[np.bool_]) -> DataTable:
    if kept.all():
        return table
    rows = np.flatnonzero(kept)
    ids = None if table.ids is None else TextColumns(table.ids.names, [table.ids.rows[int(at)] for at in rows])
    return replace(table, values=table.values[rows], ids=ids, rows=rows)


def _filled(table: DataTable, notes: list[str]) -> DataTable:
    """Every missing value replaced by the mean of the others in its column."""
    gaps = np.isnan(table.values)
    if not gaps.any():
        return table
    empty = np.flatnonzero(gaps.all(0))
    if len(empty):
        name = f" ({printable(table.names[empty[0]])})" if table.names else ""
        raise InputError(f"{table.path}: column {empty[0] + 1}{name} has no values, so it has no mean; leave it out")
    values: NDArray[Any] = np.where(gaps, np.nanmean(table.values, axis=0, dtype=np.float64), table.values)
    count = int(gaps.sum())
    is_or_are = "was" if count == 1 else "were"
    notes.append(f"{plural(count, 'missing value')} of {table.path} {is_or_are} replaced by the mean of the column")
    return _with(table, values)


def _with(table: DataTable, values: NDArray[Any]) -> DataTable:
    """The table with other numbers, in the precision that it has."""
    found: Any = values.astype(table.values.dtype)
    return replace(table, values=found)


# ---- scaling ---------------------------------------------------------------------------------------------------------


def _standardized(
    tables: dict[str, DataTable], checked: Checked, notes: list[str]
) -> tuple[dict[str, DataTable], tuple[Scaling, ...]]:
    """Vectors of one width are one space: the first input on an open set gives its scale, the others follow."""
    found = dict(tables)
    scalings: list[Scaling] = []
    for width, names in _spaces(tables, checked):
        first = next((name for name in names if checked.is_open(checked.fields[name].home)), None)
        if first is None:
            continue
        values = np.asarray(tables[first].values, dtype=np.float64)
        mean, spread = values.mean(0), values.std(0)
        for at in np.flatnonzero(spread == 0):
            told = tables[first].names
            label = f"column {printable(told[at])}" if told else f"column {at + 1}"
            notes.append(f"{label} of {tables[first].path} is the same in every row; it was shifted, not scaled")
        scale = np.where(spread == 0, 1.0, spread)
        columns = tables[first].names or tuple(f"{width}_{at}" for at in range(len(mean)))
        scalings.append(Scaling(tuple(names), columns, mean, scale))
        for name in names:
            table = tables[name]
            found[name] = _with(table, (table.values - mean) / scale)
    if not scalings:
        raise UsageError(f"--standardize: {checked.spec.name} is fed no vectors (R^d) on an open set to standardize")
    return found, tuple(scalings)


def _spaces(tables: Mapping[str, DataTable], checked: Checked) -> Iterator[tuple[Any, list[str]]]:
    """Inputs that hold vectors of one width."""
    widths: dict[Any, list[str]] = {}
    for name in tables:
        field = checked.fields[name]
        if field.columns is None and field.width is not None:
            widths.setdefault(field.width, []).append(name)
    yield from widths.items()


def _of_unit_length(tables: dict[str, DataTable], checked: Checked) -> dict[str, DataTable]:
    wanted = [name for name in tables if checked.fields[name].kind == "unit"]
    declared = [field.target.name for field in checked.spec.inputs if field.type.kind == "unit"]
    if not declared:
        names = [field.target.name for field in checked.spec.inputs]
        raise UsageError(
            f"--unit is for inputs declared `unit R^d`; {checked.spec.name} has none (its inputs: {joined(names)})"
        )
    found = dict(tables)
    for name in wanted:
        table = tables[name]
        values = np.asarray(table.values, dtype=np.float64)
        length = np.linalg.norm(values, axis=1, keepdims=True)
        zero = np.flatnonzero(length[:, 0] == 0)
        if len(zero):
            raise InputError(
                f"{table.path} row {table.row_number(int(zero[0]))} is all zeros and has no direction; remove it"
            )
        found[name] = _with(table, values / length)
    return found
