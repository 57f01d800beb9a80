"""The syntax tree of a spec: one frozen dataclass per construct, each with the span it was read from.

Nothing here is resolved: a `Ref` is a name with indices, whether it means a field, a `let`, a parameter or a dimension
is settled by the checker. Sugar that changes no meaning (`+=`) is undone by the parser; all else stays as written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, TypeAlias

from weftc.core.display import html
from weftc.core.source import Source, Span

# ---- expressions -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Num:
    """A number. Its value is the float64 nearest to what is written."""

    span: Span
    value: float


@dataclass(frozen=True, slots=True)
class Ref:
    """A name with indices: `x[i]`, `y[i,j]`, or a parameter or dimension without any."""

    span: Span
    name: str
    indices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Count:
    """`count(points)`: the number of tokens of a set."""

    span: Span
    set: str


@dataclass(frozen=True, slots=True)
class Position:
    """`index(i)`: the position 1, 2, ... of a token in its set. `onehot(e)`: the vector with a 1 there."""

    span: Span
    index: str
    onehot: bool = False


@dataclass(frozen=True, slots=True)
class Symbol:
    """A symbol of a vocabulary: a vector with a 1 at its place; an empty vocabulary is one that is not known."""

    span: Span
    text: str
    vocabulary: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Neg:
    span: Span
    body: Expr


@dataclass(frozen=True, slots=True)
class Binary:
    """`left op right`; a number or a vector on either side as the operator allows. `.*` and `./` join two vectors
    coordinate by coordinate."""

    span: Span
    op: Literal["+", "-", "*", "/", ".*", "./"]
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Power:
    """`base ^ exponent` of a number, a whole exponent."""

    span: Span
    base: Expr
    exponent: int


@dataclass(frozen=True, slots=True)
class Norm:
    """`|v|`: length of a vector, absolute value of a number."""

    span: Span
    body: Expr


@dataclass(frozen=True, slots=True)
class Square:
    """`|v|^2`: squared length of a vector, square of a number."""

    span: Span
    body: Expr


@dataclass(frozen=True, slots=True)
class Inner:
    """`<a, b>`: inner product of two vectors, product of two numbers."""

    span: Span
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Call:
    """A token-wise function, one of `vocabulary.FUNCTIONS`."""

    span: Span
    function: str
    body: Expr


@dataclass(frozen=True, slots=True)
class Percent:
    """`tau%`: a share, only as an argument of `lowest` and `highest`."""

    span: Span
    body: Expr


@dataclass(frozen=True, slots=True)
class Else:
    """`body else fallback`: the fallback wherever the body is undefined."""

    span: Span
    body: Expr
    fallback: Expr


@dataclass(frozen=True, slots=True)
class Member:
    """A one-hot pair field used as a condition: `where y[i,j]`."""

    span: Span
    field: Ref


@dataclass(frozen=True, slots=True)
class Compare:
    """`left op right` as a condition. The checker spells `=` and `!=` out; nothing after it sees them."""

    span: Span
    op: Literal[">", ">=", "<", "<=", "=", "!="]
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Different:
    """`i != l`: two indices of one set name different tokens."""

    span: Span
    left: str
    right: str


Condition: TypeAlias = Member | Compare | Different


def is_among(condition: Condition) -> bool:
    """Whether a condition says no more than that a token is among the best, so that some token meets it."""
    return isinstance(condition, Compare) and isinstance(condition.left, Weigh) and condition.op == ">"


@dataclass(frozen=True, slots=True)
class Ties:
    """What a choice does with equal scores. `within`: closer than `epsilon` to the best is equal; the first wins."""

    span: Span
    rule: Literal["first", "split", "average", "within"]
    epsilon: Expr | None = None


@dataclass(frozen=True, slots=True)
class Weigh:
    """A weighting: turns scores over `index` into non-negative weights, restricted to candidates that meet `where`.

    `sharpness` is set on a softmax that stands for a choice (`language.tempering`); its score is multiplied already.
    `split`: of a choice that shares equal scores out.
    """

    span: Span
    kind: str
    index: str
    score: Expr
    arguments: tuple[Expr, ...] = ()
    where: tuple[Condition, ...] = ()
    noise: Ref | None = None
    ties: Ties | None = None
    sharpness: float | None = None
    split: bool = False


@dataclass(frozen=True, slots=True)
class Reduce:
    """A reduction of `body` over `index`, with its clauses."""

    span: Span
    kind: str
    index: str
    body: Expr
    weighted: Expr | None = None
    by: Weigh | None = None
    where: tuple[Condition, ...] = ()


Expr: TypeAlias = (
    Num
    | Symbol
    | Ref
    | Count
    | Position
    | Neg
    | Binary
    | Power
    | Norm
    | Square
    | Inner
    | Call
    | Percent
    | Else
    | Weigh
    | Reduce
)


@dataclass(frozen=True, slots=True)
class ReadAt:
    """`x[i-1]`, `x[first]`: a field at positions. The parser spells it out; nothing after it sees one."""

    span: Span
    name: str
    places: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Transpose:
    """`A^T`, `x[i]^T`. The parser spells matrices out; nothing after it sees one."""

    span: Span
    body: Expr


@dataclass(frozen=True, slots=True)
class Rows:
    """`[[1, a], [0, 1]]`: a matrix by its rows. The parser spells it out."""

    span: Span
    rows: tuple[tuple[Expr, ...], ...]


@dataclass(frozen=True, slots=True)
class MatrixCall:
    """`trace(A)`, `diag(v)`. The parser spells it out."""

    span: Span
    function: Literal["trace", "diag"]
    body: Expr


Node: TypeAlias = Expr | Condition | Ties | ReadAt | Transpose | Rows | MatrixCall


def children(node: Node) -> Iterator[Node]:
    """The nodes directly below one."""
    for name in node.__match_args__:  # its fields
        value = getattr(node, name)
        if isinstance(value, tuple):
            yield from (v for v in value if hasattr(v, "span"))
            yield from (v for row in value if isinstance(row, tuple) for v in row)
        elif hasattr(value, "span"):
            yield value


def walk(node: Node) -> Iterator[Node]:
    """A node and everything below it, parents first."""
    stack = [node]
    while stack:
        top = stack.pop()
        yield top
        stack.extend(reversed(tuple(children(top))))


# ---- declarations ----------------------------------------------------------------------------------------------------

Dimension: TypeAlias = str | int


@dataclass(frozen=True, slots=True)
class TokenSet:
    """`i, l in points` or `j in centers : k`; without a size the set is open (its size is known when it runs)."""

    span: Span
    indices: tuple[str, ...]
    name: str
    size: Dimension | None


@dataclass(frozen=True, slots=True)
class ParamBound:
    """A range: each side is (value, strict) or None."""

    span: Span
    low: tuple[float, bool] | None
    high: tuple[float, bool] | None

    def admits(self, value: float) -> bool:
        """Whether a value lies in the range."""
        above = self.low is None or value > self.low[0] or (value == self.low[0] and not self.low[1])
        below = self.high is None or value < self.high[0] or (value == self.high[0] and not self.high[1])
        return above and below

    def __str__(self) -> str:
        if self.low and self.high:
            left, right = "(" if self.low[1] else "[", ")" if self.high[1] else "]"
            return f"in {left}{self.low[0]:g}, {self.high[0]:g}{right}"
        if self.low:
            return f"{'>' if self.low[1] else '>='} {self.low[0]:g}"
        assert self.high is not None
        return f"{'<' if self.high[1] else '<='} {self.high[0]:g}"


@dataclass(frozen=True, slots=True)
class TypeClause:
    """`R`, `R^d`, `unit R^d`, `R^m x d`, `one of {a, b}`, `onehot`, `simplex`, `real`, or a kind of noise.

    `width` is None for one number. The parser spells matrices out as a vector for every row.
    """

    span: Span
    kind: Literal[
        "number", "vector", "unit", "matrix", "symbol", "onehot", "simplex", "real", "gumbel", "normal", "uniform"
    ]
    width: Dimension | None = None
    symbols: tuple[str, ...] = ()  # of `one of {a, b}`
    rows: Dimension | None = None  # of a matrix


@dataclass(frozen=True, slots=True)
class Init:
    """`init spread(x)`: how an input starts when the user gives none."""

    span: Span
    kind: str
    of: str | None


@dataclass(frozen=True, slots=True)
class Field:
    """A declared field: an input (perhaps with `init`), a random field, or state (with its start)."""

    span: Span
    target: Ref
    type: TypeClause
    bound: ParamBound | None = None
    init: Init | None = None
    start: Expr | None = None


@dataclass(frozen=True, slots=True)
class Param:
    """`tau = 90 in [0, 100)`; without a default the user must give a value. `learned`: what training may change, one
    number for all layers or one for each; until then all layers have its value."""

    span: Span
    name: str
    default: Expr | None
    bound: ParamBound | None
    learned: Literal["", "once", "per layer"] = ""


@dataclass(frozen=True, slots=True)
class Let:
    """A named expression, put in wherever it is used."""

    span: Span
    target: Ref
    body: Expr


@dataclass(frozen=True, slots=True)
class Equation:
    """`target = body`. `+=` and `-=` have become `target = target + ...` by now."""

    span: Span
    target: Ref
    body: Expr


@dataclass(frozen=True, slots=True)
class Binding:
    """`x = z` behind `with`: what a name of the other algorithm stands for here."""

    span: Span
    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Use:
    """`use NAME from "FILE" with x = z`: the layer of another algorithm. The parser puts it in."""

    span: Span
    name: str
    file: str | None = None
    given: tuple[Binding, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """Equations that happen at once: all read the values from before the step."""

    span: Span
    equations: tuple[Equation, ...]
    uses: tuple[Use, ...] = ()


@dataclass(frozen=True, slots=True)
class Phase:
    """`phase warm repeat 5` and its steps. The parser joins phases to one layer; nothing after it sees one."""

    span: Span
    name: str
    repeat: int | None
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Output:
    """`centers = c` (a field under another name: `body` is a Ref without indices) or `plan[s,t] = ...`."""

    span: Span
    target: Ref
    body: Expr


Value: TypeAlias = "Fraction | str | tuple[Value, ...]"


@dataclass(frozen=True, slots=True)
class ExampleInput:
    """`x = [-3], [-2]` in an example: a number, or nested rows of numbers, as exact fractions."""

    span: Span
    name: str
    value: Value


@dataclass(frozen=True, slots=True)
class ExampleOutput:
    """`centers = [-5/3]`, or `centers ~ [1.9653]`: equal to one unit of the last digit written (`tolerance`)."""

    span: Span
    name: str
    value: Value
    tolerance: float | None


@dataclass(frozen=True, slots=True)
class Example:
    span: Span
    title: str
    given: tuple[ExampleInput, ...]
    layers: int
    expected: tuple[ExampleOutput, ...]


@dataclass(frozen=True, slots=True)
class PairInput:
    """Inputs with a number for pairs of two open sets. The parser makes them fields of a set of entries.

    `row` and `column` are fields of the entries: the positions of the two tokens. `complete`: every pair has an entry.
    """

    span: Span
    entries: str
    rows: str
    columns: str
    row: str
    column: str
    values: tuple[str, ...]
    complete: bool = False


@dataclass(frozen=True, slots=True)
class Spec:
    """One algorithm as written, its sections in one place each, declarations in the order of the text."""

    source: Source
    span: Span
    name: str
    doc: str
    tokens: tuple[TokenSet, ...] = ()
    inputs: tuple[Field, ...] = ()
    random: tuple[Field, ...] = ()
    state: tuple[Field, ...] = ()
    params: tuple[Param, ...] = ()
    lets: tuple[Let, ...] = ()
    steps: tuple[Step, ...] = ()
    phases: tuple[Phase, ...] = ()
    repeat: int | None = None
    outputs: tuple[Output, ...] = ()
    objective: Expr | None = None
    examples: tuple[Example, ...] = ()
    pairs: tuple[PairInput, ...] = ()

    def line(self) -> str:
        """The spec in one line."""
        inputs = ", ".join(one.target.name for one in self.inputs)
        outputs = ", ".join(one.target.name for one in self.outputs)
        return f"{self.name}: {inputs} -> {outputs}; {len(self.steps)} step{'' if len(self.steps) == 1 else 's'}"

    def __repr__(self) -> str:
        return f"Spec({self.line()})"

    def _repr_html_(self) -> str | None:
        return html("spec", self)
