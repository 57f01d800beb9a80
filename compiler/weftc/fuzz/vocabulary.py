"""What a random expression may name: token sets with their indices, fields by what they hold, parameters, `let`s."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from random import Random

from weftc.core.source import NOWHERE
from weftc.core.syntax import Dimension, Ref
from weftc.core.types import Checked, FieldType
from weftc.language.parse.globals import INDEX

COUNTED = "n"  # the parameter that is a whole number of tokens
SHARE = "tau"  # the parameter that is a percentage


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The names that mean something before a step."""

    sets: Mapping[str, tuple[str, ...]]  # token set -> its indices
    fixed: frozenset[str]  # sets whose size is known when it compiles
    fields: tuple[FieldType, ...]  # those that have a value
    params: tuple[str, ...]  # parameters known to be > 0
    lets: tuple[tuple[str, tuple[str, ...]], ...] = ()  # names of `let` numbers, and the indices they are defined for
    widths: tuple[Dimension, ...] = ()
    sizes: Mapping[str, Dimension] = field(default_factory=dict)  # of fixed sets

    @classmethod
    def of(cls, checked: Checked, readable: frozenset[str]) -> Vocabulary:
        """The names of a checked spec, of its fields those that can be read."""
        sets = {one.name: one.indices for one in checked.spec.tokens if one.indices != (INDEX,)}
        fields = tuple(one for one in checked.fields.values() if one.name in readable)
        params = tuple(name for name in checked.params if name not in (COUNTED, SHARE))
        lets = tuple((name, let.target.indices) for name, let in checked.lets.items())
        widths = tuple(dict.fromkeys(one.width for one in fields if one.width is not None))
        sizes = {name: size for name, size in checked.sets.items() if size is not None}
        return cls(sets, frozenset(n for n in sets if not checked.is_open(n)), fields, params, lets, widths, sizes)

    def home(self, index: str) -> str:
        """The set an index runs over."""
        return next(name for name, indices in self.sets.items() if index in indices)

    def fresh(self, rng: Random, used: tuple[str, ...]) -> str | None:
        """An index that is not in use, of any set."""
        free = [index for indices in self.sets.values() for index in indices if index not in used]
        return rng.choice(free) if free else None

    def vectors(self, width: Dimension, index: str) -> list[Ref]:
        """Vector fields of a width at a token."""
        fitting = [one for one in self.fields if width in (one.width, self.sizes.get(one.columns or ""))]
        return [
            Ref(NOWHERE, one.name, (index,) if self.own(one) else ())
            for one in fitting
            if not self.own(one) or one.home == self.home(index)
        ]

    def numbers(self, indices: tuple[str, ...]) -> list[tuple[Ref, FieldType]]:
        """Number and pair fields, each at all tokens of `indices` that it can be read at."""
        return [(ref, one) for one in self.fields for ref in self._places(one, indices)]

    def own(self, one: FieldType) -> tuple[str, ...]:
        """The indices a field is written with; what belongs to no token has none."""
        return () if one.indices == (INDEX,) else one.indices

    def members(self, first: str, second: str) -> list[Ref]:
        """One-hot fields between two tokens, either way round."""
        return [ref for ref, one in self.numbers((first, second)) if one.kind == "onehot" and len(ref.indices) == 2]

    def _places(self, one: FieldType, indices: tuple[str, ...]) -> Iterator[Ref]:
        if not self.own(one):
            yield from [Ref(NOWHERE, one.name, ())] if one.width is None else []
            return
        if one.width is not None:  # its coordinates
            over = [e for e in indices if self.sizes.get(self.home(e)) == one.width]
            homes = [i for i in indices if self.home(i) == one.home]
            yield from (Ref(NOWHERE, one.name, (i, e)) for i in homes for e in over if i != e)
            return
        if one.columns is None:
            yield from (Ref(NOWHERE, one.name, (i,)) for i in indices if self.home(i) == one.home)
            return
        for i in indices:
            for j in indices:
                if i != j and self.home(i) == one.home and self.home(j) == one.columns:
                    yield Ref(NOWHERE, one.name, (i, j))
