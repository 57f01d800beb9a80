"""`weftc run` on data as they come: names of rows, missing values, scales, several starts, rows beside results."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from weftc import cli
from weftc.commands import run as command_run
from weftc.commands import verify as command_verify
from weftc.files import folder

Weft = Callable[..., tuple[int, str, str]]

ANIMALS = """name,height,weight,legs
"bird, small",1,1,2
cat,3,,4
dog,5,6,4
elephant,30,50,4
mouse,1,2,4
"""


@pytest.fixture
def weftc(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Weft:
    monkeypatch.chdir(tmp_path)
    Path("animals.csv").write_text(ANIMALS)

    def run(*words: object) -> tuple[int, str, str]:
        code = cli.main([str(word) for word in words])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def cells(path: str) -> list[list[str]]:
    with Path(path).open(newline="") as file:
        return list(csv.reader(file))


LLOYD = ["run", "lloyd", "animals.csv", "-D", "k=2", "--columns", "height,weight"]


# ---- rows ------------------------------------------------------------------------------------------------------------


def test_a_file_needs_no_data_option_wherever_it_stands(weftc: Weft) -> None:
    Path("p.csv").write_text("0,0\n4,4\n9,9\n")
    assert weftc("run", "lloyd", "p.csv", "-D", "k=2", "-o", "a")[0] == 0
    assert weftc("run", "lloyd", "-D", "k=2", "p.csv", "-o", "b")[0] == 0
    assert weftc("run", "lloyd", "-D", "k=2", "--data", "p.csv", "-o", "c")[0] == 0
    assert Path("a/labels.csv").read_text() == Path("b/labels.csv").read_text() == Path("c/labels.csv").read_text()
    code, _, err = weftc("run", "lloyd", "p.csv", "q.csv", "-D", "k=2")
    assert code == 2
    assert "x is already fed by p.csv" in err


def test_rows_with_missing_values_are_left_out_and_numbered(weftc: Weft) -> None:
    code, _, err = weftc(*LLOYD)
    assert code == 1
    assert "animals.csv line 3, column 3 (weight): the value is missing" in err
    code, out, _ = weftc(*LLOYD, "--missing", "drop", "-o", "out")
    assert code == 0
    assert "warning    1 row of 5 left out for missing values (row 2)" in out
    labels = cells("out/labels.csv")
    assert labels[0] == ["row", "centers_index_from_0"]
    assert [row[0] for row in labels[1:]] == ["1", "3", "4", "5"]


def test_names_of_rows_are_repeated(weftc: Weft) -> None:
    code, out, _ = weftc(*LLOYD, "--missing", "drop", "--id", "name", "-o", "out", "--json")
    assert code == 0
    labels = cells("out/labels.csv")
    assert labels[0] == ["name", "centers_index_from_0"]
    assert [row[0] for row in labels[1:]] == ["bird, small", "dog", "elephant", "mouse"]
    told = {entry["name"]: entry for entry in json.loads(out)["outputs"]}
    assert told["labels"]["columns"] == ["name", "centers_index_from_0"]
    assert sorted(told["labels"]["sizes"]) == [1, 3]
    assert told["centers"]["columns"] == ["height", "weight"]
    assert json.loads(out)["warnings"] == ["1 row of 5 left out for missing values (row 2)"]


def test_missing_values_become_the_mean_of_their_column(weftc: Weft) -> None:
    Path("start.csv").write_text("0,0\n1000,1000\n")
    words = [*LLOYD[:3], *LLOYD[5:], "--missing", "mean", "--init", "start.csv", "--layers", "1", "-o", "out"]
    code, out, _ = weftc(*words)
    assert code == 0
    assert "1 missing value of animals.csv was replaced by the mean of the column" in out
    # the mean of the others is 14.75, and every animal is nearer to (0, 0)
    assert [float(cell) for cell in cells("out/centers.csv")[1]] == [8, 14.75]


def test_rows_missing_in_one_input_are_left_out_of_the_others(weftc: Weft) -> None:
    Path("p.csv").write_text("0,1\n,4\n7,2\n9,9\n")
    Path("w.csv").write_text("1\n1\nNA\n3\n")
    words = ["run", "weighted_kmeans", "p.csv", "--data", "w=w.csv", "-D", "k=1", "--missing", "drop", "-o", "out"]
    assert weftc(*words)[0] == 0
    assert [float(cell) for cell in cells("out/centers.csv")[1]] == [6.75, 7]
    assert [row[0] for row in cells("out/labels.csv")[1:]] == ["1", "4"]
    Path("w.csv").write_text("NA\nNA\nNA\nNA\n")
    code, _, err = weftc(*words, "--force")
    assert code == 1
    assert "every row has a missing value, so --missing drop leaves none" in err


def test_results_are_joined_to_the_rows_as_they_were_written(weftc: Weft) -> None:
    code, out, _ = weftc(*LLOYD, "--missing", "drop", "--join", "-o", "out")
    assert code == 0
    assert "points-joined.csv  the rows of the data with their outputs beside them" in out
    joined, labels = cells("out/points-joined.csv"), cells("out/labels.csv")
    assert joined[0] == ["name", "height", "weight", "legs", "labels"]
    assert [row[:4] for row in joined[1:]] == cells("animals.csv")[1:]
    by_row = {row: label for row, label in labels[1:]}
    assert [row[4] for row in joined[1:]] == [by_row.get(str(number), "") for number in range(1, 6)]
    assert weftc(*LLOYD, "--missing", "drop", "--join", "-o", "out", "--force")[0] == 0


def test_vectors_are_joined_column_by_column_and_names_do_not_clash(weftc: Weft) -> None:
    Path("p.csv").write_text("x,points_x\n0,1\n5,6\n")
    assert weftc("run", "blurring_mean_shift", "p.csv", "--join", "--layers", "1", "-o", "out")[0] == 0
    outputs = cells("out/points.csv")
    joined = cells("out/points-joined.csv")
    assert joined[0] == ["x", "points_x", "points_x_output", "points_points_x"]
    assert [row[2:] for row in joined[1:]] == outputs[1:]


WRONG = {
    "npy cannot hold names": (["--id", "name", "--format", "npy"], "--id writes text beside the numbers"),
    "npy cannot hold rows": (["--join", "--format", "npy"], "--join writes text beside the numbers"),
    "nothing to join": (["--join", "--outputs", "centers"], "no output has a row for each of points"),
    "two names": (["--id", "name", "--id", "legs"], "--id is given twice for x; one column names the rows"),
    "name of an input without a file": (["--id", "c=1"], "--id c=1: no file feeds c"),
    "unit vectors": (["--unit"], "--unit is for inputs declared `unit R^d`; lloyd has none (its inputs: x and c)"),
    "the same start again": (["--n-init", "3", "--init", "start.csv"], "here every start is the same"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wishes_that_do_not_fit_are_refused_before_the_run(
    case: str, weftc: Weft, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("start.csv").write_text("0,0\n5,5\n")
    monkeypatch.setattr(command_run, "_best", None)
    words, said = WRONG[case]
    code, out, err = weftc(*LLOYD, "--missing", "drop", *words)
    assert (code, out) == (2, "")
    assert said in err


# ---- scales ----------------------------------------------------------------------------------------------------------


def test_standardized_columns_and_starts(weftc: Weft) -> None:
    points = np.array([[0.0, 100.0, 7.0], [2.0, 300.0, 7.0], [4.0, 200.0, 7.0], [2.0, 900.0, 7.0]])
    np.savetxt("p.csv", points, delimiter=",", header="a,b,c", comments="")
    Path("start.csv").write_text("0,100,7\n2,900,7\n")
    code, out, _ = weftc("run", "lloyd", "p.csv", "--init", "start.csv", "--standardize", "--layers", "0", "-o", "out")
    assert code == 0
    assert "column c of p.csv is the same in every row; it was shifted, not scaled" in out
    assert "data-scaling.csv  results are in standardized units: value = mean + scale * result" in out
    scaling = cells("out/data-scaling.csv")
    assert scaling[0] == ["inputs", "column", "mean", "scale"]
    mean, scale = (np.array([float(row[at]) for row in scaling[1:]]) for at in (2, 3))
    assert np.allclose(mean, points.mean(0), rtol=1e-15)
    assert np.allclose(scale, [points[:, 0].std(), points[:, 1].std(), 1], rtol=1e-15)
    centers = np.array([[float(cell) for cell in row] for row in cells("out/centers.csv")[1:]])
    assert np.allclose(mean + scale * centers, [[0, 100, 7], [2, 900, 7]], rtol=1e-14)


def test_unit_vectors_on_request(weftc: Weft) -> None:
    Path("p.csv").write_text("3,4\n5,12\n-3,4\n0,2\n")
    words = ["run", "spherical_kmeans", "p.csv", "-D", "k=2", "-o", "out"]
    code, _, err = weftc(*words)
    assert code == 1
    assert err.startswith("error: p.csv row 1 is not a unit vector; divide it by its length first, or add --unit")
    assert weftc(*words, "--unit")[0] == 0
    centers = np.array([[float(cell) for cell in row] for row in cells("out/centers.csv")[1:]])
    assert np.allclose(np.linalg.norm(centers, axis=1), 1)
    Path("p.csv").write_text("3,4\n0,0\n")
    code, _, err = weftc(*words, "--unit", "--force")
    assert code == 1
    assert "p.csv row 2 is all zeros and has no direction" in err


def test_rows_in_messages_of_a_run_are_counted_from_1(weftc: Weft) -> None:
    Path("p.csv").write_text("0,1\n5,6\n3,3\n")
    Path("w.csv").write_text("weight\n1\nNA\n-2\n")
    words = ["run", "weighted_kmeans", "p.csv", "--data", "w=w.csv", "-D", "k=1"]
    code, _, err = weftc(*words, "--missing", "drop")
    assert code == 1
    assert err.startswith("error: w.csv row 3 (-2) is out of range: at least 0 is needed")


# ---- several starts --------------------------------------------------------------------------------------------------


def test_the_best_of_several_starts_is_kept(weftc: Weft) -> None:
    points = np.random.default_rng(5).normal(size=(60, 2))
    np.savetxt("p.csv", points, delimiter=",")
    found = {}
    for seed in range(4, 10):
        out = weftc("run", "lloyd", "p.csv", "-D", "k=6", "--seed", seed, "-o", f"s{seed}", "--json")[1]
        found[seed] = json.loads(out)["objective"]
    code, out, _ = weftc("run", "lloyd", "p.csv", "-D", "k=6", "--seed", 4, "--n-init", 6, "-o", "best", "--json")
    data = json.loads(out)
    assert code == 0
    assert {start["seed"]: start["objective"] for start in data["starts"]} == found
    assert len(set(found.values())) > 1
    best = min(found, key=lambda seed: found[seed])
    assert (data["seed"], data["objective"]) == (best, found[best])
    assert Path("best/centers.csv").read_text() == Path(f"s{best}/centers.csv").read_text()


def test_several_starts_need_an_objective(weftc: Weft) -> None:
    Path("p.csv").write_text("0,1\n5,6\n")
    code, _, err = weftc("run", "blurring_mean_shift", "p.csv", "--n-init", 2)
    assert code == 2
    assert "keeps the run with the lowest objective" in err


# ---- places that cannot be written -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ["run", "lloyd", "p.csv", "-D", "k=1", "-o", "/proc/out"],
        ["compile", "lloyd", "-D", "d=1", "-D", "k=1", "-o", "/proc/m.safetensors"],
        ["plot", "lloyd", "--what", "graph", "-o", "/proc/p.png"],
        ["report", "lloyd", "p.csv", "-D", "k=1", "-o", "/proc/p.html"],
        ["inspect", "lloyd", "-o", "/proc/p.txt"],
        ["new", "mine", "-o", "/proc/mine.weft"],
    ],
    ids=lambda words: words[0],
)
def test_a_place_that_cannot_be_written_is_found_before_the_work(words: list[str], weftc: Weft) -> None:
    Path("p.csv").write_text("0,1\n5,6\n")
    code, out, err = weftc(*words)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: cannot write {words[-1]}: /proc does not allow it (")
    assert "choose another place with -o" in err


def test_an_old_folder_in_a_place_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "out").mkdir()

    def refuse(*_: object) -> int:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(folder.os, "open", refuse)
    with pytest.raises(folder.UsageError, match="Read-only file system"):
        folder.refuse_existing_folder(tmp_path / "out", [], True)


@pytest.mark.parametrize(
    "words",
    [
        ["compile", "lloyd", "-D", "d=1", "-D", "k=1", "-o", "m.safetensors"],
        ["plot", "lloyd", "--what", "graph", "-o", "p.svg"],
        ["inspect", "lloyd", "-o", "p.txt"],
    ],
    ids=lambda words: words[0],
)
def test_files_are_replaced_on_request_only(words: list[str], weftc: Weft) -> None:
    Path(words[-1]).write_text("mine")
    code, _, err = weftc(*words)
    assert code == 2
    assert err == f"error: the file {words[-1]} exists; add --force to replace it, or choose another with -o\n"
    assert Path(words[-1]).read_text() == "mine"
    assert weftc(*words, "--force")[0] == 0
    assert Path(words[-1]).read_bytes() != b"mine"


# ---- verify ----------------------------------------------------------------------------------------------------------


def test_verify_takes_a_sample_of_many_rows_and_says_so(weftc: Weft, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save("p.npy", np.random.default_rng(0).normal(size=(command_verify.SAMPLE + 5, 2)))
    words = ["verify", "lloyd", "p.npy", "-D", "k=2", "--cases", "1"]
    code, out, _ = weftc(*words)
    assert code == 0
    assert "warning: points has 10,005 rows; 10,000 of them were used, drawn with seed 0 (--sample N changes how" in out
    code, out, _ = weftc(*words, "--sample", "50", "--json", "--seed", "3")
    assert code == 0
    (warning,) = json.loads(out)["warnings"]
    assert warning.startswith("points has 10,005 rows; 50 of them were used, drawn with seed 3")
    assert json.loads(weftc("verify", "lloyd", "-D", "d=1", "-D", "k=2", "--cases", "1", "--json")[1])["warnings"] == []


# ---- pipes -----------------------------------------------------------------------------------------------------------

SLOW = """import time
for n in range(400):
    print(n % 7, n % 5, sep=",", flush=n % 50 == 0)
    n % 50 or time.sleep(0.05)
"""


def test_a_slow_writer_a_pipe_and_process_substitution_lose_no_row(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    python, weftc = sys.executable, f"{sys.executable} -m weftc"
    script = f"""set -e
{python} slow.py > whole.csv
{weftc} run lloyd whole.csv -D k=3 --layers 1 -o whole
{python} slow.py | {weftc} run lloyd - -D k=3 --layers 1 -o pipe
{weftc} run lloyd <({python} slow.py) -D k=3 --layers 1 -o substitution
gzip -c whole.csv | {weftc} run lloyd --data - -D k=3 --layers 1 -o packed
"""
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    whole = (tmp_path / "whole" / "labels.csv").read_text()
    assert len(whole.splitlines()) == 401
    for place in ("pipe", "substitution", "packed"):
        assert (tmp_path / place / "labels.csv").read_text() == whole
