"""Numbers that docs/papers.md gives in prose and tables, computed again."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from pages import ROOT, fenced, files
from weftc.api import load
from weftc.compiling import checked_spec, compile
from weftc.emit.cost import program_cost
from weftc.emit.matrices import Array
from weftc.verification.steps.stepwise import Stepwise
from weftc.verification.temperature.calibration import calibrate
from weftc.verification.temperature.certificate import Certifier
from weftc_runtime.errors import RunError

BLOCKS = fenced("docs/papers.md")
PAGE = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")


def rows(title: str) -> list[list[str]]:
    """The rows of the table with this head."""
    table = PAGE[PAGE.index(f"| {title} |") :].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def near(found: float, stated: str) -> bool:
    """Within a factor of two: rounding errors differ from machine to machine."""
    return float(stated) / 2 <= found <= float(stated) * 2


def softmax(scores: Array) -> Array:
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


# ---- how large -------------------------------------------------------------------------------------------------------

SIZES = rows("construction | place | levels, heads, networks | columns | Weft's")
DIMENSIONS = ((3, 2), (4, 3), (6, 2), (9, 5))  # EM assumes k < d


def counts(levels: str, columns: str, d: int, k: int) -> list[list[int]]:
    """What two cells say for these dimensions, one head for each M: levels, heads, networks; columns by stream."""
    products = [re.sub(r"(?<=[\dk])(?=[dkM])", "*", cell) for cell in (levels.replace(", ", ","), columns)]
    return [
        [int(eval(part, {}, {"d": d, "k": k, "M": 1})) for part in cell.split(mark)]
        for cell, mark in zip(products, (",", ";"), strict=True)
    ]


@pytest.mark.parametrize("row", SIZES, ids=lambda row: str(row[4]))
def test_sizes_are_as_tabulated_and_larger_ones_explained(row: list[str]) -> None:
    _, _, *papers, command, levels, columns, reason = row
    name, *said = command.strip("`").split()
    checked = checked_spec(files(BLOCKS).get(name, name))
    styles: dict[str, Any] = {key.removeprefix("--"): value for key, value in zip(said[::2], said[1::2], strict=True)}
    larger = False
    for d, k in DIMENSIONS:
        dims = {"d": d} | ({"k": k} if "k" in checked.dims else {})
        made = compile(checked, dims, **styles)
        cost = program_cost(made.program, made.tensors)
        found = [[cost.levels, cost.heads, cost.feed_forwards], list(cost.widths.values())]
        assert found == counts(levels, columns, d, k)
        printed = counts(papers[0], papers[1], d, k)
        larger |= any(
            a > b for ours, theirs in zip(found, printed, strict=True) for a, b in zip(ours, theirs, strict=True)
        )
    assert larger == bool(reason)


# ---- offsets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("delta", "members", "others"), rows("delta | on members | on the others"))
def test_an_offset_on_members_loses_digits(delta: str, members: str, others: str) -> None:
    points = np.random.default_rng(0).normal(size=(200, 2))
    member = np.arange(200) < 60
    points[~member] += 4
    apart = np.sum(points**2, axis=1)
    meant = softmax(np.where(member, -apart, -np.inf))
    single = np.sum(points.astype(np.float32) ** 2, axis=1)
    shift = np.float32(delta)
    plus, minus = -single + shift * member.astype(np.float32), -single - shift * (~member).astype(np.float32)
    assert plus.dtype == minus.dtype == np.float32
    assert near(float(np.abs(softmax(plus) - meant).max()), members)
    assert near(float(np.abs(softmax(minus) - meant).max()), others)


# ---- norm-max is no percentile ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1.0, 0.1])
def test_what_normmax_keeps_depends_on_the_scale(scale: float) -> None:
    """The nearest four of 0, 1, 2, 3, 10 stay for budgets between 22 and 386, times the squared scale."""
    x = scale * np.array([[0.0], [1.0], [2.0], [3.0], [10.0]])
    for budget, kept in ((21.9, 3), (22.1, 4), (385.9, 4), (386.1, 5)):
        model = load(compile("trimmed_normmax", {"d": 1, "k": 1}, {"gamma": 1 / (budget * scale**2)}, 1))
        found = model(x=x, c=np.zeros((1, 1)))["centers"].item()
        assert found == pytest.approx(x[:kept].mean(), rel=1e-12)


@pytest.mark.parametrize(("delta", "least", "most"), [(5.0, 5e-3, 2e-2), (100.0, 0.0, 1e-14), (1e12, 1e-6, 1e-4)])
def test_how_near_two_stages_are_depends_on_delta(delta: float, least: float, most: float) -> None:
    x = np.random.default_rng(0).normal(size=(40, 2))
    printed = load(compile("robust_two_stage", {"d": 2, "k": 3}, {"delta": delta}))(x=x, c=x[:3], e=np.eye(3), layers=3)
    meant = load(compile("robust_softmax", {"d": 2, "k": 3}))(x=x, c=x[:3], layers=3)
    assert least <= (printed["centers"] - meant["centers"]).abs().max() <= most


# ---- soft shares -----------------------------------------------------------------------------------------------------


def test_printed_linear_attention_stops_where_all_shares_underflow() -> None:
    given = {"x": [[0.0], [1.0]], "c": [[0.5], [70.0]]}
    with pytest.raises(RunError, match=r"token 1 of centers .*total weight is zero"):
        load(compile("soft_linear_attention", {"d": 1, "k": 2}))(**given, layers=1)


def test_far_centers_keep_their_means() -> None:
    x, c = np.array([[0.0], [1.0]]), np.array([[0.0], [70.0]])
    shares = softmax(-((x - c.T) ** 2))
    assert shares[:, 1].sum() == 0  # so that dividing by the sum has no value
    found = load(compile("soft_kmeans", {"d": 1, "k": 2}, {"gamma": 1.0}, 1))(x=x, c=c)["centers"].numpy()
    assert found[1, 0] == pytest.approx(1.0, abs=1e-12)  # e^139 times likelier than the other


# ---- the prompt ------------------------------------------------------------------------------------------------------


def descend(x: Array, y: Array, layers: int, frozen: bool, sign: float = -1) -> Array:
    """u after some layers with lambda = gamma = 1, the extra token last; `frozen`: it is not updated."""
    n = len(x)
    u, v, values = np.zeros(n + 1), np.zeros(n + 1), np.append(np.ones(n), -1 / n)
    real = np.append(np.ones(n), 0)
    apart = np.zeros((n + 1, n + 1))
    apart[:n, :n] = np.sum((x[:, None] - y[None]) ** 2, axis=-1) + 1
    for _ in range(layers):
        scores = u[:, None] * real[None] + real[:, None] * v[None] - apart  # ones are 0 on the extra token
        moved = sign * softmax(scores) @ values, sign * softmax(scores.T) @ values
        keep = real if frozen else np.ones(n + 1)
        u, v = u + keep * moved[0], v + keep * moved[1]
    return u[:n]


def test_the_extra_token_must_stay_and_the_sign_is_minus() -> None:
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(5, 2)), rng.normal(size=(5, 2))
    for layers in (1, 8):
        found = load(compile("sinkhorn_dual", {"d": 2}, {"lambda": 1, "gamma": 1}, layers))(x=x, y=y)["u"].numpy()
        np.testing.assert_allclose(found, descend(x, y, layers, frozen=True), rtol=0, atol=1e-13)
        moving = np.abs(found - descend(x, y, layers, frozen=False)).max()
        assert moving < 1e-13 if layers == 1 else moving > 0.1  # right in the first layer only
        assert np.abs(found - descend(x, y, layers, frozen=True, sign=1)).max() > 0.1


def test_a_sigmoid_by_softmax_over_n_tokens_has_the_bias_log_n_less_one() -> None:
    n, t = 12, 0.7
    scores = np.zeros(n)
    scores[0] = t + np.log(n - 1)
    assert softmax(scores)[0] == pytest.approx(1 / (1 + np.exp(-t)), rel=1e-15)


def test_the_plain_step_inflates_points_in_space() -> None:
    x = np.random.default_rng(0).normal(size=(50, 2))
    moved = x.copy()
    for _ in range(20):
        moved += 0.2 * softmax(moved @ moved.T) @ moved
    assert np.linalg.norm(moved, axis=1).mean() > 10 * np.linalg.norm(x, axis=1).mean()


# ---- finite temperature ----------------------------------------------------------------------------------------------


def test_figure_3_is_near_and_not_exact() -> None:
    """10,000 points, five centers, ten layers at gamma = 10^4, from the same start as the exact algorithm."""
    x = np.random.default_rng(0).normal(size=(10_000, 2))
    exact, soft = x[:5].copy(), x[:5].copy()
    leads, apart, wrong = [], [], 0
    for _ in range(10):
        distances, others = (np.sum((x[:, None] - c[None]) ** 2, axis=-1) for c in (exact, soft))
        nearest, two = np.argmin(distances, axis=1), np.sort(distances, axis=1)
        leads.append(np.min(two[:, 1] - two[:, 0]))
        shares = softmax(-1e4 * others)
        wrong += int(np.count_nonzero(np.argmax(shares, axis=1) != nearest))
        exact = np.array([x[nearest == j].mean(axis=0) for j in range(5)])
        soft = softmax(80 * shares.T) @ x
        apart.append(np.abs(exact - soft).max())
    assert 1e-5 < min(leads) < 4e-5
    assert 1e-3 < max(apart) < 4e-3
    assert wrong > 0


POINTS = np.loadtxt(ROOT / "examples" / "points.csv", delimiter=",", skiprows=1)
DIMS = {"d": 2, "k": 5}


@pytest.mark.parametrize(("sharpness", "certified", "measured"), rows("sharpness | certified | measured"))
def test_certificates_are_as_tabulated(sharpness: str, certified: str, measured: str) -> None:
    checked = checked_spec("lloyd")
    start = Stepwise(checked, DIMS, {}).start({"x": POINTS}, seed=0)
    found = Certifier(checked, DIMS, {}, float(sharpness)).certify(start, 10, {})
    assert found.margin == pytest.approx(0.146, abs=5e-4)
    assert found.holds
    assert near(found.measured, measured)
    assert np.isinf(found.bound) if certified == "none" else near(found.bound, certified)


def test_the_last_row_is_what_auto_takes() -> None:
    found = calibrate(checked_spec("lloyd"), DIMS, {}, {"x": POINTS}, 10)
    assert f"{found.sharpness:.0f}" == rows("sharpness | certified | measured")[-1][0]
    assert re.search(rf"sharpness {found.sharpness:.6g}: up to", PAGE)
