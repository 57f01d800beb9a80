"""Scores -> what of them no layer changes, and which heads keep the same of it, perhaps seen from the other side.

Costs are told apart by the numbers in the matrices: a sum of products by the rows that are multiplied, a distance by
the rows whose difference is taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from weftc_runtime.format.program import Head, Part, Stream
from weftc_runtime.plan.instructions import Form, KeptPart
from weftc_runtime.plan.structure import slots_of, table


@dataclass(slots=True)
class Staying:
    """What a program keeps from layer to layer of the scores of its soft heads."""

    streams: Mapping[str, Stream]
    tensors: Mapping[str, Tensor]
    forms: Mapping[tuple[str, str], Form]  # as far as they are known
    changing: set[tuple[str, str]]  # slots that layers write
    known: dict[tuple[object, ...], int] = field(default_factory=dict)  # costs by their numbers

    def parts(self, head: Head) -> tuple[KeptPart, ...]:
        """What of the score no layer changes, if all else are terms of one side alone."""
        if head.weighting.kind not in ("softmax", "lse", "exp") or head.masks:
            return ()
        kept: list[KeptPart] = []
        for index, part in enumerate(head.score.parts):
            rows = tuple(range(len(table(self.tensors[part.q]))))
            plain = part.kind == "dot" and part.scale is None
            still = tuple(row for row in rows if not self._apart(part, row, head)) if plain else rows
            if not still:
                continue
            if self._slots(part, still, head) & self.changing:
                return ()
            kept.append((index, still))
        return tuple(kept)

    def _slots(self, part: Part, rows: tuple[int, ...], head: Head) -> set[tuple[str, str]]:
        """The slots that some rows of a part read, and its scale."""
        sides = ((part.q, head.query, "query"), (part.k, head.keys, "key"))
        found: set[tuple[str, str]] = set()
        for name, stream, side in sides:
            matrices = [table(self.tensors[name])[list(rows)]]
            if part.scale is not None and part.scale[0] == side:
                matrices.append(self.tensors[part.scale[1]])
            for matrix in matrices:
                found.update((stream, slot) for slot in slots_of(matrix, self.streams[stream]))
        return found

    def _apart(self, part: Part, row: int, head: Head) -> bool:
        """Whether a product of a part has a factor that all tokens of its side share."""
        for name, stream in ((part.q, head.query), (part.k, head.keys)):
            slots = slots_of(table(self.tensors[name])[row], self.streams[stream])
            if all(self.forms[stream, slot] in ("uniform", "zero") for slot in slots):
                return True
        return False

    def costs(self, head: Head, kept: tuple[KeptPart, ...]) -> tuple[int, bool]:
        """The number of what a head keeps, and whether a head before sees it from the other side."""
        found: dict[bool, list[tuple[object, ...]]] = {False: [], True: []}
        for index, rows in kept:
            part = head.score.parts[index]
            q, k = (table(self.tensors[name])[list(rows)] for name in (part.q, part.k))
            if part.kind == "dot" and part.scale is None:  # a sum of products, each with one factor
                for left, right in zip(q, k, strict=True):
                    found[False].append(("dot", *_factored(left, right)))
                    found[True].append(("dot", *_factored(right, left)))
                continue
            scale = None if part.scale is None else (part.scale[0] == "query", _bytes(self.tensors[part.scale[1]]))
            turned = None if scale is None else (not scale[0], scale[1])
            factor = None if part.coefficient is None else _bytes(self.tensors[part.coefficient])
            found[False].append((part.kind, factor, scale, *_rows(part, q, k)))
            found[True].append((part.kind, factor, turned, *_rows(part, k, q)))
        mine = (head.query, head.keys, *sorted(found[False], key=repr))
        other = (head.keys, head.query, *sorted(found[True], key=repr))
        if mine not in self.known and other in self.known:
            return self.known[other], True
        return self.known.setdefault(mine, len(self.known)), False


def _bytes(tensor: Tensor) -> bytes:
    return tensor.contiguous().cpu().numpy().tobytes()


def _factored(left: Tensor, right: Tensor) -> tuple[bytes, bytes]:
    """Two rows whose values are multiplied, with all factors on the right: equal for equal products."""
    filled = left[left != 0]
    factor = filled[0] if len(filled) else left.new_ones(())
    return _bytes(left / factor + 0.0), _bytes(right * factor + 0.0)


def _rows(part: Part, left: Tensor, right: Tensor) -> list[tuple[bytes, bytes]]:
    """The rows of a part with a scale, or of a distance, whose differences may as well be the other way around."""
    pairs = []
    for one, other in zip(left, right, strict=True):
        filled = torch.cat([one, other])
        filled = filled[filled != 0]
        sign = -1.0 if part.kind == "l2" and len(filled) and float(filled[0]) < 0 else 1.0
        pairs.append((_bytes(one * sign + 0.0), _bytes(other * sign + 0.0)))
    return sorted(pairs)
