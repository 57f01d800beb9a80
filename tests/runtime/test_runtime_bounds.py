"""Error bounds hold: every value the reference computes lies within its radius of the exact one, and radii are small.

The judge extends the runtime's rational evaluation by roots, exponentials and logarithms to eighty digits.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from programs import laboratory
from weftc_runtime import load
from weftc_runtime.exact.rational import RationalScores, Row
from weftc_runtime.format.program import FFN, Head
from weftc_runtime.model import GivenInputs

DIGITS = 80


def precise(function: str, value: Fraction) -> Fraction:
    """A function of a rational number, to eighty digits."""
    with localcontext() as context:
        context.prec = DIGITS
        x = Decimal(value.numerator) / Decimal(value.denominator)
        if function == "tanh":
            up, down = x.exp(), (-x).exp()
            return Fraction((up - down) / (up + down))
        return Fraction({"exp": x.exp, "log": x.ln, "sqrt": x.sqrt}[function]())


class Precise(RationalScores):
    """The exact residual, with irrational functions to eighty digits."""

    def _dot(self, row: Row, level: int, stream: str, token: int) -> Fraction:
        # Products of eighty-digit numbers grow without end; a hundred digits are enough here.
        total = super()._dot(row, level, stream, token)
        with localcontext() as context:
            context.prec = 100
            return Fraction(Decimal(total.numerator) / Decimal(total.denominator)) if level else total

    def _hidden(self, ffn: FFN, level: int, token: int, hidden: int) -> Fraction:
        if ffn.function in ("unit", "layer"):
            a = self.features(level, ffn.stream, token, ffn.a)
            if ffn.function == "layer":
                a = tuple(v - sum(a, Fraction(0)) / len(a) for v in a)
            return a[hidden] / precise("sqrt", sum((v * v for v in a), Fraction(0)))
        if ffn.function in ("exp", "log", "sqrt", "tanh"):
            return precise(ffn.function, self.features(level, ffn.stream, token, ffn.a)[hidden])
        return super()._hidden(ffn, level, token, hidden)

    def _weigh(self, head: Head, level: int, query: int) -> dict[int, Fraction]:
        kind, keys = head.weighting.kind, self.size[head.keys]
        if kind not in ("softmax", "exp", "lse"):
            return super()._weigh(head, level, query)
        eligible = self.choices[level, head.name].eligible
        candidates = [k for k in range(keys) if eligible is None or bool(eligible[query, k])]
        if head.self_key is not None:
            candidates.append(keys)
        numbers = {k: precise("exp", self.candidate(head, level, query, k)) for k in candidates}
        mass = sum(numbers.values(), Fraction(0))
        if kind == "lse":
            number = precise("log", mass)
            return {c: row[0][1] * number for c, row in enumerate(self.weights.rows(head.value)) if row}
        out: dict[int, Fraction] = {}
        for k, number in numbers.items():
            self._add(out, head, level, query, k, number / mass if kind == "softmax" else number)
        return out


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("scale", "offset"), [(1.0, 0.0), (0.01, 0.0), (1.0, 3.0)])
def test_every_value_lies_within_its_radius(
    seed: int, scale: float, offset: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weftc_runtime.reference.derived.RationalScores", Precise)
    rng = np.random.default_rng(seed)
    x, w = rng.normal(size=(5, 2)) * scale + offset, rng.random(5) + 0.1
    model = load(laboratory(seed))
    run = model._begin(GivenInputs({"x": x, "w": w}), None, None, None, 1)
    seen: dict[str, float] = {}

    def tap(name: str, problems: list[Any]) -> None:
        problem = problems[0]
        if problem.radii is None:
            return  # nothing is decided any more
        z, radius, exact = problem.residuals["points"], problem.radii["points"], problem.exact
        for slot in model.program.streams[0].slots:
            for column in range(slot.offset, slot.offset + slot.width):
                for token in range(len(z)):
                    want = exact.value(exact.level, "points", token, column)
                    error = abs(Fraction(float(z[token, column])) - want)
                    place = f"{slot.name} after {name}, token {token}"
                    assert error <= Fraction(float(radius[token, column])), place
                    assert radius[token, column] <= 1e-11 * (1 + abs(float(z[token, column])) + offset**4), place
                    seen[slot.name] = max(seen.get(slot.name, 0.0), float(error))

    run.engine.tap = tap
    run.layer(0)
    assert sum(error > 0 for error in seen.values()) >= 17  # most slots do round; the bounds are not vacuous
    assert model.program.stream("points").width == sum(slot.width for slot in model.program.streams[0].slots)
