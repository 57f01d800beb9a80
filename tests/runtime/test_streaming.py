"""Data that come in blocks: arrays that are not copied, files in parts, results as they are made."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow
import pyarrow.dataset
import pyarrow.parquet
import pytest
import torch

import weftc
from weftc.cli import main
from weftc.commands.progress import ProgressLine
from weftc.core.errors import InputError
from weftc.files import delimited
from weftc.files.datafiles import read_table
from weftc.files.table import Reading
from weftc_runtime.data import blocks
from weftc_runtime.data.arrays import tensor_of
from weftc_runtime.data.initial import start
from weftc_runtime.errors import RunError

ROWS = np.random.default_rng(3).normal(size=(5000, 3)).astype(np.float32)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is large."""
    monkeypatch.setattr(blocks, "LARGE", 1 << 12)
    monkeypatch.setattr(blocks, "BYTES", 1 << 10)


def is_mapped(array: np.ndarray[Any, Any]) -> bool:
    """Whether the numbers lie in a mapped file."""
    base: Any = array
    while isinstance(base, np.ndarray) and base.base is not None:
        base = base.base
    return type(base).__name__ in ("mmap", "memoryview")


def test_arrays_that_must_not_be_written_to_are_not_copied(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", ROWS)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tensor = tensor_of("x", mapped)
    assert tensor.data_ptr() == mapped.ctypes.data
    assert tensor.dtype == torch.float32
    model = weftc.load(weftc.compile("lloyd", {"d": 3, "k": 4}), dtype="float32")
    model(x=mapped, layers=2)
    assert np.array_equal(np.load(tmp_path / "x.npy"), ROWS)
    repeated = np.broadcast_to(np.ones(3), (4, 3))
    assert tensor_of("x", repeated).stride() == (3, 1)


def test_every_way_to_give_blocks_is_the_same_array(small: None) -> None:
    parts = np.array_split(ROWS, 7)
    table = pyarrow.table({name: ROWS[:, at] for at, name in enumerate("abc")})
    listed = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(ROWS.reshape(-1)), 3)
    chunked = SimpleNamespace(chunks=(100, 3), shape=ROWS.shape, dtype=ROWS.dtype)

    class Chunked:  # as Zarr and HDF5 arrays look
        chunks, shape, dtype = chunked.chunks, chunked.shape, chunked.dtype

        def __getitem__(self, part: slice) -> np.ndarray[Any, Any]:
            assert part.start % 100 == 0
            return ROWS[part]

    ways = {
        "an iterator": iter(parts),
        "a function": lambda: parts,
        "an Arrow table": table,
        "lists": pyarrow.table({"x": listed}),
        "a data set": pyarrow.dataset.dataset(table),
        "chunks": Chunked(),
    }
    for name, way in ways.items():
        found = tensor_of("x", way)
        assert found.dtype == torch.float32, name
        assert np.array_equal(found.numpy(), ROWS), name
    model = weftc.load(weftc.compile("lloyd", {"d": 3, "k": 4}), dtype="float32")
    whole = model(x=ROWS, seed=1)
    streamed = model(x=iter(parts), seed=1)
    assert torch.equal(whole["centers"], streamed["centers"])
    assert torch.equal(whole["labels"].indices, streamed["labels"].indices)


def test_an_estimator_takes_mapped_rows_and_gives_the_same(tmp_path: Path) -> None:
    from weftc.sklearn import WeftClusterer

    np.save(tmp_path / "x.npy", ROWS)
    fitted = [
        WeftClusterer("lloyd", n_clusters=4, random_state=0).fit(rows)
        for rows in (ROWS, np.load(tmp_path / "x.npy", mmap_mode="r"))
    ]
    assert np.array_equal(fitted[0].cluster_centers_, fitted[1].cluster_centers_)
    assert np.array_equal(fitted[0].labels_, fitted[1].labels_)


def test_scratch_space(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    made = blocks.gathered("x", np.array_split(ROWS, 5))
    assert is_mapped(made)
    assert not made.flags.writeable
    assert np.array_equal(made, ROWS)
    assert not is_mapped(blocks.gathered("x", [ROWS[:10]]))
    assert blocks.gathered("x", []).shape == (0, 0)
    wide = blocks.in_type("x", ROWS, np.float64, [2, 0])
    assert is_mapped(wide)
    assert np.array_equal(wide, ROWS[:, [2, 0]].astype(np.float64))
    assert blocks.in_type("x", ROWS, np.float32) is ROWS
    with pytest.raises(RunError, match=r"x: row 5000 begins a block float32\[n, 2\], but .* float32\[n, 3\]"):
        blocks.gathered("x", [ROWS, ROWS[:, :2]])
    with pytest.raises(RunError, match=r"row 5000 begins a block float64\[n, 3\]"):
        blocks.gathered("x", [ROWS, ROWS.astype(np.float64)])
    with pytest.raises(RunError, match="a block is not an array of numbers"):
        blocks.gathered("x", [["a", "b"]])

    def full(_: object) -> int:
        raise OSError(28, "No space left on device")

    scratch = blocks.ScratchRows("x")
    scratch._file = SimpleNamespace(write=full)  # type: ignore[assignment]
    with pytest.raises(RunError, match="is full; TMPDIR says where scratch files lie"):
        scratch.append(ROWS)


@pytest.mark.parametrize("method", ["spread", "random", "first"])
def test_starts_from_blocks_have_the_bits_of_starts_from_memory(method: str, small: None) -> None:
    mapped = blocks.gathered("x", np.array_split(ROWS, 9))
    assert is_mapped(mapped)
    assert np.array_equal(start(method, ROWS, 7, "c", "x", 5), start(method, mapped, 7, "c", "x", 5))


def test_files_in_parts_are_one_table(tmp_path: Path, small: None) -> None:
    (tmp_path / "parts").mkdir()
    for at, part in enumerate(np.array_split(ROWS, 3)):
        table = pyarrow.table({name: part[:, column] for column, name in enumerate("abc")})
        pyarrow.parquet.write_table(table, tmp_path / "parts" / f"{at}.parquet", row_group_size=500)
    np.save(tmp_path / "whole.npy", ROWS)
    shared = ["-D", "k=4", "--layers", "3", "--dtype", "float32", "--format", "npy"]
    asked = {
        "npy": str(tmp_path / "whole.npy"),
        "folder": str(tmp_path / "parts"),
        "pattern": str(tmp_path / "parts" / "*.parquet"),
    }
    for name, path in asked.items():
        assert main(["run", "lloyd", "--data", path, *shared, "-o", str(tmp_path / name)]) == 0
    for name in ("folder", "pattern"):
        for file in ("centers.npy", "labels.npy"):
            assert (tmp_path / name / file).read_bytes() == (tmp_path / "npy" / file).read_bytes()


def test_every_process_reads_its_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delimited, "SMALLEST_PART", 1 << 8)
    table = pyarrow.table({name: ROWS[:, column] for column, name in enumerate("abc")})
    np.save(tmp_path / "x.npy", ROWS)
    pyarrow.parquet.write_table(table, tmp_path / "x.parquet", row_group_size=700)
    (tmp_path / "parts").mkdir()
    for at, part in enumerate(np.array_split(np.arange(len(ROWS)), 3)):
        pyarrow.parquet.write_table(table.take(part), tmp_path / "parts" / f"{at}.parquet", row_group_size=300)
    for name, opened in (("x.arrow", pyarrow.ipc.new_file), ("stream.arrow", pyarrow.ipc.new_stream)):
        with pyarrow.OSFile(str(tmp_path / name), "wb") as sink, opened(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=999)
    text = "# made for this\n\na,b,c\n" + "".join(",".join(map(str, row)) + "\n" for row in ROWS.tolist())
    (tmp_path / "x.csv").write_text(text + "\n\n")
    (tmp_path / "crlf.txt").write_bytes(text.replace(",", "  ").replace("\n", "\r\n").encode())
    for file in ("x.npy", "x.parquet", "parts", "x.arrow", "stream.arrow", "x.csv", "crlf.txt"):
        for count in (2, 7):
            found = [read_table(tmp_path / file, Reading(part=(at, count), by_bytes=True)) for at in range(count)]
            assert np.array_equal(np.concatenate([one.values for one in found]), ROWS), file
            assert max(len(one.values) for one in found) <= 1.1 * len(ROWS) / count, file
            assert {one.names for one in found} <= {None, ("a", "b", "c")}
            if not file.endswith(("csv", "txt")):
                assert [one.row_number(0) for one in found] == [1 + len(ROWS) * at // count for at in range(count)]
    (tmp_path / "x.csv").write_text(text.replace("a,b,c", 'a,"b",c'))  # a cell in quotes may hold the end of a line
    assert not read_table(tmp_path / "x.csv", Reading(part=(1, 2), by_bytes=True)).part


@pytest.mark.parametrize("wrong", ["1,2", "1,2,x", "", "1,2,inf", "1,,3"])
@pytest.mark.parametrize("line", [2, 60, 61, 62, 120])
def test_a_part_of_text_is_as_strict_as_the_whole(
    wrong: str, line: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ["a,b,c"] + ["0.5,1.5,2.5"] * 120
    lines[line] = wrong
    (tmp_path / "x.csv").write_text("\n".join(lines) + "\n0.5,1.5,2.5\n")

    def told(count: int) -> set[str]:
        found = set()
        for at in range(count):
            try:
                read_table(tmp_path / "x.csv", Reading(part=(at, count), by_bytes=True))
            except InputError as error:
                found.add(str(error))
        return found

    whole = told(1)
    monkeypatch.setattr(delimited, "SMALLEST_PART", 1 << 8)
    assert len(whole) == 1
    assert told(2) == told(3) == whole


def test_what_a_folder_may_not_hold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def told() -> str:
        assert main(["run", "lloyd", "--data", str(tmp_path), "-D", "k=2", "-o", str(tmp_path / "out")]) != 0
        return capsys.readouterr().err

    assert "is a folder without data files" in told()
    np.save(tmp_path / "a.npy", ROWS)
    pyarrow.parquet.write_table(pyarrow.table({"a": [1.0], "b": [2.0]}), tmp_path / "b.parquet")
    assert "holds .npy and other data files" in told()
    (tmp_path / "a.npy").unlink()
    pyarrow.parquet.write_table(pyarrow.table({"a": [1.0], "c": [2.0]}), tmp_path / "c.parquet")
    assert "has other columns than" in told()


def test_zarr(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr", reason="zarr is not installed")
    zarr.save(str(tmp_path / "x.zarr"), ROWS)
    table = read_table(tmp_path / "x.zarr")
    assert table.values.dtype == np.float32
    assert np.array_equal(table.values, ROWS)


@pytest.mark.parametrize("spec", ["lloyd", "soft_kmeans"])
def test_results_are_made_and_written_in_blocks(spec: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", ROWS)
    for form in ("npy", "parquet", "csv"):
        arguments = ["run", spec, "--data", str(tmp_path / "x.npy"), "-D", "k=4", "--layers", "2", "--format", form]
        assert main([*arguments, "-o", str(tmp_path / form)]) == 0
    name = "labels" if spec == "lloyd" else "shares"
    array = np.load(tmp_path / "npy" / f"{name}.npy")
    table = pyarrow.parquet.read_table(tmp_path / "parquet" / f"{name}.parquet")
    columns = np.stack([column.to_numpy() for column in table.columns], 1)
    assert np.array_equal(columns.reshape(array.shape), array)
    text = np.loadtxt(tmp_path / "csv" / f"{name}.csv", delimiter=",", skiprows=1)
    assert np.array_equal(text, array)
    model = weftc.load(weftc.compile(spec, {"d": 3, "k": 4}))
    found = model.final(x=ROWS, layers=2)
    pieces = list(found.blocks(name, entries=400))
    assert len(pieces) > 10
    value = found[name]
    whole = value.indices[:, None] if spec == "lloyd" else value
    assert torch.equal(torch.cat(pieces), whole)


def test_progress_tells_the_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("weftc.commands.progress.time.monotonic", lambda: now[0])
    line = ProgressLine("running", sys.stderr, patience=60.0, rows=3_000_000)
    try:
        line("layer", 0, 10)
        now[0] += 4.0
        line("layer", 2, 10)
        assert line.text(200).endswith("2/10 layer 4 s 1.5M rows/s 16 s left")
        line("layer", 2, None)
        assert line.text(200).endswith("1.5M rows/s")
    finally:
        line.close()


def test_a_killed_run_leaves_no_scratch_file(tmp_path: Path) -> None:
    code = (
        "import os, numpy as np\n"
        "from weftc_runtime.data import blocks\n"
        "blocks.LARGE = 10\n"
        "made = blocks.gathered('x', [np.ones((1000, 3))] * 3)\n"
        "assert made.sum() == 9000\n"
        "os.kill(os.getpid(), 9)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], env={"TMPDIR": str(tmp_path)}, check=False)
    assert run.returncode == -9
    assert list(tmp_path.iterdir()) == []
