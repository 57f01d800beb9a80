"""`weftc bench`: contests in alternating rounds, in processes of their own."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest

import bench_peers
from benching import SMALL, TWICE, Local, peer, quiet
from weftc.tools.bench.agreement import judge
from weftc.tools.bench.contest import Effort, hold
from weftc.tools.bench.memory import Peak
from weftc.tools.bench.peers import PEERS, Peer
from weftc.tools.bench.peers.ours import ClusteringPeer
from weftc.tools.bench.process import Processes
from weftc.tools.bench.profiling import profile
from weftc.tools.bench.results import Contest, Results
from weftc.tools.bench.samples import arrays
from weftc.tools.bench.specs import CLUSTERING_SPECS, NAMED
from weftc.tools.bench.starting import starts
from weftc.tools.bench.tables import contest_text
from weftc.tools.bench.workloads import NAMES, Workload, find

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


def test_rounds_alternate_after_a_first_look(contend: Contend) -> None:
    contest = contend(a=peer(name="A"), b=peer(name="B"), c=peer(name="C"))
    # opening: a small part each; then the full run that is judged; then rounds, in which a short run is repeated
    assert "".join(peer for peer, _ in groupby(bench_peers.ORDER)) == "ABC" + "ABC" + "ABCABC"
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
    contest = contend(**{"weftc-x": peer(wrong=1), "two": peer()})
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
    contest = contend(apart, **{"weftc": PEERS["weftc"], "sklearn-lloyd": PEERS["sklearn-lloyd"]})
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


@pytest.mark.parametrize("spec", [*CLUSTERING_SPECS, "knn", "nearest_neighbor"])
def test_every_spec_agrees_with_plain_torch(spec: str, contend: Contend) -> None:
    work = NAMED[
        "knn-2000" if spec == "knn" else "nearest_neighbor-2000" if spec == "nearest_neighbor" else f"{spec}-300"
    ]
    entries = tuple(entry for entry in work.entries if PEERS[entry].is_installed)
    work = replace(work, n=90, k=5, iterations=min(2, work.iterations), entries=entries)
    contest = contend(work, Effort(rounds=1), **{entry: PEERS[entry] for entry in entries})
    assert {m.peer: m.agreement.trouble for m in contest.measurements} == dict.fromkeys(entries, "")


def test_an_answer_of_another_spec_is_noticed() -> None:
    work = replace(NAMED["soft_kmeans-300"], n=90, iterations=2)
    inputs = arrays(work)
    wrong = judge(work, "weftc-spec", inputs, {"found": inputs["c"]}, False, 2, None)[0]
    assert wrong.trouble.startswith("its answer is wrong by")
    work = replace(NAMED["kmedoids-300"], n=90)
    inputs = arrays(work)
    assert judge(work, "plain", inputs, {"found": inputs["c"] + 1}, False, 2, None)[0].rows == work.k


@pytest.mark.parametrize("name", ["fit-iris", "seeding-8-64", "lloyd-batch", "gmm_em_spherical-sklearn"])
def test_rows_of_other_kinds_run(name: str, contend: Contend) -> None:
    work = NAMED[name] if name == "fit-iris" else replace(NAMED[name], n=200, k=4, iterations=1)
    work = replace(work, problems=min(3, work.problems))
    contest = contend(work, Effort(rounds=1), **{entry: PEERS[entry] for entry in work.entries})
    assert {m.peer: m.agreement.trouble for m in contest.measurements} == dict.fromkeys(work.entries, "")


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
    ours = ClusteringPeer()
    ours.prepare(work, 1)
    text = profile(ours, ours.hold(arrays(work)), 3)
    assert "each further one" in text
    assert "tottime" in text
    assert "aten::" in text


def test_time_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    chains = {"json": {"a nap": "time.sleep(0.2); x = 1", "nothing": "x"}, "no_such_module_at_all": {"absent": ""}}
    monkeypatch.setattr("weftc.tools.bench.starting.CHAINS", chains)
    nap, nothing = starts(2, 1, quiet)
    assert (nap.what, nothing.what) == ("a nap", "nothing")
    assert (len(nap.seconds), len(nothing.seconds)) == (2, 2)
    assert min(nap.seconds) >= 0.2 > min(nothing.seconds)
