"""Which slots the parts of a head read, from the numbers in its matrices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from weftc_runtime.format.program import Head, Score, Stream
from weftc_runtime.format.tensors import NUMBER_HEADS
from weftc_runtime.plan.structure import slots_of


@dataclass(frozen=True, slots=True)
class Reads:
    """Slots by name, for streams by name."""

    streams: Mapping[str, Stream]
    tensors: Mapping[str, Tensor]

    def score(self, score: Score, stream: str, side: str) -> set[str]:
        """What a score reads of one side."""
        found: set[str] = set()
        for part in score.nested():
            names = [part.q if side == "query" else part.k]
            if part.scale is not None and part.scale[0] == side:
                names.append(part.scale[1])
            for name in names:
                found.update(slots_of(self.tensors[name], self.streams[stream]))
        return found

    def query(self, head: Head) -> set[str]:
        """What a head reads of its queries to score them, its own key included."""
        scores = [head.score, *(mask.score for mask in head.masks)]
        found = set().union(*(self.score(score, head.query, "query") for score in scores))
        if head.self_key is not None and head.self_key.row is not None:
            found.update(slots_of(self.tensors[head.self_key.row], self.streams[head.query]))
        return found

    def keys(self, head: Head) -> set[str]:
        """What it reads of its keys to score them."""
        scores = [head.score, *(mask.score for mask in head.masks)]
        return set().union(*(self.score(score, head.keys, "key") for score in scores))

    def values(self, head: Head) -> set[str]:
        """What it reads of its keys to make values."""
        if not head.value or head.weighting.kind in NUMBER_HEADS:
            return set()
        return set(slots_of(self.tensors[head.value], self.streams[head.keys]))

    def own(self, head: Head) -> set[str]:
        """What a query without an eligible key is given from."""
        if head.self_key is None or not head.self_key.value:
            return set()
        return set(slots_of(self.tensors[head.self_key.value], self.streams[head.query]))

    def fingerprint(self, score: Score) -> tuple[object, ...]:
        """Equal for scores that compute the same, whatever their tensors are called."""
        found: list[object] = []
        for part in score.nested():
            found.append(tuple((factor.function, len(factor.score.parts)) for factor in part.factors))
            names = [part.q, part.k, part.coefficient, part.scale[1] if part.scale is not None else None]
            found.append(part.kind)
            found.append(part.scale[0] if part.scale is not None else None)
            found.extend(None if name is None else self.tensors[name].cpu().numpy().tobytes() for name in names)
        return tuple(found)
