"""The table of atoms: what the numbers in a polynomial stand for, which tokens they are about, what they hold.

Equal things are the same number wherever they occur. What an atom stands for:

    field      one coordinate of a field of a token (data: field, column, token of a fixed set or -1)
    kept, other     a number that the start has stored and no step changes; one of which nothing is known
    count, position     number of tokens of an open set; place of a token in it
    sum        the sum of a monomial over all tokens of an open set
    weight     the weight that a choice gives to one key, or its largest score (data: `ChoiceTerm`, names, which key)
    exp, log, sqrt, relu, tanh, sigmoid, softplus, sign, inverse     functions of a polynomial
    above, atleast, nothing, differ         indicators: p > 0, p >= 0, p = 0, two tokens are not the same

Tokens of open sets are small integers: 0 is the token that is being described. What an atom holds is written in names
of its own (0, 1, ...), and `tokens` says which tokens these are, so that equal sums over other tokens are equal atoms.

Powers are whole numbers, except for `exp`, whose powers are rational: exp(a x + b y) is exp(x)^a exp(y)^b. A negative
power stands only on an atom that is known to be positive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from weftc.prover.kernel.polynomials import Frozen, Mono, Number, Poly, add, freeze, magnitude, monomial, scale, tidy
from weftc.prover.kernel.rules import Journal, Operand, Oracle, Question

INDICATORS = frozenset({"above", "atleast", "nothing", "differ"})
MOST_ABSORBED = 64  # terms of what an indicator asks about
SPECIAL = INDICATORS | {"sqrt", "relu", "sign"}


@dataclass(frozen=True, slots=True)
class Atom:
    """What an atom is: its kind, what it holds (hashable, in its own token names), and the tokens it is about."""

    kind: str
    data: Any
    tokens: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class WeighingTerm:
    """A weighting and its numbers, as the file format has them; `best` is the largest score itself."""

    kind: str
    ties: str = "first"
    epsilon: Fraction = Fraction(0)
    count: int | None = None
    percent: Fraction | None = None
    gamma: Fraction | None = None


@dataclass(frozen=True, slots=True)
class ChoiceTerm:
    """What chooses: scores and masks of the keys, one per token of a fixed set, or one for all of an open one.

    Everything is in names of its own; of an open set the last is that of the key. `own` is the score of one more key.
    """

    rule: WeighingTerm
    over: str | None  # an open set
    scores: tuple[Frozen, ...]
    masks: tuple[Frozen, ...] | None = None  # None: every key is always eligible
    own: Frozen | None = None

    def terms(self) -> Iterator[tuple[Mono, Number]]:
        """The terms of all its polynomials."""
        for part in (*self.scores, *(self.masks or ()), self.own or ()):
            yield from part


class Terms:
    """The table, and what can be said about an atom without multiplying."""

    def __init__(
        self,
        oracle: Oracle,
        onehot: Iterable[str] = (),
        positive: Iterable[str] = (),
        nonnegative: Iterable[str] = (),
    ) -> None:
        self.atoms: list[Atom] = []
        self.index: dict[Atom, int] = {}
        self.onehot, self.positive_fields = frozenset(onehot), frozenset(positive)
        self.nonnegative_fields = frozenset(nonnegative) | self.onehot | self.positive_fields
        self.special: set[int] = set()  # atoms whose powers or products have rules of their own
        self.positive: set[int] = set()  # atoms known to be > 0
        self.choices: list[ChoiceTerm] = []  # a weight holds the number of its choice
        self.empties: dict[int, Frozen | None] = {}  # choice -> what is 1 when it has no candidate, in its names
        self.squares: set[Frozen] = set()  # sums of squares, multiplied out, in names of their own: they are >= 0
        self.powers: dict[Frozen, tuple[Frozen, int]] = {}  # powers, multiplied out, in names of their own -> of what
        self.oracle, self.journal = oracle, Journal()
        self._choice_index: dict[ChoiceTerm, int] = {}
        self._renamed: dict[tuple[int, tuple[tuple[int, int], ...]], int] = {}
        self._empty_of: dict[int, frozenset[int]] = {}
        self._zeros_of: dict[int, frozenset[int]] = {}
        self._holds: dict[tuple[int, str], bool] = {}
        self._terms_of: dict[int, tuple[Mono, ...]] = {}
        self._divided: dict[Frozen, set[int]] = {}  # the support of a divisor -> the quotients by it
        self._quotients_at: dict[int, Frozen] = {}

    def asked(self, question: Question, about: Operand) -> Any:
        """What the oracle says; asked once."""
        key, answers = (question, about), self.journal.answers
        if key not in answers:
            answers[key] = self.oracle(question, about, self)
        return answers[key]

    # ---- atoms -------------------------------------------------------------------------------------------------------

    def intern(self, kind: str, data: Any, tokens: tuple[int, ...] = ()) -> int:
        """The number of an atom."""
        atom = Atom(kind, data, tokens)
        found = self.index.get(atom)
        if found is None:
            found = self.index[atom] = len(self.atoms)
            self.atoms.append(atom)
            single = kind == "inverse" and len(data) == 1  # 1/a: beside a it is 0 or 1
            if kind in SPECIAL or single or (kind == "field" and data[0] in self.onehot):
                self.special.add(found)
            if self._known_positive(kind, data):
                self.positive.add(found)
            if kind == "inverse":
                inside = self.support(dict(data))
                self._divided.setdefault(self._place(inside, tokens), set()).add(found)
        return found

    def _place(self, inside: Poly, tokens: tuple[int, ...]) -> Frozen:
        """What is divided by, about the tokens themselves."""
        return freeze(self.open(freeze(inside), tokens))

    def divided(self, nothing: int) -> set[int]:
        """The quotients that have no value where an indicator of zero is 1."""
        if nothing not in self._quotients_at:
            atom = self.atoms[nothing]
            self._quotients_at[nothing] = self._place(dict(atom.data), atom.tokens)
        return self._divided.get(self._quotients_at[nothing], set())

    def support(self, p: Poly) -> Poly:
        """What is zero exactly where p is: of terms that are >= 0 only which factors they have, for p >= 0 its terms.

        Factors that are positive are left out, and [q > 0] is as good as q, where every term of q is >= 0.
        """
        if not self.is_termwise_nonnegative(p) or len(p) > MOST_ABSORBED:
            return p
        found: Poly = {}
        for mono in p:
            for term in self._supports(mono):
                found[term] = 1
        return found

    def _supports(self, mono: Mono) -> list[Mono]:
        """Products that add up to something which is zero exactly where a product of factors >= 0 is."""
        found: list[dict[int, Number]] = [{}]
        for a, _ in mono:
            atom = self.atoms[a]
            if a in self.positive:
                continue
            inside = self.open(atom.data, atom.tokens) if atom.kind == "above" else {}
            terms: list[Mono] = [((a, self._even(a)),)]
            if inside and self.is_termwise_nonnegative(inside) and len(inside) <= MOST_ABSORBED:
                terms = [term for one in inside for term in self._supports(one)]
            found = [{**one, **dict(term)} for one in found for term in terms]
            if len(found) > MOST_ABSORBED:
                return [tuple(sorted((b, self._even(b)) for b, _ in mono if b not in self.positive))]
        return [monomial(one) for one in found]

    def _known_positive(self, kind: str, data: Any) -> bool:
        match kind:
            case "exp" | "sigmoid" | "softplus" | "count" | "position":
                return True
            case "field":
                return data[0] in self.positive_fields
            case "sum":
                return all(a in self.positive for a, _ in data[1])
            case "inverse" | "sqrt":
                return self.is_positive(dict(data))
        return False

    def _even(self, a: int) -> Number:
        """The least power to which an atom is >= 0."""
        return 1 if self.never_negative(a) else 2

    def choice(self, what: ChoiceTerm) -> int:
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
        """The same about other tokens. Several may become one; what is said of them then holds for that one."""
        names = {old: new for old, new in names.items() if old != new}
        if not names:
            return p
        key = tuple(sorted(names.items()))
        result: Poly = {}
        for mono, coefficient in p.items():
            moved = self.rename_mono(mono, names, key)
            result[moved] = result.get(moved, 0) + coefficient
        return result if len(result) == len(p) else {mono: c for mono, c in result.items() if c}

    def rename_mono(self, mono: Mono, names: Mapping[int, int], key: tuple[tuple[int, int], ...]) -> Mono:
        """A monomial about other tokens."""
        atoms = self.atoms
        if not any(token in names for a, _ in mono for token in atoms[a].tokens):
            return mono
        moved = sorted((self._rename_atom(a, names, key), power) for a, power in mono)
        if len({a for a, _ in moved}) < len(moved):  # two tokens have become one, and so have atoms
            powers: dict[int, Number] = {}
            for a, power in moved:
                powers[a] = powers.get(a, 0) + power
            return monomial(powers)
        return tuple(moved)

    def _rename_atom(self, a: int, names: Mapping[int, int], key: tuple[tuple[int, int], ...]) -> int:
        atom = self.atoms[a]
        if not any(token in names for token in atom.tokens):
            return a
        found = self._renamed.get((a, key))
        if found is None:
            tokens = tuple(names.get(token, token) for token in atom.tokens)
            tokens = tuple(sorted(tokens)) if atom.kind == "differ" else tokens
            data = atom.data
            if atom.kind == "exp" and list(tokens) != sorted(tokens):  # the same whichever token is named first
                inside, tokens = self.local(self.open(((data, 1),), tokens))
                (data,) = inside
            found = self._renamed[a, key] = self.intern(atom.kind, data, tokens)
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

    def lifted(self, function: Callable[[Poly], Poly], p: Poly) -> Poly:
        """A function of p, worked out in names of its own so that it is the same whatever the tokens are."""
        inside, tokens = self.local(p)
        return self.rename(function(inside), dict(enumerate(tokens)))

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
        if p.get((), 0) > 0 and self.is_nonnegative({mono: c for mono, c in p.items() if mono}):
            return True
        return any(self.is_positive(least) for least in self._below(p))

    def _below(self, p: Poly) -> Iterator[Poly]:
        """Polynomials that are no larger: relu(q) is at least q, as in max(s, c) = s + relu(c - s) >= c."""
        for mono, c in p.items():
            ((a, power),) = mono if len(mono) == 1 else ((0, 0),)
            if power == 1 and c > 0 and self.atoms[a].kind == "relu":
                inside = scale(self.open(self.atoms[a].data, self.atoms[a].tokens), c)
                yield add({one: n for one, n in p.items() if one != mono}, inside)

    def is_nonnegative(self, p: Poly) -> bool:
        """Whether p is known to be >= 0: a sum of squares, or of products of factors that are."""
        if not p or self.as_square(p) in self.squares or self.is_termwise_nonnegative(p):
            return True
        rest = self._without(p, self.never_negative)
        return rest is not p and self.as_square(rest) in self.squares

    def as_square(self, p: Poly) -> Frozen:
        """p in names of its own, up to positive factors."""
        inside = self.local(self._without(p, self.positive.__contains__))[0]
        return freeze(tidy(scale(inside, 1 / Fraction(magnitude(inside[min(inside)])))))

    def _without(self, p: Poly, droppable: Callable[[int], bool]) -> Poly:
        """p without the common powers of such atoms."""
        first, *others = p
        held = {a for mono in p for a, power in mono if power < 0} | {a for a, _ in first}
        common = {a: min(dict(mono).get(a, 0) for mono in p) for a in held if others and droppable(a)}
        if not any(common.values()):
            return p
        return {
            monomial({**dict(mono), **{a: dict(mono).get(a, 0) - low for a, low in common.items()}}): c
            for mono, c in p.items()
        }

    def is_termwise_nonnegative(self, p: Poly) -> bool:
        """Whether every term is known to be >= 0."""
        return all(c > 0 and all(n % 2 == 0 or self.never_negative(a) for a, n in mono) for mono, c in p.items())

    def never_negative(self, a: int) -> bool:
        """Whether an atom is known to be >= 0."""
        atom = self.atoms[a]
        match atom.kind:
            case "above" | "atleast" | "nothing" | "differ" | "sqrt" | "relu":
                return True
            case "field":
                return atom.data[0] in self.nonnegative_fields
            case "weight":
                return bool(atom.data[2] != "best")
            case "sum":
                return all(power % 2 == 0 or self.never_negative(b) for b, power in atom.data[1])
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
                yield from self.choices[atom.data[0]].terms()
            case _:
                yield from atom.data
