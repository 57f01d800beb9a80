"""`weftc run`: from data files to a folder of results, and `weftc verify` from the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from weftc import cli
from weftc.commands import run as command_run
from weftc.commands.options import UsageError
from weftc.files import folder
from weftc.files.datafiles import read_table
from weftc.files.folder import whole_file, whole_folder
from weftc.interpreter.initial import initial_rows
from weftc_runtime.format.checkpoint import Checkpoint
from weftc_runtime.format.writes import stated

Weft = Callable[..., tuple[int, str, str]]

POINTS = "height,weight\n0,0\n0,1\n4,0\n4,1\n9,9\n"
WEIGHTED = """algorithm massed "one weighted mean, from a start"
tokens i in points
       j in centers : k
inputs x[i] : R^d, w[i] : R >= 0
       y[i,j] : onehot
       c[j] : R^d init first(x)
layer
  c[j] = mean[i] x[i] weighted w[i] * y[i,j] else c[j]
repeat 2
outputs centers = c, half[j] = 0.5 * c[j], size[j] = |c[j]|^2, y
"""


@pytest.fixture
def weftc(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Weft:
    monkeypatch.chdir(tmp_path)
    Path("points.csv").write_text(POINTS)
    Path("start.csv").write_text("0,0\n4,4\n")

    def run(*words: object) -> tuple[int, str, str]:
        code = cli.main([str(word) for word in words])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def read(path: str) -> list[list[float]]:
    return read_table(Path(path)).values.tolist()


# ---- results ---------------------------------------------------------------------------------------------------------


def test_one_command_from_points_to_clusters(weftc: Weft) -> None:
    code, out, err = weftc("run", "lloyd", "--data", "points.csv", "-D", "k=3", "-o", "out/")
    assert (code, err) == (0, "")
    assert sorted(p.name for p in Path("out").iterdir()) == ["centers.csv", "labels.csv"]
    centers = read_table(Path("out/centers.csv"))
    labels = read_table(Path("out/labels.csv"))
    assert centers.names == ("height", "weight")
    assert labels.names == ("centers_index_from_0",)
    points = np.loadtxt("points.csv", delimiter=",", skiprows=1)
    distances = ((points[:, None] - centers.values[None]) ** 2).sum(-1)
    assert labels.values[:, 0].tolist() == distances.argmin(1).tolist()
    assert "lloyd: k = 3, d = 2" in out
    assert "nothing changes any more" in out
    assert f"objective  {distances.min(1).sum():.17g}" in out
    sizes = ", ".join(str(int(n)) for n in np.bincount(labels.values[:, 0].astype(int), minlength=3))
    assert f"labels.csv   5 rows: index of centers, counted from 0 (sizes {sizes})" in out


def test_start_layers_and_json(weftc: Weft) -> None:
    code, out, _ = weftc(
        "run", "lloyd", "--data", "points.csv", "--init", "start.csv", "--layers", "1", "-o", "out", "--json"
    )
    data = json.loads(out)
    assert code == 0
    assert read("out/centers.csv") == [[4 / 3, 1 / 3], [6.5, 5]]  # (4, 0) is as near to either: the first
    # the labels belong to the centers in the folder, not to the ones the layer started from
    assert read("out/labels.csv") == [[0], [0], [0], [0], [1]]
    assert (data["layers"], data["dims"], data["folder"]) == (1, {"k": 2, "d": 2}, "out")
    assert data["outputs"][1] == {
        "name": "labels",
        "file": "labels.csv",
        "rows": 5,
        "columns": ["centers_index_from_0"],
        "meaning": "index of centers, counted from 0",
        "sizes": [4, 1],
    }
    assert sum(data["settled"].values()) > 0


def test_labels_are_made_with_the_centers_that_are_written(weftc: Weft) -> None:
    Path("line.csv").write_text("0\n4\n5\n")
    Path("start.csv").write_text("0\n9\n")
    assert weftc("run", "lloyd", "--data", "line.csv", "--init", "start.csv", "--layers", "1")[0] == 0
    # the layer assigned 4 to the first center; the centers are then 2 and 5, and 4 is nearer to the second
    assert read("lloyd-out/centers.csv") == [[2], [5]]
    assert read("lloyd-out/labels.csv") == [[0], [1], [1]]


def test_a_model_runs_like_its_spec(weftc: Weft) -> None:
    assert weftc("compile", "lloyd", "-D", "d=2", "-D", "k=2", "-o", "m.safetensors")[0] == 0
    shared = ["--data", "points.csv", "--init", "start.csv"]
    assert weftc("run", "m.safetensors", *shared, "-o", "a")[0] == 0
    assert weftc("run", "lloyd", *shared, "-o", "b")[0] == 0
    for name in ("centers.csv", "labels.csv"):
        assert Path("a", name).read_bytes() == Path("b", name).read_bytes()
    code, _, err = weftc("run", "m.safetensors", *shared, "-D", "k=3", "-o", "c")
    assert code == 2
    assert "this model was compiled with k = 2" in err
    Path("three.csv").write_text("1,2,3\n4,5,6\n")
    code, _, err = weftc("run", "m.safetensors", "--data", "three.csv", "-o", "c")
    assert code == 1
    assert "three.csv has 3 columns, but x needs 2 (d is set by the model); choose with --columns ..." in err
    code, _, err = weftc("run", "m.safetensors", *shared, "--scores", "dot", "-o", "c")
    assert code == 2
    assert "--scores is chosen when a spec is compiled" in err


def test_a_model_runs_as_many_layers_as_it_was_compiled_for(weftc: Weft) -> None:
    weftc("compile", "lloyd", "-D", "d=2", "-D", "k=2", "--layers", "7", "-o", "m.safetensors")
    shared = ["run", "m.safetensors", "--data", "points.csv", "--json", "--force", "-o", "a"]
    assert json.loads(weftc(*shared)[1])["layers"] == 7
    assert json.loads(weftc(*shared, "--layers", "3")[1])["layers"] == 3
    assert json.loads(weftc(*shared, "--until-stable")[1])["layers"] < 7


def test_several_inputs_columns_and_expressions(weftc: Weft) -> None:
    Path("weighted.weft").write_text(WEIGHTED)
    Path("all.csv").write_text("a,b,mass,group,name\n0,0,1,0,p\n2,0,3,0,q\n5,5,1,2,r\n")
    given = ["--data", "x=all.csv", "--columns", "x=a,b", "--data", "w=all.csv", "--columns", "w=mass"]
    given += ["--data", "y=all.csv", "--columns", "y=group", "-D", "k=3"]
    code, out, err = weftc("run", "weighted.weft", *given, "-o", "out")
    assert (code, err) == (0, "")
    assert "layers     2" in out
    assert read("out/centers.csv") == [[1.5, 0], [2, 0], [5, 5]]
    assert read("out/half.csv") == [[0.75, 0], [1, 0], [2.5, 2.5]]
    assert read("out/size.csv") == [[2.25], [4], [50]]
    assert read("out/y.csv") == [[0], [0], [2]]
    assert Path("out/centers.csv").read_text().splitlines()[0] == "a,b"


def test_tables_over_two_open_sets_are_written_on_request(weftc: Weft) -> None:
    Path("x.csv").write_text("0\n1\n")
    given = ["run", "sinkhorn_dual", "--data", "x=x.csv", "--data", "y=x.csv", "--layers", "2", "-D", "lambda=1"]
    assert weftc(*given, "-o", "a")[0] == 0
    assert sorted(p.name for p in Path("a").iterdir()) == ["u.csv", "v.csv"]
    assert weftc(*given, "-o", "b", "--outputs", "plan")[0] == 0
    assert [p.name for p in Path("b").iterdir()] == ["plan.csv"]
    assert np.array(read("b/plan.csv")).shape == (2, 2)
    code, _, err = weftc(*given, "-o", "c", "--outputs", "plam")
    assert code == 2
    assert "there is no output plam; did you mean 'plan'?" in err


@pytest.mark.parametrize("form", ["tsv", "npy"])
def test_other_formats_hold_the_same_numbers(form: str, weftc: Weft) -> None:
    given = ["run", "lloyd", "--data", "points.csv", "-D", "k=2"]
    weftc(*given, "-o", "a")
    weftc(*given, "-o", "b", "--format", form)
    assert read(f"b/centers.{form}") == read("a/centers.csv")
    assert read(f"b/labels.{form}") == read("a/labels.csv")


def test_results_are_the_start_of_the_next_run(weftc: Weft) -> None:
    given = ["run", "lloyd", "--data", "points.csv"]
    assert weftc(*given, "-D", "k=2", "--layers", "1", "-o", "a")[0] == 0
    assert weftc(*given, "--init", "a/centers.csv", "--layers", "1", "-o", "b")[0] == 0
    assert weftc(*given, "-D", "k=2", "--layers", "2", "-o", "c")[0] == 0
    assert Path("b/centers.csv").read_bytes() == Path("c/centers.csv").read_bytes()


def test_seed_and_dtype(weftc: Weft) -> None:
    given = ["run", "lloyd", "--data", "points.csv", "-D", "k=2", "--layers", "0"]
    starts = set()
    for seed in range(8):
        assert weftc(*given, "--seed", seed, "-o", f"s{seed}")[0] == 0
        starts.add(Path(f"s{seed}/centers.csv").read_text())
    assert len(starts) > 1
    assert weftc(*given, "--dtype", "float32", "-o", "f")[0] == 0


# ---- the starter spec ------------------------------------------------------------------------------------------------


def test_the_starter_spec_compiles_and_runs(weftc: Weft) -> None:
    weftc("new", "mine")
    code, out, err = weftc("run", "mine.weft", "--data", "points.csv", "-D", "k=2", "-D", "rate=1/2")
    assert (code, err) == (0, "")
    assert sorted(p.name for p in Path("mine-out").iterdir()) == ["centers.csv", "labels.csv"]
    assert "objective" in out


# ---- mistakes --------------------------------------------------------------------------------------------------------

MISTAKES = {
    "no data": (["-D", "k=2"], 2, "there are no data for x; give --data FILE"),
    "no k": (
        ["--data", "points.csv"],
        2,
        "the number of centers (k) is not known; give -D k=NUMBER, or start values with --init FILE "
        "(one row for each of centers)",
    ),
    "unknown input": (["--data", "z=points.csv"], 2, "--data z=points.csv: there is no input z; inputs are x, c"),
    "fed twice": (["--data", "points.csv", "--data", "start.csv"], 2, "x is already fed by points.csv; name the input"),
    "started twice": (["--data", "c=start.csv", "--init", "start.csv"], 2, "c is already fed by start.csv"),
    "no such data": (["--data", "point.csv"], 1, "there is no file point.csv; did you mean 'points.csv'?"),
    "columns without data": (["--data", "points.csv", "--columns", "c=1"], 2, "no file feeds c; give --data FILE"),
    "columns twice": (
        ["--data", "points.csv", "--columns", "1", "--columns", "2"],
        2,
        "--columns is given twice for x",
    ),
    "start of another width": (
        ["--data", "points.csv", "--init", "wide.csv"],
        1,
        "wide.csv has 3 columns, but c needs 2 (d is set by points.csv); choose with --columns c=...",
    ),
    "start of another size": (
        ["--data", "points.csv", "--init", "start.csv", "-D", "k=3"],
        1,
        "start.csv has 2 rows, but c needs 3 (k is set by -D); give one row for each of centers",
    ),
    "other width": (
        ["--data", "points.csv", "-D", "d=3", "-D", "k=1"],
        1,
        "points.csv has 2 columns, but x needs 3 (d is set by -D); choose with --columns ...",
    ),
    "limit and layers": (
        ["--data", "points.csv", "--layers", "2", "--limit", "3"],
        2,
        "--limit is for runs until stable",
    ),
    "too many centers": (["--data", "points.csv", "-D", "k=9"], 1, "only 5"),
    "no device": (["--data", "points.csv", "-D", "k=2", "--device", "abacus"], 2, "--device abacus cannot be used: "),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_write_nothing(case: str, weftc: Weft) -> None:
    Path("wide.csv").write_text("1,2,3\n4,5,6\n")
    before = sorted(p.name for p in Path().iterdir())
    words, code, message = MISTAKES[case]
    found, out, err = weftc("run", "lloyd", *words, "-o", "out")
    assert (found, out) == (code, "")
    assert err.startswith("error: ")
    assert message in err
    assert "Traceback" not in err
    assert sorted(p.name for p in Path().iterdir()) == before


def test_inputs_on_one_set_need_the_same_rows(weftc: Weft) -> None:
    Path("weighted.weft").write_text(WEIGHTED)
    Path("w.csv").write_text("1\n2\n")
    code, _, err = weftc("run", "weighted.weft", "--data", "x=points.csv", "--data", "w=w.csv")
    assert code == 1
    assert "x has 5 rows (points.csv), but w has 2 (w.csv); both belong to points" in err
    code, _, err = weftc("run", "weighted.weft", "--data", "points.csv", "--data", "w=points.csv")
    assert code == 1
    assert "w is one number per token, but points.csv has 2 columns; choose with --columns w=..." in err
    Path("y.csv").write_text("0\n1\n2\n1\n0\n")
    Path("w.csv").write_text("1\n1\n1\n1\n1\n")
    given = ["run", "weighted.weft", "--data", "points.csv", "--data", "w=w.csv", "--data", "y=y.csv"]
    code, _, err = weftc(*given, "-D", "k=2")
    assert code == 1
    assert "row 3 of y is 2; an index into centers is a whole number from 0 to 1" in err
    assert weftc(*given)[0] == 2


def test_an_existing_folder_needs_force(weftc: Weft, monkeypatch: pytest.MonkeyPatch) -> None:
    given = ["run", "lloyd", "--data", "points.csv", "-D", "k=2", "-o", "out"]
    assert weftc(*given)[0] == 0
    code, _, err = weftc(*given)
    assert code == 2
    assert err == "error: the folder out exists; add --force to replace it, or choose another with -o\n"
    assert weftc(*given, "--force", "--seed", "1")[0] == 0
    assert weftc(*given, "--force", "--join", "--standardize")[0] == 0
    assert Path("out/data-scaling.csv").exists()
    assert weftc(*given, "--force", "--format", "npy")[0] == 0  # results of another run of the spec may go
    assert sorted(path.name for path in Path("out").iterdir()) == ["centers.npy", "labels.npy"]
    monkeypatch.setattr(command_run, "_compute", None)  # from here on it is refused before anything runs
    assert weftc(*given)[0] == 2
    Path("out/notes.txt").write_text("mine")
    code, _, err = weftc(*given, "--force")
    assert code == 2
    assert "also holds notes.txt, which is no result of this spec" in err
    assert Path("out/notes.txt").read_text() == "mine"
    assert sorted(p.name for p in Path().iterdir()) == ["out", "points.csv", "start.csv"]


# ---- whole or not at all ---------------------------------------------------------------------------------------------


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    def fail(force: bool) -> None:
        with whole_folder(tmp_path / "out", ["a"], force) as partial:
            (partial / "a").write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail(False)
    assert list(tmp_path.iterdir()) == []
    with whole_folder(tmp_path / "out", ["a"], False) as partial:
        (partial / "a").write_text("whole")
        assert not (tmp_path / "out").exists()
    with pytest.raises(KeyboardInterrupt):
        fail(True)
    assert (tmp_path / "out" / "a").read_text() == "whole"
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_what_a_killed_run_of_the_same_process_number_left_is_in_nobodys_way(tmp_path: Path) -> None:
    """In a container every run may have the process number 1."""
    killed = "import os, sys; from pathlib import Path; from weftc.files.folder import whole_folder\n"
    killed += "with whole_folder(Path(sys.argv[1]), ['a'], True) as partial: os._exit(9)"
    script = f"import os; os.getpid = lambda: 1\n{killed}"
    for _ in range(2):
        assert subprocess.run([sys.executable, "-c", script, str(tmp_path / "out")]).returncode == 9
    assert len(list(tmp_path.iterdir())) == 2
    for n in range(2):
        with whole_folder(tmp_path / "out", ["a"], True) as partial:
            (partial / "a").write_text(str(n))
    assert (tmp_path / "out" / "a").read_text() == "1"


def test_a_pipe_feeds_every_row_to_one_input(tmp_path: Path) -> None:
    rows = "".join(f"{n % 97},{n % 89}\n" for n in range(3000))
    weftc = [sys.executable, "-m", "weftc", "run", "lloyd", "-D", "k=5", "--layers", "1", "-o", str(tmp_path / "out")]
    for place in ("-", "/dev/stdin"):
        done = subprocess.run([*weftc, "--data", place, "--force"], input=rows, text=True, capture_output=True)
        assert done.returncode == 0, done.stderr
        assert len((tmp_path / "out" / "labels.csv").read_text().splitlines()) == 3001
    done = subprocess.run(
        [*weftc, "--force", "--data", "-", "--init", "/dev/stdin"], input=rows, text=True, capture_output=True
    )
    assert done.returncode == 2
    assert "cannot both be read from" in done.stderr


def test_a_failed_exchange_keeps_the_old_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "out"
    target.mkdir()
    (target / "a").write_text("old")
    rename = Path.rename

    def refuse(self: Path, to: Path) -> Path:
        if self.name.endswith(".partial"):
            raise OSError(28, "No space left on device")
        return rename(self, to)

    monkeypatch.setattr(folder.Path, "rename", refuse)
    with pytest.raises(OSError, match="No space"), whole_folder(target, ["a"], True) as partial:
        (partial / "a").write_text("new")
    assert (target / "a").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_places_that_cannot_be_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path)
    for place in ("file", "no/such/out", "link", "."):
        with pytest.raises(UsageError), whole_folder(tmp_path / place, [], True):
            pass


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "a"
    target.write_text("old")

    def fail() -> None:
        with whole_file(target) as partial:
            partial.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert target.read_text() == "old"
    with whole_file(target) as partial:
        partial.write_text("new")
    assert target.read_text() == "new"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


# ---- verify ----------------------------------------------------------------------------------------------------------


TINY = """algorithm tiny "adds one"
tokens i in points
inputs x[i] : R
layer
  x[i] = x[i] + 1
outputs x
"""


def test_verify_shows_that_a_model_computes_its_spec(weftc: Weft) -> None:
    Path("tiny.weft").write_text(TINY)
    Path("x.csv").write_text("0.5\n2\n")
    code, out, err = weftc("verify", "tiny.weft", "--cases", "2")
    assert (code, err) == (0, "")
    assert out.startswith("tiny: proved")
    assert "your data" not in out
    assert "your data" in weftc("verify", "tiny.weft", "--cases", "1", "--data", "x.csv")[1]


def test_verify_fails_for_weights_that_compute_something_else(weftc: Weft) -> None:
    Path("tiny.weft").write_text(TINY)
    weftc("compile", "tiny.weft", "-o", "good.safetensors")
    good = Checkpoint.load("good.safetensors")
    wrong = {name: array * 2 for name, array in good.tensors.items()}
    replace(good, program=stated(good.program, wrong), tensors=wrong).save("bad.safetensors")
    code, out, _ = weftc("verify", "good.safetensors", "--cases", "1", "--json")
    assert (code, json.loads(out)["ok"]) == (0, True)
    code, out, err = weftc("verify", "bad.safetensors", "--cases", "1", "--json")
    assert (code, json.loads(out)["ok"], err) == (1, False, "")


def test_verify_asks_for_all_data_or_none(weftc: Weft) -> None:
    Path("x.csv").write_text("0\n1\n")
    code, _, err = weftc("verify", "sinkhorn_dual", "--data", "x.csv")
    assert code == 2
    assert err == "error: there are no data for y; give --data y=FILE\n"


def test_an_input_may_start_in_another_way_than_its_clause_says(weftc: Weft) -> None:
    rows = np.random.default_rng(0).normal(size=(30, 2))
    np.savetxt("many.csv", rows, delimiter=",", fmt="%.17g")
    for word in ("spectral", "c=first"):
        given = ["many.csv", "-D", "k=3", "--init", word, "--seed", "4", "--layers", "0"]
        assert weftc("run", "lloyd", *given, "-o", "out", "--force")[0] == 0
        want = initial_rows(word.removeprefix("c="), "c", "x", rows, 3, 4)
        np.testing.assert_array_equal(read("out/centers.csv"), want)
    for words, said in (
        (["--init", "spectrl", "-D", "k=3"], "did you mean 'spectral'?"),
        (["--init", "spectral"], "give -D k=N"),
        (["--init", "spectral", "--init", "c=first", "-D", "k=3"], "another --init"),
        (["--init", "spectral", "--n-init", "3", "-D", "k=3"], "every start is the same"),
    ):
        status, _, told = weftc("run", "lloyd", "many.csv", *words)
        assert (status, said in told) == (2, True), told
