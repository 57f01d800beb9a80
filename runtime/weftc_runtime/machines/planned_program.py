"""A program with its plan: everything that runs of it have in common, made once and never changed by them."""

from __future__ import annotations

from dataclasses import dataclass, field

from weftc_runtime.exact.weights import Weights
from weftc_runtime.format.program import FFN, Embed, Program
from weftc_runtime.machines.joined import apart
from weftc_runtime.machines.kept_prelude import KeptPrelude, follows_from_sizes
from weftc_runtime.plan.instructions import SublayerPlan
from weftc_runtime.plan.prepared import Prepared
from weftc_runtime.reference.derived import DerivedSlots

Place = tuple[str, str]  # stream and slot


@dataclass(frozen=True, slots=True)
class FilledSlot:
    """A slot that may hold something before the first step: an input, or what the embedding puts there."""

    place: Place
    known: bool  # the plan counts on what it holds
    embed: Embed | None


@dataclass(frozen=True, slots=True)
class PlannedProgram:
    """A program, its plan, and what follows from both."""

    program: Program
    prepared: Prepared
    weights: Weights
    derived: DerivedSlots  # of no run: `fresh` gives those of one
    steps: dict[int, tuple[SublayerPlan, ...]]  # by the identity of the step
    filled: dict[str, tuple[FilledSlot, ...]]  # of every stream
    sources: dict[str, dict[str, tuple[str, ...]]]  # of every stream: what its derived slots are made from
    makers: dict[Place, FFN]  # of derived slots
    apart: str  # why problems of a batch cannot be joined, or nothing
    conditional: bool  # whether what a layer writes must meet a condition
    prelude: KeptPrelude
    needed: dict[frozenset[int], frozenset[int]] = field(default_factory=dict)  # by ids of outputs: read-out steps

    @classmethod
    def of(cls, program: Program, prepared: Prepared) -> PlannedProgram:
        weights, sources, makers, forms = Weights(prepared.tensors), {}, {}, prepared.plan.forms
        embedded = {(embed.stream, embed.slot): embed for embed in program.embedding}
        filled = {}
        for stream in program.streams:
            slots = ((slot.role, (stream.name, slot.name)) for slot in stream.slots)
            filled[stream.name] = tuple(
                FilledSlot(place, forms[place] in ("zero", "uniform"), embedded.get(place))
                for role, place in slots
                if role == "field" or place in embedded
            )
            sources[stream.name] = {
                slot: prepared.ffn(ffn).reads.slots(stream) for ffn in stream.derived for slot in ffn.writes
            }
            makers.update({(stream.name, slot): ffn for ffn in stream.derived for slot in ffn.writes})
        steps = {id(step): prepared.plan.steps[path] for path, step in program.places()}
        written = {place for step in program.layer for place in step.writes}
        checked = {(c.stream, slot) for c in program.conditions if c.kind != "margin" for slot in c.slots}
        found = filled, sources, makers, apart(program, prepared.plan), bool(written & checked)
        prelude = KeptPrelude(follows_from_sizes(program, prepared.tensors))
        return cls(program, prepared, weights, DerivedSlots(program, weights), steps, *found, prelude)
