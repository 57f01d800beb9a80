"""The table of atoms: what the numbers in a polynomial stand for, which tokens they are about, what they hold.

Equal things are the same number wherever they occur. What an atom stands for:

    field      one coordinate of a field of a token (data: field, column, token of a fixed set or -1)
    kept       a number that the start has stored and no step changes
    count, position     number of tokens of an open set; place of a token in it
    sum        the sum of a monomial over all tokens of an open set
    weight     the weight that a choice gives to one key (see `weights`)
    best       the largest of several scores
    exp, log, sqrt, relu, tanh, inverse     functions of a polynomial
    above, atleast, nothing, differ         indicators: p > 0, p >= 0, p = 0, two tokens are not the same

Tokens of open sets are small integers: 0 is the token that is being described. What an atom holds is written in names
of its own (0, 1, ...), and `tokens` says which tokens these are, so that equal sums over other tokens are equal atoms.

Powers are whole numbers, except for `exp`, whose powers are rational: exp(a x + b y) is exp(x)^a exp(y)^b.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from weft.proof.polynomials import Frozen, Mono, Number, Poly, freeze, magnitude, scale, tidy

INDICATORS = frozenset({"above", "atleast", "nothing", "differ"})
SPECIAL = INDICATORS | {"sqrt", "relu"}


@dataclass(frozen=True, slots=True)
class Atom:
    """What an atom is: its kind, what it holds (hashable, in its own token names), and the tokens it is about."""

    kind: str
    data: Any
    tokens: tuple[int, ...] = ()


class Atoms:
    """The table, and what can be said about an atom without multiplying."""

    def __init__(self, onehot: Iterable[str] = (), positive: Iterable[str] = ()) -> None:
        self.atoms: list[Atom] = []
        self.index: dict[Atom, int] = {}
        self.onehot, self.positive_fields = frozenset(onehot), frozenset(positive)
        self.special: set[int] = set()  # atoms whose powers or products have rules of their own
        self.positive: set[int] = set()  # atoms known to be > 0
        self.choices: list[Any] = []  # what choices are: rule, scores, masks; a weight holds the number of its choice
        self.empties: dict[int, Frozen | None] = {}  # choice -> what is zero when it has no candidate, in its names
        self._choice_index: dict[Any, int] = {}
        self._renamed: dict[tuple[int, tuple[tuple[int, int], ...]], int] = {}
        self._empty_of: dict[int, frozenset[int]] = {}
        self._holds: dict[tuple[int, str], bool] = {}
        self._divided: dict[int, int] = {}  # `nothing` -> the quotient by the same
        self.squares: set[Frozen] = set()  # sums of squares, multiplied out, in names of their own: they are >= 0

    # ---- atoms -------------------------------------------------------------------------------------------------------

    def intern(self, kind: str, data: Any, tokens: tuple[int, ...] = ()) -> int:
        """The number of an atom."""
        atom = Atom(kind, data, tokens)
        found = self.index.get(atom)
        if found is None:
            found = self.index[atom] = len(self.atoms)
            self.atoms.append(atom)
            if kind in SPECIAL or (kind == "field" and data[0] in self.onehot):
                self.special.add(found)
            if self._known_positive(kind, data):
                self.positive.add(found)
            if kind in ("nothing", "inverse"):
                self._link(atom, found)
        return found

    def _link(self, atom: Atom, number_: int) -> None:
        """Remembers which quotient divides by what an indicator asks about."""
        other = self.index.get(Atom("inverse" if atom.kind == "nothing" else "nothing", atom.data, atom.tokens))
        if other is not None:
            nothing, inverse = (number_, other) if atom.kind == "nothing" else (other, number_)
            self._divided[nothing] = inverse

    def _known_positive(self, kind: str, data: Any) -> bool:
        match kind:
            case "exp" | "count" | "position":
                return True
            case "field":
                return data[0] in self.positive_fields
            case "sum":
                return all(a in self.positive for a, _ in data[1])
            case "inverse" | "sqrt":
                return self.is_positive(dict(data))
        return False

    def choice(self, what: Any) -> int:
        """The number of a choice."""
        found = self._choice_index.get(what)
        if found is None:
            found = self._choice_index[what] = len(self.choices)
            self.choices.append(what)
        return found

    def atom(self, kind: str, data: Any, tokens: tuple[int, ...] = ()) -> Poly:
        """An atom as a polynomial."""
        return {((self.intern(kind, data, tokens), 1),): 1}

    def tokens(self, monos: Iterable[Mono]) -> set[int]:
        """The tokens that monomials are about."""
        atoms = self.atoms
        return {token for mono in monos for a, _ in mono for token in atoms[a].tokens}

    # ---- tokens ------------------------------------------------------------------------------------------------------

    def rename(self, p: Poly, names: Mapping[int, int]) -> Poly:
        """The same about other tokens."""
        names = {old: new for old, new in names.items() if old != new}
        if not names:
            return p
        key = tuple(sorted(names.items()))
        result: Poly = {}
        for mono, coefficient in p.items():
            moved = self.rename_mono(mono, names, key)
            result[moved] = result.get(moved, 0) + coefficient
        return result

    def rename_mono(self, mono: Mono, names: Mapping[int, int], key: tuple[tuple[int, int], ...]) -> Mono:
        """A monomial about other tokens."""
        atoms = self.atoms
        if not any(token in names for a, _ in mono for token in atoms[a].tokens):
            return mono
        return tuple(sorted((self._rename_atom(a, names, key), power) for a, power in mono))

    def _rename_atom(self, a: int, names: Mapping[int, int], key: tuple[tuple[int, int], ...]) -> int:
        atom = self.atoms[a]
        if not any(token in names for token in atom.tokens):
            return a
        found = self._renamed.get((a, key))
        if found is None:
            tokens = tuple(names.get(token, token) for token in atom.tokens)
            tokens = tuple(sorted(tokens)) if atom.kind == "differ" else tokens
            found = self._renamed[a, key] = self.intern(atom.kind, atom.data, tokens)
        return found

    def local(self, p: Poly, last: int | None = None) -> tuple[Poly, tuple[int, ...]]:
        """p in names of its own, and the tokens these are; `last` (a bound token) has the last name and is left out."""
        tokens = sorted(self.tokens(p) - ({last} if last is not None else set()))
        names = {token: place for place, token in enumerate(tokens)}
        if last is not None:
            names[last] = len(tokens)
        return self.rename(p, names), tuple(tokens)

    def open(self, frozen: Frozen, tokens: tuple[int, ...]) -> Poly:
        """A polynomial in names of its own, about these tokens."""
        return self.rename(dict(frozen), dict(enumerate(tokens)))

    def lifted(self, function: Callable[[Poly, tuple[int, ...]], Poly], p: Poly) -> Poly:
        """A function of p, worked out in names of its own so that it is the same whatever the tokens are."""
        inside, tokens = self.local(p)
        return self.rename(function(inside, tuple(range(len(tokens)))), dict(enumerate(tokens)))

    def holding(self, kind: str, p: Poly) -> Poly:
        """The atom of this kind that holds p."""
        inside, tokens = self.local(p)
        return self.atom(kind, freeze(inside), tokens)

    # ---- what is known -----------------------------------------------------------------------------------------------

    def is_positive(self, p: Poly) -> bool:
        """Whether p is known to be > 0: a sum of positive products; or a positive number and what is not negative."""
        if not p:
            return False
        if all(c > 0 and all(a in self.positive for a, _ in mono) for mono, c in p.items()):
            return True
        return bool(p.get((), 0) > 0) and self.is_nonnegative({mono: c for mono, c in p.items() if mono})

    def is_nonnegative(self, p: Poly) -> bool:
        """Whether p is known to be >= 0: a sum of squares, or of products of factors that are."""
        return not p or self.as_square(p) in self.squares or self._nonnegative_terms(p)

    def as_square(self, p: Poly) -> Frozen:
        """p in names of its own, up to a positive factor."""
        inside = self.local(p)[0]
        return freeze(tidy(scale(inside, 1 / Fraction(magnitude(inside[min(inside)])))))

    def _nonnegative_terms(self, p: Poly) -> bool:
        return all(c > 0 and all(power % 2 == 0 or self._nonnegative(a) for a, power in mono) for mono, c in p.items())

    def _nonnegative(self, a: int) -> bool:
        atom = self.atoms[a]
        match atom.kind:
            case "above" | "atleast" | "nothing" | "differ" | "sqrt" | "relu":
                return True
            case "field":
                return atom.data[0] in self.onehot or a in self.positive
            case "weight":
                return bool(atom.data[2] != "best")
            case "sum":
                return all(power % 2 == 0 or self._nonnegative(b) for b, power in atom.data[1])
            case "inverse":
                return self.is_nonnegative(dict(atom.data))
        return a in self.positive

    def holds_kind(self, a: int, kind: str) -> bool:
        """Whether an atom is of a kind, or holds one that is."""
        if (a, kind) not in self._holds:
            atom = self.atoms[a]
            self._holds[a, kind] = atom.kind == kind or any(
                self.holds_kind(b, kind) for mono, _ in self.terms_inside(atom) for b, _ in mono
            )
        return self._holds[a, kind]

    def terms_inside(self, atom: Atom) -> Iterator[tuple[Mono, Number]]:
        """The terms of all polynomials that an atom holds, in its own names."""
        match atom.kind:
            case "field" | "count" | "position" | "other" | "differ" | "kept":
                return
            case "exp":
                yield atom.data, 1
            case "sum":
                yield atom.data[1], 1
            case "weight":
                yield from self.terms_of_choice(atom.data[0])
            case _:
                yield from atom.data

    def terms_of_choice(self, choice: int) -> Iterator[tuple[Mono, Number]]:
        """The terms of the scores and masks of a choice."""
        for part in self.choices[choice]:
            yield from _terms(part)


def _terms(part: Any) -> Iterator[tuple[Mono, Number]]:
    """The terms of a frozen polynomial, or of a tuple of them."""
    if isinstance(part, tuple):
        for one in part:
            if isinstance(one, tuple) and len(one) == 2 and isinstance(one[1], int | Fraction):
                yield one
            else:
                yield from _terms(one)
