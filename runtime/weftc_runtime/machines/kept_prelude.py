"""What the steps before the first layer write, where the sizes of the token sets tell it: kept from run to run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from torch import Tensor

from weftc_runtime.data.results import Tiers
from weftc_runtime.format.program import Program
from weftc_runtime.format.tensors import slots_read
from weftc_runtime.plan.residual import Residual
from weftc_runtime.plan.slots import DenseSlot, IndexSlot, SlotValue, UniformSlot, copied
from weftc_runtime.reference.state import Problem

if TYPE_CHECKING:
    from weftc_runtime.machines.planned import PlannedBackend

MOST = 1 << 12  # numbers of a slot that are kept


def follows_from_sizes(program: Program, weights: Mapping[str, Any]) -> bool:
    """Whether the prelude reads and writes nothing that an input, a start or a random field sets."""
    streams = {stream.name: stream for stream in program.streams}
    given = {(item.stream, item.slot) for item in (*program.inputs, *program.noises)}
    for step in program.prelude:
        read = slots_read(step.sublayers, streams, weights)
        for stream in program.streams:
            for ffn in reversed(stream.derived):
                places = {(stream.name, slot) for slot in ffn.writes}
                if places & read:
                    read = (read - places) | slots_read((ffn,), streams, weights)
        if given & (read | set(step.writes)):
            return False
    return bool(program.prelude)


@dataclass(frozen=True, slots=True)
class _Written:
    """What the prelude of one run wrote."""

    key: tuple[Any, ...]  # the dtype, and the tokens of every stream
    slots: Mapping[str, Mapping[str, SlotValue]]
    tiers: Mapping[str, Tiers]


@dataclass(slots=True)
class KeptPrelude:
    """What the prelude of the last run wrote; nobody else holds its numbers."""

    applies: bool
    _last: _Written | None = None

    def restore(self, engine: PlannedBackend, problem: Problem) -> bool:
        """Writes what the prelude would write, where that is known."""
        last = self._last
        if last is None or not self._serves(engine) or last.key != _key(engine, problem):
            return False
        for stream, slots in last.slots.items():
            changed = {name: copied(held) for name, held in slots.items()}
            residual = cast(Residual, problem.residuals[stream])
            problem.residuals[stream] = cast(Tensor, residual.with_slots(changed, engine.sources[stream]))
        engine.tiers.update({name: replace(tiers) for name, tiers in last.tiers.items()})
        for step in engine.program.prelude:
            engine.derived_slots.ready.update(step.writes)
        return True

    def keep(self, engine: PlannedBackend, problem: Problem) -> None:
        """Keeps what the prelude has written, if it is little."""
        found: dict[str, dict[str, SlotValue]] = {}
        for stream, slot in {place for step in engine.program.prelude for place in step.writes}:
            held = cast(Residual, problem.residuals[stream]).stored.get(slot)
            plain = isinstance(held, DenseSlot | UniformSlot) or (isinstance(held, IndexSlot) and held.one_hot)
            if not self._serves(engine) or held is None or not plain or held.tokens * held.width > MOST:
                return
            found.setdefault(stream, {})[slot] = copied(held)
        tiers = {name: replace(tiers) for name, tiers in engine.tiers.items()}
        self._last = _Written(_key(engine, problem), found, tiers)

    def _serves(self, engine: PlannedBackend) -> bool:
        return self.applies and engine.tap is None and engine.collective.size == 1


def _key(engine: PlannedBackend, problem: Problem) -> tuple[Any, ...]:
    return (engine.dtype, *(len(problem.residuals[stream.name]) for stream in engine.program.streams))
