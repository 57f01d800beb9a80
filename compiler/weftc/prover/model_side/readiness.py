"""Derived slots that a step would read before all that they are made of has been set."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from weftc_runtime.format.program import FFN, Program
from weftc_runtime.format.tensor_checks import sources
from weftc_runtime.format.tensors import slots_read


def unready(program: Program, tensors: Mapping[str, npt.NDArray[np.float64]]) -> list[str]:
    """A sentence for every such read in the prelude and in the first layer; later everything has been set."""
    streams = {stream.name: stream for stream in program.streams}
    ready = {(one.stream, one.slot) for one in program.inputs}
    found = []

    def active() -> set[tuple[str, str]]:
        done = set()
        for stream in program.streams:
            known = {slot.name for slot in stream.slots if slot.role in ("constant", "scratch")}
            known |= {slot for name, slot in ready if name == stream.name}
            for ffn in stream.derived:
                if sources(stream, ffn, tensors) <= known:
                    known.update(ffn.writes)
                    done |= {(stream.name, slot) for slot in ffn.writes}
        return done

    def note(path: str, step_number: int) -> None:
        step = (program.prelude if path == "prelude" else program.layer)[step_number]
        fresh: set[tuple[str, str]] = set()
        current = active()
        for sublayer in step.sublayers:
            for name, slot in sorted(slots_read((sublayer,), streams, tensors)):
                derived = streams[name].slot(slot).role == "derived"
                if derived and (name, slot) not in current and (name, slot) not in fresh:
                    found.append(f"{path}.{step_number} reads {slot} of {name} before it is set")
            if isinstance(sublayer, FFN):
                fresh |= {(sublayer.stream, slot) for slot in sublayer.writes}
        ready.update(step.writes)

    for number in range(len(program.prelude)):
        note("prelude", number)
    ready.update((one.stream, one.slot) for one in program.noises)
    for number in range(len(program.layer)):
        note("layer", number)
    return found
