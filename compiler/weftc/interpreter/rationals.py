"""The meaning of an expression at given tokens in exact rational arithmetic: what float64 is checked against.

Stored numbers, literals and noise are float64 and therefore rationals; sums, products, quotients, means, hard
weightings, `sparsemax` and `normalize` of rationals are rationals again. Everything here is the definition written down
directly, one token at a time; it is slow, and asked only where float64 with its error bound cannot decide.

A value is a tuple of fractions, one per coordinate (one for a number), or None where the expression is undefined.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeVar

from weftc.core.syntax import (
    Binary,
    Call,
    Compare,
    Condition,
    Count,
    Different,
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
    Symbol,
    Weigh,
)
from weftc.core.vocabulary import FUNCTIONS
from weftc.interpreter import rules
from weftc.interpreter.environment import World, free

Value = tuple[Fraction, ...] | None
Tokens = Mapping[str, int]  # index variable -> token
Weights = list[Fraction] | None  # of all keys of a query
Node = TypeVar("Node", Reduce, Weigh)
Result = TypeVar("Result")


class Irrational(Exception):
    """The value is not (known to be) a rational number."""


class ExactEvaluator:
    """Evaluates expressions in one world. Aggregates are remembered: many tokens share a threshold."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._known: dict[tuple[int, tuple[tuple[str, int], ...]], tuple[object, Any]] = {}

    def number(self, node: Expr, at: Tokens) -> Fraction:
        """The value of a number that must be defined."""
        value = self.value(node, at)
        if value is None:
            raise Irrational
        return value[0]

    def value(self, node: Expr, at: Tokens) -> Value:
        """The value of any expression."""
        match node:
            case Num():
                return (Fraction(node.value),)
            case Symbol(text=text, vocabulary=vocabulary):
                return tuple(Fraction(int(text == symbol)) for symbol in vocabulary)
            case Ref():
                return self._reference(node, at)
            case Count(set=name):
                return (Fraction(self.world.sizes[name]),)
            case Position(index=index, onehot=True):
                return tuple(Fraction(int(place == at[index])) for place in range(self.world.size(index)))
            case Position(index=index):
                return (Fraction(at[index] + 1),)
            case Reduce():
                return self._remembered(node, free(node), at, self._reduced)
            case Weigh(index=index):
                weights = self._weights(node, at)
                return None if weights is None else (weights[at[index]],)
            case Else(body=body, fallback=fallback):
                value = self.value(body, at)
                return self.value(fallback, at) if value is None else value
            case Binary(op=op, left=left, right=right):
                return _combined(op, self.value(left, at), self.value(right, at))
            case Inner(left=left, right=right):
                return _inner(self.value(left, at), self.value(right, at))
            case Power(base=base, exponent=exponent):
                value = self.value(base, at)
                return None if value is None else (value[0] ** exponent,)
            case Percent(body=body):
                return self.value(body, at)
            case Neg(body=body) | Square(body=body) | Norm(body=body) | Call(body=body):
                value = self.value(body, at)
                return None if value is None else _unary(node, value)

    def varying(self, node: Expr, index: str, at: Tokens) -> Fraction:
        """A number without the terms that are the same for every token of `index`, which need not be rational."""
        try:
            return self.number(node, at)
        except Irrational:
            match node:
                case _ if index not in free(node):
                    return Fraction(0)
                case Neg(body=body):
                    return -self.varying(body, index, at)
                case Binary(op="+" | "-" as op, left=left, right=right):
                    other = self.varying(right, index, at)
                    return self.varying(left, index, at) + (other if op == "+" else -other)
                case Ref(name=name) if name in self.world.checked.lets:
                    let = self.world.checked.lets[name]
                    own = {mine: given for mine, given in zip(let.target.indices, node.indices, strict=True)}
                    names = [mine for mine, given in own.items() if given == index]
                    if len(names) == 1:
                        return self.varying(let.body, names[0], {mine: at[i] for mine, i in own.items() if i in at})
            raise

    def sign(self, node: Expr, at: Tokens) -> int | None:
        """The sign of a number that may be no rational, where it follows from those of its parts; else None.

        exp(-10000) * x has the sign of x, although float64 makes zero of it.
        """
        try:
            value = self.value(node, at)
            return None if value is None or len(value) > 1 else (value[0] > 0) - (value[0] < 0)
        except Irrational:
            pass
        match node:
            case Weigh(kind="softmax", where=()):
                return 1
            case Call(function=function) if FUNCTIONS[function].sign == "positive":
                return 1
            case Call(function=function, body=body) if FUNCTIONS[function].increasing and FUNCTIONS[function].zero == 0:
                return self.sign(body, at)
            case Neg(body=body):
                found = self.sign(body, at)
                return None if found is None else -found
            case Power(base=base, exponent=exponent):
                found = self.sign(base, at)
                return None if found is None else found**exponent
            case Binary(op="*" | "/" | ".*" | "./", left=left, right=right):
                signs = self.sign(left, at), self.sign(right, at)
                return None if None in signs else signs[0] * signs[1]  # type: ignore[operator]
            case Binary(op=op, left=left, right=right):
                other = self.sign(right, at)
                return _sign_of_sum([self.sign(left, at), other if op == "+" or other is None else -other])
            case Reduce(kind="sum", weighted=None, by=None, index=index, where=where, body=body):
                keys = self._eligible(index, where, at)
                return None if keys is None else _sign_of_sum([self.sign(body, {**at, index: key}) for key in keys])
            case Ref(name=name) if name in self.world.checked.lets:
                let = self.world.checked.lets[name]
                own = zip(let.target.indices, node.indices, strict=True)
                return self.sign(let.body, {index: at[given] for index, given in own if given in at})
        return None

    def _reference(self, node: Ref, at: Tokens) -> Value:
        world = self.world
        if node.name in world.checked.lets:
            let = world.checked.lets[node.name]
            # a token that nobody says is one that the body does not depend on
            own = zip(let.target.indices, node.indices, strict=True)
            return self.value(let.body, {index: at[given] for index, given in own if given in at})
        if not node.indices:
            return (world.number(node.name).exact,)
        entry = world.array(node.name)[tuple(at[i] for i in node.indices)]
        return tuple(Fraction(v) for v in entry.reshape(-1).tolist())

    def _remembered(
        self, node: Node, inside: frozenset[str], at: Tokens, compute: Callable[[Node, Tokens], Result]
    ) -> Result:
        """The result for the tokens the node really depends on; failures to be rational are remembered too."""
        key = (id(node), tuple(sorted((i, t) for i, t in at.items() if i in inside)))
        if key not in self._known:
            try:
                self._known[key] = (node, compute(node, at))
            except Irrational as reason:
                self._known[key] = (node, reason)
        result = self._known[key][1]
        if isinstance(result, Irrational):
            raise result
        found: Result = result
        return found

    # ---- reductions --------------------------------------------------------------------------------------------------

    def _reduced(self, node: Reduce, at: Tokens) -> Value:
        if node.kind == "logsumexp":
            raise Irrational
        keys = self._eligible(node.index, node.where, at)
        if keys is None:
            return None
        weights: Weights = [Fraction(int(t in keys)) for t in range(self.world.size(node.index))]
        if node.by is not None:
            weights = self._weighed(node.by, at, node.where)
        elif node.weighted is not None:
            weights = self._each(node.weighted, node.index, keys, at)
        if weights is None:
            return None
        envs = {t: {**at, node.index: t} for t in sorted(keys) if weights[t] != 0}
        counted = [t for t, env in envs.items() if self._factor(node.body, node.index, env) != (Fraction(0),)]
        bodies = [self.value(node.body, envs[t]) for t in counted]
        values = [b for b in bodies if b is not None]
        if len(values) < len(bodies):
            return None
        if node.kind in ("max", "min"):
            return (max if node.kind == "max" else min)(values) if values else None
        mass = Fraction(1) if node.kind == "sum" or node.by is not None else sum(weights, Fraction(0))
        if mass == 0:
            return None
        columns = zip(*([weights[t] * v for v in value] for t, value in zip(counted, values, strict=True)), strict=True)
        return tuple(sum(column, Fraction(0)) / mass for column in columns) or (Fraction(0),)

    def _factor(self, node: Expr, index: str, at: Tokens) -> Value:
        """The weight that a product gives to a key: its first factor that is a weighting over `index`, if there is one.

        A key of weight zero does not count, whatever the weight is multiplied with.
        """
        match node:
            case Weigh() if node.index == index:
                return self.value(node, at)
            case Neg(body=body) | Binary(op="/", left=body):
                return self._factor(body, index, at)
            case Binary(op="*", left=left, right=right):
                return self._factor(left, index, at) or self._factor(right, index, at)
            case Ref(name=name) if name in self.world.checked.lets:
                let = self.world.checked.lets[name]
                own = [formal for formal, given in zip(let.target.indices, node.indices, strict=True) if given == index]
                names = zip(let.target.indices, node.indices, strict=True)
                inside = {formal: at[given] for formal, given in names if given in at}
                return self._factor(let.body, own[0], inside) if len(own) == 1 else None
        return None

    def _each(self, node: Expr, index: str, keys: set[int], at: Tokens) -> Weights:
        """The values at the eligible keys, zero elsewhere; None if one is undefined."""
        result = [Fraction(0)] * self.world.size(index)
        for key in sorted(keys):
            value = self.value(node, {**at, index: key})
            if value is None:
                return None
            result[key] = value[0]
        return result

    # ---- conditions --------------------------------------------------------------------------------------------------

    def _holds(self, condition: Condition, at: Tokens) -> bool | None:
        """Whether a condition holds; None where it compares an undefined value."""
        match condition:
            case Different(left=left, right=right):
                return at[left] != at[right]
            case Member(field=field):
                value = self.value(field, at)
                return None if value is None else value[0] > Fraction(1, 2)
            case Compare(op=op, left=left, right=right):
                a, b = self.value(left, at), self.value(right, at)
                if a is None or b is None:
                    return None
                return {">": a > b, ">=": a >= b, "<": a < b, "<=": a <= b}[op]

    def _eligible(self, index: str, where: Sequence[Condition], at: Tokens) -> set[int] | None:
        """The keys that meet all conditions; None if that is undefined for one of them."""
        keys = set()
        for key in range(self.world.size(index)):
            answers = [self._holds(c, {**at, index: key}) for c in where]
            if all(answers):
                keys.add(key)
            elif None in answers and False not in answers:
                return None
        return keys

    # ---- weightings --------------------------------------------------------------------------------------------------

    def _weights(self, node: Weigh, at: Tokens) -> Weights:
        return self._remembered(node, free(node) - {node.index}, at, self._weighed)

    def _weighed(self, node: Weigh, at: Tokens, also: Sequence[Condition] = ()) -> Weights:
        """The weights of all keys for one query; None where no key is eligible or the mass is zero."""
        if node.kind in ("softmax", "entmax15"):
            raise Irrational
        keys = self._eligible(node.index, (*node.where, *also), at)
        scores = self._each(node.score, node.index, keys, at) if keys else None
        if not keys or scores is None:
            return None
        if node.noise is not None:
            noise = self._each(node.noise, node.index, keys, at)
            assert noise is not None  # stored
            scores = [s + g for s, g in zip(scores, noise, strict=True)]
        if node.kind == "normalize":
            mass = sum(scores, Fraction(0))
            return None if mass == 0 else [s / mass for s in scores]
        sign = -1 if node.kind in ("argmin", "lowest") else 1
        eligible = {key: sign * scores[key] for key in sorted(keys)}
        if node.kind == "sparsemax":
            weights = rules.sparsemax(list(eligible.values()))
        else:
            kept = self.kept(node, eligible, {i: t for i, t in at.items() if i != node.index})
            weights = [Fraction(int(key in kept), len(kept)) for key in eligible]
        by_key = dict(zip(eligible, weights, strict=True))
        return [by_key.get(key, Fraction(0)) for key in range(len(scores))]

    def kept(self, node: Weigh, scores: Mapping[int, Fraction], at: Tokens) -> set[int]:
        """The keys a hard weighting keeps, each with equal weight; larger scores are better."""
        if node.kind in ("argmax", "argmin", "sample"):
            if node.ties is None:
                return rules.best(scores, "first")
            epsilon = self.number(node.ties.epsilon, at) if node.ties.epsilon is not None else Fraction(0)
            return rules.best(scores, node.ties.rule, epsilon)
        (argument,) = node.arguments
        if node.kind == "normmax":
            return rules.budget(scores, self.number(argument, at))
        if isinstance(argument, Percent):
            return rules.nearest_share(scores, self.share(argument, at))
        return rules.nearest_count(scores, int(self.number(argument, at)))

    def share(self, node: Percent, at: Tokens) -> Fraction:
        """A percentage as the decimal it is written as: 0.1% is a tenth of a percent, not the float64 beside it."""
        return Decimals(self.world).number(node.body, at)


class Decimals(ExactEvaluator):
    """The same arithmetic with literals and parameters read as the shortest decimals that name them."""

    def value(self, node: Expr, at: Tokens) -> Value:
        if isinstance(node, Num):
            return (Fraction(repr(node.value)),)
        if isinstance(node, Ref) and not node.indices and node.name in self.world.params:
            return (Fraction(repr(self.world.params[node.name].value)),)
        return super().value(node, at)


def _combined(op: str, a: Value, b: Value) -> Value:
    if a is None or b is None:
        return None
    if op[-1] == "/" and 0 in b:
        return None
    width = max(len(a), len(b))
    pairs = zip(a * (width // len(a)), b * (width // len(b)), strict=True)
    match op:
        case "+":
            return tuple(x + y for x, y in pairs)
        case "-":
            return tuple(x - y for x, y in pairs)
        case "*" | ".*":
            return tuple(x * y for x, y in pairs)
    return tuple(x / y for x, y in pairs)


def _sign_of_sum(signs: Sequence[int | None]) -> int | None:
    """The sign of a sum of numbers with these signs, where it follows from them."""
    known = [sign for sign in signs if sign is not None]
    if len(known) < len(signs) or (1 in known and -1 in known):
        return None
    return sum(set(known))


def _inner(a: Value, b: Value) -> Value:
    products = _combined("*", a, b)
    return None if products is None else (sum(products, Fraction(0)),)


def _unary(node: Neg | Square | Norm | Call, value: tuple[Fraction, ...]) -> Value:
    match node:
        case Neg():
            return tuple(-v for v in value)
        case Square():
            return _inner(value, value)
        case Norm() if len(value) == 1:
            return (abs(value[0]),)
        case Call(function="relu"):
            return tuple(max(v, Fraction(0)) for v in value)
        case Call(function="abs"):
            return tuple(map(abs, value))
        case Call(function="unit") if not any(value):
            return None
        case Call(function=function) if FUNCTIONS[function].domain == "positive" and value[0] <= 0:
            return None
        case Call(function=function) if FUNCTIONS[function].domain == "nonnegative" and value[0] < 0:
            return None
    raise Irrational
