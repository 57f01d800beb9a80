"""Polynomials of stored values -> linear forms and scores.

A score is brought to sums of <query form, key form> and c * |query form - key form|^2 by algebra: each monomial splits
into query factors, key factors and inner products of the two; products become derived slots. What does not split is
refused.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import lcm
from typing import Literal

from weft.lowering.algebra import (
    Atom,
    Distance,
    Dot,
    Number,
    Poly,
    Scalars,
    Size,
    VectorAtom,
    expand_distances,
    indices,
    thaw,
)
from weft.lowering.normal import DotPart, Form, L2Part, NormalScore
from weft.lowering.slots import Refused, Slots

RESCALE = "write the numbers in other units, so that their products stay between 1e-300 and 1e300"


def is_float(value: Fraction) -> bool:
    """Whether a rational is a float exactly."""
    return Fraction(float(value)) == value


def is_sum_of_floats(value: Fraction) -> bool:
    """Whether a rational, its denominator made a power of two, is a sum of floats: no bit lies below the smallest."""
    return value.denominator & -value.denominator <= 2**1074


def odd_denominator(values: list[Fraction]) -> int:
    """The smallest whole number that turns all values into sums of powers of two."""
    out = 1
    for value in values:
        d = value.denominator
        out = lcm(out, d // (d & -d))
    return out


def cleared(score: NormalScore) -> tuple[NormalScore, int]:
    """The score times the smallest whole number that makes every coefficient a sum of powers of two; and the number."""
    factors = [c for p in score.dots for f in (p.query, p.key) for c in f.values()] + [p.coefficient for p in score.l2s]
    m = odd_denominator(factors)
    if m == 1:
        return score, 1
    dots = []
    for p in score.dots:  # one side is a selector; the factor goes to the other
        query, key = dict(p.query), dict(p.key)
        other = key if list(query.values()) == [1] else query
        other.update({slot: c * m for slot, c in other.items()})
        dots.append(DotPart(query, key, p.width))
    return NormalScore(tuple(dots), tuple(replace(p, coefficient=p.coefficient * m) for p in score.l2s)), m


class Scores(Slots):
    """Linear forms and scores over slots. Everything here reads stored slots only, no pending sums."""

    def form(self, p: Poly, i: str) -> Form:
        """A polynomial of token i as a linear form over the slots of its stream."""
        stream = self.stream(i)
        out: dict[str, Fraction] = {}
        for (scalars, vector), c in expand_distances(p).terms.items():
            for atom in [a for a, _ in scalars] + ([vector] if vector else []):
                if len(indices(atom)) > 1 and i in indices(atom):
                    raise Refused(
                        "this pair expression has to be summed over one of its tokens, or stored in a pair field"
                    )
                if not indices(atom) <= {i}:
                    other = ", ".join(sorted(indices(atom) - {i}))
                    raise Refused(f"this reads token {other} outside a sum, mean or weighting over it")
            slot = self.slot_for(stream, scalars, (vector,) if vector else ())
            out[slot] = out.get(slot, Fraction(0)) + c
        return {slot: c for slot, c in out.items() if c}

    def score(self, p: Poly, q: str, k: str, *, shift_free: bool, exact: bool) -> NormalScore:
        """The score of query q and key k. Terms of the query alone are dropped when the weighting does not see them
        (`shift_free`). `exact` scores decide, so differences are kept only if their coefficients are floats exactly."""
        if p.width:
            raise Refused("a score must be a number, not a vector")
        if exact and not all(is_sum_of_floats(c) for c in p.terms.values()):
            raise Refused("float64 cannot hold a factor of this decision exactly", RESCALE, code="L302")
        l2s: list[L2Part] = []
        rest = Poly()
        for (scalars, vector), c in p.terms.items():
            part = self._difference(scalars, c, q, k, exact)
            if part:
                l2s.append(part)
            else:
                rest = rest + Poly.term((scalars, vector), c)
        return NormalScore(self._products(expand_distances(rest), q, k, shift_free), tuple(l2s))

    def _difference(self, scalars: Scalars, c: Fraction, q: str, k: str, exact: bool) -> L2Part | None:
        """c * |A - B|^2, perhaps times factors of one side, kept in difference form."""
        kept = [a for a, n in scalars if isinstance(a, Distance) and n == 1]
        others = tuple((a, n) for a, n in scalars if a not in kept)
        sides = frozenset().union(*(indices(a) for a, _ in others)) if others else frozenset()
        plain = all(isinstance(a, Number | Size | Dot) for a, _ in others)
        if len(kept) != 1 or not plain or not (sides <= {q} or sides <= {k}):
            return None
        distance = kept[0]
        left, right = thaw(distance.left), thaw(distance.right)
        if distance.i != q:
            left, right = right, left
        clear = odd_denominator([*left.terms.values(), *right.terms.values()])
        query, key = self.form(left.scale(clear), q), self.form(right.scale(clear), k)
        if exact and not all(is_float(value) for form in (query, key) for value in form.values()):
            return None
        width = max([self.widths[self.stream(q)][s] for s in query] + [self.widths[self.stream(k)][s] for s in key])
        scale: tuple[Literal["query", "key"], str] | None = None
        if others:
            side: Literal["query", "key"] = "key" if k in sides else "query"
            scale = side, self.slot_for(self.stream(k if side == "key" else q), others)
        return L2Part(query, key, width, c / clear**2, scale)

    def _products(self, p: Poly, q: str, k: str, shift_free: bool) -> tuple[DotPart, ...]:
        """Sums of query slot times key slot, grouped so that one side of each block is a plain selector."""
        triples: list[tuple[str, str, Fraction]] = []
        for (scalars, _), c in p.terms.items():
            query, key = self._split(scalars, q, k)
            if shift_free and not key[0] and not key[1]:
                continue
            triples.append((self.slot_for(self.stream(q), *query), self.slot_for(self.stream(k), *key), c))
        wq, wk = self.widths[self.stream(q)], self.widths[self.stream(k)]
        by_query = sum(wq[a] for a in {t[0] for t in triples}) <= sum(wk[b] for b in {t[1] for t in triples})
        groups: dict[str, dict[str, Fraction]] = {}
        for a, b, c in triples:
            base, other = (a, b) if by_query else (b, a)
            group = groups.setdefault(base, {})
            group[other] = group.get(other, Fraction(0)) + c
        one = Fraction(1)
        if by_query:
            return tuple(DotPart({base: one}, other, wq[base]) for base, other in groups.items())
        return tuple(DotPart(other, {base: one}, wk[base]) for base, other in groups.items())

    def _split(
        self, scalars: Scalars, q: str, k: str
    ) -> tuple[tuple[Scalars, tuple[VectorAtom, ...]], tuple[Scalars, tuple[VectorAtom, ...]]]:
        """The factors of a monomial on the query's side and on the key's side."""
        qs: list[tuple[Atom, int]] = []
        ks: list[tuple[Atom, int]] = []
        qv: list[VectorAtom] = []
        kv: list[VectorAtom] = []
        for atom, power in scalars:
            on = indices(atom)
            if isinstance(atom, Dot) and len(on) == 2:
                if on != {q, k}:
                    raise Refused("a score relates exactly two tokens")
                if power < 0:
                    raise Refused("dividing by an expression of two tokens has no bilinear form")
                mine, theirs = (atom.left, atom.right) if indices(atom.left) == {q} else (atom.right, atom.left)
                qv += [mine] * power
                kv += [theirs] * power
            elif on <= {q}:
                qs.append((atom, power))
            elif on == {k}:
                ks.append((atom, power))
            else:
                raise Refused("a score relates exactly two tokens")
        return (tuple(qs), tuple(qv)), (tuple(ks), tuple(kv))
