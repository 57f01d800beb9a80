"""The outputs of a run -> tables ready to be written, each with the names of its columns and a line about it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.commands.feeds import Feeds
from weft.commands.options import UsageError
from weft.errors import InputError
from weft.language.words import did_you_mean
from weft.source import printable
from weft.types import Checked
from weft_runtime.checkpoint import Checkpoint

OBJECTIVE = "(objective)"  # no output can have this name


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


def only(checkpoint: Checkpoint, names: Sequence[str]) -> Checkpoint:
    """A checkpoint that answers with these outputs and the objective, so that one run gives all that is wanted."""
    whole = checkpoint.program
    outputs = [output for output in whole.outputs if output.name in names]
    if whole.objective is not None:
        outputs.append(replace(whole.objective, name=OBJECTIVE))
    program = replace(whole, outputs=tuple(outputs))
    used = program.tensors()
    tensors = {name: array for name, array in checkpoint.tensors.items() if name in used}
    return replace(checkpoint, program=program, tensors=tensors)


def to_results(values: Mapping[str, Any], names: Sequence[str], checked: Checked, feeds: Feeds) -> list[Result]:
    """The chosen outputs as tables."""
    return [_result(name, values[name], checked, feeds) for name in names]


def _result(name: str, value: Any, checked: Checked, feeds: Feeds) -> Result:
    from weft_runtime.results import OneHot

    across = _across(name, checked)
    if isinstance(value, OneHot):
        return Result(name, _matrix(value.indices), (f"{across}_index_from_0",), f"index of {across}, counted from 0")
    table = _matrix(value)
    width = table.shape[1]
    if across is not None:
        labels = tuple(f"{across}_{at}" for at in range(width))
        return Result(name, table, labels, f"one column for each of {across}, counted from 0")
    known = _coordinates(name, checked, feeds)
    if known is not None and len(known) == width:
        return Result(name, table, known, "")
    return Result(name, table, (name,) if width == 1 else tuple(f"{name}_{at}" for at in range(width)), "")


def _across(name: str, checked: Checked) -> str | None:
    """The set that the columns of an output over pairs stand for."""
    field = checked.output_field(name)
    if field is not None:
        return checked.fields[field].columns
    indices = next(output.target.indices for output in checked.spec.outputs if output.target.name == name)
    return checked.set_of(indices[1]) if len(indices) == 2 else None


def _coordinates(name: str, checked: Checked, feeds: Feeds) -> tuple[str, ...] | None:
    """The names that the data give to the coordinates of a vector."""
    field = checked.output_field(name)
    dim = checked.fields[field].width if field is not None else None
    for fed, table in feeds.tables.items():
        if dim is not None and checked.fields[fed].width == dim and table.names is not None and all(table.names):
            return table.names
    return None


def _matrix(value: Any) -> NDArray[Any]:
    """A tensor or array as rows and columns; a number is one row of one."""
    array = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    return array.reshape(array.shape[0] if array.ndim else 1, -1)
