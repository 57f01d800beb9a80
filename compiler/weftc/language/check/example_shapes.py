"""The values of an example in the shape of their fields: numbers per token flat, vectors and pair fields as rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from weftc.core import syntax as ast
from weftc.core.source import Span
from weftc.core.types import FieldType
from weftc.core.words import listed, plural, width_words
from weftc.language.check.problems import Problems


@dataclass(slots=True)
class ExampleSizes:
    """How large dimensions and open sets are in one example, and which value said so."""

    sets: Mapping[str, ast.Dimension | None]
    known: dict[str, tuple[int, str]] = field(default_factory=dict)

    def agree(self, name: ast.Dimension, size: int, who: str) -> str:
        """Records the size of a dimension or a set; what contradicts it, in words, or nothing."""
        fixed = self.sets.get(name) if isinstance(name, str) else None
        name = name if fixed is None else fixed
        if isinstance(name, int):
            return "" if name == size else f"{name} expected, as declared"
        first, said = self.known.setdefault(name, (size, who))
        return "" if first == size else f"{first} expected, as in the {said} given"


def shaped(
    value: ast.Value, name: str, span: Span, kind: FieldType, sizes: ExampleSizes, problems: Problems
) -> ast.Value | None:
    """A value in the shape of a field; None after reporting that it has another."""
    if kind.symbols:
        encoded = _encoded(value, name, span, kind.symbols, problems)
        if encoded is None:
            return None
        value = encoded
    rows = value if isinstance(value, tuple) else (value,)
    flat = kind.width is None and not kind.is_pair
    first = rows[0] if rows else None
    if flat and len(rows) == 1 and isinstance(first, tuple) and not any(isinstance(item, tuple) for item in first):
        rows = first  # u = [1, 2, 3] for one number per token
    if not _form_fits(rows, name, span, kind, flat, problems):
        return None
    said = sizes.agree(kind.home, len(rows), name)
    if said:
        message = f"{name} has {plural(len(rows), 'number' if flat else 'row')}, which does not fit"
        problems.add("C316", span, message, said)
        return None
    columns = kind.columns if kind.is_pair else kind.width
    wide = _length(rows[0])
    if not flat and columns is not None and (said := sizes.agree(columns, wide, name)):
        problems.add("C316", span, f"the rows of {name} have {plural(wide, 'number')}, which does not fit", said)
        return None
    return rows


def _encoded(value: ast.Value, name: str, span: Span, symbols: tuple[str, ...], problems: Problems) -> ast.Value | None:
    """Symbols as rows with a single 1."""
    rows = value if isinstance(value, tuple) else (value,)
    if len(rows) == 1 and isinstance(rows[0], tuple):
        rows = rows[0]
    words = [str(row) for row in rows]
    strange = next((word for row, word in zip(rows, words, strict=True) if word not in symbols), None)
    if strange is not None:
        how = f"as in {name} = {', '.join(symbols[:3])}"
        problems.add("C322", span, f"{name} is one of {listed(symbols)}", f"{strange[:40]} is not", how)
        return None
    return tuple(tuple(Fraction(int(word == symbol)) for symbol in symbols) for word in words)


def _length(row: ast.Value) -> int:
    return len(row) if isinstance(row, tuple) else 1


def _form_fits(
    rows: tuple[ast.Value, ...], name: str, span: Span, kind: FieldType, flat: bool, problems: Problems
) -> bool:
    """Whether rows are numbers where numbers belong, and lists of equal length where rows do."""
    if not rows or any(isinstance(row, tuple) is flat for row in rows):
        if kind.columns is None:
            what = f"{width_words(kind.width)} per {kind.home} token"
        else:
            what = f"a pair field: a row per {kind.home} token, a number per {kind.columns} token"
        label = "give one number per token" if flat else "give one row in brackets per token"
        how = f"as in {name} = 1, 2, 3" if flat else f"as in {name} = [1, 2], [3, 4]"
        problems.add("C318", span, f"{name} is {what}", label, how)
        return False
    for row in (row for row in rows if isinstance(row, tuple)):
        if not row or any(isinstance(item, tuple) for item in row):
            label = "this is nested deeper" if row else "a row is empty"
            problems.add("C318", span, f"a row of {name} is a list of numbers", label)
            return False
        if len(row) != _length(rows[0]):
            label = f"one has {plural(_length(rows[0]), 'number')}, another {len(row)}"
            problems.add("C319", span, f"the rows of {name} differ in length", label)
            return False
    return True
