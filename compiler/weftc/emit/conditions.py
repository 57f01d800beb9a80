"""What has to hold for a program to equal its spec, as the checkpoint states it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

from weftc.normal.slots import MagnitudeCondition, label
from weftc.passes.sharpness import EPS, MANY, lead
from weftc_runtime.format.program import Condition


def conditions(
    bounds: Iterable[MagnitudeCondition],
    sharp: Mapping[tuple[str, int | None], Fraction],
    looks: Mapping[str, tuple[str, ...]],
) -> tuple[Condition, ...]:
    """`sharp`: stream and number of candidates (None: unknown) of choices at finite temperature -> their sharpness;
    `looks`: streams that are erased by self-attention -> the slots by which their tokens differ."""
    return (
        *(_bounded(b) for b in bounds),
        *(_margin(stream, MANY if size is None else size, float(g)) for (stream, size), g in sharp.items()),
        *(_distinct(stream, slots) for stream, slots in looks.items()),
    )


def _bounded(b: MagnitudeCondition) -> Condition:
    stream, slots = b.slots[0].stream, tuple(label(s) for s in b.slots)
    text = f"no number in {', '.join(slots)} of {stream} exceeds {b.limit:g} (members=offset)"
    return Condition("bounded", stream, slots, text, b.limit)


def _margin(stream: str, candidates: int, sharpness: float) -> Condition:
    need = lead(candidates) / sharpness
    text = (
        f"the best score of every choice on {stream} leads by {need:.3g} "
        f"(hardmax=softmax, sharpness {sharpness:g}: up to {EPS:g} in its weights)"
    )
    return Condition("margin", stream, (), text, need)


def _distinct(stream: str, slots: tuple[str, ...]) -> Condition:
    text = f"the tokens of {stream} are pairwise distinct in {', '.join(slots)} (erase=attention)"
    return Condition("distinct", stream, slots, text)
