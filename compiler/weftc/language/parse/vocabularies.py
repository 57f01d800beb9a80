"""Symbols in expressions: `where t[l] = a` means the symbol a of the vocabulary of t, if nothing else is called a.

A symbol in quotes is always one. Which vocabulary is meant follows from the symbol, and where several have it from the
field that stands on the other side.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from weftc.core.syntax import Compare, Else, Inner, Member, ReadAt, Ref, Spec, Symbol, walk
from weftc.core.trees import inside, rewritten


def with_symbols(spec: Spec) -> Spec:
    """The spec with a `Symbol` for every word that is one, each with its vocabulary (none: the checker says so)."""
    vocabularies = dict.fromkeys(f.type.symbols for f in (*spec.inputs, *spec.state) if f.type.symbols)
    own = {f.target.name: f.type.symbols for f in (*spec.inputs, *spec.state)}
    taken = _names(spec)

    def rewrite(node: Any) -> Any:
        if isinstance(node, Member):
            return node
        if isinstance(node, Compare | Inner):
            left, right = rewrite(node.left), rewrite(node.right)
            return replace(node, left=beside(left, right), right=beside(right, left))
        if isinstance(node, Else):
            body, fallback = rewrite(node.body), rewrite(node.fallback)
            return replace(node, body=beside(body, fallback), fallback=beside(fallback, body))
        if isinstance(node, Symbol) and node.vocabulary:  # a constant vector
            return node
        if isinstance(node, Symbol):
            return replace(node, vocabulary=only(node.text))
        if isinstance(node, Ref) and not node.indices and node.name not in taken and having(node.name):
            return Symbol(node.span, node.name, only(node.name))
        return inside(node, rewrite)

    def having(text: str) -> list[tuple[str, ...]]:
        return [one for one in vocabularies if text in one]

    def only(text: str) -> tuple[str, ...]:
        found = having(text)
        return found[0] if len(found) == 1 else ()

    def beside(node: Any, other: Any) -> Any:
        if not isinstance(node, Symbol):
            return node
        named = (own.get(one.name, ()) for one in walk(other) if isinstance(one, Ref | ReadAt))
        found = {one for one in named if node.text in one}
        return replace(node, vocabulary=found.pop()) if len(found) == 1 else node

    made = rewritten(spec, rewrite)
    shown = tuple(new if new.target.indices else old for new, old in zip(made.outputs, spec.outputs, strict=True))
    return replace(made, outputs=shown, examples=spec.examples)


def _names(spec: Spec) -> set[str]:
    """Everything that is called something else."""
    taken = {index for one in spec.tokens for index in (*one.indices, one.name)}
    sizes = (*(one.size for one in spec.tokens), *(f.type.width for f in (*spec.inputs, *spec.random, *spec.state)))
    taken |= {size for size in sizes if isinstance(size, str)}
    taken |= {f.target.name for f in (*spec.inputs, *spec.random, *spec.state)}
    taken |= {one.name for one in spec.params} | {one.target.name for one in spec.lets}
    return taken | {equation.target.name for step in spec.steps for equation in step.equations}
