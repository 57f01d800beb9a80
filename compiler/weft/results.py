"""The outputs of a run -> tables ready to be written, each with the names of its columns and a line about it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import InputError
from weft.feeds import Feeds
from weft.options import UsageError
from weft.source import printable
from weft.types import Checked
from weft.words import did_you_mean


@dataclass(frozen=True, slots=True)
class Result:
    """One output: a table with its columns and what a row of it is."""

    name: str
    values: NDArray[Any]  # (rows, columns)
    columns: tuple[str, ...]
    meaning: str


def chosen_outputs(outputs: Sequence[Any], asked: str | None) -> list[str]:
    """The outputs to write: those asked for, or all but tables over two open sets, which are large."""
    names = [output.name for output in outputs]
    for name in names:
        # names become file names, and a model file may come from anywhere
        if not re.fullmatch(r"[A-Za-z]\w*'*", name):
            raise InputError(f"the output name {printable(name)} cannot be a file name; the model is damaged")
    if asked is None:
        return [output.name for output in outputs if output.kind != "pattern"]
    wanted = [part.strip() for part in asked.split(",") if part.strip()]
    for name in wanted:
        if name not in names:
            raise UsageError(
                f"--outputs: there is no output {printable(name)}; "
                f"{did_you_mean(name, names) or 'outputs are ' + ', '.join(names)}"
            )
    return list(dict.fromkeys(wanted))


def to_results(values: Mapping[str, Any], names: Sequence[str], checked: Checked, feeds: Feeds) -> list[Result]:
    """The chosen outputs as tables."""
    return [_result(name, values[name], checked, feeds) for name in names]


def _result(name: str, value: Any, checked: Checked, feeds: Feeds) -> Result:
    field_name = checked.output_field(name)
    field = checked.fields[field_name] if field_name else None
    if hasattr(value, "indices"):
        columns = field.columns if field and field.columns else "column"
        table = _matrix(value.indices)
        return Result(name, table, (f"{columns}_index_from_0",), f"index of {columns}, counted from 0")
    table = _matrix(value)
    width = table.shape[1]
    if field is not None and field.columns is not None:
        labels = tuple(f"{field.columns}_{at}" for at in range(width))
        return Result(name, table, labels, f"one column for each of {field.columns}")
    if field is not None and field.width is not None:
        known = _column_names(field.width, checked, feeds)
        labels = known if known and len(known) == width else tuple(f"{name}_{at}" for at in range(width))
        return Result(name, table, labels, "")
    labels = (name,) if width == 1 else tuple(f"{name}_{at}" for at in range(width))
    return Result(name, table, labels, "")


def _column_names(dim: str | int, checked: Checked, feeds: Feeds) -> tuple[str, ...] | None:
    """The names the data give to the coordinates of a dimension."""
    for name, table in feeds.tables.items():
        if checked.fields[name].width == dim and table.names is not None and all(table.names):
            return table.names
    return None


def _matrix(value: Any) -> NDArray[Any]:
    """A tensor or array as rows and columns; a number is one row of one."""
    array = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    return array.reshape(array.shape[0] if array.ndim else 1, -1)
