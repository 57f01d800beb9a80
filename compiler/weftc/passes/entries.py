"""Products of vectors coordinate by coordinate, and inner products of such.

a[i] .* b[i]              a slot of the token that holds them
x[i] .* c[j]              kept as two factors until a sum over one of the tokens takes its own
<x[i] .* c[j], r[j]>      <x[i], c[j] .* r[j]>
"""

from __future__ import annotations

from collections.abc import Iterable

from weftc.normal.slots import Map
from weftc.passes.context import Context, NoAttentionForm
from weftc.passes.heads import resolve
from weftc.passes.polynomial import Atom, Dot, Entries, PendingSum, Poly, Vector, VectorAtom, dot_atom, monomial

STORE = "store the product of two of them first, in a step of its own"


def entries_product(cx: Context, left: Poly, right: Poly) -> Poly:
    """left .* right."""
    left, right = resolve(cx, left), resolve(cx, right)
    out = Poly()
    for (s1, v1), c1 in left.frozen:
        for (s2, v2), c2 in right.frozen:
            assert v1 is not None
            assert v2 is not None
            first, *second = _by_token(cx, (v1, v2))
            made = Entries(first, *second) if second else first
            out = out + Poly.term(monomial((*s1, *s2), made), c1 * c2)
    return out


def dots_of_entries(cx: Context, p: Poly) -> Poly:
    """A polynomial with its inner products of such products as plain ones: every token takes its own factors."""

    def swap(a: Atom) -> Poly | None:
        if not isinstance(a, Dot) or not (isinstance(a.left, Entries) or isinstance(a.right, Entries)):
            return None
        factors = _factors(cx, (a.left, a.right))
        found = _by_token(cx, factors)
        if len(found) == 1:  # all are of one token: the last one stays a factor
            found = [*_by_token(cx, factors[:-1]), factors[-1]]
        left, right = found
        return Poly.term(monomial([(dot_atom(left, right), 1)]))

    return p.replace(swap)


def _factors(cx: Context, vectors: Iterable[VectorAtom]) -> list[Vector]:
    out: list[Vector] = []
    for v in vectors:
        if isinstance(v, Entries):
            out += [v.left, v.right]
        elif isinstance(v, PendingSum):
            (atom,) = resolve(cx, Poly.atom(v)).atoms
            assert isinstance(atom, Vector)
            out.append(atom)
        else:
            out.append(v if isinstance(v, Vector) else Vector(cx.vector_slot(v), v.axis))
    return out


def _by_token(cx: Context, vectors: Iterable[VectorAtom]) -> list[Vector]:
    """One factor for every token, in the order of the tokens."""
    found: dict[object, Vector] = {}
    for v in sorted(_factors(cx, vectors), key=lambda v: (v.axis, v.slot.number)):
        known = found.get(v.axis)
        if known is not None:
            v = Vector(cx.derive(v.axis.set, v.width, Map("product", known.slot, v.slot)), v.axis)
        found[v.axis] = v
    if len(found) > 2:
        said = cx.said(v.axis for v in found.values())
        raise NoAttentionForm(f"a product of {len(found)} tokens ({said}); attention relates two", STORE, crowded=True)
    return list(found.values())
