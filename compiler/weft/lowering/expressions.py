"""Syntax tree -> polynomials: one method per construct.

`env` maps the index variables of the text to those of the lowering; inside a `let` they differ. `context` is the token
an equation is for: a sum that mentions no other token lands on it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from fractions import Fraction
from itertools import chain, count

from weft import syntax as ast
from weft.language.check import type_of
from weft.lowering.algebra import (
    Atom,
    Distance,
    Dot,
    Exp,
    Name,
    Number,
    Poly,
    Size,
    Total,
    Vector,
    Weight,
    indices,
    thaw,
)
from weft.lowering.heads import Opening
from weft.lowering.normal import ONE, POSITION, KeySum, MaskRule, Rule, show_form
from weft.lowering.ratios import ONE_EACH, Ratios, token_of
from weft.lowering.reductions import mask_indices
from weft.lowering.scores import RESCALE
from weft.lowering.slots import Refused

Env = Mapping[str, str]
LEAST, MOST = Fraction(sys.float_info.min), Fraction(sys.float_info.max)
DECIDING = ("argmax", "argmin", "sample", "lowest", "highest", "normmax")
CONSTANT: dict[str, Callable[[float], float]] = {
    "log": math.log,
    "exp": math.exp,
    "sqrt": math.sqrt,
    "tanh": math.tanh,
    "relu": lambda t: max(t, 0.0),
}


def companion(name: str) -> str:
    """The slot that keeps the logarithms of a softmax field."""
    return f"log {name}"


def _has_total(a: Dot) -> bool:
    return isinstance(a.left, Total) or isinstance(a.right, Total)


class Expressions(Ratios):
    """The meaning of every construct as algebra."""

    logged: frozenset[str]  # softmax fields whose logarithms are kept

    def poly(self, node: ast.Expr, env: Env, context: str) -> Poly:
        """The polynomial of an expression; a refusal is given the place of the innermost guilty expression."""
        outer, self.span = self.span, node.span
        try:
            found = self._poly(node, env, context)
            if not all(LEAST <= abs(c) <= MOST for c in found.terms.values()):
                raise Refused("a factor of this is outside the range of float64", RESCALE, code="L302")
            return found
        except Refused as refused:
            refused.span = refused.span or node.span
            raise
        finally:
            self.span = outer

    def _poly(self, node: ast.Expr, env: Env, context: str) -> Poly:
        def sub(x: ast.Expr) -> Poly:
            return self.poly(x, env, context)

        match node:
            case ast.Num():
                return Poly.const(Fraction(node.value))
            case ast.Ref():
                return self._ref(node, env, context)
            case ast.Count():
                size = self.size(node.set)
                return Poly.atom(Size(node.set)) if size is None else Poly.const(size)
            case ast.Position():
                return Poly.atom(Number(POSITION, env.get(node.index, node.index)))
            case ast.Neg():
                return -sub(node.body)
            case ast.Binary():
                left, right = sub(node.left), sub(node.right)
                if node.op == "+":
                    return left + right
                if node.op == "-":
                    return left - right
                return self._times(left, right) if node.op == "*" else self._quotient(left, right, node, env, context)
            case ast.Power():
                base = sub(node.base)
                return self._square(base) if node.exponent == 2 else self._whole(base).power(node.exponent)
            case ast.Square():
                return self._square(sub(node.body))
            case ast.Inner():
                left, right = sub(node.left), sub(node.right)
                return self._square(left) if left.terms == right.terms else self._whole(left).dot(self._whole(right))
            case ast.Norm():
                body = sub(node.body)
                return self._length(body, context) if body.width else self._apply("absolute", body, context)
            case ast.Call(function="unit"):
                return self._unit(sub(node.body), None, context)
            case ast.Call(function="sqrt", body=ast.Square(body=root)):
                return self._poly(ast.Norm(node.span, root), env, context)
            case ast.Call(function="log" | "sqrt" as name, body=body) if self.guarded:
                known = self._within_domain(name, body, env)
                return self._apply(name, sub(body) if known else self.within(name, sub(body), context), context)
            case ast.Call():
                return self._apply(node.function, sub(node.body), context)
            case ast.Else():
                if isinstance(node.body, ast.Call) and node.body.function == "unit":
                    inside, opened = self._guarded(node.body.body, env, context)
                    inside = self.otherwise(inside, Poly(), opened)  # where it is undefined: 0 has no direction either
                    return self._unit(inside, sub(node.fallback), context)
                body, opened = self._guarded(node.body, env, context)
                fallback, more = self._guarded(node.fallback, env, context)
                return self.needed(self.otherwise(body, fallback, opened), opened, more, context)
            case ast.Reduce():
                return self._reduce(node, env, context)
            case ast.Weigh():
                return self._weigh(node, env, context)
        raise Refused("a percentage only makes sense as the second argument of lowest or highest")

    def _guarded(self, node: ast.Expr, env: Env, context: str) -> tuple[Poly, list[Opening]]:
        """What stands before an `else`, and what may leave it without a value; 0 is computed there."""
        before, outer, self.guarded = len(self.opened), self.guarded, True
        try:
            body = self.poly(node, env, context)
            body = body.replace(lambda a: self.finalise(Poly.atom(a)) if isinstance(a, Distance | Exp) else None)
            return body, self.opened[before:]
        finally:
            self.guarded = outer
            del self.opened[before:]

    def _times(self, left: Poly, right: Poly) -> Poly:
        if left.is_const or right.is_const:
            return left * right
        if left.terms == right.terms and not left.width:
            return self._square(left)
        return self._factor(left) * self._factor(right)

    def _quotient(self, left: Poly, right: Poly, node: ast.Binary, env: Env, context: str) -> Poly:
        try:
            known = type_of(self.checked, node.right, frozenset(env))
            nonzero = known.positive and known.undefined is None
            return self.divide(left if right.is_const else self._factor(left), right, context, nonzero)
        except Refused as refused:
            refused.span = refused.span or node.right.span
            raise

    # ---- names

    def _ref(self, node: ast.Ref, env: Env, context: str) -> Poly:
        checked = self.checked
        if node.name in checked.lets:
            let = checked.lets[node.name]
            inner = dict(zip(let.target.indices, (env.get(i, i) for i in node.indices), strict=True))
            return self.poly(let.body, inner, context)
        if not node.indices:
            if node.name in self.given:
                return Poly.const(self.given[node.name])
            if node.name in checked.params:
                default = checked.params[node.name].default
                assert default is not None
                return self.poly(default, {}, context)
            return Poly.const(self.dims[node.name])
        field = checked.fields[node.name]
        i = env.get(node.indices[0], node.indices[0])
        if field.columns is not None:
            return self.row(node.name, i, env.get(node.indices[1], node.indices[1]))
        if field.width is None:
            return Poly.atom(Number(node.name, i))
        return Poly.atom(Vector(node.name, i, self.dimension(field.width)))

    def fresh(self, index: str, env: Env, context: str) -> tuple[str, Env]:
        """A bound index, renamed apart from the tokens that are named already."""
        taken = {*env.values(), context}
        name = next(n for n in chain([index], (f"{index}~{m}" for m in count(1))) if n not in taken)  # no name has a ~
        self.index[name] = self.index[index]
        return name, {**env, index: name}

    # ---- token-wise maths

    def _square(self, p: Poly) -> Poly:
        sides = self._sides(p)
        if sides is None or self._pending(p):
            whole = self._whole(p)
            return whole.dot(whole)
        left, right, i, j = sides
        return Poly.atom(Distance(left.frozen, right.frozen, i, j))

    def _sides(self, p: Poly) -> tuple[Poly, Poly, str, str] | None:
        """A and B of A[i] - B[j], if it is a difference of two tokens and nothing else (a constant belongs to A)."""
        if len(p.indices) != 2:
            return None
        i, j = sorted(p.indices)
        left = p.only(i)
        right = left - p
        return (left, right, i, j) if left.indices and right.indices == {j} else None

    def _length(self, p: Poly, context: str) -> Poly:
        """|p|. A square that was multiplied out may round to something below zero: that counts as zero."""
        square = self._square(p)
        whole = self.styles.scores == "l2" and any(isinstance(a, Distance) for a in square.atoms)
        if len(square.indices) == 2 and not whole:
            square = self.tabulate(square, "relu")
        return self._apply("sqrt", square, context)

    def _pending(self, p: Poly) -> bool:
        """Whether an `else` may still have to catch something in it."""
        return any(isinstance(a, Total) and self.sums[a.id].rule.partial for a in p.atoms)

    def _whole(self, p: Poly) -> Poly:
        """A sum as one factor: multiplying it out would cancel what the difference keeps.

            values of one token                         a slot that holds their sum
            two tokens, numbers, one of a fixed set     a row: one number per token of that set
            two tokens otherwise                        the difference of two centred sides (`centred`)

        A score that decides is left as a polynomial of stored fields: that is compared exactly anyhow.
        """
        if len(p.terms) < 2 or self._pending(p) or not p.indices:
            return p
        if len(p.indices) == 1:
            (i,) = p.indices
            return self.slot_poly(self.function(self.stream(i), "copy", self.linear(p, i)), i, p.width)
        if len(p.indices) > 2 or self.deciding:
            return p
        if not p.width and any(self.tokens(i) for i in p.indices):
            return self.tabulate(self.apart(p))
        sides = self._sides(p)
        if sides is None:
            return p
        left, right, i, j = sides
        left, right = self.centred(self.finalise(left), self.finalise(right), i, j)
        return left - right

    def _factor(self, p: Poly) -> Poly:
        """A sum as one factor, unless it holds sums over keys of the same token: those are rounded already."""
        has_totals = any(isinstance(a, Total) or (isinstance(a, Dot) and _has_total(a)) for a in p.atoms)
        return p if has_totals and len(p.indices) == 1 else self._whole(p)

    def _apply(self, function: str, p: Poly, context: str) -> Poly:
        if function == "log":
            lse = self._log_of_sum(p)
            if lse is not None:
                return lse
        if p.is_const:
            return Poly.const(self._constant(function, p.constant))
        if len(p.indices) == 2:
            return Poly.atom(Exp(p.frozen)) if function == "exp" else self.tabulate(p, function)
        i = token_of(p, context)
        slot = self.function(self.stream(i), function, self.linear(p, i))
        return self.slot_poly(slot, i, p.width)

    def _constant(self, function: str, value: Fraction) -> Fraction:
        if function == "absolute":
            return abs(value)
        try:
            return Fraction(CONSTANT[function](float(value)))
        except (ValueError, OverflowError):
            raise Refused(f"{function} of {float(value):g} is not a finite number", code="L302") from None

    def _log_of_sum(self, p: Poly) -> Poly | None:
        """log(c * sum[k] exp(S)) = log c + lse[k] S: the log-normaliser of a head."""
        single = p.single
        if single is None or single[2] <= 0 or len(single[0]) != 1 or single[1]:
            return None
        atom, power = single[0][0]
        if not isinstance(atom, Total) or power != 1:
            return None
        s = self.sums[atom.id]
        if s.rule.kind != "exp" or s.scalars or s.vectors:
            return None
        lse = self.total(KeySum(s.query, s.key, Rule("lse", s.rule.score, s.rule.masks)))
        return lse + Poly.const(Fraction(math.log(single[2])))

    def _unit(self, p: Poly, fallback: Poly | None, context: str) -> Poly:
        if not p.terms:
            if fallback is None:
                raise Refused("unit of a vector that is always 0", code="L302")
            return fallback
        i = token_of(p, context)
        form = self.linear(p, i)
        other = None if fallback is None else self.linear(fallback, i)
        rest = "" if other is None else f" else {show_form(other)}"
        name = f"unit({show_form(form)}{rest})"
        slot = self.derive(self.stream(i), name, "unit", p.width, form=form, fallback=other)
        return Poly.atom(Vector(slot, i, p.width))

    # ---- conditions, weightings, reductions

    def _masks(self, where: tuple[ast.Condition, ...], env: Env, context: str) -> tuple[MaskRule, ...]:
        out = []
        for condition in where:
            outer, self.deciding = self.deciding, True
            match condition:
                case ast.Different(_, left, right):
                    out.append(MaskRule(other=(env.get(left, left), env.get(right, right))))
                case ast.Member(_, field):
                    half = Poly.const(Fraction(1, 2))
                    out.append(MaskRule((self.poly(field, env, context) - half).frozen, member=True))
                case ast.Compare(_, op, left, right):
                    p = self.poly(left, env, context) - self.poly(right, env, context)
                    out.append(MaskRule((p if op[0] == ">" else -p).frozen, strict=op in "<>"))
            self.deciding = outer
        return tuple(out)

    def _weigh(self, node: ast.Weigh, env: Env, context: str) -> Poly:
        k = env.get(node.index, node.index)
        before = len(self.opened)
        masks = self._masks(node.where, env, context)
        outer, self.deciding = self.deciding, self.deciding or node.kind in DECIDING
        p = self.poly(self._ranked(node), env, context)
        if node.noise is not None:
            p = p + self.poly(node.noise, env, context)
        self.deciding = outer
        q = self.query_of(p.indices | mask_indices(masks), k, context, f"this {node.kind}")
        if q == k:
            raise Refused(
                f"{node.kind}[{k}] needs another token to choose for",
                "declare a second index over the same set: one for the token that chooses, one for the candidates",
            )
        p = self.finalise(p) if self.guarded else p
        rule = self._rule_of(node, -p if node.kind in ("argmin", "lowest") else p, masks, env, (q, k))
        self.spans.setdefault(rule, node.span)
        self.over_keys(before, k, masks, q)
        self.open_rule(rule, q, k)
        return Poly.atom(Weight(rule, q, k))

    def _ranked(self, node: ast.Weigh) -> ast.Expr:
        """The score, without increasing functions around it where only the order of scores counts: they would round."""
        within = node.ties is not None and node.ties.rule == "within"
        if node.kind not in ("argmax", "argmin", "lowest", "highest") or node.noise is not None or within:
            return node.score
        return self._argument(node.score)

    def _argument(self, score: ast.Expr) -> ast.Expr:
        """What increasing functions are applied to: it is in the same order."""
        match score:
            case ast.Norm(span, body):
                return ast.Square(span, body)
            case ast.Call(function="exp" | "tanh", body=body):
                return self._argument(body)
            case ast.Call(function="sqrt" | "log", body=body) if self._within_domain(score.function, body, None):
                return self._argument(body)
            case ast.Neg(span, body):
                inside = self._argument(body)
                return score if inside is body else ast.Neg(span, inside)
            case ast.Binary(span, "*" | "/", body, ast.Num(value=factor)) | ast.Binary(
                span, "*", ast.Num(value=factor), body
            ):
                inside = self._argument(body)
                if inside is body or not factor:
                    return score
                return inside if factor > 0 else ast.Neg(span, inside)
        return score

    def _within_domain(self, function: str, body: ast.Expr, env: Env | None) -> bool:
        """Whether log or sqrt of an expression always has a value."""
        kind = type_of(self.checked, body, frozenset(self.checked.index if env is None else env))
        return kind.undefined is None and (kind.positive if function == "log" else kind.nonnegative)

    def _rule_of(self, node: ast.Weigh, p: Poly, masks: tuple[MaskRule, ...], env: Env, pair: tuple[str, str]) -> Rule:
        q, k = pair

        def number(x: ast.Expr) -> Fraction:
            value = self.poly(x, env, q)
            if not value.is_const:
                raise Refused("this must be a number that is known when the spec compiles", code="L304")
            return value.constant

        match node.kind:
            case "argmax" | "argmin" | "sample":
                if node.ties is None or node.ties.rule == "first":
                    return Rule("argmax", p.frozen, masks)
                if node.ties.rule == "within":
                    assert node.ties.epsilon is not None
                    return Rule("argmax", p.frozen, masks, ties="within", epsilon=number(node.ties.epsilon))
                return Rule("argmax", p.frozen, masks, ties="split")
            case "lowest" | "highest":
                argument = node.arguments[0]
                if isinstance(argument, ast.Percent):
                    share = Fraction(repr(float(number(argument.body))))  # percentages are exact decimals
                    return Rule("top", p.frozen, masks, percent=share)
                count = number(argument)
                if count.denominator != 1 or count < 1:
                    raise Refused(
                        f"{node.kind} keeps a whole number of tokens, at least 1, not {float(count):g}", code="L304"
                    )
                return Rule("top", p.frozen, masks, count=int(count))
            case "normmax":
                gamma = number(node.arguments[0])
                if gamma <= 0:
                    raise Refused(f"normmax needs a positive gamma, not {float(gamma):g}", code="L304")
                return Rule("normmax", p.frozen, masks, gamma=gamma)
            case "normalize":
                return self._normalize(p, masks, q, k)
        sharpness = None if node.sharpness is None else Fraction(node.sharpness)
        return Rule(node.kind, p.frozen, masks, ties="split" if node.split else "first", sharpness=sharpness)

    def _normalize(self, p: Poly, masks: tuple[MaskRule, ...], q: str, k: str) -> Rule:
        """Weights proportional to p; for exp(S), or a field whose logarithms are kept, that is a softmax.

        For exp(S) * g it is normalize(softmax(S) * g): a factor per query is free, and a softmax never vanishes whole.
        """
        common = [a for a in p.atoms if all(dict(scalars).get(a) == 1 for scalars, _ in p.terms)]
        exponents = {a: e for a in common if (e := self._exponent(a)) is not None}
        if len(exponents) == 1:
            ((atom, exponent),) = exponents.items()
            single = p.single
            if single and len(single[0]) == 1 and single[2] > 0:
                return Rule("softmax", exponent.frozen, masks)
            soft = Poly.atom(Weight(Rule("softmax", exponent.frozen), q, k))
            p = p.replace(lambda a: soft if a == atom else None)
        return Rule("normalize", p.frozen, masks)

    def _exponent(self, a: Atom) -> Poly | None:
        """S of a factor exp(S): an exponential, or a field whose logarithms are kept."""
        if isinstance(a, Exp):
            return thaw(a.body)
        if isinstance(a, Number):
            return self._exponent_of_slot(a)
        if isinstance(a, Dot):
            name, row = (a.left, a.right) if isinstance(a.left, Name) else (a.right, a.left)
            if isinstance(name, Name) and isinstance(row, Vector) and row.slot in self.logged:
                return self.row(companion(row.slot), row.index, name.index)
        return None

    def _exponent_of_slot(self, a: Number) -> Poly | None:
        """S of a slot that holds exp(S) of its token."""
        stream = self.stream(a.index)
        made = self.derived.get((stream, a.slot)) or next((d for d in self.step.local if d.slot == a.slot), None)
        if made is None or made.function != "exp" or made.stream != stream or made.width != 1:
            return None
        out = Poly()
        for slot, c in made.form.items():
            out = out + (Poly.const(c) if slot == ONE else Poly.atom(Number(slot, a.index)).scale(c))
        return out

    def _reduce(self, node: ast.Reduce, env: Env, context: str) -> Poly:
        k, env = self.fresh(node.index, env, context)
        before = len(self.opened)
        masks = self._masks(node.where, env, context)
        body = self.poly(node.body, env, context)
        weights = Poly.const(1) if node.weighted is None else self.poly(node.weighted, env, context)
        if node.by is None:
            self.over_keys(before, k, masks, context, body, weights)
        elif len(self.opened) > before and self.guarded:
            raise Refused("this `else` covers several things that can be undefined", ONE_EACH, code="L303")
        if node.kind in ("max", "min", "logsumexp"):
            return self._extreme(node.kind, body, k, masks, context)
        body = self._summand(body, k)
        if node.by is not None:
            return self.sum_over(body * self._weigh(node.by, env, context), k, context, masks)
        if node.kind == "sum":
            return self.sum_over(body * weights, k, context, masks)
        if node.weighted is None and not masks and self._is_pair(body):
            return self.sum_over(body, k, context) * self._one_over(k)
        q = self.query_of(body.indices | weights.indices | mask_indices(masks), k, context, "this mean")
        rule = self._normalize(weights, masks, q, k)
        self.spans.setdefault(rule, node.span)
        self.open_rule(rule, q, k)
        return self.sum_over(body * Poly.atom(Weight(rule, q, k)), k, context)

    def _summand(self, p: Poly, k: str) -> Poly:
        """What is added up over k: differences of stored values are taken before the sum, not after it."""
        if p.indices == {k} or self._sides(p) is not None:
            return self._factor(p)
        return p

    def _is_pair(self, p: Poly) -> bool:
        return any(isinstance(a, Dot | Distance | Exp | Weight) and len(indices(a)) == 2 for a in p.atoms)

    def _one_over(self, k: str) -> Poly:
        size = self.tokens(k)
        return Poly.const(Fraction(1, size)) if size else Poly.term((((Size(self.stream(k)), -1),), None))

    def _extreme(self, kind: str, body: Poly, k: str, masks: tuple[MaskRule, ...], context: str) -> Poly:
        """max, min and logsumexp over an index: the number a head returns instead of a sum of values."""
        q = self.query_of(body.indices | mask_indices(masks), k, context, f"this {kind}")
        if q == k:
            raise Refused(
                f"{kind} over {k} has to land on another token",
                f"declare a second index over the set of {k} and use it on one side",
            )
        if kind == "logsumexp":
            return self.total(KeySum(q, k, Rule("lse", body.frozen, masks)))
        sign = 1 if kind == "max" else -1
        return self.total(KeySum(q, k, Rule("max", body.scale(sign).frozen, masks))).scale(sign)
