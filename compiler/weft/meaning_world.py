"""What expressions are evaluated in: a checked spec, the sizes of this run, and the fields as stored before a step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from weft.errors import Diagnostic, WeftError
from weft.meaning_tables import Floats
from weft.source import Source, Span
from weft.syntax import Different, Node, Position, Reduce, Ref, Weigh, children
from weft.types import Checked


class EvaluationError(WeftError):
    """A spec that has no value on these data: undefined, too large for float64, or without a candidate."""

    def __init__(self, source: Source, span: Span, message: str, label: str = "", notes: tuple[str, ...] = ()) -> None:
        self.diagnostic = Diagnostic("R400", span, message, label, notes)
        super().__init__(self.diagnostic.show(source))


@dataclass(frozen=True, slots=True)
class Constant:
    """A parameter: exactly, and as the nearest float64 with its distance from the exact value."""

    exact: Fraction
    value: float
    error: float

    @classmethod
    def of(cls, exact: Fraction) -> Constant:
        value = float(exact)
        # the distance is rounded up: it bounds
        return cls(exact, value, float(np.nextafter(abs(float(exact - Fraction(value))), np.inf)) if exact != value else 0.0)


@dataclass(frozen=True, slots=True)
class World:
    """Everything a name in an expression can mean during one step."""

    checked: Checked
    sizes: Mapping[str, int]  # token set -> number of tokens
    dims: Mapping[str, int]
    params: Mapping[str, Constant]
    fields: Mapping[str, Floats]  # numbers (n,), vectors (n, d), pair fields (n, k)
    noise: Mapping[str, Floats] = field(default_factory=dict)  # random fields of this layer

    def size(self, index: str) -> int:
        """The number of tokens an index variable runs over."""
        return self.sizes[self.checked.index[index]]

    def number(self, name: str) -> Constant:
        """The value of a name without indices: a parameter or a dimension."""
        if name in self.params:
            return self.params[name]
        return Constant.of(Fraction(self.dims[name]))

    def array(self, name: str) -> Floats:
        """A field as stored; a random field as drawn for this layer."""
        return self.noise[name] if name in self.noise else self.fields[name]

    def error(self, span: Span, message: str, label: str = "", *notes: str) -> EvaluationError:
        return EvaluationError(self.checked.spec.source, span, message, label, notes)


def free(node: Node) -> frozenset[str]:
    """The index variables an expression depends on."""
    match node:
        case Ref(indices=indices):
            return frozenset(indices)
        case Position(index=index):
            return frozenset((index,))
        case Different(left=left, right=right):
            return frozenset((left, right))
    below = frozenset[str]().union(*(free(child) for child in children(node)))
    match node:
        case Reduce(index=index):
            return below - {index}
        case Weigh(index=index):
            return below | {index}
    return below


def tokens_named(checked: Checked, env: Mapping[str, int]) -> str:
    """`points 3, centers 1`: tokens as messages name them, counted from one."""
    return ", ".join(f"{checked.index[index]} {token + 1}" for index, token in env.items()) or "no token"
