"""Processes that run together end together, say why, and go on in any number."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weftc
from ranks import Ranks, cuts, ranks
from shared_runs import plain, run_share, run_until
from weftc_runtime.errors import RunError
from weftc_runtime.machines.saved_run import SavedRun

ROWS = np.random.default_rng(2).normal(size=(600, 4))
TIED = np.round(ROWS)


def lloyd() -> Any:
    return weftc.compile("lloyd", {"d": 4, "k": 6})


def parts(rows: Any, size: int) -> list[Any]:
    return [rows[part] for part in cuts(len(rows), size)]


def test_an_error_in_one_process_is_one_message_in_all() -> None:
    broken = ROWS.copy()
    broken[450, 2] = np.nan
    checkpoint, group = lloyd(), ranks(2)
    group.start(run_share, [(checkpoint, {"x": rows}, {"layers": 2}, {}) for rows in parts(broken, 2)])
    told = group.results()
    assert [well for well, _ in told] == [False, False]
    assert told[0][1] == told[1][1]
    assert "process 1 of 2: x: row 450, column 2 (nan) is not finite" in told[0][1][1]


def test_an_error_in_the_middle_ends_all() -> None:
    group, checkpoint = ranks(2), lloyd()
    given = [(checkpoint, {"x": rows}, {"layers": 6}, 3, "error", at == 1) for at, rows in enumerate(parts(ROWS, 2))]
    group.start(run_until, given)
    told = group.results()
    assert told[0] == told[1] == (False, ("Ended", "process 1 of 2: Stopped: ended on purpose"))
    same = group.run(run_share, [(checkpoint, {"x": rows}, {"layers": 2}, {}) for rows in parts(ROWS, 2)])
    assert (same[0]["outputs"]["centers"] == plain(weftc.load(checkpoint)(x=ROWS, layers=2))["centers"]).all()


def test_processes_that_differ_find_out() -> None:
    group, checkpoint = ranks(2), lloyd()
    group.start(run_share, [(checkpoint, {"x": ROWS}, {"layers": layers}, {}) for layers in (2, 4)])
    for well, error in group.results():
        assert not well
        assert error[0] == "Ended"
        assert "have come apart" in error[1]


@pytest.mark.slow
def test_a_killed_process_ends_the_others_and_others_go_on(tmp_path: Path) -> None:
    checkpoint, folder = lloyd(), tmp_path / "state"
    options = {"layers": 6, "resume": folder}
    group, ragged = Ranks(3), [ROWS[part] for part in cuts(len(ROWS), 3, 7)]  # the second has no rows
    given = [(checkpoint, {"x": rows}, options, 4, "signal", at == 1) for at, rows in enumerate(ragged)]
    begin = time.monotonic()
    group.start(run_until, given)
    told = group.results()
    assert time.monotonic() - begin < 60
    assert told[1] == (False, None)
    for well, error in (told[0], told[2]):
        assert not well
        assert re.match(r"process \d of 3 has lost another one", error[1])
        assert "start the run again" in error[1]
    group.end()
    rest = ranks(2).run(run_until, [(checkpoint, {"x": rows}, options, 0, "", False) for rows in parts(ROWS, 2)])
    whole = plain(weftc.load(checkpoint).final(x=ROWS, layers=6))
    assert rest[0]["centers"].tobytes() == whole["centers"].tobytes()
    assert np.concatenate([one["labels"] for one in rest]).tobytes() == whole["labels"].tobytes()


@pytest.mark.parametrize("spec", ["lloyd", "lloyd_split", "trimmed_kmeans"])
def test_a_run_goes_on_in_another_number_of_processes(
    spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes go on where one was, and one where two were."""
    monkeypatch.setattr(SavedRun, "due", lambda _: True)
    checkpoint, rows = weftc.compile(spec, {"d": 4, "k": 6}), TIED if spec == "lloyd_split" else ROWS
    model, group = weftc.load(checkpoint), ranks(2)
    whole = plain(model.final(x=rows, layers=6))

    def stop(what: str, done: int, _: int | None) -> None:
        if what == "layer" and done == 3:
            raise RunError("ended on purpose")

    first, second = ({"layers": 6, "resume": tmp_path / name} for name in "ab")
    with pytest.raises(RunError, match="on purpose"):
        model.final(x=rows, progress=stop, **first)
    rest = group.run(run_until, [(checkpoint, {"x": part}, first, 0, "", False) for part in parts(rows, 2)])
    for name, value in whole.items():
        found = rest[0][name] if name == "centers" else np.concatenate([one[name] for one in rest])
        assert found.tobytes() == value.tobytes()
    group.start(run_until, [(checkpoint, {"x": part}, second, 3, "error", True) for part in parts(rows, 2)])
    assert not any(well for well, _ in group.results())
    again = plain(model.final(x=rows, **second))
    assert all(again[name].tobytes() == value.tobytes() for name, value in whole.items())


def share(compiled: Any, inputs: Any, options: Any, loading: Any) -> str:
    """What one process is told when it asks for what cannot be."""
    import torch.distributed as dist

    import weftc_runtime

    try:
        weftc_runtime.load(compiled, group=dist.group.WORLD, **loading)(inputs, **options)
    except weftc_runtime.RunError as error:
        return str(error)
    return ""


def test_what_cannot_be_shared_is_refused() -> None:
    group, checkpoint = ranks(2), lloyd()

    def told(inputs: Any, options: Any = None, **loading: Any) -> str:
        found = group.run(share, [(checkpoint, inputs, options or {}, loading)] * 2)
        assert found[0] == found[1]
        return str(found[0])

    assert "runs in one process" in told({"x": ROWS}, backend="reference")
    assert "no set of open size" in told({"x": ROWS}, shared=["centers"])
    assert "a batch runs in one process" in told({"x": np.stack([ROWS, ROWS])})
    assert "empty in all processes" in told({"x": ROWS[:0], "c": ROWS[:6]})


@pytest.mark.slow
def test_the_command_line_gives_the_same_files(tmp_path: Path) -> None:
    np.save(tmp_path / "points.npy", ROWS.astype(np.float32))
    command = ["-m", "weftc", "run", "kmedoids", "--data", "points.npy", "-D", "k=4", "--layers", "3"]
    plainly = subprocess.run([sys.executable, *command, "-o", "one"], cwd=tmp_path, capture_output=True, text=True)
    assert plainly.returncode == 0, plainly.stderr
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    many = [sys.executable, *torchrun, *command]
    found = subprocess.run([*many, "-o", "two"], cwd=tmp_path, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert found.stdout == plainly.stdout.replace("one/", "two/")
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()
    again = subprocess.run([*many, "-o", "two"], cwd=tmp_path, capture_output=True, text=True)
    assert again.returncode != 0
    assert again.stderr.count("the folder two exists") == 1
