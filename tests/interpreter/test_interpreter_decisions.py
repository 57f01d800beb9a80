"""Decisions of the interpreter against brute force in fractions: ties, near ties, offsets, duplicates, thresholds."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from interpreting import ASSIGN, CLUSTERS, LLOYD, POINTS, interpreter, run
from weftc.interpreter.interpreter import EvaluationError

law = settings(derandomize=True, deadline=None, max_examples=60)


def squared(a: np.ndarray, b: np.ndarray) -> Fraction:
    return sum(((Fraction(p) - Fraction(q)) ** 2 for p, q in zip(a.tolist(), b.tolist(), strict=True)), Fraction(0))


def nearest(x: np.ndarray, c: np.ndarray) -> list[int]:
    return [min(range(len(c)), key=lambda j: (squared(row, c[j]), j)) for row in x]


def exact_mean(rows: np.ndarray) -> list[float]:
    return [float(sum(map(Fraction, column)) / len(rows)) for column in rows.T.tolist()]


GRIDS = st.tuples(st.integers(1, 12), st.integers(1, 5), st.integers(1, 3)).flatmap(
    lambda shape: st.tuples(
        arrays(np.float64, (shape[0], shape[2]), elements=st.integers(-3, 3).map(float)),
        arrays(np.float64, (shape[1], shape[2]), elements=st.integers(-3, 3).map(float)),
    )
)


@law
@given(GRIDS, st.sampled_from([0.0, 1e6, -1e15]), st.sampled_from([1.0, 1e-160, 1e150, 1 / 3]))
def test_assignments_on_grids_are_those_of_exact_arithmetic(
    grid: tuple[np.ndarray, np.ndarray], offset: float, scale: float
) -> None:
    x, c = (a * scale + offset for a in grid)
    machine = interpreter(LLOYD)
    fields = machine.start({"x": x, "c": c})
    for layer in range(3):
        old = fields["c"]
        advance = machine.advance(fields, layer)
        fields = advance.fields
        labels = nearest(x, old)
        assert fields["y"].argmax(axis=1).tolist() == labels
        assert fields["y"].sum() == len(x)
        assert advance.decisions.undecided == 0
        assert advance.decisions.float64 + advance.decisions.rational == len(x)
        for j, center in enumerate(fields["c"]):
            members = x[[label == j for label in labels]]
            expected = exact_mean(members) if len(members) else old[j].tolist()
            # the exact sum is rounded, then the quotient: two roundings
            np.testing.assert_allclose(center, expected, rtol=4.5e-16, atol=0)


@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize("ulps", range(-16, 17))
def test_near_ties_of_a_few_ulps_are_decided_exactly(ulps: int, offset: float) -> None:
    right = offset + 0.7
    for _ in range(abs(ulps)):
        right = float(np.nextafter(right, np.inf if ulps > 0 else -np.inf))
    x, c = np.array([[offset, 0.3]]), np.array([[right, 0.1], [offset - 0.7, 0.1]])
    found = run(LLOYD, {"x": x, "c": c})
    assert found["y"].argmax(axis=1).tolist() == nearest(x, c)


def test_a_cluster_of_two_ranks_its_members_exactly() -> None:
    """The mean of two points is off by a rounding: its nearest member is a matter of exact arithmetic."""
    nearest_member = "argmin[i](|x[i] - c[j]|^2 where y[i,j])"
    text = f"{CLUSTERS}layer {ASSIGN} then c[j] = sum[i] {nearest_member} * x[i] else c[j] outputs c"
    rng = np.random.default_rng(8)
    settled = 0
    for _ in range(50):
        x = rng.normal(size=(2, 2))
        c = np.array([exact_mean(x)])
        found = interpreter(text).run({"x": x, "c": c}, 1)
        settled += found.decisions.rational
        nearer = min(range(2), key=lambda i: (squared(x[i], c[0]), i))
        assert found["c"].tolist() == [x[nearer].tolist()]
    assert settled >= 25  # float64 alone cannot tell


def test_duplicate_centers_go_to_the_first() -> None:
    x = np.random.default_rng(1).normal(size=(50, 3))
    c = np.concatenate([x[:2], x[:2], x[:1]])
    labels = run(LLOYD, {"x": x, "c": c})["y"].argmax(axis=1)
    assert set(labels.tolist()) == {0, 1}


@law
@given(GRIDS)
def test_split_ties_share_evenly(grid: tuple[np.ndarray, np.ndarray]) -> None:
    x, c = grid
    found = run(f"{CLUSTERS}layer {ASSIGN} ties split outputs y", {"x": x, "c": c})["y"]
    for row, shares in zip(x, found.tolist(), strict=True):
        distances = [squared(row, center) for center in c]
        winners = [int(d == min(distances)) for d in distances]
        assert shares == [w / sum(winners) for w in winners]


@law
@given(GRIDS, st.sampled_from([0.0, 0.5, 1.0, 2.0]))
def test_ties_within_a_distance_take_the_first(grid: tuple[np.ndarray, np.ndarray], epsilon: float) -> None:
    x, c = grid
    text = f"{CLUSTERS}param eps >= 0 layer {ASSIGN} ties within eps outputs y"
    labels = run(text, {"x": x, "c": c}, eps=epsilon)["y"].argmax(axis=1).tolist()
    for row, label in zip(x, labels, strict=True):
        distances = [squared(row, center) for center in c]
        assert label == next(j for j, d in enumerate(distances) if d <= min(distances) + Fraction(epsilon))


def test_the_distance_of_ties_within_is_compared_exactly() -> None:
    text = f"{CLUSTERS}layer {ASSIGN} ties within 0.25 outputs y"
    for first, label in ((0.5, 0), (np.nextafter(0.5, 1), 1), (np.nextafter(0.5, 0), 0)):
        found = interpreter(text).run({"x": [[0.0]], "c": [[first], [0.0]]}, 1)
        assert found["y"].argmax(axis=1).tolist() == [label]
        assert found.decisions.rational == 1


@law
@given(GRIDS, st.integers(1, 6), st.sampled_from([0.0, 12.5, 33.3, 50.0, 90.0, 100.0]))
def test_counts_and_shares_keep_the_right_members(grid: tuple[np.ndarray, np.ndarray], count: int, tau: float) -> None:
    x, c = grid
    text = f"""{CLUSTERS}param number, tau let D[i,j] = |x[i] - c[j]|^2
    layer u[j] = sum[i] index(i)^2 * lowest[i](D[i,j], number)   v[j] = sum[i] lowest[i](D[i,j], tau%) * index(i)^2
          w[j] = sum[i] highest[i](D[i,j], number) * index(i)^2
    outputs u, v, w"""
    found = run(text, {"x": x, "c": c}, number=count, tau=tau)
    for j, center in enumerate(c):
        distances = [squared(row, center) for row in x]
        ranked = sorted(range(len(x)), key=lambda i: (distances[i], i))[:count]
        assert found["u"][j] == sum((i + 1) ** 2 for i in ranked) / len(ranked)
        farthest = sorted(range(len(x)), key=lambda i: (-distances[i], i))[:count]
        assert found["w"][j] == sum((i + 1) ** 2 for i in farthest) / len(farthest)
        share = Fraction(str(tau)) * (len(x) - 1)
        kept = [i for i, d in enumerate(distances) if 100 * sum(o < d for o in distances) <= share]
        assert found["v"][j] == sum((i + 1) ** 2 for i in kept) / len(kept)


@pytest.mark.parametrize(
    ("m", "tau", "kept"), [(51, 58, 30), (91, 70, 64), (101, 29, 30), (101, 57, 58), (101, 58, 59), (1001, 0.3, 4)]
)
def test_percentages_are_exact_decimals(m: int, tau: float, kept: int) -> None:
    """numpy.percentile rounds these down and drops the boundary point; 0.3 in float64 is below three tenths."""
    text = f"{POINTS}param tau layer w[i] = lowest[i](|x[i]|^2, tau%) outputs w"
    weights = run(text, {"x": np.arange(m, dtype=float)[:, np.newaxis]}, tau=tau)["w"]
    assert weights.tolist() == [1 / kept] * kept + [0.0] * (m - kept)


@law
@given(st.lists(st.integers(-8, 8), min_size=1, max_size=8), st.sampled_from([2.0, 1.0, 0.5, 0.25, 0.1, 0.01]))
def test_normmax_is_the_maximiser_of_its_objective(scores: list[int], gamma: float) -> None:
    """m maximises (gamma * S_m - 1) / m, the fewest of several; ties are kept or dropped as a block."""
    text = """algorithm test tokens i in points inputs s[i] : R param gamma > 0
    layer w[i] = normmax[i](s[i], gamma) outputs w"""
    weights = run(text, {"s": scores}, gamma=gamma)["w"]
    ranked = sorted(scores, reverse=True)
    value = [(Fraction(gamma) * sum(ranked[:m]) - 1) / m for m in range(1, len(ranked) + 1)]
    kept = value.index(max(value)) + 1
    assert (weights > 0).sum() == kept
    assert sorted((s for s, w in zip(scores, weights, strict=True) if w > 0), reverse=True) == ranked[:kept]
    assert set(weights[weights > 0].tolist()) == {1 / kept}


def test_a_threshold_that_is_a_mean_is_compared_exactly() -> None:
    # with thirds, |x - mean|^2 equals the mean of all such values for the outer points only in exact arithmetic
    text = f"""{POINTS}let D[i] = |x[i] - (mean[l] x[l])|^2
    layer a[i] = sum[l] index(l) where D[l] >= (mean[q] D[q])   b[i] = sum[l] index(l) where D[l] > (mean[q] D[q])
    outputs a, b"""
    rng = np.random.default_rng(2)
    for _ in range(40):
        x = rng.integers(-4, 5, size=(6, 2)) / 3.0
        center = [sum(map(Fraction, column)) / 6 for column in x.T.tolist()]
        distances = [sum((Fraction(v) - m) ** 2 for v, m in zip(row, center, strict=True)) for row in x.tolist()]
        threshold = sum(distances) / 6
        found = run(text, {"x": x})
        assert found["a"][0] == sum(i + 1 for i, d in enumerate(distances) if d >= threshold)
        assert found["b"][0] == sum(i + 1 for i, d in enumerate(distances) if d > threshold)
        assert found.undecided == 0


def test_increasing_functions_decide_on_their_argument() -> None:
    x = np.array([[0.0, 0.0]])
    c = np.array([[3.0, 4.0], [5.0, 0.0], [np.nextafter(5.0, 0), 0.0], [-4.0, 3.0]])
    text = f"{CLUSTERS}let D[i,j] = |x[i] - c[j]|^2 layer y[i,j] = argmin[j](SCORE) outputs y"
    scores = (
        "|x[i] - c[j]|",
        "sqrt(D[i,j])",
        "exp(|x[i] - c[j]| / 4)",
        "2 * log(1 + D[i,j])",
        "-k * -tanh(D[i,j] / 9)",
    )
    for score in scores:
        found = interpreter(text.replace("SCORE", score)).run({"x": x, "c": c}, 1)
        assert found["y"].tolist() == [[0.0, 0.0, 1.0, 0.0]], score
        assert found.undecided == 0
    text = f"{CLUSTERS}layer a[i] = sum[j] index(j) where |x[i] - c[j]| >= 5 outputs a"
    found = interpreter(text).run({"x": x, "c": c}, 1)
    assert (found["a"].tolist(), found.undecided) == ([7.0], 0)


def test_scores_that_are_not_rational_follow_the_tie_rule_and_are_counted() -> None:
    x, c = np.array([[0.0, 0.0], [9.0, 1.0]]), np.array([[1.0, 2.0], [2.0, 1.0], [40.0, 0.0]])
    text = f"{CLUSTERS}layer y[i,j] = argmin[j](|x[i] - c[j]| + <c[j], c[j]>) TIES outputs y"
    found = interpreter(text.replace("TIES", "")).run({"x": x, "c": c}, 1)
    assert found["y"][0].tolist() == [1.0, 0.0, 0.0]
    assert (found.decisions.float64, found.decisions.undecided) == (1, 1)
    found = interpreter(text.replace(") TIES", " ties split)")).run({"x": x, "c": c}, 1)
    assert found["y"][0].tolist() == [0.5, 0.5, 0.0]


def test_scores_too_large_for_float64_are_ranked_exactly() -> None:
    x, c = np.array([[0.0], [1e300]]), np.array([[-1e200], [1.0000000000000002e200], [1e200]])
    found = run(LLOYD, {"x": x, "c": c})
    assert found["y"].argmax(axis=1).tolist() == [0, 1]
    with pytest.raises(EvaluationError, match="too large for float64"):
        run(f"{CLUSTERS}layer y[i,j] = argmax[j](exp(|c[j]|) + |x[i]|) outputs y", {"x": x, "c": c})


def test_sampling_adds_stored_noise_exactly() -> None:
    text = f"""{CLUSTERS}random g[i,j] : gumbel
    layer c[j] = sum[i] sample[i](-|x[i] - c[j]|^2 noise g[i,j]) * x[i] outputs c"""
    x = np.array([[0.0], [1.0], [2.0]])
    noise = np.array([[[0.0], [1.0], [4.0]]])  # every sum is 0: the first wins
    assert interpreter(text).run({"x": x, "c": [[0.0]]}, 1, noise={"g": noise})["c"].tolist() == [[0.0]]
    noise[0, 2, 0] = np.nextafter(4.0, 5.0)
    assert interpreter(text).run({"x": x, "c": [[0.0]]}, 1, noise={"g": noise})["c"].tolist() == [[2.0]]


@pytest.mark.parametrize(
    ("weighting", "says"),
    [
        ("lowest[i](|x[i]|^2, p)", "`lowest` needs a whole number, at least 1"),
        ("highest[i](|x[i]|^2, (-p)%)", "`highest` needs a share between 0% and 100%"),
    ],
)
def test_arguments_of_weightings_are_checked(weighting: str, says: str) -> None:
    with pytest.raises(EvaluationError, match=says):
        run(f"{POINTS}param p layer w[i] = {weighting} outputs w", {"x": [[1.0], [2.0]]}, p=1.5)
