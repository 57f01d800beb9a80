"""A checked spec -> the same algorithm on tokens that count several times: a weight of 2 is the token twice.

    sum[i] v                      sum[i] w[i] * v
    mean[i] v where m             mean[i] v weighted w[i] where m
    mean[i] v weighted q          mean[i] v weighted w[i] * q
    count(points)                 sum[i] w[i]

That is all it takes where sums and means are all that a spec asks of its tokens together. Where it ranks or draws them,
compares one with another, or asks for their positions, a token that counts twice is not the token twice, or not by
rules as simple as these: such specs have no weighted form. The result is a spec like any other; weights are > 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from weftc.core import syntax as ast
from weftc.core.errors import SpecError
from weftc.core.trees import expressions, factors, fresh, inside, nodes, product, rewritten
from weftc.core.types import Checked, FieldType
from weftc.language.recheck import rechecked


def multiplies(checked: Checked, field: FieldType) -> bool:
    """Whether a number of every token is a multiplicity: a factor in all sums and means over its set, and no more."""
    spec = checked.spec
    if not _counts_only(checked, field.home) or _is_written(spec, field.name):
        return False
    if any(isinstance(node, ast.Count) and node.set == field.home for node in nodes(spec)):
        return False
    uses = sum(isinstance(node, ast.Ref) and node.name == field.name for node in nodes(spec))
    places = [r for r in _reductions(spec, checked, field.home) if _weighs(r, field.name)]
    return len(places) == len(list(_reductions(spec, checked, field.home))) == uses > 0


def counted(checked: Checked, home: str) -> tuple[Checked, str] | None:
    """The spec with a weight for every token of an open set and the name of that input; None if there is no such."""
    if not _counts_only(checked, home):
        return None
    name = fresh(checked, "w", "weight")
    spec = checked.spec
    indices = next(tokens.indices for tokens in spec.tokens if tokens.name == home)
    span = spec.span
    target = ast.Ref(span, name, indices[:1])
    weight = ast.Field(span, target, ast.TypeClause(span, "number"), ast.ParamBound(span, (0.0, True), None))
    rewriting = _Counting(checked, home, name, fresh(checked, "each", "token"))
    made = rewritten(spec, rewriting.expr)
    if rewriting.counted:
        tokens = tuple(replace(t, indices=(*t.indices, rewriting.own)) if t.name == home else t for t in made.tokens)
        made = replace(made, tokens=tokens)
    try:
        return rechecked(replace(made, name=f"{spec.name}_weighted", inputs=(*made.inputs, weight))), name
    except SpecError:
        return None  # a sum that is fine by itself may not be with weights: an `else` is missing, say


def _counts_only(checked: Checked, home: str) -> bool:
    """Whether sums and means are all that a spec asks of the tokens of a set together."""
    spec = checked.spec
    if any(checked.fields[f.target.name].home == home for f in spec.random):
        return False
    if any(isinstance(n, ast.Count) and n.set == home for p in spec.params if p.default for n in ast.walk(p.default)):
        return False
    if any(f.init is not None and f.init.kind == "copy" for f in spec.inputs):
        return False
    return not any(_tells_apart(checked, node, home) for node in nodes(spec))


def _tells_apart(checked: Checked, node: ast.Node, home: str) -> bool:
    match node:
        case ast.Weigh(index=index) | ast.Position(index=index):
            return checked.set_of(index) == home
        case ast.Reduce(index=index, kind=kind, by=by):
            return checked.set_of(index) == home and (kind not in ("sum", "mean") or by is not None)
        case ast.Different(left=index):
            return checked.set_of(index) == home
    return False


def _is_written(spec: ast.Spec, name: str) -> bool:
    return any(equation.target.name == name for step in spec.steps for equation in step.equations)


def _reductions(spec: ast.Spec, checked: Checked, home: str) -> Iterator[ast.Reduce]:
    for root in expressions(spec):
        for node in ast.walk(root):
            if isinstance(node, ast.Reduce) and checked.set_of(node.index) == home:
                yield node


def _weighs(node: ast.Reduce, name: str) -> bool:
    """Whether a sum or mean has w[i] as a factor."""
    where = node.body if node.kind == "sum" else node.weighted
    parts = [] if where is None else factors(where)
    return any(isinstance(p, ast.Ref) and p.name == name and p.indices == (node.index,) for p in parts)


class _Counting:
    def __init__(self, checked: Checked, home: str, name: str, own: str) -> None:
        self.checked, self.home, self.name, self.own = checked, home, name, own
        self.counted = False  # whether the size of the set was asked for, by an index of our own

    def expr(self, node: Any) -> Any:
        match node:
            case ast.Count(span, home) if home == self.home:
                self.counted = True
                return ast.Reduce(span, "sum", self.own, ast.Ref(span, self.name, (self.own,)))
            case ast.Reduce(index=index) if self.checked.set_of(index) == self.home:
                return self._reduction(inside(node, self.expr))
        return inside(node, self.expr)

    def _reduction(self, node: ast.Reduce) -> ast.Reduce:
        weight = ast.Ref(node.span, self.name, (node.index,))
        if node.kind == "sum":
            return replace(node, body=product((weight, node.body)))
        return replace(node, weighted=weight if node.weighted is None else product((weight, node.weighted)))
