"""The outputs of a run -> tables ready to be written, each with the names of its columns and a line about it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from weftc.commands.options import UsageError
from weftc.core.errors import InputError
from weftc.core.source import printable
from weftc.core.types import Checked
from weftc.core.words import did_you_mean, listed
from weftc.files.feeds import Feeds, first_open
from weftc.files.preparing import Scaling
from weftc.files.table import TextColumns
from weftc_runtime.format.checkpoint import Checkpoint

if TYPE_CHECKING:
    from weftc_runtime.data.results import Outputs

OBJECTIVE = "(objective)"  # no output can have this name


@dataclass(frozen=True, slots=True)
class ResultTable:
    """One output: a table with its columns and what a row of it is; its numbers come in blocks, as they are made."""

    name: str
    rows: int
    blocks: Callable[[], Iterator[NDArray[Any]]]
    columns: tuple[str, ...]
    meaning: str
    home: str | None = None  # the set that has a row each
    labels: TextColumns | None = None  # what the user calls the rows
    sizes: tuple[int, ...] | None = None  # of a choice: how many rows chose each

    @property
    def values(self) -> NDArray[Any]:
        """All of it, (rows, columns)."""
        return np.concatenate(list(self.blocks()))


@dataclass(frozen=True, slots=True)
class Joining:
    """The rows of a data file that results are written beside."""

    name: str  # of the file, without its ending
    home: str
    cells: TextColumns
    rows: NDArray[np.intp] | None  # those that were used, where some were left out


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


def to_results(values: Outputs, names: Sequence[str], checked: Checked, feeds: Feeds) -> list[ResultTable]:
    """The chosen outputs as tables, with what the user calls their rows."""
    found = []
    for name in names:
        home = _home(name, checked)
        found.append(replace(_result(name, values, checked, feeds), home=home, labels=feeds.labels(home)))
    return found


def _result(name: str, outputs: Outputs, checked: Checked, feeds: Feeds) -> ResultTable:
    from weftc_runtime.data.results import Lazy, OneHot

    def blocks() -> Iterator[NDArray[Any]]:
        return (block.detach().cpu().numpy() for block in outputs.blocks(name))

    across, value = _across(name, checked), outputs.unmade()[name]
    if isinstance(value, Lazy) and value.rows is not None:
        rows, width = value.count, value.width
    else:
        value = outputs[name]
        rows = value.shape[0] if len(value.shape) else 1
        width = 1 if isinstance(value, OneHot) else max(1, value.numel() // max(1, rows))
    if isinstance(value, OneHot) and value.symbols:
        words = np.array([*value.symbols, ""])  # the last: none, where nothing was computed

        def spelled() -> Iterator[NDArray[Any]]:
            return (words[block.detach().cpu().numpy()] for block in outputs.blocks(name))

        return ResultTable(name, rows, spelled, (name,), f"one of {listed(value.symbols)}")
    if isinstance(value, OneHot):
        counts = [np.bincount(block[block >= 0], minlength=value.columns) for block in blocks()]
        said = f"index of {across}, counted from 0"
        return ResultTable(
            name, rows, blocks, (f"{across}_index_from_0",), said, sizes=tuple(np.sum(counts, axis=0).tolist())
        )
    if across is not None:
        labels = tuple(f"{across}_{at}" for at in range(width))
        return ResultTable(name, rows, blocks, labels, f"one column for each of {across}, counted from 0")
    known = _coordinates(name, checked, feeds)
    if known is not None and len(known) == width:
        return ResultTable(name, rows, blocks, known, "")
    labels = (name,) if width == 1 else tuple(f"{name}_{at}" for at in range(width))
    return ResultTable(name, rows, blocks, labels, "")


# ---- beside the data -------------------------------------------------------------------------------------------------


def join_rows(names: Sequence[str], checked: Checked, feeds: Feeds) -> Joining:
    """The rows that --join writes results beside, or why there are none."""
    fed = first_open(checked)
    home = checked.fields[fed].home
    if not any(_home(name, checked) == home for name in names):
        raise UsageError(f"--join: no output has a row for each of {home}, so there is nothing to join to {fed}")
    table = feeds.tables[fed]
    assert table.cells is not None
    return Joining(f"{home}-joined", home, table.cells, table.rows)  # no output has a - in its name


def joined_columns(joining: Joining, results: Sequence[ResultTable]) -> TextColumns:
    """All rows of the data as they were written, each with its outputs; empty where a row was left out."""
    names = list(joining.cells.names)
    rows = [list(row) for row in joining.cells.rows]
    used = range(len(rows)) if joining.rows is None else joining.rows.tolist()
    for result in results:
        if result.home != joining.home:
            continue
        single = len(result.columns) == 1
        values = result.values
        for at, column in enumerate(result.columns):
            name = result.name if single else f"{result.name}_{column}"
            names.append(name if name not in names else f"{name}_output")
            written = dict(zip(used, values[:, at].astype(str).tolist(), strict=True))
            for number, row in enumerate(rows):
                row.append(written.get(number, ""))
    return TextColumns(tuple(names), rows)


def scaling_columns(scalings: Sequence[Scaling]) -> TextColumns:
    """What --standardize did, column by column: value = mean + scale * result."""
    rows = [
        (",".join(scaling.inputs), column, str(mean), str(scale))
        for scaling in scalings
        for column, mean, scale in zip(scaling.columns, scaling.mean, scaling.scale, strict=True)
    ]
    return TextColumns(("inputs", "column", "mean", "scale"), rows)


# ---- what an output is -----------------------------------------------------------------------------------------------


def _home(name: str, checked: Checked) -> str | None:
    """The set that an output has one row for each of."""
    field = checked.output_field(name)
    if field is not None:
        return checked.fields[field].home
    indices = next(output.target.indices for output in checked.spec.outputs if output.target.name == name)
    return checked.set_of(indices[0]) if indices else None


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
