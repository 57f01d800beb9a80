"""Translation validation: what is proved, and what must not be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from agreement import default_dims
from verifying import NEAREST
from weftc.compiling import checked_spec, compile
from weftc.core.errors import InputError
from weftc.files.locate import names
from weftc.prover import prove
from weftc.verification.proofs import proofs
from weftc.verification.verification import verify
from weftc_runtime import Checkpoint
from weftc_runtime.format.program import Attend, Head, ProgramStep

INVENTIONS = sorted(str(path) for path in (Path(__file__).parents[1] / "inventions").glob("*.weft"))
STYLES: tuple[Mapping[str, str], ...] = (
    {"scores": "dot", "centre": "off"},
    {"scores": "dot", "centre": "on", "square": "relu2"},
    {"erase": "attention"},
    {"scores": "dot", "erase": "attention"},
    {"weights": "unrolled", "norm": "layer"},
)
SHORT = ["gmm_em_spherical", "lloyd", "sinkhorn_dual", "sort", "spherical_kmeans", "weighted_kmeans"]


def model(name: str, **styles: str) -> Checkpoint:
    checked = checked_spec(name)
    layers = 2 if styles.get("weights") == "unrolled" else None
    return compile(checked, default_dims(checked), layers=layers, **styles)  # type: ignore[arg-type]


# ---- what is proved --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*names(), *INVENTIONS])
def test_every_spec_is_proved_in_both_styles_of_scores(name: str) -> None:
    for scores in ("l2", "dot"):
        proof = prove(model(name, scores=scores))
        assert proof.verdict == "proved", proof.text()
        assert proof.eps == 0


@pytest.mark.parametrize("styles", STYLES, ids=lambda styles: "-".join(styles.values()))
def test_every_style_is_proved(styles: Mapping[str, str]) -> None:
    for name in SHORT:
        proof = prove(model(name, **styles))
        rounded = styles.get("norm") == "layer"
        assert proof.verdict in (("proved", "proved up to eps") if rounded else ("proved",)), proof.text()
        assert proof.eps < 1e-15


@pytest.mark.slow
@pytest.mark.parametrize("name", [*names(), *INVENTIONS])
@pytest.mark.parametrize("styles", STYLES, ids=lambda styles: "-".join(styles.values()))
def test_every_spec_is_proved_in_every_style(name: str, styles: Mapping[str, str]) -> None:
    try:
        made = model(name, **styles)
    except InputError:  # erase=attention needs an input that tells tokens apart
        assert "erase" in styles
        return
    proof = prove(made)
    assert proof.verdict != "not shown", proof.text()
    assert proof.eps < 1e-15


def test_a_model_of_finite_temperature_is_held_against_the_spec_at_that_temperature() -> None:
    checked = checked_spec("lloyd")
    tempered = compile(checked, {"d": 2, "k": 2}, hardmax="softmax", sharpness=8.0)
    check, _ = proofs(checked, [tempered], "softmax")
    assert check.shows == "proved"
    assert prove(tempered).verdict == "not shown"


@pytest.mark.parametrize("name", ["sinkhorn_dual", "sort"])
def test_a_null_token_is_one_more_key(name: str) -> None:
    made = model(name, scores="dot", null="token")
    assert any(stream.null for stream in made.program.streams)
    assert prove(made).verdict == "proved"
    streams = tuple(replace(stream, null=False) for stream in made.program.streams)
    assert prove(replace(made, program=replace(made.program, streams=streams))).verdict == "not shown"


def test_erasing_by_attention_rests_on_its_condition() -> None:
    erasing = model("lloyd", erase="attention")
    assert prove(erasing).assumptions == (erasing.program.conditions[0].text,)
    careless = replace(erasing, program=replace(erasing.program, conditions=()))
    assert prove(careless).verdict == "not shown"


@pytest.mark.parametrize("fallback", ["", " else m[b]"])
@pytest.mark.parametrize("styles", [{"erase": "attention"}, {"square": "relu2"}], ids=lambda styles: "".join(styles))
def test_quotients_of_signed_numbers_stop_where_the_spec_does(fallback: str, styles: Mapping[str, str]) -> None:
    """A quotient that attention moves is read by every token; a bit made of [n > 0] and [n >= 0] says where n is 0."""
    text = f"algorithm t\ntokens a, b in p\ninputs n[a] : R, m[a] : R\nlayer m[b] = n[b] / (m[b] - n[b]){fallback}\n"
    assert prove(compile(f"{text}outputs m\n", {}, **styles)).verdict == "proved"  # type: ignore[arg-type]


def test_verify_does_not_call_a_model_proved_that_lost_or_loosened_its_condition() -> None:
    erasing = compile("lloyd", {"d": 1, "k": 2}, erase="attention")
    (condition,) = erasing.program.conditions
    assert verify(erasing, cases=2).verdict == "proved"
    loosened = replace(condition, slots=("x", "y"))  # rows may agree in x now, as long as they differ in y
    elsewhere = replace(condition, stream="centers", slots=("c",))
    for conditions in ((), (loosened,), (elsewhere,)):
        verdict = verify(replace(erasing, program=replace(erasing.program, conditions=conditions)), cases=2)
        assert verdict.verdict == "tested", verdict.text()  # equal rows hold equal choices there: no run shows it
        assert any(step.strength == "not shown" for step in verdict.proofs[0].steps)


def test_a_condition_that_is_needed_is_missed_by_the_comparison_too() -> None:
    """Equal tokens that draw differently hold different choices, which an erase by attention mixes."""
    drawing = NEAREST.split("example")[0].replace(
        "argmin[j] |x[i] - c[j]|^2", "sample[j](-|x[i] - c[j]|^2 noise g[i,j])"
    )
    erasing = compile(f"{drawing}random g[i,j] : gumbel\n", {"d": 1, "k": 2}, erase="attention")
    assert verify(erasing, cases=8, dtypes=["float64"]).verdict == "proved"
    careless = replace(erasing, program=replace(erasing.program, conditions=()))
    verdict = verify(careless, cases=8, dtypes=["float64"])
    assert verdict.verdict == "refuted"
    assert {check.backend for check in verdict.checks if not check.passed and not check.proof} == {
        "reference",
        "planned",
    }


def test_the_prelude_must_leave_what_the_embedding_fills() -> None:
    made = model("lloyd", scores="dot")
    name = next(name for name in made.tensors if name.startswith("start") and name.endswith("carry.points"))
    slot = made.program.stream("points").slot("1")
    cleared = np.array(made.tensors[name])
    cleared[slot.offset, slot.offset] = 0
    proof = prove(replace(made, tensors={**made.tensors, name: cleared}))
    assert proof.verdict == "not shown"
    assert any("the constant 1 of points changes" in step.reason for step in proof.failures)


def test_the_prelude_must_not_stop_where_the_spec_has_a_value() -> None:
    made = model("lloyd", scores="dot")
    *before, step = made.program.prelude
    attend = step.sublayers[0]
    assert isinstance(attend, Attend)
    stopping = tuple(replace(h, weighting=replace(h.weighting, kind="normalize")) for h in attend.heads)  # scores are 0
    changed = replace(step, sublayers=(replace(attend, heads=stopping), *step.sublayers[1:]))
    proof = prove(replace(made, program=replace(made.program, prelude=(*before, changed))))
    assert proof.verdict == "not shown"
    assert any("stops with an error" in step.reason for step in proof.failures)


def test_constants_that_are_rounded_are_listed() -> None:
    assert any(note.startswith("1/3 ") for note in prove(model("gmm_em")).constants)


def test_the_report_names_equations_and_invariants() -> None:
    proof = prove(model("lloyd", scores="dot"))
    text = proof.text()
    assert "c[j] = mean[i] x[i] where y[i,j] else c[j]" in text
    assert "head c (normalize, centers <- points)" in text
    assert any("is one-hot" in line for line in proof.invariants)
    assert any("is a function of fields and constants" in line for line in proof.invariants)
    assert proof.json()["verdict"] == "proved"


# ---- equivalent weights ----------------------------------------------------------------------------------------------


def with_tensors(made: Checkpoint, **tensors: np.ndarray) -> Checkpoint:
    return replace(made, tensors={**made.tensors, **{key.replace("__", "."): value for key, value in tensors.items()}})


def mixed(made: Checkpoint, mix: np.ndarray, inverse: np.ndarray, part: int = 0) -> Checkpoint:
    """The first head of the first step with Q -> A Q, K -> A^-T K."""
    one = first_head(made).score.parts[part]
    tensors = {one.q: mix @ made.tensors[one.q], one.k: inverse.T @ made.tensors[one.k]}
    return replace(made, tensors={**made.tensors, **tensors})


def first_head(made: Checkpoint) -> Head:
    attend = made.program.layer[0].sublayers[0]
    assert isinstance(attend, Attend)
    return attend.heads[0]


def test_only_the_product_of_queries_and_keys_counts() -> None:
    made = model("lloyd", scores="dot")
    size = made.tensors[first_head(made).score.parts[0].q].shape[0]
    mix = np.eye(size) + np.diag(np.arange(1.0, size), 1)
    inverse = np.round(np.linalg.inv(mix))
    assert np.array_equal(mix @ inverse, np.eye(size))
    assert prove(mixed(made, mix, inverse)).verdict == "proved"
    assert prove(mixed(made, mix, np.eye(size))).verdict == "not shown"


def rotation(size: int, seed: int = 0) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(size, size)))[0]


@pytest.mark.parametrize("scores", ["l2", "dot"])
def test_rotated_queries_and_keys_are_proved_up_to_rounding(scores: str) -> None:
    made = model("lloyd", scores=scores)
    turn = rotation(made.tensors[first_head(made).score.parts[0].q].shape[0])
    proof = prove(mixed(made, turn, turn.T))
    assert proof.verdict == "proved up to eps"
    assert 0 < proof.eps < 1e-13
    wrong = turn.copy()
    wrong[0, 0] += 1e-6
    assert prove(mixed(made, wrong, turn.T)).verdict == "not shown"


def rewired(made: Checkpoint, step: int, heads: tuple[Head, ...], **tensors: np.ndarray) -> Checkpoint:
    old = made.program.layer[step]
    attend = old.sublayers[0]
    assert isinstance(attend, Attend)
    new = ProgramStep((replace(attend, heads=heads), *old.sublayers[1:]), old.writes, old.equations)
    layer = tuple(new if at == step else one for at, one in enumerate(made.program.layer))
    return with_tensors(replace(made, program=replace(made.program, layer=layer)), **tensors)


def test_a_head_in_two_halves_is_the_head() -> None:
    made = model("soft_kmeans")
    attend = made.program.layer[1].sublayers[0]
    assert isinstance(attend, Attend)
    (head,) = attend.heads
    value = made.tensors[head.value]
    halves = tuple(replace(head, name=name, value=name) for name in ("one", "two"))
    assert prove(rewired(made, 1, halves, one=value / 2, two=value / 2)).verdict == "proved"
    assert prove(rewired(made, 1, halves, one=value / 2, two=value / 4)).verdict == "not shown"
    first, second = value.copy(), value.copy()
    first[:, 0], second[:, 1:] = 0, 0
    assert prove(rewired(made, 1, halves, one=first, two=second)).verdict == "proved"


def test_heads_may_stand_in_any_order() -> None:
    made = model("gmm_em")
    attend = made.program.layer[0].sublayers[0]
    assert isinstance(attend, Attend)
    assert len(attend.heads) > 1
    assert prove(rewired(made, 0, attend.heads[::-1])).verdict == "proved"


def test_steps_that_are_run_as_one_are_proved_as_a_whole_layer() -> None:
    made = model("soft_kmeans")
    first, second = made.program.layer
    fused = ProgramStep(first.sublayers + second.sublayers, first.writes + second.writes)
    proof = prove(replace(made, program=replace(made.program, layer=(fused,), outputs=made.program.outputs[:0])))
    assert proof.verdict == "not shown"  # an output is missing
    outputs = tuple(replace(output, again=None if output.again is None else 0) for output in made.program.outputs)
    proof = prove(replace(made, program=replace(made.program, layer=(fused,), outputs=outputs)))
    layer = [step for step in proof.steps if step.place.startswith("layer")]
    assert layer
    assert all(step.strength == "proved" for step in layer), proof.text()
    assert "the whole layer" in layer[0].matched


# ---- speed -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("scores", ["l2", "dot"])
@pytest.mark.parametrize(("d", "k"), [(256, 256), (500, 12)])
def test_wide_models_are_proved(scores: str, d: int, k: int) -> None:
    assert prove(compile("lloyd", {"d": d, "k": k}, scores=scores)).verdict == "proved"  # type: ignore[arg-type]


@pytest.mark.parametrize("scores", ["l2", "dot"])
def test_models_of_some_width_are_proved(scores: str) -> None:
    assert prove(compile("lloyd", {"d": 24, "k": 20}, scores=scores)).verdict == "proved"  # type: ignore[arg-type]
