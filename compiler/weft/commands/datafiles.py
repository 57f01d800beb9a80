"""Data files -> tables of finite float64 numbers, and arrays -> data files.

CSV, TSV and other text tables, NumPy's .npy and .npz, and Parquet where pyarrow is installed. Nothing is unpickled.
Streams (standard input, pipes) give their bytes once; they are copied before anything looks at them.
Files that are absent, too large, of another kind or not made of finite numbers are errors in the user's words.
"""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from weft.commands.delimited import Header, read_delimited
from weft.commands.table import Table, choose_columns, chosen_names, quote
from weft.errors import InputError
from weft.language.words import did_you_mean
from weft.source import printable

Reader = Callable[[Path, str, str | None], Table]  # file, what messages call it, columns
Format = Literal["csv", "tsv", "npy"]
FORMATS: tuple[Format, ...] = ("csv", "tsv", "npy")
LARGEST_TEXT = 4 * 2**30  # bytes; a text table of this size takes minutes to read, a .npy file is mapped at once
LARGEST_ARCHIVE = 64 * 2**30  # bytes an .npz may unpack to
BYTES_AT_ONCE = 2**20
ROWS_AT_ONCE = 8192  # rows turned into text at a time
FOREIGN = {
    **dict.fromkeys((".xlsx", ".xls", ".ods", ".json"), "export it as CSV"),
    **dict.fromkeys((".gz", ".bz2", ".xz", ".zip"), "unpack it first"),
    **dict.fromkeys((".mat", ".pt", ".pkl"), "save the array as .npy"),
    ".safetensors": "it is a model, not data",
}


def read_table(path: Path, columns: str | None = None, header: Header = "auto", array: str = "") -> Table:
    """Reads a data file by the ending of its name; `-` is standard input. `array` names the array to prefer in .npz."""
    shown = "standard input" if is_standard_input(path) else printable(str(path))
    _refuse_absent(path, shown)
    suffix = path.suffix.lower()
    if suffix in FOREIGN:
        raise InputError(f"{shown}: {suffix} files cannot be read; {FOREIGN[suffix]}")
    try:
        with _at_rest(path, shown) as file:
            table = _reader(suffix or _suffix_of_stream(path, file), array, header)(file, shown, columns)
    except OSError as error:
        raise InputError(f"{shown} cannot be read: {error.strerror or error}") from None
    except MemoryError:
        raise InputError(f"{shown} does not fit into memory; split it, or use fewer columns") from None
    if not len(table.values):
        raise InputError(f"{shown} has no rows; a data file has one row of numbers per token")
    return table


# ---- streams ---------------------------------------------------------------------------------------------------------


def is_standard_input(path: Path) -> bool:
    """`-`, as everywhere; a file of that name is `./-`."""
    return str(path) == "-"


def is_stream(path: Path) -> bool:
    """Whether what is read from a path is gone afterwards: standard input, a pipe, a device."""
    return is_standard_input(path) or (path.exists() and not path.is_file() and not path.is_dir())


@contextmanager
def _at_rest(path: Path, shown: str) -> Iterator[Path]:
    """A file that can be read several times: the path itself, or a copy of what comes through a stream."""
    if not is_stream(path):
        yield path
        return
    with TemporaryDirectory(prefix="weft-") as folder:
        copy = Path(folder, "data")
        with copy.open("xb") as file, _opened(path) as stream:
            size = 0
            while block := stream.read(BYTES_AT_ONCE):
                size += len(block)
                if size > LARGEST_TEXT:
                    limit = f"{LARGEST_TEXT / 2**30:.0f} GiB"
                    raise InputError(f"{shown} gives more than {limit}; save it as .npy, which is mapped, not copied")
                file.write(block)
        yield copy


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    if not is_standard_input(path):
        with path.open("rb") as stream:
            yield stream
    elif sys.stdin is None:
        raise InputError("standard input is closed; name a file instead of -")
    else:
        yield sys.stdin.buffer


def _suffix_of_stream(path: Path, copy: Path) -> str:
    """Streams have no ending: NumPy's arrays are known by how they begin."""
    if path == copy:
        return ""
    with copy.open("rb") as file:
        return ".npy" if file.read(6) == b"\x93NUMPY" else ""


def _reader(suffix: str, array: str, header: Header) -> Reader:
    readers: dict[str, Reader] = {
        ".npy": _read_npy,
        ".npz": lambda path, shown, columns: _read_npz(path, shown, columns, array),
        ".parquet": _read_parquet,
        ".pq": _read_parquet,
    }
    return readers.get(suffix, lambda path, shown, columns: _read_text(path, shown, columns, header))


def _refuse_absent(path: Path, shown: str) -> None:
    if is_standard_input(path):
        return
    if path.is_dir():
        raise InputError(f"{shown} is a folder, not a data file")
    if path.exists():
        return
    try:
        hint = did_you_mean(path.name, [p.name for p in path.parent.iterdir()])
    except OSError:
        hint = ""
    raise InputError(f"there is no file {shown}{'; ' + printable(hint) if hint else ''}")


def _read_text(path: Path, shown: str, columns: str | None, header: Header) -> Table:
    size = path.stat().st_size
    if size > LARGEST_TEXT:
        raise InputError(
            f"{shown} is {size / 2**30:.1f} GiB of text; the limit is {LARGEST_TEXT / 2**30:.0f} GiB. "
            "Save it as .npy, which needs no parsing"
        )
    return read_delimited(path, shown, columns, header)


# ---- arrays ----------------------------------------------------------------------------------------------------------


def _read_npy(path: Path, shown: str, columns: str | None) -> Table:
    try:
        # mapping checks the promised shape against the size of the file before anything is allocated
        loaded = np.load(path, mmap_mode="c", allow_pickle=False)  # may be written to, which the file does not notice
    except (ValueError, EOFError, OverflowError) as error:
        raise InputError(f"{shown} is not a usable .npy file: {printable(str(error))}") from None
    return from_array(shown, loaded, columns)


def _read_npz(path: Path, shown: str, columns: str | None, prefer: str) -> Table:
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
        if unpacked > LARGEST_ARCHIVE:
            raise InputError(f"{shown} would unpack to {unpacked / 2**30:.0f} GiB; save the array you need as .npy")
        with np.load(path, allow_pickle=False) as arrays:
            name = _pick_array(shown, list(arrays.files), prefer)
            loaded = arrays[name]
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise InputError(f"{shown} is not a usable .npz file: {printable(str(error))}") from None
    return from_array(f"{shown} ({printable(name)})", loaded, columns)


def _pick_array(shown: str, names: Sequence[str], prefer: str) -> str:
    if prefer in names:
        return prefer
    if len(names) == 1:
        return names[0]
    listed = ", ".join(printable(n) for n in names) or "none"
    raise InputError(
        f"{shown} holds several arrays ({listed}); none is called {prefer}. Rename one, or save it as .npy"
    )


def from_array(
    shown: str, loaded: NDArray[Any], columns: str | None = None, names: Sequence[str] | None = None
) -> Table:
    """A table of the chosen columns of an array; one axis is one column."""
    if loaded.ndim not in (1, 2):
        raise InputError(f"{shown} has {loaded.ndim} axes; data have rows and columns")
    if loaded.dtype.kind not in "fiub":
        raise InputError(f"{shown} holds values of type {loaded.dtype}; data are real numbers")
    values = loaded.reshape(len(loaded), -1) if loaded.size else loaded.reshape(len(loaded), 1)[:0]
    picked = choose_columns(shown, values.shape[1], names, columns)
    chosen = values if picked == list(range(values.shape[1])) else values[:, picked]
    numbers: NDArray[Any] = np.ascontiguousarray(chosen, dtype=np.float32 if chosen.dtype == np.float32 else np.float64)
    _refuse_infinite(shown, numbers, picked, names)
    return Table(shown, numbers, chosen_names(names, picked))


def _refuse_infinite(shown: str, values: NDArray[Any], picked: Sequence[int], names: Sequence[str] | None) -> None:
    bad: list[tuple[int, int]] = []
    many = 0
    for at in range(0, len(values), ROWS_AT_ONCE):
        found = np.argwhere(~np.isfinite(values[at : at + ROWS_AT_ONCE]))
        bad += [(at + int(row), int(column)) for row, column in found[:1]]
        many += len(found)
    if not bad:
        return
    row, column = bad[0]
    value = values[row, column]
    named = f" ({printable(names[picked[column]])})" if names else ""
    what = "the value is missing (NaN)" if np.isnan(value) else f"{quote(str(value))} is not finite"
    more = f"; {many} values of the file are like that" if many > 1 else ""
    raise InputError(
        f"{shown} row {row + 1}, column {picked[column] + 1}{named}: {what}; correct it or remove the row{more}"
    )


def _read_parquet(path: Path, shown: str, columns: str | None) -> Table:
    try:
        pyarrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        raise InputError(f"{shown}: reading Parquet needs pyarrow; install it with: pip install pyarrow") from None
    try:
        loaded = parquet.read_table(path)
    except pyarrow.ArrowException as error:
        raise InputError(f"{shown} is not a usable Parquet file: {printable(str(error))}") from None
    names = [str(name) for name in loaded.column_names]
    picked = choose_columns(shown, len(names), names, columns)
    arrays = [_parquet_column(shown, loaded.column(c), names[c], c) for c in picked]
    table = from_array(shown, np.stack(arrays, axis=1) if arrays else np.empty((0, 0)))
    return Table(shown, table.values, chosen_names(names, picked))


def _parquet_column(shown: str, column: Any, name: str, at: int) -> NDArray[np.float64]:
    values = np.asarray(column.to_numpy())
    if values.dtype.kind not in "fiub":
        raise InputError(
            f"{shown} column {at + 1} ({printable(name)}) holds {printable(str(column.type))}, not numbers; "
            "leave it out with --columns"
        )
    return values.astype(np.float64)


# ---- writing ---------------------------------------------------------------------------------------------------------


def write_table(path: Path, values: NDArray[Any], names: Sequence[str], form: Format) -> None:
    """Writes an array (rows, columns) with the shortest digits that read back as the same numbers."""
    if form == "npy":
        np.save(path, values[:, 0] if values.shape[1] == 1 else values, allow_pickle=False)
        return
    separator = "," if form == "csv" else "\t"
    with path.open("x", encoding="utf-8", newline="\n") as file:
        file.write(separator.join(_cell(name, separator) for name in names) + "\n")
        for start in range(0, len(values), ROWS_AT_ONCE):
            rows = values[start : start + ROWS_AT_ONCE].astype(str).tolist()
            file.writelines(separator.join(row) + "\n" for row in rows)


def _cell(name: str, separator: str) -> str:
    return '"' + name.replace('"', '""') + '"' if separator in name or '"' in name or "\n" in name else name
