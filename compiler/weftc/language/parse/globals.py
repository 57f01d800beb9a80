"""What belongs to no token -> a field of a set of one token; `layer` -> a state that counts.

    inputs T : R > 0                          tokens global' in globals : 1    inputs T[global'] : R > 0
    y[i,j] = softmax[j] -T * D[i,j]           y[i,j] = softmax[j] -(mean[global'] T[global']) * D[i,j]
    w = w + sum[i] u[i] * x[i]                w[global'] = w[global'] + sum[i] u[i] * x[i]
    a[i] = 1 / layer                          state layers'[global'] : R = 0; a first step adds 1, and sets layer'

A name that is used with an index anywhere is no such field: there the index has been forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from weftc.core import syntax as ast
from weftc.core.trees import inside, nodes, rewritten

SET, INDEX, LAYER, COUNTED = "globals", "global'", "layer", "layers'"


def with_globals(spec: ast.Spec) -> ast.Spec:
    """The spec in which every field belongs to tokens."""
    found = set(_without_index(spec))

    def compared(node: Any) -> Any:
        """`layer != warm` compares values, not two indices."""
        if isinstance(node, ast.Different) and {LAYER, *found} & {node.left, node.right}:
            sides = (ast.Ref(node.span, name, ()) for name in (node.left, node.right))
            return ast.Compare(node.span, "!=", *sides)
        return inside(node, compared)

    spec = replace(rewritten(spec, compared), examples=spec.examples)
    counted = next((node.span for node in nodes(spec) if isinstance(node, ast.Ref) and node.name == LAYER), None)
    if not found and counted is None and not any(_is_number(output) for output in spec.outputs):
        return spec
    home = _fresh(spec, SET)
    index = _fresh(spec, INDEX)
    layer = _fresh(spec, LAYER + "'")
    if counted is not None:
        found.add(layer)

    def at(ref: ast.Ref) -> ast.Ref:
        return replace(ref, indices=(index, *ref.indices)) if ref.name in found else ref

    def read(node: Any, own: bool = False) -> Any:
        """An expression; where it is for the token itself (`own`), that is read."""
        if isinstance(node, ast.Ref):
            node = replace(node, name=layer) if node.name == LAYER else node
            there = at(node)
            return there if own or there is node else ast.Reduce(node.span, "mean", index, there)
        return inside(node, lambda below: read(below, own))

    def equation(one: ast.Equation) -> ast.Equation:
        target = at(one.target)
        return replace(one, target=target, body=read(one.body, target is not one.target))

    def output(one: ast.Output) -> ast.Output:
        if _is_number(one):
            return replace(one, target=replace(one.target, indices=(index,)), body=read(one.body, own=True))
        return one if _is_field(one.body) else replace(one, body=read(one.body))

    start = next((tokens.span for tokens in spec.tokens), spec.span)
    made = replace(
        spec,
        tokens=(*spec.tokens, ast.TokenSet(start, (index,), home, 1)),
        inputs=tuple(replace(f, target=at(f.target)) for f in spec.inputs),
        random=tuple(replace(f, target=at(f.target)) for f in spec.random),
        state=tuple(_state(f, at(f.target), read) for f in spec.state),
        lets=tuple(replace(let, body=read(let.body)) for let in spec.lets),
        steps=tuple(replace(step, equations=tuple(map(equation, step.equations))) for step in spec.steps),
        outputs=tuple(map(output, spec.outputs)),
        objective=None if spec.objective is None else read(spec.objective),
    )
    if counted is None:
        return made
    ran, one = ast.Ref(counted, _fresh(spec, COUNTED), (index,)), ast.Num(counted, 1.0)
    counter = ast.Field(counted, ran, ast.TypeClause(counted, "number"), start=ast.Num(counted, 0.0))
    more = ast.Binary(counted, "+", ran, one)
    targets = (ran, ast.Ref(counted, layer, (index,)))
    first = ast.Step(counted, tuple(ast.Equation(counted, target, more) for target in targets))
    return replace(made, state=(*made.state, counter), steps=(first, *made.steps))


def _state(one: ast.Field, target: ast.Ref, read: Any) -> ast.Field:
    return replace(one, target=target, start=None if one.start is None else read(one.start, target is not one.target))


def _is_field(body: ast.Expr) -> bool:
    """Whether an output shows a field under a name."""
    return isinstance(body, ast.Ref) and not body.indices and body.name != LAYER


def _is_number(output: ast.Output) -> bool:
    """Whether an output is one value for the whole run: an expression without an index on its left."""
    other = isinstance(output.body, ast.Ref) and output.body.name != LAYER
    return not output.target.indices and not other


def _without_index(spec: ast.Spec) -> Iterator[str]:
    """Fields that are declared or written without an index, and read nowhere with one."""
    indices = {index for tokens in spec.tokens for index in tokens.indices}
    written = [equation.target for step in spec.steps for equation in step.equations]
    declared = [one.target for one in (*spec.inputs, *spec.random, *spec.state)]
    read = (node for node in nodes(spec) if isinstance(node, ast.Ref))
    fixed = {index for tokens in spec.tokens for index in tokens.indices if tokens.size is not None}
    alone = {target.name for target in declared if not target.indices}

    def coordinate(ref: ast.Ref) -> bool:
        """Whether m[e] may be a coordinate of a vector m without an index."""
        return len(ref.indices) == 1 and ref.indices[0] in fixed

    indexed = {target.name for target in declared if target.indices}
    indexed |= {ref.name for ref in written if ref.indices and not (coordinate(ref) and ref.name in alone)}
    indexed |= {ref.name for ref in read if ref.indices and not coordinate(ref)}
    others = {one.name for one in spec.params} | {one.target.name for one in spec.lets} | _names(spec)
    for target in (*declared, *written):
        base, _, index = target.name.rpartition("_")
        forgotten = base in indexed and index in indices  # c_j
        if not target.indices and target.name not in indexed | others and not forgotten:
            yield target.name


def _names(spec: ast.Spec) -> set[str]:
    """Sets, indices and dimensions."""
    tokens = {name for one in spec.tokens for name in (one.name, *one.indices)}
    sizes = [*(one.size for one in spec.tokens), *(f.type.width for f in (*spec.inputs, *spec.state))]
    return tokens | {size for size in sizes if isinstance(size, str)}


def _fresh(spec: ast.Spec, word: str) -> str:
    taken = _names(spec) | {one.name for one in spec.params}
    taken |= {one.target.name for one in (*spec.inputs, *spec.random, *spec.state)}
    taken |= {one.target.name for one in spec.lets}
    taken |= {equation.target.name for step in spec.steps for equation in step.equations}
    while word in taken:
        word += "'"
    return word
