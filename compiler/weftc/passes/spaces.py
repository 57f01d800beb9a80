"""Which numbers of a spec may be shifted together: fields that it compares with each other form one space.

Two fields are of one space where the spec adds, subtracts or compares them, or sets one from the other:

    |x[i] - c[j]|^2     x, c        c[j] = mean[i] x[i] where y[i,j] else c[j]     c, x
    |g[h] - g[j]|^2     g alone, even where it is as wide as x

Products, functions and inner products lead out of a space: x[i]^2 has units of its own. A number times a vector stays
in that of the vector, and weights (pair fields, weightings) change nothing.
"""

from __future__ import annotations

from weftc.core.types import Checked
from weftc.graph.graph import Graph
from weftc.graph.node import VERSIONS, Node, Reduction


class Spaces:
    """The spaces of one spec."""

    def __init__(self, graph: Graph) -> None:
        self.checked: Checked = graph.checked
        self._of = {name: frozenset({name}) for name in self.checked.fields}
        members: dict[Node, frozenset[str]] = {}
        for node in graph.nodes:
            members[node] = self._members(node, [members[x] for x in node.operands])

    def of(self, field: str) -> tuple[str, ...]:
        """The fields of one space, in the order of the spec."""
        return tuple(name for name in self.checked.fields if name in self._of[field])

    def source(self, field: str) -> str | None:
        """The input whose tokens say where the numbers of a space lie: one on an open set if there is one."""
        fields = [self.checked.fields[name] for name in self.of(field)]
        width = self.checked.fields[field].width
        inputs = [f for f in fields if f.role == "input" and not f.is_pair and f.width == width]
        return next((f.name for f in sorted(inputs, key=lambda f: not self.checked.is_open(f.home))), None)

    def _join(self, *parts: frozenset[str]) -> frozenset[str]:
        found = frozenset().union(*parts)
        whole = frozenset().union(*(self._of[name] for name in found))
        self._of.update(dict.fromkeys(whole, whole))
        return found

    def _members(self, node: Node, inside: list[frozenset[str]]) -> frozenset[str]:
        """The fields in whose space the value of a node lies; joins what is compared in it."""
        if node.op in VERSIONS:
            own = frozenset({node.label})
            self._join(own, *inside)
            return own
        if node.op in ("affine", "else", "where"):
            return self._join(*inside)
        if node.op in ("read", "quotient"):
            return inside[0]
        if node.op == "product" and node.detail == "times":
            return self._factor(*inside)
        if isinstance(node.detail, Reduction) and node.detail.kind != "logsumexp":
            return inside[node.roles.index("body")]
        return frozenset()

    def _factor(self, left: frozenset[str], right: frozenset[str]) -> frozenset[str]:
        """The space of a product: that of the vector, or of what is no weight; none for a product of two such."""

        def is_vector(names: frozenset[str]) -> bool:
            return any(self.checked.fields[n].width is not None for n in names)

        def is_weight(names: frozenset[str]) -> bool:
            return all(self.checked.fields[n].is_pair for n in names)

        if is_vector(left) != is_vector(right):
            return left if is_vector(left) else right
        if is_weight(left) or is_weight(right):
            return right if is_weight(left) else left
        return frozenset()
