"""Every built-in spec in every style that applies to it, in both precisions, against the interpreter."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import weftc
from agreement import assert_agrees, default_dims, judge
from weftc.compiling import checked_spec
from weftc.core.errors import InputError, SpecError
from weftc.core.styles import CHOICES, Styles
from weftc.files.locate import names
from weftc.show.style_effects import Effect, choices, chosen, effect, same
from weftc.verification.cases.inputs import FAMILIES, cases
from weftc.verification.steps.layers import Judge
from weftc_runtime.errors import RunError
from weftc_runtime.machines.choose import BACKENDS

NAMES = names("")
EVERY = [(name, style, value) for name in NAMES for style, value in choices()]
DTYPES = ("float64", "float32")


@pytest.mark.parametrize("backend", BACKENDS[1:])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("name", "style", "value"), EVERY)
def test_every_style_computes_the_spec(name: str, style: str, value: str, dtype: str, backend: str) -> None:
    checked = checked_spec(name)
    dims, turn = default_dims(checked), EVERY.index((name, style, value))
    found = effects(name)[style, value]
    if found.refusal:
        assert f"{style}={value}" in found.refusal
        return
    if not found.differs:
        return  # the same transformer: tests/passes/test_specs.py has it
    judged = judge(checked, dims, dtype=dtype, backend=backend, **chosen(style, value))
    if backend == "planned" and not covered(judged):
        return
    seed = 5 + 2 * DTYPES.index(dtype) + BACKENDS.index(backend)
    hard = cases(checked, dims, 1, seed, np.dtype(dtype), first=turn)  # a family in turn
    ordinary = cases(checked, dims, 1, seed, np.dtype(dtype), first=turn, families=("random",))
    assert_agrees(judged, [*hard, *ordinary])


@cache
def effects(name: str) -> dict[tuple[str, str], Effect]:
    checked = checked_spec(name)
    return {(style, value): effect(checked, default_dims(checked), style, value) for style, value in choices()}


def covered(judged: Judge) -> bool:
    """Whether the planned backend runs a model; if not, it says why."""
    try:
        judged.watched.model.plan()
    except RunError as error:
        refusal = str(error)
    else:
        return True
    assert any(reason in refusal for reason in ("finite temperature", "null token", "the same step has computed"))
    return False


COMBINATIONS = [
    {"scores": "dot", "centre": "off", "erase": "attention", "square": "relu2"},
    {"scores": "dot", "hardmax": "softmax", "norm": "layer", "weights": "unrolled", "layers": 2},
    {"hardmax": "softmax", "erase": "attention", "members": "offset"},
    {"scores": "dot", "members": "offset", "norm": "layer", "square": "relu2"},
    {"scores": "dot", "null": "token", "erase": "attention", "weights": "unrolled", "layers": 2},
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("number", range(len(COMBINATIONS)))
def test_styles_combine(name: str, number: int) -> None:
    checked = checked_spec(name)
    dims = default_dims(checked)
    try:
        judged = judge(checked, dims, dtype="float64", **COMBINATIONS[number])
    except (SpecError, InputError) as error:
        refusal = str(error)
    else:
        refusal = ""
    if refusal:
        assert "members=offset" in refusal or "null=token" in refusal
        return
    at = len(FAMILIES) * (number + NAMES.index(name))
    assert_agrees(judged, cases(checked, dims, 2, seed=6, first=at))


def test_every_style_makes_a_difference_somewhere() -> None:
    shown = {(style, value) for style, value in choices() if (style, value) != ("centre", "on")}
    for style, value in shown:
        specs = [checked_spec(name) for name in NAMES]
        assert any(effect(c, default_dims(c), style, value).differs for c in specs), (style, value)


def test_defaults_are_first_and_recorded() -> None:
    assert all(values[0] == getattr(Styles(), style) for style, values in CHOICES.items())
    made = weftc.compile("lloyd", {"d": 2, "k": 3})
    assert {name: made.program.options[name] for name in CHOICES} == {name: v[0] for name, v in CHOICES.items()}
    assert "sharpness" not in made.program.options
    assert Styles.read(made.program.options) == Styles()


def test_what_does_not_go_together_is_refused() -> None:
    with pytest.raises(InputError, match="null=token needs scores=dot"):
        weftc.compile("sinkhorn_dual", {"d": 2}, null="token")
    with pytest.raises(InputError, match="sharpness belongs to hardmax=softmax"):
        weftc.compile("lloyd", {"d": 2, "k": 3}, sharpness=10.0)
    with pytest.raises(InputError, match="sharpness must be a number above 0"):
        weftc.compile("lloyd", {"d": 2, "k": 3}, hardmax="softmax", sharpness=-1.0)
    with pytest.raises(InputError, match="hardmax must be one of exact, softmax"):
        weftc.compile("lloyd", {"d": 2, "k": 3}, hardmax="soft")  # type: ignore[arg-type]


def test_a_style_that_changes_nothing_is_told_apart() -> None:
    plain = weftc.compile("lloyd", {"d": 2, "k": 3})
    assert same(plain, weftc.compile("lloyd", {"d": 2, "k": 3}, norm="layer"))
    assert not same(plain, weftc.compile("lloyd", {"d": 2, "k": 3}, scores="dot"))
    assert not same(plain, weftc.compile("lloyd", {"d": 2, "k": 4}))


# ---- members=offset --------------------------------------------------------------------------------------------------


def test_offset_members_have_no_mask_and_leak_nothing() -> None:
    made = weftc.compile("robust_softmax", {"d": 1, "k": 2}, members="offset")
    heads = [h for step in made.program.layer for sub in step.sublayers for h in getattr(sub, "heads", ())]
    assert not any(head.masks for head in heads)
    x, c = np.array([[0.0], [1.0], [10.0], [12.0]]), np.array([[0.5], [11.0]])
    assert weftc.load(made)(x=x, c=c, layers=1)["centers"].tolist() == [[0.5], [11.0]]


def test_offset_members_are_refused_where_numbers_are_too_large() -> None:
    model = weftc.load(weftc.compile("robust_softmax", {"d": 1, "k": 1}, members="offset"))
    assert float(model(x=[[2.0**20]], c=[[0.0]], layers=1)["centers"]) == 2.0**20
    wrong = r"no number in c of centers exceeds .*: before a step of layer 0, token 0 of centers holds 1e\+12"
    with pytest.raises(RunError, match=wrong):
        model(x=[[0.0], [1.0]], c=[[1e12]], layers=1)


def test_offset_members_keep_an_empty_cluster() -> None:
    model = weftc.load(weftc.compile("robust_kmeans", {"d": 1, "k": 2}, members="offset"))
    assert model(x=[[0.0], [0.5]], c=[[0.0], [70.0]], layers=1)["centers"][1].item() == 70.0


# ---- null=token ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("erase", ["linear", "attention"])
def test_a_token_at_the_origin_is_not_taken_for_the_null_token(erase: str) -> None:
    plain = weftc.load(weftc.compile("sinkhorn_dual", {"d": 1}, scores="dot"))
    prompt = weftc.load(weftc.compile("sinkhorn_dual", {"d": 1}, scores="dot", null="token", erase=erase))  # type: ignore[arg-type]
    given = {"x": [[0.0], [1.0], [2.0]], "y": [[0.0], [0.5], [3.0]]}
    one, two = plain(given, layers=4), prompt(given, layers=4)
    for name in ("u", "v", "plan"):
        np.testing.assert_allclose(one[name], two[name], rtol=0, atol=1e-15)
    assert two["plan"].shape == (3, 3)


def test_the_null_token_is_one_more_key_and_nothing_else() -> None:
    made = weftc.compile("sinkhorn_dual", {"d": 2}, scores="dot", null="token")
    (stream,) = made.program.streams
    assert stream.null
    heads = [h for step in made.program.layer for sub in step.sublayers for h in getattr(sub, "heads", ())]
    assert heads
    assert all(head.self_key is None for head in heads)
    model = weftc.load(made)
    seen = []
    model.blocks[0].head(heads[0].name).hook_pattern.register_forward_hook(lambda m, i, o: seen.append(o.shape))
    model(x=np.zeros((4, 2)), y=np.ones((4, 2)), layers=1)
    assert seen == [(4, 5)]


def test_a_null_key_with_a_value_of_its_own_is_refused() -> None:
    with pytest.raises(InputError, match="null=token: the null key of centers has a value of its own on every token"):
        weftc.compile("lloyd", {"d": 2, "k": 3}, scores="dot", hardmax="softmax", null="token")
