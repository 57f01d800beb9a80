"""Soft heads whose costs stay the same from layer to layer: their exponentials are kept, and a layer is a product."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from weftc_runtime.format.program import Part, Score
from weftc_runtime.kernels.native.library import Library, library
from weftc_runtime.machines.exponentials import Kept, made
from weftc_runtime.machines.head_task import HeadOutput, HeadTask
from weftc_runtime.machines.heads_stream import StreamedHead, Tile
from weftc_runtime.plan.narrow import NarrowHead
from weftc_runtime.plan.slots import SlotValue, UniformSlot
from weftc_runtime.plan.structure import table

MEMORY = 1 << 29  # bytes that one head may keep
NATIVE = 1 << 20  # entries from which compiling the native kernels pays
REACH = 10.0  # how far apart b may move: exp(2 * REACH) is nothing beside the range of float32


def fits(call: HeadTask, dtype: torch.dtype) -> bool:
    """Whether the exponentials of a head may be kept."""
    return call.queries * len(call.keys) * dtype.itemsize <= MEMORY


def kernels_for(call: HeadTask) -> Library | None:
    """The native kernels, where they are worth having."""
    return library(build=call.queries * len(call.keys) >= NATIVE) if call.device.type == "cpu" else None


def kept_head(call: HeadTask, dtype: torch.dtype) -> HeadOutput | None:
    """The head by its kept exponentials; None where they would take too much room."""
    if not fits(call, dtype):
        return None
    own, other = _terms(call)
    kernels = kernels_for(call)
    known = serving(call, other, dtype, kernels)
    query_base, key_base = known.bases(call.plan.transposed)
    moved = other - key_base[: len(other)]
    low, high = (float(end) for end in moved.aminmax())
    middle = (low + high) / 2
    peak = own + middle - query_base[: call.queries]
    return HeadOutput(_summed(call, known, peak, (moved - middle).exp(), kernels))


def serving(call: HeadTask, other: Tensor, dtype: torch.dtype, kernels: Library | None, anew: bool = False) -> Kept:
    """Kept exponentials that serve a head whose keys have these terms now; `anew`: none that is there serves."""
    rest = still(call)
    known, turned = every_kept(rest), call.plan.transposed
    found = None if anew else next((kept for kept in known if _serves(kept, other, turned)), None)
    if found is None:
        known[:] = [kept for kept in known if kept.turned != turned]  # let go before another is made
        found = made(rest, other, dtype, kernels)
        known.insert(0, found)
    elif found.turned != turned and found is known[0]:
        del known[1:]  # it serves both sides
    return found


def _serves(kept: Kept, other: Tensor, turned: bool) -> bool:
    """Whether the terms of the keys have moved by much the same since it was made."""
    base = kept.bases(turned)[1][: len(other)]
    low, high = (float(end) for end in (other - base).aminmax())
    return high - low + kept.room(turned) <= 2 * REACH


def every_kept(rest: HeadTask) -> list[Kept]:
    """What is kept of the costs of a head that is `still`, latest first."""
    sides = rest.sources("query"), rest.sources("key")
    sources: tuple[SlotValue, ...] = (*sides[1], *sides[0]) if rest.plan.transposed else (*sides[0], *sides[1])
    return cast(list[Kept], rest.static(("kept", rest.plan.cost_group), sources, list))


def _summed(call: HeadTask, known: Kept, peak: Tensor, factors: Tensor, kernels: Library | None) -> Tensor:
    """What the head adds, by products with what is kept."""
    stream, narrow = StreamedHead(call), call.narrow
    weights = factors[:, None]
    shared = None  # the value, where all keys have the same
    if not stream.number and narrow.head.value:
        if all(isinstance(call.keys.slot(name), UniformSlot) for name in call.reads("value")):
            shared = narrow.values(call.keys, slice(0, 1))
        else:
            weights = torch.cat([weights, weights * narrow.values(call.keys)], 1)
    sums = known.times(weights, call.plan.transposed, kernels)
    mass = sums[:, 0]
    if stream.number:
        return stream.finish(Tile(peak, mass, None), call.rows)
    total = sums[:, 1:] if shared is None else mass[:, None] * shared
    if stream.kind == "exp":
        return stream.finish(Tile(None, None, total * peak.exp()[:, None]), call.rows)
    return stream.finish(Tile(peak, mass, total), call.rows)


def terms(call: HeadTask) -> Iterator[tuple[Part, list[int]]]:
    """The rows of the parts of the score that are terms of one side alone."""
    kept = dict(call.plan.kept)
    for index, part in enumerate(call.narrow.head.score.parts):
        still_rows = kept.get(index, ())
        rows = [row for row in range(len(call.narrow.query.matrices[part.q])) if row not in still_rows]
        if rows:
            yield part, rows


def _terms(call: HeadTask) -> tuple[Tensor, Tensor]:
    """What the score adds for the query alone and for the key alone."""
    narrow = call.narrow
    own = torch.zeros(call.queries, dtype=torch.float64, device=call.device)
    other = torch.zeros(len(call.keys), dtype=torch.float64, device=call.device)
    z = narrow.query.read(call.query, call.rows), narrow.keys.read(call.keys)
    for part, rows in terms(call):
        query, keys = narrow.weights.product(z[0], part.q), narrow.weights.product(z[1], part.k)
        uniform = _uniform(call, part.q)
        for row in rows:
            if uniform[row]:
                other = other + keys[:, row] * query[0, row]
            else:
                own = own + query[:, row] * keys[0, row]
    return own, other


def _uniform(call: HeadTask, name: str) -> list[bool]:
    """For every row of a matrix over the query whether it reads only what all queries share now."""
    stream, narrow = call.query.stream, call.narrow.query
    shared = tuple(isinstance(call.query.slot(slot.name), UniformSlot) for slot in stream.slots)
    key = ("uniform", id(call.narrow), name, shared)  # a field may be the same for all at first, and not later
    if key not in call.cache:
        same = torch.zeros(stream.width, dtype=torch.bool, device=call.device)
        for slot, alike in zip(stream.slots, shared, strict=True):
            same[slot.columns] = alike
        call.cache[key] = (same[list(narrow.columns)] | (narrow.matrices[name] == 0)).all(1).tolist()
    return cast(list[bool], call.cache[key])


def still(call: HeadTask) -> HeadTask:
    """The head with what of its score no layer changes, and nothing else."""
    key, known = ("still",), call.narrow.kept
    if key not in known:
        head, tensors, parts = call.plan.head, dict(call.tensors), []
        for index, rows in call.plan.kept:
            part = head.score.parts[index]
            names = tuple(f"{name} of {head.name}, what stays" for name in (part.q, part.k))
            for name, whole in zip(names, (part.q, part.k), strict=True):
                tensors[name] = table(call.tensors[whole])[list(rows)]
            parts.append(replace(part, q=names[0], k=names[1]))
        known[key] = NarrowHead.of(replace(head, score=Score(tuple(parts)), self_key=None, value=""), tensors)
    return replace(call, narrow=cast(NarrowHead, known[key]))
