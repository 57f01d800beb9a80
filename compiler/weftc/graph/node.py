"""A node of the algorithm graph: an operation, what it reads, and the type of what it yields.

    input random state    a field before the layer; `state` reads what it starts from
    store                 a field after a step that sets it: another node than before the step
    read                  a version of a field at tokens
    const symbol parameter dimension count position
    affine                sum of operands times exact coefficients
    product               times, inner product, square |v|^2, power
    quotient function else
    where                 a condition on pairs of tokens: a member, a comparison, two tokens that differ
    weighting reduce      over one axis; `roles` say what each operand is there for
    output

A node's identity is (op, operands, roles, detail): equal computations are one node. Spans and labels are for people.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal, TypeAlias

from weftc.core.source import Span
from weftc.core.vocabulary import FUNCTIONS

Op: TypeAlias = Literal[
    "input",
    "random",
    "state",
    "store",
    "read",
    "const",
    "symbol",
    "parameter",
    "dimension",
    "count",
    "position",
    "onehot",
    "affine",
    "product",
    "quotient",
    "function",
    "else",
    "where",
    "weighting",
    "reduce",
    "output",
]
VERSIONS = ("input", "random", "state", "store")  # nodes that hold a field


@dataclass(frozen=True, order=True, slots=True)
class Axis:
    """An index variable: the `number`-th one over a set, whatever the text calls it."""

    rank: int  # of its set among the declared ones
    number: int
    set: str = field(compare=False)


@dataclass(frozen=True, slots=True)
class NodeType:
    """The type of a node: which tokens it is a function of, how wide it is, and what is known about its value."""

    axes: tuple[Axis, ...] = ()
    width: str | int | None = None  # None: a number
    positive: bool = False
    nonnegative: bool = False
    defined: bool = True  # False: may lack a value, which only an `else` gives it

    def __str__(self) -> str:
        over = ", ".join(f"{a.set}{'~' * a.number}" for a in self.axes)
        sign = " > 0" if self.positive else " >= 0" if self.nonnegative else ""
        kind = "R" if self.width is None else f"R^{self.width}"
        return kind + (f"[{over}]" if over else "") + sign + ("" if self.defined else "?")


def in_domain(function: str, of: Node) -> bool:
    """Whether a function of a node always has a value."""
    domain = FUNCTIONS[function].domain
    signed = of.shape.positive if domain == "positive" else of.shape.nonnegative
    return domain == "all numbers" or (of.shape.defined and signed)


@dataclass(frozen=True, slots=True)
class FieldAt:
    """Which field a version is of (its number among the fields of the spec), and the step that set it (0: none)."""

    field: int
    step: int = 0


@dataclass(frozen=True, slots=True)
class Weighing:
    """How a weighting turns scores over an axis into weights."""

    kind: str
    axis: Axis
    ties: str | None = None
    percent: bool = False  # the argument is a share
    sharpness: float | None = None  # of a softmax that stands for a choice; its score is multiplied already
    split: bool = False


@dataclass(frozen=True, slots=True)
class Reduction:
    """What is done over an axis: sum, mean, max, min or logsumexp."""

    kind: str
    axis: Axis


@dataclass(frozen=True, slots=True)
class Where:
    """`member`, one of the comparisons, or `different` with its two axes."""

    kind: str
    axes: tuple[Axis, ...] = ()


@dataclass(frozen=True, eq=False, slots=True)
class Node:
    """One operation. `number` is the order in which nodes were made: operands come first."""

    number: int
    op: Op
    operands: tuple[Node, ...]
    roles: tuple[str, ...]
    detail: Hashable
    shape: NodeType
    span: Span
    label: str = ""  # what the text calls it

    def part(self, role: str) -> Node | None:
        """The operand that has a role, if there is one."""
        return next((x for x, r in zip(self.operands, self.roles, strict=True) if r == role), None)

    def parts(self, role: str) -> tuple[Node, ...]:
        """All operands that have a role."""
        return tuple(x for x, r in zip(self.operands, self.roles, strict=True) if r == role)

    @property
    def step(self) -> int:
        """The step that sets a version of a field; 0 before the layer."""
        return self.detail.step if isinstance(self.detail, FieldAt) else 0

    @property
    def value(self) -> Fraction:
        """The number of a constant."""
        assert isinstance(self.detail, Fraction)
        return self.detail

    @property
    def coefficients(self) -> tuple[Fraction, ...]:
        """Of an affine node, one for each operand."""
        assert isinstance(self.detail, tuple)
        return self.detail

    @property
    def kind(self) -> str:
        """The word for it: the function, weighting or reduction, else the operation."""
        match self.detail:
            case Weighing(kind=kind) | Reduction(kind=kind) | Where(kind=kind):
                return kind
            case str() if self.op in ("product", "function"):
                return self.detail
            case ("power", int() as exponent):
                return f"power {exponent}"
        return self.op

    def __repr__(self) -> str:
        return f"%{self.number}"
