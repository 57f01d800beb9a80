"""What has to hold for a program to equal its spec, as the checkpoint states it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

from weft.lowering.members import Bounded
from weft.temperature import EPS, MANY, lead
from weft_runtime.ir import Condition


def conditions(
    bounded: Iterable[Bounded], sharp: Mapping[tuple[str, int | None], Fraction], looks: Mapping[str, tuple[str, ...]]
) -> tuple[Condition, ...]:
    """`sharp`: stream and number of candidates (None: unknown) of choices at finite temperature -> their sharpness;
    `looks`: streams that are erased by self-attention -> the slots by which their tokens differ."""
    return (
        *(_bounded(b) for b in bounded),
        *(_margin(stream, MANY if size is None else size, float(g)) for (stream, size), g in sharp.items()),
        *(_distinct(stream, slots) for stream, slots in looks.items()),
    )


def _bounded(b: Bounded) -> Condition:
    text = f"no number in {', '.join(b.slots)} of {b.stream} exceeds {b.limit:g} (members=offset)"
    return Condition("bounded", b.stream, b.slots, text, b.limit)


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
