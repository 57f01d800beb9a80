"""A step of the normal form -> blocks in order: heads side by side, token-wise maps between them, and the commit.

There are as many levels of attention as the longest chain of heads. A head that brings values to several levels runs
once, as late as all who read them allow. The commit is folded into the last heads when nothing stands between them:

spec      tokens i in points, j in cs : k inputs x[i] : R, c[j] : R layer c[j] = c[j]/2 + (mean[i] x[i])/2 outputs c
before    head cs <- points  ~1 += x         set c := 1/2 c + 1/2 ~1
after     head cs <- points  c += 1/2 x      set c := 1/2 c
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeAlias

from weftc.normal.form import NormalStep
from weftc.normal.slots import Attended, Form, NormalHead, NormalSlot, form, sources


@dataclass(frozen=True, slots=True)
class HeadValue:
    """What a head brings to one place: a form of the key, one of the query for the self key, and how often the number
    of an lse or max."""

    value: Form = ()
    own: Form = ()
    number: Fraction = Fraction(0)


@dataclass(frozen=True, slots=True)
class ScheduledHead:
    """A head and the slots it adds to."""

    head: NormalHead
    brings: Mapping[NormalSlot, HeadValue]


@dataclass(frozen=True, slots=True)
class AttentionBlock:
    """Heads that run side by side, and the slots that are set anew from the old residual beside them."""

    heads: tuple[ScheduledHead, ...]
    sets: Mapping[NormalSlot, Form] = field(default_factory=dict)


Schedule: TypeAlias = tuple[AttentionBlock | NormalSlot, ...]  # a slot is a token-wise map


def schedule(step: NormalStep) -> Schedule:
    """The blocks and maps of a step in order."""
    local = step.local
    depth = max((s.level for s in local), default=0)
    shown = {s for p in step.patterns for s in p.head.reads} | {s for p in step.patterns for s, _ in p.scale}
    folds = not any(s.level == depth and (s in shown or not isinstance(s.content, Attended)) for s in local)
    at = _levels(step, depth, folds, shown)
    out: list[AttentionBlock | NormalSlot] = []
    for level in range(1, depth + 1):
        runs = _runs([s for s in local if at[s] == level and isinstance(s.content, Attended)])
        if level == depth and folds:
            return (*out, _folded(step, runs, [s for s in local if at[s] < level and s not in shown]))
        out.append(AttentionBlock(runs))
        out += [s for s in local if at[s] == level and not isinstance(s.content, Attended)]
    sets = {**dict(step.commit), **{s: () for s in local if s not in shown}}
    return (*out, AttentionBlock((), sets)) if sets else tuple(out)


def _levels(step: NormalStep, depth: int, folds: bool, shown: set[NormalSlot]) -> dict[NormalSlot, int]:
    """When every slot of a step is computed."""
    readers: dict[NormalSlot, list[NormalSlot]] = {}
    for slot in step.local:
        for source in sources(slot):
            readers.setdefault(source, []).append(slot)
    groups: dict[NormalHead, list[NormalSlot]] = {}
    for slot in step.local:
        if isinstance(slot.content, Attended):
            groups.setdefault(slot.content.head, []).append(slot)
    at: dict[NormalSlot, int] = {}

    def latest(slot: NormalSlot) -> int:
        """The last level at which a slot may be computed, given when its readers are: before heads with the commit."""
        out = depth - 1 if folds and not isinstance(slot.content, Attended) else depth
        for reader in readers.get(slot, ()):
            head = isinstance(reader.content, Attended)
            out = min(out, (at.get(reader, reader.level) - 1) if head else latest(reader))
        return out

    for _, values in sorted(groups.items(), key=lambda g: -max(s.level for s in g[1])):
        last = max(s.level for s in values)
        if folds and not any(s in readers or s in shown for s in values):
            last = depth  # only the commit reads them
        together = all(latest(s) >= last for s in values)
        at.update({s: last if together else s.level for s in values})
    for slot in step.local:
        if not isinstance(slot.content, Attended):
            at[slot] = max(at[s] for s in sources(slot) if s.level)
    return at


def _runs(values: list[NormalSlot]) -> tuple[ScheduledHead, ...]:
    """The heads that bring some slots."""
    out: dict[NormalHead, dict[NormalSlot, HeadValue]] = {}
    for slot in values:
        made = slot.content
        assert isinstance(made, Attended)
        number = Fraction(1) if made.value is None else Fraction(0)
        out.setdefault(made.head, {})[slot] = HeadValue(made.value or (), made.own, number)
    return tuple(ScheduledHead(head, brings) for head, brings in out.items())


def _folded(step: NormalStep, runs: tuple[ScheduledHead, ...], left: list[NormalSlot]) -> AttentionBlock:
    """The last heads with the commit in their values; `left` is cleared."""
    here = {s for run in runs for s in run.brings}
    sets: dict[NormalSlot, Form] = {t: tuple((s, c) for s, c in f if s not in here) for t, f in step.commit}
    sets |= dict.fromkeys(left, ())
    folded = []
    for run in runs:
        brings: dict[NormalSlot, HeadValue] = {}
        for target, terms in step.commit:
            parts = [(run.brings[s], c) for s, c in terms if s in run.brings]
            value = form((s, c * v) for part, c in parts for s, v in part.value)
            own = form((s, c * v) for part, c in parts for s, v in part.own)
            number = sum((c * part.number for part, c in parts), Fraction(0))
            if value or own or number:
                brings[target] = HeadValue(value, own, number)
        if brings:
            folded.append(ScheduledHead(run.head, brings))
    return AttentionBlock(tuple(folded), sets)
