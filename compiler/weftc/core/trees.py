"""What rewriting a spec takes: every expression of it in turn, the names free to use, the text of the result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

from weftc.core import syntax as ast
from weftc.core.types import Checked

Rewrite = Callable[[Any], Any]


def expressions(spec: ast.Spec) -> Iterator[ast.Expr]:
    """Every expression a spec computes with: equations, definitions, starts, outputs, the objective."""
    yield from (equation.body for step in spec.steps for equation in step.equations)
    yield from (let.body for let in spec.lets)
    yield from (field.start for field in spec.state if field.start is not None)
    yield from (output.body for output in spec.outputs)
    if spec.objective is not None:
        yield spec.objective


def nodes(spec: ast.Spec) -> Iterator[ast.Node]:
    """Every node of these expressions."""
    for root in expressions(spec):
        yield from ast.walk(root)


def rewritten(spec: ast.Spec, rewrite: Rewrite) -> ast.Spec:
    """The spec with every expression rewritten; examples, which speak of the original, are left out."""
    return replace(
        spec,
        steps=tuple(
            replace(step, equations=tuple(replace(e, body=rewrite(e.body)) for e in step.equations))
            for step in spec.steps
        ),
        lets=tuple(replace(let, body=rewrite(let.body)) for let in spec.lets),
        state=tuple(replace(f, start=None if f.start is None else rewrite(f.start)) for f in spec.state),
        outputs=tuple(replace(output, body=rewrite(output.body)) for output in spec.outputs),
        objective=None if spec.objective is None else rewrite(spec.objective),
        examples=(),
    )


def inside(node: Any, rewrite: Rewrite) -> Any:
    """A node with everything directly below it rewritten."""

    def value(found: Any) -> Any:
        if isinstance(found, tuple):
            return tuple(value(one) for one in found)
        return rewrite(found) if isinstance(found, ast.Node) else found

    return replace(node, **{f.name: value(getattr(node, f.name)) for f in fields(node)})


def with_indices(node: Any, names: Mapping[str, str]) -> Any:
    """A node by itself, without what is inside it, with other indices for tokens."""
    match node:
        case ast.Ref(name=name, indices=()):
            return replace(node, name=names.get(name, name))
        case ast.Ref():
            return replace(node, indices=tuple(names.get(index, index) for index in node.indices))
        case ast.Position() | ast.Weigh():
            return replace(node, index=names.get(node.index, node.index))
        case ast.Different():
            return replace(node, left=names.get(node.left, node.left), right=names.get(node.right, node.right))
    return node


def factors(expr: ast.Expr) -> list[ast.Expr]:
    """The factors of a product; anything else is one."""
    if isinstance(expr, ast.Binary) and expr.op == "*":
        return [*factors(expr.left), *factors(expr.right)]
    return [expr]


def product(parts: Iterable[ast.Expr]) -> ast.Expr:
    """The product of some factors, at least one."""
    first, *others = parts
    for part in others:
        first = ast.Binary(part.span, "*", first, part)
    return first


def fresh(checked: Checked, *words: str) -> str:
    """The first of these words that names nothing yet; primes are added to the last until it is new."""
    taken = {*checked.sets, *checked.index, *checked.fields, *checked.lets, *checked.params, *checked.dims}
    for word in words:
        if word not in taken:
            return word
    word = words[-1]
    while word in taken:
        word += "'"
    return word
