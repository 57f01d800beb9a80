"""`weftc bench`: ratios, targets and verdicts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benching import SMALL, contest, measured, results
from pages import ROOT
from weftc.tools.bench.peers import PEERS
from weftc.tools.bench.peers.ours import TRUSTING, ragged_sizes
from weftc.tools.bench.results import Agreement
from weftc.tools.bench.samples import arrays
from weftc.tools.bench.specs import NAMED
from weftc.tools.bench.targets import TARGETS, SpeedTarget
from weftc.tools.bench.verdicts import mark, verdicts
from weftc.tools.bench.workloads import NAMES, find, scaled
from weftc_runtime.exact import segments as segment
from weftc_runtime.kernels.native import building, library

sort = segment.SegmentSum._sort


def test_ratios_are_of_times_per_iteration() -> None:
    ours = measured("weftc", [1.0, 3.0, 2.0], [2.0, 2.5, 4.0])
    lloyd = measured("sklearn-lloyd", [8.0, 6.0, 7.0], [5.0, 9.0, 9.0])
    faiss = measured("faiss", [3.0], [3.0], iterations=5)
    found = contest("lloyd-16-64", ours, lloyd, faiss)
    assert found.ratio("sklearn-lloyd") == 6.0
    assert found.ratio("sklearn-lloyd", typical=True) == 3.5
    assert found.ratio("sklearn-lloyd", "cpu") == 2.5
    assert found.ratio("faiss") == 6.0  # 3 s for half of the iterations
    assert found.ratio("weftc") == 1.0
    assert found.ratio("sklearn-elkan") is None


def test_marks() -> None:
    ratio = SpeedTarget("", (), (), 2.0, 4.0)
    assert [mark(ratio, v) for v in (1.99, 2.0, 3.99, 4.0)] == ["not met", "met", "met", "aim met"]
    limit = SpeedTarget("", (), (), 1.5, 1.2, "within")
    assert [mark(limit, v) for v in (1.51, 1.5, 1.21, 1.2)] == ["not met", "met", "met", "aim met"]
    assert mark(SpeedTarget("", (), (), 1000), 1e6) == "met"  # there is no aim


def test_a_target_is_judged_by_its_worst_workload_and_its_fastest_peer() -> None:
    small = contest("lloyd-16-64-small", measured("weftc", [1.0]), measured("sklearn-lloyd", [5.0]))
    large = contest("lloyd-16-64", measured("weftc", [1.0]), measured("sklearn-lloyd", [3.0]), measured("faiss", [9.0]))
    lloyd, faiss, *_ = verdicts(results(small, large))
    assert (lloyd.measured, lloyd.workload, lloyd.mark, lloyd.complete) == (3.0, "lloyd-16-64", "met", True)
    assert (faiss.measured, faiss.mark, faiss.complete) == (9.0, "aim met", False)
    clustered = contest(
        "clustered-16-64", measured("weftc", [1.0]), measured("sklearn-lloyd", [9.0]), measured("faiss", [2.0])
    )
    against_lloyd, against_all, *_ = verdicts(results(clustered))
    assert (against_lloyd.measured, against_lloyd.mark) == (9.0, "met")
    assert (against_all.measured, against_all.against, against_all.mark) == (2.0, "faiss", "not met")


def test_a_limit_is_how_many_times_longer_we_take() -> None:
    one = contest(
        "iteration-128-256", measured("weftc-layer", [1.3], iterations=1), measured("gemm", [1.0], iterations=1)
    )
    two = contest(
        "iteration-32-1000", measured("weftc-layer", [2.0], iterations=1), measured("gemm", [1.0], iterations=1)
    )
    (found,) = verdicts(results(one, two))
    assert (found.measured, found.workload, found.mark) == (2.0, "iteration-32-1000", "not met")
    assert verdicts(results(one))[0].mark == "met"


def test_a_certificate_is_measured_against_answers_that_are_trusted() -> None:
    def layer(seconds: float) -> list[str]:
        ours = measured("weftc-layer", [seconds], iterations=1)
        trusted = measured("trusted", [1.0], iterations=1, agreement=Agreement(rows=3))
        return [v.mark for v in verdicts(results(contest("certificate-32-1000", ours, trusted)))]

    assert layer(1.15) == layer(0.8) == ["met"]
    assert layer(1.16) == ["not met"]


def test_only_the_bench_can_do_without_a_certificate() -> None:
    sources = [path for path in (ROOT / "runtime").rglob("*") if path.suffix in (".py", ".h", ".cpp")]
    assert [path.name for path in sources if "TRUSTING" in path.read_text()] == ["fine.h"]
    with pytest.raises(ValueError, match="one layer"):
        PEERS["trusted"].make().prepare(replace(find("certificate-32-1000"), iterations=2), 1)
    assert TRUSTING not in building.FLAGS


def test_torch_alone_runs_without_native_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    for kernel in ("finder", "machine", "segments"):
        monkeypatch.setattr(library.Library, kernel, lambda *_: asked.append("native"))
    monkeypatch.setattr(segment.SegmentSum, "_sort", lambda sums: asked.append("torch") or sort(sums))
    work = replace(find("torch-16-64"), n=3000, k=64)
    alone = PEERS["weftc-torch"].make()
    alone.prepare(work, 1)
    answer = alone.run(alone.hold(arrays(work)), 2)
    assert asked == ["torch"]
    assert alone.outcome(answer, 2).facts["backend"] == "planned"


def test_memory_is_per_point_beyond_what_threads_may_take() -> None:
    ours = measured("weftc", [1.0], memory=2 * 2 * 2**20 + 25_000)
    found = verdicts(results(contest("lloyd-2-10", ours, n=1000)))[-1]
    assert (found.measured, found.mark) == (25.0, "not met")
    ours = measured("weftc", [1.0], memory=2 * 2 * 2**20 + 24_000)
    assert verdicts(results(contest("lloyd-2-10", ours, n=1000)))[-1].mark == "met"


def test_what_was_not_measured_is_not_met() -> None:
    found = verdicts(results(contest("lloyd-2-10", measured("weftc", [1.0]))))
    assert [v.mark for v in found] == ["not measured", "not measured"]


def test_targets_and_workloads_name_what_exists() -> None:
    assert len(set(NAMES)) == len(NAMES)
    for target in TARGETS:
        for name in target.workloads:
            assert set(target.against) <= set(NAMED[name].entries) | {"sklearn-elkan"}, (target.what, name)
    for work in NAMED.values():
        assert set(work.entries) <= set(PEERS)
        assert work.entries[0].startswith("weftc")
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
