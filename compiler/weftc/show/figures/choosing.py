"""Which heads of a layer there is something to see of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from weftc.core.errors import InputError
from weftc.core.source import printable
from weftc.core.words import did_you_mean
from weftc_runtime.format import program as ir

NUMBERS = ("lse", "max")  # these give a number, not a pattern


def layer_heads(program: ir.Program) -> Iterator[ir.Head]:
    """Every head of the layer, once: unrolled layers repeat their names."""
    seen = set()
    for step in program.layer:
        for sublayer in step.sublayers:
            for head in sublayer.heads if isinstance(sublayer, ir.Attend) else ():
                if head.name not in seen:
                    seen.add(head.name)
                    yield head


def pattern_heads(program: ir.Program) -> list[ir.Head]:
    """The heads that weigh their keys."""
    return [head for head in layer_heads(program) if head.weighting.kind not in NUMBERS]


def choosing_heads(program: ir.Program) -> list[ir.Head]:
    """The heads that choose by comparing scores, with nothing else to say who may compete."""
    return [head for head in layer_heads(program) if chooses(head)]


def chooses(head: ir.Head) -> bool:
    """Whether all keys compete, and the best ones win: by score, exactly or at a finite temperature."""
    tempered = head.weighting.kind == "softmax" and head.weighting.sharpness is not None
    return (head.weighting.kind in ("argmax", "top") or tempered) and not head.masks and head.self_key is None


def wanted(names: Sequence[str], asked: Sequence[str]) -> list[str]:
    """The names asked for, or all; an unknown one is refused."""
    for name in asked:
        if name not in names:
            hint = did_you_mean(name, names) or f"heads are {', '.join(map(printable, names))}"
            raise InputError(f"there is no head {printable(name)}; {hint}")
    return [name for name in names if not asked or name in asked]
