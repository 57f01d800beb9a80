"""Specs at finite temperature: what becomes of them, how near they are, what the sharpness means."""

from __future__ import annotations

import math

import numpy as np
import pytest

import weftc
from weftc.compiling import checked_spec
from weftc.core.errors import InputError
from weftc.files.locate import names
from weftc.passes.finite_temperature import MEMBERSHIP, has_choices, tempered
from weftc.passes.sharpness import EPS, lead, sharpness_for

NAMES = names("")
CHOOSING = [name for name in NAMES if has_choices(checked_spec(name))]
SHARP = 1e4


@pytest.mark.parametrize("name", NAMES)
def test_a_tempered_spec_chooses_nowhere(name: str) -> None:
    checked = checked_spec(name)
    if name in CHOOSING:
        made = tempered(checked, SHARP)
        assert not has_choices(made)
        assert not any(f.kind == "onehot" for f in made.fields.values())
        assert [f.name for f in made.fields.values()] == [f.name for f in checked.fields.values()]
    else:
        plain, soft = (weftc.compile(checked, _dims(name), hardmax=h) for h in ("exact", "softmax"))
        assert plain.program.layer == soft.program.layer


def _dims(name: str) -> dict[str, int]:
    return {dim: 3 if dim == "k" else 2 for dim in checked_spec(name).dims}


CLUSTERS = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [9.0, 9.0], [9.0, 8.0], [-9.0, 8.0]])
CENTERS = np.array([[1.0, 1.0], [8.0, 8.0], [-8.0, 8.0]])


@pytest.mark.parametrize("scores", ["l2", "dot"])
@pytest.mark.parametrize("name", ["lloyd", "lloyd_split", "lloyd_printed", "trimmed_kmeans", "robust_kmeans"])
def test_far_apart_clusters_come_out_as_they_should(name: str, scores: str) -> None:
    exact, soft = (weftc.compile(name, {"d": 2, "k": 3}, hardmax=h, scores=scores) for h in ("exact", "softmax"))  # type: ignore[arg-type]
    want, got = (weftc.load(made)(x=CLUSTERS, c=CENTERS, layers=3)["centers"] for made in (exact, soft))
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-12)


def test_an_empty_cluster_keeps_its_center() -> None:
    for name in ("lloyd", "lloyd_split", "robust_softmax", "trimmed_kmeans"):
        model = weftc.load(weftc.compile(name, {"d": 1, "k": 2}, hardmax="softmax"))
        got = model(x=[[0.0], [1.0]], c=[[0.0], [70.0]], layers=2)["centers"]
        np.testing.assert_allclose(got[1], 70.0, rtol=1e-12)


def test_labels_are_shares() -> None:
    model = weftc.load(weftc.compile("lloyd", {"d": 1, "k": 2}, hardmax="softmax", sharpness=1.0))
    shares = model(x=[[0.0]], c=[[0.0], [1.0]], layers=1)["labels"]
    assert shares[0].tolist() == pytest.approx([1 / (1 + math.exp(-1)), 1 / (1 + math.exp(1))])


@pytest.mark.parametrize("name", CHOOSING)
def test_the_checkpoint_says_what_it_is(name: str) -> None:
    made = weftc.compile(name, _dims(name), hardmax="softmax", sharpness=50.0)
    assert made.program.options["hardmax"] == "softmax"
    assert float(made.program.options["sharpness"]) == 50.0
    conditions = [c for c in made.program.conditions if c.kind == "margin"]
    assert conditions
    assert all(c.limit > 0 and "sharpness 50" in c.text for c in conditions)
    kinds = {h.weighting.kind for s in made.program.layer for b in s.sublayers for h in getattr(b, "heads", ())}
    assert "argmax" not in kinds


# ---- the numbers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("eps", [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("count", [2, 8, 1000])
def test_the_lead_is_tight(count: int, eps: float) -> None:
    """All losers exactly at the margin: the distance to one-hot is eps itself."""
    scores = np.zeros(count)
    scores[0] = 1.0
    sharp = np.exp(sharpness_for(1.0, count, eps) * (scores - 1.0))
    weights = sharp / sharp.sum()
    assert 2 * float(weights[1:].sum()) == pytest.approx(eps, rel=1e-6)


def test_a_number_worked_by_hand() -> None:
    assert sharpness_for(1.0, 8, 1e-3) == pytest.approx(math.log(7 * 1.999 / 1e-3))


def test_auto_is_enough_for_its_margin() -> None:
    made = weftc.compile("lloyd", {"d": 1, "k": 4}, hardmax="softmax")
    sharpness = float(made.program.options["sharpness"])
    assert sharpness == pytest.approx(lead(4) / 1e-3)
    x = np.array([[0.0]])
    c = np.array([[1.0], [-math.sqrt(1.0 + 1e-3)], [math.sqrt(1.0 + 1e-3)], [5.0]])
    shares = weftc.load(made)(x=x, c=c, layers=1)["labels"][0]
    assert 2 * (1 - float(shares[0])) <= EPS


def test_members_outweigh_the_fallback_and_foreign_tokens() -> None:
    assert math.exp(-MEMBERSHIP / 2) < 1e-17


# ---- what a run says -------------------------------------------------------------------------------------------------


def test_a_run_measures_the_leads_and_warns() -> None:
    model = weftc.load(weftc.compile("lloyd", {"d": 1, "k": 2}, hardmax="softmax", sharpness=100.0))
    model(x=[[0.0], [3.0]], c=[[0.0], [3.0]], layers=2)
    assert model.report.warnings == ()
    model(x=[[0.0], [1.0]], c=[[0.0], [1.9]], layers=1)  # 1 leads by 1 - 0.81
    assert model.report.warnings == ()
    model(x=[[0.0], [1.0]], c=[[0.0], [1.99]], layers=1)  # by 1 - 0.9801: too little
    (warning,) = model.report.warnings
    assert f"leads by {lead(2) / 100:.3g}" in warning
    assert f"in layers.0.blocks.0.y it led by {1 - 0.99**2:.3g} only" in warning


def test_shared_scores_are_no_short_lead() -> None:
    model = weftc.load(weftc.compile("lloyd_split", {"d": 1, "k": 2}, hardmax="softmax"))
    model(x=[[0.0]], c=[[-1.0], [1.0]], layers=1)
    assert model.report.warnings == ()


# ---- sharpness from data ---------------------------------------------------------------------------------------------


def test_sharpness_from_data_is_enough_for_them() -> None:
    data = {"x": CLUSTERS, "c": CENTERS}
    made = weftc.compile("lloyd", {"d": 2, "k": 3}, hardmax="softmax", data=data)
    assert float(made.program.options["sharpness"]) < lead(3) / 1e-3
    want, got = (weftc.load(m)(**data, layers=3) for m in (weftc.compile("lloyd", {"d": 2, "k": 3}), made))
    np.testing.assert_allclose(got["centers"], want["centers"], rtol=0, atol=1e-6)


def test_data_with_a_tie_have_no_sharpness() -> None:
    with pytest.raises(InputError, match="no sharpness is enough for these data: in layer 1 the best scores"):
        weftc.compile("lloyd", {"d": 1, "k": 2}, hardmax="softmax", data={"x": [[0.0]], "c": [[-1.0], [1.0]]})


def test_data_are_for_auto_only() -> None:
    with pytest.raises(InputError, match="data are for hardmax=softmax with sharpness=auto"):
        weftc.compile("lloyd", {"d": 2, "k": 3}, data={"x": CLUSTERS})
