"""The transformer program: what a checkpoint says besides its tensors. Pure data, no torch.

    streams     sets of tokens; a token is one residual vector, split into named slots
    embedding   the closed list of instructions that fill the slots before the first layer
    prelude     steps that run once (start of the state)
    layer       the steps of one iteration
    readout     steps after the last layer
    outputs     where the answers are read

A step is a list of sub-layers; every sub-layer reads the residual as the one before left it:

    Attend      z' = E z + sum of heads          E ("carry"): dense, per stream; a stream not named is carried as it is
    FFN         z' = E z + W f(A z, B z)

Heads, for a query token z of `query` and key tokens z' of `keys`:

    score       s = sum of parts   dot: <Q z, K z'>    l2: c * |Q z - K z'|^2    each times `scale` (a row of z or z')
                and times functions of other such scores (`factors`)
    masks       a key is eligible when every mask holds: comparison of a second score with 0, or "not the same token"
    weighting   s -> weights of the eligible keys
    value       V z', summed with the weights; or, for `lse` and `max`, the number itself times the column V
    self key    one more key, the query token itself, with value V0 z: either competing with score `row . z`
                (null key) or used only when nothing else is eligible or all weight is zero (`last`)

All tensors are named; `Program.tensors()` lists names and shapes. Slots have a role: `field` (data of the spec),
`constant` (filled by the embedding), `derived` (a function of fields of the same token, kept up to date by the FFNs in
`Stream.derived`), `scratch` (zero between steps). Decisions are made as exact arithmetic would on the fields: derived
slots are not data and are recomputed exactly when a decision is close.

A stream may have a basis of its own: the residual is then B z, with z the vector that the slots describe and B the
tensor `Program.basis` names. The embedding ends with B, slots are read through the inverse of B, and every matrix is
over the residual as it is: Q B^-1 where Q would be, B E B^-1 where E would be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal, TypeAlias

FORMAT = 1  # version of everything below; a reader refuses newer files

Roles = Literal["field", "constant", "derived", "scratch"]
WeightingKind = Literal[
    "argmax", "softmax", "sparsemax", "entmax15", "normmax", "top", "normalize", "sum", "exp", "lse", "max"
]
Function = Literal[
    "product",
    "reciprocal",
    "log",
    "exp",
    "sqrt",
    "relu",
    "relu2",
    "tanh",
    "copy",
    "unit",
    "layer",
    "abs",
    "sigmoid",
    "softplus",
    "select",
]
ScoreFunction = Literal["reciprocal", "log", "exp", "sqrt", "relu", "tanh", "abs", "sigmoid", "softplus"]
HARD = frozenset({"argmax", "top", "normmax"})  # weightings that decide
SHIFT_FREE = HARD | {"softmax", "sparsemax", "entmax15"}  # unchanged by a constant per query


@dataclass(frozen=True, slots=True)
class Slot:
    """A named part of a residual vector: columns `offset` up to `offset + width`."""

    name: str
    offset: int
    width: int
    role: Roles
    meaning: str = ""  # the expression it holds, in the words of the spec

    @property
    def columns(self) -> slice:
        """Its columns of the residual."""
        return slice(self.offset, self.offset + self.width)


@dataclass(frozen=True, slots=True)
class FFN:
    """Token-wise: z' = carry z + out f(a z, b z).

    product: a z * b z per row
    reciprocal, log, exp, sqrt, relu, tanh, abs, sigmoid, softplus, copy: f(a z) per row
    relu2: relu(a z)^2 per row
    unit: a z / |a z|, and b z where a z is the zero vector (without b: an error): RMSNorm with gain 1/sqrt(d), eps 0
    layer: the same of a z minus the mean of its rows: LayerNorm with gain 1/sqrt(rows), eps 0
    select: rows of a z where the flag (the last row of b z) is 1, the other rows of b z where it is 0
    """

    stream: str
    function: Function
    carry: str
    a: str
    b: str | None
    out: str
    writes: tuple[str, ...]  # slots
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Factor:
    """A function of a score of the same query and key, such as 1 / s: it multiplies a part of another score."""

    function: ScoreFunction
    score: Score


@dataclass(frozen=True, slots=True)
class Part:
    """One summand of a score. `coefficient` (l2 only) is a scalar tensor; `scale` a row of the query or key stream."""

    kind: Literal["dot", "l2"]
    q: str
    k: str
    coefficient: str | None = None
    scale: tuple[Literal["query", "key"], str] | None = None
    factors: tuple[Factor, ...] = ()


@dataclass(frozen=True, slots=True)
class Score:
    """A sum of parts; an empty sum is 0."""

    parts: tuple[Part, ...] = ()

    def nested(self) -> Iterator[Part]:
        """Its parts, and those of the scores that its factors are functions of."""
        for part in self.parts:
            yield part
            for factor in part.factors:
                yield from factor.score.nested()

    @property
    def functions(self) -> tuple[str, ...]:
        """The functions of scores in it, each once."""
        return tuple(dict.fromkeys(factor.function for part in self.nested() for factor in part.factors))


@dataclass(frozen=True, slots=True)
class Weighting:
    """How scores become weights.

    argmax     one-hot, or even over ties: `ties` first | split | within (scores >= best - epsilon count as tied,
               first wins)
    top        uniform on the best: exactly `count` (lower index first among equals), or by `percent`: key k stays when
               100 * #{better} <= percent * (eligible - 1), so ties at the boundary stay
    normmax    uniform on the best m, m smallest with gamma * sum of (score - next best) >= 1
    normalize  s / sum s            sum: s itself           exp: exp(s) itself
    lse, max   the number log sum exp s, or max s

    `sharpness`: of a softmax that stands for an argmax (with its `ties`, first or split) at finite temperature; the
    scores are multiplied by it already.
    """

    kind: WeightingKind
    ties: Literal["first", "split", "within"] = "first"
    epsilon: Fraction = Fraction(0)  # exact, as percent and gamma are: decisions compare in rational arithmetic
    count: int | None = None
    percent: Fraction | None = None
    gamma: Fraction | None = None
    sharpness: Fraction | None = None


@dataclass(frozen=True, slots=True)
class Mask:
    """Eligible where `score op 0` holds; `other`: where query and key are different tokens (score is empty then);
    `best`: where the weighting, which decides, chooses the key by the score, of those that the masks before leave."""

    op: Literal[">", ">=", "<", "<=", "other", "best"]
    score: Score = Score()
    weighting: Weighting | None = None


@dataclass(frozen=True, slots=True)
class SelfKey:
    """The query token as one more key: `row` is its score (a tensor), or None for `last`."""

    value: str
    row: str | None = None


@dataclass(frozen=True, slots=True)
class Head:
    """One attention head; see the module's docstring."""

    name: str
    query: str
    keys: str
    score: Score
    weighting: Weighting
    value: str
    masks: tuple[Mask, ...] = ()
    self_key: SelfKey | None = None
    writes: tuple[str, ...] = ()
    origin: str = ""  # place and text of the equation, for error messages


@dataclass(frozen=True, slots=True)
class Attend:
    """Heads that run side by side; `carry` maps a stream to the matrix that carries its residual."""

    carry: Mapping[str, str]
    heads: tuple[Head, ...] = ()
    writes: tuple[tuple[str, str], ...] = ()  # (stream, slot) set or cleared by this sub-layer


Sublayer: TypeAlias = Attend | FFN


@dataclass(frozen=True, slots=True)
class ProgramStep:
    """Sub-layers that together carry out the equations of one step, then refresh the derived slots."""

    sublayers: tuple[Sublayer, ...]
    writes: tuple[tuple[str, str], ...] = ()  # (stream, field slot) the step sets
    equations: tuple[str, ...] = ()  # what it computes, as written


@dataclass(frozen=True, slots=True)
class Stream:
    """A set of tokens. `size` is None when it is known only at run time. `derived` is in order of dependence.

    `null`: one more token, which only the embedding fills and nothing ever changes; it is a key, the last of them, but
    no query, and no part of any output. All its slots are 0 but those embedded as `null`.
    """

    name: str
    size: int | None
    slots: tuple[Slot, ...]
    derived: tuple[FFN, ...] = ()
    null: bool = False

    @property
    def width(self) -> int:
        return sum(s.width for s in self.slots)

    def slot(self, name: str) -> Slot:
        return next(s for s in self.slots if s.name == name)


@dataclass(frozen=True, slots=True)
class Embed:
    """Fills one slot before the first layer.

    input: the user's array `source`         noise: the random field `source`, anew before every layer
    one: 1     identity: the token's one-hot name     position: 1, 2, ...     count: number of tokens of stream `source`
    null: 0, and on the null token 1, or the number of tokens of stream `source` to the power `power` (-1 or 1)
    """

    kind: Literal["input", "noise", "one", "identity", "position", "count", "null"]
    stream: str
    slot: str
    source: str = ""
    power: int = 0


@dataclass(frozen=True, slots=True)
class Input:
    """An array the user gives: its place, shape and contract. `low`/`high` are (value, strict)."""

    name: str
    stream: str
    slot: str
    kind: Literal["number", "vector", "unit", "onehot", "simplex", "real", "gumbel", "normal", "uniform"]
    low: tuple[float, bool] | None = None
    high: tuple[float, bool] | None = None
    init: tuple[str, str | None] | None = None  # initialiser and the input it reads
    symbols: tuple[str, ...] = ()  # what the columns of a one-hot input are called


@dataclass(frozen=True, slots=True)
class ProgramOutput:
    """Where an answer is read.

    number, vector, pair, onehot   columns of a stream, one row per token
    total     the exact sum of one number over the tokens of the stream
    common    one number that every token of the stream holds
    pattern   weights of `head` (query x key), times the query's number `scale`
    """

    name: str
    kind: Literal["number", "vector", "pair", "onehot", "pattern", "total", "common"]
    stream: str
    slot: str = ""
    head: Head | None = None
    scale: str | None = None  # tensor: a row of the query stream
    again: int | None = None  # step of the layer to evaluate once more on the final state (see `Model.final`)
    symbols: tuple[str, ...] = ()  # what the columns of a one-hot output are called


@dataclass(frozen=True, slots=True)
class TensorUse:
    """One use of a tensor. A dimension is a number, or a free name (equal names are equal numbers) plus a number.

    `rows`, `columns`: the stream whose residual the tensor adds to, and the one whose residual it is applied to.
    """

    where: str
    shape: tuple[int | tuple[str, int], ...]
    rows: str | None = None
    columns: str | None = None


@dataclass(frozen=True, slots=True)
class Condition:
    """Under which a program equals its spec; checked whenever a step begins.

    distinct: no two tokens of the stream agree in all of these slots
    bounded: no number in these slots is larger than `limit` in magnitude
    margin: in every softmax that stands for an argmax, on queries of the stream, the best score leads by `limit`, in
            units of the score before it is sharpened (a smaller lead is reported, not refused)
    """

    kind: Literal["distinct", "bounded", "margin"]
    stream: str
    slots: tuple[str, ...]
    text: str
    limit: float = 0.0


@dataclass(frozen=True, slots=True)
class PairEntries:
    """Inputs with a number for pairs of tokens of two streams, on a stream of entries.

    `row`, `column`: inputs that hold the positions of the two tokens. `complete`: every pair has an entry.
    """

    values: tuple[str, ...]
    row: str
    column: str
    rows: str
    columns: str
    complete: bool


@dataclass(frozen=True, slots=True)
class Program:
    """A transformer, complete but for its numbers."""

    name: str
    streams: tuple[Stream, ...]
    inputs: tuple[Input, ...]
    noises: tuple[Input, ...]
    embedding: tuple[Embed, ...]
    prelude: tuple[ProgramStep, ...]
    layer: tuple[ProgramStep, ...]
    readout: tuple[ProgramStep, ...]
    outputs: tuple[ProgramOutput, ...]
    layers: int = 1  # how many the user asked for; shared weights run any number
    objective: ProgramOutput | None = None
    conditions: tuple[Condition, ...] = ()  # under which the program equals its spec
    options: Mapping[str, str] = field(default_factory=dict)  # lowering styles
    basis: Mapping[str, str] = field(default_factory=dict)  # stream -> tensor B; others hold their slots side by side
    pairs: tuple[PairEntries, ...] = ()

    @property
    def rotated(self) -> bool:
        """Whether some residual is not simply its slots side by side."""
        return bool(self.basis)

    def __repr__(self) -> str:
        from weftc_runtime.format.display import program_line

        return f"Program({program_line(self)})"

    def _repr_html_(self) -> str:
        from weftc_runtime.format.display import program_html

        return program_html(self)

    def stream(self, name: str) -> Stream:
        return next(s for s in self.streams if s.name == name)

    @property
    def unrolled(self) -> bool:
        """Whether every layer has weights of its own; else any number of layers shares one set."""
        return self.options.get("weights") == "unrolled"

    @property
    def own_layers(self) -> int:
        """How many layers have weights of their own."""
        return self.layers if self.unrolled else 1

    @property
    def depth_asked(self) -> bool:
        """Whether the number of layers was asked for when it was compiled."""
        return self.options.get("layers") == "asked"

    @property
    def dot_scores(self) -> bool:
        """Whether scores are dot products throughout (style scores=dot)."""
        return self.options.get("scores") == "dot"

    @property
    def tempered(self) -> bool:
        """Whether choices are softmaxes of finite sharpness (style hardmax=softmax)."""
        return self.options.get("hardmax") == "softmax"

    def steps_of(self, layer: int) -> tuple[ProgramStep, ...]:
        """The steps of one layer; those of layer 0 have the form of all."""
        each = len(self.layer) // max(self.own_layers, 1)
        at = layer * each if self.unrolled else 0
        return self.layer[at : at + each]

    def steps(self) -> Iterator[ProgramStep]:
        yield from self.prelude
        yield from self.layer
        yield from self.readout

    def places(self) -> Iterator[tuple[str, ProgramStep]]:
        """Every step with its path: prelude.0, layer.0, layer.1, readout.0 ..."""
        for part, steps in (("prelude", self.prelude), ("layer", self.layer), ("readout", self.readout)):
            for index, step in enumerate(steps):
                yield f"{part}.{index}", step

    def answers(self) -> Iterator[ProgramOutput]:
        """The outputs, and the objective where there is one."""
        yield from self.outputs
        if self.objective is not None:
            yield self.objective

    def tensors(self) -> Mapping[str, tuple[TensorUse, ...]]:
        """Every tensor the program names, and each use of it with the shape that use needs."""
        from weftc_runtime.format.tensors import tensor_uses

        return tensor_uses(self)

    def verify(self, shapes: Mapping[str, tuple[int, ...]] | None = None) -> None:
        """Raises `ModelError` unless the program is well formed (and fits tensors of these shapes)."""
        from weftc_runtime.format.validate import verify

        verify(self, shapes)
