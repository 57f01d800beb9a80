"""Equations at given fields -> how large the numbers are that computing them as written may meet.

Sums count with the magnitudes of their terms, products with those of their factors, so that a difference of two large
numbers is as large as they are: that is what a rounding on the way is measured by. Softmax weights count with the range
of their scores, which is how much they magnify an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from weftc.core.errors import WeftError
from weftc.core.syntax import (
    Binary,
    Call,
    Count,
    Else,
    Equation,
    Expr,
    Inner,
    Neg,
    Norm,
    Num,
    Percent,
    Position,
    Power,
    Reduce,
    Ref,
    Square,
    Weigh,
)
from weftc.interpreter.decisions import Tally
from weftc.interpreter.environment import World
from weftc.interpreter.expressions import Evaluator
from weftc.interpreter.rationals import ExactEvaluator


def largest(world: World, equations: Iterable[Equation], noise: Mapping[str, Any]) -> dict[str, float]:
    """For every target the largest number that its equation may meet."""
    here = replace(world, noise=dict(noise))
    sizes = _Sizes(here)
    return {equation.target.name: sizes.of(equation.body) for equation in equations}


class _Sizes:
    def __init__(self, world: World) -> None:
        self.world = world
        self.evaluator = Evaluator(world, ExactEvaluator(world), Tally())

    def of(self, node: Expr) -> float:
        return max(self._rule(node), self._computed(node))

    def _computed(self, node: Expr) -> float:
        """The largest value that the expression has."""
        try:
            data = self.evaluator.table(node).data
        except WeftError:
            return 0.0
        return float(np.max(np.abs(data), initial=0.0, where=np.isfinite(data)))

    def _width(self, node: Expr) -> int:
        try:
            return int(self.evaluator.table(node).data.shape[-1])
        except WeftError:
            return 1

    def _rule(self, node: Expr) -> float:
        match node:
            case Num() | Count() | Position():
                return self._computed(node)
            case Ref(name=name) if name in self.world.checked.lets:
                return self.of(self.world.checked.lets[name].body)
            case Ref():
                return self._computed(node)
            case Neg(body=body) | Percent(body=body):
                return self.of(body)
            case Binary(op="+" | "-", left=left, right=right):
                return self.of(left) + self.of(right)
            case Binary(op="*" | ".*", left=left, right=right):
                return self.of(left) * self.of(right)
            case Binary(op="/" | "./", left=left, right=right):
                return self.of(left) * self._inverse(right)
            case Power(base=base, exponent=exponent):
                return self.of(base) ** exponent
            case Inner(left=left, right=right):
                return self._width(left) * self.of(left) * self.of(right)
            case Square(body=body):
                return self._width(body) * self.of(body) ** 2
            case Norm(body=body):
                return float(np.sqrt(self._width(body))) * self.of(body)
            case Else(body=body, fallback=fallback):
                return max(self.of(body), self.of(fallback))
            case Call(function="exp", body=body):
                return self._computed(node) * (1 + self.of(body))
            case Call(function="relu" | "abs", body=body):
                return self.of(body)
            case Call(body=body):  # they change by no more than their argument, relative to what it is
                return 1 + self.of(body)
            case Weigh(kind="softmax" | "sparsemax" | "entmax15" | "normalize" as kind, score=score):
                return 1.0 if kind == "normalize" else 1 + self.of(score)
            case Weigh():
                return 1.0
            case Reduce():
                return self._reduced(node)
        return self._computed(node)

    def _inverse(self, node: Expr) -> float:
        try:
            data = np.abs(self.evaluator.table(node).data)
        except WeftError:
            return 1.0
        least = float(np.min(data, initial=np.inf, where=data > 0))
        return 1 / least if np.isfinite(least) else 1.0

    def _reduced(self, node: Reduce) -> float:
        body = self.of(node.body)
        many = self.world.size(node.index)
        if node.by is not None:
            return body * self.of(node.by)
        if node.kind == "sum":
            return many * body * (1.0 if node.weighted is None else self.of(node.weighted))
        if node.kind == "mean" and node.weighted is not None:
            return body * (1 + self._exponents(node.weighted))
        return body + float(np.log(many + 1)) if node.kind == "logsumexp" else body

    def _exponents(self, node: Expr) -> float:
        """How large the exponents of weights are."""
        match node:
            case Call(function="exp", body=body):
                return self.of(body)
            case Ref(name=name) if name in self.world.checked.lets:
                return self._exponents(self.world.checked.lets[name].body)
            case Binary(left=left, right=right):
                return self._exponents(left) + self._exponents(right)
            case Ref(name=name):  # a softmax field counts as the exponentials it was made of
                bodies = (
                    e.body for step in self.world.checked.spec.steps for e in step.equations if e.target.name == name
                )
                scores = [body.score for body in bodies if isinstance(body, Weigh) and body.kind == "softmax"]
                return max((self.of(score) for score in scores), default=0.0)
        return 0.0
