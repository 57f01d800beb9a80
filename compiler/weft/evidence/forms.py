"""An equation -> the same equation in attention form, whose error bound is the fair one for a transformer.

A head adds up values that belong to the key, times factors that belong to the query. So a sum over keys of a product
that mixes the two is a sum of several heads, and a difference of a query and a key inside it is taken after the sums:

    sum[g] (x[i] - m[g]) / s[g]     ->   sum[g] x[i] / s[g] - sum[g] m[g] / s[g]

Distances stay whole: |a[i] - b[j]|^2 in a score is one (l2). They are multiplied out where no head can keep them
whole: as values between two open sets, and everywhere in a model with dot-product scores. Then both sides are first
shifted by the mean of the data, z[i] = a[i] - mean, if the spec has an open vector input of that width:

    |a[i] - b[j]|^2                 ->   <z[i], z[i]> - 2 * <z[i], z[j]> + <z[j], z[j]>

The rewriting changes no value in exact arithmetic, only how roundings add up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.meaning.world import free
from weft.syntax import (
    Binary,
    Call,
    Different,
    Else,
    Equation,
    Expr,
    Inner,
    Neg,
    Norm,
    Num,
    Position,
    Power,
    Reduce,
    Ref,
    Square,
    Weigh,
    walk,
)
from weft.types import Checked

Array = NDArray[Any]
MOST_TERMS = 64  # longer sums stay as they are


@dataclass(frozen=True, slots=True)
class AttentionForm:
    """Rewrites the equations of one spec; `lifted` for models with dot-product scores, `centred` if they shift."""

    checked: Checked
    dims: Mapping[str, int]
    lifted: bool
    centred: bool

    def equations(
        self, equations: tuple[Equation, ...], softmaxes: Mapping[str, Equation] | None = None
    ) -> tuple[Equation, ...]:
        """Equations in attention form; weights that `softmaxes` of the same layer hold are put in as defined."""
        found = []
        for equation in equations:
            body = self.inlined(equation.body)
            found.append(replace(equation, body=self._below(_defined(body, softmaxes or {}), False)))
        return tuple(found)

    # ---- the mean of the data ----------------------------------------------------------------------------------------

    def centres(self, start: Mapping[str, Array], sizes: Mapping[str, int]) -> dict[str, Array]:
        """The shift of every width on every token of every set, as fields that the rewritten equations read."""
        found: dict[str, Array] = {}
        for width in {self._width(one.width) for one in self.checked.fields.values() if one.width is not None}:
            source = self._source(width)
            if source is not None:
                rows = np.asarray(start[source], dtype=np.float64)
                mean = np.array([math.fsum(column) / len(rows) for column in rows.T.tolist()])
                found |= {_centre(width, home): np.tile(mean, (size, 1)) for home, size in sizes.items()}
        return found

    def _width(self, dimension: str | int) -> int:
        return self.dims[dimension] if isinstance(dimension, str) else dimension

    def _source(self, width: int) -> str | None:
        """The input whose mean shifts vectors of a width: the first on an open set."""
        for one in self.checked.fields.values():
            vector = one.role == "input" and one.width is not None and self.checked.is_open(one.home)
            if vector and one.width is not None and self._width(one.width) == width:
                return one.name
        return None

    # ---- rewriting ---------------------------------------------------------------------------------------------------

    def inlined(self, node: Any) -> Any:
        """The expression with every `let` put in, unless an index of its own would get in the way."""
        if isinstance(node, Ref) and node.name in self.checked.lets:
            let = self.checked.lets[node.name]
            bound = {part.index for part in walk(let.body) if isinstance(part, Reduce | Weigh)}
            if bound & set(node.indices):
                return node
            return self.inlined(_renamed(let.body, dict(zip(let.target.indices, node.indices, strict=True))))
        return _rebuilt(node, self.inlined)

    def _below(self, node: Any, value: bool) -> Any:
        """The expression in attention form; `value` inside a sum over keys, but not inside a score or a function."""
        match node:
            case Square(body=body) | Power(base=body, exponent=2) if (pair := self._distance(body, value)) is not None:
                return self._multiplied(node, *pair)
            case Norm(body=body) if (pair := self._distance(body, value)) and self._width_of(body) is not None:
                return Call(node.span, "sqrt", self._multiplied(node, *pair))
            case Reduce(kind="sum" | "mean"):
                inside = replace(
                    node,
                    body=self._below(node.body, True),
                    weighted=node.weighted and self._below(node.weighted, False),
                    by=node.by and self._below(node.by, False),
                    where=tuple(self._below(c, False) for c in node.where),
                )
                return _distributed(inside)
            case Weigh() | Call() | Reduce():
                return _rebuilt(node, lambda child: self._below(child, False))
        return _rebuilt(node, lambda child: self._below(child, value))

    def _distance(self, body: Expr, value: bool) -> tuple[Expr, Expr] | None:
        """The two sides of a difference of two tokens that no head keeps whole."""
        match body:
            case Binary(op="-", left=left, right=right):
                i, j = free(left), free(right)
                if len(i) == 1 and len(j) == 1 and i != j:
                    sets = [self.checked.index[name] for name in (*i, *j)]
                    if self.lifted or (value and all(self.checked.is_open(name) for name in sets)):
                        return left, right
        return None

    def _width_of(self, node: Expr) -> int | None:
        for part in (node, *_parts(node)):
            if isinstance(part, Ref) and part.indices and self.checked.fields[part.name].width is not None:
                width = self.checked.fields[part.name].width
                assert width is not None
                return self._width(width)
        return None

    def _multiplied(self, node: Expr, left: Expr, right: Expr) -> Expr:
        a, b = self._shifted(left), self._shifted(right)
        twice = Binary(node.span, "*", Num(node.span, 2.0), Inner(node.span, a, b))
        ends = Binary(node.span, "+", Inner(node.span, a, a), Inner(node.span, b, b))
        return Binary(node.span, "-", ends, twice)

    def _shifted(self, node: Expr) -> Expr:
        width = self._width_of(node)
        if width is None or not self.centred or self._source(width) is None:
            return node
        (index,) = free(node)
        return Binary(node.span, "-", node, Ref(node.span, _centre(width, self.checked.index[index]), (index,)))


def _defined(node: Any, softmaxes: Mapping[str, Equation], weights: bool = False) -> Any:
    """The expression with softmaxes in place of the fields that hold them, where they are weights."""
    match node:
        case Ref(name=name, indices=indices) if weights and name in softmaxes:
            equation = softmaxes[name]
            bound = {part.index for part in walk(equation.body) if isinstance(part, Reduce | Weigh)}
            names = dict(zip(equation.target.indices, indices, strict=True))
            if (bound - set(names)) & set(indices):
                return node
            return _renamed(equation.body, names)
        case Reduce(weighted=weighted) if weighted is not None:
            inside = replace(node, weighted=None)
            inside = _rebuilt(inside, lambda child: _defined(child, softmaxes))
            return replace(inside, weighted=_defined(weighted, softmaxes, node.kind == "mean"))
        case Weigh(kind="normalize", score=score):
            return replace(node, score=_defined(score, softmaxes, True))
        case Binary(op="*" | "/"):
            return _rebuilt(node, lambda child: _defined(child, softmaxes, weights))
    return _rebuilt(node, lambda child: _defined(child, softmaxes))


def _centre(width: int, home: str) -> str:
    return f"(centre {width} of {home})"  # no name of a spec has parentheses


def _rebuilt(node: Any, change: Any) -> Any:
    """A node with its children changed."""
    changes: dict[str, Any] = {}
    for one in fields(node):
        value = getattr(node, one.name)
        if isinstance(value, tuple):
            changes[one.name] = tuple(change(v) if hasattr(v, "span") else v for v in value)
        elif hasattr(value, "span"):
            changes[one.name] = change(value)
    return replace(node, **changes)


def _parts(node: Expr) -> tuple[Expr, ...]:
    """What a vector expression is added up from."""
    match node:
        case Binary(left=left, right=right):
            return (left, *_parts(left), right, *_parts(right))
        case Neg(body=body) | Call(body=body) | Reduce(body=body) | Else(body=body):
            return (body, *_parts(body))
    return ()


def _renamed(node: Any, names: Mapping[str, str]) -> Any:
    """An expression with other index names."""
    node = _rebuilt(node, lambda child: _renamed(child, names))
    match node:
        case Ref(indices=indices):
            return replace(node, indices=tuple(names.get(i, i) for i in indices))
        case Position(index=index) | Weigh(index=index) | Reduce(index=index):
            return replace(node, index=names.get(index, index))
        case Different(left=left, right=right):
            return replace(node, left=names.get(left, left), right=names.get(right, right))
    return node


# ---- sums over keys --------------------------------------------------------------------------------------------------


def _distributed(node: Reduce) -> Expr:
    """A sum over keys of a sum of products, as a sum of sums."""
    terms = _terms(node.body)
    if not 1 < len(terms) <= MOST_TERMS:
        return node
    total: Expr | None = None
    for sign, term in terms:
        part: Expr = replace(node, body=term)
        if total is None:
            total = part if sign > 0 else Neg(node.span, part)
        else:
            total = Binary(node.span, "+" if sign > 0 else "-", total, part)
    assert total is not None
    return total


def _terms(node: Expr) -> list[tuple[int, Expr]]:
    """A product multiplied out: signed products, in which only sums over values of one token stay as they are."""
    if len(free(node)) < 2:
        return [(1, node)]
    match node:
        case Binary(op="+" | "-" as op, left=left, right=right):
            turn = 1 if op == "+" else -1
            return _terms(left) + [(turn * sign, term) for sign, term in _terms(right)]
        case Neg(body=body):
            return [(-sign, term) for sign, term in _terms(body)]
        case Binary(op="*", left=left, right=right):
            return [(s * t, replace(node, left=a, right=b)) for s, a in _terms(left) for t, b in _terms(right)]
        case Binary(op="/", left=left):
            return [(sign, replace(node, left=term)) for sign, term in _terms(left)]
        case Inner(left=left, right=right):
            return [(s * t, replace(node, left=a, right=b)) for s, a in _terms(left) for t, b in _terms(right)]
        case Power(base=base, exponent=exponent) if len(_terms(base)) > 1 and 1 < exponent <= 3:
            product: Expr = base
            for _ in range(exponent - 1):
                product = Binary(node.span, "*", product, base)
            return _terms(product)
    return [(1, node)]
