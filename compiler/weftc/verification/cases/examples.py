"""The example blocks of a spec -> what each gives, asked of anyone who can run it, against what the author wrote.

`=` means equal up to rounding, |got - want| <= 16 * eps * max(1, |want|); `~` means within one unit of the last digit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weftc.core.syntax import Example, ExampleOutput, Value
from weftc.core.types import Checked
from weftc.interpreter.inputs import Shapes
from weftc.verification.steps.condition import EPSILON, ROUNDINGS

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Setting:
    """An example, ready to run."""

    title: str
    dims: Mapping[str, int]
    params: Mapping[str, float]
    inputs: Mapping[str, Array]
    noise: Mapping[str, Array]
    layers: int
    expected: tuple[ExampleOutput, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """One expected output: how far off it is, and what is allowed."""

    output: str
    error: float
    allowed: float
    got: str
    want: str

    @property
    def right(self) -> bool:
        return self.error <= self.allowed

    def __str__(self) -> str:
        return f"{self.output} is {self.got}, the example says {self.want}"


def settings(checked: Checked) -> list[Setting]:
    """Every example of a spec."""
    return [_setting(checked, number, example) for number, example in enumerate(checked.spec.examples, 1)]


def _setting(checked: Checked, number: int, example: Example) -> Setting:
    given = {item.name: item.value for item in example.given}
    dims = {name: int(_number(value)) for name, value in given.items() if name in checked.dims}
    params = {name: float(_number(value)) for name, value in given.items() if name in checked.params}
    arrays = {name: _array(value) for name, value in given.items() if name in checked.fields}
    noise = {name: values for name, values in arrays.items() if checked.fields[name].role == "random"}
    inputs = {name: values for name, values in arrays.items() if name not in noise}
    if example.layers == 1:  # written without the axis of layers
        noise = {name: values[np.newaxis] for name, values in noise.items()}
    shapes = Shapes(checked, dims)
    for name, values in inputs.items():
        shapes.learn(name, values)
    shapes.settled()
    title = f"example {number}" + (f' "{example.title}"' if example.title else "")
    return Setting(title, shapes.dims, params, inputs, noise, example.layers, example.expected)


def _number(value: Value) -> Fraction:
    assert isinstance(value, Fraction)
    return value


def _array(value: Value) -> Array:
    return np.array(_floats(value), dtype=np.float64)


def _floats(value: Value) -> Any:
    return tuple(_floats(v) for v in value) if isinstance(value, tuple) else float(value)


def answers(setting: Setting, outputs: Mapping[str, Array], epsilon: float = EPSILON) -> list[Answer]:
    """What was expected, against outputs by name."""
    return [_answer(expected, np.asarray(outputs[expected.name], np.float64), epsilon) for expected in setting.expected]


def _answer(expected: ExampleOutput, got: Array, epsilon: float) -> Answer:
    want = _array(expected.value)
    if got.size == want.size:
        want = want.reshape(got.shape)
    else:
        return Answer(expected.name, np.inf, 0.0, f"of shape {list(got.shape)}", f"shape {list(want.shape)}")
    rounding = ROUNDINGS * epsilon * np.maximum(1.0, np.abs(want))
    allowed = rounding if expected.tolerance is None else expected.tolerance + rounding
    gaps = np.abs(got - want)
    worst = int(np.argmax(gaps - allowed))
    at = np.unravel_index(worst, gaps.shape)
    return Answer(expected.name, float(gaps[at]), float(allowed[at]), _text(got), _text(want))


def _text(values: Array) -> str:
    return " ".join(np.array2string(values, separator=", ", threshold=12).split())
