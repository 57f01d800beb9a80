"""Certificates of assignment: couplings by form, the optimum, and bounds that nothing measured exceeds."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import ot
import pytest

import weftc
from weftc.compiling import checked_spec
from weftc.files.locate import names
from weftc.verification.transport.assignment import assignment
from weftc.verification.transport.by_depth import Assignment
from weftc.verification.transport.couplings import coupling
from weftc.verification.transport.distance_bound import bound, diameter
from weftc.verification.transport.scaling import Optimum, distance, marginal_errors, optimum

# Nobody's algorithm: damped half-steps, negated potentials, masses on one side only.
HALVES = """algorithm halves
tokens p in people, h in houses
inputs a[p] : R^d, b[h] : R^d, w[p] : R > 0
state  f[p] : R = 0, g[h] : R = 0
let    S[p,h] = -2 * (f[p] + g[h]) - 3 * |a[p] - b[h]|^2
layer
  f[p] += (logsumexp[h] S[p,h] - log w[p]) / 3
  then
  g[h] += (logsumexp[p] S[p,h] + log(count(houses))) / 3
outputs plan[p,h] = exp(S[p,h])
"""


def random_problem(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A kernel in logarithms, and two marginals of mass 1."""
    rng = np.random.default_rng(seed)
    n, m = (int(size) for size in rng.integers(1, 13, 2))
    x, y = rng.random((n, 2)), rng.random((m, 2))
    a, b = rng.random(n) + 0.05, rng.random(m) + 0.05
    kernel = -((x[:, np.newaxis] - y) ** 2).sum(-1) / 10 ** rng.uniform(-2.3, 0.5)
    return kernel, a / a.sum(), b / b.sum()


def solved(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, Optimum]:
    kernel, a, b = random_problem(seed)
    best = optimum(kernel, a, b)
    assert best is not None
    return kernel, a, b, best


# ---- numbers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_the_optimum_has_its_marginals_and_pot_finds_it_too(seed: int) -> None:
    kernel, a, b, best = solved(seed)
    assert best.residual < 1e-13
    assert max(marginal_errors(best.log, a, b)) < 1e-15
    rescaled = best.log - kernel  # nothing but a row term and a column term
    np.testing.assert_allclose(
        rescaled - rescaled[:1] - rescaled[:, :1] + rescaled[0, 0], 0, atol=1e-15 * diameter(kernel)
    )
    plan = ot.bregman.sinkhorn_log(a, b, -kernel, 1.0, numItermax=3000, stopThr=1e-15, warn=False)
    left = bound(np.log(np.maximum(plan, 1e-300)).astype(np.longdouble), a, b, diameter(kernel))
    assert np.max(np.abs(plan - best.plan)) <= left.distance.entries


def worst_ratio(seeds: range) -> float:
    """The largest measured distance over its bound, for couplings near and far from many optima."""
    worst = 0.0
    for seed in seeds:
        kernel, a, b, best = solved(seed)
        across, rng = diameter(kernel), np.random.default_rng(seed)
        for far in (10.0, 1.0, 1e-2, 1e-4, 1e-8, 1e-12, 0.0):
            log = best.log + far * (rng.normal(size=len(a))[:, np.newaxis] + rng.normal(size=len(b)))
            measured, limit = distance(log, best), bound(log, a, b, across).distance
            pairs = [(getattr(measured, name), getattr(limit, name)) for name in ("projective", "entries", "variation")]
            worst = max(worst, *(found / most for found, most in pairs))
    return worst


def test_nothing_is_further_away_than_its_bound() -> None:
    assert 0.5 < worst_ratio(range(100, 140)) <= 1, "the bound holds, and is worth having"


@pytest.mark.slow
def test_nothing_is_further_away_than_its_bound_on_thousands() -> None:
    assert worst_ratio(range(1000, 2000)) <= 1


def test_both_arguments_are_needed() -> None:
    """A flat kernel contracts; a steep one is certified near its optimum, by its curvature."""
    rng = np.random.default_rng(0)
    cost = rng.random((6, 6))
    uniform = np.full(6, 1 / 6)
    reasons = []
    for steep in (1.0, 30.0):
        best = optimum(-steep * cost, uniform, uniform)
        assert best is not None
        log = best.log + 1e-6 * rng.normal(size=6)
        reasons.append(bound(log, uniform, uniform, diameter(-steep * cost)).how)
    assert reasons == ["contraction", "curvature"]


def test_the_diameter_is_the_largest_cross_ratio() -> None:
    kernel = np.random.default_rng(1).normal(size=(4, 5))
    pairs = [
        kernel[i, k] + kernel[j, l] - kernel[j, k] - kernel[i, l]
        for i in range(4)
        for j in range(4)
        for k in range(5)
        for l in range(5)  # noqa: E741
    ]
    assert diameter(kernel) == pytest.approx(max(pairs), rel=1e-14)


# ---- form ------------------------------------------------------------------------------------------------------------


def test_couplings_are_found_by_form() -> None:
    found = {name: coupling(checked_spec(name)) for name in names()}
    places = {name: (one.place, one.row, one.column) for name, one in found.items() if one is not None}
    assert places == {
        "partial_transport": ("output plan", "i", "j"),  # of the masses that it moves, as the next one
        "unbalanced_transport": ("output plan", "i", "j"),
        "sinkhorn_dual": ("output plan", "s", "t"),
        "sinkhorn_log": ("output plan", "i", "j"),
        "sort": ("equation of u", "s", "t"),
    }


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("exp(S[p,h])", "exp(S[p,h])"),
        ("exp(S[p,h])", "exp(-2 * (f[p] + g[h])) / exp(3 * |a[p] - b[h]|^2)"),
        ("exp(S[p,h])", "w[p] / count(people) * exp(S[p,h])"),
        ("exp(S[p,h])", "1 - exp(S[p,h])"),  # the exponential is one
        ("plan[p,h] = exp(S[p,h])", "plan[h,p] = exp(S[p,h])"),
    ],
)
def test_a_coupling_may_be_written_in_many_ways(old: str, new: str) -> None:
    assert old in HALVES
    found = coupling(checked_spec(HALVES.replace(old, new)))
    assert found is not None
    assert found.place == "output plan"
    assert (found.row, found.column) == (("h", "p") if "[h,p]" in new else ("p", "h"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("3 * |a[p] - b[h]|^2", "f[p] * |a[p] - b[h]|^2"),  # the kernel changes with the layers
        ("(f[p] + g[h])", "f[p]"),  # nothing rescales columns
        ("(f[p] + g[h])", "(f[p] * g[h])"),  # no sum of a row term and a column term
        ("= exp(S[p,h])", "= exp(w[p] * S[p,h])"),  # a column term that differs from row to row
    ],
)
def test_what_has_another_form_is_no_coupling(old: str, new: str) -> None:
    assert old in HALVES
    assert coupling(checked_spec(HALVES.replace(old, new))) is None


# ---- by depth --------------------------------------------------------------------------------------------------------


def table(
    name: str, params: dict[str, float] | None = None, depth: int = 60, seed: int = 0, **data: object
) -> Assignment:
    checked = checked_spec(name)
    found = assignment(checked, weftc.compile(checked, dict.fromkeys(checked.dims, 2), params), data, depth, seed)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "params", "marginals"),
    [
        ("sinkhorn_dual", {"lambda": 0.5}, "row sums 1, and equal sums on the other side"),
        ("sinkhorn_log", {"lambda": 0.5}, "row sums a and column sums b"),
        ("sort", {"lambda": 0.5}, "equal row sums and equal column sums, of mass 1"),
        (HALVES, {}, "row sums w and column sums equal shares"),
    ],
    ids=["dual", "log", "sort", "mine"],
)
def test_layers_come_near_the_optimum_within_the_bound(name: str, params: dict[str, float], marginals: str) -> None:
    found = table(name, params)
    assert found.confirmed
    assert found.marginals == marginals
    assert found.holds, found.lines()
    first, last = found.depths[0], found.depths[-1]
    assert last.depth == 60
    assert last.measured.projective < 1e-6 < first.measured.projective
    assert last.bound.distance.variation < 1e-4
    assert found.judged is not None
    assert found.judged.difference <= found.judged.allowed < 1e-9


def test_masses_of_different_totals_are_said_to_be_scaled() -> None:
    found = table("sinkhorn_log", {"lambda": 1.0}, 20, a=np.full(5, 1.0), b=np.full(4, 0.5))
    assert found.confirmed
    assert found.marginals == "row sums a and column sums b, scaled to the total of b"
    assert found.depths[-1].columns < 1e-14
    assert found.holds


def test_steps_that_do_not_keep_an_optimum_are_told_apart() -> None:
    found = table(
        HALVES.replace("- log w[p]", "- 1").replace("+ log(count(houses))", "- f[p] * 0 + g[h]"[:0] + "+ g[h]"), {}, 5
    )
    assert not found.confirmed
    assert "an assumption" in "\n".join(found.lines())
    assert found.holds, "the distance to what was assumed is still bounded"


def test_the_table_can_fail() -> None:
    found = table("sinkhorn_log", {"lambda": 1.0}, 3)
    last = found.depths[-1]
    tight = replace(last, bound=replace(last.bound, distance=replace(last.measured, entries=0.0)))
    wrong = replace(found, depths=(*found.depths[:-1], tight))
    assert not wrong.holds
    assert wrong.failure == "after 3 layers the coupling is further from the optimum than its sums allow"
    assert found.judged is not None
    other = replace(found, judged=replace(found.judged, difference=1.0))
    assert not other.holds
    assert "POT finds another coupling" in other.failure


def test_verify_shows_the_table_as_text_and_json() -> None:
    model = weftc.compile("sinkhorn_log", {"d": 1}, {"lambda": 0.5})
    verdict = weftc.verify(model, cases=1, dtypes=("float64",))
    (found,) = verdict.assignments
    assert verdict.verdict == "proved", "how far a run is from its limit says nothing about the model"
    assert [check.name for check in verdict.checks if check.name == "assignment"] == ["assignment"]
    back = json.loads(json.dumps(verdict.json(), allow_nan=False))["assignments"][0]
    assert [row["depth"] for row in back["depths"]] == [0, 1, 2, 3, 5, 10, 20, 30, 50, 100]
    assert back["judge"]["agrees"]
    assert back["depths"][-1]["bound"]["projective"] == found.depths[-1].bound.distance.projective
    text = verdict.text()
    assert "distance to the optimum: output plan, 8 x 7" in text
    assert "POT agrees" in text
    assert max(map(len, text.splitlines())) <= 100


def test_the_depth_bound_of_the_literature_is_marked_as_indicative() -> None:
    found = table("sort", {"lambda": 0.05}, 3)
    assert found.indicative is not None
    assert found.indicative > 5
    assert any(line.startswith("indicative only") for line in found.lines())
    assert table("sinkhorn_log", {"lambda": 1.0}, 1).indicative is None, "it is about as many rows as columns"


def test_the_front_door_takes_specs_models_and_data() -> None:
    rng = np.random.default_rng(2)
    clouds = {"x": rng.random((5, 3)), "y": rng.random((5, 3))}
    from_spec = weftc.assignment("sinkhorn_dual", params={"lambda": 1.0}, data=clouds, depth=4)
    from_model = weftc.assignment(weftc.compile("sinkhorn_dual", {"d": 3}, {"lambda": 1.0}), data=clouds, depth=4)
    assert from_spec == from_model
    assert from_spec.size == (5, 5)
    assert [one.depth for one in from_spec.depths] == [0, 1, 2, 3, 4]
    with pytest.raises(weftc.InputError, match="computes no coupling"):
        weftc.assignment("lloyd", {"d": 1, "k": 2})
    with pytest.raises(weftc.InputError, match="no input z"):
        weftc.assignment("sinkhorn_dual", data={"z": clouds["x"]})


def test_large_data_are_said_to_be_left_out() -> None:
    many = {"x": np.zeros((600, 1)), "y": np.zeros((600, 1))}
    found = weftc.assignment("sinkhorn_dual", params={"lambda": 1.0}, data=many, depth=1)
    assert found.size == (8, 8)
    assert "your data have 600 tokens" in str(found)
