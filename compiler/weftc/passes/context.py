"""What every rule of lowering is given: the spec's tables, the token it works for, and whether a decision or an `else`
stands around it. A `Context` is never changed, only replaced; slots and notes are only ever added to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial, reduce
from typing import TypeAlias

from weftc.core.source import NOWHERE, Span
from weftc.core.styles import Styles
from weftc.core.types import Checked
from weftc.graph.node import Axis, Node
from weftc.normal.slots import Form, Leaf, Map, NormalSlot, SlotTable
from weftc.passes.polynomial import Dot, HeadRule, OneHotId, PendingSum, Poly, Scalar, Scalars, Size, Vector, VectorAtom
from weftc.passes.spaces import Spaces

WIDEST = 4096  # slots per token a product may take
IN_PAIRS = "this pair expression has to be summed over one of its tokens, or stored in a pair field"

Opening: TypeAlias = tuple[HeadRule, Axis, Axis] | Poly
"""What may be undefined: a rule with its query and key, or a number that is 1 where there is a value and else 0."""


class NoAttentionForm(Exception):
    """An expression has no attention form; `notes` say what would."""

    def __init__(self, message: str, *notes: str, code: str = "L301", crowded: bool = False) -> None:
        super().__init__(message)
        self.message, self.notes, self.code = message, notes, code
        self.crowded = crowded  # too many tokens: it may have one if a fixed set is written out
        self.span: Span | None = None  # filled in by the innermost expression that is known to be guilty


@dataclass(frozen=True, slots=True)
class Context:
    """Where a rule of lowering stands."""

    checked: Checked
    dims: Mapping[str, int]
    styles: Styles
    spaces: Spaces
    logged: frozenset[str]  # softmax fields whose logarithms are kept
    order: Mapping[Node, int]  # of nodes, by what they compute
    table: SlotTable
    landed: dict[
        tuple[bool, PendingSum], tuple[NormalSlot, list[Opening]]
    ]  # sums that a head computes, with their notes
    home: Axis  # the token an equation is for: a sum that mentions no other token lands on it
    names: Mapping[Axis, str] = field(default_factory=dict)  # axes as the text calls them
    span: Span = NOWHERE  # of the expression being lowered, for messages
    guarded: bool = False  # an `else` stands around it: 0 is computed where there is no value
    deciding: bool = False  # it stands inside a score or condition that decides
    noted: list[Opening] = field(default_factory=list)  # what may leave the expression without a value
    pinned: Mapping[Axis, int] = field(default_factory=dict)  # axes that stand for one token of a fixed set

    # ---- sets and axes

    def size(self, set_name: str) -> int | None:
        """The number of tokens of a fixed set; None for an open one."""
        size = self.checked.sets[set_name]
        return self.dims[size] if isinstance(size, str) else size

    def dimension(self, width: str | int) -> int:
        return self.dims[width] if isinstance(width, str) else width

    def tokens(self, axis: Axis) -> int | None:
        return self.size(axis.set)

    def said(self, on: Iterable[Axis]) -> str:
        """Axes as the spec calls them."""
        return ", ".join(sorted(self.names.get(axis, axis.set) for axis in on))

    def at(self, span: Span) -> Context:
        return replace(self, span=span)

    def note(self, *openings: Opening) -> None:
        """Notes what may be undefined, once."""
        for opening in openings:
            if not any(o is opening or (isinstance(o, tuple) and o == opening) for o in self.noted):
                self.noted.append(opening)

    def pin(self, axis: Axis, place: int) -> Context:
        """Where an axis stands for one token of its set."""
        return replace(self, pinned={**self.pinned, axis: place})

    # ---- slots

    def leaf(self, stream: str, leaf: Leaf, width: int = 1) -> NormalSlot:
        return self.table.slot(stream, width, leaf)

    def field(self, name: str) -> NormalSlot:
        """The slot of a field of the spec."""
        f = self.checked.fields[name]
        if f.columns is not None:
            width = self.size(f.columns)
            assert width is not None
        else:
            width = 1 if f.width is None else self.dimension(f.width)
        return self.leaf(f.home, Leaf("field", name), width)

    def one(self, stream: str) -> NormalSlot:
        return self.leaf(stream, Leaf("one"))

    def derive(self, stream: str, width: int, content: Map) -> NormalSlot:
        """The slot of a token-wise map."""
        return self.table.slot(stream, width, content, self.span)

    def function(self, stream: str, name: str, form: Form) -> NormalSlot:
        """The slot that holds a function of a linear form."""
        return self.derive(stream, max((s.width for s, _ in form), default=1), Map(name, form=form))

    def product(self, stream: str, a: NormalSlot, b: NormalSlot) -> NormalSlot:
        """The slot with every product of a coordinate of a with one of b."""
        width = a.width * b.width
        if width > WIDEST:
            raise NoAttentionForm(
                f"this product needs {width} slots per token; the most is {WIDEST}",
                "lower the power, or store an intermediate field of fewer numbers",
            )
        return self.derive(stream, width, Map("outer", a, b))

    def vector_slot(self, v: VectorAtom) -> NormalSlot:
        if isinstance(v, OneHotId):
            return self.leaf(v.axis.set, Leaf("name"), v.width)
        if not isinstance(v, Vector):
            raise NoAttentionForm(IN_PAIRS)
        return v.slot

    def slot_for(self, stream: str, scalars: Scalars, vectors: Iterable[VectorAtom] = ()) -> NormalSlot:
        """The slot that holds a monomial of one token."""
        factors: list[NormalSlot] = []
        for atom, power in scalars:
            match atom:
                case Dot(left, right):
                    slot = self.derive(stream, 1, Map("dot", self.vector_slot(left), self.vector_slot(right)))
                case Size(_, name):
                    slot = self.leaf(stream, Leaf("count", name))
                case Scalar():
                    slot = atom.slot
                case _:
                    raise NoAttentionForm(IN_PAIRS)
            if power < 0:
                slot = self.function(stream, "reciprocal", ((slot, Fraction(1)),))
            factors += [slot] * abs(power)
        factors += [self.vector_slot(v) for v in vectors]
        return reduce(partial(self.product, stream), factors) if factors else self.one(stream)

    def pick(self, slot: NormalSlot, place: int) -> NormalSlot:
        """The slot of one coordinate."""
        return self.derive(slot.stream, 1, Map("pick", slot, place=place)) if slot.width > 1 else slot

    def row(self, slot: NormalSlot, i: Axis, j: Axis) -> Poly:
        """<row_i, e_j>: column j of a row stored on token i."""
        if j in self.pinned:
            return Poly.atom(Scalar(self.pick(slot, self.pinned[j]), i))
        return Poly.atom(Vector(slot, i)).dot(Poly.atom(self.one_hot(j)))

    def one_hot(self, axis: Axis) -> OneHotId:
        size = self.tokens(axis)
        assert size is not None
        return OneHotId(axis, size)


def slot_poly(slot: NormalSlot, axis: Axis, width: int) -> Poly:
    """A slot of a token as a polynomial; width 0 means a number."""
    return Poly.atom(Vector(slot, axis) if width else Scalar(slot, axis))
