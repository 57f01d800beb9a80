"""What the fields hold: polynomials, per token of a fixed set, or for the token 0 of an open set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from weftc.core.types import Checked, FieldType
from weftc.prover.kernel.polynomials import Poly
from weftc.prover.kernel.products import Products

Rows: TypeAlias = tuple[tuple[Poly, ...], ...]  # tokens (one for an open set) x columns


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """The sizes of fixed sets and the widths of fields."""

    checked: Checked
    dims: Mapping[str, int]

    def size(self, name: str) -> int | None:
        """The number of tokens of a set; None when it is open."""
        size = self.checked.sets[name]
        return self.dims[size] if isinstance(size, str) else size

    def width(self, field: FieldType) -> int:
        """The number of columns of a field."""
        if field.columns is not None:
            size = self.size(field.columns)
            assert size is not None
            return size
        return self.dims[field.width] if isinstance(field.width, str) else field.width or 1

    def symbols(self, algebra: Products, field: FieldType) -> Rows:
        """A field as free symbols."""
        size, width = self.size(field.home), self.width(field)
        if size is None:
            return (tuple(algebra.atom("field", (field.name, column, -1), (0,)) for column in range(width)),)
        return tuple(
            tuple(algebra.atom("field", (field.name, column, token)) for column in range(width))
            for token in range(size)
        )
