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
from weft.lowering.heads import Opening
from weft.lowering.normal import Form, KeySum, MaskRule, Rule, show_form
from weft.lowering.reductions import STORE_FIRST, Reductions, said
from weft.lowering.slots import Refused

ONE_EACH = "give each its own `else`, in parentheses"
VECTORS = "it lowers with a vector per token in place of the pair field: f[i] : R^k instead of f[i,j]"


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

    def divide(self, x: Poly, y: Poly, context: str, nonzero: bool = False) -> Poly:
        """x / y; `nonzero`: whether y is known not to be 0."""
        if y.is_const:
            if not y.constant:
                raise Refused("division by zero", code="L302")
            return x.scale(1 / y.constant)
        if not x.terms and not self.guarded:
            raise Refused("this is always 0, or a division by zero", "write 0", code="L302")
        head = self._normalised(x, y) if x.terms else None
        if head is not None:
            return head
        single = y.single
        if single and not single[1]:  # one monomial: negative powers, which may cancel if they are not 0
            scalars, _, c = single
            if all(isinstance(a, Number | Size | Dot | Total) and len(indices(a)) <= 1 for a, _ in scalars):
                out = x.scale(1 / c)
                for a, n in scalars:
                    atom = Poly.atom(self.plain(a) if isinstance(a, Total) else a)
                    if nonzero or self.positive(atom):
                        out = out * Poly.term(monomial([(next(iter(atom.atoms)), -n)]))
                    else:
                        out = out * self._reciprocal(atom, context).power(n)
                return out
        if len(y.indices) == 2 and not (self.guarded and not nonzero):
            return x * self.tabulate(y, "reciprocal")
        return x * self._reciprocal(y, context, nonzero)

    def _reciprocal(self, y: Poly, context: str, nonzero: bool = False) -> Poly:
        """1 / y of one token; before an `else`, of 1 where y is 0."""
        if self.guarded and not nonzero:
            there = self._bit(self._sign(y, context), "square")
            self.opened.append(there)
            y = y + Poly.const(1) - there
        i = token_of(y, context)
        return Poly.atom(Number(self.function(self.stream(i), "reciprocal", self.linear(y, i)), i))

    def within(self, function: str, p: Poly, context: str) -> Poly:
        """What log or sqrt is taken of, before an `else`: p, or 1 and 0 where p is outside the domain."""
        sign = self._sign(p, context)
        i = token_of(sign, context)
        kept = Poly.atom(Number(self.function(self.stream(i), "relu", self.linear(p, i)), i))
        if function == "sqrt":
            self.opened.append(Poly.const(1) - self._bit(-sign, "relu"))
            return kept
        there = self._bit(sign, "relu")
        self.opened.append(there)
        return kept + Poly.const(1) - there

    def _sign(self, p: Poly, context: str) -> Poly:
        """-1, 0 or 1 as a slot of one token: the direction of a vector of one number. Zero is decided exactly."""
        if len(p.indices) > 1:
            pair = ", ".join(self.in_order(p.indices))
            message = f"this `else` belongs to a pair of tokens ({pair}); attention knows it per token"
            raise Refused(message, VECTORS, code="L303")
        i = token_of(p, context)
        form = self.linear(p, i)
        slot = self.derive(self.stream(i), f"sign({show_form(form)})", "unit", 1, form=form, fallback={})
        return Poly.atom(Number(slot, i))

    def _bit(self, sign: Poly, how: str) -> Poly:
        """0 or 1 of a sign: its square, or its positive part."""
        (i,) = sign.indices
        if how == "relu":
            return Poly.atom(Number(self.function(self.stream(i), "relu", self.linear(sign, i)), i))
        ((slot, _),) = self.linear(sign, i).items()
        made = self.derive(self.stream(i), f"{slot}^2", "product", 1, a=slot, b=slot)
        return Poly.atom(Number(made, i))

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

    def over_keys(
        self,
        before: int,
        k: str,
        masks: tuple[MaskRule, ...],
        context: str,
        body: Poly | None = None,
        weights: Poly | None = None,
    ) -> None:
        """Turns what was noted about the keys of a sum, mean or weighting over k into what holds of its query.

        A sum has a value where all its keys that count have one: where none of them is without.
        """
        noted = self.opened[before:]
        rules = [a.rule for a in (body or Poly()).atoms if isinstance(a, Weight) and a.key == k]
        own = [o for o in noted if isinstance(o, tuple) and o[0] in rules]
        noted = [o for o in noted if o not in own]
        if not self.guarded or not noted:
            return
        del self.opened[before:]
        self.opened += own
        for rule in rules:
            assert isinstance(rule, Rule)
            if rule.kind != "softmax":
                raise Refused("this `else` covers several things that can be undefined", ONE_EACH, code="L303")
            masks = (*masks, *rule.masks)
        if weights is not None and not weights.is_const:
            masks = (*masks, MaskRule(weights.frozen))
        for opening in noted:
            there = self._there(opening)
            if k not in there.indices and not masks:
                self.opened.append(opening)
                continue
            lost = self.sum_over(Poly.const(1) - there, k, context, masks)
            self.opened.append(Poly.const(1) - self._bit(self._sign(lost, context), "square"))

    def _there(self, opening: Opening) -> Poly:
        """1 where something has a value, 0 where it has none."""
        if isinstance(opening, Poly):
            return opening
        rule, query, key = opening
        weighs = replace(rule, kind="softmax") if rule.kind in ("lse", "max") else rule
        return self.total(KeySum(query, key, weighs.with_last()))

    def needed(self, p: Poly, opened: Sequence[Opening], more: Sequence[Opening], context: str) -> Poly:
        """p = A else B, where `more` may leave B without a value: that matters where A has none (see `opened`)."""
        for opening in more:
            flag = Poly.const(1)
            for one in opened:
                flag = flag * self._there(one)
            there = flag + (Poly.const(1) - flag) * self._there(opening)
            if self.guarded:
                self.opened.append(there)
            else:  # 1 / 1 changes nothing, and 1 / 0 stops the run
                p = p * self._reciprocal(there, context)
        return p

    def otherwise(self, p: Poly, fallback: Poly, opened: Sequence[Opening] = ()) -> Poly:
        """p else fallback; `opened` is what may leave p without a value."""
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
        if any(isinstance(o, Poly) or o[0] not in seen for o in opened):
            return self._select(p, fallback, opened, [*open_totals, *nested])
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
            return self._select(p, fallback, opened, [*open_totals, *nested])
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

    def _select(self, p: Poly, fallback: Poly, opened: Sequence[Opening], partial: list[Total]) -> Poly:
        """The general case: a flag says whether everything has a value, and a feed-forward selects."""
        swapped = {a: self.total(replace(s, rule=s.rule.with_last())) for a in partial if (s := self.sums[a.id])}
        flag = Poly.const(1)
        totals = [(s.rule, s.query, s.key) for a in partial if (s := self.sums[a.id])]
        for opening in dict.fromkeys(o if isinstance(o, tuple) else o.frozen for o in (*opened, *totals)):
            flag = flag * self._there(opening if _is_rule(opening) else thaw(opening))  # type: ignore[arg-type]

        def swap(a: object) -> Poly | None:
            if isinstance(a, Dot):
                left = swapped.get(a.left) if isinstance(a.left, Total) else None
                right = swapped.get(a.right) if isinstance(a.right, Total) else None
                if left is None and right is None:
                    return None
                return (left or Poly.atom(a.left)).dot(right or Poly.atom(a.right))
            if isinstance(a, Weight) and isinstance(a.rule, Rule) and a.rule.partial:
                return Poly.atom(replace(a, rule=a.rule.with_last()))
            return swapped.get(a) if isinstance(a, Total) else None

        p = p.replace(swap)
        ids = p.indices | fallback.indices | flag.indices
        if len(ids) == 2 and len(flag.indices) == 1:
            return self._select_rows(p, fallback, flag, ids)
        if len(ids) != 1:
            pair = ", ".join(self.in_order(ids))
            message = f"this `else` belongs to a pair of tokens ({pair}); attention knows it per token"
            raise Refused(message, VECTORS, code="L303")
        (i,) = ids
        width = max(p.width, fallback.width)
        slot = self._selected(i, self.linear(p, i), self.linear(fallback, i), flag, max(1, width))
        return self.slot_poly(slot, i, width)

    def _select_rows(self, p: Poly, fallback: Poly, flag: Poly, ids: frozenset[str]) -> Poly:
        """The same of a pair of tokens, where the flag is of one of them and the set of the other one is fixed."""
        (i,) = flag.indices
        (j,) = ids - {i}
        size = self.tokens(j)
        if size is None or p.width or fallback.width:
            pair = ", ".join(self.in_order(ids))
            message = f"this `else` belongs to a pair of tokens ({pair}); attention knows it per token"
            raise Refused(message, VECTORS, code="L303")
        form, other = self.linear(self.rows(p, i, j), i), self.linear(self.rows(fallback, i, j), i)
        return self.row(self._selected(i, form, other, flag, size), i, j)

    def _selected(self, i: str, form: Form, other: Form, flag: Poly, width: int) -> str:
        stream, flags = self.stream(i), self.linear(flag, i)
        single = list(flags.values()) == [1]
        flag_slot = next(iter(flags)) if single else self.function(stream, "copy", flags)
        name = f"select({flag_slot}, {len(self.step.local)})"
        return self.derive(stream, name, "select", width, form=form, fallback=other, flag=flag_slot)


def _is_rule(opening: object) -> bool:
    return isinstance(opening, tuple) and len(opening) == 3 and isinstance(opening[0], Rule)
