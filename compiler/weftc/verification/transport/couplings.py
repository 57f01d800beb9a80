"""A checked spec -> the coupling it computes, if one of its expressions has that form.

A coupling is a product of positive factors of single tokens and one exponential, over two indices i and j of open sets,

    P[i,j] = w[i] * z[j] * exp(R[i] + S[j] + C[i,j])

whose row term R and column term S read fields that layers write, while C, w and z read none of these. So layers only
rescale the rows and columns of one kernel exp(C), whatever their equations are. Expressions are searched in the order
of outputs, then equations; sums inside the exponential, and quotients and products by numbers, are taken apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from weftc.core.syntax import Binary, Call, Different, Expr, Neg, Num, Position, Reduce, Ref, Weigh, walk
from weftc.core.types import Checked
from weftc.interpreter.environment import free, names_read


@dataclass(frozen=True, slots=True)
class Coupling:
    """An expression over `row` and `column`, taken apart. `place` is the output or equation it stands in."""

    place: str
    row: str
    column: str
    kernel: Expr  # C, and what else of the exponent no layer changes
    rows: Expr  # R
    columns: Expr  # S
    factor: Expr  # w * z


def coupling(checked: Checked) -> Coupling | None:
    """The first coupling among the outputs and equations of a spec."""
    written = {e.target.name for step in checked.spec.steps for e in step.equations}
    changing = frozenset(written | {f.target.name for f in checked.spec.random})
    for place, target, body in _expressions(checked):
        order = [*target.indices, *checked.index]
        for node in walk(_inlined(checked, body)):
            if not isinstance(node, Call | Binary):
                continue
            indices = sorted(free(node), key=order.index)
            if len(indices) == 2 and all(checked.is_open(checked.index[i]) for i in indices):
                found = _taken_apart(checked, node, (indices[0], indices[1]), changing)
                if found is not None:
                    return replace(found, place=place)
    return None


def _expressions(checked: Checked) -> Iterator[tuple[str, Ref, Expr]]:
    for output in checked.spec.outputs:
        if output.target.indices:
            yield f"output {output.target.name}", output.target, output.body
    for step in checked.spec.steps:
        for equation in step.equations:
            yield f"equation of {equation.target.name}", equation.target, equation.body


def _taken_apart(checked: Checked, node: Expr, indices: tuple[str, str], changing: frozenset[str]) -> Coupling | None:
    if any(isinstance(part, Weigh) for part in walk(node)):
        return None
    row, column = indices
    exponents: list[Expr] = []
    factor = _factors(node, exponents)
    if len(exponents) != 1 or any(len(free(f)) > 1 or _changes(checked, f, changing) for f in factor):
        return None
    parts: dict[str, list[Expr]] = {"kernel": [], row: [], column: []}
    for term in _summands(exponents[0]):
        if not _changes(checked, term, changing):
            parts["kernel"].append(term)
        elif free(term) == {row} or free(term) == {column}:
            parts[next(iter(free(term)))].append(term)
        else:
            return None
    if not parts[row] or not parts[column]:
        return None
    product: Expr = Num(node.span, 1.0)
    for one in factor:
        product = Binary(node.span, "*", product, one)
    sums = {key: _sum(node, terms) for key, terms in parts.items()}
    return Coupling("", row, column, sums["kernel"], sums[row], sums[column], product)


def _changes(checked: Checked, node: Expr, changing: frozenset[str]) -> bool:
    return bool(names_read(checked, node) & changing)


def _factors(node: Expr, exponents: list[Expr]) -> list[Expr]:
    """The factors of a product; what exponentials are taken of goes to `exponents`."""
    match node:
        case Call(function="exp", body=body):
            exponents.append(body)
            return []
        case Binary(op="*", left=left, right=right):
            return _factors(left, exponents) + _factors(right, exponents)
        case Binary(op="/", left=left, right=right):
            below: list[Expr] = []
            under = _factors(right, below)
            exponents.extend(Neg(node.span, one) for one in below)
            return _factors(left, exponents) + [Binary(node.span, "/", Num(node.span, 1.0), one) for one in under]
    return [node]


def _summands(node: Expr) -> Iterator[Expr]:
    """The terms of a sum; factors and divisors without an index go to each of them."""
    match node:
        case Binary(op="+", left=left, right=right):
            yield from _summands(left)
            yield from _summands(right)
        case Binary(op="-", left=left, right=right):
            yield from _summands(left)
            yield from (Neg(node.span, term) for term in _summands(right))
        case Neg(body=body):
            yield from (Neg(node.span, term) for term in _summands(body))
        case Binary(op="/", left=left, right=right) if not free(right):
            yield from (replace(node, left=term) for term in _summands(left))
        case Binary(op="*", left=left, right=right) if not free(right):
            yield from (replace(node, left=term) for term in _summands(left))
        case Binary(op="*", left=left, right=right) if not free(left):
            yield from (replace(node, right=term) for term in _summands(right))
        case _:
            yield node


def _sum(node: Expr, terms: list[Expr]) -> Expr:
    total: Expr = Num(node.span, 0.0)
    for term in terms:
        total = Binary(node.span, "+", total, term)
    return total


# ---- definitions put in ---------------------------------------------------------------------------------------------


def _inlined(checked: Checked, node: Any) -> Any:
    """The expression with every `let` put in, unless an index of its own would get in the way."""
    if isinstance(node, Ref) and node.name in checked.lets:
        let = checked.lets[node.name]
        bound = {part.index for part in walk(let.body) if isinstance(part, Reduce | Weigh)}
        if bound & set(node.indices):
            return node
        return _inlined(checked, _renamed(let.body, dict(zip(let.target.indices, node.indices, strict=True))))
    return _rebuilt(node, lambda child: _inlined(checked, child))


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


def potential_fields(checked: Checked, node: Expr) -> list[str]:
    """The fields that layers write and a row or column term reads."""
    written = {e.target.name for step in checked.spec.steps for e in step.equations}
    return sorted({part.name for part in walk(node) if isinstance(part, Ref)} & written)
