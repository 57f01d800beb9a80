"""Symbols of a vocabulary: vectors with a 1 at their place.

t[l] = a                  the coordinate of t[l] that stands for a
r[i] = t[i-1] else a      a slot of the token with this vector
"""

from __future__ import annotations

from typing import cast

from weftc.graph.node import Axis, Node
from weftc.normal.slots import Map, just
from weftc.passes.context import Context, slot_poly
from weftc.passes.heads import resolve
from weftc.passes.polynomial import OneHotId, Poly, Scalar, Vector, monomial


def place_of(cx: Context, node: Node) -> tuple[int, int] | None:
    """Where the 1 stands in a vector that is known when the spec compiles, and its width."""
    if node.op == "symbol":
        return cast(tuple[int, int], node.detail)
    if node.op == "onehot" and (axis := cast(Axis, node.detail)) in cx.pinned:
        return cx.pinned[axis], cx.one_hot(axis).width
    return None


def symbol_vector(cx: Context, at: tuple[int, int], on: Axis) -> Poly:
    """The vector of a symbol, on a token."""
    place, width = at
    forms = tuple(just(cx.one(on.set)) if other == place else () for other in range(width))
    return slot_poly(cx.derive(on.set, width, Map("stack", forms=forms)), on, width)


def coordinate_of(cx: Context, p: Poly, at: tuple[int, int]) -> Poly:
    """The coordinate of a vector that stands for a symbol."""
    place, _ = at
    out = Poly()
    for (scalars, vector), c in resolve(cx, p).frozen:
        assert isinstance(vector, Vector | OneHotId)
        picked = Scalar(cx.pick(cx.vector_slot(vector), place), vector.axis)
        out = out + Poly.term(monomial((*scalars, (picked, 1))), c)
    return out
