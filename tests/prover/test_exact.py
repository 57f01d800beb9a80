"""The exact executor: its numbers, and what it says of compiled specs against the interpreter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from agreement import default_dims
from weftc.compiling import at_temperature, checked_spec, compile
from weftc.core.errors import InputError, SpecError
from weftc.core.styles import Styles
from weftc.core.types import Checked
from weftc.exact import Executor, NoValue, Number, Undecided, exact, execute
from weftc.exact.weightings import number, weights
from weftc.files.locate import names
from weftc.interpreter.interpreter import Interpreter
from weftc.variants import rotated
from weftc.verification.cases.inputs import Case, cases
from weftc_runtime import Checkpoint
from weftc_runtime.format.program import Attend, Weighting

NAMES = names("")
STYLES: tuple[Mapping[str, Any], ...] = (
    {},
    {"scores": "dot", "square": "relu2", "norm": "layer"},
    {"scores": "dot", "null": "token", "weights": "unrolled", "layers": 3},
    {"erase": "attention", "members": "offset"},
    {"hardmax": "softmax"},
)
KINDS = ("random", "exact ties on a grid", "positive", "abandoned rows")


def floats(value: Any) -> np.ndarray:
    """Nested lists of numbers as an array."""
    return np.vectorize(float, otypes=[float])(np.array(value, dtype=object))


# ---- numbers ---------------------------------------------------------------------------------------------------------


def test_rationals_stay_exact() -> None:
    assert (exact(1) / exact(3) + exact(Fraction(2, 3))).sign() == 1
    assert exact(0.1) * exact(10) != exact(1)  # 0.1 is the float64 beside it
    assert exact(Fraction(4, 9)).sqrt() == exact(Fraction(2, 3))
    assert exact(0).exp() == exact(1)
    assert exact(1).log() == exact(0)


@pytest.mark.parametrize("value", [Fraction(1, 7), Fraction(2), Fraction(10**30, 3), Fraction(1, 3 * 10**40)])
def test_enclosures_hold_the_number_in_ninety_digits(value: Fraction) -> None:
    root, log = exact(value).sqrt(), exact(value).log()
    assert root.low * root.low < value < root.high * root.high
    assert log.exp().low < value < log.exp().high
    for found in (root, log):
        assert (found.high - found.low) * 10**90 < abs(found.low)


def test_a_comparison_that_no_enclosure_settles_is_not_guessed() -> None:
    root = exact(2).sqrt()
    assert root > exact(1)
    with pytest.raises(Undecided):
        (root * root - exact(2)).sign()


@pytest.mark.parametrize(
    ("rule", "scores", "wanted"),
    [
        (Weighting("argmax"), [1, 2, 2], {1: 1}),
        (Weighting("argmax", "split"), [1, 2, 2], {1: "1/2", 2: "1/2"}),
        (Weighting("argmax", "within", Fraction(1)), [1, 2, 2], {0: 1}),
        (Weighting("top", count=2), [1, 2, 1], {1: "1/2", 0: "1/2"}),
        (Weighting("top", percent=Fraction(50)), [1, 2, 1], {0: "1/3", 1: "1/3", 2: "1/3"}),
        (Weighting("normmax", gamma=Fraction(1)), [0, 5, 1], {1: 1}),
        (Weighting("sparsemax"), [0, "1/2"], {0: "1/4", 1: "3/4"}),
        (Weighting("normalize"), [1, 3], {0: "1/4", 1: "3/4"}),
        (Weighting("normalize"), [1, -1], None),
        (Weighting("normalize"), [], None),
        (Weighting("sum"), [], {}),
    ],
)
def test_weightings_are_as_the_format_defines_them(rule: Weighting, scores: list[Any], wanted: Any) -> None:
    found = weights(rule, {at: exact(Fraction(score)) for at, score in enumerate(scores)})
    expected = None if wanted is None else {at: exact(Fraction(share)) for at, share in wanted.items()}
    assert found is None if expected is None else {k: w for k, w in (found or {}).items() if w.sign()} == expected


def test_log_sum_exp_lies_above_the_maximum() -> None:
    scores: dict[int, Number] = {at: exact(at) for at in range(3)}
    largest, soft = number("max", scores), number("lse", scores)
    assert largest == exact(2)
    assert soft is not None
    assert exact(Fraction(24076, 10000)) < soft < exact(Fraction(24077, 10000))


# ---- programs --------------------------------------------------------------------------------------------------------


def compiled(name: str, styles: Mapping[str, Any]) -> tuple[Checked, Checkpoint] | None:
    """A spec in a style, with the spec that the style stands for; None where the style refuses it."""
    checked = checked_spec(name)
    try:
        made = compile(checked, default_dims(checked, count=2), **styles)
    except (InputError, SpecError):
        return None
    return at_temperature(checked, Styles.read(made.program.options)), made


def judged(checked: Checked, made: Checkpoint, case: Case) -> Iterator[tuple[str, Any, Any]]:
    """(what, exact value, value of the interpreter), layer after layer from the fields that the interpreter stored."""
    meaning = Interpreter(checked, made.dims, made.params)
    fields = meaning.start(case.inputs, seed=case.seed)
    sizes = meaning.surroundings.world(fields).sizes
    drawn = [meaning.surroundings.noise(sizes, at, case.seed, case.noise or None) for at in range(case.layers)]
    noise = {name: [one[name] for one in drawn] for name in drawn[0]} if drawn else {}
    executor = Executor(made)
    run = executor.start(case.inputs, noise)
    layers = min(case.layers, made.program.layers if made.program.unrolled else 2)
    for index in range(layers):
        run = executor.resume(run, fields)
        executor.layer(run, index)
        fields = meaning.advance(fields, index, seed=case.seed, noise=case.noise or None).fields
        yield from ((f"{name} after layer {index}", run.fields[name], fields[name]) for name in fields)
    run = executor.resume(run, fields)
    last = max(layers - 1, 0)
    yield from _named("output", run.outputs(), meaning.outputs(fields))
    yield from _named("final", run.final(), meaning.final(fields, layer=last, seed=case.seed, noise=case.noise or None))
    if made.program.objective is not None:
        yield "objective", run.objective(), meaning.objective(fields)


def _named(what: str, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    yield from ((f"{what} {name}", found[name], wanted[name]) for name in wanted)


def compare(checked: Checked, made: Checkpoint, case: Case) -> int:
    """How many values agree with the interpreter, up to its rounding (scores are squares of the data); all must."""
    count = 0
    largest = max(float(np.max(np.abs(values), initial=0)) for values in case.inputs.values())
    rounding = 16 * np.finfo(np.float64).eps * largest**2
    try:
        for what, found, wanted in judged(checked, made, case):
            values = floats(found).reshape(np.shape(wanted))
            scale = 1 + np.max(np.abs(wanted), initial=0)
            assert np.max(np.abs(values - wanted), initial=0) <= 1e-8 * scale + rounding, f"{what}, {case.family}"
            count += 1
    except (Undecided, NoValue, InputError):
        pass  # a tie of numbers that are not rational, or data outside the conditions: what was compared counts
    return count


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("style", range(len(STYLES)))
def test_every_shipped_spec_means_what_the_interpreter_says(name: str, style: int) -> None:
    both = compiled(name, STYLES[style])
    if both is None:
        return
    checked, made = both
    small = (case for case in cases(checked, made.dims, 12, 3 + style, families=KINDS) if case.tokens <= 5)
    compared = [compare(checked, made, case) for case, _ in zip(small, range(3), strict=False)]
    assert sum(compared) >= 3


@pytest.mark.parametrize("kind", ["signed", "orthogonal"])
def test_a_change_of_basis_changes_nothing(kind: Any) -> None:
    plain = compile("lloyd", {"d": 1, "k": 2})
    inputs = {"x": [[-3.0], [-2.0], [0.5], [2.0]], "c": [[-1.0], [1.0]]}
    wanted = execute(plain, inputs, 2).final()
    found = execute(rotated(plain, seed=1, kind=kind), inputs, 2).final()
    for name in wanted:
        assert np.allclose(floats(found[name]), floats(wanted[name]), atol=1e-12)


def test_no_eligible_key_is_no_value() -> None:
    made = compile("lloyd", {"d": 1, "k": 2})
    step = made.program.layer[1]
    (attend,) = step.sublayers
    assert isinstance(attend, Attend)
    bare = tuple(replace(head, self_key=None) for head in attend.heads)
    steps = (made.program.layer[0], replace(step, sublayers=(replace(attend, heads=bare),)))
    program = replace(made.program, layer=steps)
    tensors = {name: made.tensors[name] for name in program.tensors()}
    with pytest.raises(NoValue, match="no key is eligible"):
        execute(replace(made, program=program, tensors=tensors), {"x": [[1.0]], "c": [[0.0], [9.0]]}, 1)


def test_conditions_are_demanded_before_answers_too() -> None:
    made = compile("lloyd", {"d": 1, "k": 2}, erase="attention")
    run = execute(made, {"x": [[1.0], [1.0]], "c": [[0.0], [2.0]]}, 0)
    with pytest.raises(NoValue, match="pairwise distinct"):
        run.final()
