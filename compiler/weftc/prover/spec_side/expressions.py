"""A checked spec -> what its equations compute, as polynomials. Follows the meaning of the language and nothing else.

An index variable stands for a token: of an open set a number (0: the token that is described), of a fixed set the
token itself, so that sums over fixed sets are written out. Where an expression may have no value, `undefined` lists
indicators that are 1 there, and the value is 0 by convention, until an `else` takes over.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction

from weftc.core import syntax as ast
from weftc.core.syntax import Expr
from weftc.core.types import Checked
from weftc.prover.induction.state import Rows, TokenCounts
from weftc.prover.kernel import ONE, Kernel
from weftc.prover.kernel.polynomials import Poly, add, freeze, number, scale, subtract
from weftc.prover.kernel.rules import Unproved
from weftc.prover.spec_side.values import Env, SpecToken, Value, exactly, matched


class SpecExpressions(ABC):
    """Evaluates what is neither a reduction nor a weighting."""

    def __init__(
        self,
        algebra: Kernel,
        checked: Checked,
        sizes: TokenCounts,
        params: Mapping[str, float],
        state: Mapping[str, Rows],
    ) -> None:
        self.algebra, self.checked, self.sizes = algebra, checked, sizes
        self.params, self.state = params, dict(state)
        self._known: dict[object, tuple[object, object]] = {}
        self._free: dict[int, tuple[object, frozenset[str]]] = {}
        self.guarded = False  # inside an `else`
        self.filled = False  # inside a sum inside an `else`: what is undefined has some value, and the sum is not used

    # ---- equations ---------------------------------------------------------------------------------------------------

    def equation(self, target: ast.Ref, body: Expr, width: int) -> tuple[Rows, tuple[Poly, ...]]:
        """The new rows of a field, and the indicators of having no value."""
        home = self.checked.set_of(target.indices[0])
        size = self.sizes.size(home)
        places = [SpecToken(home, None, 0)] if size is None else [SpecToken(home, place) for place in range(size)]
        rows: list[tuple[Poly, ...]] = []
        undefined: list[Poly] = []
        for place in places:
            env = {target.indices[0]: place}
            if len(target.indices) == 1:
                value = self.value(body, env)
                rows.append(value.rows * (width if len(value.rows) == 1 else 1))
                undefined += value.missing
                continue
            columns = self.checked.set_of(target.indices[1])
            cells = [
                self.value(body, {**env, target.indices[1]: SpecToken(columns, column)}) for column in range(width)
            ]
            rows.append(tuple(cell.poly for cell in cells))
            undefined += [one for cell in cells for one in cell.missing]
        return tuple(rows), tuple(undefined)

    # ---- expressions -------------------------------------------------------------------------------------------------

    def value(self, node: Expr, env: Env) -> Value:
        """The value of an expression at tokens."""
        free = self.free(node)
        at = tuple(sorted((i, t.place, t.name) for i, t in env.items() if i in free))
        key = (id(node), at, self.guarded, self.filled)
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
                return Value((exactly(node.value),))
            case ast.Symbol(text=text, vocabulary=vocabulary):
                return Value(tuple(number(int(text == symbol)) for symbol in vocabulary), vector=True)
            case ast.Ref():
                return self._reference(node, env)
            case ast.Count(set=name):
                size = self.sizes.size(name)
                return Value((algebra.atom("count", name) if size is None else number(size),))
            case ast.Position(index=index):
                token = env[index]
                if node.onehot:
                    places = range(self.sizes.size(token.set) or 0)
                    return Value(tuple(number(int(place == token.place)) for place in places), vector=True)
                if token.place is not None:
                    return Value((number(token.place + 1),))
                return Value((algebra.atom("position", token.set, (token.name,)),))
            case ast.Reduce():
                with self._reading(self.guarded, self.guarded):
                    return self._reduce(node, env)
            case ast.Weigh():
                with self._reading(self.guarded, self.guarded):
                    return self._weight(node, env)
            case ast.Else(body=body, fallback=fallback):
                with self._reading(True, self.filled):
                    first = self.value(body, env)
                return self._otherwise(first, self.value(fallback, env))
            case ast.Neg(body=body):
                return self._each(self.value(body, env), lambda p: scale(p, -1))
            case ast.Percent(body=body):
                return self.value(body, env)
            case ast.Norm(body=body):
                value = self.value(body, env)
                if not value.vector:
                    return self._each(value, algebra.absolute)
                return replace(value, rows=(algebra.sqrt(algebra.square(value.rows)),), vector=False)
            case ast.Square(body=body):
                value = self.value(body, env)
                return replace(value, rows=(algebra.square(value.rows),), vector=False)
            case ast.Inner(left=left, right=right):
                a, b = self.value(left, env), self.value(right, env)
                return self._joined(a, b, (self._inner(a, b),), False)
            case ast.Power(base=base, exponent=exponent):
                value = self.value(base, env)
                return self._undefined(
                    self._each(value, lambda p: self._power(p, exponent)),
                    [one for p in value.rows if exponent < 0 for one in algebra.zeros(p)],
                )
            case ast.Call(function="unit", body=body):
                return self._unit(self.value(body, env))
            case ast.Call(function=function, body=body):
                value = self.value(body, env)
                lacking = [one for p in value.rows for one in algebra.without_value(function, p)]
                return self._undefined(self._each(value, lambda p: self._apply(function, p)), lacking)
            case ast.Binary(op=op, left=left, right=right):
                return self._binary(op, self.value(left, env), self.value(right, env))

    @contextmanager
    def _reading(self, guarded: bool, filled: bool) -> Iterator[None]:
        """Reads expressions inside an `else`, or inside a sum inside one."""
        before = self.guarded, self.filled
        self.guarded, self.filled = guarded, filled
        try:
            yield
        finally:
            self.guarded, self.filled = before

    def _inverse(self, p: Poly) -> Poly:
        """1/p; where p is zero it has no value, and may be anything: zero, or one where sums are filled."""
        return self.algebra.inverse(add(p, self.algebra.nothing(p)) if self.filled else p)

    def _apply(self, function: str, p: Poly) -> Poly:
        """A function; where it has no value it may be anything: where sums are filled, what it is of one."""
        algebra = self.algebra
        if self.filled and function == "log" and not algebra.is_positive(p):
            p = add(algebra.relu(p), subtract(ONE, algebra.compare(">", p)))
        return self._inverse(p) if function == "reciprocal" else algebra.apply(function, p)

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
        return Value(rows, vector=len(node.indices) == 1 and (field.width is not None or field.is_pair))

    def _constant(self, node: ast.Ref) -> Value:
        if node.name in self.params:
            return Value((exactly(self.params[node.name]),))
        if node.name in self.sizes.dims:
            return Value((number(self.sizes.dims[node.name]),))
        default = self.checked.params[node.name].default
        assert default is not None
        return self.value(default, {})

    # ---- arithmetic --------------------------------------------------------------------------------------------------

    def _each(self, value: Value, function: object) -> Value:
        assert callable(function)
        return replace(value, rows=tuple(function(p) for p in value.rows))

    def _undefined(self, value: Value, more: Sequence[Poly]) -> Value:
        return replace(value, undefined=value.undefined + tuple(more))

    def _joined(self, a: Value, b: Value, rows: Sequence[Poly], vector: bool) -> Value:
        """A function of two values: it has none where one of them has none."""
        undefined, errors, caught = a.undefined + b.undefined, a.errors + b.errors, a.caught + b.caught
        return Value(tuple(rows), undefined, vector, errors, caught, a.loose or b.loose)

    def _inner(self, a: Value, b: Value) -> Poly:
        return self.algebra.dot(*matched(a, b))

    def _power(self, p: Poly, exponent: int) -> Poly:
        return self.algebra.power(p if exponent >= 0 else self._inverse(p), abs(exponent))

    def _unit(self, value: Value) -> Value:
        algebra = self.algebra
        rows, length = algebra.unit(value.rows)
        if not length:
            return self._undefined(self._each(value, lambda _: {}), (ONE,))
        return self._undefined(replace(value, rows=tuple(rows)), algebra.zeros(length))

    def _binary(self, op: str, a: Value, b: Value) -> Value:
        algebra = self.algebra
        left, right = matched(a, b)
        match op:
            case "+":
                rows = [add(p, q) for p, q in zip(left, right, strict=True)]
            case "-":
                rows = [subtract(p, q) for p, q in zip(left, right, strict=True)]
            case "*" | ".*":
                rows = [algebra.multiply(p, q) for p, q in zip(left, right, strict=True)]
            case "./":
                if not all(b.rows):
                    raise Unproved("a division by zero")
                rows = [algebra.multiply(p, self._inverse(q)) for p, q in zip(left, right, strict=True)]
                b = self._undefined(b, [one for q in b.rows for one in algebra.zeros(q)])
            case _:
                if any(not q for q in b.rows):
                    raise Unproved("a division by zero")
                inverse = self._inverse(b.poly)
                rows = [algebra.multiply(p, inverse) for p in left]
                b = self._undefined(b, algebra.zeros(b.poly))
        return self._joined(a, b, rows, a.vector or b.vector)

    def _otherwise(self, body: Value, fallback: Value) -> Value:
        """The body where it has a value, else the fallback."""
        if body.loose:
            raise Unproved("an `else` around a sum, with weights of any sign, of values that may be undefined")
        algebra = self.algebra
        lacking = dict.fromkeys(map(freeze, body.undefined + body.caught))
        if not lacking:
            return body
        there = ONE
        for empty in lacking:
            there = algebra.multiply(there, subtract(ONE, dict(empty)))
        missing = subtract(ONE, there)
        left, right = matched(body, fallback)
        rows = tuple(
            add(p, scale(algebra.multiply(p, missing), -1), algebra.multiply(q, missing))
            for p, q in zip(left, right, strict=True)
        )
        undefined = tuple(one for p in fallback.undefined if (one := algebra.multiply(p, missing)))
        errors = tuple(one for p in fallback.errors if (one := algebra.multiply(p, missing)))
        caught = tuple(one for p in fallback.caught if (one := algebra.multiply(p, missing)))
        return Value(rows, undefined, body.vector or fallback.vector, errors, caught, fallback.loose)

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
                gap = self._binary("-", self.value(left, env), self.value(right, env))
                if gap.missing:
                    raise Unproved("a condition on a number that may be undefined")
                assert op != "="  # the checker has spelled it out
                assert op != "!="
                return self.algebra.compare(op, gap.poly)
            case ast.Different(left=left, right=right):
                a, b = env[left], env[right]
                if a.place is not None:
                    return number(int(a.place != b.place))
                if a.name == b.name:
                    return {}
                return self.algebra.atom("differ", a.set, tuple(sorted((a.name, b.name))))

    # ---- reductions and weightings: see `spec_terms` -----------------------------------------------------------------

    @abstractmethod
    def _reduce(self, node: ast.Reduce, env: Env) -> Value:
        """The value of a reduction."""

    @abstractmethod
    def _weight(self, node: ast.Weigh, env: Env) -> Value:
        """The weight of one key."""
