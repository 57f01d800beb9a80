"""What a report draws is what the model did: weights, margins, objectives, positions; which head is which equation."""

from __future__ import annotations

import json

import numpy as np
import pytest

import weftc
from report_pages import Page, weights
from weftc.show.page import recording as recordings
from weftc.show.page.equations import correspondence
from weftc.show.page.formulas import Formulas
from weftc.show.page.payload import payload, script_json
from weftc.show.page.plane import plane
from weftc.show.page.recording import Depth, record
from weftc.show.page.thinning import LAYERS, TOKENS, Frames, evenly
from weftc_runtime.format.program import Attend

POINTS = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [8.0, 8.0], [9.0, 8.0], [8.0, 9.0], [20.0, 0.0]])
START = np.array([[1.0, 1.0], [7.0, 7.0]])


def squares(points: np.ndarray, centers: np.ndarray) -> np.ndarray:
    return ((points[:, None] - centers[None]) ** 2).sum(-1)


def test_weights_margins_and_objective_by_hand() -> None:
    data = Page(weftc.report("lloyd", {"x": POINTS, "c": START}, layers=2, verify=False)).data
    choose, move = data["patterns"]
    assert (choose["query"], choose["keys"], move["query"], move["keys"]) == ("points", "centers", "centers", "points")
    centers = START
    for layer in (1, 2):
        distances = squares(POINTS, centers)
        chosen = distances.argmin(1)
        onehot = np.eye(2)[chosen]
        assert np.array_equal(weights(choose, layer), onehot[choose["rows"]])
        mean = (onehot / onehot.sum(0)).T
        drawn = weights(move, layer)
        assert np.allclose(drawn[:, :-1], mean[:, move["columns"]], atol=1 / 255)
        assert not drawn[:, -1].any()  # no cluster is empty
        ranked = np.sort(distances, axis=1)
        lead = ranked[:, 1] - ranked[:, 0]
        (margin,) = data["margins"]
        assert margin["smallest"][layer] == pytest.approx(lead.min(), rel=1e-6)
        assert margin["middle"][layer] == pytest.approx(np.median(lead), rel=1e-6)
        centers = mean @ POINTS
        assert data["objective"][layer] == pytest.approx(squares(POINTS, centers).min(1).sum(), rel=1e-6)
    assert data["objective"][0] == pytest.approx(squares(POINTS, START).min(1).sum(), rel=1e-6)
    assert choose["frames"][0] is None


def test_empty_cluster_looks_at_itself() -> None:
    data = Page(weftc.report("lloyd", {"x": POINTS, "c": [[0.0, 0.0], [500.0, 500.0]]}, layers=1, verify=False)).data
    move = data["patterns"][1]
    assert move["rest"] == "the token itself"
    assert weights(move, 1)[:, -1].tolist() == [0.0, 1.0]


def test_null_key_has_what_is_left() -> None:
    data = Page(weftc.report("sinkhorn_dual", {"x": POINTS / 9, "y": POINTS / 9}, layers=1, verify=False)).data
    first = data["patterns"][0]
    assert first["rest"] == "null key"
    drawn = weights(first, 1)
    assert np.allclose(drawn.sum(1), 1.0, atol=len(POINTS) / 255)


def test_positions_map_back_to_coordinates() -> None:
    data = Page(weftc.report("lloyd", {"x": POINTS, "c": START}, layers=1, verify=False)).data
    shown = data["plane"]
    low, high = np.array(shown["low"]), np.array(shown["high"])

    def back(field: int, frame: int) -> np.ndarray:
        return low + np.reshape(shown["fields"][field]["frames"][frame], (-1, 2)) / 9999 * (high - low)

    step = float((high - low).max()) / 9999
    assert np.abs(back(0, 0) - POINTS).max() <= step
    assert np.abs(back(1, 0) - START).max() <= step
    assert not shown["fields"][0]["moves"]
    assert shown["fields"][1]["moves"]
    assert shown["equal"]
    assert shown["groups"]["points"][1] == squares(POINTS, START).argmin(1).tolist()


def test_principal_components_of_wide_vectors() -> None:
    wide = np.random.default_rng(0).normal(size=(40, 6)) * [9.0, 5.0, 1.0, 0.1, 0.1, 0.1]
    checked = weftc.check("lloyd")
    model = weftc.load(weftc.compile(checked, dims={"d": 6, "k": 2}))
    run = record(model, checked, {"x": wide, "c": wide[:2]}, Depth(1), 0)
    shown = plane(run, checked, {"d": 6, "k": 2}, {})
    assert shown is not None
    assert "principal components" in shown.how
    base = np.concatenate([wide, wide[:2]])
    centred = base - base.mean(0)
    spread = np.sort(np.linalg.eigvalsh(centred.T @ centred))[::-1]
    trail = shown.trails[0].frames[0]
    every = np.concatenate([trail, shown.trails[1].frames[0]])
    assert np.allclose(np.sort((every**2).sum(0))[::-1], spread[:2])
    assert f"{100 * spread[:2].sum() / spread.sum():.0f} %" in shown.how


def test_stretched_axes_say_so() -> None:
    page = Page(weftc.report("lloyd", {"x": POINTS * [1.0, 100.0], "c": START}, layers=1, verify=False))
    assert not page.data["plane"]["equal"]
    assert "units of their own" in page.text


def test_large_inputs_are_thinned_and_the_page_says_so() -> None:
    many = np.random.default_rng(0).normal(size=(3000, 2))
    page = Page(weftc.report("lloyd", many, dims={"k": 3}, layers=2, verify=False))
    points = page.data["plane"]["fields"][0]
    assert len(points["tokens"]) == TOKENS
    assert (points["tokens"][0], points["tokens"][-1]) == (0, 2999)
    assert f"{TOKENS} evenly spaced ones are drawn" in page.text
    # the objective is that of all points, not of those drawn
    model = weftc.load(weftc.compile("lloyd", dims={"d": 2, "k": 3}))
    assert page.data["objective"][2] == pytest.approx(float(model.objective(x=many, layers=2, seed=0)), rel=1e-6)


def test_too_many_pairs_are_weighed_among_the_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Page(weftc.report("lloyd", {"x": POINTS, "c": START}, layers=2, verify=False)).data
    monkeypatch.setattr(recordings, "WORK", 5)
    monkeypatch.setattr(recordings, "ROWS", 6)
    page = Page(weftc.report("lloyd", {"x": POINTS, "c": START}, layers=2, verify=False))
    assert "of the drawn tokens alone" in page.text
    few = page.data
    assert few["plane"] == whole["plane"]  # the run is of all
    assert few["objective"] == whole["objective"]
    choose, before = few["patterns"][0], whole["patterns"][0]
    assert len(choose["rows"]) == 6
    again = {token: row for token, row in zip(before["rows"], weights(before, 2), strict=True)}
    assert np.array_equal(weights(choose, 2), [again[token] for token in choose["rows"]])


def test_noise_of_the_drawn_is_that_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"x": POINTS, "c": START}
    whole = Page(weftc.report("kmedoids", given, layers=2, verify=False)).data["patterns"][1]
    monkeypatch.setattr(recordings, "WORK", 5)
    monkeypatch.setattr(recordings, "ROWS", 6)
    few = Page(weftc.report("kmedoids", given, layers=2, verify=False)).data["patterns"][1]
    chosen = {token: column for token, column in zip(whole["columns"], weights(whole, 2).T, strict=True)}
    drawn = {token: column for token, column in zip(few["columns"], weights(few, 2).T, strict=True)}
    winners = [token for token, column in chosen.items() if column.any()]
    assert winners
    for token in winners:  # who wins among all wins among some, with the same noise
        if token in drawn:
            assert np.array_equal(drawn[token], chosen[token])
    assert set(winners) & set(drawn)


def test_many_layers_keep_the_first_and_the_last() -> None:
    page = Page(weftc.report("sinkhorn_dual", {"x": POINTS[:3] / 9, "y": POINTS[:3] / 9}, layers=101, verify=False))
    layers = page.data["layers"]
    assert (layers[0], layers[-1]) == (0, 101)
    assert len(layers) <= LAYERS + 2
    assert all(frame is not None for frame in page.data["patterns"][0]["frames"][1:])
    assert "Of 101 layers" in page.text


def test_thinning() -> None:
    assert evenly(5, 9).tolist() == [0, 1, 2, 3, 4]
    assert evenly(100, 4).tolist() == [0, 33, 66, 99]
    frames, kept = Frames(4), []
    for layer in range(40):
        if frames.wants(layer):
            kept = frames.thin([*kept, layer])
    assert kept == [0, 16, 32]


def test_a_run_ends_by_itself_when_nothing_visible_changes() -> None:
    page = Page(weftc.report("soft_kmeans", {"x": POINTS, "c": START}, params={"gamma": 0.1}, verify=False))
    assert 2 < page.data["ran"] < 50
    assert "a millionth of its range" in page.text
    page = Page(weftc.report("lloyd", {"x": POINTS, "c": START}, until_stable=True, verify=False))
    assert "by a single bit" in page.text
    model = weftc.load(weftc.compile("lloyd", dims={"d": 2, "k": 2}))
    model(x=POINTS, c=START, until_stable=True)
    assert page.data["ran"] == model.report.layers[0]


# ---- equations and heads ---------------------------------------------------------------------------------------------


def parts(spec: str, **options: str) -> dict[str, list[str]]:
    checked = weftc.check(spec)
    made = weftc.compile(checked, dims=dict.fromkeys(checked.dims, 2), **options)
    found = correspondence(checked, made)
    return {line.text: list(found.parts_of(line)) for line in found.lines}


def test_equations_know_their_heads() -> None:
    assert parts("lloyd") == {
        "y[i,j] = argmin[j] |x[i] - c[j]|^2": ["layer.0.0.0"],
        "c[j] = mean[i] x[i] where y[i,j] else c[j]": ["layer.1.0.0"],
        "sum[i] min[j] |x[i] - c[j]|^2": ["readout.0.0.0"],
    }
    found = parts("sinkhorn_dual")
    assert found["u[s] += gamma * (1/count(pairs) - sum[t] M[s,t]) / (1 + sum[t] M[s,t])"] == ["layer.0.0.0"]
    assert found["v[t] += gamma * (1/count(pairs) - sum[s] M[s,t]) / (1 + sum[s] M[s,t])"] == ["layer.0.0.1"]
    assert found["plan[s,t] = count(pairs) * M[s,t]"] == ["output.plan"]
    definition = "M[s,t] = exp((u[s] + v[t] - |x[s] - y[t]|^2) / lambda - 1)"
    assert found[definition] == ["layer.0.0.0", "layer.0.0.1", "output.plan"]


def test_scratch_is_followed_through_steps() -> None:
    found = parts("soft_kmeans")  # the mean is weighted in the log domain, by heads of the step before
    assert found["c[j] = mean[i] x[i] weighted y[i,j]"] == ["layer.0.0.1", "layer.0.0.2", "layer.1.0.0"]


@pytest.mark.parametrize("options", [{}, {"scores": "dot"}, {"erase": "attention"}])
def test_every_head_of_a_layer_belongs_to_an_equation(options: dict[str, str]) -> None:
    for name in ("lloyd", "trimmed_kmeans", "power_iteration", "sinkhorn_log", "weighted_kmeans"):
        checked = weftc.check(name)
        made = weftc.compile(checked, dims=dict.fromkeys(checked.dims, 2), **options)
        found = correspondence(checked, made)
        heads = [key for key in found.parts if key.startswith("layer.") and key.count(".") == 3]
        assert heads
        assert all(found.parts[key] for key in heads), name


def test_formulas_are_read_off_the_weights() -> None:
    made = weftc.compile("lloyd", dims={"d": 2, "k": 3})
    sublayer = made.program.layer[0].sublayers[0]
    assert isinstance(sublayer, Attend)
    head = sublayer.heads[0]
    formulas = Formulas(made)
    assert formulas.score(head.score, head.query, head.keys) == "−|x − c|²"
    assert formulas.value(head) == ["y ← id()"]
    part = head.score.parts[0]
    made.tensors[part.k][0, 0] = 2.0  # no multiple of an identity any more: row by row
    assert Formulas(made).score(head.score, head.query, head.keys) == "−|x − [2 c[1]; c[2]]|²"
    assert part.coefficient is not None
    changed = {**made.tensors, part.coefficient: np.array(-3.0)}
    other = weftc.Checkpoint(made.program, changed, made.spec_name, made.spec_text, made.dims, made.params)
    assert Formulas(other).score(head.score, head.query, head.keys).startswith("−3 |x")


def test_same_stream_tells_query_and_key_apart() -> None:
    page = Page(weftc.report("sinkhorn_dual", {"x": POINTS, "y": POINTS}, layers=1, verify=False))
    assert "10 u + 10 v′ − 1 − 10 |x − y′|²" in page.text


# ---- the data block --------------------------------------------------------------------------------------------------


def test_data_cannot_end_its_element() -> None:
    text = script_json({"</script><!--": "a & b\u2028\u2029\x00 <img>"})
    assert not set("<>&\u2028\u2029\x00") & set(text)
    assert json.loads(text) == {"</script><!--": "a & b\u2028\u2029\x00 <img>"}


def test_what_json_cannot_hold_is_absent() -> None:
    checked = weftc.check("lloyd")
    model = weftc.load(weftc.compile(checked, dims={"d": 2, "k": 2}))
    run = record(model, checked, {"x": POINTS, "c": START}, Depth(1), 0, lambda fields: float("nan"))
    found = payload(run, model.program, checked, None)
    assert found["objective"] is None
    script_json(found)
