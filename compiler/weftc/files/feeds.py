"""--data, --init and how to read them -> one array per input, and the dimensions that the data determine.

Widths follow from columns, sizes of fixed sets from rows. Every contradiction names the file and the way out.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weftc.commands.options import UsageError
from weftc.commands.progress import progress
from weftc.core.errors import InputError
from weftc.core.source import printable
from weftc.core.types import Checked, FieldType
from weftc.core.vocabulary import DRAWN
from weftc.core.words import did_you_mean

if TYPE_CHECKING:
    from weftc.files.preparing import Scaling
    from weftc.files.table import DataTable, Reading, TextColumns

WAYS = (*sorted(DRAWN), "first")  # to start, that are no files


@dataclass(frozen=True, slots=True)
class Feeds:
    """What the user feeds: a table per input, and every dimension that is known by now."""

    tables: Mapping[str, DataTable]
    dims: Mapping[str, int]
    arrays: Mapping[str, Any]  # input -> array (rows,) or (rows, columns)
    homes: Mapping[str, str]  # input -> the set its rows belong to
    scalings: tuple[Scaling, ...] = ()
    notes: tuple[str, ...] = ()

    def labels(self, home: str | None) -> TextColumns | None:
        """What the rows of a set are called in results: by --id, or by their numbers where some are left out."""
        from weftc.files.table import TextColumns

        tables = [table for name, table in self.tables.items() if self.homes[name] == home]
        for table in tables:
            if table.ids is not None:
                return table.ids
        for table in tables:
            if table.rows is not None:
                return TextColumns(("row",), [(str(at + 1),) for at in table.rows])
        return None


def gather(
    options: argparse.Namespace,
    checked: Checked,
    dims: Mapping[str, int],
    origin: str = "-D",
    part: tuple[int, int] = (0, 1),
) -> Feeds:
    """Reads all data files and holds them against the spec; `origin` is where the dimensions known so far are from.

    `part`: which of how many parts of every open set this process reads, unless all rows are looked at together.
    """
    from weftc.files.table import Reading

    ways, inits = _ways(checked, options.init)
    paths = _assign(checked, options.data, inits)
    matrices = {name: paths.pop(name) for one in checked.spec.pairs for name in one.values if name in paths}
    columns = _of_inputs(checked, "--columns", options.columns, paths)
    ids = _of_inputs(checked, "--id", options.id, paths)
    joined = first_open(checked) if getattr(options, "join", False) else ""
    alone = {name for name in paths if checked.sets[checked.fields[name].home] == 1}
    together = joined or ids or options.standardize or options.missing != "error"
    places = [checked.fields[name].home for name in paths]

    def parted(home: str) -> dict[str, Any]:
        cut = not together and checked.is_open(home)
        return {"part": part, "by_bytes": places.count(home) == 1} if cut else {}

    tables = {
        name: (_written_out(path) if name in alone else None)
        or _read(
            checked.fields[name],
            path,
            options,
            Reading(columns=columns.get(name), id=ids.get(name), whole=name == joined, **parted(home)),
        )
        for (name, path), home in zip(paths.items(), places, strict=True)
    }
    _same_rows(checked, tables)
    found = _Dimensions(dict(dims), dict.fromkeys(dims, origin))
    notes = [note for table in tables.values() for note in table.notes]
    scalings: tuple[Scaling, ...] = ()
    if tables or options.standardize or options.unit:
        from weftc.files.preparing import completed, scaled

        tables, of_gaps = completed(tables, checked, options.missing)
        for name, table in tables.items():
            found.learn(checked, checked.fields[name], table)
        tables, scalings, of_scales = scaled(tables, checked, options.standardize, options.unit)
        notes += [*of_gaps, *of_scales]
    arrays = {name: _array(checked.fields[name], table, checked, found.known) for name, table in tables.items()}
    if ways and part[1] > 1:
        raise UsageError(
            "--init WAY needs all rows in one process; write the way into the spec, as in init spectral(x)"
        )
    arrays |= {name: _started(checked, name, way, arrays, found.known, options) for name, way in ways.items()}
    homes = {name: checked.fields[name].home for name in arrays}
    entries = _entries(checked, matrices, {homes[name]: len(array) for name, array in arrays.items()})
    arrays, homes = {**arrays, **entries}, {**homes, **{name: checked.fields[name].home for name in entries}}
    return Feeds(tables, found.known, arrays, homes, scalings, tuple(notes))


def _entries(checked: Checked, paths: Mapping[str, str], sizes: Mapping[str, int]) -> dict[str, Any]:
    """Numbers for pairs of two open sets: their entries, row by row."""
    if not paths:
        return {}
    from weftc.files.matrices import read_matrix
    from weftc_runtime.data.pairs import listed_entries
    from weftc_runtime.format.program import PairEntries

    found: dict[str, Any] = {}
    for one in checked.spec.pairs:
        known = sizes.get(one.rows), sizes.get(one.columns)
        given = {name: read_matrix(name, paths[name]).within(*known) for name in one.values if name in paths}
        if given:
            counted = {name: (f"the file of {name}", size) for name, size in sizes.items()}
            pairs = PairEntries(one.values, one.row, one.column, one.rows, one.columns, one.complete)
            found.update(listed_entries(pairs, given, counted))
    return found


def sampled(feeds: Feeds, most: int, seed: int) -> Feeds:
    """At most so many rows of every set, drawn by a seed, in their order; with a note where rows are left out."""
    import numpy as np

    picked: dict[str, Any] = {}
    notes = list(feeds.notes)
    for name, table in feeds.tables.items():
        home, count = feeds.homes[name], len(table.values)
        if count > most and home not in picked:
            picked[home] = np.sort(np.random.default_rng(seed).choice(count, most, replace=False))
            notes.append(
                f"{home} has {count:,} rows; {most:,} of them were used, drawn with seed {seed} "
                "(--sample N changes how many)"
            )
    if not picked:
        return feeds
    arrays = {
        name: np.ascontiguousarray(array[picked[feeds.homes[name]]]) if feeds.homes[name] in picked else array
        for name, array in feeds.arrays.items()
    }
    return replace(feeds, arrays=arrays, notes=tuple(notes))


@contextmanager
def told_by_file(feeds: Feeds) -> Iterator[None]:
    """What a run says about a row of an input is said of the row of its file, counted from 1, with what can be done."""
    from weftc_runtime.errors import RunError

    try:
        yield
    except RunError as error:
        table = feeds.tables.get(error.input or "")
        place = re.fullmatch(r"row (\d+)(?:, column (\d+))?", error.place or "")
        if table is None or place is None:
            raise
        where = f"row {table.row_number(int(place[1]))}"
        where += f", column {int(place[2]) + 1}" if place[2] else ""
        told = str(error).replace(" (rows are counted from 0)", "").partition(place[0])[2]
        remedy = ", or add --unit" if "is not a unit vector" in told else ""
        raise InputError(f"{table.path} {where}{told}{remedy}", input=error.input, place=where) from None


def require_inputs(checked: Checked, feeds: Feeds) -> None:
    """Says which input has neither data nor a way to start."""
    for field in checked.spec.inputs:
        name = field.target.name
        if field.init is None and name not in feeds.arrays:
            first = name == first_open(checked)
            raise UsageError(f"there are no data for {name}; give --data {'' if first else name + '='}FILE")


def require_dims(checked: Checked, feeds: Feeds) -> None:
    """Says which dimension is still open."""
    for dim in checked.dims:
        if dim not in feeds.dims:
            sets = [name for name, size in checked.sets.items() if size == dim]
            what = f"the number of {sets[0]} ({dim})" if sets else f"the dimension {dim}"
            start = next(
                (f for f in checked.spec.inputs if f.init and checked.fields[f.target.name].home in sets), None
            )
            how = f", or start values with --init FILE (one row for each of {sets[0]})" if start else ""
            raise UsageError(f"{what} is not known; give -D {dim}=NUMBER{how}")


# ---- which file feeds which input ------------------------------------------------------------------------------------


def first_open(checked: Checked) -> str:
    """The input that a bare --data feeds: the first on an open set, or the first of all."""
    names = [field.target.name for field in checked.spec.inputs]
    return next((n for n in names if checked.is_open(checked.fields[n].home)), names[0] if names else "")


def _assign(checked: Checked, data: Sequence[str], init: Sequence[str]) -> dict[str, str]:
    inputs = [field.target.name for field in checked.spec.inputs]
    if not inputs and (data or init):
        raise UsageError(f"{checked.spec.name} has no inputs, so there is nothing to feed")
    started = [field.target.name for field in checked.spec.inputs if field.init is not None]
    paths: dict[str, str] = {}
    for option, words in (("--data", data), ("--init", init)):
        for word in words:
            name, path = _named(option, word, inputs, Path(word).exists())
            name = name or (first_open(checked) if option == "--data" else _only_start(checked, started))
            if name in paths:
                raise UsageError(
                    f"{option} {printable(word)}: {name} is already fed by {printable(paths[name])}; "
                    f"name the input: {option} NAME=FILE, with NAME one of {', '.join(inputs)}"
                )
            paths[name] = path
    _refuse_shared_stream(paths)
    return paths


def _refuse_shared_stream(paths: Mapping[str, str]) -> None:
    """A stream gives its rows once, to one input."""
    from weftc.files.datafiles import is_standard_input, is_stream

    fed: dict[str, str] = {}
    for name, word in paths.items():
        path = Path(word)
        if is_stream(path):
            place = os.path.realpath("/dev/stdin" if is_standard_input(path) else path)
            if place in fed:
                raise UsageError(
                    f"{fed[place]} and {name} cannot both be read from {printable(word)}; save it as a file"
                )
            fed[place] = name


def _named(option: str, word: str, inputs: Sequence[str], is_file: bool) -> tuple[str, str]:
    """`x=points.csv` -> its two parts; a bare value has no name. A file whose own name has a `=` is still found."""
    name, equals, rest = word.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z]\w*'*", name):
        return "", word
    if name in inputs:
        if not rest:
            raise UsageError(f"{option} {printable(word)}: nothing stands behind the =")
        return name, rest
    if is_file:
        return "", word
    hint = did_you_mean(name, inputs) or f"inputs are {', '.join(inputs)}"
    raise UsageError(f"{option} {printable(word)}: there is no input {printable(name)}; {hint}")


def _ways(checked: Checked, init: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Which of --init are ways to start, by the input; the others are files."""
    started = [field.target.name for field in checked.spec.inputs if field.init is not None]
    ways, files = dict[str, str](), list[str]()
    for word in init:
        name, _, way = word.rpartition("=")
        if way not in WAYS or Path(word).exists() or (name and name not in started):
            meant = "" if Path(way).exists() else did_you_mean(way, WAYS)
            if meant:
                raise UsageError(f"--init {printable(word)}: there is no such file, and no such way to start; {meant}")
            files.append(word)
        elif ways.setdefault(name or _only_start(checked, started), way) != way:
            raise UsageError(f"--init {printable(word)}: another --init says how {name or started[0]} starts")
    return ways, files


def _started(
    checked: Checked, name: str, way: str, arrays: Mapping[str, Any], dims: Mapping[str, int], options: Any
) -> Any:
    """What an input starts with, drawn from the data in another way than its `init` clause says."""
    from weftc_runtime.data.initial import start

    field = next(one for one in checked.spec.inputs if one.target.name == name)
    assert field.init is not None
    source, size = str(field.init.of), checked.sets[checked.fields[name].home]
    if source not in arrays or checked.fields[name].is_pair or checked.fields[name].width is None:
        raise UsageError(f"--init {way}: {name} starts from vectors {source}; give them with --data")
    count = dims.get(size) if isinstance(size, str) else size
    if count is None:
        raise UsageError(f"--init {way}: how many {checked.fields[name].home} there are is not known; give -D {size}=N")
    return start(way, arrays[source], count, name, source, getattr(options, "seed", None) or 0)


def _only_start(checked: Checked, started: Sequence[str]) -> str:
    if len(started) == 1:
        return started[0]
    if started:
        raise UsageError(
            f"several inputs have start values; say which: --init NAME=FILE, NAME one of {', '.join(started)}"
        )
    raise UsageError(f"no input of {checked.spec.name} has an `init` clause; give its data with --data NAME=FILE")


def _of_inputs(checked: Checked, option: str, words: Sequence[str], paths: Mapping[str, str]) -> dict[str, str]:
    """`[NAME=]COLUMNS`, once for each input that a file feeds."""
    found: dict[str, str] = {}
    inputs = [field.target.name for field in checked.spec.inputs]
    for word in words:
        name, chosen = _named(option, word, inputs, False)
        name = name or first_open(checked)
        if name in found:
            how = "join the two with a comma" if option == "--columns" else "one column names the rows"
            raise UsageError(f"{option} is given twice for {name}; {how}")
        if name not in paths:
            raise UsageError(f"{option} {printable(word)}: no file feeds {name}; give --data FILE")
        found[name] = chosen
    return found


def _written_out(word: str) -> DataTable | None:
    """The one row of a set of one token as it is given on the command line: `T=0.5`, `w=1,2`; None for a file."""
    if Path(word).exists() or not re.fullmatch(r"[-+.\deE,]+", word):
        return None
    import numpy as np

    from weftc.files.datafiles import from_array

    try:
        return from_array(word, np.array([[float(number) for number in word.split(",")]]))
    except ValueError:
        return None


def _read(field: FieldType, path: str, options: argparse.Namespace, wish: Reading) -> DataTable:
    from weftc.files.datafiles import read_table

    asked = {"header": options.header, "decimal": options.decimal, "missing": options.missing}
    reading = replace(wish, **asked, array=field.name, symbols=field.symbols)
    with progress(f"reading {Path(path).name}"):
        return read_table(Path(path), reading)


# ---- dimensions ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Dimensions:
    """Dimensions as they become known, each with where it is from."""

    known: dict[str, int]
    origin: dict[str, str]

    def learn(self, checked: Checked, field: FieldType, table: DataTable) -> None:
        """Takes the sizes of one table, or says which of them contradicts what is known."""
        for dim, size, what, cure in _sizes(checked, field, table):
            expected = dim if isinstance(dim, int) else self.known.setdefault(dim, size)
            source = "in the spec" if isinstance(dim, int) else f"by {self.origin.setdefault(dim, table.path)}"
            if size != expected:
                why = f"{'it' if isinstance(dim, int) else dim} is set {source}"
                raise InputError(f"{table.path} has {size} {what}, but {field.name} needs {expected} ({why}); {cure}")


def _sizes(checked: Checked, field: FieldType, table: DataTable) -> Iterator[tuple[str | int, int, str, str]]:
    """(dimension, size found, what was counted, what to do) for each dimension of a field."""
    rows, columns = table.values.shape
    choose = f"choose with --columns {'' if field.name == first_open(checked) else field.name + '='}..."
    home = checked.sets[field.home]
    if home is not None:
        yield home, rows, "rows" if rows != 1 else "row", f"give one row for each of {field.home}"
    width = _width(checked, field)
    if width is None:
        if columns != 1:
            raise InputError(f"{field.name} is one number per token, but {table.path} has {columns} columns; {choose}")
    elif not _is_index(field, table):
        yield width, columns, "columns" if columns != 1 else "column", choose


def _width(checked: Checked, field: FieldType) -> str | int | None:
    """How many columns a field has: None is one number per token."""
    return checked.sets[field.columns] if field.columns is not None else field.width


def _is_index(field: FieldType, table: DataTable) -> bool:
    """Whether a one-hot field is given as one column of indices."""
    return field.kind in ("onehot", "symbol") and table.values.shape[1] == 1


def _same_rows(checked: Checked, tables: Mapping[str, DataTable]) -> None:
    seen: dict[str, str] = {}
    for name, table in tables.items():
        home = checked.fields[name].home
        other = seen.setdefault(home, name)
        if tables[other].count != table.count:
            raise InputError(
                f"{other} has {tables[other].count} rows ({tables[other].path}), but {name} has "
                f"{table.count} ({table.path}); both belong to {home}, so they need the same number"
            )


# ---- arrays ----------------------------------------------------------------------------------------------------------


def _array(field: FieldType, table: DataTable, checked: Checked, dims: Mapping[str, int]) -> Any:
    """The array a model takes: one axis for numbers, two for vectors and pair fields."""
    width = _width(checked, field)
    if width is None:
        return table.values[:, 0]
    if _is_index(field, table):
        size = width if isinstance(width, int) else dims.get(width)
        if size is None:
            raise UsageError(
                f"{field.name} is given as indices, so the size of {field.columns} is not known; give -D {width}="
            )
        return _one_hot(field, table, size)
    return table.values


def _one_hot(field: FieldType, table: DataTable, size: int) -> Any:
    import numpy as np

    column = table.values[:, 0]
    bad = np.flatnonzero((column != np.floor(column)) | (column < 0) | (column >= size))
    if len(bad):
        raise InputError(
            f"{table.path}: row {table.row_number(int(bad[0]))} of {field.name} is {column[bad[0]]:g}; "
            f"an index into {field.columns} is a whole number from 0 to {size - 1}"
        )
    return np.eye(size)[column.astype(int)]
