"""Sums over keys -> heads, and pair expressions -> rows stored on a token.

A `Total` atom stands for a sum that some head will compute. `finalise` makes the head and replaces the atom by the
scratch slot it writes. Totals with the same query, key and rule share one head.

Tabulation: a pair expression over (i, j) with j fixed is a vector of |j| numbers on token i, read back as <row_i, e_j>;
any function then acts on it coordinate by coordinate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Literal, TypeAlias

from weft.lowering.algebra import (
    Atom,
    Distance,
    Dot,
    Exp,
    Frozen,
    Name,
    Number,
    Poly,
    Size,
    Total,
    Vector,
    Weight,
    indices,
    monomial,
    thaw,
)
from weft.lowering.members import Members
from weft.lowering.normal import (
    EXACT,
    POSITION,
    SHIFT_FREE,
    Form,
    KeySum,
    MaskRule,
    NormalHead,
    NormalMask,
    Rule,
)
from weft.lowering.scores import cleared
from weft.lowering.slots import Refused
from weft.lowering.spaces import Spaces
from weft.source import Span


def shift_slot(source: str) -> str:
    """The slot that holds a typical value of an input, the same on every token."""
    return f"centre({source})"


BELONGS = "only softmax and normalize without `where` can be stored on the other token; use it inside a sum instead"


Opening: TypeAlias = tuple[Rule, str, str] | Poly
"""What may be undefined: a rule with its query and key, or a number that is 1 where there is a value and else 0."""


class Heads(Members):
    """Heads of the step being lowered."""

    sums: list[KeySum]
    landed: dict[int, str]  # total -> the slot its head writes
    heads: dict[tuple[str, str, Rule, int], NormalHead]
    spans: dict[Rule, Span]  # where a rule came from, for messages
    opened: list[Opening]  # what may leave the expression being lowered without a value
    guarded: bool  # whether an `else` stands around it: then 0 is computed where there is no value
    scratch: int
    spaces: Spaces
    deciding: bool  # inside a score or condition that decides
    shifted: dict[tuple[str, str], str]  # (stream, slot) -> the input that says where its space lies

    # ---- totals

    def total(self, s: KeySum) -> Poly:
        """The polynomial that stands for a sum over keys."""
        self.sums.append(s)
        self.spans.setdefault(s.rule, self.span)
        self.open_rule(s.rule, s.query, s.key)
        return Poly.atom(Total(len(self.sums) - 1, s.query, s.width))

    def positive(self, p: Poly) -> bool:
        """Whether a polynomial is known to be > 0: positive coefficients on counts and positive fields."""

        def sure(a: object) -> bool:
            if isinstance(a, Number) and a.slot in self.checked.fields:
                return self.checked.fields[a.slot].positive
            return isinstance(a, Size)

        return bool(p.terms) and all(c > 0 and not v and all(sure(a) for a, _ in s) for (s, v), c in p.terms.items())

    def open_rule(self, rule: Rule, query: str, key: str) -> None:
        """Notes a rule that may leave a query without weight: some `else` has to see it."""
        if rule.partial and (rule.masks or not self.positive(thaw(rule.score))):
            self.opened.append((rule, query, key))

    def finalise(self, p: Poly, only: str | None = None) -> Poly:
        """Replaces pending sums by the slots their heads write (only those that land on token `only`, if given)."""

        def swap(a: Atom) -> Poly | None:
            if only is not None and (not isinstance(a, Total | Dot) or only not in indices(a)):
                return None
            if isinstance(a, Total):
                slot = self.land(a)
                return Poly.atom(Vector(slot, a.index, a.width) if a.width else Number(slot, a.index))
            if isinstance(a, Dot) and (isinstance(a.left, Total) or isinstance(a.right, Total)):
                return self.finalise(Poly.atom(a.left)).dot(self.finalise(Poly.atom(a.right)))
            if isinstance(a, Distance):
                left, right = self.finalise(thaw(a.left)).frozen, self.finalise(thaw(a.right)).frozen
                return Poly.atom(Distance(left, right, a.i, a.j)) if (left, right) != (a.left, a.right) else None
            if isinstance(a, Exp):
                body = self.finalise(thaw(a.body)).frozen
                return Poly.atom(Exp(body)) if body != a.body else None
            return None

        return p.replace(swap)

    def linear(self, p: Poly, i: str) -> Form:
        """A polynomial of token i, pending sums included, as a linear form."""
        return self.form(self.finalise(p), i)

    def plain(self, a: Atom) -> Atom:
        """The stored atom a pending sum becomes."""
        (atom,) = self.finalise(Poly.atom(a)).atoms
        return atom

    def land(self, a: Total) -> str:
        """The scratch slot that receives a total; makes its head when there is none yet."""
        if a.id in self.landed:
            return self.landed[a.id]
        s = self.sums[a.id]
        if self.guarded and s.rule.partial:
            s = replace(s, rule=s.rule.with_last())
        stream, keys = self.stream(s.query), self.stream(s.key)
        own = self.linear(thaw(s.own), s.query)
        is_number = s.rule.kind in ("lse", "max")
        value: Form = {}
        if s.empty is None and not is_number:
            value = {self.slot_for(keys, s.scalars, s.vectors): Fraction(1)}
        reads = max(self.level(keys, value), self.level(stream, own))
        head = self.head(s.query, s.key, s.rule, reads + 1)
        self.scratch += 1
        slot = f"~{self.scratch}"
        if is_number:
            head.number[slot] = Fraction(1)
        else:
            head.values[slot] = value
        head.own[slot] = own
        self.widths[stream][slot] = max(1, a.width)
        self.levels[stream, slot] = head.level
        self.landed[a.id] = slot
        return slot

    def head(self, q: str, k: str, rule: Rule, level: int = 1) -> NormalHead:
        """The head of the current step for a rule, at least at a level."""
        key = (q, k, rule, level)
        if key not in self.heads:
            try:
                self.heads[key] = self._make_head(q, k, rule, level)
            except Refused as refused:
                refused.span = refused.span or self.spans.get(rule)
                raise
            self.step.heads.append(self.heads[key])
        return self.heads[key]

    def _make_head(self, q: str, k: str, rule: Rule, level: int) -> NormalHead:
        span = self.spans.get(rule, self.span)
        rule, members = self.unmasked(rule)
        own: Literal["last"] | Form | None = None
        if isinstance(rule.self_key, tuple):
            own = self.linear(thaw(rule.self_key), q)
        elif rule.self_key is not None:
            own = "last"
        shift_free = rule.kind in SHIFT_FREE and not isinstance(own, Mapping) and not members
        p = self._score_of(rule.score, rule.kind in EXACT)
        score = self.score(p, q, k, shift_free=shift_free, exact=rule.kind in EXACT)
        if rule.kind in EXACT:
            score, factor = cleared(score)
            rule = replace(rule, epsilon=rule.epsilon * factor, gamma=rule.gamma and rule.gamma / factor)
        if members:
            score, own = self.offset(score, members, own, q, k)
        masks = tuple(self._mask(m, q, k) for m in rule.masks)
        sides = {"query": self.stream(q), "key": self.stream(k)}
        reads = [(sides[side], slot) for s in (score, *(m.score for m in masks)) for side, slot in s.slots()]
        reads += [(sides["query"], slot) for slot in own] if isinstance(own, Mapping) else []
        deepest = max((self.levels.get(r, 0) for r in reads), default=0)
        return NormalHead(sides["query"], sides["key"], rule, score, masks, own, max(level, deepest + 1), span)

    def _mask(self, m: MaskRule, q: str, k: str) -> NormalMask:
        if m.other:
            return NormalMask("other")
        p = self._score_of(m.poly, True)
        score, _ = cleared(self.score(p, q, k, shift_free=False, exact=True))
        op: Literal[">", ">="] = ">" if m.strict else ">="
        return NormalMask(op, score)

    def _score_of(self, frozen: Frozen, deciding: bool) -> Poly:
        """A score over stored values."""
        outer, self.deciding = self.deciding, deciding
        try:
            return self.stored(self.finalise(thaw(frozen)))
        finally:
            self.deciding = outer

    # ---- differences that have to be multiplied out

    def multiplied_out(self, a: Distance) -> Poly:
        """A distance where no head holds it whole."""
        return self.expanded(self.finalise(thaw(a.left)), self.finalise(thaw(a.right)), a.i, a.j)

    def expanded(self, left: Poly, right: Poly, i: str, j: str) -> Poly:
        """|left - right|^2 multiplied out, both sides centred."""
        left, right = self.centred(left, right, i, j)
        return left.dot(left) - left.dot(right).scale(2) + right.dot(right)

    def centred(self, left: Poly, right: Poly, i: str, j: str) -> tuple[Poly, Poly]:
        """The two sides of a difference, each less the same number or vector s near both: left - s and right - s.

        Their difference is the same, and sums of its products lose little when they are multiplied out:

            sum[i] (x[i] - m[g])^2   ->   sum[i] X[i]^2 - 2 * M[g] * sum[i] X[i] + n * M[g]^2,   X = x - s,  M = m - s

        s is a value of the data, so that X and M are exact wherever numbers are stored as finely as they differ (whole
        numbers stay whole). The error is that of the spec as written while |x - s| and |m - s| are about as large as
        |x - m|; where groups lie farther apart than they are wide, by a factor r, it is r times that for every factor.
        """
        if self.styles.centre == "off":
            return left, right
        shift = self._stored_shift((left, right), (i, j)) or self._shift_of(left, i, j)
        if shift is None:
            return left, right
        return self._less(left, shift[0], i), self._less(right, shift[1], j)

    def _less(self, p: Poly, shift: Poly, i: str) -> Poly:
        return self.slot_poly(self.function(self.stream(i), "copy", self.linear(p - shift, i)), i, p.width)

    def _stored_shift(self, sides: tuple[Poly, Poly], on: tuple[str, str]) -> tuple[Poly, Poly] | None:
        """The shift of a space that has inputs: found once, before the first layer, and stored on every token."""
        for side in sides:
            for atom in side.atoms:
                found = self.spaces.source(atom.slot) if self._is_field(atom) else None  # type: ignore[union-attr]
                factor = self._degree(side, found) if found else Fraction(0)
                if found and factor:
                    return self._shift_slot(found, on[0], factor), self._shift_slot(found, on[1], factor)
        return None

    def _is_field(self, a: Atom) -> bool:
        return isinstance(a, Number | Vector) and a.slot in self.checked.fields

    def _degree(self, p: Poly, source: str) -> Fraction:
        """How often a side moves when the whole space moves by one."""
        space = self.spaces.of(source)
        terms = ((s, v, c) for (s, v), c in p.terms.items())
        plain = ((v or s[0][0], c) for s, v, c in terms if (v and not s) or (not v and len(s) == 1 and s[0][1] == 1))
        return sum((c for a, c in plain if self._is_field(a) and a.slot in space), Fraction(0))  # type: ignore[union-attr]

    def _shift_slot(self, source: str, i: str, factor: Fraction) -> Poly:
        stream, slot = self.stream(i), shift_slot(source)
        width = self.widths[self.checked.fields[source].home][source]
        self.shifted[stream, slot] = source
        self.widths[stream][slot] = width
        return self.slot_poly(slot, i, 0 if self.checked.fields[source].width is None else width).scale(factor)

    def _shift_of(self, p: Poly, i: str, j: str) -> tuple[Poly, Poly] | None:
        """The shift of what no input stands for: found in this step, from the numbers themselves. Positions and counts
        are small anyhow, and decisions are exact anyhow."""
        if self.deciding or all(isinstance(a, Size) or (isinstance(a, Number) and a.slot == POSITION) for a in p.atoms):
            return None
        value = self.slot_poly(self.function(self.stream(i), "copy", self.linear(p, i)), i, p.width)
        return self.typical(value, i, i), self.typical(value, i, j)

    def typical(self, value: Poly, i: str, query: str) -> Poly:
        """A slot of the first token of the set of i, as every token `query` reads it: all keys tie, the first wins."""
        k = f"{i}~key"
        self.index[k] = self.stream(i)
        (atom,) = value.atoms
        assert isinstance(atom, Number | Vector)
        own = replace(atom, index=k)
        scalars, vectors = (((own, 1),), ()) if isinstance(own, Number) else ((), (own,))
        return self.finalise(self.total(KeySum(query, k, Rule("argmax", ()), scalars, vectors)))

    # ---- rows

    def fixed_side(self, ids: frozenset[str]) -> tuple[str, str]:
        """Two indices as (i, j) with j over a fixed set."""
        i, j = sorted(self.in_order(ids), key=lambda v: self.tokens(v) is not None)
        if self.tokens(j) is None:
            raise Refused(
                f"a function of two tokens of open sets ({i}, {j}) has no attention form",
                "only exp of a sum of products has, inside a sum over one of the tokens",
                "with one fixed set it would lower: one slot per token of that set",
            )
        return i, j

    def row(self, slot: str, i: str, j: str) -> Poly:
        """<row_i, e_j>: column j of a row stored on token i."""
        size = self.tokens(j)
        assert size is not None
        return Poly.atom(Vector(slot, i, size)).dot(Poly.atom(Name(self.stream(j), j, size)))

    def tabulate(self, p: Poly, function: str = "copy", order: tuple[str, str] | None = None) -> Poly:
        """A pair expression, perhaps under a function, as a row stored on the token that is not fixed."""
        i, j = order or self.fixed_side(p.indices)
        form = self.linear(self.rows(p, i, j), i)
        if function == "copy" and list(form.values()) == [1]:
            return self.row(next(iter(form)), i, j)
        return self.row(self.function(self.stream(i), function, form), i, j)

    def apart(self, p: Poly) -> Poly:
        """A pair expression with rows of their own for distances that are multiplied out: what is added comes after."""
        if self.styles.scores == "l2" or len(p.terms) < 2:
            return p
        return p.replace(lambda a: self.tabulate(Poly.atom(a)) if isinstance(a, Distance) else None)

    def stored(self, p: Poly) -> Poly:
        """Tabulates what stands where only stored values may: weights, exponentials, distances that are multiplied."""
        far = self.crowded_distances(p)
        fixed = any(self.tokens(i) for i in p.indices)
        if fixed:
            p = p.replace(lambda a: self.tabulate(Poly.atom(a)) if a in far else None)

        def swap(a: Atom) -> Poly | None:
            if isinstance(a, Distance) and (self.styles.scores == "dot" or a in far):
                return self.multiplied_out(a)
            return self.tabulate(Poly.atom(a)) if isinstance(a, Weight | Exp) else None

        return self.finalise(self.merge_rows(p.replace(swap)))

    def crowded_distances(self, p: Poly) -> set[Atom]:
        """Distances that stand beside another function of two tokens (or themselves)."""
        return {
            a
            for scalars, _ in p.terms
            for a, n in scalars
            if isinstance(a, Distance) and (n != 1 or any(len(indices(b)) > 1 for b, _ in scalars if b != a))
        }

    def merge_rows(self, p: Poly) -> Poly:
        """<y, e_j> <z, e_j> = <y.z, e_j>: products of rows over the same fixed set go coordinate by coordinate."""
        out = Poly()
        for (scalars, v), c in p.terms.items():
            rows: dict[Name, list[tuple[Atom, Vector]]] = {}
            for atom, power in scalars:
                if isinstance(atom, Dot) and power > 0 and len(indices(atom)) == 2:
                    name, other = (atom.left, atom.right) if isinstance(atom.left, Name) else (atom.right, atom.left)
                    if isinstance(name, Name) and isinstance(other, Vector):
                        rows.setdefault(name, []).extend([(atom, other)] * power)
            for name, found in rows.items():
                first = found[0][1]
                if len(found) < 2 or any(v.index != first.index for _, v in found):
                    continue
                stream, slot = self.stream(first.index), first.slot
                for _, other in found[1:]:
                    slot = self.derive(stream, f"{slot}.*{other.slot}", "product", first.width, a=slot, b=other.slot)
                gone = {a for a, _ in found}
                merged = Poly.atom(Vector(slot, first.index, first.width)).dot(Poly.atom(name))
                scalars = tuple(z for z in scalars if z[0] not in gone) + next(iter(merged.terms))[0]
            out = out + Poly.term(monomial(scalars, v), c)
        return out

    def rows(self, p: Poly, i: str, j: str) -> Poly:
        """A pair expression as a vector over j on token i: stored rows, and heads whose value is the name of j."""
        size = self.tokens(j)
        assert size is not None
        name = Name(self.stream(j), j, size)
        p = p.replace(lambda a: self._transposed(a, i, j) if isinstance(a, Weight) and a.query == j else None)
        score, out = Poly(), Poly()
        for (scalars, v), c in self.merge_rows(p).terms.items():
            if v:
                raise Refused("a pair field holds one number per pair, not a vector")
            weights = [a for a, _ in scalars if isinstance(a, Weight | Exp)]
            own = [a for a, n in scalars if isinstance(a, Dot) and name in (a.left, a.right) and n == 1]
            others = tuple(z for z in scalars if z[0] not in weights and z[0] not in own[:1])
            if not weights and own and all(indices(a) <= {i} for a, _ in others):
                row = own[0].left if own[0].right == name else own[0].right
                out = out + Poly.term((others, row), c)
            elif weights:
                out = out + self._weighted_row(scalars, c, weights, i, j, name)
            else:
                score = score + Poly.term((scalars, v), c)
        if score.terms:
            out = out + self.total(KeySum(i, j, Rule("sum", score.frozen), (), (name,)))
        return out

    def _weighted_row(
        self,
        scalars: tuple[tuple[Atom, int], ...],
        c: Fraction,
        weights: list[Weight | Exp],
        i: str,
        j: str,
        name: Name,
    ) -> Poly:
        """One monomial with a weight or an exponential in it."""
        (first, *more) = weights
        others = tuple(z for z in scalars if z[0] != first)
        if more or any(len(indices(a)) > 1 for a, _ in others) or dict(scalars)[first] != 1:
            p = Poly.const(c)
            for atom, power in scalars:
                one = self.tabulate(Poly.atom(atom)) if atom in weights else Poly.atom(atom) if power > 0 else None
                p = p * (one.power(power) if one is not None else Poly.term((((atom, power),), None)))
            return self.rows(p, i, j)
        if isinstance(first, Weight):
            assert isinstance(first.rule, Rule)
            rule = first.rule
        else:
            rule = Rule("exp", first.body)
        of_key = tuple(z for z in others if indices(z[0]) == {j})
        of_query = tuple(z for z in others if indices(z[0]) != {j})
        return Poly.term((of_query, None), c) * self.total(KeySum(i, j, rule, of_key, (name,)))

    def _transposed(self, a: Weight, i: str, j: str) -> Poly:
        """Weights chosen by j over the tokens i, needed on i: exp(S - lse_j) for softmax, S / sum for normalize."""
        rule = a.rule
        assert isinstance(rule, Rule)
        if rule.masks or rule.kind not in ("softmax", "normalize") or rule.sharpness is not None:
            raise Refused(f"this choice runs over {i}, so its weights belong to {j}", BELONGS)
        score = thaw(rule.score)
        if rule.kind == "softmax":
            lse = self.total(KeySum(j, i, Rule("lse", rule.score)))
            return Poly.atom(Exp(self.finalise(score - lse).frozen))
        mass = self.total(KeySum(j, i, Rule("sum", rule.score)))
        if rule.self_key == "last":  # where the mass is 0 an `else` counts, and all weights are 0 whatever divides them
            empty = self.total(KeySum(j, i, rule, own=Poly.const(1).frozen, empty=0))
            slot = self.function(self.stream(j), "reciprocal", self.linear(mass + empty, j))
            return score * Poly.atom(Number(slot, j))
        (atom,) = mass.atoms
        return score * Poly.term((((self.plain(atom), -1),), None))
