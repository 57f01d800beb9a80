"""A checked spec -> what its equations compute, as polynomials. Follows the meaning of the language and nothing else.

An index variable stands for a token: of an open set a number (0: the token that is described), of a fixed set the
token itself, so that sums over fixed sets are written out. Where an expression may have no value, `undefined` lists
indicators that are 1 there, and the value is 0 by convention, until an `else` takes over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from weft import syntax as ast
from weft.proof.algebra import Poly, add, constant, freeze, number, scale, subtract
from weft.proof.state import Rows, Sizes, Unproved
from weft.proof.weights import ONE, Keys, Rule, Weights
from weft.syntax import Expr
from weft.types import Checked


@dataclass(frozen=True, slots=True)
class Token:
    """A token of a set: `place` in a fixed set, or a `name` (a number) in an open one."""

    set: str
    place: int | None
    name: int = -1


Env = Mapping[str, Token]


@dataclass(frozen=True, slots=True)
class Value:
    """One row, or one per coordinate of a vector."""

    rows: tuple[Poly, ...]
    undefined: tuple[Poly, ...] = ()
    vector: bool = False
    loose: bool = False  # undefined in a way that only an error can express: somewhere inside a sum

    @property
    def poly(self) -> Poly:
        return self.rows[0]


class SpecTerms:
    """Evaluates the expressions of one spec on a state of its fields."""

    def __init__(
        self, algebra: Weights, checked: Checked, sizes: Sizes, params: Mapping[str, float], state: Mapping[str, Rows]
    ) -> None:
        self.algebra, self.checked, self.sizes = algebra, checked, sizes
        self.params, self.state = params, dict(state)
        self._known: dict[object, tuple[object, object]] = {}
        self._free: dict[int, tuple[object, frozenset[str]]] = {}

    # ---- equations ---------------------------------------------------------------------------------------------------

    def equation(self, target: ast.Ref, body: Expr, width: int) -> tuple[Rows, tuple[Poly, ...]]:
        """The new rows of a field, and the indicators of having no value."""
        home = self.checked.set_of(target.indices[0])
        size = self.sizes.size(home)
        places = [Token(home, None, 0)] if size is None else [Token(home, place) for place in range(size)]
        rows: list[tuple[Poly, ...]] = []
        undefined: list[Poly] = []
        for place in places:
            env = {target.indices[0]: place}
            if len(target.indices) == 1:
                value = self.value(body, env)
                rows.append(value.rows * (width if len(value.rows) == 1 else 1))
                undefined += value.undefined
                continue
            columns = self.checked.set_of(target.indices[1])
            cells = [self.value(body, {**env, target.indices[1]: Token(columns, column)}) for column in range(width)]
            rows.append(tuple(cell.poly for cell in cells))
            undefined += [one for cell in cells for one in cell.undefined]
        return tuple(rows), tuple(undefined)

    # ---- expressions -------------------------------------------------------------------------------------------------

    def value(self, node: Expr, env: Env) -> Value:
        """The value of an expression at tokens."""
        free = self.free(node)
        key = (id(node), tuple(sorted((i, t.place, t.name) for i, t in env.items() if i in free)))
        if key not in self._known:
            self._known[key] = (node, self._value(node, env))
        found = self._known[key][1]
        assert isinstance(found, Value)
        return found

    def free(self, node: ast.Node) -> frozenset[str]:
        """The index variables a node depends on."""
        if id(node) not in self._free:
            found: set[str] = set()
            for child in ast.children(node):
                found |= self.free(child)
            match node:
                case ast.Ref():
                    found.update(node.indices)
                case ast.Position(index=index):
                    found.add(index)
                case ast.Different(left=left, right=right):
                    found.update((left, right))
                case ast.Reduce(index=index):
                    found.discard(index)
                case ast.Weigh(index=index):
                    found.add(index)
            self._free[id(node)] = (node, frozenset(found))
        return self._free[id(node)][1]

    def _value(self, node: Expr, env: Env) -> Value:
        algebra = self.algebra
        match node:
            case ast.Num():
                return Value((_exact(node.value),))
            case ast.Ref():
                return self._reference(node, env)
            case ast.Count(set=name):
                size = self.sizes.size(name)
                return Value((algebra.atom("count", name) if size is None else number(size),))
            case ast.Position(index=index):
                token = env[index]
                if token.place is not None:
                    return Value((number(token.place + 1),))
                return Value((algebra.atom("position", token.set, (token.name,)),))
            case ast.Reduce():
                return self._reduce(node, env)
            case ast.Weigh():
                return self._weight(node, env)
            case ast.Else(body=body, fallback=fallback):
                return self._otherwise(self.value(body, env), self.value(fallback, env), node)
            case ast.Neg(body=body):
                return self._each(self.value(body, env), lambda p: scale(p, -1))
            case ast.Percent(body=body):
                return self.value(body, env)
            case ast.Norm(body=body):
                value = self.value(body, env)
                if not value.vector:
                    return self._each(value, algebra.absolute)
                return Value((algebra.sqrt(self._inner(value, value)),), value.undefined, loose=value.loose)
            case ast.Square(body=body):
                value = self.value(body, env)
                return Value((self._inner(value, value),), value.undefined, loose=value.loose)
            case ast.Inner(left=left, right=right):
                a, b = self.value(left, env), self.value(right, env)
                return Value((self._inner(a, b),), a.undefined + b.undefined, loose=a.loose or b.loose)
            case ast.Power(base=base, exponent=exponent):
                return self._each(self.value(base, env), lambda p: self._power(p, exponent))
            case ast.Call(function="unit", body=body):
                return self._unit(self.value(body, env))
            case ast.Call(function=function, body=body):
                return self._each(self.value(body, env), lambda p: algebra.apply(function, p))
            case ast.Binary(op=op, left=left, right=right):
                return self._binary(op, self.value(left, env), self.value(right, env))

    def _reference(self, node: ast.Ref, env: Env) -> Value:
        if node.name in self.checked.lets:
            let = self.checked.lets[node.name]
            return self.value(let.body, {own: env[i] for own, i in zip(let.target.indices, node.indices, strict=True)})
        if not node.indices:
            return self._constant(node)
        field = self.checked.fields[node.name]
        home = env[node.indices[0]]
        rows = self.state[node.name][home.place or 0]
        if len(node.indices) == 2:
            column = env[node.indices[1]].place
            if column is None:
                raise Unproved(f"{node.name} has an open second index")
            rows = (rows[column],)
        if home.place is None:
            rows = tuple(self.algebra.rename(p, {0: home.name}) for p in rows)
        return Value(rows, vector=field.width is not None)

    def _constant(self, node: ast.Ref) -> Value:
        if node.name in self.params:
            return Value((_exact(self.params[node.name]),))
        if node.name in self.sizes.dims:
            return Value((number(self.sizes.dims[node.name]),))
        default = self.checked.params[node.name].default
        assert default is not None
        return self.value(default, {})

    # ---- arithmetic --------------------------------------------------------------------------------------------------

    def _each(self, value: Value, function: object) -> Value:
        assert callable(function)
        return Value(tuple(function(p) for p in value.rows), value.undefined, value.vector, value.loose)

    def _inner(self, a: Value, b: Value) -> Poly:
        return self.algebra.dot(*_matched(a, b))

    def _power(self, p: Poly, exponent: int) -> Poly:
        return self.algebra.power(p if exponent >= 0 else self.algebra.inverse(p), abs(exponent))

    def _unit(self, value: Value) -> Value:
        algebra = self.algebra
        square = self._inner(value, value)
        if not square:
            return Value(tuple({} for _ in value.rows), (*value.undefined, ONE), True)
        factor = algebra.multiply(algebra.sqrt(square), algebra.inverse(square))
        rows = tuple(algebra.multiply(p, factor) for p in value.rows)
        empty = algebra.nothing(square)
        return Value(rows, (*value.undefined, *((empty,) if empty else ())), True, value.loose)

    def _binary(self, op: str, a: Value, b: Value) -> Value:
        algebra = self.algebra
        left, right = _matched(a, b)
        match op:
            case "+":
                rows = [add(p, q) for p, q in zip(left, right, strict=True)]
            case "-":
                rows = [subtract(p, q) for p, q in zip(left, right, strict=True)]
            case "*":
                rows = [algebra.multiply(p, q) for p, q in zip(left, right, strict=True)]
            case _:
                if any(not q for q in b.rows):
                    raise Unproved("a division by zero")
                inverse = algebra.inverse(b.poly)
                rows = [algebra.multiply(p, inverse) for p in left]
        return Value(tuple(rows), a.undefined + b.undefined, a.vector or b.vector, a.loose or b.loose)

    def _otherwise(self, body: Value, fallback: Value, node: ast.Else) -> Value:
        """The body where it has a value, else the fallback."""
        if body.loose:
            raise Unproved("an `else` around a sum of values that may be undefined")
        algebra = self.algebra
        if not body.undefined:
            return body
        there = ONE
        for empty in dict.fromkeys(map(freeze, body.undefined)):
            there = algebra.multiply(there, subtract(ONE, dict(empty)))
        missing = subtract(ONE, there)
        left, right = _matched(body, fallback)
        rows = tuple(
            add(p, scale(algebra.multiply(p, missing), -1), algebra.multiply(q, missing))
            for p, q in zip(left, right, strict=True)
        )
        undefined = tuple(one for p in fallback.undefined if (one := algebra.multiply(p, missing)))
        return Value(rows, undefined, body.vector or fallback.vector, fallback.loose)

    # ---- conditions --------------------------------------------------------------------------------------------------

    def mask(self, where: Sequence[ast.Condition], env: Env) -> Poly:
        """1 where all conditions hold, else 0."""
        result = ONE
        for condition in where:
            result = self.algebra.multiply(result, self._holds(condition, env))
        return result

    def _holds(self, condition: ast.Condition, env: Env) -> Poly:
        match condition:
            case ast.Member(field=field):
                return self.algebra.compare(">", add(self.value(field, env).poly, number(Fraction(-1, 2))))
            case ast.Compare(op=op, left=left, right=right):
                return self.algebra.compare(op, self._binary("-", self.value(left, env), self.value(right, env)).poly)
            case ast.Different(left=left, right=right):
                a, b = env[left], env[right]
                if a.place is not None:
                    return number(int(a.place != b.place))
                if a.name == b.name:
                    return {}
                return self.algebra.atom("differ", a.set, tuple(sorted((a.name, b.name))))

    # ---- keys of reductions and weightings ---------------------------------------------------------------------------

    def keys(self, index: str, env: Env) -> list[Env]:
        """The environments in which an index takes each token of its set; of an open set one, with a new token."""
        home = self.checked.set_of(index)
        size = self.sizes.size(home)
        if size is not None:
            return [{**env, index: Token(home, place)} for place in range(size)]
        taken = max((t.name for i, t in env.items() if i != index and t.place is None), default=-1)
        return [{**env, index: Token(home, None, taken + 1)}]

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
        key = ("weights", id(node), tuple(map(id, also)), keys[0][node.index].name, at)
        if key not in self._known:
            self._known[key] = ((node, also), self._weights(node, keys, also))
        found = self._known[key][1]
        assert isinstance(found, tuple)
        return found[0], keys, found[1]

    def _weights(self, node: ast.Weigh, keys: list[Env], also: Sequence[ast.Condition]) -> tuple[Keys, Value]:
        rule, sign = self._rule(node)
        scores, loose = [], False
        for at in keys:
            score = self.value(node.score, at)
            loose |= bool(score.undefined) or score.loose
            p = score.poly if node.noise is None else add(score.poly, self.value(node.noise, at).poly)
            scores.append(scale(p, sign))
        masks = [self.mask((*node.where, *also), at) for at in keys]
        token = keys[0][node.index]
        if token.place is None:
            found = self.algebra.weigh(rule, token.set, token.name, scores[0], masks[0])
        else:
            found = self.algebra.weigh_list(rule, scores, masks)
        return found, Value((), (found.empty,) if found.empty else (), loose=loose)

    def _rule(self, node: ast.Weigh) -> tuple[Rule, Literal[1, -1]]:
        """The weighting, and the sign with which it ranks its scores."""
        ties, epsilon = "first", Fraction(0)
        if node.ties is not None:
            ties = {"average": "split"}.get(node.ties.rule, node.ties.rule)
            if node.ties.epsilon is not None:
                epsilon = self._number(node.ties.epsilon)
        match node.kind:
            case "argmax" | "sample":
                return Rule("argmax", ties, epsilon), 1
            case "argmin":
                return Rule("argmax", ties, epsilon), -1
            case "lowest" | "highest":
                sign: Literal[1, -1] = 1 if node.kind == "highest" else -1
                argument = node.arguments[0]
                if isinstance(argument, ast.Percent):
                    return Rule("top", percent=self._decimal(argument.body)), sign
                count = self._number(argument)
                if count.denominator != 1:
                    raise Unproved(f"{node.kind} of {count} tokens")
                return Rule("top", count=int(count)), sign
            case "normmax":
                return Rule("normmax", gamma=self._number(node.arguments[0])), 1
        return Rule(node.kind), 1

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
            return Value((found.weights[token.place],), noted.undefined, loose=noted.loose)
        weight = self.algebra.rename(found.weights[0], {keys[0][node.index].name: token.name})
        return Value((weight,), noted.undefined, loose=noted.loose)

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
            weights, loose = masks, False
        else:
            given = [self.value(node.weighted, at) for at in keys]
            weights = [algebra.multiply(w.poly, mask) for w, mask in zip(given, masks, strict=True)]
            loose = any(w.undefined or w.loose for w in given)
        if node.kind == "sum":
            return self._weighted(node, keys, weights, Value((), loose=loose))
        mass = self._sum(node.index, keys, weights)
        if not mass:
            raise Unproved("a mean without any weight")
        inverse, empty = algebra.inverse(mass), algebra.nothing(mass)
        value = self._weighted(node, keys, weights, Value((), (empty,) if empty else (), loose=loose))
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
        inside = [p for body in bodies for p in body.undefined]
        token = keys[0][node.index]
        bound = token.name if token.place is None else None
        outside = [p for p in inside if bound is None or bound not in algebra.tokens(p)]
        loose = noted.loose or any(b.loose for b in bodies) or len(outside) < len(inside)
        if outside and token.place is not None:
            loose, outside = True, []
        return Value(rows, (*noted.undefined, *outside), bodies[0].vector, loose)

    def _extreme(self, node: ast.Reduce, keys: Sequence[Env], masks: Sequence[Poly]) -> Value:
        algebra = self.algebra
        bodies = [self.value(node.body, at) for at in keys]
        loose = any(b.undefined or b.loose for b in bodies)
        scores = [b.poly for b in bodies]
        token = keys[0][node.index]
        if node.kind == "logsumexp":
            terms = [algebra.multiply(algebra.exp(s), mask) for s, mask in zip(scores, masks, strict=True)]
            found, empty = algebra.log_sum(self._sum(node.index, keys, terms), ONE in masks)
        else:
            sign = 1 if node.kind == "max" else -1
            signed = [scale(s, sign) for s in scores]
            if token.place is None:
                found, empty = algebra.best(token.set, token.name, signed[0], masks[0])
            else:
                found, empty = algebra.best_list(signed, masks)
            found = scale(found, sign)
        return Value((found,), (empty,) if empty else (), loose=loose)


def _exact(value: float) -> Poly:
    return number(int(value) if float(value).is_integer() else Fraction(value))


def _matched(a: Value, b: Value) -> tuple[tuple[Poly, ...], tuple[Poly, ...]]:
    """The rows of both, a single row repeated."""
    width = max(len(a.rows), len(b.rows))
    return (a.rows if len(a.rows) == width else a.rows * width), (b.rows if len(b.rows) == width else b.rows * width)
