"""What a choice between lowerings costs: attention levels, then heads, then width. Names count nothing."""

from __future__ import annotations

from collections.abc import Iterable

from weftc.normal.slots import Attended, NormalHead, NormalSlot, sources
from weftc.passes.polynomial import Dot, Poly, Scalar, Vector

Cost = tuple[int, int, int]


def cost(slots: Iterable[NormalSlot]) -> Cost:
    """The cost of having some slots: of them and of all that they are computed from."""
    reached: dict[NormalSlot, None] = {}
    stack = list(slots)
    while stack:
        slot = stack.pop()
        if slot not in reached:
            reached[slot] = None
            stack.extend(sources(slot))
    heads: dict[NormalHead, None] = {s.content.head: None for s in reached if isinstance(s.content, Attended)}
    return max((s.level for s in reached), default=0), len(heads), sum(s.width for s in reached)


def cost_of(p: Poly) -> Cost:
    """The cost of the slots that a polynomial reads."""
    found: list[NormalSlot] = []
    for atom in p.atoms:
        for one in (atom.left, atom.right) if isinstance(atom, Dot) else (atom,):
            if isinstance(one, Scalar | Vector):
                found.append(one.slot)
    return cost(found)
