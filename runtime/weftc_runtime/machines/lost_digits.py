"""A program and its state -> how many digits squared distances have lost, where the program multiplies them out.

<a,a> - 2 <a,b> + <b,b> is good to eps times the square of how far a and b are from zero; the distance between them is
good to eps times its own square. What lies between the two is lost, and a run says so. It is measured by the vectors
that a head with soft weights reads squared lengths of: how far they are from zero, beside how far apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import floor, log10

import torch
from torch import Tensor

from weftc_runtime.format.program import FFN, HARD, Attend, Head, Program, Stream

Read = Callable[[str, str], Tensor]  # stream, slot -> [tokens, width]
FEWEST = 4  # digits that are worth a word
SAMPLE = 1 << 12  # tokens of a slot that are looked at


def lost_digits(program: Program, tensors: Mapping[str, Tensor], read: Read) -> tuple[str, ...]:
    """A line for every field that has lost digits on these data."""
    found: dict[str, int] = {}
    if program.rotated:
        return ()
    for field, vectors in _squared(program, tensors):
        rows = [read(*place).detach()[:SAMPLE] for place in vectors]
        if any(part.is_meta for part in rows) or len({part.shape[1] for part in rows}) != 1:
            continue
        lost = _digits(torch.cat(rows))
        if lost >= FEWEST:
            found[field] = max(lost, found.get(field, 0))
    how = "distances are multiplied out far from what they are centred on; --scores l2 keeps them"
    return tuple(f"precision: {field} has lost {lost} digits on this input ({how})" for field, lost in found.items())


def _digits(vectors: Tensor) -> int:
    """How many digits squares of these vectors have more than squares of their differences need."""
    middle = vectors.median(0).values
    away = vectors.abs().amax(1).median()
    apart = (vectors - middle).abs().amax(1)
    typical = apart[apart > 0].median() if bool((apart > 0).any()) else torch.zeros_like(away)
    if not bool(typical > 0) or not bool(torch.isfinite(away)):
        return 0
    return floor(2 * log10(max(1.0, float(away / typical))))


def _squared(program: Program, tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """The fields that heads with soft weights write, with the vectors whose squared lengths they read."""
    squares = {
        (stream.name, slot): (stream.name, source)
        for stream in program.streams
        for ffn in stream.derived
        for slot, source in _square(stream, ffn, tensors)
    }
    streams = {stream.name: stream for stream in program.streams}
    for _, step in program.places() if squares else ():
        names = ", ".join(slot for _, slot in step.writes) or "the objective"
        for sublayer in step.sublayers:
            for head in sublayer.heads if isinstance(sublayer, Attend) else ():
                read = sorted({squares[place] for place in _places(head, streams, tensors) if place in squares})
                if read and head.weighting.kind not in HARD:
                    yield names, read


def _square(stream: Stream, ffn: FFN, tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, str]]:
    """The slot that holds the squared length of another one, and that one."""
    if ffn.function != "product" or ffn.b is None or not torch.equal(tensors[ffn.a], tensors[ffn.b]):
        return
    used = (tensors[ffn.a].detach() != 0).any(0)
    read = [slot.name for slot in stream.slots if bool(used[slot.columns].any())]
    if len(read) == 1 and len(ffn.writes) == 1 and stream.slot(ffn.writes[0]).width == 1:
        yield ffn.writes[0], read[0]


def _places(head: Head, streams: Mapping[str, Stream], tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, str]]:
    """The slots that a score reads."""
    for part in head.score.nested():
        for stream, name in ((head.query, part.q), (head.keys, part.k)):
            used = (tensors[name].detach() != 0).any(0)
            yield from ((stream, slot.name) for slot in streams[stream].slots if bool(used[slot.columns].any()))
