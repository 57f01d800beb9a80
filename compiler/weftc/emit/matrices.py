"""Linear forms over named slots -> float64 matrices over columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from decimal import Context, Decimal, localcontext
from fractions import Fraction

from weftc.core.tied import Tied
from weftc.normal.slots import Form, NormalSlot
from weftc_runtime.format.structure import Array as Array
from weftc_runtime.format.structure import ConstantRun, Structured

Columns = Mapping[NormalSlot, tuple[int, int]]  # slot -> offset, width


def float_parts(form: Form) -> list[Form]:
    """A form as a sum of forms whose coefficients are floats exactly: large, then what rounding left over."""
    parts = [number_parts(c) for _, c in form]
    return [
        tuple((slot, part[n]) for (slot, _), part in zip(form, parts, strict=True) if n < len(part))
        for n in range(max(map(len, parts), default=1))
    ]


def number_parts(exact: Fraction) -> list[Fraction]:
    """A number as a sum of floats; one that follows from parameters is itself."""
    if isinstance(exact, Tied):
        return [exact]
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

    def rows(self, forms: Iterable[tuple[Form, int]]) -> Structured:
        """Stacks forms, each `width` rows; a slot of one column is spread over all rows of a wider form."""
        return Structured.stacked([Structured(0, self.width), *(self.form(terms, width) for terms, width in forms)])

    def form(self, terms: Form, width: int) -> Structured:
        """One form of so many rows."""
        runs = []
        for slot, c in terms:
            offset, own = self.columns[slot]
            assert own in (1, width), f"slot {slot} of width {own} in a form of width {width}"
            runs.append(ConstantRun(0, offset, width, 1, int(own == width), float(c)))
        return Structured(width, self.width, tuple(runs))

    def row(self, terms: Form) -> Structured:
        """One form of width one."""
        return replace(self.form(terms, 1), flat=True)

    def carry(self, sets: Mapping[NormalSlot, Form]) -> Structured:
        """The identity, with other rows for the slots that are set anew: their forms."""
        runs, at = list(into(self, self, sets).runs), 0
        for offset, width in [*sorted(self.columns[slot] for slot in sets), (self.width, 0)]:
            if offset > at:
                runs.append(ConstantRun(at, at, offset - at, 1, 1, 1.0))
            at = offset + width
        return Structured(self.width, self.width, tuple(runs))


def into(rows: Columned, columns: Columned, table: Mapping[NormalSlot, Form]) -> Structured:
    """{slot of the one stream: form over the other} as a matrix."""
    runs: list[ConstantRun] = []
    for slot, terms in table.items():
        offset, width = rows.columns[slot]
        runs += columns.form(terms, width).placed(offset, rows.width).runs
    return Structured(rows.width, columns.width, tuple(runs))


def lifted(rows: Structured) -> Structured:
    """U times a matrix of d rows, U an isometry from R^d into the vectors of R^(d+1) whose coordinates sum to 0.

    Helmert's: column j of U is (1, ..., 1, -j, 0, ...) / sqrt(j (j+1)), with j ones; U^T U = I, 1^T U = 0. LayerNorm
    with gain 1/sqrt(d+1) and eps 0 subtracts a mean that is 0 there and divides by the length, so U^T LayerNorm(U v) =
    v / |v|. Every entry is the float64 nearest to its formula.
    """
    entries: dict[int, dict[int, Decimal]] = {}  # column -> row -> number
    for run in rows.runs:
        for one in run.entries():
            column = entries.setdefault(one.column, {})
            column[one.row] = column.get(one.row, Decimal(0)) + Decimal(one.value)
    runs: list[ConstantRun] = []
    with localcontext(Context(prec=60)):
        for at, column in entries.items():
            above, until = Decimal(0), rows.rows  # what rows up to `until` share: entries further down
            for j in sorted(column, reverse=True):
                value = column[j] / Decimal((j + 1) * (j + 2)).sqrt()
                runs.append(ConstantRun(j + 1, at, 1, 0, 0, float(above - value * (j + 1))))
                if until > j + 1:
                    runs.append(ConstantRun(j + 2, at, until - j - 1, 1, 0, float(above)))
                above, until = above + value, j
            runs.append(ConstantRun(0, at, until + 1, 1, 0, float(above)))
    return Structured(rows.rows + 1, rows.columns, tuple(run for run in runs if run.value))
