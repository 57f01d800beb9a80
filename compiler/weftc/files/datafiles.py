"""Data files -> tables of float64 numbers, and arrays -> data files.

CSV, TSV and other text tables, NumPy's .npy and .npz, any of them compressed, and Parquet, Arrow and Feather where
pyarrow is installed (extra `data`). Nothing is unpickled. Streams (standard input, pipes) give their bytes once; they
are copied before anything looks at them. Files that are absent, too large, of another kind or not made of finite
numbers are errors in the user's words.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from itertools import accumulate, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from weftc.core.errors import InputError
from weftc.core.source import printable
from weftc.core.words import did_you_mean
from weftc.files.delimited import read_delimited
from weftc.files.table import (
    AS_IT_IS,
    SHOWN_PLACES,
    Columns,
    DataTable,
    Reading,
    TextColumns,
    choose,
    missing_values,
    notice_index,
    quote,
)
from weftc_runtime.data.blocks import chunks, gathered, in_type, parts

Reader = Callable[[Path, str, Reading], DataTable]  # file, what messages call it, the user's wishes
Format = Literal["csv", "tsv", "npy", "parquet"]
LARGEST_TEXT = 4 * 2**30  # bytes; a text table of this size takes minutes to read, a .npy file is mapped at once
LARGEST_ARCHIVE = 64 * 2**30  # bytes an .npz may unpack to
BYTES_AT_ONCE = 2**20
PACKED_AT_ONCE = 2**12  # bytes of a .zst file: a few of them may stand for megabytes
ROWS_AT_ONCE = 8192  # rows turned into text at a time
BATCH = 1 << 16  # rows of a Parquet file read at a time
IN_FOLDERS = (".parquet", ".pq", ".arrow", ".ipc", ".feather", ".npy")
FOREIGN = {
    **dict.fromkeys(
        (".xlsx", ".xls", ".ods"),
        "is a spreadsheet, which cannot be read; save the sheet as CSV (UTF-8) and give that file",
    ),
    ".json": "is JSON, which cannot be read; save the table as CSV",
    **dict.fromkeys((".zip", ".tar", ".tgz"), "is an archive; unpack it and give the file inside"),
    **dict.fromkeys((".mat", ".pt", ".pkl"), "cannot be read; save the array as .npy"),
    ".safetensors": "is a model, not data",
}
COMPRESSED = {".gz": b"\x1f\x8b", ".zst": b"\x28\xb5\x2f\xfd", ".bz2": b"BZh", ".xz": b"\xfd7zXZ\0"}
BEGINNINGS = {".npy": b"\x93NUMPY", ".parquet": b"PAR1", ".arrow": b"ARROW1", ".feather": b"FEA1"}


def read_table(path: Path, reading: Reading = AS_IT_IS) -> DataTable:
    """Reads a data file by the ending of its name, else by how it begins; `-` is standard input."""
    shown = "standard input" if is_standard_input(path) else printable(str(path))
    if not path.exists() and (listed := _matching(path)):
        return _together(listed, shown, reading)
    _refuse_absent(path, shown)
    suffix = path.suffix.lower()
    if suffix in FOREIGN:
        raise InputError(f"{shown} {FOREIGN[suffix]}")
    try:
        if path.is_dir():
            return _read_folder(path, shown, reading)
        with _at_rest(path, shown) as file, _unpacked(file, suffix, shown) as (plain, kind):
            table = _reader(kind or _kind(plain))(plain, shown, reading)
    except OSError as error:
        raise InputError(f"{shown} cannot be read: {error.strerror or error}") from None
    except MemoryError:
        raise InputError(f"{shown} does not fit into memory; split it, or use fewer columns") from None
    if not len(table.values) and not table.part:
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
    with TemporaryDirectory(prefix="weftc-") as folder:
        copy = Path(folder, "data")
        with _opened(path) as stream:
            _copy(iter(lambda: stream.read(BYTES_AT_ONCE), b""), copy, shown)
        yield copy


def _copy(blocks: Iterator[bytes], copy: Path, shown: str) -> None:
    size = 0
    with copy.open("xb") as file:
        for block in blocks:
            size += len(block)
            if size > LARGEST_TEXT:
                limit = f"{LARGEST_TEXT / 2**30:.0f} GiB"
                raise InputError(f"{shown} gives more than {limit}; save it as .npy, which is mapped, not copied")
            file.write(block)


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    if not is_standard_input(path):
        with path.open("rb") as stream:
            yield stream
    elif sys.stdin is None:
        raise InputError("standard input is closed; name a file instead of -")
    else:
        yield sys.stdin.buffer


@contextmanager
def _unpacked(path: Path, suffix: str, shown: str) -> Iterator[tuple[Path, str]]:
    """A file without compression, and the ending that says its kind: `points.csv.gz` has .csv inside."""
    packing = suffix if suffix in COMPRESSED else _beginning(path, COMPRESSED) if not suffix else ""
    if not packing:
        yield path, suffix
        return
    inner = Path(path.name.removesuffix(path.suffix)).suffix.lower() if suffix else ""
    with TemporaryDirectory(prefix="weftc-") as folder:
        copy = Path(folder, "data")
        try:
            with path.open("rb") as file:
                _copy(_decompressed(packing, file, shown), copy, shown)
        except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, ValueError) as error:
            raise InputError(f"{shown} is not a whole {packing} file: {printable(str(error))}") from None
        except OSError as error:
            if error.errno is not None:
                raise
            raise InputError(f"{shown} is not a whole {packing} file: {printable(str(error))}") from None
        yield copy, inner


def _decompressed(packing: str, file: BinaryIO, shown: str) -> Iterator[bytes]:
    """The content of a compressed file, block by block; it raises at the end of a file that is cut off."""
    if packing == ".zst":
        return _unzstd(file, shown)
    return _unpacked_blocks({".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}[packing], file)


def _unpacked_blocks(opened: Any, file: BinaryIO) -> Iterator[bytes]:
    with opened(file) as stream:
        while block := stream.read(BYTES_AT_ONCE):
            yield block


def _unzstd(file: BinaryIO, shown: str) -> Iterator[bytes]:
    """Frame after frame. (The library's own reader takes a frame that is cut off for the end.)"""
    try:
        zstandard = import_module("zstandard")
    except ImportError:
        raise InputError(f"{shown}: reading .zst needs zstandard; install it with: {INSTALL}") from None
    frame = None
    try:
        while block := file.read(PACKED_AT_ONCE):
            while block:
                frame = frame or zstandard.ZstdDecompressor().decompressobj()
                yield frame.decompress(block)
                block, frame = (frame.unused_data, None) if frame.eof else (b"", frame)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from None
    if frame is not None:
        raise EOFError("it ends before its content does")


def _beginning(path: Path, marks: dict[str, bytes]) -> str:
    with path.open("rb") as file:
        start = file.read(8)
    return next((ending for ending, mark in marks.items() if start.startswith(mark)), "")


def _kind(path: Path) -> str:
    """Streams have no ending: what they are is seen from how they begin."""
    kind = _beginning(path, BEGINNINGS)
    return ".npz" if not kind and _is_npz(path) else kind


def _is_npz(path: Path) -> bool:
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return all(name.endswith(".npy") for name in archive.namelist())


def _reader(kind: str) -> Reader:
    readers: dict[str, Reader] = {
        ".npy": _read_npy,
        ".npz": _read_npz,
        **dict.fromkeys((".parquet", ".pq", ".arrow", ".ipc", ".feather"), _read_arrow),
    }
    return readers.get(kind, _read_text)


def _refuse_absent(path: Path, shown: str) -> None:
    if is_standard_input(path):
        return
    if path.exists():
        return
    try:
        hint = did_you_mean(path.name, [p.name for p in path.parent.iterdir()])
    except OSError:
        hint = ""
    raise InputError(f"there is no file {shown}{'; ' + printable(hint) if hint else ''}")


def _read_text(path: Path, shown: str, reading: Reading) -> DataTable:
    size = path.stat().st_size
    if size > LARGEST_TEXT:
        raise InputError(
            f"{shown} is {size / 2**30:.1f} GiB of text; the limit is {LARGEST_TEXT / 2**30:.0f} GiB. "
            "Save it as .npy, which needs no parsing"
        )
    return read_delimited(path, shown, reading)


# ---- arrays ----------------------------------------------------------------------------------------------------------


def _read_npy(path: Path, shown: str, reading: Reading) -> DataTable:
    return from_array(shown, _mapped(path, shown), reading)


def _mapped(path: Path, shown: str) -> NDArray[Any]:
    try:
        # mapping checks the promised shape against the size of the file before anything is allocated
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except (ValueError, EOFError, OverflowError) as error:
        raise InputError(f"{shown} is not a usable .npy file: {printable(str(error))}") from None


def _read_folder(path: Path, shown: str, reading: Reading) -> DataTable:
    """A Zarr array, or all data files of a folder in the order of their names."""
    if path.suffix.lower() == ".zarr" or (path / "zarr.json").exists() or (path / ".zarray").exists():
        return _read_zarr(path, shown, reading)
    found = sorted(file for file in path.iterdir() if file.suffix.lower() in IN_FOLDERS)
    if not found:
        raise InputError(f"{shown} is a folder without data files ({', '.join(IN_FOLDERS)}), not a data file")
    return _together(found, shown, reading)


def _matching(path: Path) -> list[Path]:
    """The files that a pattern (`folder/*.parquet`) names, in the order of their names."""
    return sorted(file for file in path.parent.glob(path.name) if file.is_file()) if set(path.name) & set("*?[") else []


def _together(found: Sequence[Path], shown: str, reading: Reading) -> DataTable:
    """Data files with the same columns as one table."""
    others = [file for file in found if file.suffix.lower() not in IN_FOLDERS]
    if others:
        raise InputError(
            f"{printable(str(others[0]))}: of several files, only {', '.join(IN_FOLDERS)} can be one table"
        )
    arrays = [file for file in found if file.suffix.lower() == ".npy"]
    if not arrays:
        return _read_batches(found, shown, reading)
    if len(arrays) < len(found):
        raise InputError(f"{shown} holds .npy and other data files; put those that belong together into one folder")
    if len(arrays) == 1:
        return _read_npy(arrays[0], shown, reading)
    maps = [_mapped(file, printable(str(file))) for file in arrays]
    total = sum(map(len, maps))
    first, last = reading.share(total)
    blocks = _clipped((rows[part] for rows in maps for part in parts(rows)), first, last)
    return from_array(shown, gathered(shown, blocks), reading, (first, total))


def _clipped(blocks: Iterable[Any], first: int, last: int) -> Iterator[Any]:
    """The rows from `first` to `last` of blocks that follow each other."""
    at = 0
    for block in blocks:
        if at >= last:
            return
        start, end = max(first - at, 0), min(last - at, len(block))
        if start < end:
            yield block[start:end]
        at += len(block)


def _read_zarr(path: Path, shown: str, reading: Reading) -> DataTable:
    try:
        zarr = import_module("zarr")
    except ImportError:
        raise InputError(f"{shown}: reading Zarr needs zarr; install it with: pip install zarr") from None
    try:
        opened = zarr.open(str(path), mode="r")
        if not hasattr(opened, "dtype"):
            names = list(opened.array_keys())
            opened = opened[_pick_array(shown, names, reading.array)]
        if opened.dtype.kind not in "fiub":
            raise InputError(f"{shown} holds values of type {opened.dtype}; data are real numbers")
        first, last = reading.share(opened.shape[0])
        return from_array(shown, gathered(shown, chunks(opened, first, last)), reading, (first, opened.shape[0]))
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise InputError(f"{shown} is not a usable Zarr array: {printable(str(error))}") from None


def _read_npz(path: Path, shown: str, reading: Reading) -> DataTable:
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
        if unpacked > LARGEST_ARCHIVE:
            raise InputError(f"{shown} would unpack to {unpacked / 2**30:.0f} GiB; save the array you need as .npy")
        with np.load(path, allow_pickle=False) as arrays:
            name = _pick_array(shown, list(arrays.files), reading.array)
            loaded = arrays[name]
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise InputError(f"{shown} is not a usable .npz file: {printable(str(error))}") from None
    return from_array(f"{shown} ({printable(name)})", loaded, reading)


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
    shown: str, loaded: NDArray[Any], reading: Reading = AS_IT_IS, place: tuple[int, int] | None = None
) -> DataTable:
    """A table of the chosen columns of an array; one axis is one column.

    `place`: the array holds only the rows to be read, the first of them and how many there are in all.
    """
    if place is None and loaded.ndim:
        first, last = reading.share(len(loaded))
        loaded, place = loaded[first:last], (first, len(loaded))
    if loaded.ndim not in (1, 2):
        raise InputError(f"{shown} has {loaded.ndim} axes; data have rows and columns")
    if loaded.dtype.kind == "M":
        raise InputError(f"{shown} holds dates; turn them into numbers first, such as days since the first of them")
    if loaded.dtype.kind not in "fiub":
        raise InputError(f"{shown} holds values of type {loaded.dtype}; data are real numbers")
    values = loaded.reshape(len(loaded), -1) if loaded.size else loaded.reshape(len(loaded), 1)[:0]
    columns = choose(shown, values.shape[1], None, reading)
    picked = None if columns.picked == tuple(range(values.shape[1])) else list(columns.picked)
    dtype = np.float32 if values.dtype == np.float32 else np.float64
    names = tuple(f"column_{at + 1}" for at in range(columns.count))
    ids = None if columns.id is None else TextColumns(("id",), values[:, [columns.id]].astype(str).tolist())
    cells = TextColumns(names, values.astype(str).tolist()) if reading.whole else None
    assert place is not None
    return _finished(columns, in_type(shown, values, dtype, picked), reading, ids, cells, place)


def _finished(
    columns: Columns,
    values: NDArray[Any],
    reading: Reading,
    ids: TextColumns | None,
    cells: TextColumns | None,
    place: tuple[int, int],
) -> DataTable:
    """The table of some numbers, unless they are infinite or, where that is not provided for, missing.

    `place`: the rows of the file before them, and how many it has.
    """
    first, total = place
    _refuse_infinite(columns, values, reading, first)
    notes = notice_index(columns, values)
    table = DataTable(columns.path, values, columns.picked_names, ids, cells, notes=notes)
    return replace(table, part=True, first=first, total=total) if reading.part[1] > 1 else table


def _refuse_infinite(columns: Columns, values: NDArray[Any], reading: Reading, first: int) -> None:
    places: list[tuple[str, int]] = []
    missing = 0
    for start in range(0, len(values), ROWS_AT_ONCE):
        block, at = values[start : start + ROWS_AT_ONCE], first + start
        if np.isfinite(block).all():
            continue
        infinite = np.argwhere(np.isinf(block))
        if len(infinite):
            row, column = infinite[0]
            raise InputError(
                f"{columns.path} row {at + row + 1}, {columns.label(columns.picked[column])}: "
                f"{quote(str(block[row, column]))} is not finite; correct it or remove the row"
            )
        found = np.argwhere(np.isnan(block))
        missing += len(found)
        places += [
            (f"row {at + int(row) + 1}", columns.picked[column])
            for row, column in found[: max(0, SHOWN_PLACES - len(places))]
        ]
    if missing and reading.missing == "error":
        raise missing_values(columns, places, missing)


# ---- pyarrow ---------------------------------------------------------------------------------------------------------

INSTALL = "pip install 'weftc[data]'"
PANDAS_INDEX = "__index_level_"  # what pandas calls an index without a name


def require_arrow(what: str) -> Any:
    """pyarrow, or how to get it."""
    try:
        return import_module("pyarrow")
    except ImportError:
        raise InputError(f"{what} needs pyarrow; install it with: {INSTALL}") from None


def _read_arrow(path: Path, shown: str, reading: Reading) -> DataTable:
    """Parquet, Arrow (files and streams) and Feather, by how they begin, in blocks."""
    return _read_batches([path], shown, reading)


def _read_batches(paths: Sequence[Path], shown: str, reading: Reading) -> DataTable:
    """One table of several files with the same columns, read batch by batch."""
    pyarrow = require_arrow(f"{shown}: reading Parquet, Arrow and Feather")
    try:
        opened = _arrow_file(paths[0])
        schema = opened.schema
        kept = [str(name) for name in schema.names if not str(name).startswith(PANDAS_INDEX)]
        columns = choose(shown, len(kept), kept, reading)
        places = [at for at, name in enumerate(schema.names) if not str(name).startswith(PANDAS_INDEX)]
        kinds = [schema.field(places[c]).type for c in columns.picked]
        single = [_is_single(columns, kind, c) for kind, c in zip(kinds, columns.picked, strict=True)]
        dtype = np.float32 if all(single) else np.float64
        names: list[tuple[str]] = []
        cells: list[list[str]] = []
        files = [opened, *map(_arrow_file, paths[1:])]
        for path, file in zip(paths, files, strict=True):
            if file.schema.names != schema.names:
                raise InputError(f"{printable(str(path))} has other columns than {printable(str(paths[0]))}")
        ends = [0, *accumulate(file.count for file in files)] if reading.part[1] > 1 else None
        first, last = (0, None) if ends is None else reading.share(ends[-1])

        def blocks() -> Iterator[NDArray[Any]]:
            for number, file in enumerate(files):
                before = 0 if ends is None else ends[number]
                for batch in file.batches(max(0, first - before), None if last is None else last - before):
                    arrays = [batch.column(at) for at in places]
                    if columns.id is not None:
                        names.extend((_text(value),) for value in arrays[columns.id].to_pylist())
                    if reading.whole:
                        listed = [array.to_pylist() for array in arrays]
                        cells.extend([_text(v) for v in row] for row in zip(*listed, strict=True))
                    yield np.stack([_arrow_numbers(arrays[c], dtype) for c in columns.picked], axis=1)

        values = gathered(shown, blocks())
    except (pyarrow.ArrowException, OSError) as error:
        told = printable(str(error).splitlines()[0])
        raise InputError(f"{shown} is not a usable Parquet, Arrow or Feather file: {told}") from None
    ids = None if columns.id is None else TextColumns((columns.id_name,), names)
    whole = TextColumns(tuple(kept), cells) if reading.whole else None
    place = first, len(values) if ends is None else ends[-1]
    return _finished(columns, values.reshape(len(values), len(columns.picked)), reading, ids, whole, place)


class _ArrowFile:
    """An Arrow file (or stream), its batches as they lie there; nothing is read before it is asked for."""

    def __init__(self, schema: Any, every: Callable[[], Iterable[Any]]) -> None:
        self.schema, self._every = schema, every

    @property
    def count(self) -> int:
        """How many rows there are."""
        return sum(len(batch) for batch in self._every())

    def batches(self, first: int, last: int | None) -> Iterator[Any]:
        """The rows from `first` to `last`, in batches; None is the end."""
        return _clipped(self._every(), first, sys.maxsize if last is None else last)


class _ParquetFile(_ArrowFile):
    """A Parquet file: only row groups that hold something of what is asked for are read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        file = import_module("pyarrow.parquet").ParquetFile(path)
        self.schema, groups = file.schema_arrow, range(file.num_row_groups)
        self._ends = [0, *accumulate(file.metadata.row_group(group).num_rows for group in groups)]
        file.close()

    @property
    def count(self) -> int:
        return int(self._ends[-1])

    def batches(self, first: int, last: int | None) -> Iterator[Any]:
        last = self.count if last is None else last
        groups = [at for at, (start, end) in enumerate(pairwise(self._ends)) if start < last and first < end]
        if not groups:
            return
        before = self._ends[groups[0]]
        with import_module("pyarrow.parquet").ParquetFile(self._path) as file:
            yield from _clipped(file.iter_batches(BATCH, row_groups=groups), first - before, last - before)


def _arrow_file(path: Path) -> _ArrowFile:
    """Parquet, Arrow or Feather, by how it begins."""
    kind, pyarrow = _beginning(path, BEGINNINGS), import_module("pyarrow")
    if kind == ".parquet":
        return _ParquetFile(path)
    if kind == ".feather":  # it is an Arrow file now, and was a format of its own
        table = import_module("pyarrow.feather").read_table(path)
        return _ArrowFile(table.schema, table.to_batches)
    ipc = import_module("pyarrow.ipc")
    if kind == ".arrow":
        mapped = ipc.open_file(pyarrow.memory_map(str(path)))
        return _ArrowFile(mapped.schema, lambda: map(mapped.get_batch, range(mapped.num_record_batches)))

    def stream() -> Any:
        return ipc.open_stream(pyarrow.memory_map(str(path)))

    return _ArrowFile(stream().schema, stream)


def _is_single(columns: Columns, kind: Any, at: int) -> bool:
    """Whether a column holds float32; an error if it holds no numbers."""
    types = import_module("pyarrow.types")
    if types.is_temporal(kind):
        what = "dates; turn them into numbers first, such as days since the first of them"
    elif types.is_floating(kind) or types.is_integer(kind) or types.is_boolean(kind) or types.is_decimal(kind):
        return bool(types.is_float32(kind))
    else:
        what = f"text, not numbers{columns.as_id(at)}" if _is_text(kind) else f"{printable(str(kind))}, not numbers"
    raise InputError(f"{columns.path} {columns.label(at)} holds {what}{columns.without([at])}")


def _is_text(kind: Any) -> bool:
    types = import_module("pyarrow.types")
    found = kind.value_type if types.is_dictionary(kind) else kind
    return bool(types.is_string(found) or types.is_large_string(found) or types.is_string_view(found))


def _arrow_numbers(column: Any, dtype: Any) -> NDArray[Any]:
    pyarrow = import_module("pyarrow")
    wanted = pyarrow.float32() if dtype == np.float32 else pyarrow.float64()
    return np.asarray(column.cast(wanted, safe=False).to_numpy(zero_copy_only=False), dtype=dtype)


def _text(value: Any) -> str:
    return "" if value is None else str(value)


# ---- writing ---------------------------------------------------------------------------------------------------------


def write_table(
    path: Path,
    blocks: Iterable[NDArray[Any]],
    shape: tuple[int, int],
    names: Sequence[str],
    form: Format,
    labels: TextColumns | None = None,
) -> None:
    """Writes blocks of rows as they come, with the shortest digits that read back as the same numbers, behind columns
    of text where there are any (not in .npy, which holds numbers)."""
    if form == "npy":
        _write_npy(path, blocks, shape)
    elif form == "parquet":
        _write_parquet(path, blocks, names, labels)
    else:
        _write_delimited(path, blocks, names, "," if form == "csv" else "\t", labels)


def _write_npy(path: Path, blocks: Iterable[NDArray[Any]], shape: tuple[int, int]) -> None:
    with path.open("xb") as file:
        for number, block in enumerate(blocks):
            if not number:
                wanted = shape[:1] if shape[1] == 1 else shape
                header = {"descr": np.lib.format.dtype_to_descr(block.dtype), "fortran_order": False, "shape": wanted}
                np.lib.format.write_array_header_1_0(file, header)
            file.write(np.ascontiguousarray(block).tobytes())


def _write_parquet(
    path: Path, blocks: Iterable[NDArray[Any]], names: Sequence[str], labels: TextColumns | None
) -> None:
    pyarrow, parquet = require_arrow("writing Parquet"), import_module("pyarrow.parquet")
    heading, at, writer = (*(labels.names if labels else ()), *names), 0, None
    try:
        for block in blocks:
            columns = [pyarrow.array(np.ascontiguousarray(column)) for column in block.T]
            if labels is not None:
                texts = zip(*labels.rows[at : at + len(block)], strict=True)
                columns = [*(pyarrow.array(list(text)) for text in texts), *columns]
            at += len(block)
            table = pyarrow.table(columns, names=list(heading))
            writer = writer or parquet.ParquetWriter(path, table.schema)
            writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()


def _write_delimited(
    path: Path, blocks: Iterable[NDArray[Any]], names: Sequence[str], separator: str, labels: TextColumns | None
) -> None:
    heading, at = (*(labels.names if labels else ()), *names), 0
    with path.open("x", encoding="utf-8", newline="\n") as file:
        file.write(separator.join(_cell(name, separator) for name in heading) + "\n")
        for block in blocks:
            for start in range(0, len(block), ROWS_AT_ONCE):
                rows = block[start : start + ROWS_AT_ONCE].astype(str).tolist()
                if block.dtype.kind == "U":  # symbols
                    rows = [[_cell(text, separator) for text in row] for row in rows]
                if labels is not None:
                    before = labels.rows[at : at + len(rows)]
                    rows = [
                        [*(_cell(t, separator) for t in text), *row] for text, row in zip(before, rows, strict=True)
                    ]
                at += len(rows)
                file.writelines(separator.join(row) + "\n" for row in rows)


def write_text(path: Path, columns: TextColumns, form: Format) -> None:
    """Writes columns of text."""
    separator = "," if form == "csv" else "\t"
    with path.open("x", encoding="utf-8", newline="\n") as file:
        for row in (columns.names, *columns.rows):
            file.write(separator.join(_cell(text, separator) for text in row) + "\n")


def _cell(text: str, separator: str) -> str:
    risky = separator in text or '"' in text or "\n" in text or "\r" in text
    return '"' + text.replace('"', '""') + '"' if risky else text
