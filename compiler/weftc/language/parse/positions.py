"""Positions: indices in comparisons, and fields read at the tokens that stand somewhere.

    where l <= i       where index(l) <= index(i)
    x[i-1]             mean[l] x[l] where index(l) = index(i) - 1
    x[first], x[1]     mean[l] x[l] by argmin[l](index(l));  x[last] by argmax
    c[2] of 5 tokens   mean[h] c[h] by argmin[h](|index(h) - 2|^2)
    n[i] = argmin[l] S mean[l] index(l) by argmin[l](S): where the chosen token stands; x[n[i]] is sure to exist

Behind a position stands an index of its own, one that the spec does not use.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from weftc.core.source import Span
from weftc.core.syntax import (
    Binary,
    Compare,
    Different,
    Else,
    Expr,
    Num,
    Position,
    ReadAt,
    Reduce,
    Ref,
    Spec,
    Square,
    Weigh,
)
from weftc.core.trees import inside, rewritten
from weftc.core.vocabulary import CHOICES

ENDS = {"first": "argmin", "last": "argmax"}


def with_positions(spec: Spec) -> Spec:
    """The spec with `index(...)` around every index that is read as a number, and positions as means of one token."""
    return _Positions(spec).spelled_out()


class _Positions:
    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.indices = {index: one.name for one in spec.tokens for index in one.indices}
        self.homes: dict[str, tuple[str, ...]] = {}
        written = [equation.target for step in spec.steps for equation in step.equations]
        declared = [one.target for one in (*spec.inputs, *spec.random, *spec.state)]
        declared += [one.target for one in spec.lets]
        for target in (*declared, *written):
            self.homes.setdefault(target.name, tuple(self.indices.get(index, "") for index in target.indices))
        self.taken = {
            *self.indices,
            *self.homes,
            *(one.name for one in spec.tokens),
            *(one.name for one in spec.params),
        }
        sizes = (*(one.size for one in spec.tokens), *(one.type.width for one in (*spec.inputs, *spec.state)))
        self.constants = {*(one.name for one in spec.params), *(size for size in sizes if isinstance(size, str))}
        self.pointers = self._always_positions()
        self.own: dict[str, list[str]] = {}  # set -> the indices made for it, one for each depth

    def spelled_out(self) -> Spec:
        steps = tuple(
            replace(
                step,
                equations=tuple(replace(e, body=self._pointer(e.body, e.target) or e.body) for e in step.equations),
            )
            for step in self.spec.steps
        )
        spec = replace(rewritten(replace(self.spec, steps=steps), self.rewrite), examples=self.spec.examples)
        if not self.own:
            return spec
        tokens = tuple(replace(one, indices=(*one.indices, *self.own.get(one.name, ()))) for one in spec.tokens)
        return replace(spec, tokens=tokens)

    def rewrite(self, node: Any, depth: int = 0) -> Any:
        if isinstance(node, Compare):
            return replace(node, left=self.number(node.left, depth), right=self.number(node.right, depth))
        if isinstance(node, Different) and self._of_values({node.left, node.right}):
            sides = (self.number(Ref(node.span, name, ()), depth) for name in (node.left, node.right))
            return Compare(node.span, "!=", *sides)
        if isinstance(node, ReadAt):
            return self._read(node, depth)
        if isinstance(node, Ref) and self._ends(node):
            return self._read(ReadAt(node.span, node.name, tuple(Ref(node.span, i, ()) for i in node.indices)), depth)
        return inside(node, lambda below: self.rewrite(below, depth))

    def _always_positions(self) -> dict[str, str]:
        """The fields that hold positions of tokens of one set, and nothing else, with the set."""
        found: dict[str, set[str | None]] = {}
        for equation in (one for step in self.spec.steps for one in step.equations):
            made = self._pointer(equation.body, equation.target)
            other = made.fallback if isinstance(made, Else) else None
            homes = {self.indices[part.index] for part in (made, other) if isinstance(part, Reduce | Position)}
            if isinstance(made, Else):
                homes |= {self.indices[made.body.index]} if isinstance(made.body, Reduce) else set()
            sure = made is not None and len(homes) == 1 and (other is None or isinstance(other, Position))
            found.setdefault(equation.target.name, set()).add(next(iter(homes)) if sure else None)
        declared = {one.target.name for one in (*self.spec.inputs, *self.spec.random, *self.spec.state)}
        sure_homes = {name: next(iter(homes)) for name, homes in found.items() if len(homes) == 1}
        return {name: home for name, home in sure_homes.items() if home is not None and name not in declared}

    def _pointer(self, body: Expr, target: Ref) -> Expr | None:
        """A choice over tokens that the left-hand side does not name is the position of the one that is chosen."""
        choice = body.body if isinstance(body, Else) else body
        if not isinstance(choice, Weigh) or choice.kind not in CHOICES or choice.index not in self.indices:
            return None
        if choice.index in target.indices or (choice.ties is not None and choice.ties.rule not in ("first", "within")):
            return None
        chosen = Reduce(choice.span, "mean", choice.index, Position(choice.span, choice.index), by=choice)
        if not isinstance(body, Else):
            return chosen
        other = body.fallback
        if isinstance(other, Ref) and not other.indices and other.name in self.indices:
            other = Position(other.span, other.name)
        return replace(body, body=chosen, fallback=other)

    def number(self, node: Any, depth: int) -> Any:
        """A value in which an index alone is its position."""
        if isinstance(node, Ref) and not node.indices and node.name in self.indices:
            return Position(node.span, node.name)
        if isinstance(node, Ref | ReadAt | Different):
            return self.rewrite(node, depth)
        return inside(node, lambda below: self.number(below, depth))

    def _of_values(self, names: set[str]) -> bool:
        """Whether `a != b` compares values, and not two indices."""
        return not names <= self.indices.keys() and names <= self.indices.keys() | self.constants

    def _ends(self, ref: Ref) -> bool:
        return any(index in ENDS and index not in self.indices for index in ref.indices)

    def _read(self, node: ReadAt, depth: int) -> Expr:
        """The means, one in the other, for the places that are no indices."""
        homes = self.homes.get(node.name, ())
        if len(homes) != len(node.places) or not all(home in self.indices.values() for home in homes):
            return Ref(node.span, node.name, ())  # the checker says what is wrong with it
        names: list[str] = []
        places: list[tuple[str, Expr]] = []
        for home, place in zip(homes, node.places, strict=True):
            if isinstance(place, Ref) and not place.indices and (place.name in self.indices or place.name not in ENDS):
                names.append(place.name)
                continue
            index = self._fresh(home, depth + len(places))
            names.append(index)
            places.append((index, place))
        body: Expr = Ref(node.span, node.name, tuple(names))
        for index, place in places:
            body = self._at(node.span, index, place, body, depth + len(places))
        return body

    def _at(self, span: Span, index: str, place: Expr, body: Expr, depth: int) -> Reduce:
        here = Position(place.span, index)
        if isinstance(place, Ref) and place.name in ENDS and not place.indices:
            return Reduce(span, "mean", index, body, by=Weigh(span, ENDS[place.name], index, here))
        if isinstance(place, Num) and place.value <= self._least(index):
            score = here if place.value == 1 else Square(place.span, Binary(place.span, "-", here, place))
            return Reduce(span, "mean", index, body, by=Weigh(span, "argmin", index, score))
        home = next(home for home, own in self.own.items() if index in own)
        if isinstance(place, Ref) and self.pointers.get(place.name) == home:  # there is such a token
            apart = Binary(place.span, "-", here, self.number(place, depth))
            return Reduce(span, "mean", index, body, by=Weigh(span, "argmin", index, Square(place.span, apart)))
        condition = Compare(place.span, "=", here, self.number(place, depth))
        return Reduce(span, "mean", index, body, where=(condition,))

    def _least(self, index: str) -> int:
        """How many tokens the set of an index is known to have."""
        home = next(home for home, own in self.own.items() if index in own)
        size = next(one.size for one in self.spec.tokens if one.name == home)
        return size if isinstance(size, int) else 1

    def _fresh(self, home: str, depth: int) -> str:
        """An index over a set, another one at each depth of positions inside positions."""
        own = self.own.setdefault(home, [])
        while len(own) <= depth:
            name = next(index for index, of in self.indices.items() if of == home) + "'"
            while name in self.taken:
                name += "'"
            self.taken.add(name)
            own.append(name)
        return own[depth]
