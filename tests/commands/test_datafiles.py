"""Data files become tables of finite numbers, or an error that names the place and the way out."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import math
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from weftc.commands.progress import ProgressLine, progress
from weftc.core.errors import InputError
from weftc.files import datafiles
from weftc.files.datafiles import read_table, write_table
from weftc.files.table import Reading, TextColumns


def write(folder: Path, text: str | bytes, name: str = "points.csv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def complaint(path: Path, columns: str | None = None, **wishes: Any) -> str:
    with pytest.raises(InputError) as caught:
        read_table(path, Reading(columns, **wishes))
    return str(caught.value).replace(str(path), path.name)


READS = {
    "commas": ("1,2\n3,4\n", [[1, 2], [3, 4]], None),
    "header": ("a,b\n1,2\n3,4\n", [[1, 2], [3, 4]], ("a", "b")),
    "tabs": ("a\tb\n1\t2\n", [[1, 2]], ("a", "b")),
    "semicolons": ("1;2\n3;4", [[1, 2], [3, 4]], None),
    "white space": ("  1   2\n3 4e-3\n", [[1, 2], [3, 0.004]], None),
    "spaces behind commas": ("a, b\n1, 2\n", [[1, 2]], ("a", "b")),
    "one column": ("1\n2\n3\n", [[1], [2], [3]], None),
    "one column with a name of two words": ("body weight\n1\n2\n", [[1], [2]], ("body weight",)),
    "decimal commas": ("1,5;2,25\n3;4\n", [[1.5, 2.25], [3, 4]], None),
    "decimal commas between tabs": ("a\tb\n-0,5\t1,5e3\n", [[-0.5, 1500]], ("a", "b")),
    "one row of words": ("1 2 3", [[1, 2, 3]], None),
    "windows line ends": ("x,y\r\n1,2\r\n3,4\r\n", [[1, 2], [3, 4]], ("x", "y")),
    "byte order mark": ("\ufeffx,y\n1,2\n", [[1, 2]], ("x", "y")),
    "quotes": ('"a, b","c"\n"1","2"\n', [[1, 2]], ("a, b", "c")),
    "empty lines around": ("\n\n1,2\n3,4\n\n\n", [[1, 2], [3, 4]], None),
    "comments on top": ("# made by hand\n# x y\n1 2\n", [[1, 2]], None),
    "header of years over words": ("name,year\n1,2\n", [[1, 2]], ("name", "year")),
    "no decimal point": ("0,1\n2,3\n", [[0, 1], [2, 3]], None),
}


@pytest.mark.parametrize("case", READS)
def test_text_tables_are_read(case: str, tmp_path: Path) -> None:
    text, values, names = READS[case]
    table = read_table(write(tmp_path, text))
    assert table.values.dtype == np.float64
    assert table.values.tolist() == values
    assert table.names == names


@pytest.mark.parametrize("rows", [1, 3000, 200_000])
def test_no_row_of_a_pipe_is_lost(rows: int, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    text = "".join(f"{n},{n / 8}\n" for n in range(rows))
    with ThreadPoolExecutor() as pool:
        written = pool.submit(pipe.write_text, text)
        table = read_table(pipe, Reading(header="no"))
        assert written.result() == len(text)
    assert table.path == str(pipe)
    assert table.values.tolist() == [[n, n / 8] for n in range(rows)]


@pytest.mark.parametrize("form", ["csv", "npy"])
def test_a_dash_is_standard_input(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.arange(6000.0).reshape(3000, 2)
    path = tmp_path / "file"
    with path.open("wb") as file:
        np.save(file, values) if form == "npy" else np.savetxt(file, values, delimiter=",")
    with path.open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        table = read_table(Path("-"), Reading(header="no"))
    assert table.path == "standard input"
    assert np.array_equal(table.values, values)


def test_faults_in_a_pipe_are_told_as_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    for content, said in ((b"1,2\n3,x\n", "line 2, column 2"), (b"", "is empty"), (b"1,\xff\n", "byte 0xff in line 1")):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
        message = complaint(Path("-"))
        assert message.startswith("standard input")
        assert said in message


COMPLAINTS = {
    "text column": (
        "width,kind\n1,red\n2,blue\n",
        "points.csv line 2, column 2 (kind): 'red' is not a number; if it names the rows, add --id kind, "
        "or leave the column out with --columns width",
    ),
    "missing": (
        "a,b\n1,2\n3,\n",
        "points.csv line 3, column 2 (b): the value is missing; fill it in, drop such rows with --missing drop, "
        "or use the mean of the column with --missing mean, or leave the column out with --columns a",
    ),
    "NA": (
        "1,2\nNA,4\n",
        "points.csv line 2, column 1: the value is missing; fill it in, drop such rows with --missing drop, "
        "or use the mean of the column with --missing mean, or leave the column out with --columns 2",
    ),
    "NaN": (
        "1,2\n3,nan\n",
        "points.csv line 2, column 2: the value is missing; fill it in, drop such rows with --missing drop, "
        "or use the mean of the column with --missing mean, or leave the column out with --columns 1",
    ),
    "infinity": ("1\n-inf\n", "points.csv line 2, column 1: '-inf' is not finite; correct it or remove the row"),
    "overflow": ("1\n1e999\n", "points.csv line 2, column 1: '1e999' is not finite; correct it or remove the row"),
    "underscore": ("1\n1_0\n", "points.csv line 2, column 1: '1_0' is not a number; correct it"),
    "decimal comma or thousands": (
        "a;b\n1;2,500\n",
        "points.csv line 2, column 2 (b): '2,500' is not a number with a decimal point; if its comma is one, say "
        "--decimal comma, or leave the column out with --columns a",
    ),
    "decimal comma beside a point": (
        "a;b\n1.5;2,5\n",
        "points.csv line 2, column 2 (b): '2,5' is not a number with a decimal point; if its comma is one, say "
        "--decimal comma, or leave the column out with --columns a",
    ),
    "decimal comma and thousands": (
        "a;b\n1;2,5\n1;1.000,5\n",
        "points.csv line 3, column 2 (b): '1.000,5' is not a number; write it without thousands separators, "
        "or leave the column out with --columns a",
    ),
    "date": (
        "day,b\n2024-01-31,2\n",
        "points.csv line 2, column 1 (day): '2024-01-31' is a date; turn it into a number first, such as days since "
        "the first of them, or leave the column out with --columns b",
    ),
    "time": ("at\n12:30\n", "'12:30' is a time; turn it into a number first"),
    "index of pandas": (
        ",a,b\n0,5,6\n1,7,8\n2,9,9\n",
        "points.csv column 1 (unnamed) only counts the rows (0, 1, 2, ...); if it is an index, leave it out with "
        "--id 1; if it is data, say so with --columns 1,2,3",
    ),
    "column of numbers called id": (
        "ID,a\n1,6\n2,8\n3,9\n",
        "points.csv column 1 (ID) only counts the rows (1, 2, 3, ...); if it is an index, leave it out with --id ID; "
        "if it is data, say so with --columns ID,a",
    ),
    "several missing": (
        "a,b\n1,\n,2\n3,4\n",
        "points.csv has 2 missing values (column 1 (a): line 3; column 2 (b): line 2); fill them in, drop such rows "
        "with --missing drop, or use the mean of the column with --missing mean",
    ),
    "ragged": (
        "1,2\n3,4,5\n",
        "points.csv line 2 has 3 cells, but line 1 has 2; every line needs the same number, separated by commas",
    ),
    "ragged spaces": (
        "1 2\n3\n",
        "points.csv line 2 has 1 cell, but line 1 has 2; every line needs the same number, separated by spaces",
    ),
    "empty": ("", "points.csv is empty; a data file has one row of numbers per token"),
    "blank": ("\n  \n", "points.csv is empty; a data file has one row of numbers per token"),
    "header only": ("a,b\n", "points.csv has a header in line 1, but no rows of numbers below it"),
    "gap": ("1,2\n\n3,4\n", "points.csv line 2 is empty, but rows follow below it; remove the empty line"),
    "gap in one column": ("1\n\n3\n", "points.csv line 2 is empty, but rows follow below it; remove the empty line"),
    "same name twice": (
        "a,b,a\n1,2,3\n",
        "points.csv has two columns named 'a' (columns 1 and 3); rename one, or choose by position, as in --columns 1",
    ),
    "unclear header": (
        "id,2019\n1,2\n",
        "points.csv line 1 ('id', '2019') may be a header or data; say which with --header yes or --header no",
    ),
    "typing error in the first row": (
        "1..5\n2\n",
        "points.csv line 1 ('1..5') may be a header or data; say which with --header yes or --header no",
    ),
    "numbered columns": (
        "0,1\n0.5,1.5\n",
        "points.csv line 1 ('0', '1') may be a header or data; say which with --header yes or --header no",
    ),
    "text in the first row": (
        "1,red\n2,blue\n",
        "points.csv line 1, column 2: 'red' is not a number; correct it, or leave the column out with --columns 1; "
        "if this line names the columns, say --header yes",
    ),
    "control characters": (
        "a,b\n1,\x1b[31mred\n",
        "points.csv line 2, column 2 (b): '\\x1b[31mred' is not a number; if it names the rows, add --id b, "
        "or leave the column out with --columns a",
    ),
    "latin-1": (b"a,b\n1,\xe9\n", "points.csv is not UTF-8 text (byte 0xe9 in line 2); save it as UTF-8"),
    "utf-16": ("a,b\n".encode("utf-16"), "points.csv is UTF-16 text; save it as UTF-8"),
    "binary": (
        b"\x00\x01\x02",
        "points.csv is not text; data files are CSV, TSV, .npy, .npz, Parquet, Arrow or Feather",
    ),
    "spreadsheet": (
        b"PK\x03\x04....",
        "points.csv is a zip archive, perhaps a spreadsheet; save it as CSV (UTF-8) and give that file",
    ),
    "open quotation mark": ('a,b\n1,"2\n' + "x" * 200_000, "is a quotation mark left open?"),
}


@pytest.mark.parametrize("case", COMPLAINTS)
def test_bad_text_tables_are_refused(case: str, tmp_path: Path) -> None:
    text, message = COMPLAINTS[case]
    found = complaint(write(tmp_path, text))
    assert found == message or (not message.startswith("points.csv") and message in found)


def test_columns_by_name_and_position(tmp_path: Path) -> None:
    path = write(tmp_path, "name,a,b\nred,1,2\nblue,3,4\n")
    assert read_table(path, Reading("b,a")).values.tolist() == [[2, 1], [4, 3]]
    assert read_table(path, Reading("b,a")).names == ("b", "a")
    assert read_table(path, Reading("3")).values.tolist() == [[2], [4]]
    assert "no column 'c' for --columns; its columns are name, a, b" in complaint(path, "c")
    assert "no column 4; positions count from 1" in complaint(path, "4")
    assert "no column 0; positions count from 1" in complaint(path, "0")
    assert "names a column twice" in complaint(path, "a,2")


def test_duplicate_names_can_be_chosen_by_position(tmp_path: Path) -> None:
    path = write(tmp_path, "a,b,a\n1,2,3\n")
    assert read_table(path, Reading("1,3")).values.tolist() == [[1, 3]]
    assert "several columns named 'a' (1 and 3); choose by position" in complaint(path, "a")


def test_header_can_be_told(tmp_path: Path) -> None:
    path = write(tmp_path, "0,1\n0.5,1.5\n")
    assert read_table(path, Reading(header="yes")).names == ("0", "1")
    assert read_table(path, Reading(header="no")).values.tolist() == [[0, 1], [0.5, 1.5]]
    assert "'x' is not a number" in complaint(write(tmp_path, "x,y\n1,2\n"), header="no")


def test_names_asked_for_mean_that_there_is_a_header(tmp_path: Path) -> None:
    assert read_table(write(tmp_path, "id,2019\n1,2\n"), Reading("id")).values.tolist() == [[1]]


def test_files_that_are_not_there(tmp_path: Path) -> None:
    write(tmp_path, "1\n")
    assert complaint(tmp_path / "point.csv").endswith("there is no file point.csv; did you mean 'points.csv'?")
    assert "is a folder" in complaint(tmp_path)
    said = "book.xlsx is a spreadsheet, which cannot be read; save the sheet as CSV (UTF-8) and give that file"
    assert complaint(write(tmp_path, b"x", "book.xlsx")) == said
    assert "is an archive; unpack it" in complaint(write(tmp_path, b"x", "a.zip"))


def test_huge_text_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datafiles, "LARGEST_TEXT", 3)
    assert "Save it as .npy" in complaint(write(tmp_path, "1\n2\n3\n"))


# ---- arrays ----------------------------------------------------------------------------------------------------------


def test_npy(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(6, dtype=np.int32).reshape(3, 2))
    assert read_table(tmp_path / "a.npy").values.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert read_table(tmp_path / "a.npy", Reading("2")).values.tolist() == [[1], [3], [5]]
    np.save(tmp_path / "b.npy", np.array([1.0, 2.0]))
    assert read_table(tmp_path / "b.npy").values.tolist() == [[1], [2]]


BAD_ARRAYS = {
    "axes": (np.zeros((2, 2, 2)), "has 3 axes; data have rows and columns"),
    "scalar": (np.array(1.0), "has 0 axes"),
    "text": (np.array(["a"]), "holds values of type <U1; data are real numbers"),
    "complex": (np.array([1j]), "data are real numbers"),
    "nan": (np.array([[1, 2], [math.nan, 3]]), "row 2, column 1: the value is missing; fill it in"),
    "infinite": (np.array([[1, 2], [3, -math.inf]]), "row 2, column 2: '-inf' is not finite"),
    "no rows": (np.zeros((0, 2)), "has no rows"),
}


@pytest.mark.parametrize("case", BAD_ARRAYS)
def test_bad_npy(case: str, tmp_path: Path) -> None:
    array, message = BAD_ARRAYS[case]
    np.save(tmp_path / "a.npy", array)
    assert message in complaint(tmp_path / "a.npy")


def test_damaged_and_pickled_arrays(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([{}], dtype=object), allow_pickle=True)
    assert "not a usable .npy file" in complaint(tmp_path / "a.npy")
    np.save(tmp_path / "b.npy", np.zeros((4, 4)))
    (tmp_path / "b.npy").write_bytes((tmp_path / "b.npy").read_bytes()[:-8])
    assert "not a usable .npy file" in complaint(tmp_path / "b.npy")
    assert "not a usable .npy file" in complaint(write(tmp_path, "1,2\n", "c.npy"))
    assert "not a usable .npz file" in complaint(write(tmp_path, "1,2\n", "c.npz"))


def test_npz(tmp_path: Path) -> None:
    np.savez(tmp_path / "one.npz", whatever=np.array([1.0, 2.0]))
    assert read_table(tmp_path / "one.npz", Reading(array="x")).values.tolist() == [[1], [2]]
    np.savez(tmp_path / "two.npz", x=np.array([1.0]), y=np.array([2.0]))
    assert read_table(tmp_path / "two.npz", Reading(array="y")).values.tolist() == [[2]]
    with pytest.raises(InputError, match=r"several arrays \(x, y\); none is called z"):
        read_table(tmp_path / "two.npz", Reading(array="z"))


FRAME = {"name": ["p", "q", None], "a": [1, 2, 3], "b": [0.5, None, 2.5], "day": [date(2024, 1, n) for n in (1, 2, 3)]}


def arrow(folder: Path, kind: str) -> Path:
    table, path = pyarrow.table(FRAME), folder / f"frame.{kind}"
    if kind == "parquet":
        pyarrow.parquet.write_table(table, path)
    elif kind == "feather":
        pyarrow.feather.write_feather(table, path)
    else:
        make = pyarrow.ipc.new_file if kind == "arrow" else pyarrow.ipc.new_stream
        with make(str(path), table.schema) as writer:
            writer.write_table(table)
    return path


@pytest.mark.parametrize("kind", ["parquet", "feather", "arrow", "ipc"])
def test_parquet_arrow_and_feather(kind: str, tmp_path: Path) -> None:
    path = arrow(tmp_path, kind)
    table = read_table(path, Reading("b,a", id="name", missing="mean", whole=True))
    assert np.array_equal(table.values, [[0.5, 1], [np.nan, 2], [2.5, 3]], equal_nan=True)
    assert table.names == ("b", "a")
    assert table.ids == TextColumns(("name",), [("p",), ("q",), ("",)])
    assert table.cells is not None
    assert list(table.cells.rows[1]) == ["q", "2", "", "2024-01-02"]
    assert "row 2, column 3 (b): the value is missing" in complaint(path, "a,b")
    assert "column 4 (day) holds dates; turn them into numbers first" in complaint(path, "a,day")
    assert "column 1 (name) holds text, not numbers; if it names the rows, add --id name" in complaint(path)


def test_float32_columns_stay_float32(tmp_path: Path) -> None:
    pyarrow.parquet.write_table(pyarrow.table({"a": np.ones(3, np.float32)}), tmp_path / "a.parquet")
    assert read_table(tmp_path / "a.parquet").values.dtype == np.float32


def test_an_index_that_pandas_wrote_into_parquet_is_no_data(tmp_path: Path) -> None:
    frame = pyarrow.table({"a": [1.5, 2.5, 4.0], "__index_level_0__": [0, 1, 2]})
    pyarrow.parquet.write_table(frame, tmp_path / "a.parquet")
    assert read_table(tmp_path / "a.parquet").names == ("a",)


def test_damaged_parquet(tmp_path: Path) -> None:
    assert "is not a usable Parquet, Arrow or Feather file" in complaint(write(tmp_path, b"PAR1junk", "a.parquet"))


@pytest.mark.parametrize(("kind", "library"), [("a.parquet", "pyarrow"), ("a.csv.zst", "zstandard")])
def test_a_missing_library_is_named_with_the_extra(
    kind: str, library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, library, None)
    said = complaint(write(tmp_path, b"PAR1", kind))
    assert f"needs {library}; install it with: pip install 'weftc[data]'" in said


# ---- compression -----------------------------------------------------------------------------------------------------

PACKERS = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstandard.ZstdCompressor().compress,
}


@pytest.mark.parametrize("ending", PACKERS)
def test_compressed_files_are_read(ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"a,b\n" + b"".join(b"%d,%d\n" % (n * n, n) for n in range(5000))
    packed = PACKERS[ending](text)
    table = read_table(write(tmp_path, packed, f"points.csv.{ending}"))
    assert (table.names, table.values.shape, table.values[4999].tolist()) == (("a", "b"), (5000, 2), [4999**2, 4999])
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(packed)))  # a stream has no name to tell by
    assert read_table(Path("-")).values.shape == (5000, 2)
    array = io.BytesIO()
    np.save(array, np.arange(6.0).reshape(3, 2))
    assert read_table(write(tmp_path, PACKERS[ending](array.getvalue()), f"a.npy.{ending}")).values.shape == (3, 2)
    cut = complaint(write(tmp_path, packed[: len(packed) // 2], f"cut.csv.{ending}"))
    assert f"cut.csv.{ending} is not a whole .{ending} file" in cut
    assert f"is not a whole .{ending} file" in complaint(write(tmp_path, b"junk", f"junk.csv.{ending}"))


def test_a_bomb_is_stopped_at_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datafiles, "LARGEST_TEXT", 1000)
    assert "gives more than" in complaint(write(tmp_path, gzip.compress(b"1\n" * 100_000), "a.csv.gz"))


# ---- missing values, names of rows, cells ----------------------------------------------------------------------------


def test_missing_values_are_counted_and_the_first_ten_named(tmp_path: Path) -> None:
    text = "a,b\n" + "".join(f"{n},{'' if n % 2 else n}\n" for n in range(40, 80))
    said = complaint(write(tmp_path, text))
    assert said.startswith("points.csv has 20 missing values (column 2 (b): lines 3, 5,")
    assert "19 and 21; and 10 more)" in said
    values = np.array([[n, np.nan if n % 2 else n] for n in range(40, 80)], dtype=float)
    np.save(tmp_path / "a.npy", values)
    said = complaint(tmp_path / "a.npy")
    assert said.startswith("a.npy has 20 missing values (column 2: rows 2, 4,")
    assert "18 and 20; and 10 more)" in said


def test_missing_values_are_nan_where_somebody_deals_with_them(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, "a,b\n1,NA\n?,4\n"), Reading(missing="drop"))
    assert np.array_equal(table.values, [[1, np.nan], [np.nan, 4]], equal_nan=True)
    assert "'-inf' is not finite" in complaint(write(tmp_path, "1\n-inf\n"), missing="drop")


def test_a_column_names_the_rows(tmp_path: Path) -> None:
    path = write(tmp_path, 'who,a,b\n"Li, Wei",1,2\nBo,3,4\n')
    table = read_table(path, Reading(id="who"))
    assert (table.names, table.values.tolist()) == (("a", "b"), [[1, 2], [3, 4]])
    assert table.ids == TextColumns(("who",), [("Li, Wei",), ("Bo",)])
    assert "no column 'whom' for --id; its columns are who, a, b" in complaint(path, id="whom")
    assert read_table(write(tmp_path, ",a\n0,5\n1,6\n2,7\n"), Reading(id="1")).values.tolist() == [[5], [6], [7]]
    assert "no column but the one that --id names" in complaint(write(tmp_path, "a\n1\n"), id="a")


def test_a_first_column_that_counts_is_noted(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, "0,5\n1,6\n2,9\n"))
    assert table.values.shape == (3, 2)
    (note,) = table.notes
    said = (
        "column 1 only counts the rows (0, 1, 2, ...) and is used as data; if it is an index, leave it out with --id 1"
    )
    assert note.endswith(said)
    assert read_table(write(tmp_path, "0,5\n1,6\n2,9\n"), Reading("1,2")).notes == ()
    assert read_table(write(tmp_path, "0\n1\n2\n")).notes == ()


def test_a_decimal_comma_is_noted_or_said(tmp_path: Path) -> None:
    path = write(tmp_path, "1,5;2\n", "comma.csv")
    assert "is read with a decimal comma" in read_table(path).notes[0]
    assert read_table(path, Reading(decimal="comma")).notes == ()
    assert read_table(write(tmp_path, "1,500;2\n"), Reading(decimal="comma")).values.tolist() == [[1.5, 2]]
    assert "'1,5' is not a number" in complaint(path, decimal="point")
    assert "commas between its cells" in complaint(write(tmp_path, "1,5\n"), decimal="comma")


# ---- writing ---------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.floats(allow_nan=False, allow_infinity=False), st.floats(-1, 1)), min_size=1))
def test_what_is_written_reads_back_bit_for_bit(tmp_path_factory: pytest.TempPathFactory, rows: list[object]) -> None:
    path = tmp_path_factory.mktemp("written") / "a.csv"
    values = np.array(rows, dtype=np.float64)
    write_table(path, [values[:1], values[1:]], values.shape, ("a", "b, c"), "csv")  # type: ignore[arg-type]
    table = read_table(path)
    assert table.names == ("a", "b, c")
    assert table.values.tobytes() == values.tobytes()


@pytest.mark.parametrize("form", ["csv", "tsv", "npy", "parquet"])
def test_formats_and_float32(form: str, tmp_path: Path) -> None:
    values = np.array([[0.1, 1e-40], [2.0, 3e38]], dtype=np.float32)
    path = tmp_path / f"a.{form}"
    write_table(path, [values[:1], values[1:]], (2, 2), ("a", "b"), form)  # type: ignore[arg-type]
    assert (read_table(path).values.astype(np.float32) == values).all()
    if form == "csv":
        assert path.read_text().splitlines()[1] == "0.1,1e-40"


# ---- progress --------------------------------------------------------------------------------------------------------


class Screen:
    def __init__(self, tty: bool) -> None:
        self.text, self.tty = "", tty

    def isatty(self) -> bool:
        return self.tty

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None: ...


def test_progress_line_appears_and_goes_away() -> None:
    import time

    screen = Screen(True)
    line = ProgressLine("reading \x1b", screen, patience=0.0)  # type: ignore[arg-type]
    deadline = time.monotonic() + 5
    while "reading" not in screen.text and time.monotonic() < deadline:
        time.sleep(0.01)
    line.close()
    assert "reading \\x1b ... 0 s" in screen.text
    assert screen.text.endswith("\r\x1b[K")


def test_progress_is_silent_when_piped_or_quick() -> None:
    for screen in (Screen(False), Screen(True)):
        with progress("x", screen) as line:  # type: ignore[arg-type]
            line.say("y")
            assert isinstance(line, ProgressLine) == screen.tty
        assert screen.text == ""
