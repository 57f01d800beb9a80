"""Random expressions over a vocabulary: numbers and vectors at given tokens, scores, weightings, reductions.

They are well-typed by construction where that is cheap; the checker has the last word. Weights of the choices lean
towards what algorithms are made of (distances, inner products, means over members), so that many of them have an
attention form, and few are nonsense.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from weftc.core.source import NOWHERE
from weftc.core.syntax import (
    Binary,
    Call,
    Compare,
    Condition,
    Count,
    Different,
    Dimension,
    Else,
    Expr,
    Inner,
    Member,
    Neg,
    Norm,
    Num,
    Percent,
    Position,
    Power,
    Reduce,
    Ref,
    Square,
    Ties,
    Weigh,
    walk,
)
from weftc.core.vocabulary import FUNCTIONS
from weftc.fuzz.vocabulary import COUNTED, SHARE, Vocabulary
from weftc.language.parse.globals import LAYER

NUMBER_FUNCTIONS = tuple(word for word, traits in FUNCTIONS.items() if traits.numbers)
VECTOR_FUNCTIONS = tuple(  # exp grows too fast, and signs of vectors are not known
    word
    for word, traits in FUNCTIONS.items()
    if traits.vectors == "each" and traits.domain == "all numbers" and word != "exp"
)
CONSTANTS = (0.5, 1.0, 2.0, 3.0, 0.25, 0.1)
NEAR = (0.12345678, 0.12345699, 1.0000001, 1.0000002, 1000000.1, 1000000.4, 0.3333333333333333, 0.33333333333333337)
LONG = (5, 6, 7, 8, 12)  # terms of a long sum
Indices = tuple[str, ...]


def binary(op: str, left: Expr, right: Expr) -> Expr:
    """A node without a place."""
    return Binary(NOWHERE, op, left, right)  # type: ignore[arg-type]


def num(value: float) -> Num:
    return Num(NOWHERE, value)


class RandomExpressions:
    """Draws expressions; `depth` is how much deeper they may grow."""

    def __init__(self, rng: Random, words: Vocabulary) -> None:
        self.rng, self.words = rng, words
        self._drawn: dict[Indices, list[Expr]] = {}  # what was drawn for tokens, to be drawn again

    def _one(self, *choices: tuple[float, Callable[[], Expr | None]]) -> Expr | None:
        """One of several ways, by weight; another where a way finds nothing to say."""
        left = list(choices)
        while left:
            at = self.rng.choices(range(len(left)), [weight for weight, _ in left])[0]
            found = left.pop(at)[1]()
            if found is not None:
                return found
        return None

    # ---- numbers -----------------------------------------------------------------------------------------------------

    def number(self, at: Indices, depth: int) -> Expr:
        """A number that may depend on the tokens `at`."""
        if depth <= 0:
            return self.leaf(at)
        deeper = depth - 1
        shared = self._drawn.setdefault(at, [])
        found = self._one(
            (0.8, lambda: self.rng.choice(shared) if shared else None),
            (0.3, lambda: self._long_sum(at)),
            (3, lambda: self.leaf(at)),
            (3, lambda: self.pair(at, deeper)),
            (3, lambda: self.reduction(at, None, deeper)),
            (4, lambda: self._arithmetic(at, deeper)),
            (1.5, lambda: self._function(at, deeper)),
            (1, lambda: self.nonnegative(at, deeper)),
            (0.7, lambda: binary("/", self.number(at, deeper), self.positive(at, deeper))),
            (0.3, lambda: Power(NOWHERE, self.leaf(at), self.rng.choice((2, 3)))),
        )
        assert found is not None
        shared.append(found)
        return found

    def _long_sum(self, at: Indices) -> Expr:
        """Many terms, each a constant times a field."""
        total: Expr = self.leaf(at)
        for _ in range(self.rng.choice(LONG)):
            term = binary("*", num(self.rng.choice((*CONSTANTS, *NEAR))), self.leaf(at))
            total = binary(self.rng.choice("+-"), total, term)
        return total

    def leaf(self, at: Indices) -> Expr:
        """A field, a parameter, a constant, a position or a count."""
        rng = self.rng
        fields = [ref for ref, _ in self.words.numbers(at)]
        lets = [Ref(NOWHERE, name, given) for name, own in self.words.lets for given in [self._given(own, at)] if given]
        found = self._one(
            (6, lambda: rng.choice(fields) if fields else None),
            (2, lambda: rng.choice(lets) if lets else None),
            (1, lambda: Ref(NOWHERE, rng.choice(self.words.params), ()) if self.words.params else None),
            (1.5, lambda: num(rng.choice(CONSTANTS))),
            (0.3, lambda: num(rng.choice(NEAR))),
            (0.4, lambda: Position(NOWHERE, rng.choice(at)) if at else None),
            (0.1, lambda: Ref(NOWHERE, LAYER, ())),
            (0.4, lambda: Count(NOWHERE, rng.choice(list(self.words.sets)))),
        )
        assert found is not None
        return found

    def _given(self, own: Indices, at: Indices) -> Indices | None:
        """Tokens among `at` for the indices of a `let`."""
        given: list[str] = []
        for index in own:
            fitting = [i for i in at if self.words.home(i) == self.words.home(index) and i not in given]
            if not fitting:
                return None
            given.append(self.rng.choice(fitting))
        return tuple(given)

    def pair(self, at: Indices, depth: int) -> Expr | None:
        """A distance or an inner product, of one token or two."""
        if not at or not self.words.widths:
            return None
        width = self.rng.choice(self.words.widths)
        first, second = (at[0], at[-1]) if self.rng.random() < 0.8 else (self.rng.choice(at), self.rng.choice(at))
        a, b = self.vector(width, (first,), min(depth, 1)), self.vector(width, (second,), min(depth, 1))
        if a is None or b is None:
            return None
        if a == b and self.rng.random() < 0.95:  # the difference would be zero, which is a case, but a rare one
            return Square(NOWHERE, a)
        apart = binary("-", a, b)
        return self._one(
            (3, lambda: Square(NOWHERE, apart)),
            (2, lambda: Inner(NOWHERE, a, b)),
            (0.6, lambda: Norm(NOWHERE, apart)),
            (0.5, lambda: Square(NOWHERE, a)),
        )

    def _arithmetic(self, at: Indices, depth: int) -> Expr:
        op = self.rng.choice(("+", "-", "*", "*"))
        if self.rng.random() < 0.15:
            return Neg(NOWHERE, self.number(at, depth))
        return binary(op, self.number(at, depth), self.number(at, depth))

    def _function(self, at: Indices, depth: int) -> Expr:
        match self.rng.choice(NUMBER_FUNCTIONS):
            case "exp":
                return Call(NOWHERE, "exp", Neg(NOWHERE, self.nonnegative(at, depth)))
            case "log":
                return Call(NOWHERE, "log", self.positive(at, depth))
            case "sqrt":
                return Call(NOWHERE, "sqrt", self.nonnegative(at, depth))
            case function:
                return Call(NOWHERE, function, self.number(at, depth))

    def nonnegative(self, at: Indices, depth: int) -> Expr:
        """A number >= 0."""
        fields = [ref for ref, one in self.words.numbers(at) if one.nonnegative or one.positive]
        found = self._one(
            (3, lambda: self.rng.choice(fields) if fields else None),
            (2, lambda: self._squared_distance(at)),
            (1, lambda: Power(NOWHERE, self.leaf(at), 2)),
            (1, lambda: Call(NOWHERE, "relu", self.number(at, depth - 1)) if depth > 0 else None),
            (1, lambda: Call(NOWHERE, "exp", self.number(at, 0))),
        )
        assert found is not None
        return found

    def _squared_distance(self, at: Indices) -> Expr | None:
        if not at or not self.words.widths:
            return None
        width = self.rng.choice(self.words.widths)
        a, b = self.words.vectors(width, at[0]), self.words.vectors(width, at[-1])
        if not a or not b:
            return None
        first, second = self.rng.choice(a), self.rng.choice(b)
        return Square(NOWHERE, first if first == second else binary("-", first, second))

    def positive(self, at: Indices, depth: int) -> Expr:
        """A number > 0."""
        fields = [ref for ref, one in self.words.numbers(at) if one.positive]
        found = self._one(
            (2, lambda: self.rng.choice(fields) if fields else None),
            (1, lambda: Ref(NOWHERE, self.rng.choice(self.words.params), ()) if self.words.params else None),
            (2, lambda: binary("+", num(1.0), self.nonnegative(at, depth))),
            (0.5, lambda: Count(NOWHERE, self.rng.choice(list(self.words.sets)))),
        )
        assert found is not None
        return found

    # ---- vectors -----------------------------------------------------------------------------------------------------

    def vector(self, width: Dimension, at: Indices, depth: int) -> Expr | None:
        """A vector that may depend on the tokens `at`; None where there is none."""
        plain = [ref for index in at for ref in self.words.vectors(width, index)]
        if depth <= 0:
            return self.rng.choice(plain) if plain else None
        deeper = depth - 1
        return self._one(
            (4, lambda: self.rng.choice(plain) if plain else None),
            (3, lambda: self.reduction(at, width, deeper)),
            (1.5, lambda: self._combined(width, at, deeper)),
            (1, lambda: self._scaled(width, at, deeper)),
            (0.5, lambda: self._directed(width, at, deeper)),
            (0.7, lambda: self._product(width, at, deeper)),
        )

    def _product(self, width: Dimension, at: Indices, depth: int) -> Expr | None:
        """A matrix times a vector, or its transpose: the rows are vectors of a fixed set; or a row of the identity."""
        names = [index for index in at if self.words.sizes.get(self.words.home(index)) == width]
        if names and self.rng.random() < 0.5:
            return Position(NOWHERE, self.rng.choice(names), onehot=True)
        row = self.words.fresh(self.rng, at)
        size = None if row is None else self.words.sizes.get(self.words.home(row))
        if row is None or size is None:
            return None
        here, other = Position(NOWHERE, row, onehot=True), self.rng.choice(self.words.widths or (width,))
        rows = self.words.vectors(other if size == width else width, row)
        v = self.vector(other if size == width else size, at, depth) if rows else None
        if v is None:
            return None
        matrix = self.rng.choice(rows)
        inside = (Inner(NOWHERE, matrix, v), here) if size == width else (Inner(NOWHERE, v, here), matrix)
        return Reduce(NOWHERE, "sum", row, binary("*", *inside))

    def _combined(self, width: Dimension, at: Indices, depth: int) -> Expr | None:
        a, b = self.vector(width, at, depth), self.vector(width, at, depth)
        if a is None or b is None:
            return None
        if self.rng.random() < 0.3:
            return binary(".*", a, b)
        return binary("+" if a == b else self.rng.choice("+-"), a, b)

    def _scaled(self, width: Dimension, at: Indices, depth: int) -> Expr | None:
        v = self.vector(width, at, depth)
        if v is None:
            return None
        if self.rng.random() < 0.3:
            return binary("/", v, self.positive(at, depth))
        return binary("*", self.number(at, depth), v)

    def _directed(self, width: Dimension, at: Indices, depth: int) -> Expr | None:
        v, other = self.vector(width, at, depth), self.vector(width, at, 0)
        if v is None or other is None:
            return None
        if self.rng.random() < 0.5:
            return Call(NOWHERE, self.rng.choice(VECTOR_FUNCTIONS), v)
        return Else(NOWHERE, Call(NOWHERE, "unit", v), other)

    # ---- over tokens -------------------------------------------------------------------------------------------------

    def reduction(self, at: Indices, width: Dimension | None, depth: int) -> Expr | None:
        """A sum, mean or other reduction over a fresh index; of vectors if there is a width."""
        key = self.words.fresh(self.rng, at)
        if key is None:
            return None
        query = (self.rng.choice(at),) if at and self.rng.random() < 0.9 else ()
        both = (*query, key)

        def body() -> Expr | None:
            if width is not None:
                return self.vector(width, (key,) if self.rng.random() < 0.8 else both, depth)
            return self.number((key,) if self.rng.random() < 0.5 else both, depth)

        value = body()
        if value is None:
            return None
        where = self.conditions(query, key, depth) if self.rng.random() < 0.35 else ()
        kind = self.rng.choice(("sum", "mean", "mean"))
        found = self._one(
            (2, lambda: Reduce(NOWHERE, kind, key, value, where=where)),
            (1.5, lambda: Reduce(NOWHERE, "mean", key, value, weighted=self._weight(query, key, depth), where=where)),
            (2, lambda: Reduce(NOWHERE, "mean", key, value, by=self.weighting(query, key, depth))),
            (2.5, lambda: Reduce(NOWHERE, "sum", key, binary("*", self.weighting(query, key, depth), value))),
            (1, lambda: self._extreme(key, value, where) if width is None else None),
        )
        return self._guarded(found, at, width) if isinstance(found, Reduce) else found

    def _guarded(self, found: Reduce, at: Indices, width: Dimension | None) -> Expr:
        """A reduction with an `else` of its own where it may be of nothing; now and then it is left to others."""
        weightings = [part for part in (found.by, *walk(found.body)) if isinstance(part, Weigh)]
        partial = found.kind != "sum" and (found.where or found.weighted is not None)
        partial = partial or any(part.where or part.kind == "normalize" for part in weightings)
        if not partial or self.rng.random() < 0.15:
            return found
        other = self.leaf(at) if width is None else self.vector(width, at, 0)
        return found if other is None else Else(NOWHERE, found, other)

    def _extreme(self, key: str, value: Expr, where: tuple[Condition, ...]) -> Expr:
        return Reduce(NOWHERE, self.rng.choice(("max", "min", "logsumexp")), key, value, where=where)

    def _weight(self, query: Indices, key: str, depth: int) -> Expr:
        """A weight >= 0 of a key, or of a query and a key."""
        at = (*query, key) if self.rng.random() < 0.6 else (key,)
        first = self.nonnegative(at, depth)
        return binary("*", first, self.nonnegative((key,), 0)) if self.rng.random() < 0.3 else first

    def weighting(self, query: Indices, key: str, depth: int) -> Weigh:
        """A weighting of the keys for a query."""
        rng = self.rng
        kind = rng.choice(
            (
                "argmax",
                "argmin",
                "argmin",
                "softmax",
                "softmax",
                "sparsemax",
                "entmax15",
                "normmax",
                "lowest",
                "highest",
                "normalize",
            )
        )
        score = self.nonnegative((*query, key), depth) if kind == "normalize" else self.score(query, key, depth)
        where = self.conditions(query, key, depth) if rng.random() < 0.3 else ()
        arguments: tuple[Expr, ...] = ()
        ties = None
        if kind == "normmax":
            arguments = (rng.choice((num(0.5), num(2.0), Ref(NOWHERE, self.words.params[0], ()))),)
        elif kind in ("lowest", "highest"):
            arguments = (
                rng.choice((num(1.0), num(2.0), num(3.0), Ref(NOWHERE, COUNTED, ())))
                if rng.random() < 0.5
                else Percent(NOWHERE, rng.choice((num(30.0), num(50.0), num(99.9), Ref(NOWHERE, SHARE, ())))),
            )
        elif kind in ("argmax", "argmin") and rng.random() < 0.5:
            rule = rng.choice(("first", "split", "average", "within"))
            ties = Ties(NOWHERE, rule, num(rng.choice((0.5, 1e-9))) if rule == "within" else None)  # type: ignore[arg-type]
        if kind in ("argmax", "softmax", "argmin") and rng.random() < 0.8:  # noise over the key is rare enough
            drawn = [
                ref for ref, one in self.words.numbers((*query, key)) if one.role == "random" and key in ref.indices
            ]
            if drawn:
                return Weigh(NOWHERE, "sample", key, score, where=where, noise=rng.choice(drawn))
        if kind == "softmax" and rng.random() < 0.3:
            where = (*where, self._among(query, key, where))
        return Weigh(NOWHERE, kind, key, score, arguments, where, None, ties)

    def _among(self, query: Indices, key: str, where: tuple[Condition, ...]) -> Condition:
        """A condition that a key is among the best of those that meet others, as `among` says it."""
        kind, kept = self.rng.choice(("lowest", "highest")), self.rng.choice((num(2.0), Percent(NOWHERE, num(50.0))))
        ranking: Expr = Weigh(NOWHERE, kind, key, self.score(query, key, 0), (kept,), where)
        return Compare(NOWHERE, ">", Else(NOWHERE, ranking, num(0.0)) if where else ranking, num(0.0))

    def score(self, query: Indices, key: str, depth: int) -> Expr:
        """A score of a key for a query: a sum of distances, products and terms of one side."""
        at = (*query, key)
        total = self._part(at, key, depth)
        for _ in range(self.rng.choice((0, 0, 0, 1, 1, 2))):
            total = binary(self.rng.choice("+-"), total, self._part(at, key, depth))
        return total

    def _part(self, at: Indices, key: str, depth: int) -> Expr:
        found = self._one(
            (5, lambda: self.pair(at, min(depth, 1))),
            (1.5, lambda: self.leaf(at)),
            (1, lambda: binary("*", self.leaf(at), self.leaf((key,)))),
            (0.8, lambda: self.number(at, depth)),
        )
        assert found is not None
        way = self.rng.random()
        if way < 0.35:
            return Neg(NOWHERE, found)
        if way < 0.6:
            return binary("*", self.leaf(()), found)
        return binary("/", found, self.positive(at[:1], 0)) if way < 0.7 else found

    def conditions(self, query: Indices, key: str, depth: int) -> tuple[Condition, ...]:
        """One or two conditions on a query and a key."""
        found: list[Condition] = []
        for _ in range(self.rng.choice((1, 1, 1, 2))):
            members = self.words.members(query[0], key) if query else []
            if members and self.rng.random() < 0.6:
                found.append(Member(NOWHERE, self.rng.choice(members)))
            elif query and self.words.home(query[0]) == self.words.home(key) and self.rng.random() < 0.5:
                found.append(Different(NOWHERE, query[0], key))
            else:
                at = (key,) if self.rng.random() < 0.5 else (*query, key)
                op = self.rng.choice((">", ">=", "<", "<=", "=", "!="))
                left = self.number(at, min(depth, 1))
                found.append(Compare(NOWHERE, op, left, self.leaf(query)))  # type: ignore[arg-type]
        return tuple(found)
