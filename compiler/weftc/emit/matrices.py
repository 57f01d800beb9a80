"""Linear forms over named slots -> dense float64 matrices over columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Context, Decimal, localcontext
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from weftc.normal.slots import Form, NormalSlot

Array = NDArray[np.float64]
Columns = Mapping[NormalSlot, tuple[int, int]]  # slot -> offset, width


def float_parts(form: Form) -> list[Form]:
    """A form as a sum of forms whose coefficients are floats exactly: large, then what rounding left over."""
    parts = [number_parts(c) for _, c in form]
    return [
        tuple((slot, part[n]) for (slot, _), part in zip(form, parts, strict=True) if n < len(part))
        for n in range(max(map(len, parts), default=1))
    ]


def number_parts(exact: Fraction) -> list[Fraction]:
    """A number as a sum of floats."""
    out: list[Fraction] = []
    while exact:
        out.append(Fraction(float(exact)))
        exact -= out[-1]
        assert len(out) < 64, "coefficients of a decision are finite sums of powers of two"
    return out or [Fraction(0)]


class Columned:
    """Writes matrices over the columns of one stream."""

    def __init__(self, columns: Columns, width: int) -> None:
        self.columns, self.width = columns, width

    def rows(self, forms: Iterable[tuple[Form, int]]) -> Array:
        """Stacks forms, each `width` rows; a slot of one column is spread over all rows of a wider form."""
        forms = list(forms)
        out = np.zeros((sum(w for _, w in forms), self.width))
        at = 0
        for form, width in forms:
            self.add(out[at : at + width], form)
            at += width
        return out

    def add(self, target: Array, form: Form) -> None:
        """Adds a form to rows of a matrix over this stream, where they stand: large matrices are made once."""
        width = len(target)
        for slot, c in form:
            offset, own = self.columns[slot]
            assert own in (1, width), f"slot {slot} of width {own} in a form of width {width}"
            span = np.arange(width)
            target[span, offset + (span if own == width else 0)] += float(c)

    def row(self, form: Form) -> Array:
        """One form of width one."""
        return self.rows([(form, 1)]).reshape(-1)

    def carry(self, sets: Mapping[NormalSlot, Form]) -> Array:
        """The identity, with other rows for the slots that are set anew: their forms."""
        out = np.zeros((self.width, self.width))
        kept = np.ones(self.width, dtype=bool)
        for slot, form in sets.items():
            offset, width = self.columns[slot]
            kept[offset : offset + width] = False
            self.add(out[offset : offset + width], form)
        rows = np.flatnonzero(kept)
        out[rows, rows] = 1.0
        return out

    def write(self, target: Array, slot: NormalSlot, block: Array) -> None:
        """Puts the rows of a slot into a matrix whose rows are this stream's columns."""
        offset, width = self.columns[slot]
        target[offset : offset + width] = block


def into(rows: Columned, columns: Columned, table: Mapping[NormalSlot, Form]) -> Array:
    """{slot of the one stream: form over the other} as a matrix."""
    out = np.zeros((rows.width, columns.width))
    for slot, form in table.items():
        offset, width = rows.columns[slot]
        columns.add(out[offset : offset + width], form)
    return out


def lifted(rows: Array) -> Array:
    """U times a matrix of d rows, U an isometry from R^d into the vectors of R^(d+1) whose coordinates sum to 0.

    Helmert's: column j of U is (1, ..., 1, -j, 0, ...) / sqrt(j (j+1)), with j ones; U^T U = I, 1^T U = 0. LayerNorm
    with gain 1/sqrt(d+1) and eps 0 subtracts a mean that is 0 there and divides by the length, so U^T LayerNorm(U v) =
    v / |v|. Every entry is the float64 nearest to its formula.
    """
    out = np.zeros((len(rows) + 1, rows.shape[1]), dtype=object)
    with localcontext(Context(prec=60)):
        for j, column in zip(*np.nonzero(rows), strict=True):
            value = Decimal(float(rows[j, column])) / Decimal(int(j + 1) * int(j + 2)).sqrt()
            out[: j + 1, column] += value
            out[j + 1, column] -= value * int(j + 1)
        return np.array([[float(entry) for entry in row] for row in out.tolist()]).reshape(out.shape)
