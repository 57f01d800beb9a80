"""The papers' matrices, corrected and written down by hand, against those in the compiled checkpoints."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from paper_forms import (
    Coordinates,
    assert_carry,
    assert_dot,
    assert_l2,
    assert_value,
    head,
    lifted,
    parts,
    plain,
    select,
    streams,
    sublayer,
    swap,
    token,
)
from weftc.compiling import compile
from weftc.emit.matrices import Array
from weftc_runtime import load
from weftc_runtime.format import program as ir
from weftc_runtime.format.checkpoint import Checkpoint

SIZES = pytest.mark.parametrize(("d", "k"), [(1, 2), (3, 4)])


# ---- A: distances ----------------------------------------------------------------------------------------------------


@SIZES
def test_the_printed_layer_is_equation_8(d: int, k: int) -> None:
    made = compile("lloyd_printed", {"d": d, "k": k}, erase="attention")
    x, c = streams(made, plain(d, k))
    low, high = select(d + k, 0, d), select(d + k, d, d + k)
    first, second = head(made, "layer.0.0", "y"), head(made, "layer.0.0", "erase.points")
    third, fourth = head(made, "layer.1.0", "c"), head(made, "layer.1.0", "erase.centers")
    assert_l2(made, first.score, low @ x, low @ c, -1)
    assert_value(made, first, x, high, c)
    assert_l2(made, second.score, low @ x, low @ x, -1)
    assert_value(made, second, x, -high, x)
    assert_dot(made, third.score, c.T @ high.T @ high @ x)
    assert_value(made, third, c, low, x)
    assert_dot(made, fourth.score, c.T @ high.T @ high @ c)
    assert_value(made, fourth, c, -low, c)
    for h in (first, second, third, fourth):
        assert (h.weighting.kind, h.weighting.ties, h.masks, h.self_key) == ("argmax", "split", (), None)
    assert_carry(made, "layer.0.0.carry.points", "points", ())
    assert_carry(made, "layer.1.0.carry.centers", "centers", ())


@SIZES
def test_the_corrected_layer_erases_linearly_and_keeps_empty_clusters(d: int, k: int) -> None:
    made = compile("lloyd", {"d": d, "k": k})
    x, c = streams(made, plain(d, k))
    low, high = select(d + k, 0, d), select(d + k, d, d + k)
    assert_carry(made, "layer.0.0.carry.points", "points", ["y"])
    assert_carry(made, "layer.1.0.carry.centers", "centers", ["c"])
    assign, update = head(made, "layer.0.0", "y"), head(made, "layer.1.0", "c")
    assert_l2(made, assign.score, low @ x, low @ c, -1)
    assert_value(made, assign, x, high, c)
    assert (assign.weighting.kind, assign.weighting.ties) == ("argmax", "first")
    ones = token(made, "centers", [(1, {"1": 1})]).T @ token(made, "points", [(1, {"1": 1})])
    assert_dot(made, update.score, ones)
    (mask,) = update.masks
    assert mask.op == ">"
    assert_dot(made, mask.score, c.T @ high.T @ high @ x - ones / 2)
    assert_value(made, update, c, low, x)
    assert update.weighting.kind == "normalize"
    assert update.self_key is not None
    assert update.self_key.row is None
    np.testing.assert_array_equal(made.tensors[update.self_key.value], c.T @ low @ c)


@SIZES
def test_without_masks_the_update_has_the_printed_queries_and_keys(d: int, k: int) -> None:
    made = compile("lloyd", {"d": d, "k": k}, erase="attention", members="offset")
    x, c = streams(made, plain(d, k))
    high = select(d + k, d, d + k)
    update = head(made, "layer.1.0", "c")
    assert_dot(made, update.score, c.T @ high.T @ high @ x)
    assert (update.weighting.kind, update.masks) == ("normalize", ())
    assert_value(made, head(made, "layer.0.0", "erase.points"), x, -high, x)
    assert_value(made, head(made, "layer.1.0", "erase.centers"), c, -select(d + k, 0, d), c)


# ---- B: dot products -------------------------------------------------------------------------------------------------


def test_plus_twice_the_swap_is_a_distance_and_minus_is_not() -> None:
    x, c = np.array([1.0, 2.0]), np.array([-1.0, 4.0])
    lift = [np.concatenate([v, [v @ v, -0.5]]) for v in (x, c)]
    pi = swap(4, 2)
    assert lift[1] @ pi @ lift[0] == -((x - c) @ (x - c))
    assert lift[1] @ -pi @ lift[0] != -((x - c) @ (x - c))


@SIZES
@pytest.mark.parametrize("square", ["square", "relu2"])
def test_lifted_scores_are_pi(d: int, k: int, square: Any) -> None:
    made = compile("lloyd", {"d": d, "k": k}, scores="dot", centre="off", erase="attention", square=square)
    x, c = streams(made, lifted(d, k))
    wide = d + 2 + k
    form = x.T @ swap(wide, d).T @ select(wide, 0, d + 2) @ c  # Q = Pi, K = P[0:d']
    assert_dot(made, head(made, "readout.0.0", "(objective)").score, form)
    norm, one = made.program.stream("points").slot("|x|^2").offset, made.program.stream("centers").slot("1").offset
    assert form[norm, one] == -1
    form[norm, one] = 0  # the same for every key
    assign, update = head(made, "layer.0.0", "y"), head(made, "layer.1.0", "c")
    assert_dot(made, assign.score, form)
    assert_value(made, assign, x, select(wide, d + 2, wide), c)
    assert_value(made, update, c, select(wide, 0, d), x)
    _assert_norm_network(made, c, d, k, square)


def _assert_norm_network(made: Checkpoint, c: Array, d: int, k: int, square: str) -> None:
    """|c|^2 is cleared and set to the sum of squares: W1 = [I_d 0] (and its negative for squared ReLU), W2 = ones."""
    network: ir.FFN = sublayer(made, "layer.1.1")
    eye = np.eye(d, d + 2 + k)
    first = eye if square == "square" else np.concatenate([eye, -eye])
    second = np.zeros((d + 2 + k, len(first)))
    second[d] = 1
    assert_carry(made, network.carry, "centers", ["|c|^2"])
    np.testing.assert_array_equal(made.tensors[network.a], first @ c)
    np.testing.assert_array_equal(made.tensors[network.out], c.T @ second)
    if square == "square":
        assert network.b is not None
        np.testing.assert_array_equal(made.tensors[network.b], first @ c)
    assert network.function == {"square": "product", "relu2": "relu2"}[square]


# ---- C, D: soft and spherical ----------------------------------------------------------------------------------------


@SIZES
def test_soft_shares_and_their_logarithms(d: int, k: int) -> None:
    made = compile("soft_kmeans", {"d": d, "k": k}, {"gamma": 0.75})
    x, c = streams(made, plain(d, k))
    low, high = select(d + k, 0, d), select(d + k, d, d + k)
    for name, kind in (("y", "softmax"), ("log_y", "sum"), ("log_y'2", "lse")):
        found = head(made, "layer.0.0", name)
        assert_l2(made, found.score, low @ x, low @ c, -0.75)
        assert found.weighting.kind == kind
    assert_value(made, head(made, "layer.0.0", "y"), x, high, c)
    logs = token(made, "points", [(d, {"x": 1}), (k, {"log y": 1})])
    update = head(made, "layer.1.0", "c")  # lin of y as a softmax of log y
    assert_dot(made, update.score, c.T @ high.T @ high @ logs)
    assert (update.weighting.kind, update.masks) == ("softmax", ())
    assert_value(made, update, c, low, x)


@SIZES
def test_soft_scores_by_dot_products(d: int, k: int) -> None:
    made = compile("soft_kmeans", {"d": d, "k": k}, {"gamma": 0.75}, scores="dot", centre="off")
    x, c = streams(made, lifted(d, k))
    wide = d + 2 + k
    assert_dot(made, head(made, "layer.0.0", "log_y").score, 0.75 * x.T @ swap(wide, d).T @ select(wide, 0, d + 2) @ c)


@SIZES
@pytest.mark.parametrize("norm", ["rms", "layer"])
def test_spherical_norms_act_on_the_center_alone(d: int, k: int, norm: Any) -> None:
    made = compile("spherical_kmeans", {"d": d, "k": k}, norm=norm)
    x, c = streams(made, plain(d, k))
    low = select(d + k, 0, d)
    assert_dot(made, head(made, "layer.0.0", "y").score, x.T @ low.T @ low @ c)
    network: ir.FFN = sublayer(made, "layer.1.1")
    kind = "unit" if norm == "rms" or d == 1 else "layer"  # LayerNorm would round a sign
    lift = np.eye(d) if kind == "unit" else helmert(d)
    mean, written = (token(made, "centers", [(d, {slot: 1})]) for slot in ("~1", network.writes[0]))
    np.testing.assert_allclose(made.tensors[network.a], lift @ mean, rtol=0, atol=1e-16)
    np.testing.assert_allclose(made.tensors[network.out], written.T @ lift.T, rtol=0, atol=1e-16)
    assert network.b is not None  # the zero rule
    np.testing.assert_allclose(made.tensors[network.b], lift @ c[:d], rtol=0, atol=1e-16)
    assert network.function == kind


def helmert(d: int) -> Array:
    """U, (d+1) x d: column j is (1, ..., 1, -j, 0, ...) / sqrt(j (j + 1)); an isometry into vectors that sum to 0."""
    out = np.zeros((d + 1, d), dtype=np.longdouble)
    for j in range(1, d + 1):
        out[:j, j - 1] = 1
        out[j, j - 1] = -j
        out[:, j - 1] /= np.sqrt(np.longdouble(j * (j + 1)))
    np.testing.assert_allclose(out.T @ out, np.eye(d), atol=1e-15)
    np.testing.assert_allclose(out.sum(axis=0), 0, atol=1e-15)
    return out.astype(np.float64)


# ---- E, F: trimmed and robust ----------------------------------------------------------------------------------------


@SIZES
@pytest.mark.parametrize(
    ("spec", "gamma", "kind"),
    [("trimmed_normmax", 1.0, "normmax"), ("robust_kmeans", 0.25, "sparsemax"), ("robust_softmax", 0.25, "softmax")],
)
def test_offsets_keep_foreign_points_out(d: int, k: int, spec: str, gamma: float, kind: str) -> None:
    params = {} if kind == "normmax" else {"gamma": gamma}
    made = compile(spec, {"d": d, "k": k}, params, members="offset")
    x, c = streams(made, plain(d, k))
    big = 2.0**31
    both = select(d + k, 0, d) + big * select(d + k, d, d + k)  # P_x + delta P_y
    update = head(made, "layer.1.0", "c")
    assert (update.weighting.kind, update.masks) == (kind, ())
    assert_l2(made, update.score, both @ c, both @ x, -gamma)
    assert_value(made, update, c, select(d + k, 0, d), x)
    assert update.self_key is not None
    assert update.self_key.row is not None
    own = token(made, "centers", [(1, {"1": 1})])[0]
    np.testing.assert_array_equal(made.tensors[update.self_key.row], -gamma * big**2 * own)
    ((q, key, coefficient),) = parts(made, update.score, "l2")
    center, foreign = c.T[:, d], x.T[:, d + 1]  # the tokens at 0 with e_1 and with y = e_2
    apart = coefficient * np.sum((q @ center - key @ foreign) ** 2)
    assert apart == 2 * -gamma * big**2  # 2 delta^2, not the printed 2 delta; the self key lies half way


@SIZES
def test_percentiles_need_the_mask(d: int, k: int) -> None:
    made = compile("trimmed_kmeans", {"d": d, "k": k}, {"tau": 75})
    x, c = streams(made, plain(d, k))
    low, high = select(d + k, 0, d), select(d + k, d, d + k)
    update = head(made, "layer.1.0", "c")
    assert_l2(made, update.score, low @ c, low @ x, -1)
    ones = token(made, "centers", [(1, {"1": 1})]).T @ token(made, "points", [(1, {"1": 1})])
    assert_dot(made, update.masks[0].score, c.T @ high.T @ high @ x - ones / 2)
    assert (update.weighting.kind, update.weighting.percent) == ("top", Fraction(75))


@SIZES
def test_top_k_attention_ranks_the_members_by_the_scores_of_its_softmax(d: int, k: int) -> None:
    made = compile("topk_softmax", {"d": d, "k": k}, {"gamma": 0.25, "kept": 2})
    x, c = streams(made, plain(d, k))
    low, high = select(d + k, 0, d), select(d + k, d, d + k)
    update = head(made, "layer.1.0", "c")
    assert_l2(made, update.score, low @ c, low @ x, -0.25)
    assert_value(made, update, c, low, x)
    assert (update.weighting.kind, update.self_key is None) == ("softmax", False)
    member, nearest = update.masks
    ones = token(made, "centers", [(1, {"1": 1})]).T @ token(made, "points", [(1, {"1": 1})])
    assert_dot(made, member.score, c.T @ high.T @ high @ x - ones / 2)
    assert_l2(made, nearest.score, low @ c, low @ x, -1)
    # the function, in NumPy: four members, then one, then none
    points, centers = np.array([[0.0], [1.0], [-2.0], [5.0], [90.0]]), np.array([[0.25], [80.0], [900.0]])
    found = load(compile("topk_softmax", {"d": 1, "k": 3}, {"gamma": 0.25, "kept": 2}))(x=points, c=centers, layers=1)
    weights = np.exp(-0.25 * np.array([0.25, 0.75]) ** 2)
    np.testing.assert_allclose(found["centers"].numpy().ravel(), [weights[1] / weights.sum(), 90, 900], rtol=1e-14)


# ---- G: medoids ------------------------------------------------------------------------------------------------------


@SIZES
def test_medoid_scores_are_the_corrected_ones(d: int, k: int) -> None:
    """P_x + sqrt(delta) P_y with noise, up to a number per query, on tokens whose y is one-hot."""
    delta = 2.5
    made = compile("kmedoids", {"d": d, "k": k}, {"delta": delta})
    x, c = streams(made, plain(d, k), "medoids")
    update = head(made, "layer.1.0", "c")
    rng = np.random.default_rng(3)
    points, medoids = rng.normal(size=(6, x.shape[1])), rng.normal(size=(k, c.shape[1]))
    points[:, made.program.stream("points").slot("y").columns] = np.eye(k)[rng.integers(k, size=6)]
    medoids[:, made.program.stream("medoids").slot("id()").columns] = np.eye(k)
    noise = points[:, made.program.stream("points").slot("g").columns].T

    def scores(factor: float) -> Array:
        both = select(d + k, 0, d) + factor * select(d + k, d, d + k)
        apart = (both @ c @ medoids.T).T[:, None] - (both @ x @ points.T).T[None]
        return np.asarray(noise - np.sum(apart**2, axis=-1))

    ((q, key, _),) = parts(made, update.score, "dot")
    ((q2, key2, coefficient),) = parts(made, update.score, "l2")
    weftc = (medoids @ q.T) @ (key @ points.T)
    weftc += coefficient * np.sum(((medoids @ q2.T)[:, None] - (points @ key2.T)[None]) ** 2, axis=-1)
    np.testing.assert_allclose(weftc - scores(np.sqrt(delta)), np.full((k, 6), 2 * delta), atol=1e-12)
    assert np.ptp(weftc - scores(delta), axis=1).max() > 1  # as printed it is another law
    assert_value(made, update, c, select(d + k, 0, d), x)
    assert (update.weighting.kind, update.weighting.ties) == ("argmax", "first")


# ---- H: assignment ---------------------------------------------------------------------------------------------------


def prompt(d: int, null: str) -> Coordinates:
    """The 2d + 9 coordinates of the prompt; O4 is 1 on real tokens and -1/n on the null token."""
    ones = [(1, {"1": 1})] * 3
    fourth = (1, {"1": 1.0, null: -1.0} if null else {"1": 1})
    norms = [(1, {"|x|^2": 1}), (1, {"|y|^2": 1})]
    return [(d, {"x": 1}), (d, {"y": 1}), *norms, *ones, fourth, (1, {"u": 1}), (1, {"v": 1}), (1, {})]


def entries(d: int, lam: float, second: bool) -> Array:
    """Q of one head, entry by entry (0-based; query row, key column), times 1/lambda."""
    o1, o2, o3, u, v, x2, y2 = 2 * d + 2, 2 * d + 3, 2 * d + 4, 2 * d + 6, 2 * d + 7, 2 * d, 2 * d + 1
    out = np.zeros((2 * d + 9, 2 * d + 9))
    for a in range(d):
        out[(d + a, a) if second else (a, d + a)] = 2
    for row, column, value in (
        [(o1, x2, -1), (y2, o1, -1), (v, o2, 1), (o1, u, 1)]
        if second
        else [(o1, y2, -1), (x2, o1, -1), (u, o2, 1), (o1, v, 1)]
    ):
        out[row, column] = value
    out[o3, o3] = -lam
    return out / lam


@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize("null", ["token", "key"])
def test_assignment_heads_are_the_papers(d: int, null: Any) -> None:
    lam, gamma = 0.25, 0.5
    params = {"lambda": lam, "gamma": gamma}
    made = compile("sinkhorn_dual", {"d": d}, params, scores="dot", centre="off", null=null)
    z = token(made, "pairs", prompt(d, "null 1/#pairs" if null == "token" else ""))
    for name, column, second in (("u", 2 * d + 6, False), ("v", 2 * d + 7, True)):
        found = head(made, "layer.0.0", name)
        assert_dot(made, found.score, z.T @ entries(d, lam, second) @ z)
        move = np.zeros((2 * d + 9, 2 * d + 9))
        move[column, 2 * d + 5] = 1  # O4 to u or v
        into = token(made, "pairs", [(2 * d + 6, {}), (1, {"u": 1}), (1, {"v": 1}), (1, {})])
        assert_value(made, found, into, -gamma * move, z)
        assert found.weighting.kind == "softmax"
        assert (found.self_key is None) == (null == "token")
    stream = made.program.stream("pairs")
    assert stream.null == (null == "token")
    if null == "token":
        assert stream.width == 2 * d + 7
        filled = [e for e in made.program.embedding if e.kind == "null"]
        assert [(e.slot, e.source, e.power) for e in filled] == [("null 1/#pairs", "pairs", -1)]


@pytest.mark.parametrize("d", [1, 3])
def test_a_null_key_has_score_0_and_value_gamma_over_n(d: int) -> None:
    made = compile("sinkhorn_dual", {"d": d}, {"lambda": 0.25, "gamma": 0.5})
    for name in ("u", "v"):
        key = head(made, "layer.0.0", name).self_key
        assert key is not None
        assert key.row is not None
        assert not made.tensors[key.row].any()
        share = token(made, "pairs", [(1, {"reciprocal(#pairs)": 1})])
        np.testing.assert_array_equal(made.tensors[key.value], 0.5 * token(made, "pairs", [(1, {name: 1})]).T @ share)


# ---- J: flows --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 3])
def test_the_contracting_flow_is_one_head_beside_a_scaled_carry(d: int) -> None:
    made = compile("blurring_mean_shift", {"d": d}, {"t": 0.25, "h": 2})
    x = token(made, "points", [(d, {"x": 1})])
    flow = head(made, "layer.0.0", "x")
    assert_l2(made, flow.score, x, x, -1 / 8)
    assert_value(made, flow, x, 0.25 * np.eye(d), x)
    np.testing.assert_array_equal(made.tensors["layer.0.0.carry.points"], 0.75 * x.T @ x)
    assert flow.weighting.kind == "softmax"
