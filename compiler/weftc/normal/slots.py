"""Slots: what every token of a stream holds, each known by what it computes.

    Leaf        a field as it is now, a constant, or what outputs and companions are stored in
    Map         a token-wise function of other slots of the same token
    Attended    what a head brings: sum over keys of weight * value, or the number of an lse or max

A slot of level 0 reads only leaves: it is kept up to date like a view. A slot of level n needs n levels of attention in
its step. Nobody owns a slot: what no root reads is simply not there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal, TypeAlias

from weftc.core.source import NOWHERE, Span
from weftc_runtime.format.program import ScoreFunction, Weighting


@dataclass(frozen=True, eq=False, slots=True)
class NormalSlot:
    """A value of every token of a stream; `number` is the order in which slots were thought of."""

    number: int
    stream: str
    width: int
    content: Content
    level: int
    span: Span = NOWHERE

    @property
    def is_one(self) -> bool:
        return isinstance(self.content, Leaf) and self.content.kind == "one"

    def __repr__(self) -> str:
        return f"<{self.stream}.{label(self)}>"


Form: TypeAlias = tuple[tuple[NormalSlot, Fraction], ...]
"""A linear form over the slots of one stream, ordered by the slots' numbers."""


def form(terms: Mapping[NormalSlot, Fraction] | Iterable[tuple[NormalSlot, Fraction]]) -> Form:
    """A linear form from its terms; equal slots are joined, zeros dropped."""
    out: dict[NormalSlot, Fraction] = {}
    for slot, c in terms.items() if isinstance(terms, Mapping) else terms:
        out[slot] = out.get(slot, Fraction(0)) + c
    return tuple(sorted(((s, c) for s, c in out.items() if c), key=lambda term: term[0].number))


def just(slot: NormalSlot) -> Form:
    """The form that is one slot."""
    return ((slot, Fraction(1)),)


LeafKind = Literal["field", "one", "position", "name", "count", "centre", "log", "output", "null"]


@dataclass(frozen=True, slots=True)
class Leaf:
    """A slot that is not computed from others of its token.

    field: a field of the spec      one, position, name (one-hot, of fixed sets), count (of a set): constants
    centre: a typical value of an input, the same on every token      log: logarithms of a softmax field
    output: what an output shows      null: what the null token holds; `name` is a set, `power` that of its size
    """

    kind: LeafKind
    name: str = ""
    power: int = 0


@dataclass(frozen=True, slots=True)
class Map:
    """A token-wise function.

    outer: all products of a coordinate of `a` with one of `b`      product: coordinate by coordinate
    dot: their inner product      contract: `b` is a table with one row per coordinate of `a`; sum over that axis
    pick: coordinate `place` of `a`      stack: the numbers `forms`, one below the other
    the rest: the function of `form` (reciprocal, log, exp, sqrt, relu, tanh, copy, abs); unit with `fallback`;
    select: `form` where slot `flag` is 1, `fallback` where it is 0
    """

    function: str
    a: NormalSlot | None = None
    b: NormalSlot | None = None
    form: Form = ()
    fallback: Form | None = None
    flag: NormalSlot | None = None
    place: int = 0
    forms: tuple[Form, ...] = ()

    @property
    def sources(self) -> tuple[NormalSlot, ...]:
        named = (s for s in (self.a, self.b, self.flag) if s is not None)
        forms = (self.form, self.fallback or (), *self.forms)
        return tuple(dict.fromkeys([*named, *(s for terms in forms for s, _ in terms)]))


@dataclass(frozen=True, slots=True)
class NormalFactor:
    """A function of another score of the same tokens, which multiplies a part."""

    function: ScoreFunction
    score: NormalScore


@dataclass(frozen=True, slots=True)
class DotPart:
    """<query form, key form>, both `width` rows."""

    query: Form
    key: Form
    width: int
    factors: tuple[NormalFactor, ...] = ()


@dataclass(frozen=True, slots=True)
class L2Part:
    """coefficient * |query form - key form|^2, times a slot of one side if `scale` names one.

    `beside` are further rows of the two vectors: (query form, key form, width).
    """

    query: Form
    key: Form
    width: int
    coefficient: Fraction
    scale: tuple[Literal["query", "key"], NormalSlot] | None = None
    beside: tuple[tuple[Form, Form, int], ...] = ()
    factors: tuple[NormalFactor, ...] = ()

    @property
    def rows(self) -> tuple[tuple[Form, Form, int], ...]:
        return ((self.query, self.key, self.width), *self.beside)


@dataclass(frozen=True, slots=True)
class NormalScore:
    """A sum of inner products and squared distances."""

    dots: tuple[DotPart, ...] = ()
    l2s: tuple[L2Part, ...] = ()

    def slots(self) -> Iterator[NormalSlot]:
        """The slots it reads, of both sides."""
        for dot in self.dots:
            yield from (s for s, _ in (*dot.query, *dot.key))
        for l2 in self.l2s:
            yield from (s for query, key, _ in l2.rows for s, _ in (*query, *key))
            if l2.scale:
                yield l2.scale[1]
        for factor in self.factors:
            yield from factor.score.slots()

    @property
    def factors(self) -> tuple[NormalFactor, ...]:
        """The functions of scores that multiply its parts."""
        return tuple(factor for parts in (self.dots, self.l2s) for part in parts for factor in part.factors)


@dataclass(frozen=True, slots=True)
class NormalMask:
    """Which keys a query may see. `best`: those that a weighting of the keys before chooses by the score."""

    op: Literal[">", ">=", "other", "best"]
    score: NormalScore = NormalScore()
    how: Weighting | None = None


@dataclass(frozen=True, slots=True)
class MagnitudeCondition:
    """A condition of members=offset: no number in these slots is larger than `limit`."""

    slots: tuple[NormalSlot, ...]
    limit: float


@dataclass(frozen=True, slots=True)
class NormalHead:
    """How the tokens of one stream weigh those of another. Several values may ride on one head."""

    query: str  # streams
    keys: str
    how: Weighting
    score: NormalScore
    masks: tuple[NormalMask, ...] = ()
    self_key: Literal["last"] | Form | None = None  # "last": counts only when nothing else does
    bounds: tuple[MagnitudeCondition, ...] = ()
    span: Span = field(default=NOWHERE, compare=False)

    @property
    def reads(self) -> tuple[NormalSlot, ...]:
        """What its scores, masks and self key read."""
        found = [s for score in (self.score, *(m.score for m in self.masks)) for s in score.slots()]
        own = self.self_key if isinstance(self.self_key, tuple) else ()
        return tuple(dict.fromkeys([*found, *(s for s, _ in own)]))


@dataclass(frozen=True, slots=True)
class Attended:
    """What a head brings: its value (None: the number of an lse or max), and the value of the self key."""

    head: NormalHead
    value: Form | None
    own: Form = ()

    @property
    def sources(self) -> tuple[NormalSlot, ...]:
        return tuple(dict.fromkeys([*self.head.reads, *(s for s, _ in (*(self.value or ()), *self.own))]))


Content: TypeAlias = Leaf | Map | Attended


def sources(slot: NormalSlot) -> tuple[NormalSlot, ...]:
    """The slots that a slot is computed from."""
    return () if isinstance(slot.content, Leaf) else slot.content.sources


class SlotTable:
    """Makes slots, each computation once."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, int, Content], NormalSlot] = {}

    def slot(self, stream: str, width: int, content: Content, span: Span = NOWHERE) -> NormalSlot:
        """The slot of a computation: the one there is, or a new one."""
        key = (stream, width, content)
        if key not in self._made:
            reads = () if isinstance(content, Leaf) else content.sources
            level = max((s.level for s in reads), default=0) + isinstance(content, Attended)
            self._made[key] = NormalSlot(len(self._made), stream, width, content, level, span)
        return self._made[key]


# ---- printing --------------------------------------------------------------------------------------------------------

Names: TypeAlias = Mapping[NormalSlot, str]
UNNAMED: Names = {}
CONSTANTS = {"one": "1", "position": "@", "name": "id()"}


def show_number(c: Fraction) -> str:
    """A coefficient as people write it: exact when short, else the float."""
    if c.denominator == 1:
        return str(c.numerator)
    return f"{c.numerator}/{c.denominator}" if c.denominator < 100 and abs(c.numerator) < 1000 else f"{float(c):.6g}"


def show_form(terms: Form, names: Names = UNNAMED) -> str:
    """A linear form as text."""
    out = []
    for slot, c in terms:
        name = label(slot, names)
        out.append(name if c == 1 else f"-{name}" if c == -1 else f"{show_number(c)} {name}")
    return " + ".join(out).replace("+ -", "- ") or "0"


def label(slot: NormalSlot, names: Names = UNNAMED) -> str:
    """What a slot is called: as `names` say, else after what it computes. Names with signs collide with no field."""
    if slot in names:
        return names[slot]
    match slot.content:
        case Leaf("field", name):
            return name
        case Leaf("count", name):
            return f"#{name}"
        case Leaf("centre", name):
            return f"centre({name})"
        case Leaf("log", name):
            return f"log {name}"
        case Leaf("output", name):
            return name if name == OBJECTIVE else f"={name}"
        case Leaf("null", name, power):
            return {0: "null", 1: f"null #{name}", -1: f"null 1/#{name}"}[power]
        case Leaf(kind):
            return CONSTANTS[kind]
        case Map() as made:
            return _map_label(made, slot, names)
    return "~"


OBJECTIVE = "(objective)"


def _map_label(made: Map, slot: NormalSlot, names: Names) -> str:
    if made.a is not None and made.b is not None:
        a, b = label(made.a, names), label(made.b, names)
        if made.function == "dot":
            return f"|{a}|^2" if a == b else f"<{a},{b}>"
        if made.function == "product":
            return f"{a}^2" if a == b else f"{a}.*{b}"
        return f"{a}*{b}" if made.function == "outer" else f"{a}.{b}"
    if made.function == "pick":
        assert made.a is not None
        return f"{label(made.a, names)}[{made.place + 1}]"
    if made.function == "stack":
        return f"[{'; '.join(show_form(terms, names) for terms in made.forms)}]"
    text = show_form(made.form, names)
    if made.function == "select":
        assert made.flag is not None
        return f"select({label(made.flag, names)}, {text}, {show_form(made.fallback or (), names)})"
    if made.function == "unit" and made.fallback == () and slot.width == 1:
        return f"sign({text})"
    if made.function == "unit" and made.fallback is not None:
        return f"unit({text} else {show_form(made.fallback, names)})"
    return f"({text})" if made.function == "copy" else f"{made.function}({text})"


def show_score(score: NormalScore, names: Names = UNNAMED) -> str:
    """A score as text."""
    parts = [f"<{show_form(p.query, names)}, {show_form(p.key, names)}>{_shown(p.factors, names)}" for p in score.dots]
    for p in score.l2s:
        factor = "" if p.coefficient == 1 else "-" if p.coefficient == -1 else show_number(p.coefficient) + " * "
        scaled = f" * {p.scale[0]}.{label(p.scale[1], names)}" if p.scale else ""
        left = "; ".join(show_form(q, names) for q, _, _ in p.rows)
        right = "; ".join(show_form(k, names) for _, k, _ in p.rows)
        left, right = (f"[{left}]", f"[{right}]") if p.beside else (left, right)
        parts.append(f"{factor}|{left} - {right}|^2{scaled}{_shown(p.factors, names)}")
    return " + ".join(parts).replace("+ -", "- ") or "0"


def _shown(factors: tuple[NormalFactor, ...], names: Names) -> str:
    return "".join(f" * {factor.function}({show_score(factor.score, names)})" for factor in factors)


def argument(how: Weighting) -> str:
    """What stands behind the kind of a weighting, for printing."""
    if how.percent is not None:
        return f" {show_number(how.percent)}%"
    if how.count is not None:
        return f" {how.count}"
    if how.gamma is not None:
        return f" gamma {show_number(how.gamma)}"
    if how.sharpness is not None:
        return f" for argmax, sharpness {show_number(how.sharpness)}"
    if how.kind == "argmax" and how.ties != "first":
        return f" ties {how.ties}" + (f" {show_number(how.epsilon)}" if how.ties == "within" else "")
    return ""
