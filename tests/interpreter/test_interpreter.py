"""The interpreter on small cases worked by hand."""

from __future__ import annotations

import math
from fractions import Fraction as F

import numpy as np
import pytest

from interpreting import ASSIGN, CLUSTERS, FIVE, LINE, LLOYD, ORIGIN, PAIR, POINTS, interpreter, run
from weftc.core.errors import InputError
from weftc.interpreter import interpreter as module
from weftc.interpreter.interpreter import EvaluationError


def close(value: object, expected: object, digits: float = 1e-6) -> None:
    np.testing.assert_allclose(np.asarray(value), np.asarray(expected), rtol=0, atol=digits)


# ---- golden values ---------------------------------------------------------------------------------------------------

UPDATES = {
    "first": (f"{ASSIGN} then c[j] = mean[i] x[i] where y[i,j] else c[j]", [-5 / 3, 2.5]),
    "split": (f"{ASSIGN} ties split then c[j] = mean[i] x[i] weighted y[i,j] else c[j]", [-2.0, 2.0]),
    "printed": (f"{ASSIGN} ties average then c[j] = mean[i] x[i] by argmax[i](y[i,j] ties average)", [-2.5, 2.5]),
    "sum of weights": (f"{ASSIGN} then c[j] = sum[i] normalize[i](y[i,j]) * x[i] else c[j]", [-5 / 3, 2.5]),
}


@pytest.mark.parametrize(("layer", "centers"), UPDATES.values(), ids=UPDATES)
def test_tie_rules_move_the_centers_as_worked_by_hand(layer: str, centers: list[float]) -> None:
    assert run(f"{CLUSTERS}layer {layer} outputs c", {"x": FIVE, "c": PAIR})["c"].ravel().tolist() == centers


def test_soft_assignments_and_their_means() -> None:
    text = f"""{CLUSTERS}param gamma = 0.5 > 0
    layer y[i,j] = softmax[j] -gamma * |x[i] - c[j]|^2 then c[j] = mean[i] x[i] weighted y[i,j] outputs c, y"""
    found = run(text, {"x": FIVE, "c": PAIR})
    close(found["y"][:, 0], [0.997527, 0.982014, 0.5, 0.017986, 0.002473])
    close(found["c"].ravel(), [-1.965288, 1.965288])


@pytest.mark.parametrize(
    ("tau", "kept", "mean"), [(0, 1, 0.0), (50, 3, 1.0), (70, 3, 1.0), (75, 4, 1.5), (90, 4, 1.5), (99, 4, 1.5)]
)
def test_a_percentage_keeps_the_nearest(tau: float, kept: int, mean: float) -> None:
    text = f"""{CLUSTERS}param tau in [0, 100)
    layer {ASSIGN} then c[j] = mean[i] x[i] by lowest[i](|x[i] - c[j]|^2 where y[i,j], tau%) else c[j]
    outputs c, share[i] = lowest[i](|x[i]|^2, tau%)"""
    found = run(text, {"x": LINE, "c": ORIGIN}, tau=tau)
    assert found["c"].tolist() == [[mean]]
    assert found["share"].tolist() == [1 / kept] * kept + [0.0] * (5 - kept)


@pytest.mark.parametrize(("gamma", "kept"), [(2, 1), (0.5, 2), (0.1, 3), (0.01, 4), (0.001, 5)])
def test_normmax_spends_its_budget_of_gaps(gamma: float, kept: int) -> None:
    text = f"{POINTS}param gamma > 0 layer w[i] = normmax[i](-|x[i]|^2, gamma) outputs w"
    assert run(text, {"x": LINE}, gamma=gamma)["w"].tolist() == [1 / kept] * kept + [0.0] * (5 - kept)


@pytest.mark.parametrize(
    ("weighting", "weights", "mean"),
    [("sparsemax", [0.625, 0.375, 0, 0, 0], 0.375), ("softmax", None, 0.812919)],
)
def test_members_weighted_by_distance(weighting: str, weights: list[float] | None, mean: float) -> None:
    text = f"""{CLUSTERS}param gamma = 0.25 > 0
    layer {ASSIGN} then c[j] = sum[i] {weighting}[i](-gamma * |x[i] - c[j]|^2 where y[i,j]) * x[i] else c[j]
    outputs c, w[i] = {weighting}[i](-gamma * |x[i]|^2)"""
    found = run(text, {"x": LINE, "c": ORIGIN})
    close(found["c"], [[mean]])
    if weights is not None:
        assert found["w"].tolist() == weights


ASSIGNMENT = """algorithm dual
tokens s, t in pairs
inputs x[t] : R^d, y[t] : R^d
state  u[t] : R = 0, v[t] : R = 0
param  lambda = 1 > 0, gamma = 1 > 0
let    M[s,t] = exp((u[s] + v[t] - |x[s] - y[t]|^2) / lambda - 1)
layer
  u[s] += gamma * (1/count(pairs) - sum[t] M[s,t]) / (1 + sum[t] M[s,t])
  v[t] += gamma * (1/count(pairs) - sum[s] M[s,t]) / (1 + sum[s] M[s,t])
outputs u, v, plan[s,t] = count(pairs) * M[s,t]"""


def test_assignment_dual_after_one_and_two_layers() -> None:
    two = np.array([[0.0], [1.0]])
    for layers, value in ((1, -0.00213857), (2, -0.0028494)):
        found = run(ASSIGNMENT, {"x": two, "y": two}, layers)
        close(found["u"], [value, value], 1e-8)
        assert found["u"].tolist() == found["v"].tolist()
    assert found["plan"].shape == (2, 2)


def test_log_domain_sweep() -> None:
    text = """algorithm sweep
    tokens i in sources, j in targets
    inputs x[i] : R^d, y[j] : R^d
    state  f[i] : R = 0, g[j] : R = 0
    let    C[i,j] = |x[i] - y[j]|^2
    layer  f[i] = log(1/2) - log(sum[j] exp(g[j] - C[i,j])) then g[j] = log(1/2) - log(sum[i] exp(f[i] - C[i,j]))
    outputs f, g, plan[i,j] = exp(f[i] + g[j] - C[i,j])"""
    two = np.array([[0.0], [1.0]])
    found = run(text, {"x": two, "y": two})
    close(found["f"], [-1.00640887] * 2, 1e-8)
    close(found["g"], [0, 0], 1e-15)
    close(found["plan"], [[0.36552929, 0.13447071], [0.13447071, 0.36552929]], 1e-8)


def test_mixture_with_weights_and_a_shared_variance() -> None:
    text = f"""{CLUSTERS}state pi[j] : R = 1/k, s2[j] : R = 1
    layer y[i,j] = softmax[j] (log pi[j] - |x[i] - c[j]|^2 / (2*s2[j]))
    then  c[j] = mean[i] x[i] weighted y[i,j]   pi[j] = mean[i] y[i,j]
    then  v[j] = mean[i] |x[i] - c[j]|^2 weighted y[i,j]
    then  s2[j] = sum[h] pi[h] * v[h] / d
    outputs c, pi, s2"""
    found = run(text, {"x": FIVE, "c": PAIR})
    close(found["c"].ravel(), [-1.965288, 1.965288])
    close(found["pi"], [0.5, 0.5], 1e-15)
    close(found["s2"], [1.337644] * 2)


# ---- steps, layers, outputs ------------------------------------------------------------------------------------------


def test_equations_of_a_step_read_old_values() -> None:
    text = f"{POINTS}state a[i] : R = 1, b[i] : R = 2 layer a[i] = b[i] b[i] = a[i] then a[i] += 10 * b[i] outputs a, b"
    found = run(text, {"x": [[0.0]]})
    assert (found["a"].tolist(), found["b"].tolist()) == ([12.0], [1.0])


def test_trace_holds_the_fields_of_every_layer_and_step() -> None:
    found = interpreter(LLOYD).run({"x": FIVE, "c": PAIR}, 2, trace=True)
    assert len(found.layers) == 2
    first = found.layers[0]
    assert first.steps[0]["c"].tolist() == PAIR.tolist()
    assert first.steps[1]["c"].tolist() == [[-5 / 3], [2.5]]
    assert first.fields["y"].argmax(axis=1).tolist() == [0, 0, 0, 1, 1]
    assert found.fields.keys() == {"x", "c", "y"}
    assert not interpreter(LLOYD).run({"x": FIVE, "c": PAIR}, 2).layers


def test_layers_from_stored_fields_are_the_layers_of_a_run() -> None:
    machine = interpreter(LLOYD)
    x = np.random.default_rng(3).normal(size=(40, 2))
    fields = machine.start({"x": x, "c": x[:4]})
    for layer in range(3):
        fields = machine.advance(fields, layer).fields
    assert all(np.array_equal(fields[name], values) for name, values in machine.run({"x": x, "c": x[:4]}, 3).items())


def test_stored_fields_that_do_not_fit_are_refused() -> None:
    machine = interpreter(LLOYD)
    fields = machine.start({"x": FIVE, "c": PAIR})
    for wrong, says in (
        ({"c": np.array([[np.nan], [1.0]])}, "the stored field c holds a number that is not finite"),
        ({"y": np.zeros((4, 2))}, "y has 4 rows, but x has 5 rows"),
        ({"z": FIVE}, "test has no field z"),
    ):
        with pytest.raises(InputError, match=says):
            machine.advance(fields | wrong, 0)
    with pytest.raises(InputError, match="the fields of test lack c"):
        machine.advance({"x": FIVE}, 0)
    with pytest.raises(InputError, match="y has no value before the first layer"):
        machine.run({"x": FIVE, "c": PAIR}, 0)


def test_final_outputs_belong_together() -> None:
    machine = interpreter(LLOYD.replace("outputs c, y", "outputs centers = c, labels = y"))
    fields = machine.run({"x": [[0.0], [4.0], [5.0]], "c": [[0.0], [9.0]]}, 1).fields
    assert fields["c"].tolist() == [[2.0], [5.0]]
    held, final = machine.outputs(fields), machine.final(fields)
    assert held["labels"].argmax(axis=1).tolist() == [0, 0, 1]
    assert final["labels"].argmax(axis=1).tolist() == [0, 1, 1]
    assert final["centers"].tolist() == held["centers"].tolist()


def test_final_leaves_what_nothing_later_changes() -> None:
    text = f"{POINTS}layer a[i] = <x[i], x[i]> then b[i] = a[i] + 1 outputs a, b"
    machine = interpreter(text)
    fields = machine.run({"x": [[2.0]]}, 1).fields
    tampered = fields | {"a": np.array([7.0])}
    assert machine.final(tampered)["a"].tolist() == [7.0]


def test_objective() -> None:
    machine = interpreter(LLOYD + " objective sum[i] min[j] |x[i] - c[j]|^2")
    assert machine.objective({"x": FIVE, "c": PAIR}) == 4 + 1 + 1 + 1 + 4
    with pytest.raises(InputError, match="states no objective"):
        interpreter(LLOYD).objective({"x": FIVE, "c": PAIR})


def test_state_starts_from_inputs_and_spreads_over_vectors() -> None:
    text = f"{POINTS}state m[i] : R^d = x[i] - mean[l] x[l], v[i] : R^d = 0 layer v[i] += m[i] outputs v, m"
    found = run(text, {"x": [[1.0, 2.0], [3.0, 6.0]]}, 2)
    assert found["v"].tolist() == [[-2.0, -4.0], [2.0, 4.0]]


def test_blocks_of_tokens_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"""{CLUSTERS}let near[i,l] = exp(-|x[i] - x[l]|^2)
    layer y[i,j] = softmax[i](-|x[i] - c[j]|^2)
          m[i] = sum[l] softmax[l](-|x[i] - x[l]|^2) * x[l]
          n[i] = sum[l] near[l,i] * argmin[l](|x[i] - x[l]|^2 where i != l) else 0
          c[j] = mean[i] x[i] by lowest[i](|x[i] - c[j]|^2, 50%)
    outputs y, m, n, c"""
    x = np.random.default_rng(0).normal(size=(30, 3))
    whole = run(text, {"x": x, "c": x[:4]}, 2)
    monkeypatch.setattr(module, "BLOCK", 100)
    blocks = run(text, {"x": x, "c": x[:4]}, 2)
    assert whole.keys() == blocks.keys()
    assert all(np.array_equal(whole[name], blocks[name]) for name in whole)


# ---- expressions -----------------------------------------------------------------------------------------------------

X = [[3.0, 4.0], [0.0, -2.0]]
VALUES = {
    "index(i) * count(points)": [2.0, 4.0],
    "|x[i]|": [5.0, 2.0],
    "|x[i]|^2 / 2": [12.5, 2.0],
    "<x[i], x[i]>^2": [625.0, 16.0],
    "|index(i) - 2|": [1.0, 0.0],
    "sum[l] <x[i], x[l]>": [17.0, -4.0],
    "mean[l] index(l) where i != l else 0": [2.0, 1.0],
    "max[l] <x[i], x[l]>": [25.0, 4.0],
    "min[l] <x[i], x[l]>": [-8.0, -8.0],
    "sum[l] index(l) where <x[i], x[l]> < 0 and l != i": [2.0, 1.0],
    "mean[l] <x[l], x[l]> weighted index(l)": [11.0, 11.0],
    "mean[l] index(l) where <x[l], x[l]> > 100 else -1": [-1.0, -1.0],
    "sum[l] index(l) where <x[l], x[l]> > 100": [0.0, 0.0],
    "relu(index(i) - 2) - relu(2 - index(i))": [-1.0, 0.0],
    "d + 0 * index(i)": [2.0, 2.0],
    "sum[l] argmax[l](<x[l], x[l]>) * index(l)": [1.0, 1.0],
    "sum[l] highest[l](index(l), 1) * index(l)": [2.0, 2.0],
    "log(exp(index(i)))": [1.0, 2.0],
    "log(sum[l] 2 * exp(1000 * index(l)) * exp(index(i)))": [2001.0 + math.log(2), 2002.0 + math.log(2)],
    "log(sum[l] exp(-1000 * index(l)) / 2)": [-1000.0 - math.log(2)] * 2,
    "logsumexp[l] (1000 * index(l))": [2000.0, 2000.0],
    "sqrt(|x[i]|^2)": [5.0, 2.0],
    "mean[l] normalize[l](index(l)) * 6": [3.0, 3.0],
}


@pytest.mark.parametrize(("expression", "expected"), VALUES.items(), ids=VALUES)
def test_value_of(expression: str, expected: list[float]) -> None:
    assert run(f"{POINTS}layer a[i] = {expression} outputs a", {"x": X})["a"].tolist() == expected


def test_let_uses_rename_indices_apart() -> None:
    text = f"""{POINTS}let D[i,l] = index(i) - 10 * index(l)   S[i] = sum[l] D[l,i]
    layer a[i] = sum[l] D[l,i]   b[i] = D[i,i]   e[i] = sum[l] S[l] outputs a, b, e"""
    found = run(text, {"x": X})
    assert found["a"].tolist() == [1 - 10 + 2 - 10, 1 - 20 + 2 - 20]
    assert found["b"].tolist() == [-9.0, -18.0]
    assert found["e"].tolist() == [-54.0, -54.0]


def test_unit_and_length_survive_extreme_scales() -> None:
    text = f"{POINTS}layer a[i] = unit(x[i]) else x[i]   b[i] = |x[i]| outputs a, b"
    for scale in (1e-200, 1e200):
        found = run(text, {"x": np.array([[3.0, 4.0]]) * scale})
        close(found["a"], [[0.6, 0.8]], 2e-16)
        close(found["b"] / scale, [5.0], 1e-15)
    only = text.replace("b[i] = |x[i]|", "").replace("a, b", "a")
    close(run(only, {"x": [[1.5e308, 1.5e308], [1.5e-323, 2e-323]]})["a"], [[0.5**0.5] * 2, [0.6, 0.8]], 2e-16)


def test_means_near_the_largest_float_do_not_overflow() -> None:
    text = f"{POINTS}layer a[i] = mean[l] x[l] outputs a"
    assert run(text, {"x": [[1.5e308], [1.7e308], [1.6e308]]})["a"][0, 0] == 1.6e308


def test_a_mean_of_kept_values_divides_once() -> None:
    # adding v/49 forty-nine times misses v for many v; the exact sum divided by the count never does
    v = 0.1
    forms = (
        "mean[l] x[l]",
        "mean[l] x[l] where index(l) > 0 else x[i]",
        "mean[l] x[l] by lowest[l](0 * index(l), 100%)",
        "sum[l] argmax[l](0 * index(l) ties split) * x[l]",
        "-(sum[l] -x[l] * lowest[l](0 * index(l), 49))",
    )
    for form in forms:
        found = run(f"{POINTS}layer a[i] = {form} outputs a", {"x": [[v]] * 49})
        assert found["a"].tolist() == [[math.fsum([v] * 49) / 49]] * 49, form


def test_sums_do_not_depend_on_the_order_of_tokens() -> None:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(200, 1)) * 10.0 ** rng.integers(-8, 9, size=(200, 1))
    text = f"{POINTS}layer a[i] = sum[l] x[l]   b[i] = sum[l] softmax[l](<x[l], x[l]> / 1e20) * x[l] outputs a, b"
    ahead, shuffled = run(text, {"x": x}), run(text, {"x": rng.permutation(x)})
    assert ahead["a"][0] == shuffled["a"][0]
    assert ahead["b"][0] == shuffled["b"][0]


# ---- nothing ---------------------------------------------------------------------------------------------------------

SOFT = CLUSTERS + "layer y[i,j] = softmax[j] -|x[i] - c[j]|^2 then c[j] = mean[i] x[i] weighted {} outputs c, y"


def test_a_mean_weighted_by_a_stored_softmax_does_not_underflow() -> None:
    """Every weight of the far center is 0 as stored; the field keeps its logarithms until the end of the layer."""
    far = {"x": FIVE, "c": [[0.0], [1000.0]]}
    assert run(SOFT.format("y[i,j]"), far)["c"][1].tolist() == [3.0]
    assert run(SOFT.format("y[i,j] else c[j]"), far)["c"][1].tolist() == [3.0]
    assert run(SOFT.format("(1 + |x[i]|^2) * y[i,j]"), far)["c"][1].tolist() == [3.0]


def test_a_stored_mass_that_underflows_is_an_error() -> None:
    """A field that is no softmax has nothing but its stored numbers."""
    text = f"{CLUSTERS}layer y[i,j] = exp(-|x[i] - c[j]|^2) then c[j] = mean[i] x[i] weighted y[i,j] {{}} outputs c"
    far = {"x": FIVE, "c": [[0.0], [1000.0]]}
    with pytest.raises(EvaluationError, match=r"c\[2\] is undefined: the weights of this mean add up to exactly 0"):
        run(text.format(""), far)
    assert run(text.format("else c[j]"), far)["c"][1].tolist() == [1000.0]


def test_an_unstored_mass_does_not_underflow() -> None:
    found = run(SOFT.format("softmax[j](-|x[i] - c[j]|^2)"), {"x": FIVE, "c": [[0.0], [1000.0]]})
    assert found["c"][1].tolist() == [3.0]  # only the nearest point counts
    sums = "(sum[l] exp(-|x[i] - c[j]|^2) where index(l) < index(i))"
    text = f"{CLUSTERS}layer c[j] = mean[i] x[i] weighted {sums} else c[j] outputs c"
    assert run(text, {"x": FIVE, "c": [[-1000.0], [1000.0]]})["c"].tolist() == [[-2.0], [3.0]]
    weights = "normalize[i](exp(-|x[i] - c[j]|^2) * 0.5)"
    text = f"{CLUSTERS}layer c[j] = sum[i] {weights} * x[i] else c[j] outputs c"
    assert run(text, {"x": FIVE, "c": [[0.0], [1000.0]]})["c"][1].tolist() == [3.0]


NOTHING = {
    "1/(index(i) - 2)": r"a\[2\] is undefined: this divides by zero",
    "log(index(i) - 1)": r"a\[1\] is undefined: the logarithm needs a positive number",
    "sqrt(1 - index(i))": r"a\[2\] is undefined: the root needs",
    "1/(index(i) - 1) else 1/(index(i) - 1)": r"a\[1\] is undefined: this divides by zero",
    "sum[l] argmax[l](1 / (index(l) - 1)) * index(l)": r"this divides by zero",
    "1 / exp(-1000 * index(i)) else 7": r"a\[1\] is too large for float64",
    "1 / (exp(-1000) * (index(i) - 1)) else 7": r"a\[2\] is too large for float64",
    "exp(1000 * index(i)) else 7": r"a\[1\] is too large for float64",
    "exp(1000 * index(i))": r"a\[1\] is too large for float64: the exponential overflows",
    "sum[l] exp(400 * index(l) * index(i))": r"for i = 1, l = 2",
    "index(i) / exp(1000 * index(i))": r"the exponential overflows",
    "1e300 * index(i) * 1e300": r"a\[1\] is too large for float64: the number overflows",
}


@pytest.mark.parametrize(("expression", "says"), NOTHING.items(), ids=NOTHING)
def test_values_that_do_not_exist_are_refused_with_their_place(expression: str, says: str) -> None:
    with pytest.raises(EvaluationError, match=says) as error:
        run(f"{POINTS}layer a[i] = {expression} outputs a", {"x": X})
    assert "spec:4:" in str(error.value)
    assert "^" in str(error.value)


CAUGHT = {
    "1/(index(i) - 1) else 7": [7, 1],
    "log(2 - index(i)) else 9": [0, 9],
    "sqrt(1 - index(i)) else 9": [0, 9],
    "exp(1/(index(i) - 1) - 1) + 1 else 7": [7, 2],
    "(1/(index(i) - 1) else 1/(index(i) - 2)) else 5": [-1, 1],
    "(1/(index(i) - 1) else 1/(index(i) - 1)) else 5": [5, 1],
    "sum[l] 1/(index(l) - index(i)) else 3": [3, 3],
    "sum[l] (1/(index(l) - index(i)) else 3)": [4, 2],
    "sum[l] 1/(index(l) - index(i)) where l != i else 3": [1, -1],
    "0 * (1/(index(i) - 1)) else 7": [7, 0],
    "(1/(index(i) - 1)) - (1/(index(i) - 1)) else 7": [7, 0],
    "log(exp(-1000) * (index(i) - 1)) else 7": [7, -1000],
}


@pytest.mark.parametrize(("expression", "wanted"), CAUGHT.items(), ids=CAUGHT)
def test_else_catches_every_value_that_does_not_exist(expression: str, wanted: list[float]) -> None:
    found = run(f"{POINTS}layer a[i] = {expression} outputs a", {"x": X})["a"].tolist()
    assert found == pytest.approx(wanted, rel=1e-12)


def test_whether_a_vector_is_zero_is_decided_of_its_exact_value() -> None:
    text = """algorithm t tokens g in one : 1 inputs a[g] : R^d, v[g] : R^d, w[g] : R^d
    layer u[g] = unit(a[g] - <a[g], v[g]> * v[g]) else w[g] outputs u"""
    a = [1.6355194667674076, 27.363707756281276, 10.965044132679829]
    v = [-0.055395855256574575, -0.9268223490767759, -0.37139148142115447]
    along = sum(F(p) * F(q) for p, q in zip(a, v, strict=True))
    rest = [F(p) - along * F(q) for p, q in zip(a, v, strict=True)]
    scaled = [float(r * 10**15) for r in rest]
    wanted = np.array(scaled) / np.linalg.norm(scaled)
    fallback = [0.0, 1.0, 0.0]
    assert run(text, {"a": [a], "v": [v], "w": [fallback]})["u"][0] == pytest.approx(wanted, rel=1e-12)
    assert run(text, {"a": [[3.0, 0, 0]], "v": [[1.0, 0, 0]], "w": [fallback]})["u"].tolist() == [fallback]


def test_what_does_not_count_may_be_undefined() -> None:
    text = f"""{POINTS}layer a[i] = sum[l] 1/(index(l) - 1) where index(l) > 1
      b[i] = sum[l] argmax[l](index(l)) * (1/(index(l) - 1))
    outputs a, b"""
    found = run(text, {"x": X})
    assert (found["a"].tolist(), found["b"].tolist()) == ([1.0, 1.0], [1.0, 1.0])


# ---- parameters and inputs -------------------------------------------------------------------------------------------


def test_defaults_use_counts_dimensions_and_each_other() -> None:
    text = f"{POINTS}param b = a * (count(points) + 1), a = d / 4 layer v[i] = b + 0 * index(i) outputs v"
    assert run(text, {"x": X})["v"].tolist() == [1.5, 1.5]
    assert run(text, {"x": X}, a=2)["v"].tolist() == [6.0, 6.0]


def test_defaults_out_of_range_are_refused_when_sizes_are_known() -> None:
    text = f"{POINTS}param b = count(points) - 2 > 0 layer v[i] = b + 0 * index(i) outputs v"
    with pytest.raises(InputError, match="the parameter b must be > 0, but is 0"):
        run(text, {"x": X})


REFUSED = {
    "nan": ({"x": [[1.0], [np.nan]]}, "x, row 2, column 1: is nan; remove"),
    "infinite": ({"x": [[1.0], [2.0]], "c": [[np.inf]]}, "c, row 1, column 1: is inf"),
    "empty": ({"x": np.zeros((0, 1))}, "x has no rows; points needs at least one token"),
    "one axis": ({"x": [1.0, 2.0]}, r"x must have two axes, \[points, d\], but has 1"),
    "text": ({"x": [["a"]]}, "x must be an array of numbers"),
    "ragged": ({"x": [[1.0], [1.0, 2.0]]}, "x must be an array of numbers, all rows of one length"),
    "missing": ({"x": FIVE}, "test needs the input c"),
    "unknown": ({"x": FIVE, "cc": PAIR}, "test has no input cc; did you mean c?"),
    "widths": ({"x": FIVE, "c": [[1.0, 2.0]]}, r"c has 2 columns, but d is 1 \(x has 1 column\)"),
}


@pytest.mark.parametrize(("inputs", "says"), REFUSED.values(), ids=REFUSED)
def test_refused_input(inputs: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        run(LLOYD, inputs)


CONTRACTS = """algorithm test
tokens i in points, j in centers : k
inputs x[i] : unit R^d, w[i] : R >= 0, p[i,j] : simplex, q[i,j] : onehot
layer a[i] = w[i] outputs a"""
FITTING = {"x": [[1.0, 0.0], [0.6, 0.8]], "w": [0, 1], "p": [[0.5, 0.5], [1, 0]], "q": [[1, 0], [0, 1]]}
BROKEN = {
    "unit": ("x", [[1.0, 0.0], [0.6, 0.81]], "x, row 2: has squared length 1.0161.*declared unit: divide the row"),
    "zero": ("x", [[0.0, 0.0], [0.6, 0.8]], "x, row 1: has squared length 0"),
    "range": ("w", [0, -1], "w, row 2: is -1.0, but the spec declares w >= 0"),
    "sum": ("p", [[0.5, 0.5], [1, 0.5]], "p, row 2: adds up to 1.5"),
    "sign": ("p", [[0.5, 0.5], [1.5, -0.5]], "p, row 2, column 2: is -0.5"),
    "one-hot": ("q", [[1, 0], [1, 1]], "q, row 2: is not one-hot"),
    "rows": ("w", [1.0], "w has 1 row, but x has 2 rows"),
    "columns": ("q", [[1.0], [1.0]], "q has 1 column, but k is 2"),
}


def test_contracts_on_data_hold_and_are_checked_within_rounding() -> None:
    assert run(CONTRACTS, FITTING)["a"].tolist() == [0.0, 1.0]
    rows = np.random.default_rng(0).normal(size=(2, 2)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    assert run(CONTRACTS, FITTING | {"x": rows})["a"].tolist() == [0.0, 1.0]


@pytest.mark.parametrize(("name", "values", "says"), BROKEN.values(), ids=BROKEN)
def test_broken_contract(name: str, values: object, says: str) -> None:
    with pytest.raises(InputError, match=says):
        run(CONTRACTS, FITTING | {name: values})


def test_dimensions_and_parameters_that_do_not_fit() -> None:
    with pytest.raises(InputError, match=r"must be a positive whole number, not 2\.5"):
        interpreter(LLOYD, {"k": 2.5})  # type: ignore[dict-item]
    with pytest.raises(InputError, match="test has no dimension kk; did you mean k"):
        interpreter(LLOYD, {"kk": 2})
    with pytest.raises(InputError, match="test has no parameter tau"):
        interpreter(LLOYD, tau=3)
    with pytest.raises(InputError, match=r"c has 2 rows, but k is 3 \(as given\)"):
        interpreter(LLOYD, {"k": 3}).run({"x": FIVE, "c": PAIR}, 1)
    with pytest.raises(InputError, match="the parameter tau must be > 0, but is -1"):
        interpreter(f"{POINTS}param tau = 1 > 0 layer a[i] = tau * index(i) outputs a", tau=-1)
    with pytest.raises(InputError, match="the parameter tau has no default; give it"):
        run(f"{POINTS}param tau > 0 layer a[i] = tau * index(i) outputs a", {"x": X})
