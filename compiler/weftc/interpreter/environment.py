"""What expressions are evaluated in: a checked spec, the sizes of this run, and the fields as stored before a step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from weftc.core.errors import Diagnostic, WeftError
from weftc.core.source import Source, Span
from weftc.core.syntax import (
    Binary,
    Call,
    Different,
    Else,
    Expr,
    Neg,
    Node,
    Position,
    Reduce,
    Ref,
    Symbol,
    Weigh,
    children,
    walk,
)
from weftc.core.types import Checked
from weftc.interpreter.tables import Floats


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
        distance = float(abs(exact - Fraction(value)))
        return cls(exact, value, float(np.nextafter(distance, np.inf)) if exact != value else 0.0)


@dataclass(frozen=True, slots=True)
class World:
    """Everything a name in an expression can mean during one step."""

    checked: Checked
    sizes: Mapping[str, int]  # token set -> number of tokens
    dims: Mapping[str, int]
    params: Mapping[str, Constant]
    fields: Mapping[str, Floats]  # numbers (n,), vectors (n, d), pair fields (n, k)
    noise: Mapping[str, Floats] = field(default_factory=dict)  # random fields of this layer
    logs: Mapping[str, Floats] = field(default_factory=dict)  # logarithms of softmax fields written in this layer
    radii: Mapping[str, Floats] = field(default_factory=dict)  # how far fields may be from what is stored; else 0
    log_radii: Mapping[str, Floats] = field(default_factory=dict)  # the same of `logs`

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


def names_read(checked: Checked, node: Expr) -> set[str]:
    """The fields, parameters and dimensions an expression reads, also through `let`."""
    names = {part.name for part in walk(node) if isinstance(part, Ref)}
    return names.union(*(names_read(checked, checked.lets[n].body) for n in names if n in checked.lets))


def is_vector(checked: Checked, node: Expr) -> bool:
    """Whether an expression is a vector (also one of a single coordinate)."""
    match node:
        case Ref(name=name, indices=indices):
            if name in checked.lets:
                return is_vector(checked, checked.lets[name].body)
            field = checked.fields.get(name)
            return field is not None and len(indices) == 1 and (field.width is not None or field.is_pair)
        case Binary(left=left, right=right) | Else(body=left, fallback=right):
            return is_vector(checked, left) or is_vector(checked, right)
        case Neg(body=body) | Reduce(body=body):
            return is_vector(checked, body)
        case Symbol() | Position(onehot=True):
            return True
        case Call(function=function, body=body):
            return function == "unit" or is_vector(checked, body)
    return False


def footprint(world: World, node: Expr) -> int:
    """The most numbers one table may hold while an expression is evaluated."""
    width = max(
        (array.shape[-1] for name, array in world.fields.items() if world.checked.fields[name].width), default=1
    )
    largest = 1
    for part in walk(node):
        indices = free(part) | ({part.index} if isinstance(part, Reduce | Weigh) else set())
        largest = max(largest, width * int(np.prod([world.size(i) for i in indices], dtype=np.int64)))
        if isinstance(part, Ref) and part.name in world.checked.lets:
            largest = max(largest, footprint(world, world.checked.lets[part.name].body))
    return largest
