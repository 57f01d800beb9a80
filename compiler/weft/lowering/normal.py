"""Attention normal form: every step as heads, token-wise maps and a commit, over named slots and exact coefficients.

    slot <- sum of heads + linear map of the old slots

A `Form` is a linear form over the slots of one stream: slot -> rational coefficient. Nothing here knows columns or
floats; `emit` lays the slots out and writes the matrices.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Literal, TypeAlias

from weft.lowering.algebra import Frozen, Scalars, VectorAtom, show_number, thaw
from weft.source import NOWHERE, Span

Form: TypeAlias = Mapping[str, Fraction]
Forms: TypeAlias = dict[str, Form]

ONE = "1"  # the slot that holds 1; names with signs cannot collide with fields
POSITION = "@"
NAME = "id()"  # one-hot name of a token of a fixed set


def count_slot(set_name: str) -> str:
    """The slot that holds the number of tokens of a set."""
    return f"#{set_name}"


def counted(slot: str, sets: Container[str]) -> str | None:
    """The set whose tokens a slot counts, or None."""
    return slot[1:] if slot.startswith("#") and slot[1:] in sets else None


SHIFT_FREE = frozenset({"argmax", "softmax", "sparsemax", "normmax", "top"})  # unchanged by a constant per query
EXACT = frozenset({"argmax", "top", "normmax"})  # these decide: their scores must not be rounded
NORMALISED = frozenset({"argmax", "softmax", "sparsemax", "normmax", "top", "normalize"})  # weights sum to one


@dataclass(frozen=True, slots=True)
class MaskRule:
    """Eligible where the polynomial is > 0 (`strict`) or >= 0; `other`: where two indices name different tokens.

    `member`: the polynomial is y[i,j] - 1/2 of a onehot field.
    """

    poly: Frozen = ()
    strict: bool = True
    other: tuple[str, str] | None = None
    member: bool = False

    @property
    def indices(self) -> frozenset[str]:
        return frozenset(self.other) if self.other else thaw(self.poly).indices


@dataclass(frozen=True, slots=True)
class Rule:
    """How one query weighs its keys. `self_key`: None, "last" (when nothing else counts), or a score polynomial.

    `sharpness`: of a softmax that stands for an argmax; the score is multiplied by it already.
    """

    kind: str
    score: Frozen
    masks: tuple[MaskRule, ...] = ()
    ties: Literal["first", "split", "within"] = "first"
    epsilon: Fraction = Fraction(0)
    count: int | None = None
    percent: Fraction | None = None
    gamma: Fraction | None = None
    self_key: Literal["last"] | Frozen | None = None
    sharpness: Fraction | None = None

    @property
    def partial(self) -> bool:
        """Whether a query may be left with no weight at all."""
        if self.self_key is not None or self.kind in ("sum", "exp"):
            return False
        if self.kind == "normalize":
            score = thaw(self.score)
            return bool(self.masks) or not (score.is_const and score.constant > 0)
        return bool(self.masks)

    def with_last(self) -> Rule:
        return replace(self, self_key="last")

    @property
    def argument(self) -> str:
        """What stands behind the kind, for printing."""
        if self.percent is not None:
            return f" {show_number(self.percent)}%"
        if self.count is not None:
            return f" {self.count}"
        if self.gamma is not None:
            return f" gamma {show_number(self.gamma)}"
        if self.sharpness is not None:
            return f" for argmax, sharpness {show_number(self.sharpness)}"
        if self.kind == "argmax" and self.ties != "first":
            return f" ties {self.ties}" + (f" {show_number(self.epsilon)}" if self.ties == "within" else "")
        return ""


@dataclass(frozen=True, slots=True)
class KeySum:
    """sum over keys of weight * value, for each query; `own` is the value of the self key.

    The value is the product of `scalars` and the outer product of `vectors`, all of the key token; `empty` is the width
    of a value that is zero for every key (only the self key counts).
    """

    query: str
    key: str
    rule: Rule
    scalars: Scalars = ()
    vectors: tuple[VectorAtom, ...] = ()
    own: Frozen = ()
    empty: int | None = None

    @property
    def width(self) -> int:
        if self.empty is not None:
            return self.empty
        out = 1
        for v in self.vectors:
            out *= v.width
        return out if self.vectors else 0


@dataclass(frozen=True, slots=True)
class DotPart:
    """<query form, key form>, both `width` rows."""

    query: Form
    key: Form
    width: int


@dataclass(frozen=True, slots=True)
class L2Part:
    """coefficient * |query form - key form|^2, times a slot of one side if `scale` names one.

    `beside` are further rows of the two vectors: (query form, key form, width).
    """

    query: Form
    key: Form
    width: int
    coefficient: Fraction
    scale: tuple[Literal["query", "key"], str] | None = None
    beside: tuple[tuple[Form, Form, int], ...] = ()

    @property
    def rows(self) -> tuple[tuple[Form, Form, int], ...]:
        return ((self.query, self.key, self.width), *self.beside)


@dataclass(frozen=True, slots=True)
class NormalScore:
    dots: tuple[DotPart, ...] = ()
    l2s: tuple[L2Part, ...] = ()

    def slots(self) -> Iterator[tuple[Literal["query", "key"], str]]:
        """The slots it reads, with the side they are on."""
        pairs = [(part.query, part.key) for part in self.dots]
        pairs += [(query, key) for part in self.l2s for query, key, _ in part.rows]
        for query, key in pairs:
            yield from (("query", s) for s in query)
            yield from (("key", s) for s in key)
        yield from (part.scale for part in self.l2s if part.scale)

    def __str__(self) -> str:
        parts = [f"<{show_form(p.query)}, {show_form(p.key)}>" for p in self.dots]
        for p in self.l2s:
            factor = {1: "", -1: "-"}.get(p.coefficient, show_number(p.coefficient) + " * ")  # type: ignore[call-overload]
            scaled = f" * {p.scale[0]}.{p.scale[1]}" if p.scale else ""
            left, right = "; ".join(show_form(q) for q, _, _ in p.rows), "; ".join(show_form(k) for _, k, _ in p.rows)
            left, right = (f"[{left}]", f"[{right}]") if p.beside else (left, right)
            parts.append(f"{factor}|{left} - {right}|^2{scaled}")
        return " + ".join(parts).replace("+ -", "- ") or "0"


@dataclass(frozen=True, slots=True)
class NormalMask:
    op: Literal[">", ">=", "other"]
    score: NormalScore = NormalScore()

    def __str__(self) -> str:
        return "not the same token" if self.op == "other" else f"{self.score} {self.op} 0"


@dataclass(slots=True)
class NormalHead:
    """A head under construction: values are added while the equations of its step are lowered."""

    query: str  # streams
    keys: str
    rule: Rule
    score: NormalScore
    masks: tuple[NormalMask, ...]
    self_key: Literal["last"] | Form | None
    level: int
    span: Span
    values: Forms = field(default_factory=dict)  # slot of the query stream -> form over the key stream
    own: Forms = field(default_factory=dict)  # slot of the query stream -> form over the query stream
    number: dict[str, Fraction] = field(default_factory=dict)  # lse, max: slot -> factor

    @property
    def writes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*self.values, *self.own, *self.number]))

    @property
    def reads(self) -> set[tuple[str, str]]:
        """(stream, slot) of everything its scores, masks and values read."""
        sides = {"query": self.query, "key": self.keys}
        out = {(sides[side], s) for score in (self.score, *(m.score for m in self.masks)) for side, s in score.slots()}
        out |= {(self.keys, slot) for form in self.values.values() for slot in form}
        own = [*self.own.values(), *([self.self_key] if isinstance(self.self_key, Mapping) else [])]
        return out | {(self.query, slot) for form in own for slot in form}

    def forget(self, unread: Container[str]) -> None:
        """Leaves out what it writes to slots that nobody reads."""
        self.values = {slot: form for slot, form in self.values.items() if slot not in unread}
        self.own = {slot: form for slot, form in self.own.items() if slot not in unread}
        self.number = {slot: c for slot, c in self.number.items() if slot not in unread}

    def lines(self) -> list[str]:
        """The head as text."""
        out = [f"head {self.query} <- {self.keys}  {self.rule.kind}{self.rule.argument}", f"  score {self.score}"]
        out += [f"  where {m}" for m in self.masks]
        out += [f"  value {slot} += {show_form(f)}" for slot, f in self.values.items() if f]
        out += [f"  value {slot} += {show_number(c)} * {self.rule.kind}" for slot, c in self.number.items()]
        if self.self_key is not None:
            score = "only if nothing else" if self.self_key == "last" else f"score {show_form(self.self_key)}"
            own = "".join(f", {slot} += {show_form(f)}" for slot, f in self.own.items() if f)
            out.append(f"  self  {score}{own}")
        return out


@dataclass(frozen=True, slots=True)
class Derived:
    """A slot computed token-wise from others of the same token.

    outer: all products of a coordinate of `a` with one of `b`      product: coordinate by coordinate
    dot: their inner product      contract: `b` is a table with one row per coordinate of `a`; sum over that axis
    the rest: the function of `form` (reciprocal, log, exp, sqrt, relu, tanh, copy, absolute); unit with `fallback`;
    select: `form` where slot `flag` is 1, `fallback` where it is 0
    """

    stream: str
    slot: str
    function: str
    width: int
    a: str = ""
    b: str = ""
    form: Form = field(default_factory=dict)
    fallback: Form | None = None
    flag: str = ""
    level: int = 0
    span: Span = NOWHERE

    @property
    def sources(self) -> tuple[str, ...]:
        named = (s for s in (self.a, self.b, self.flag) if s)
        return tuple(dict.fromkeys([*named, *self.form, *(self.fallback or {})]))

    def __str__(self) -> str:
        what = f"{self.function}({self.a}, {self.b})" if self.a else f"{self.function}({show_form(self.form)})"
        otherwise = f" else {show_form(self.fallback)}" if self.fallback is not None else ""
        return f"{self.stream}.{self.slot} := {what}{otherwise}"


@dataclass(slots=True)
class NormalStep:
    """Heads and token-wise maps of one step, level by level, and the commit that writes the targets at once."""

    heads: list[NormalHead] = field(default_factory=list)
    local: list[Derived] = field(default_factory=list)  # they read what heads of this step wrote
    commit: dict[str, Forms] = field(default_factory=dict)  # stream -> target slot -> form
    patterns: list[Pattern] = field(default_factory=list)
    equations: list[str] = field(default_factory=list)
    writes: list[tuple[str, str]] = field(default_factory=list)  # (stream, field)

    def drop_unread(self) -> None:
        """Leaves out maps and heads that nothing reads: from the commit and the patterns back, level by level."""
        read = {(stream, s) for stream, forms in self.commit.items() for form in forms.values() for s in form}
        for pattern in self.patterns:
            read |= pattern.head.reads | {(pattern.head.query, slot) for slot in pattern.scale}
        kept: list[Derived] = []
        for level in range(max([h.level for h in self.heads] + [d.level for d in self.local], default=0), 0, -1):
            for d in reversed(self.local):
                if d.level == level and (d.stream, d.slot) in read:
                    kept.append(d)
                    read |= {(d.stream, slot) for slot in d.sources}
            for head in (h for h in self.heads if h.level == level):
                head.forget({slot for slot in head.writes if (head.query, slot) not in read})
                read |= head.reads if head.writes else set()
        self.local = [d for d in self.local if d in kept]
        shown = [pattern.head for pattern in self.patterns]
        self.heads = [h for h in self.heads if h.writes or h in shown]

    def lines(self) -> list[str]:
        out = [f"equation  {e}" for e in self.equations]
        for head in (h for h in self.heads if h.writes):
            out += [
                ("  " if n else "") + line + (f"    (level {head.level})" if not n and head.level > 1 else "")
                for n, line in enumerate(head.lines())
            ]
        out += [f"map   {d}" for d in self.local]
        out += [
            f"set   {st}.{slot} := {show_form(f)}" for st, forms in self.commit.items() for slot, f in forms.items()
        ]
        out += [f"show  {p.name} = weights of {p.head.query} <- {p.head.keys}" for p in self.patterns]
        return out


@dataclass(frozen=True, slots=True)
class Pattern:
    """An output over two open sets: the weights of a head, times a linear form of the query."""

    name: str
    head: NormalHead
    scale: Form


def show_form(form: Form) -> str:
    """A linear form as text."""
    out = []
    for slot, c in form.items():
        out.append(slot if c == 1 else f"-{slot}" if c == -1 else f"{show_number(c)} {slot}")
    return " + ".join(out).replace("+ -", "- ") or "0"
