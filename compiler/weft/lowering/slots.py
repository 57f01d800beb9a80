"""Slots: where the numbers of a program live, and the derived slots that products and functions need.

A derived slot is known by what it computes, with exact coefficients, hence shared; its name is for people (six digits
of a coefficient, and `#2` behind it where another slot is called the same). One that reads only fields and constants is
persistent (level 0): it is kept up to date like a view. One that reads what a head of the current step wrote is local.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from itertools import chain, count

from weft.lowering.algebra import Dot, Name, Number, Poly, Scalars, Size, Vector, VectorAtom, show_atom
from weft.lowering.normal import NAME, ONE, POSITION, Derived, Form, NormalStep, count_slot, show_form
from weft.lowering.styles import Styles
from weft.source import NOWHERE, Span
from weft.types import Checked

WIDEST = 4096  # slots per token a product may take


class Refused(Exception):
    """An expression has no attention form; `notes` say what would."""

    def __init__(self, message: str, *notes: str, code: str = "L301") -> None:
        super().__init__(message)
        self.message, self.notes, self.code = message, notes, code
        self.span: Span | None = None  # filled in by the innermost expression that is known to be guilty


class Slots:
    """The slots of every stream while a program is being lowered."""

    def __init__(self, checked: Checked, dims: Mapping[str, int], params: Mapping[str, float], styles: Styles) -> None:
        self.checked, self.dims, self.styles = checked, dims, styles
        self.index = dict(checked.index)  # grows by indices renamed apart
        self.given = {name: Fraction(value) for name, value in params.items()}
        self.widths: dict[str, dict[str, int]] = {st: {ONE: 1} for st in checked.sets}
        self.levels: dict[tuple[str, str], int] = {}  # 0 unless a head of the current step wrote it
        self.derived: dict[tuple[str, str], Derived] = {}
        self.known: dict[tuple[object, ...], str] = {}  # what a derived slot computes -> the slot
        self.step = NormalStep()
        self.span: Span = NOWHERE  # of the expression being lowered, for messages

    # ---- sets and indices

    def size(self, set_name: str) -> int | None:
        """The number of tokens of a fixed set; None for an open one."""
        size = self.checked.sets[set_name]
        return self.dims[size] if isinstance(size, str) else size

    def dimension(self, width: str | int) -> int:
        return self.dims[width] if isinstance(width, str) else width

    def stream(self, index: str) -> str:
        return self.index[index]

    def tokens(self, index: str) -> int | None:
        return self.size(self.stream(index))

    def in_order(self, ids: Iterable[str]) -> list[str]:
        """Indices in the order in which the spec declares them: nothing depends on how they are called."""
        return sorted(ids, key=list(self.index).index)

    def level(self, stream: str, slots: Iterable[str]) -> int:
        return max((self.levels.get((stream, s), 0) for s in slots), default=0)

    # ---- making slots

    def constant(self, stream: str, slot: str, width: int = 1) -> str:
        self.widths[stream].setdefault(slot, width)
        return slot

    def derive(
        self,
        stream: str,
        slot: str,
        function: str,
        width: int,
        *,
        a: str = "",
        b: str = "",
        form: Form | None = None,
        fallback: Form | None = None,
        flag: str = "",
    ) -> str:
        """The slot that holds this, made when it does not exist yet; `slot` is how it is called if nothing else is."""
        other = None if fallback is None else frozenset(fallback.items())
        what = (stream, function, width, a, b, frozenset((form or {}).items()), other, flag)
        if what not in self.known:
            taken = self.widths[stream]
            name = next(n for n in chain([slot], (f"{slot} #{m}" for m in count(2))) if n not in taken)
            made = Derived(stream, name, function, width, a, b, form or {}, fallback, flag, 0, self.span)
            level = self.level(stream, made.sources)
            made = replace(made, level=level)
            taken[name] = width
            self.levels[stream, name] = level
            if level == 0:
                self.derived[stream, name] = made
            else:
                self.step.local.append(made)
            self.known[what] = name
        return self.known[what]

    def product(self, stream: str, a: str, b: str) -> str:
        """The slot with every product of a coordinate of a with one of b."""
        if ONE in (a, b):
            return b if a == ONE else a
        width = self.widths[stream][a] * self.widths[stream][b]
        if width > WIDEST:
            raise Refused(
                f"this product needs {width} slots per token; the most is {WIDEST}",
                "lower the power, or store an intermediate field of fewer numbers",
            )
        return self.derive(stream, f"{a}*{b}", "outer", width, a=a, b=b)

    def function(self, stream: str, name: str, form: Form) -> str:
        """The slot that holds a function of a linear form."""
        width = max((self.widths[stream][s] for s in form), default=1)
        text = f"({show_form(form)})"
        return self.derive(stream, text if name == "copy" else name + text, name, width, form=form)

    def slot_poly(self, slot: str, i: str, width: int) -> Poly:
        """A slot of token i as a polynomial; width 0 means a number."""
        return Poly.atom(Vector(slot, i, width) if width else Number(slot, i))

    def vector_slot(self, stream: str, v: VectorAtom) -> str:
        if isinstance(v, Name):
            return self.constant(stream, NAME, v.width)
        assert isinstance(v, Vector)
        return v.slot

    def slot_for(self, stream: str, scalars: Scalars, vectors: Iterable[VectorAtom] = ()) -> str:
        """The slot that holds a monomial of one token."""
        current = ONE
        for atom, power in scalars:
            match atom:
                case Dot(left, right):
                    a, b = self.vector_slot(stream, left), self.vector_slot(stream, right)
                    slot = self.derive(stream, show_atom(atom), "dot", 1, a=a, b=b)
                case Size(name):
                    slot = self.constant(stream, count_slot(name))
                case Number():
                    slot = self.constant(stream, POSITION) if atom.slot == POSITION else atom.slot
                case _:
                    raise Refused(
                        "this pair expression has to be summed over one of its tokens, or stored in a pair field"
                    )
            if power < 0:
                slot = self.function(stream, "reciprocal", {slot: Fraction(1)})
            for _ in range(abs(power)):
                current = self.product(stream, current, slot)
        for v in vectors:
            current = self.product(stream, current, self.vector_slot(stream, v))
        return current
