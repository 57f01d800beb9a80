"""Indices in comparisons -> their positions: `where l <= i` means `where index(l) <= index(i)`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from weftc.core.syntax import Compare, Position, Ref, Spec
from weftc.core.trees import inside, rewritten


def with_positions(spec: Spec) -> Spec:
    """The spec with `index(...)` around every index that a comparison reads as a number."""
    indices = frozenset(index for tokens in spec.tokens for index in tokens.indices)

    def numbers(node: Any) -> Any:
        if isinstance(node, Ref):
            return Position(node.span, node.name) if not node.indices and node.name in indices else node
        return inside(node, numbers)

    def rewrite(node: Any) -> Any:
        if isinstance(node, Compare):
            return replace(node, left=numbers(node.left), right=numbers(node.right))
        return inside(node, rewrite)

    return replace(rewritten(spec, rewrite), examples=spec.examples)
