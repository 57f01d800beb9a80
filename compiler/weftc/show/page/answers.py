"""The outputs of a run -> short tables: all rows of a small set, the first rows of a large one, counts of choices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weftc.core.source import printable
from weftc.core.syntax import Ref
from weftc.core.types import Checked
from weftc_runtime.data.results import OneHot

FEW, FIRST, COLUMNS = 12, 6, 8  # rows of a fixed set, of an open one, and columns of a table


@dataclass(frozen=True, slots=True)
class AnswerTable:
    """One output as a table of words."""

    name: str
    meaning: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    more: str


def answer(name: str, value: Any, checked: Checked, names: Mapping[str, Sequence[str]]) -> AnswerTable:
    """A table of one output."""
    axes = _axes(name, checked)
    home = axes[0] if axes else ""
    if isinstance(value, OneHot):
        return _choice(name, value, axes)
    table = np.asarray(value.detach().cpu().numpy() if hasattr(value, "detach") else value, np.float64)
    if table.ndim == 0:
        return AnswerTable(printable(name), "one number", (), (), f"{float(table):.6g}")
    wide = table.reshape(len(table), -1)
    columns = _columns(name, wide.shape[1], table.ndim, checked, names, axes)
    rows = min(len(wide), FEW if not home or not checked.is_open(home) else FIRST)
    shown = min(wide.shape[1], COLUMNS)
    body = tuple((str(at), *(_number(v) for v in wide[at, :shown])) for at in range(rows))
    left_out = []
    if rows < len(wide):
        left_out.append(f"the first {rows} of {len(wide)} rows")
    if shown < wide.shape[1]:
        left_out.append(f"the first {shown} of {wide.shape[1]} columns")
    more = " and ".join(left_out)
    meaning = f"one row for each of {printable(home)}" if home else ""
    return AnswerTable(printable(name), meaning, (printable(home), *columns[:shown]), body, more)


def _choice(name: str, value: OneHot, axes: tuple[str, ...]) -> AnswerTable:
    """A one-hot output: how many rows chose which column."""
    across = axes[1] if len(axes) > 1 else "column"
    counts: NDArray[Any] = np.bincount(np.asarray(value.indices.cpu()).clip(min=0), minlength=value.columns)
    rows = tuple(
        (str(at), str(int(count)), f"{100 * count / max(1, len(value)):.1f} %") for at, count in enumerate(counts[:FEW])
    )
    more = f"the first {FEW} of {len(counts)}" if len(counts) > FEW else ""
    home = printable(axes[0]) if axes else "rows"
    return AnswerTable(
        printable(name),
        f"each of {home} has one of {printable(across)}; how many have which",
        (printable(across), home, "share"),
        rows,
        more,
    )


def _axes(name: str, checked: Checked) -> tuple[str, ...]:
    """The sets that rows and columns of an output stand for."""
    field = checked.output_field(name)
    if field is not None and field in checked.fields:
        one = checked.fields[field]
        return (one.home, one.columns) if one.columns is not None else (one.home,)
    target = next(output.target for output in checked.spec.outputs if output.target.name == name)
    return tuple(checked.set_of(index) for index in target.indices)


def _columns(
    name: str,
    width: int,
    axes_of_value: int,
    checked: Checked,
    names: Mapping[str, Sequence[str]],
    axes: tuple[str, ...],
) -> tuple[str, ...]:
    """Names of columns: those of the data, tokens of a set, or numbers."""
    if axes_of_value == 1:
        return (printable(name),)
    if len(axes) > 1:
        return tuple(f"{printable(axes[1])} {at}" for at in range(width))
    field = checked.output_field(name)
    dimension = checked.fields[field].width if field is not None and field in checked.fields else None
    body = next(output.body for output in checked.spec.outputs if output.target.name == name)
    if dimension is None and isinstance(body, Ref) and body.name in checked.fields:
        dimension = checked.fields[body.name].width
    for given, labels in names.items():
        same = given in checked.fields and dimension is not None and checked.fields[given].width == dimension
        if same and len(labels) == width and all(labels):
            return tuple(printable(label) for label in labels)
    return tuple(f"{printable(name)} {at + 1}" for at in range(width))


def _number(value: float) -> str:
    return f"{value:.5g}".replace("-", "\N{MINUS SIGN}")
