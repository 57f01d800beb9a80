"""A checked spec -> the same algorithm at finite temperature: every choice of one becomes a sharp softmax.

    argmax[j](S)                          softmax[j](G * S); argmin with -G, sample with G * (S + noise)
    mean[i] v where y[i,j] else b         (sum[i] E v + b) / (sum[i] E + 1), E = exp(M * (y[i,j] - 1/2)): a softmax
                                          whose null key stands for the `else`; members count exp(M/2), others exp(-M/2)
    mean[i] v weighted w * y[i,j] else b  (sum[i] w y v + D b) / (sum[i] w y + D), D = exp(-M/2)
    where y[i,j], anywhere else           where y[i,j] > 1/2

y is a field that such a choice writes; it holds shares now. The result is a spec like any other: the interpreter gives
its meaning, the compiler its transformer. How far it is from the original depends on the margins of the scores.

spec      tokens i in points, j in cs : k inputs x[i] : R, c[j] : R layer y[i,j] = argmin[j] |x[i] - c[j]| outputs y
before    y[i,j] = argmin[j](|x[i] - c[j]|)
after     y[i,j] = softmax[j](-50 * |x[i] - c[j]|)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

from weftc.core import syntax as ast
from weftc.core.types import Checked
from weftc.core.vocabulary import CHOICES
from weftc.language.check.check import check

MEMBERSHIP = 80.0  # M: exp(-M/2) = 4e-18 is what a foreign token counts beside an `else`, and an `else` beside a member


def has_choices(checked: Checked) -> bool:
    """Whether a spec chooses one of several anywhere."""
    return any(isinstance(node, ast.Weigh) and node.kind in CHOICES for node in _nodes(checked.spec))


def tempered(checked: Checked, sharpness: float) -> Checked:
    """The spec at finite temperature: `sharpness` multiplies the scores of every choice."""
    spec = checked.spec
    written = {e.target.name for step in spec.steps for e in step.equations if _chooses(e.body)}
    return check(
        _Tempering(sharpness, written | {let.target.name for let in spec.lets if _chooses(let.body)}).spec(spec)
    )


def _nodes(spec: ast.Spec) -> Iterator[ast.Node]:
    roots: list[ast.Expr] = [e.body for step in spec.steps for e in step.equations] + [let.body for let in spec.lets]
    roots += [output.body for output in spec.outputs] + [f.start for f in spec.state if f.start is not None]
    roots += [] if spec.objective is None else [spec.objective]
    for root in roots:
        yield from ast.walk(root)


def _chooses(body: ast.Expr) -> bool:
    """Whether an expression is a choice, or one with a fallback."""
    if isinstance(body, ast.Else):
        return _chooses(body.body)
    return isinstance(body, ast.Weigh) and body.kind in CHOICES


class _Tempering:
    def __init__(self, sharpness: float, soft: set[str]) -> None:
        self.sharpness, self.soft = sharpness, soft

    def spec(self, spec: ast.Spec) -> ast.Spec:
        steps = tuple(
            replace(step, equations=tuple(replace(e, body=self.expr(e.body)) for e in step.equations))
            for step in spec.steps
        )
        return replace(
            spec,
            inputs=tuple(self._field(f) for f in spec.inputs),
            state=tuple(self._field(f) for f in spec.state),
            lets=tuple(replace(let, body=self.expr(let.body)) for let in spec.lets),
            steps=steps,
            outputs=tuple(replace(o, body=self.expr(o.body)) for o in spec.outputs),
            objective=None if spec.objective is None else self.expr(spec.objective),
            examples=(),  # they speak of the original
        )

    def _field(self, f: ast.Field) -> ast.Field:
        """A declared field; one that held choices holds shares."""
        kind = "simplex" if f.target.name in self.soft and f.type.kind == "onehot" else f.type.kind
        start = None if f.start is None else self.expr(f.start)
        return replace(f, type=replace(f.type, kind=kind), start=start)

    # ---- expressions

    def expr(self, node: Any) -> Any:
        """The tempered form of an expression or condition."""
        match node:
            case ast.Else(_, ast.Reduce(kind="mean") as mean, fallback) if self._is_soft_mean(mean):
                return self._mean(mean, fallback)
            case ast.Weigh() if node.kind in CHOICES:
                return self._choice(node)
            case ast.Member(span, field) if field.name in self.soft:
                return ast.Compare(span, ">", field, ast.Num(span, 0.5))
        changed = {f.name: self._value(getattr(node, f.name)) for f in fields(node)}
        return replace(node, **changed)

    def _value(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(self._value(v) for v in value)
        return self.expr(value) if isinstance(value, ast.Node) else value

    def _choice(self, node: ast.Weigh) -> ast.Weigh:
        score = self.expr(node.score)
        if node.noise is not None:
            score = ast.Binary(node.span, "+", score, node.noise)
        factor = -self.sharpness if node.kind == "argmin" else self.sharpness
        scaled = ast.Binary(node.span, "*", ast.Num(node.span, factor), score)
        where, split = self._value(node.where), node.ties is not None and node.ties.rule in ("split", "average")
        return ast.Weigh(node.span, "softmax", node.index, scaled, (), where, sharpness=self.sharpness, split=split)

    # ---- means with a fallback

    def _is_soft_mean(self, mean: ast.Reduce) -> bool:
        if mean.by is not None:
            return False
        if mean.weighted is not None:
            names = {n.name for n in ast.walk(mean.weighted) if isinstance(n, ast.Ref)}
            return not mean.where and bool(names & self.soft)
        return any(isinstance(c, ast.Member) and c.field.name in self.soft for c in mean.where)

    def _mean(self, mean: ast.Reduce, fallback: ast.Expr) -> ast.Expr:
        """A mean over members, with the fallback as one more key."""
        span = mean.span
        where: tuple[ast.Condition, ...] = ()
        if mean.weighted is not None:
            weight, null = self.expr(mean.weighted), math.exp(-MEMBERSHIP / 2)
        else:
            member = next(c for c in mean.where if isinstance(c, ast.Member) and c.field.name in self.soft)
            where, null = self._value(tuple(c for c in mean.where if c is not member)), 1.0
            share = ast.Binary(span, "-", member.field, ast.Num(span, 0.5))
            weight = ast.Call(span, "exp", ast.Binary(span, "*", ast.Num(span, MEMBERSHIP), share))
        value, own = ast.Binary(span, "*", weight, self.expr(mean.body)), self.expr(fallback)
        if null != 1:
            own = ast.Binary(span, "*", ast.Num(span, null), own)
        above = ast.Binary(span, "+", ast.Reduce(span, "sum", mean.index, value, where=where), own)
        below = ast.Binary(span, "+", ast.Reduce(span, "sum", mean.index, weight, where=where), ast.Num(span, null))
        return ast.Binary(span, "/", above, below)
