"""Processes that share sets: the bits of one process, however many they are and however few rows some hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

import weftc
from ranks import cuts, ranks
from shared_runs import (
    decide_share,
    plain,
    run_native_share,
    run_ring_share,
    run_share,
    run_turns_share,
    sent_share,
    sum_share,
)
from weftc.tools.doc_tables.traffic import CENTERS, COLUMNS, a_layer
from weftc_runtime.data.results import Tiers
from weftc_runtime.exact.decide import decide
from weftc_runtime.exact.sums import exact_sum
from weftc_runtime.format.program import Weighting

DRAWN = np.random.default_rng(0)
ROWS = DRAWN.normal(size=(400, 3))
GRID = np.round(ROWS)  # many ties, and rows that are there several times
UNIT = ROWS / np.linalg.norm(ROWS, axis=1, keepdims=True)
WEIGHTS = DRAWN.random(400) + 0.1
SMALL, FEW = ROWS[:50], ROWS[50:110]


@dataclass(frozen=True)
class Shared:
    """A spec, its parameters and its data."""

    spec: str
    inputs: dict[str, Any]
    dims: dict[str, int] = field(default_factory=lambda: {"d": 3, "k": 5})
    params: dict[str, Fraction] = field(default_factory=dict)
    seed: int = 1


HARD = {
    "lloyd": Shared("lloyd", {"x": ROWS}),
    "lloyd on a grid": Shared("lloyd", {"x": GRID}),
    "lloyd of one row": Shared("lloyd", {"x": ROWS[:1], "c": ROWS[:5]}),
    "shares": Shared("lloyd_split", {"x": GRID}),
    "printed": Shared("lloyd_printed", {"x": GRID}),
    "weights": Shared("weighted_kmeans", {"x": ROWS, "w": WEIGHTS}),
    "spherical": Shared("spherical_kmeans", {"x": UNIT}),
    "trimmed": Shared("trimmed_kmeans", {"x": ROWS}, params={"tau": Fraction(20)}),
    "trimmed on a grid": Shared("trimmed_kmeans", {"x": GRID}, params={"tau": Fraction(20)}),
    "normmax": Shared("trimmed_normmax", {"x": ROWS}, params={"gamma": Fraction(1, 2)}),
    "medoids": Shared("kmedoids", {"x": ROWS}, params={"delta": Fraction(20)}),
    "robust": Shared("robust_kmeans", {"x": ROWS}, params={"gamma": Fraction(1, 2)}),
    "neighbours": Shared("knn", {"x": ROWS, "t": ROWS[:, :2], "z": SMALL}, {"d": 3, "m": 2}, {"n": Fraction(3)}),
    "neighbours on a grid": Shared("knn", {"x": GRID, "t": ROWS[:, :2], "z": GRID[:40]}, {"d": 3, "m": 2}),
    "neighbour": Shared("nearest_neighbor", {"x": GRID, "t": ROWS[:, :2], "z": GRID[:40]}, {"d": 3, "m": 2}),
}
SOFT = {
    "robust softmax": Shared("robust_softmax", {"x": ROWS}, params={"gamma": Fraction(1, 2)}),
    "soft": Shared("soft_kmeans", {"x": ROWS}, params={"gamma": Fraction(1, 2)}),
    "mixtures": Shared("gmm_em", {"x": ROWS}, {"d": 3, "k": 3}),
    "spherical mixtures": Shared("gmm_em_spherical", {"x": ROWS}, {"d": 3, "k": 3}),
    "directions": Shared("soft_spherical_kmeans", {"x": UNIT}, params={"kappa": Fraction(2)}),
    "modes": Shared("mean_shift", {"x": SMALL}, {"d": 3}, {"h": Fraction(1, 2)}),
    "blurring": Shared("blurring_mean_shift", {"x": SMALL}, {"d": 3}),
    "patterns": Shared("hopfield", {"w": SMALL, "z": FEW}, {"d": 3}),
    "order": Shared("sort", {"x": SMALL[:, 0]}, {}),
    "transport": Shared(
        "sinkhorn_log",
        {"x": SMALL, "y": FEW, "a": np.full(50, 1 / 50), "b": np.full(60, 1 / 60)},
        {"d": 3},
    ),
}


RING = ("modes", "blurring", "patterns", "order", "transport")  # both sides are shared


def compiled(case: Shared) -> Any:
    return weftc.compile(case.spec, case.dims, case.params)


def shares(case: Shared, program: Any, size: int, ragged: int) -> list[dict[str, Any]]:
    """The inputs of every process."""
    homes = {item.name: item.stream for item in program.inputs}
    open_sets = {stream.name for stream in program.streams if stream.size is None}
    found: list[dict[str, Any]] = [{} for _ in range(size)]
    for name, rows in case.inputs.items():
        parts = cuts(len(rows), size, ragged) if homes[name] in open_sets else [slice(None)] * size
        for mine, part in zip(found, parts, strict=True):
            mine[name] = rows[part]
    return found


def both(
    case: Shared, size: int, ragged: int, work: Any = run_share, **loading: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The outputs of one process, and those of several put together."""
    checkpoint = compiled(case)
    program, options = checkpoint.program, {"layers": 3, "seed": case.seed}
    model = weftc.load(checkpoint, **loading)
    outputs = model.final(case.inputs, **options)
    patterns = tuple(output.name for output in program.outputs if output.kind == "pattern")
    wanted = plain({name: outputs[name] for name in outputs if name not in patterns})
    given = [(checkpoint, mine, options, loading, patterns) for mine in shares(case, program, size, ragged)]
    told = ranks(size).run(work, given)
    assert all(0 < one.get("came", 1) <= _most(case, size, ragged) for one in told)
    sizes = {stream.name: stream.size for stream in program.streams}
    found = {}
    for output in program.outputs:
        if output.name in patterns:
            continue
        parts = [one["outputs"][output.name] for one in told]
        if sizes[output.stream] is None and output.kind not in ("total", "common"):
            found[output.name] = np.concatenate(parts)
        else:
            found[output.name] = parts[0]
            assert all((part == parts[0]).all() for part in parts)
    report = told[0]["report"]
    assert report.layers == model.report.layers
    if not loading:
        assert rows_decided(report.total) == rows_decided(model.report.total)  # native code may ask for exact numbers
        assert list(map(rows_decided, report.by_layer)) == list(map(rows_decided, model.report.by_layer))  # more often
    return wanted, found


def _most(case: Shared, size: int, ragged: int) -> int:
    """The most rows of a set that a process has."""
    return max(part.stop - part.start for rows in case.inputs.values() for part in cuts(len(rows), size, ragged))


def rows_decided(tiers: Tiers) -> tuple[int, int]:
    return tiers.fast, tiers.bound + tiers.exact + tiers.undecided


def same(wanted: dict[str, Any], found: dict[str, Any]) -> None:
    assert wanted.keys() == found.keys()
    for name, value in wanted.items():
        assert value.dtype == found[name].dtype
        assert value.tobytes() == found[name].tobytes(), name


@pytest.mark.parametrize("case", HARD)
def test_hard_weights_have_the_bits_of_one_process(case: str) -> None:
    same(*both(HARD[case], 2, 0))


@pytest.mark.slow
@pytest.mark.parametrize("ragged", [0, 7])
@pytest.mark.parametrize("size", [1, 3, 4])
@pytest.mark.parametrize("case", HARD)
def test_hard_weights_have_the_bits_of_one_process_however_rows_are_shared(case: str, size: int, ragged: int) -> None:
    same(*both(HARD[case], size, ragged))


@pytest.mark.parametrize("case", SOFT)
def test_soft_weights_are_within_the_contract(case: str) -> None:
    wanted, found = both(SOFT[case], 2, 0)
    for name, value in wanted.items():
        assert np.allclose(value, found[name], rtol=1e-12, atol=1e-12), name


@pytest.mark.parametrize(
    ("case", "size", "ragged"),
    [
        *((case, 2, 0) for case in RING),
        *(pytest.param(case, size, 7, marks=pytest.mark.slow) for case in RING for size in (3, 4)),
    ],
)
def test_keys_go_round_a_ring(case: str, size: int, ragged: int) -> None:
    """Within the contract, and no process ever gets more than the rows of one other."""
    wanted, found = both(SOFT[case], size, ragged, run_ring_share)
    for name, value in wanted.items():
        assert np.allclose(value, found[name], rtol=1e-12, atol=1e-12), name


TURNS = {
    **{name: HARD[name] for name in ("neighbours", "neighbours on a grid", "neighbour")},
    **{name: SOFT[name] for name in RING},  # deterministic, that is with exact sums
}


@pytest.mark.parametrize(
    ("case", "size", "ragged"),
    [
        *((case, 2, 0) for case in ("neighbours on a grid", "neighbour", "modes", "transport")),
        *(pytest.param(case, size, 7, marks=pytest.mark.slow) for case in TURNS for size in (2, 3, 4)),
    ],
)
def test_queries_take_turns_among_keys_that_stay(case: str, size: int, ragged: int) -> None:
    """Decisions, rankings and exact soft sums between two shared sets: the bits of one process."""
    same(*both(TURNS[case], size, ragged, run_turns_share, deterministic=True))


@pytest.mark.parametrize("case", ["soft", "robust softmax", "transport"])
def test_deterministic_soft_weights_have_the_bits_of_one_process(case: str) -> None:
    same(*both(SOFT[case], 2, 0, deterministic=True))


@pytest.mark.slow
@pytest.mark.parametrize("ragged", [0, 7])
@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("case", SOFT)
def test_deterministic_soft_weights_have_the_bits_of_one_process_however_rows_are_shared(
    case: str, size: int, ragged: int
) -> None:
    same(*both(SOFT[case], size, ragged, deterministic=True))


NATIVE = ("lloyd", "weights", "spherical", "soft", "spherical mixtures")


@pytest.mark.parametrize("case", NATIVE)
def test_layers_that_are_shared_run_natively_many_at_a_time(case: str) -> None:
    """One call for all layers; the last process has no row, and stands still when the others do."""
    taken, rows = {**HARD, **SOFT}[case], slice(0, 0)
    checkpoint, options = compiled(taken), {"until_stable": True, "limit": 40, "seed": 1}
    model = weftc.load(checkpoint)
    wanted = plain(model.final(taken.inputs, **options))
    homes = {item.name: item.stream for item in checkpoint.program.inputs}
    given = [
        {n: v[part] if homes[n] == "points" else v for n, v in taken.inputs.items()}
        for part in (slice(0, 150), slice(150, 400), rows)
    ]
    told = ranks(3).run(run_native_share, [(checkpoint, mine, options, {}) for mine in given])
    assert [one["ran"] for one in told] == [[model.report.layers[0]]] * 3
    for name, value in wanted.items():
        parts = [one["outputs"][name] for one in told]
        found = parts[0] if len(value) != 400 else np.concatenate(parts)
        assert np.allclose(value, found, rtol=1e-12, atol=1e-12) if case in SOFT else (value == found).all()


@pytest.mark.parametrize("pause", [0.05, float("inf")])
def test_who_asks_seldom_is_told_seldom_and_gets_the_same(pause: float) -> None:
    """Layers then run together, in one native call as long as that takes less than the pause."""
    told: list[int] = []

    class Seldom:
        def __call__(self, what: str, done: int, total: int | None, /) -> None:
            told.append(done) if what == "layer" else None

    Seldom.pause = pause  # type: ignore[attr-defined]
    model = weftc.load(compiled(HARD["lloyd"]))
    wanted, found = plain(model(x=ROWS, layers=300)), plain(model(x=ROWS, layers=300, progress=Seldom()))
    same(wanted, found)
    assert told[0] == 0
    assert told[-1] == 300
    assert len(told) == 2 if pause == float("inf") else len(told) < 100


def test_one_process_that_leaves_a_native_layer_takes_all_with_it() -> None:
    """Squares of its rows overflow, which the others cannot know."""
    rows = ROWS.copy()
    rows[-1] = 1e200
    checkpoint = compiled(HARD["lloyd"])
    given = [(checkpoint, {"x": rows[part], "c": ROWS[:5]}, {"layers": 3}, {}) for part in cuts(400, 3)]
    ranks(3).start(run_native_share, given)
    found = ranks(3).results()
    assert [well for well, _ in found] == [False] * 3
    assert len({error for _, error in found}) == 1
    assert "several processes cannot run this" in found[0][1][1]


@pytest.mark.slow
@pytest.mark.parametrize("case", ["lloyd", "weights", "trimmed", "soft"])
def test_float32(case: str) -> None:
    loading = {"dtype": "float32", "deterministic": True}
    same(*both({**HARD, **SOFT}[case], 3, 7, **loading))


@pytest.mark.parametrize("case", ["neighbours on a grid", "neighbour"])
@pytest.mark.parametrize("shared", ["points", "queries"])
def test_one_of_two_sets_is_shared(case: str, shared: str) -> None:
    taken = HARD[case]
    checkpoint = compiled(taken)
    homes = {item.name: item.stream for item in checkpoint.program.inputs}
    whole = weftc.load(checkpoint)(taken.inputs, layers=1)
    given = []
    for number in range(2):
        mine = {n: v[cuts(len(v), 2)[number]] if homes[n] == shared else v for n, v in taken.inputs.items()}
        given.append((checkpoint, mine, {"layers": 1}, {"shared": [shared]}))
    told = ranks(2).run(run_share, given)
    for name, wanted in plain(whole).items():
        parts = [one["outputs"][name] for one in told]
        assert (np.concatenate(parts) if shared == "queries" else parts[1]).tobytes() == wanted.tobytes()


# ---- decisions and sums by themselves --------------------------------------------------------------------------------

WEIGHTINGS = {
    "first": Weighting("argmax"),
    "split": Weighting("argmax", "split"),
    "within": Weighting("argmax", "within", Fraction(3, 2)),
    "three": Weighting("top", count=3),
    "more than there are": Weighting("top", count=50),
    "one percent": Weighting("top", percent=Fraction(1)),
    "half": Weighting("top", percent=Fraction(50)),
    "normmax": Weighting("normmax", gamma=Fraction(1, 3)),
}


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("name", WEIGHTINGS)
def test_decisions_are_those_of_all_keys(name: str, exact: bool) -> None:
    """Scores that tie, in radii that hide it; rows without keys, and a process without any."""
    drawn = np.random.default_rng(3)
    hidden = drawn.integers(-4, 4, (40, 17)).astype(np.float64)
    radius = np.zeros_like(hidden) if exact else drawn.choice([0.0, 0.25, 0.75], hidden.shape)
    scores = hidden + radius * drawn.uniform(-1, 1, hidden.shape)
    eligible = drawn.random(hidden.shape) < 0.8
    eligible[5], eligible[7, :3] = False, False

    def oracle(row: int, key: int) -> Fraction:
        return Fraction(float(hidden[row, key]))

    whole = [torch.as_tensor(array) for array in (scores, radius, eligible)]
    wanted = decide(WEIGHTINGS[name], *whole, oracle)
    for ends in ([0, 9, 17], [0, 0, 17]):
        parts = [[array[:, a:b] for array in (scores, radius, eligible, hidden)] for a, b in pairwise(ends)]
        told = ranks(2).run(decide_share, [(WEIGHTINGS[name], *part) for part in parts])
        assert (np.concatenate([chosen for chosen, _ in told], 1) == wanted[0].numpy()).all()
        if WEIGHTINGS[name].kind != "normmax":  # far keys are left out there, which may settle a row earlier
            assert all((tiers == wanted[1].numpy()).all() for _, tiers in told)


def test_sums_are_exact_over_all_processes() -> None:
    numbers = np.concatenate(
        [np.random.default_rng(5).normal(size=97) * 2.0 ** np.arange(-480, 490, 10), [1e300, -1e300]]
    )
    bins = np.arange(99) % 4
    wanted = [float(exact_sum(torch.tensor(numbers[bins == one]), 0)) for one in range(4)]
    for ends in ([0, 31, 99], [0, 99, 99]):
        given = [(numbers[a:b], bins[a:b], 4) for a, b in pairwise(ends)]
        assert [total.tolist() for total in ranks(2).run(sum_share, given)] == [wanted, wanted]


@pytest.mark.parametrize("spec", ["lloyd", "soft_kmeans"])
def test_the_table_of_docs_says_what_is_sent(spec: str) -> None:
    rows = np.random.default_rng(6).normal(size=(300, COLUMNS)).astype(np.float32)
    checkpoint = weftc.compile(spec, {"d": COLUMNS, "k": CENTERS})
    told = ranks(2).run(sent_share, [(checkpoint, {"x": rows[part]}) for part in cuts(300, 2)])
    assert told[0] == told[1] == a_layer(spec).fixed
