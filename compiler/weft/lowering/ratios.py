"""Ratios and `else`: what a normalised head and its self key can hold.

(sum w v + a) / (alpha sum w + b)     one normalised head; b > 0 is a null key of weight b / alpha and value a / b
A else B                              the self key that counts only when nothing else does
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from weft.lowering.algebra import Dot, Number, Poly, Scalars, Size, Total, Weight, indices, monomial, thaw
from weft.lowering.normal import KeySum, Rule
from weft.lowering.reductions import STORE_FIRST, Reductions, said
from weft.lowering.slots import Refused

ONE_EACH = "give each its own `else`, in parentheses"
VECTORS = "it lowers with a vector per token in place of the pair field: f[i] : R^k instead of f[i,j]"
HIDDEN = "it is inside a score, or its value cancels or is always 0; give it an `else` of its own, in parentheses"


def token_of(p: Poly, context: str) -> str:
    """The one token an expression is a function of."""
    named = said(p.indices)
    if len(p.indices) > 2:
        raise Refused(f"a function of {len(p.indices)} tokens ({named}); attention relates two", STORE_FIRST)
    if len(p.indices) == 2:
        raise Refused(
            f"a function of two tokens ({named}) has no attention form",
            "only exp of a sum of products has, inside a sum over one of the tokens",
            "with one fixed set it would lower: one slot per token of that set",
        )
    return next(iter(p.indices), context)


class Ratios(Reductions):
    """Quotients and fallbacks."""

    def divide(self, x: Poly, y: Poly, context: str) -> Poly:
        """x / y."""
        if y.is_const:
            if not y.constant:
                raise Refused("division by zero", code="L302")
            return x.scale(1 / y.constant)
        if not x.terms:
            raise Refused("this is always 0, or a division by zero", "write 0", code="L302")
        head = self._normalised(x, y)
        if head is not None:
            return head
        single = y.single
        if single and not single[1]:  # one monomial: negative powers, which may cancel later
            scalars, _, c = single
            if all(isinstance(a, Number | Size | Dot | Total) and len(indices(a)) <= 1 for a, _ in scalars):
                down = monomial((self.plain(a) if isinstance(a, Total) else a, -n) for a, n in scalars)
                return x * Poly.term(down, 1 / c)
        if len(y.indices) == 2:
            return x * self.tabulate(y, "reciprocal")
        i = token_of(y, context)
        slot = self.function(self.stream(i), "reciprocal", self.linear(y, i))
        return x * Poly.atom(Number(slot, i))

    def _normalised(self, x: Poly, y: Poly) -> Poly | None:
        """The ratio of two sums with the same weights as one normalised head, if it is that."""
        sums = [
            (s[0][0], c)
            for (s, v), c in y.terms.items()
            if len(s) == 1 and not v and s[0][1] == 1 and isinstance(s[0][0], Total)
        ]
        if len(sums) != 1 or sums[0][1] <= 0:
            return None
        atom, alpha = sums[0]
        b = Poly({m: c for m, c in y.terms.items() if m != (((atom, 1),), None)})
        base = self.sums[atom.id]
        if base.rule.kind not in ("exp", "sum") or base.vectors or any(isinstance(a, Total | Dot) for a in b.atoms):
            return None
        if b.terms and not (self.positive(b) and b.indices <= {base.query}):
            return None
        rule = self._normal_rule(base, b.scale(1 / alpha))
        if rule is None:
            return None
        out, rest = Poly(), Poly()
        for (scalars, v), c in x.terms.items():
            hits = [a for a in [*(s for s, _ in scalars), v] if isinstance(a, Total)]
            if not hits:
                rest = rest + Poly.term((scalars, v), c)
                continue
            s = self.sums[hits[0].id]
            if (
                len(hits) > 1
                or (s.query, s.key, s.rule) != (base.query, base.key, base.rule)
                or dict(scalars).get(hits[0], 1) != 1
            ):
                return None
            others = tuple(z for z in scalars if z[0] != hits[0])
            counts = tuple(z for z in others if isinstance(z[0], Size))  # they fit in the value
            value = monomial(s.scalars + counts + tuple((a, -n) for a, n in base.scalars))[0]
            if any(n < 0 and not isinstance(a, Size) for a, n in value):
                return None
            left = tuple(z for z in others if z not in counts)
            new = self.total(KeySum(s.query, s.key, rule, value, s.vectors))
            out = out + Poly.term((left, None if v == hits[0] else v), c / alpha) * new
        if rest.terms:
            if not b.terms:
                return None
            own = self.divide(rest, b, base.query)
            out = out + self.total(KeySum(base.query, base.key, rule, own=own.frozen, empty=rest.width))
        return out

    def _normal_rule(self, base: KeySum, null: Poly) -> Rule | None:
        """The normalised form of a raw sum; `null` is the weight of the null key (no terms: none)."""
        if base.rule.kind == "sum":
            score = thaw(base.rule.score) * Poly.term(monomial(base.scalars))
            return Rule("normalize", score.frozen, base.rule.masks, self_key=null.frozen if null.terms else None)
        if base.scalars:
            return None
        key: Poly | None = None
        if null.is_const and null.terms:
            key = Poly.const(math.log(null.constant))
        elif null.terms:
            stream = self.stream(base.query)
            slot = self.function(stream, "log", self.linear(null, base.query))
            key = Poly.atom(Number(slot, base.query))
        return Rule("softmax", base.rule.score, base.rule.masks, self_key=None if key is None else key.frozen)

    # ---- else

    def otherwise(self, p: Poly, fallback: Poly, opened: Sequence[Rule] = ()) -> Poly:
        """p else fallback; `opened` are the rules of p that may leave a query without weight."""
        open_totals = [a for a in sorted(p.atoms, key=repr) if isinstance(a, Total) and self.sums[a.id].rule.partial]
        nested = [
            v
            for a in sorted(p.atoms, key=repr)
            if isinstance(a, Dot)
            for v in (a.left, a.right)
            if isinstance(v, Total) and self.sums[v.id].rule.partial
        ]
        stored = [
            a
            for a in sorted(p.atoms, key=repr)
            if isinstance(a, Weight) and isinstance(a.rule, Rule) and a.rule.partial
        ]
        seen = {self.sums[a.id].rule for a in (*open_totals, *nested)} | {a.rule for a in stored}
        for rule in opened:
            if rule not in seen and rule not in self.caught:
                refused = Refused("this may be undefined, and the `else` after it cannot tell", HIDDEN, code="L303")
                refused.span = self.spans.get(rule)
                raise refused
        self.caught |= {rule for rule in seen if isinstance(rule, Rule)}
        if stored:
            return self._stored_else(p, fallback, stored, bool(open_totals or nested))
        if not open_totals and not nested:
            return p
        rules = {self.sums[a.id].rule for a in open_totals}
        own = {(((a, 1),), None) if not a.width else ((), a): a for a in open_totals}
        rest = Poly({m: c for m, c in p.terms.items() if m not in own})
        linear = (
            not nested
            and len(rules) == 1
            and all(m in p.terms for m in own)
            and not set(open_totals) & set(rest.atoms)
            and set(rest.atoms) <= set(fallback.atoms)  # else rest + (fallback - rest) would round off what it cancels
        )
        if not linear or any(r.kind in ("lse", "max") and len(open_totals) > 1 for r in rules):
            return self._select(p, fallback, [*open_totals, *nested])
        out = rest
        for n, (m, a) in enumerate(own.items()):
            s, c = self.sums[a.id], p.terms[m]
            mine = (fallback - rest).scale(1 / c) if n == 0 else Poly()
            out = out + self.total(replace(s, rule=s.rule.with_last(), own=mine.frozen)).scale(c)
        return out

    def _stored_else(self, p: Poly, fallback: Poly, stored: list[Weight], more: bool) -> Poly:
        """y[i,j] = W[j](...) else B: the weights of the real keys, plus B times the weight of the self key."""
        weight = stored[0]
        alone: tuple[Scalars, None] = (((weight, 1),), None)
        rest = p - Poly.term(alone, p.terms.get(alone, Fraction(0)))
        if more or len(stored) > 1 or alone not in p.terms or weight in rest.atoms:
            raise Refused("this `else` covers several things that can be undefined", ONE_EACH, code="L303")
        assert isinstance(weight.rule, Rule)
        rule = weight.rule.with_last()
        empty = self.total(KeySum(weight.query, weight.key, rule, own=Poly.const(1).frozen, empty=0))
        kept = Poly.atom(Weight(rule, weight.query, weight.key)).scale(p.terms[alone])
        return kept + rest + (fallback - rest) * empty

    def _select(self, p: Poly, fallback: Poly, partial: list[Total]) -> Poly:
        """The general case: a flag says whether every head had an eligible key, and a feed-forward selects."""
        swapped: dict[Total, Poly] = {}
        flag = Poly.const(1)
        seen: set[tuple[str, str, Rule]] = set()
        for a in partial:
            s = self.sums[a.id]
            rule = s.rule.with_last()
            swapped[a] = self.total(replace(s, rule=rule))
            if (s.query, s.key, rule) not in seen:
                seen.add((s.query, s.key, rule))
                weighs = rule if rule.kind not in ("lse", "max") else replace(rule, kind="softmax")
                flag = flag * self.total(KeySum(s.query, s.key, weighs))

        def swap(a: object) -> Poly | None:
            if isinstance(a, Dot):
                left = swapped.get(a.left) if isinstance(a.left, Total) else None
                right = swapped.get(a.right) if isinstance(a.right, Total) else None
                if left is None and right is None:
                    return None
                return (left or Poly.atom(a.left)).dot(right or Poly.atom(a.right))
            return swapped.get(a) if isinstance(a, Total) else None

        p = p.replace(swap)
        ids = p.indices | fallback.indices | flag.indices
        if len(ids) != 1 and len(partial) == 1:
            pair = ", ".join(sorted(ids))
            raise Refused(
                f"this `else` belongs to a pair of tokens ({pair}); attention knows it per token", VECTORS, code="L303"
            )
        if len(ids) != 1:
            raise Refused("this `else` covers several things that can be undefined", ONE_EACH, code="L303")
        (i,) = ids
        stream = self.stream(i)
        ((flag_slot, _),) = self.linear(flag, i).items()
        form, other = self.linear(p, i), self.linear(fallback, i)
        width = max(p.width, fallback.width)
        name = f"select({flag_slot}, {len(self.step.local)})"
        slot = self.derive(stream, name, "select", max(1, width), form=form, fallback=other, flag=flag_slot)
        return self.slot_poly(slot, i, width)
