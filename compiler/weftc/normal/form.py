"""A whole algorithm in attention normal form: for every step, what it stores as linear forms of slots.

    slot <- sum of heads + linear map of the old slots

Which heads and maps a step needs follows from the slots that its forms read. Nothing here knows columns or floats.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from weftc.core.styles import Styles
from weftc.core.types import Checked
from weftc.graph.graph import Graph
from weftc.normal.slots import (
    Attended,
    Form,
    Leaf,
    Map,
    NormalHead,
    NormalSlot,
    argument,
    label,
    show_form,
    show_score,
    sources,
)


@dataclass(frozen=True, slots=True)
class Pattern:
    """An output over two open sets: the weights of a head, times a linear form of the query."""

    name: str
    head: NormalHead
    scale: Form


@dataclass(frozen=True)
class NormalStep:
    """One step: all forms read the old values, then all targets are written at once."""

    commit: tuple[tuple[NormalSlot, Form], ...]
    equations: tuple[str, ...] = ()
    writes: tuple[NormalSlot, ...] = ()  # the fields among the targets
    patterns: tuple[Pattern, ...] = ()

    @cached_property
    def slots(self) -> tuple[NormalSlot, ...]:
        """Everything that it reads, each slot after what it is computed from."""
        roots = [s for _, terms in self.commit for s, _ in terms]
        for pattern in self.patterns:
            roots += [*pattern.head.reads, *(s for s, _ in pattern.scale)]
        return reached(roots)

    @property
    def local(self) -> tuple[NormalSlot, ...]:
        """What it computes for itself: heads, and maps of what heads of this step brought."""
        return tuple(s for s in self.slots if s.level)


def reached(roots: Iterable[NormalSlot]) -> tuple[NormalSlot, ...]:
    """Slots and all that they are computed from, in the order in which they were thought of."""
    found: dict[NormalSlot, None] = {}
    stack = list(roots)
    while stack:
        slot = stack.pop()
        if slot not in found:
            found[slot] = None
            stack.extend(sources(slot))
    return tuple(sorted(found, key=lambda s: s.number))


@dataclass(frozen=True, slots=True)
class Identity:
    """The slots by which the tokens of a stream find themselves; with dot products also those of their squares."""

    slots: tuple[NormalSlot, ...]
    squares: tuple[NormalSlot, ...] = ()
    one: NormalSlot | None = None

    @property
    def all(self) -> tuple[NormalSlot, ...]:
        return (*self.slots, *self.squares, *(() if self.one is None else (self.one,)))


@dataclass(frozen=True)
class NormalForm:
    """The steps of an algorithm over slots."""

    graph: Graph
    dims: Mapping[str, int]
    styles: Styles
    prelude: tuple[NormalStep, ...]
    layer: tuple[NormalStep, ...]
    readout: tuple[NormalStep, ...]
    fields: tuple[NormalSlot, ...]  # all fields of the spec, read or not
    ones: Mapping[str, NormalSlot]  # the slot of ones of every stream, read or not
    objective: tuple[NormalSlot, bool] | None = None  # the slot that holds it; whether to add it up over the tokens
    identities: Mapping[str, Identity] = field(default_factory=dict)  # of streams that self-attention erases
    nulls: frozenset[str] = frozenset()  # streams with a null token

    @property
    def checked(self) -> Checked:
        return self.graph.checked

    def size(self, stream: str) -> int | None:
        """The number of tokens of a stream; None for an open one."""
        size = self.checked.sets[stream]
        return self.dims[size] if isinstance(size, str) else size

    @property
    def steps(self) -> tuple[NormalStep, ...]:
        return (*self.prelude, *self.layer, *self.readout)

    @cached_property
    def slots(self) -> tuple[NormalSlot, ...]:
        """Every slot of every step: what is read, and what is written."""
        found = {s: None for step in self.steps for s in step.slots}
        found |= {target: None for step in self.steps for target, _ in step.commit}
        own = reached(s for identity in self.identities.values() for s in identity.all)
        return tuple(sorted({**found, **dict.fromkeys(own)}, key=lambda s: s.number))

    @cached_property
    def derived(self) -> tuple[NormalSlot, ...]:
        """Maps of fields and constants, kept up to date whenever those change."""
        return tuple(s for s in self.slots if isinstance(s.content, Map) and s.level == 0)

    def __repr__(self) -> str:
        return f"NormalForm({self.checked.spec.name}: {len(self.slots)} slots; {len(self.layer)} steps)"

    def _repr_html_(self) -> str:
        from weftc.show.displays import normal_html

        return normal_html(self)

    def __str__(self) -> str:
        out = []
        for title, steps in (("start", self.prelude), ("layer", self.layer), ("outputs", self.readout)):
            for n, step in enumerate(steps):
                out.append(f"{title} step {n + 1}" if len(steps) > 1 else title)
                out += ["  " + line for line in _lines(step)]
        if self.derived:
            out.append("kept up to date")
            out += [f"  {s.stream}.{label(s)} := {_map(s, {})}" for s in self.derived]
        return "\n".join(out)


def _lines(step: NormalStep) -> Iterator[str]:
    """A step as text; what heads bring is numbered."""
    brought = [s for s in step.local if isinstance(s.content, Attended)]
    names = {s: f"~{n}" for n, s in enumerate(brought, start=1)}
    yield from (f"equation  {e}" for e in step.equations)
    groups: dict[tuple[int, NormalHead], list[NormalSlot]] = {}
    for s in brought:
        assert isinstance(s.content, Attended)
        groups.setdefault((s.level, s.content.head), []).append(s)
    for (level, head), values in sorted(groups.items(), key=lambda z: z[0][0]):
        first, *rest = _head(head, values, names)
        yield first + (f"    (level {level})" if level > 1 else "")
        yield from ("  " + line for line in rest)
    yield from (f"map   {s.stream}.{label(s, names)} := {_map(s, names)}" for s in step.local if s not in names)
    yield from (f"set   {t.stream}.{label(t)} := {show_form(f, names)}" for t, f in step.commit)
    yield from (f"show  {p.name} = weights of {p.head.query} <- {p.head.keys}" for p in step.patterns)


def _head(head: NormalHead, values: list[NormalSlot], names: Mapping[NormalSlot, str]) -> Iterator[str]:
    yield f"head {head.query} <- {head.keys}  {head.how.kind}{argument(head.how)}"
    yield f"  score {show_score(head.score, names)}"
    for m in head.masks:
        if m.how is not None:
            yield f"  among the best  {m.how.kind}{argument(m.how)} of {show_score(m.score, names)}"
            continue
        yield "  where " + ("not the same token" if m.op == "other" else f"{show_score(m.score, names)} {m.op} 0")
    own = ""
    for s in values:
        assert isinstance(s.content, Attended)
        if s.content.value is None:
            yield f"  value {names[s]} += {head.how.kind}"
        elif s.content.value:
            yield f"  value {names[s]} += {show_form(s.content.value, names)}"
        if s.content.own:
            own += f", {names[s]} += {show_form(s.content.own, names)}"
    if head.self_key is not None:
        score = "only if nothing else" if head.self_key == "last" else f"score {show_form(head.self_key, names)}"
        yield f"  self  {score}{own}"


def _map(slot: NormalSlot, names: Mapping[NormalSlot, str]) -> str:
    made = slot.content
    assert isinstance(made, Map)
    if made.a is not None and made.b is not None:
        return f"{made.function}({label(made.a, names)}, {label(made.b, names)})"
    if made.function in ("pick", "stack"):
        return label(slot, names)
    otherwise = f" else {show_form(made.fallback, names)}" if made.fallback is not None else ""
    return f"{made.function}({show_form(made.form, names)}){otherwise}"


def is_leaf(slot: NormalSlot, *kinds: str) -> bool:
    """Whether a slot is a leaf of one of some kinds."""
    return isinstance(slot.content, Leaf) and slot.content.kind in kinds
