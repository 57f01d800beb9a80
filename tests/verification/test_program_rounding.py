"""Large numbers that cancel inside a step are seen from the matrices alone, whatever the cases meet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weftc.compiling import checked_spec, compile
from weftc.core.syntax import Equation
from weftc.verification.cases.inputs import cases
from weftc.verification.steps.program_rounding import ErrorRange, _square, losses, program_rounding
from weftc.verification.steps.spec_sizes import largest
from weftc.verification.steps.stepwise import Stepwise
from weftc.verification.verification import verify
from weftc_runtime import Checkpoint
from weftc_runtime.format.program import (
    FFN,
    Attend,
    Head,
    Mask,
    Part,
    Program,
    ProgramStep,
    Score,
    SelfKey,
    Slot,
    Weighting,
)
from weftc_runtime.format.writes import stated

HUGE = 2.0**70
small = st.floats(-4, 4)


def _widened(good: Checkpoint, stream: str) -> Checkpoint:
    """The same model with a scratch slot s at the end of a stream."""
    program, tensors = good.program, {}
    streams = tuple(
        replace(one, slots=(*one.slots, Slot("s", one.width, 1, "scratch"))) if one.name == stream else one
        for one in program.streams
    )
    for name, uses in program.tensors().items():
        rows, columns = stream in {use.rows for use in uses}, stream in {use.columns for use in uses}
        array = np.asarray(good.tensors[name])
        if array.ndim == 2:
            array = np.pad(array, [(0, int(rows)), (0, int(columns))])
        elif array.ndim == 1 and columns:
            array = np.pad(array, (0, 1))
        if rows and columns and array.ndim == 2 and array.shape[0] == array.shape[1]:
            array[-1, -1] = 1.0
        tensors[name] = array
    return replace(good, program=replace(program, streams=streams), tensors=tensors)


def _never(program: Program, stream: str, keys: str) -> tuple[Head, dict[str, np.ndarray]]:
    """A head that would write 1 to s, if it ever found a key."""
    value = np.zeros((program.stream(stream).width, program.stream(keys).width))
    value[-1, program.stream(keys).slot("1").offset] = 1.0
    return Head("e", stream, keys, Score(), Weighting("argmax"), "e.v", (Mask(">"),), SelfKey("", None)), {"e.v": value}


def _up_and_down(width: int, column: int) -> dict[str, np.ndarray]:
    up, down = np.eye(width), np.eye(width)
    up[column, -1], down[column, -1], down[-1, -1] = HUGE, -HUGE, 0.0
    return {"e.up": up, "e.down": down}


def _with(made: Checkpoint, part: str, at: int, more: tuple[Attend | FFN, ...], **tensors: np.ndarray) -> Checkpoint:
    steps: list[ProgramStep] = list(getattr(made.program, part))
    steps[at] = replace(steps[at], sublayers=(*steps[at].sublayers, *more))
    every = {**made.tensors, **{name.replace("__", "."): array for name, array in tensors.items()}}
    return replace(made, program=stated(replace(made.program, **{part: tuple(steps)}), every), tensors=every)


def by_a_head() -> Checkpoint:
    made = _widened(compile("lloyd", {"d": 1, "k": 2}), "centers")
    head, tensors = _never(made.program, "centers", "points")
    more = (Attend({}, (head,)), Attend({"centers": "e.up"}), Attend({"centers": "e.down"}))
    return _with(made, "layer", 1, more, **tensors, **_up_and_down(made.program.stream("centers").width, 0))


def by_a_feed_forward() -> Checkpoint:
    """s = relu(c - 1000): no ordinary case comes near."""
    made = _widened(compile("lloyd", {"d": 1, "k": 2}), "centers")
    stream = made.program.stream("centers")
    row, out = np.zeros((1, stream.width)), np.zeros((stream.width, 1))
    row[0, 0], row[0, stream.slot("1").offset], out[-1, 0] = 1.0, -1000.0, 1.0
    bump = FFN("centers", "relu", "e.keep", "e.a", None, "e.o", ("s",))
    more = (bump, Attend({"centers": "e.up"}), Attend({"centers": "e.down"}))
    tensors = {"e.keep": np.eye(stream.width), "e.a": row, "e.o": out, **_up_and_down(stream.width, 0)}
    return _with(made, "layer", 1, more, **tensors)


def across_two_steps() -> Checkpoint:
    made = _widened(compile("lloyd", {"d": 1, "k": 2}), "centers")
    head, tensors = _never(made.program, "centers", "points")
    first = _with(made, "layer", 0, (Attend({}, (head,)),), **tensors)
    more = (Attend({"centers": "e.up"}), Attend({"centers": "e.down"}))
    return _with(first, "layer", 1, more, **_up_and_down(made.program.stream("centers").width, 0))


def in_the_read_out() -> Checkpoint:
    made = _widened(compile("lloyd", {"d": 1, "k": 2}), "points")
    program = made.program
    head, tensors = _never(program, "points", "points")
    column = program.stream("points").slot("(objective)").offset
    more = (Attend({}, (head,)), Attend({"points": "e.up"}), Attend({"points": "e.down"}))
    return _with(made, "readout", 0, more, **tensors, **_up_and_down(program.stream("points").width, column))


def in_the_scores_of_a_softmax() -> Checkpoint:
    made = _widened(compile("soft_kmeans", {"d": 1, "k": 2}, scores="dot"), "centers")
    program = made.program
    head, tensors = _never(program, "centers", "points")
    query, keys = (np.zeros((1, program.stream(name).width)) for name in ("points", "centers"))
    query[0, program.stream("points").slot("1").offset], keys[0, -1] = HUGE, 1.0
    tensors |= {"e.q": query, "e.minus": -query, "e.k": keys}
    step = program.layer[0]
    parts = (Part("dot", "e.q", "e.k"), Part("dot", "e.minus", "e.k"))
    changed = tuple(
        replace(one, heads=tuple(replace(h, score=Score((*h.score.parts, *parts))) for h in one.heads))
        if isinstance(one, Attend)
        else one
        for one in step.sublayers
    )
    layer = (replace(step, sublayers=(Attend({}, (head,)), *changed)), *program.layer[1:])
    every = {**made.tensors, **tensors}
    return replace(made, program=stated(replace(program, layer=layer), every), tensors=every)


@pytest.mark.parametrize(
    "make", [by_a_head, by_a_feed_forward, across_two_steps, in_the_read_out, in_the_scores_of_a_softmax]
)
def test_a_cancellation_is_seen_without_a_lucky_case(make: Callable[[], Checkpoint]) -> None:
    bad = make()
    check = program_rounding(checked_spec(bad.spec_name), bad, "l2", 0)
    assert check is not None
    assert not check.passed
    assert "large numbers may cancel" in check.detail
    assert check.worst >= 1.0


def test_a_file_with_a_cancellation_is_not_shown() -> None:
    verdict = verify(by_a_head(), cases=1, dtypes=["float64"], backend="reference")
    assert verdict.verdict == "not shown"


@pytest.mark.parametrize("scores", ["l2", "dot"])
@pytest.mark.parametrize("spec", ["lloyd", "soft_kmeans", "gmm_em", "sinkhorn_dual", "robust_softmax"])
def test_what_is_compiled_stays_near_the_numbers_of_its_spec(spec: str, scores: str) -> None:
    checked = checked_spec(spec)
    model = compile(spec, {name: 2 for name in checked.dims}, scores=scores)  # type: ignore[arg-type]
    for seed in range(3):
        check = program_rounding(checked, model, scores, seed)
        assert check is not None
        assert check.passed, check.detail


@pytest.mark.parametrize("scores", ["l2", "dot"])
def test_a_distance_in_the_objective_is_as_exact_as_its_difference(scores: str) -> None:
    checked = checked_spec(
        "algorithm geometric_median\ntokens i in points\ninputs x[i] : R^2\nstate c : R^2 = mean[i] x[i]\nlayer\n"
        "  c = (sum[i] x[i] / |x[i] - c|) / (sum[i] 1 / |x[i] - c|)\noutputs c\nobjective sum[i] |x[i] - c|\n"
    )
    check = program_rounding(checked, compile(checked, {}, scores=scores), scores, 0)  # type: ignore[arg-type]
    assert check is not None
    assert check.passed, check.detail


@given(st.lists(st.tuples(small, small, st.floats(-1e-3, 1e-3), st.floats(0, 4)), min_size=1, max_size=4))
def test_roots_of_sums_of_squares_are_as_near_as_the_bound_says(terms: list[tuple[float, ...]]) -> None:
    """sum of w (a + b + e)^2 for sum of w (a + b)^2."""
    a, b, error, weight = np.array(terms).T
    known = ErrorRange.of(np.abs(a + b) + 1e-3, np.abs(error))
    bound = _square(known).times(weight[None])
    exact, found = np.sqrt(weight @ (a + b) ** 2), np.sqrt(weight @ (a + b + error) ** 2)
    assert abs(found - exact) <= bound.root[0] + 1e-12
    assert np.isinf(_square(known).times(-1.0 - weight[None]).root[0])


@pytest.mark.parametrize("spec", ["lloyd", "soft_kmeans", "mean_shift"])
def test_the_bound_is_above_what_rounding_did(spec: str) -> None:
    """Errors that were made, against an interpreter that rounds less, are below what the analysis allows for."""
    checked = checked_spec(spec)
    model = compile(spec, {name: 2 for name in checked.dims}, scores="dot")
    (case,) = cases(checked, model.dims, 1, 3, families=("random",), first=1)
    from weftc.verification.runs.runs import judge_of

    outcome = judge_of(checked, model, "float64", "reference").judge(replace(case, layers=1), answers=False)
    bounds = {loss.field: loss.error for loss in losses(checked, model, case)}
    for seen in outcome.seen:
        if seen.field in bounds:
            assert seen.error <= bounds[seen.field]


def test_sizes_of_a_spec_count_the_terms_of_a_difference() -> None:
    checked = checked_spec(
        "algorithm t\ntokens i in points\ninputs x[i] : R\nlayer\n  y[i] = (x[i] - 3)^2 + 1 / (x[i] + 2)\noutputs y\n"
    )
    world = Stepwise(checked, {}, {}).world({"x": np.array([5.0, -1.0])})
    (equation,) = checked.spec.steps[0].equations
    assert isinstance(equation, Equation)
    assert largest(world, [equation], {})["y"] == pytest.approx((5 + 3) ** 2 + 1 / 1)
