"""Which numbers of a spec may be shifted together: fields that it compares with each other form one space.

Two fields are of one space where the spec adds, subtracts or compares them, or sets one from the other:

    |x[i] - c[j]|^2     x, c        c[j] = mean[i] x[i] where y[i,j] else c[j]     c, x
    |g[h] - g[j]|^2     g alone, even where it is as wide as x

Products, functions and inner products lead out of a space: x[i]^2 has units of its own. A number times a vector stays
in that of the vector, and weights (pair fields, weightings) change nothing.
"""

from __future__ import annotations

from weft import syntax as ast
from weft.types import Checked


class Spaces:
    """The spaces of one spec."""

    def __init__(self, checked: Checked) -> None:
        self.checked = checked
        self._of = {name: frozenset({name}) for name in checked.fields}
        self._lets: dict[str, set[str]] = {}
        spec = checked.spec
        for field in (*spec.inputs, *spec.random, *spec.state):
            if field.start is not None:
                self._join({field.target.name}, self._members(field.start))
        for equation in (e for step in spec.steps for e in step.equations):
            self._join({equation.target.name}, self._members(equation.body))
        for body in (*(o.body for o in spec.outputs), *([spec.objective] if spec.objective is not None else [])):
            self._members(body)

    def of(self, field: str) -> tuple[str, ...]:
        """The fields of one space, in the order of the spec."""
        return tuple(name for name in self.checked.fields if name in self._of[field])

    def source(self, field: str) -> str | None:
        """The input whose tokens say where the numbers of a space lie: one on an open set if there is one."""
        fields = [self.checked.fields[name] for name in self.of(field)]
        width = self.checked.fields[field].width
        inputs = [f for f in fields if f.role == "input" and not f.is_pair and f.width == width]
        return next((f.name for f in sorted(inputs, key=lambda f: not self.checked.is_open(f.home))), None)

    def _join(self, *parts: set[str]) -> set[str]:
        found = set().union(*parts)
        whole = frozenset().union(*(self._of[name] for name in found))
        self._of.update(dict.fromkeys(whole, whole))
        return found

    def _members(self, node: ast.Node) -> set[str]:
        """The fields in whose space the value of an expression lies; joins what is compared inside it."""
        match node:
            case ast.Ref(name=name):
                if name in self.checked.lets:
                    if name not in self._lets:
                        self._lets[name] = self._members(self.checked.lets[name].body)
                    return self._lets[name]
                return {name} if name in self.checked.fields else set()
            case ast.Binary(op="+" | "-", left=left, right=right) | ast.Compare(left=left, right=right):
                return self._join(self._members(left), self._members(right))
            case ast.Else(body=body, fallback=fallback):
                return self._join(self._members(body), self._members(fallback))
            case ast.Binary(op="*", left=left, right=right):
                return self._factor(self._members(left), self._members(right))
            case ast.Binary(op="/", left=left, right=right):
                self._members(right)
                return self._members(left)
            case ast.Neg(body=body):
                return self._members(body)
            case ast.Reduce(kind="sum" | "mean" | "max" | "min", body=body):
                for child in ast.children(node):
                    if child is not body:
                        self._members(child)
                return self._members(body)
        for child in ast.children(node):
            self._members(child)
        return set()

    def _factor(self, left: set[str], right: set[str]) -> set[str]:
        """The space of a product: that of the vector, or of what is no weight; none for a product of two such."""

        def is_vector(names: set[str]) -> bool:
            return any(self.checked.fields[n].width is not None for n in names)

        def is_weight(names: set[str]) -> bool:
            return all(self.checked.fields[n].is_pair for n in names)

        if is_vector(left) != is_vector(right):
            return left if is_vector(left) else right
        if is_weight(left) or is_weight(right):
            return right if is_weight(left) else left
        return set()
