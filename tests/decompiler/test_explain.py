"""Weights back to a spec: read from the weights alone, written, compiled again, and proved equal to the file."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import weftc
from anonymous import anonymous
from weftc.compiling import checked_spec
from weftc.core.errors import WeftError
from weftc.decompiler import Explanation, explain, terms
from weftc.files.locate import catalogue
from weftc.fuzz.specs import draw
from weftc.prover import prove
from weftc.variants.disguising import disguise
from weftc_runtime import Checkpoint, load

DISGUISES: dict[str, dict[str, Any]] = {
    "plain": {},
    "rotated": {"rotate": True},
    "gauges": {"gauge": True, "split": 2},
    "distractors": {"distract": 3, "permute": True, "scale": True},
    "all": {
        "superpose": True,
        "distract": 2,
        "split": 2,
        "gauge": True,
        "permute": True,
        "scale": True,
        "rotate": True,
    },
}
SOME = ["trimmed_kmeans"]
NAMES = [entry.name for entry in catalogue()]
ALL = [*SOME, *(pytest.param(name, marks=pytest.mark.slow) for name in NAMES if name not in SOME)]
STYLES: list[dict[str, Any]] = [
    {"erase": "attention"},
    {"erase": "attention", "scores": "dot"},
    {"members": "offset"},
    {"square": "relu2"},
    {"norm": "layer"},
    {"weights": "unrolled", "layers": 2},
]
QUICK = ["lloyd", "dyck1", "sort_by_key", "reverse", "fuzzy_c_means"]
LIMITS = {  # what is printed as far as it was read, or not proved, in some styles
    "temporal_difference": "only near",
    "sort": "only near",
    "affinity_propagation": "entries told one by one",
    "conjugate_gradient": "too long",
    "gmm_diagonal": "unrolled",
    "k_medians": "mean nothing",
    "kalman_filter": "a derived slot",
    "kalman_matrix": "mean nothing",
    "kernel_pca": "mean nothing",
    "mahalanobis_kmeans": "does not show",
    "ridge_regression": "does not show",
    "spectral_cut": "mean nothing",
    "zca_whitening": "mean nothing",
    "gmm_em_spherical": "left in scratch",
    "robust_kmeans": "mean nothing",
    "trimmed_normmax": "mean nothing",
}
PROVED = ("proved", "proved up to eps")


def model(name: str, **styles: Any) -> Checkpoint:
    checked = checked_spec(name)
    return weftc.compile(checked, {dim: 3 if dim == "k" else 2 for dim in checked.dims}, **styles)


def with_tensor(made: Checkpoint, name: str, array: np.ndarray) -> Checkpoint:
    return replace(made, tensors={**made.tensors, name: array})


def holds(found: Explanation, made: Checkpoint) -> None:
    """The spec parses, compiles, and says what the file computes; proved anew, and run."""
    assert found.verdict in PROVED, f"{found}"
    assert found.model is not None
    again = weftc.compile(found.text)
    assert prove(again).verdict == "proved"
    assert prove(found.model).verdict == found.verdict
    for name, array in found.model.tensors.items():  # no weight is another
        assert name.startswith("basis.") or array.tobytes() == made.tensors[name].tobytes()


@pytest.mark.parametrize("scores", ["l2", "dot"])
@pytest.mark.parametrize("name", ALL)
def test_every_spec_is_read_from_its_weights_in_every_disguise(name: str, scores: str) -> None:
    made = model(name, scores=scores)
    for title, changes in DISGUISES.items():
        other = disguise(made, seed=5, **changes) if changes else made
        found = explain(anonymous(other))
        if found.verdict == "not shown":  # what rests on rounding is as little proved of the spec that was compiled
            assert prove(other).verdict == "not shown", (title, str(found))
            assert found.proof is not None
            assert {step.place for step in found.proof.failures} == {"decisions"}, title
        else:
            holds(found, anonymous(other))


@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in NAMES if name not in QUICK)]
)
def test_every_spec_is_read_in_every_style(name: str) -> None:
    for styles in STYLES:
        try:
            made = anonymous(model(name, **styles))
        except WeftError:
            continue  # the style has no form for it
        found = explain(made)
        if found.is_proved:
            holds(found, made)
        else:
            assert name in LIMITS, (styles, str(found))


@pytest.mark.parametrize("changes", [{}, {"split": 2, "gauge": True}])
def test_symbols_are_read_as_symbols(changes: dict[str, Any]) -> None:
    made = model("induction")
    found = explain(anonymous(disguise(made, seed=5, **changes) if changes else made))
    assert found.is_proved
    assert 'one of {"a", "b", "c", "d", "none"}' in found.text
    assert 's2[i] = s1[i - 1] else "none"' in found.text


@pytest.mark.parametrize("name", ["gmm_diagonal", "transport_barycenter"])
def test_entries_that_are_written_one_by_one_are_a_row(name: str) -> None:
    made = anonymous(model(name))
    holds(explain(made), made)


def test_terms_that_grow_too_long_are_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terms, "MOST_WORK", 10_000)
    found = explain(model("lloyd"))
    assert found.verdict == "not read"
    assert "too long" in found.reason


def test_a_disguised_trimmed_kmeans_is_given_back() -> None:
    changes = DISGUISES["all"]
    found = explain(anonymous(disguise(model("trimmed_kmeans", scores="dot"), seed=11, **changes)))
    layer = found.text.partition("layer\n")[2].partition("\n\n")[0]
    assert layer.split() == [
        "s3[i,",
        "j]",
        "=",
        "argmin[j](|s1[i]",
        "-",
        "s2[j]|^2)",
        "then",
        "s2[j]",
        "=",
        "mean[i]",
        "s1[i]",
        "by",
        "lowest[i](|s1[i]",
        "-",
        "s2[j]|^2",
        "where",
        "s3[i,",
        "j],",
        "90%)",
        "else",
        "s2[j]",
    ]
    assert found.is_proved


def test_what_is_read_does_not_depend_on_names_roles_or_text() -> None:
    made = disguise(model("weighted_kmeans"), distract=2, rotate=True, seed=2)
    assert explain(made).text == explain(anonymous(made)).text


def test_an_explained_model_computes_what_the_file_computes() -> None:
    made = disguise(model("lloyd"), rotate=True, split=2, seed=4)
    found = explain(made)
    rng = np.random.default_rng(0)
    x, c = rng.normal(size=(9, 2)), rng.normal(size=(3, 2))
    before = load(made, backend="reference")({"x": x, "c": c}, layers=3)
    after = load(weftc.compile(found.text))({"s1": x, "s2": c}, layers=3)
    assert np.allclose(before["centers"], after["o1"], rtol=0, atol=1e-12)
    assert np.array_equal(before["labels"].dense(), after["o2"].dense())


def test_a_changed_weight_is_another_spec() -> None:
    made = model("soft_kmeans")
    head = made.program.layer[0].sublayers[0].heads[0]  # type: ignore[union-attr]
    part = head.score.parts[0]
    name = part.coefficient or part.q
    other = with_tensor(made, name, np.asarray(made.tensors[name]) * 3)
    found = explain(other)
    assert "3 * |s1[i] - s2[j]|^2" in found.text
    assert not prove(other).verdict.startswith("proved")  # the spec in the file is the old one


def test_what_mixes_coordinates_is_printed_as_a_matrix() -> None:
    made = model("lloyd")
    head = made.program.layer[1].sublayers[0].heads[0]  # type: ignore[union-attr]
    value = np.asarray(made.tensors[head.value]).copy()
    rows = np.flatnonzero(value.any(axis=1))
    value[rows] = np.array([[1.0, 2.0], [0.0, 1.0]]) @ value[rows]
    found = explain(with_tensor(made, head.value, value))
    assert found.verdict == "not read"
    assert found.proof is None
    assert not found.is_proved
    assert found.unread
    assert "M" in found.text
    assert any(np.allclose(np.abs(one.matrix).max(), 2.0) for _, one in found.unread)


def test_no_equality_is_claimed_without_a_proof() -> None:
    found = explain(model("lloyd"))
    assert found.model is not None
    wrong = found.text.replace("argmin", "argmax")
    assert prove(replace(found.model, spec_text=wrong)).verdict == "not shown"


@pytest.mark.parametrize("start", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(25, 1000, 25))])
def test_random_specs_are_read_or_not_read_but_never_read_wrongly(start: int) -> None:
    for number in range(start, start + (6 if start == 0 else 25)):
        drawn = draw(7, number)
        try:
            made = weftc.compile(drawn.checked, drawn.dims, scores="l2" if number % 2 else "dot")
        except WeftError:
            continue
        found = explain(made)
        assert found.verdict in (*PROVED, "not shown", "not read"), number
        if found.is_proved and found.verdict == "proved":
            assert prove(weftc.compile(found.text)).verdict in PROVED, number


@pytest.mark.parametrize("number", [118, 109])  # a step that is not shown; a coordinate alone
def test_what_the_language_cannot_say_is_an_answer_and_no_crash(number: int) -> None:
    drawn = draw(5, number)
    found = explain(weftc.compile(drawn.checked, drawn.dims, scores="dot"))
    assert not found.is_proved
    assert found.verdict in ("not read", "not shown")
