"""What a program became: how every slot is held and how every head, carry and feed-forward is carried out. Pure data.

A plan is made from the structure of a program and the numbers in its tensors (`planning`), and is carried out by
`machines`. A changed weight makes it void.

Strategies of heads:

    self       every token attends to itself alone (an erase of the papers): folded into the carry
    nearest    the best key of every query, in blocks, with a certificate; rows in doubt are settled exactly
    best       the score of that key
    segment    every key counts for one query: exact sums over segments of the keys
    equal      keys count where their number equals the query's: by groups of equal numbers
    members    one query after the other, over the keys that a stored index makes eligible
    queries    one query after the other, over all keys
    stream     soft weights in tiles, with running maximum, mass and sum; exponentials of costs that stay are kept
    literal    as the reference does it, over the columns that are read
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from weftc_runtime.format.program import FFN, Attend, Head

TILED = frozenset({"softmax", "exp", "sum", "normalize", "lse", "max"})  # what can be added up in tiles
Strategy = Literal["self", "nearest", "best", "segment", "equal", "members", "queries", "stream", "literal"]
Form = Literal["zero", "uniform", "sparse", "deferred", "dense"]
KeptPart = tuple[int, tuple[int, ...]]  # number of a part of a score, and of the rows of its matrices


@dataclass(frozen=True, slots=True)
class HeadPlan:
    """How one head runs."""

    head: Head
    strategy: Strategy
    why: str
    uniform_query: bool = False  # all queries look the same: it runs for one of them
    score_group: int = 0  # heads of a sub-layer with the same number share their scores
    index: str = ""  # the key slot that says for which query a key counts (segment, members)
    kept: tuple[KeptPart, ...] = ()  # what of the score no layer changes; all else is of the query or the key alone
    cost_group: int = -1  # heads with the same number keep the same exponentials
    transposed: bool = False  # seen from the other side: their queries are its keys


@dataclass(frozen=True, slots=True)
class SlotWrite:
    """What becomes of a slot in an attention sub-layer."""

    stream: str
    slot: str
    carry: Literal["keep", "clear", "mix"]
    heads: tuple[int, ...]  # the heads that add to it, in order
    form: Form  # how it is held afterwards


@dataclass(frozen=True, slots=True)
class AttendPlan:
    """An attention sub-layer."""

    attend: Attend
    heads: tuple[HeadPlan, ...]
    slots: tuple[SlotWrite, ...]  # those that change


@dataclass(frozen=True, slots=True)
class FFNPlan:
    """A feed-forward: how the slot it writes is held, or that nobody reads it before it is made anew."""

    ffn: FFN
    form: Form
    dead: bool = False
    number: str = ""  # sparse: the matrix whose rows are all the same number of a token
    index: str = ""  # sparse: the slot it multiplies


SublayerPlan = AttendPlan | FFNPlan


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan for every step of a program, by path (`layer.0`, ...)."""

    steps: Mapping[str, tuple[SublayerPlan, ...]]
    forms: Mapping[tuple[str, str], Form]  # how every slot is held between steps
    derived: Mapping[tuple[str, str], FFNPlan]  # how derived slots are made when they are read

    def heads(self) -> Iterator[tuple[str, HeadPlan]]:
        """Every head with the path of its step."""
        for path, sublayers in self.steps.items():
            for sublayer in sublayers:
                if isinstance(sublayer, AttendPlan):
                    yield from ((path, head) for head in sublayer.heads)

    @property
    def costs(self) -> int:
        """Of how many scores exponentials are kept."""
        return 1 + max((head.cost_group for _, head in self.heads()), default=-1)

    @property
    def adds_in_tiles(self) -> bool:
        """Whether some sums are rounded as tiles, or rows by native code, are merged; all others are exact."""
        soft = (head for _, head in self.heads() if head.head.weighting.kind in TILED)
        return any(head.strategy in ("stream", "members", "queries") for head in soft)

    def __str__(self) -> str:
        lines = []
        for (stream, slot), form in self.forms.items():
            lines.append(f"slot {stream}.{slot}: {_HELD[form]}")
        costs: dict[int, list[str]] = {}
        for _, head in self.heads():
            if head.kept:
                costs.setdefault(head.cost_group, []).append(head.head.name)
        for path, sublayers in self.steps.items():
            lines.append(f"step {path}")
            for sublayer in sublayers:
                lines.extend(f"  {line}" for line in _shown(sublayer, costs))
        return "\n".join(lines)


_HELD: Mapping[Form, str] = {
    "zero": "zero",
    "uniform": "one row for all tokens",
    "sparse": "an index per token",
    "deferred": "computed in blocks when it is read",
    "dense": "an array",
}


def _shown(sublayer: SublayerPlan, costs: Mapping[int, list[str]]) -> Iterator[str]:
    if isinstance(sublayer, FFNPlan):
        what = f"ffn {sublayer.ffn.stream}.{', '.join(sublayer.ffn.writes)} := {sublayer.ffn.function}"
        yield f"{what}: {'made when it is read' if sublayer.dead else _HELD[sublayer.form]}"
        return
    for write in sublayer.slots:
        if not write.heads and write.carry == "clear":
            yield f"{write.stream}.{write.slot} cleared"
    for plan in sublayer.heads:
        once = ", once for all queries" if plan.uniform_query else ""
        same_scores = [other for other in sublayer.heads if other.score_group == plan.score_group]
        shared = [other.head.name for other in same_scores if other is not plan]
        share = f", scores shared with {', '.join(shared)}" if shared and plan.strategy == "stream" else ""
        same = [name for name in costs.get(plan.cost_group, []) if name != plan.head.name]
        matrix = f", one matrix with {', '.join(same)}" if plan.kept and same else ""
        yield f"head {plan.head.name}: {plan.strategy}{once}{share} ({plan.why}{matrix})"
