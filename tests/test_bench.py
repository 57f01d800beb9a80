"""`weft bench`: judges, agreement before timing, alternating rounds, ratios, verdicts, tables, pages, the command."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bench_peers
import weft
from pages import ROOT
from weft import cli
from weft.bench import page, running
from weft.bench.account import account
from weft.bench.agreement import Ours, judge
from weft.bench.contest import Effort, hold
from weft.bench.judges import dual_steps, nearest, potential_error, sweeps
from weft.bench.memory import Peak
from weft.bench.peers import PEERS, Peer
from weft.bench.peers.ours import Clustering, ragged_sizes
from weft.bench.process import Processes
from weft.bench.profiling import profile
from weft.bench.results import Agreement, Contest, Measurement, Results, Start
from weft.bench.samples import REGULARISATION, STEP, arrays
from weft.bench.starting import starts
from weft.bench.tables import Table, closing_text, contest_table, contest_text, markdown, number
from weft.bench.targets import TARGETS, Target
from weft.bench.verdicts import mark, verdicts
from weft.bench.worker import Worker
from weft.bench.workloads import NAMES, WORKLOADS, Workload, find, scaled

SMALL = Workload("small", "means", 300, 3, 4, 5, ("one", "two"), (300, 5), data="blobs")
TWICE = Effort(rounds=2)


def quiet(_: str) -> None:
    """Nobody watches."""


# ---- processes that are not ------------------------------------------------------------------------------------------


class Here:
    """A worker in this process."""

    def __init__(self) -> None:
        self.worker = Worker()

    def ask(self, do: str, **message: Any) -> dict[str, Any]:
        from weft.bench.process import PeerFailed

        try:
            answer: dict[str, Any] = getattr(self.worker, do)(json.loads(json.dumps(message)))
        except Exception as error:
            raise PeerFailed(str(error).splitlines()[0]) from None
        return answer

    def close(self) -> None:
        self.worker.held = None


class Local(Processes):
    """Everyone in this process."""

    def start(self, peer: str) -> Any:
        if peer not in self._running:
            self._running[peer] = Here()  # type: ignore[assignment]
        return self._running[peer]


def peer(cls: str = "Plain", needs: str = "json", **options: Any) -> Peer:
    return Peer(f"peer {cls} {options.get('name', '')}".strip(), f"bench_peers:{cls}", options, needs, "numpy", "keeps")


Contend = Callable[..., Contest]


@pytest.fixture
def contend(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Contend]:
    """Holds a contest of the given peers in this process; the first is ours."""

    def run(work: Workload = SMALL, effort: Effort = TWICE, **peers: Peer) -> Contest:
        for name, one in peers.items():
            monkeypatch.setitem(PEERS, name, one)
        bench_peers.ORDER.clear()
        with Local(1, fresh=True) as processes:
            return hold(replace(work, entries=tuple(peers)), processes, tmp_path, effort, quiet)

    gc.freeze()  # as workers do: collecting through all imported libraries takes longer than these contests
    yield run
    gc.unfreeze()


# ---- judges ----------------------------------------------------------------------------------------------------------


def distances(x: Any, c: Any) -> list[list[Fraction]]:
    exact = [[[Fraction(float(v)) for v in row] for row in rows] for rows in (x, c)]
    return [[sum((a - b) ** 2 for a, b in zip(p, q, strict=True)) for q in exact[1]] for p in exact[0]]


def test_nearest_is_exact_and_takes_the_first_of_equals() -> None:
    chance = np.random.default_rng(1)
    x = chance.integers(0, 4, (200, 3)).astype(np.float32)
    c = chance.integers(0, 4, (9, 3)).astype(np.float32)  # ties everywhere, equal centers too
    labels, total = nearest(x, c)
    wanted = distances(x, c)
    assert labels.tolist() == [row.index(min(row)) for row in wanted]
    assert total == pytest.approx(float(sum(min(row) for row in wanted)))


def test_nearest_settles_what_float64_cannot() -> None:
    chance = np.random.default_rng(2)
    x, c = 1e7 + chance.random((100, 3)), 1e7 + chance.random((20, 3))  # squares near 1e14 swallow the differences
    wanted = [row.index(min(row)) for row in distances(x, c)]
    assert nearest(x, c)[0].tolist() == wanted
    assert ((c**2).sum(1) - 2 * x @ c.T).argmin(1).tolist() != wanted


def test_nearest_goes_through_all_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.bench.judges.BLOCK", 50)
    inputs = arrays(SMALL)
    labels, total = nearest(inputs["x"], inputs["c"])
    exact = ((inputs["x"][:, None].astype(float) - inputs["c"]) ** 2).sum(2)
    assert np.array_equal(labels, exact.argmin(1))
    assert total == pytest.approx(exact.min(1).sum())


def test_transport_judges_are_the_specs() -> None:
    chance = np.random.default_rng(2)
    x, y = chance.random((7, 2)), chance.random((7, 2))
    found = weft.interpret("sinkhorn_dual", {"x": x, "y": y}, layers=6, params={"lambda": 0.05, "gamma": 0.1})
    assert potential_error((found["u"], found["v"]), dual_steps(x, y, 0.05, 0.1, 6), 0.05) < 1e-12
    mass = np.full(7, 1 / 7)
    found = weft.interpret("sinkhorn_log", {"x": x, "y": y, "a": mass, "b": mass}, layers=6, params={"lambda": 0.05})
    assert potential_error((found["f"], found["g"]), sweeps(x, y, 0.05, 6, columns_first=False), 0.05) < 1e-12
    assert potential_error((found["f"], found["g"]), sweeps(x, y, 0.05, 6, columns_first=True), 0.05) > 1e-6


# ---- agreement -------------------------------------------------------------------------------------------------------


def answer(inputs: dict[str, Any], wrong: int = 0) -> dict[str, Any]:
    labels = nearest(inputs["x"], inputs["c"])[0]
    labels[:wrong] = (labels[:wrong] + 1) % 4
    return {"centers": inputs["c"], "labels": labels}


def test_ours_must_be_exact_in_every_row() -> None:
    inputs = arrays(SMALL)
    right, inertia = judge(SMALL, "weft", inputs, answer(inputs), False, 5, None)
    assert (right.rows, right.trouble) == (0, "")
    assert inertia == pytest.approx(nearest(inputs["x"], inputs["c"])[1])
    wrong, _ = judge(SMALL, "weft", inputs, answer(inputs, 1), False, 5, None)
    assert (wrong.rows, wrong.trouble) == (1, "1 of 300 labels are not the exact ones")


def test_a_peer_may_round_but_not_do_something_else() -> None:
    inputs = arrays(SMALL)
    assert judge(SMALL, "faiss", inputs, answer(inputs, 3), False, 5, None)[0] == Agreement(3, empty=0)
    assert judge(SMALL, "faiss", inputs, answer(inputs, 4), False, 5, None)[0].trouble.startswith("4 of 300")
    inertia = nearest(inputs["x"], inputs["c"])[1]
    assert not judge(SMALL, "faiss", inputs, answer(inputs), False, 5, Ours(inertia / 1.04))[0].trouble
    found = judge(SMALL, "faiss", inputs, answer(inputs), False, 5, Ours(inertia / 1.06))[0]
    assert found.trouble == "its inertia is +6.0% from ours"
    empty = judge(SMALL, "faiss", inputs, answer(inputs), False, 5, Ours(inertia / 1.06, empty=1))[0]
    assert (empty.excess, empty.trouble) == (pytest.approx(0.06), "")


def test_labels_of_a_single_layer_belong_to_the_start() -> None:
    inputs = arrays(SMALL)
    moved = {**answer(inputs), "centers": inputs["c"] + 100}
    assert judge(SMALL, "weft-layer", inputs, moved, True, 1, None)[0].rows == 0
    assert judge(SMALL, "weft-layer", inputs, moved, False, 1, None)[0].trouble
    assert "cannot be judged" in judge(SMALL, "weft-layer", inputs, moved, True, 2, None)[0].trouble


def test_too_few_labels_are_all_wrong() -> None:
    inputs = arrays(SMALL)
    short = {"centers": inputs["c"], "labels": answer(inputs)["labels"][:-1]}
    assert judge(SMALL, "faiss", inputs, short, False, 1, None)[0].rows == 300


def test_potentials_are_judged() -> None:
    work = Workload("t", "transport", 20, 2, 0, 4, ("weft-dual",), (20, 4), "uniform")
    inputs = arrays(work)
    f, g = dual_steps(inputs["x"], inputs["y"], REGULARISATION, STEP, 4)
    assert judge(work, "weft-dual", inputs, {"f": f, "g": g}, False, 4, None)[0].trouble == ""
    off = f + np.eye(20)[3] * REGULARISATION * 2e-3
    assert "wrong by 2" in judge(work, "weft-dual", inputs, {"f": off, "g": g}, False, 4, None)[0].trouble
    assert judge(work, "pot-log-torch", inputs, {"f": f, "g": g}, False, 4, None)[0].trouble


# ---- contests --------------------------------------------------------------------------------------------------------


def test_rounds_alternate_after_a_first_look(contend: Contend) -> None:
    contest = contend(a=peer(name="A"), b=peer(name="B"), c=peer(name="C"))
    # opening: a small part each; then the full run that is judged; then rounds
    assert "".join(bench_peers.ORDER) == "ABC" + "ABC" + "ABCABC"
    assert [(m.peer, len(m.times), m.iterations) for m in contest.measurements] == [
        ("a", 2, 5),
        ("b", 2, 5),
        ("c", 2, 5),
    ]
    assert all(0 < wall < 60 and cpu >= 0 for m in contest.measurements for wall, cpu in m.times)
    assert contest.ratio("b") == pytest.approx(
        min(t[0] for t in contest.measurements[1].times) / min(t[0] for t in contest.measurements[0].times)
    )


def test_a_sabotaged_peer_is_not_timed(contend: Contend) -> None:
    contest = contend(one=peer(), two=peer(wrong=100))
    assert contest.measurements[1].agreement.rows == 100
    assert contest.measurements[1].times == ()
    assert contest.ratio("two") is None
    assert "peer Plain: 100 of 300 labels are not the exact ones; no ratio" in contest_text(contest)
    assert contend(one=peer(), two=peer(shift=1.0)).measurements[1].agreement.trouble.startswith("its inertia is +")


def test_one_wrong_label_of_ours_stops_the_comparison(contend: Contend) -> None:
    contest = contend(**{"weft-x": peer(wrong=1), "two": peer()})
    assert contest.measurements[0].agreement.trouble == "1 of 300 labels are not the exact ones"
    assert contest.ours is None
    assert contest.ratio("two") is None
    assert Results({}, "", "", 1, True, (contest,)).troubles == [
        "small: peer Plain: 1 of 300 labels are not the exact ones"
    ]


def test_who_is_not_installed_is_left_out_with_a_note(contend: Contend) -> None:
    contest = contend(one=peer(), two=peer(needs="no_such_module_at_all"))
    assert [m.peer for m in contest.measurements] == ["one"]
    assert contest.notes == ("peer Plain is left out: not installed (pip install numpy)",)


def test_who_fails_is_left_out_with_a_note(contend: Contend) -> None:
    contest = contend(one=peer(), two=peer("Failing"))
    assert [m.peer for m in contest.measurements] == ["one"]
    assert contest.notes == ("peer Failing is left out: no room left",)


def test_nobody_is_timed_after_nothing_changes(contend: Contend) -> None:
    contest = contend(one=peer(settled=4), two=peer(), three=peer(stops=3))
    assert [m.iterations for m in contest.measurements] == [4, 4, 3]
    assert contest.notes == (
        "after 4 iterations nothing changes, so all are timed with 4",
        "peer Plain ran 3 of 4 iterations: scaled per iteration",
    )


def test_a_slow_peer_runs_fewer_iterations_and_is_scaled(contend: Contend) -> None:
    contest = contend(replace(SMALL, few=(("two", 2),)), one=peer(), two=peer())
    assert [m.iterations for m in contest.measurements] == [5, 2]
    assert contest.notes == ("peer Plain ran 2 of 5 iterations: scaled per iteration",)


def test_ours_and_scikit_learn_settle_together(contend: Contend) -> None:
    apart = Workload("apart", "means", 200, 2, 2, 40, (), (200, 40), data="blobs")
    contest = contend(apart, **{"weft": PEERS["weft"], "sklearn-lloyd": PEERS["sklearn-lloyd"]})
    ours, lloyd = contest.measurements
    assert ours.iterations < 40
    assert abs(ours.iterations - lloyd.iterations) <= 1
    assert contest.notes[0] == f"after {ours.iterations} iterations nothing changes, so all are timed with " + str(
        ours.iterations
    )
    assert [m.agreement.rows for m in contest.measurements] == [0, 0]
    assert set(ours.facts) >= {"backend", "tiers", "compile seconds", "load seconds"}


def test_effort_ends_with_patience() -> None:
    effort = Effort(rounds=5, patience=20, least=2)
    assert [effort.repetitions(s) for s in (0.0, 1, 4, 7, 15, 100)] == [5, 5, 5, 2, 2, 1]
    assert Effort(rounds=1).repetitions(100) == 1


@pytest.mark.parametrize("name", NAMES)
def test_every_workload_runs_and_ours_is_right(name: str, contend: Contend) -> None:
    tiny = {"means": 60, "transport": 24, "batch": 40}
    work = find(name)
    few = {"iterations": min(work.iterations, 2), "problems": min(work.problems, 3)}
    work = replace(work, n=tiny[work.kind], d=min(work.d, 8), k=min(work.k, 7), **few)
    present = {entry: PEERS[entry] for entry in work.entries if PEERS[entry].is_installed}
    contest = contend(work, Effort(rounds=1), **present)
    assert {m.peer: m.agreement.trouble for m in contest.measurements} == dict.fromkeys(present, "")
    assert all(m.times for m in contest.measurements)


# ---- processes -------------------------------------------------------------------------------------------------------


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Contend:
    """Holds a contest in real processes, which find the peers of the tests."""
    monkeypatch.setenv("PYTHONPATH", bench_peers.HERE)

    def run(**peers: Peer) -> Contest:
        for name, one in peers.items():
            monkeypatch.setitem(PEERS, name, one)
        with Processes(1, fresh=True) as processes:
            return hold(replace(SMALL, entries=tuple(peers)), processes, tmp_path, Effort(rounds=1), quiet)

    return run


def test_each_has_a_process_of_its_own(real: Contend) -> None:
    contest = real(one=peer("Large"), two=peer(), three=peer("Dying"))
    large, plain = contest.measurements
    assert (len(large.times), len(plain.times)) == (1, 1)
    assert contest.notes == ("peer Dying is left out: its process ended with code 7: I was never well",)
    if plain.memory is not None and large.memory is not None:  # /proc says
        assert 60 * 2**20 < large.memory < 80 * 2**20
        assert plain.memory < 16 * 2**20


def test_peak_sees_what_is_gone_again() -> None:
    np.ones(2**25).sum()  # a higher peak, before
    peak = Peak()
    np.ones(2**22).sum()
    beyond = peak.beyond()
    assert beyond is None or 30 * 2**20 < beyond < 40 * 2**20
    assert (beyond is None) == (not sys.platform.startswith("linux"))


def test_profile_tells_phases_functions_and_operations() -> None:
    work = replace(SMALL, n=60)
    ours = Clustering()
    ours.prepare(work, 1)
    text = profile(ours, ours.hold(arrays(work)), 3)
    assert "each further one" in text
    assert "tottime" in text
    assert "aten::" in text


def test_time_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    chains = {"json": {"a nap": "time.sleep(0.2); x = 1", "nothing": "x"}, "no_such_module_at_all": {"absent": ""}}
    monkeypatch.setattr("weft.bench.starting.CHAINS", chains)
    nap, nothing = starts(2, 1, quiet)
    assert (nap.what, nothing.what) == ("a nap", "nothing")
    assert (len(nap.seconds), len(nothing.seconds)) == (2, 2)
    assert min(nap.seconds) >= 0.2 > min(nothing.seconds)


# ---- ratios and verdicts ---------------------------------------------------------------------------------------------


def measured(
    name: str, walls: list[float], cpus: list[float] | None = None, iterations: int = 10, **more: Any
) -> Measurement:
    times = tuple(zip(walls, cpus or walls, strict=True))
    return Measurement(name, PEERS[name].title, "1", iterations, times, **more)


def results(*contests: Contest, exact: bool = True) -> Results:
    machine = {"cpu": "abacus", "cores": "2", "system": "Linux", "python": "3"}
    return Results(machine, "weft bench", "2026-01-31", 2, exact, contests)


def contest(name: str, *measurements: Measurement, **more: Any) -> Contest:
    return Contest(replace(find(name), **more), measurements)


def test_ratios_are_of_times_per_iteration() -> None:
    ours = measured("weft", [1.0, 3.0, 2.0], [2.0, 2.5, 4.0])
    lloyd = measured("sklearn-lloyd", [8.0, 6.0, 7.0], [5.0, 9.0, 9.0])
    faiss = measured("faiss", [3.0], [3.0], iterations=5)
    found = contest("lloyd-16-64", ours, lloyd, faiss)
    assert found.ratio("sklearn-lloyd") == 6.0
    assert found.ratio("sklearn-lloyd", typical=True) == 3.5
    assert found.ratio("sklearn-lloyd", "cpu") == 2.5
    assert found.ratio("faiss") == 6.0  # 3 s for half of the iterations
    assert found.ratio("weft") == 1.0
    assert found.ratio("sklearn-elkan") is None


def test_marks() -> None:
    ratio = Target("", (), (), 2.0, 4.0)
    assert [mark(ratio, v) for v in (1.99, 2.0, 3.99, 4.0)] == ["not met", "met", "met", "aim met"]
    limit = Target("", (), (), 1.5, 1.2, "within")
    assert [mark(limit, v) for v in (1.51, 1.5, 1.21, 1.2)] == ["not met", "met", "met", "aim met"]
    assert mark(Target("", (), (), 1000), 1e6) == "met"  # there is no aim


def test_a_target_is_judged_by_its_worst_workload_and_its_fastest_peer() -> None:
    small = contest("lloyd-16-64-small", measured("weft", [1.0]), measured("sklearn-lloyd", [5.0]))
    large = contest("lloyd-16-64", measured("weft", [1.0]), measured("sklearn-lloyd", [3.0]), measured("faiss", [9.0]))
    lloyd, faiss, *_ = verdicts(results(small, large))
    assert (lloyd.measured, lloyd.workload, lloyd.mark, lloyd.complete) == (3.0, "lloyd-16-64", "met", True)
    assert (faiss.measured, faiss.mark, faiss.complete) == (9.0, "aim met", False)
    clustered = contest(
        "clustered-16-64", measured("weft", [1.0]), measured("sklearn-lloyd", [9.0]), measured("faiss", [2.0])
    )
    against_lloyd, against_all, *_ = verdicts(results(clustered))
    assert (against_lloyd.measured, against_lloyd.mark) == (9.0, "met")
    assert (against_all.measured, against_all.against, against_all.mark) == (2.0, "faiss", "not met")


def test_a_limit_is_how_many_times_longer_we_take() -> None:
    one = contest(
        "iteration-128-256", measured("weft-layer", [1.3], iterations=1), measured("gemm", [1.0], iterations=1)
    )
    two = contest(
        "iteration-32-1000", measured("weft-layer", [2.0], iterations=1), measured("gemm", [1.0], iterations=1)
    )
    (found,) = verdicts(results(one, two))
    assert (found.measured, found.workload, found.mark) == (2.0, "iteration-32-1000", "not met")
    assert verdicts(results(one))[0].mark == "met"


def test_memory_is_per_point_beyond_what_threads_may_take() -> None:
    ours = measured("weft", [1.0], memory=2 * 2 * 2**20 + 25_000)
    found = verdicts(results(contest("lloyd-2-10", ours, n=1000)))[-1]
    assert (found.measured, found.mark) == (25.0, "not met")
    ours = measured("weft", [1.0], memory=2 * 2 * 2**20 + 24_000)
    assert verdicts(results(contest("lloyd-2-10", ours, n=1000)))[-1].mark == "met"


def test_what_was_not_measured_is_not_met() -> None:
    found = verdicts(results(contest("lloyd-2-10", measured("weft", [1.0]))))
    assert [v.mark for v in found] == ["not measured", "not measured"]


def test_targets_and_workloads_name_what_exists() -> None:
    assert len(set(NAMES)) == len(NAMES)
    for target in TARGETS:
        for name in target.workloads:
            assert set(target.against) <= set(find(name).entries) | {"sklearn-elkan"}, (target.what, name)
    for work in WORKLOADS:
        assert set(work.entries) <= set(PEERS)
        assert work.entries[0].startswith("weft")
        assert {name for name, _ in work.few} <= set(work.entries)


def test_sizes() -> None:
    work = find("lloyd-16-64")
    assert (scaled(work, 1, False).n, scaled(work, 0.5, False).n, scaled(work, 1, True).n) == (10**6, 500_000, 100_000)
    assert scaled(work, 1e-9, True).n == 8 * 64
    assert scaled(find("dual-2000"), 0.25, False).n == 1000  # work grows with the square
    assert scaled(find("batch"), 0.01, False).problems == 10
    assert sum(ragged_sizes(1000, 200)) == 200_000
    assert min(ragged_sizes(1000, 200)) == 100
    assert len(set(ragged_sizes(5, 200))) == 5


def test_data_are_the_same_every_time() -> None:
    first, second = arrays(SMALL), arrays(SMALL)
    assert first["x"].dtype == np.float32
    assert all(np.array_equal(first[name], second[name]) for name in first)
    assert not np.array_equal(first["x"], arrays(SMALL, seed=1)["x"])
    assert all((first["x"] == center).all(1).any() for center in first["c"])  # the start is drawn from the data
    double = arrays(replace(SMALL, dtype="float64"))["x"]
    assert (double != double.astype(np.float32)).any()


# ---- tables, JSON, pages ---------------------------------------------------------------------------------------------


def sample() -> Results:
    ours = measured(
        "weft",
        [0.1, 0.2],
        [0.15, 0.2],
        memory=16_000_000,
        agreement=Agreement(0, empty=1),
        facts={"backend": "linear", "tiers": {"bound": 1200, "exact": 3, "undecided": 0}},
    )
    lloyd = measured("sklearn-lloyd", [0.275, 0.3], memory=8_000_000, agreement=Agreement(2, excess=0.01, empty=0))
    made = replace(contest("lloyd-16-64", ours, lloyd), notes=("faiss is left out: not installed",))
    return replace(results(made, exact=False), starts=(Start("import weft", (0.02, 0.04)),), notes=("that is all",))


def test_table_of_a_contest() -> None:
    assert contest_text(sample().contests[0]).splitlines() == [
        "lloyd-16-64: n 1000000, d 16, k 64, T 10, gauss, float32",
        "implementation      min ms  median  CPU ms  ratio  median    CPU  wrong rows  inertia  bytes/point  runs",
        "weft                    10      15      15     1x      1x     1x           0                    16     2",
        "scikit-learn lloyd    27.5    28.7    27.5  2.75x   1.92x  1.83x           2   +1.00%            8     2",
        "  faiss is left out: not installed",
        "  empty clusters at the end: weft 1 (an empty cluster keeps its center)",
        "  weft: backend linear; rows settled: bound 1,200, exact 3",
    ]


def test_targets_beside_what_was_measured() -> None:
    lines = closing_text(sample()).splitlines()
    assert lines[0] == "start"
    assert "import weft             20      30" in lines
    (ratio,) = (line for line in lines if line.startswith("1e5..1e6, 16, 64  ") and "scikit" in line)
    assert ratio.split()[5:] == ["2.75x", "1.92x", "2.8x", "4x", "not", "met,", "not", "all", "measured", "lloyd-16-64"]
    assert "sizes are not those of the targets: the marks are an indication" in closing_text(sample())
    assert "indication" not in closing_text(replace(sample(), exact_sizes=True))
    assert lines[-1] == "that is all"


def test_markdown() -> None:
    text = markdown(sample())
    assert text.startswith("### 2026-01-31\n\nabacus, 2 cores, 2 threads, Linux; python 3.\n\n```\n$ weft bench\n```\n")
    assert "| scikit-learn lloyd | 27.5 | 28.7 | 27.5 | 2.75x | 1.92x | 1.83x | 2 | +1.00% | 8 | 2 |" in text
    for table in text.split("\n\n"):
        if table.startswith("|"):
            assert len({line.count("|") for line in table.splitlines()}) == 1


def test_columns_in_which_nothing_is_said_are_left_out() -> None:
    table = Table(("a", "b", "c"), (("x", "", "1"), ("yy", "", "22")))
    assert table.text() == "a    c\nx    1\nyy  22"
    assert table.markdown() == "| a | c |\n| --- | ---: |\n| x | 1 |\n| yy | 22 |"
    assert contest_table(sample().contests[0]).header[0] == "implementation"
    assert [number(v) for v in (None, 0.01234, 1.236, 99.94, 123.6, 12345.0)] == [
        "",
        "0.0123",
        "1.24",
        "99.9",
        "124",
        "12,345",
    ]


def test_account() -> None:
    told = json.loads(json.dumps(account(sample())))
    assert told["ok"] is True
    ours, lloyd = told["contests"][0]["measurements"]
    assert lloyd["ratio"] == pytest.approx({"wall_min": 2.75, "wall_median": 0.2875 / 0.15, "cpu_min": 0.275 / 0.15})
    assert (ours["wall"], ours["memory_per_point"], lloyd["agreement"]["rows"]) == ([0.1, 0.2], 16.0, 2)
    assert told["targets"][0] == {
        "what": "1e5..1e6, 16, 64",
        "workloads": ["lloyd-16-64-small", "lloyd-16-64"],
        "against": ["sklearn-lloyd"],
        "must": 2.8,
        "aim": 4,
        "sense": "at least",
        "peer": "scikit-learn lloyd",
        "measured": pytest.approx(2.75),
        "median": pytest.approx(0.2875 / 0.15),
        "worst": "lloyd-16-64",
        "mark": "not met",
        "complete": False,
    }


def test_the_page_keeps_everything_but_its_block(tmp_path: Path) -> None:
    path = tmp_path / "bench.md"
    path.write_text(f"# Title\n\n{page.BEGIN}\nold \\1\n{page.END}\n\nThe end.\n")
    page.check(path)
    page.write(path, "new \\1")
    page.write(path, "newer \\1")
    assert path.read_text() == f"# Title\n\n{page.BEGIN}\n\nnewer \\1\n\n{page.END}\n\nThe end.\n"
    assert list(tmp_path.iterdir()) == [path]
    page.write(tmp_path / "fresh.md", "text")
    page.check(tmp_path / "fresh.md")


def test_the_page_of_the_project_has_its_block_and_every_workload() -> None:
    path = ROOT / "docs" / "bench.md"
    page.check(path)
    text = path.read_text(encoding="utf-8")
    assert all(f"`{name}`" in text for name in NAMES)


# ---- the command -----------------------------------------------------------------------------------------------------


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*words: object) -> tuple[int, str, str]:
        code = cli.main(["bench", *(str(word) for word in words)])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_list(run: Run) -> None:
    code, out, _ = run("--list")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines() if not line.startswith((" ", "not"))] == [*NAMES, "start"]
    told = json.loads(run("--list", "--json", "--quick")[1])
    assert told["workloads"][1]["sizes"] == "n 100000, d 16, k 64, T 5, gauss, float32"


def test_wrong_words(run: Run, tmp_path: Path) -> None:
    assert run("loyd-2-10")[::2] == (2, "error: there is no workload loyd-2-10; did you mean 'lloyd-2-10'?\n")
    assert run("--profile", "start")[0] == 2
    assert run("--scale", "0")[2].startswith("error: argument --scale: must be a number above 0")
    (tmp_path / "page.md").write_text("no block here")
    code, _, err = run("lloyd-2-10", "--quick", "--markdown", tmp_path / "page.md")
    assert code == 1
    assert "the page must hold one block" in err
    assert run("--markdown", tmp_path)[0] == 1


def test_a_whole_run(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    code, out, err = run(
        "iteration-128-256", "--quick", "--scale", 0.01, "--repeat", 2, "--threads", 1, "--json", "--markdown", path
    )
    told = json.loads(out)
    assert (code, told["ok"], told["troubles"], told["threads"]) == (0, True, [], 1)
    assert told["command"].startswith("weft bench iteration-128-256 --quick --scale 0.01 --threads 1 --repeat 2")
    (found,) = told["contests"]
    assert [m["peer"] for m in found["measurements"]] == ["weft-layer", "gemm"]
    ours, gemm = found["measurements"]
    assert (len(ours["wall"]), len(gemm["cpu"])) == (2, 2)
    assert gemm["ratio"]["wall_min"] == pytest.approx(min(gemm["wall"]) / min(ours["wall"]))
    assert (ours["agreement"]["rows"], ours["facts"]["labels"]) == (0, "held")
    assert told["targets"][0]["mark"] in ("aim met", "met", "not met")
    assert told["machine"]["torch"]
    assert "iteration-128-256: weft, one layer: starts" in err
    assert "| pure GEMM (limit) |" in path.read_text()


def test_contests_are_told_one_by_one(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    made = sample().contests[0]
    monkeypatch.setattr(running, "hold", lambda *_: made)
    code, out, _ = run("lloyd-16-64", "--threads", 1)
    assert code == 0
    assert out.startswith(contest_text(made) + "\n\ntargets (wall time, fastest runs)\n")
    assert out.endswith("\n$ weft bench lloyd-16-64 --threads 1\n")


def test_exit_code_tells_of_wrong_answers(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = contest("lloyd-2-10", measured("weft", [1.0], agreement=Agreement(1, trouble="1 label is wrong")))
    monkeypatch.setattr(running, "bench", lambda *_, **__: results(wrong))
    code, out, err = run("lloyd-2-10", "--json")
    assert (code, json.loads(out)["ok"]) == (1, False)
    assert err.endswith("error: lloyd-2-10: weft: 1 label is wrong\n")


def test_help_imports_no_tensor_library() -> None:
    code = "import sys; from weft.cli import main; main(['bench', '--list']); print('torch' in sys.modules)"
    env = {**os.environ, "PYTHONPATH": ""}
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert found.stdout.splitlines()[-1] == "False"
