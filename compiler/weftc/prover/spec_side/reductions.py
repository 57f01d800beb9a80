"""Reductions and weightings of a spec as polynomials: the last part of what its equations compute.

Over a fixed set they are written out; over an open set they are sums over a token of its own, and choices among such.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Literal

from weftc.core import syntax as ast
from weftc.core.syntax import Expr
from weftc.prover.kernel import ONE, Candidates, Keys, WeighingTerm
from weftc.prover.kernel.polynomials import Poly, add, constant, scale, subtract
from weftc.prover.kernel.rules import Unproved
from weftc.prover.spec_side.expressions import SpecExpressions
from weftc.prover.spec_side.values import Env, SpecToken, Value


class SpecTerms(SpecExpressions):
    """Evaluates the expressions of one spec on a state of its fields."""

    # ---- keys of reductions and weightings ---------------------------------------------------------------------------

    def keys(self, index: str, env: Env) -> list[Env]:
        """The environments in which an index takes each token of its set; of an open set one, with a new token."""
        home = self.checked.set_of(index)
        size = self.sizes.size(home)
        if size is not None:
            return [{**env, index: SpecToken(home, place)} for place in range(size)]
        taken = max((t.name for i, t in env.items() if i != index and t.place is None), default=-1)
        return [{**env, index: SpecToken(home, None, taken + 1)}]

    def _sum(self, index: str, keys: Sequence[Env], terms: Sequence[Poly]) -> Poly:
        token = keys[0][index]
        if token.place is not None:
            return add({}, *terms)
        return self.algebra.total(token.set, token.name, terms[0])

    def weights(self, node: ast.Weigh, env: Env, also: Sequence[ast.Condition] = ()) -> tuple[Keys, list[Env], Value]:
        """The weights of all keys, the environments of the keys, and what the scores leave undefined."""
        keys = self.keys(node.index, {i: t for i, t in env.items() if i != node.index})
        free = self.free(node).union(*(self.free(c) for c in also)) - {node.index}
        at = tuple(sorted((i, t.place, t.name) for i, t in env.items() if i in free))
        key = ("weights", id(node), tuple(map(id, also)), keys[0][node.index].name, at, self.filled)
        if key not in self._known:
            self._known[key] = ((node, also), self._weights(node, keys, also))
        found = self._known[key][1]
        assert isinstance(found, tuple)
        return found[0], keys, found[1]

    def _weights(self, node: ast.Weigh, keys: list[Env], also: Sequence[ast.Condition]) -> tuple[Keys, Value]:
        rule, sign = self._rule(node)
        masks = [self.mask((*node.where, *also), at) for at in keys]
        scores, given = [], []
        for at in keys:
            score = self.value(node.score, at)
            given.append(score)
            p = score.poly if node.noise is None else add(score.poly, self.value(node.noise, at).poly)
            scores.append(scale(p, sign))
        noted = self._inside(node.index, keys, given, masks)
        found = self.algebra.weigh(rule, _candidates(keys[0][node.index], scores, masks))
        return found, replace(noted, undefined=(found.empty,) if found.empty else ())

    def _inside(self, index: str, keys: Sequence[Env], values: Sequence[Value], weights: Sequence[Poly]) -> Value:
        """What values of keys leave undefined, where their weight is not zero: a run stops there."""
        algebra = self.algebra
        pairs = [(value, weight) for value, weight in zip(values, weights, strict=True) if value.missing]
        errors = tuple(p for value, weight in pairs for one in value.missing if (p := algebra.multiply(weight, one)))
        if not errors:
            return Value(())
        sure = all(not value.loose and self._is_never_negative(weight) for value, weight in pairs)
        shared, each = self._apart(index, keys, values, weights)
        lacking = [algebra.multiply(w, add({}, *lacks)) for w, lacks in zip(weights, each, strict=True)]
        some = subtract(ONE, algebra.nothing(self._sum(index, keys, lacking)))
        return Value((), errors=errors, caught=(*shared, *([some] if some else [])) if sure else (), loose=not sure)

    def _apart(
        self, index: str, keys: Sequence[Env], values: Sequence[Value], weights: Sequence[Poly]
    ) -> tuple[list[Poly], list[list[Poly]]]:
        """What every key lacks, whichever it is, where all of them count; and what each key lacks beside that."""
        every = [[*value.undefined, *value.caught] for value in values]
        if any(weight != ONE for weight in weights):
            return [], every
        token = keys[0][index]
        bound = {token.name} if token.place is None else set()
        shared = [p for p in every[0] if all(p in lacks for lacks in every)]
        shared = [p for p in shared if bound.isdisjoint(self.algebra.tokens(p))]
        return shared, [[p for p in lacks if p not in shared] for lacks in every]

    def _is_never_negative(self, weight: Poly) -> bool:
        """Whether weights that are not zero cannot cancel in a sum: they are >= 0, or flags."""
        return self.algebra.is_nonnegative(weight) or self.algebra.multiply(weight, weight) == weight

    def _rule(self, node: ast.Weigh) -> tuple[WeighingTerm, Literal[1, -1]]:
        """The weighting, and the sign with which it ranks its scores."""
        ties, epsilon = "first", Fraction(0)
        if node.ties is not None:
            ties = {"average": "split"}.get(node.ties.rule, node.ties.rule)
            if node.ties.epsilon is not None:
                epsilon = self._number(node.ties.epsilon)
        match node.kind:
            case "argmax" | "sample":
                return WeighingTerm("argmax", ties, epsilon), 1
            case "argmin":
                return WeighingTerm("argmax", ties, epsilon), -1
            case "lowest" | "highest":
                sign: Literal[1, -1] = 1 if node.kind == "highest" else -1
                argument = node.arguments[0]
                if isinstance(argument, ast.Percent):
                    return WeighingTerm("top", percent=self._decimal(argument.body)), sign
                count = self._number(argument)
                if count.denominator != 1:
                    raise Unproved(f"{node.kind} of {count} tokens")
                return WeighingTerm("top", count=int(count)), sign
            case "normmax":
                return WeighingTerm("normmax", gamma=self._number(node.arguments[0])), 1
        return WeighingTerm(node.kind), 1

    def _number(self, node: Expr) -> Fraction:
        value = constant(self.value(node, {}).poly)
        if value is None:
            raise Unproved("an argument of a weighting that is not a plain number")
        return Fraction(value)

    def _decimal(self, node: Expr) -> Fraction:
        """A percentage as the decimal it is written as."""
        match node:
            case ast.Num(value=value):
                return Fraction(repr(value))
            case ast.Ref(name=name, indices=()) if name in self.params:
                return Fraction(repr(self.params[name]))
            case ast.Ref(name=name, indices=()) if name in self.checked.params:
                default = self.checked.params[name].default
                assert default is not None
                if isinstance(default, ast.Num):
                    return Fraction(repr(default.value))
        return self._number(node)

    def _weight(self, node: ast.Weigh, env: Env) -> Value:
        found, keys, noted = self.weights(node, env)
        token = env[node.index]
        if token.place is not None:
            return replace(noted, rows=(found.weights[token.place],))
        weight = self.algebra.rename(found.weights[0], {keys[0][node.index].name: token.name})
        return replace(noted, rows=(weight,))

    # ---- reductions --------------------------------------------------------------------------------------------------

    def _reduce(self, node: ast.Reduce, env: Env) -> Value:
        algebra = self.algebra
        if node.by is not None:
            found, keys, noted = self.weights(node.by, env, node.where)
            return self._weighted(node, keys, found.weights, noted)
        keys = self.keys(node.index, {i: t for i, t in env.items() if i != node.index})
        masks = [self.mask(node.where, at) for at in keys]
        if node.kind in ("max", "min", "logsumexp"):
            return self._extreme(node, keys, masks)
        if node.weighted is None:
            weights, noted = masks, Value(())
        else:
            given = [self.value(node.weighted, at) for at in keys]
            weights = [algebra.multiply(w.poly, mask) for w, mask in zip(given, masks, strict=True)]
            noted = self._inside(node.index, keys, given, masks)
        if node.kind == "sum":
            return self._weighted(node, keys, weights, noted)
        mass = self._sum(node.index, keys, weights)
        if not mass:
            raise Unproved("a mean without any weight")
        inverse = algebra.inverse(mass)
        value = self._weighted(node, keys, weights, self._undefined(noted, algebra.zeros(mass)))
        return self._each(value, lambda p: algebra.multiply(p, inverse))

    def _weighted(self, node: ast.Reduce, keys: Sequence[Env], weights: Sequence[Poly], noted: Value) -> Value:
        """The sum of weights times bodies."""
        algebra = self.algebra
        bodies = [self.value(node.body, at) for at in keys]
        width = len(bodies[0].rows)
        rows = tuple(
            self._sum(
                node.index,
                keys,
                [algebra.multiply(w, body.rows[row]) for w, body in zip(weights, bodies, strict=True)],
            )
            for row in range(width)
        )
        shared: list[Poly] = []
        if all(weight == ONE for weight in weights):  # what every key lacks, whichever it is
            token = keys[0][node.index]
            bound = {token.name} if token.place is None else set()
            shared = [p for p in bodies[0].undefined if all(p in b.undefined for b in bodies)]
            shared = [p for p in shared if bound.isdisjoint(algebra.tokens(p))]
            bodies = [replace(b, undefined=tuple(p for p in b.undefined if p not in shared)) for b in bodies]
        inside = self._inside(node.index, keys, bodies, weights)
        undefined = (*noted.undefined, *shared)
        return self._joined(replace(noted, undefined=undefined), inside, rows, bodies[0].vector)

    def _extreme(self, node: ast.Reduce, keys: Sequence[Env], masks: Sequence[Poly]) -> Value:
        algebra = self.algebra
        bodies = [self.value(node.body, at) for at in keys]
        noted = self._inside(node.index, keys, bodies, masks)
        sign = -1 if node.kind == "min" else 1
        scores = [scale(b.poly, sign) for b in bodies]
        candidates = _candidates(keys[0][node.index], scores, masks)
        found, empty = algebra.log_sum(candidates) if node.kind == "logsumexp" else algebra.largest(candidates)
        found = scale(found, sign)
        return replace(noted, rows=(found,), undefined=(empty,) if empty else ())


def _candidates(token: SpecToken, scores: Sequence[Poly], masks: Sequence[Poly]) -> Candidates:
    """The keys of a reduction as they compete."""
    over, bound = (token.set, token.name) if token.place is None else (None, -1)
    return Candidates(tuple(scores), tuple(masks), over, bound)
