"""An index that is bound again means another token, as in mathematics: it gets a name of its own.

u[i,j] = q[i,j] / (sum[j] q[i,j])      ->      u[i,j] = q[i,j] / (sum[j'] q[i,j'])
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from weftc.core import syntax as ast
from weftc.core.trees import inside, nodes, with_indices


def with_own_indices(spec: ast.Spec) -> ast.Spec:
    """The spec in which no reduction binds an index that stands for a token already."""
    return _OwnIndices(spec).spec()


class _OwnIndices:
    def __init__(self, spec: ast.Spec) -> None:
        self.whole = spec
        self.homes = {index: one.name for one in spec.tokens for index in one.indices}
        targets = [one.target for one in (*spec.inputs, *spec.random, *spec.state)]
        targets += [let.target for let in spec.lets]
        targets += [equation.target for step in spec.steps for equation in step.equations]
        self.taken = {*self.homes, *self.homes.values(), *(target.name for target in targets)}
        self.taken |= {one.name for one in spec.params} | {n.name for n in nodes(spec) if isinstance(n, ast.Ref)}
        self.made: dict[str, list[str]] = {}  # index -> names for further tokens of its set

    def spec(self) -> ast.Spec:
        spec = self.whole
        made = replace(
            spec,
            steps=tuple(replace(s, equations=tuple(self._for(e, "body") for e in s.equations)) for s in spec.steps),
            lets=tuple(self._for(let, "body") for let in spec.lets),
            state=tuple(one if one.start is None else self._for(one, "start") for one in spec.state),
            outputs=tuple(self._for(output, "body") for output in spec.outputs),
            objective=None if spec.objective is None else self._own(spec.objective, {}, frozenset()),
        )
        if not self.made:
            return spec
        more = {
            one.name: tuple(name for index in one.indices for name in self.made.get(index, ())) for one in spec.tokens
        }
        return replace(made, tokens=tuple(replace(t, indices=(*t.indices, *more[t.name])) for t in spec.tokens))

    def _for(self, one: Any, part: str) -> Any:
        """A declaration or equation, whose left-hand side binds its indices."""
        return replace(one, **{part: self._own(getattr(one, part), {}, frozenset(one.target.indices))})

    def _own(self, node: Any, names: Mapping[str, str], bound: frozenset[str]) -> Any:
        """A node with the indices in `names` under their new names; `bound`: as the text calls what is bound."""
        if isinstance(node, ast.Reduce):
            index = node.index
            inner = {old: new for old, new in names.items() if old != index}
            if index in bound and index in self.homes:
                inner[index] = self._fresh(index, set(names.values()))
            found = inside(node, lambda below: self._own(below, inner, bound | {index}))
            return replace(found, index=inner.get(index, index))
        return with_indices(inside(node, lambda below: self._own(below, names, bound)), names)

    def _fresh(self, index: str, used: set[str]) -> str:
        own = self.made.setdefault(index, [])
        for name in own:
            if name not in used:
                return name
        name = index + "'"
        while name in self.taken:
            name += "'"
        self.taken.add(name)
        own.append(name)
        return name
