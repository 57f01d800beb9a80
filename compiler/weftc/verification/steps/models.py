"""A model, watched: one case -> the fields it stored before the first layer and after every step, as arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weftc.core.types import Checked
from weftc.interpreter.noise import draw
from weftc.verification.cases.inputs import Case
from weftc.verification.verdict import SettledRows
from weftc_runtime import Model, WeftRuntimeError
from weftc_runtime.data.results import Fields
from weftc_runtime.format.program import Condition, Program

Array = NDArray[Any]
Arrays = Mapping[str, Array]


class Crashed(Exception):
    """The runtime failed in a way that it does not report itself."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a model stored: fields at the start, then after each step of each layer, and its outputs.

    `stopped` says why it refused the layer behind the last one seen; it is empty when all layers ran. `settled` counts
    the rows that decided, layer by layer.
    """

    start: dict[str, Array]
    layers: tuple[tuple[dict[str, Array], ...], ...]
    outputs: dict[str, Array]
    stopped: str
    settled: tuple[SettledRows, ...] = ()
    elsewhere: int = 0  # rows left undecided before the first layer and after the last
    instead: str = ""  # why another backend ran than was asked for
    last: Fields | None = None  # the fields after the last layer, to be asked for more

    @property
    def end(self) -> dict[str, Array]:
        """The fields after the last layer."""
        return self.layers[-1][-1] if self.layers else self.start


class Watched:
    """A model and the spec whose fields it stores."""

    def __init__(self, checked: Checked, model: Model) -> None:
        self.checked, self.model = checked, model
        self.dtype: Any = np.dtype(str(model.dtype).removeprefix("torch."))
        self.depth = model.program.layers if model.program.unrolled else None  # the only number of layers it runs
        self.ends = tuple(_ends(model.program))

    def is_outside(self, fields: Arrays, errors: Mapping[str, float] | None = None) -> bool:
        """Whether fields break a condition of the model; with `errors`, whether fields that near to them may."""
        for condition in self.model.program.conditions:
            slots = [slot for slot in condition.slots if slot in fields]
            values = [np.asarray(fields[slot], np.float64) + 0.0 for slot in slots]
            if condition.kind == "distinct":
                rows = np.concatenate([v.reshape(len(v), -1) for v in values], axis=1)
                if len(np.unique(rows, axis=0)) < len(rows):
                    return True
                if errors:
                    gaps = [[2 * errors.get(slot, 0.0)] * v[0].size for slot, v in zip(slots, values, strict=True)]
                    near = np.concatenate(gaps)
                    if any((np.abs(rows[:at] - row) <= near).all(axis=1).any() for at, row in enumerate(rows)):
                        return True
            if condition.kind == "bounded" and self._exceeds(condition, fields):
                return True
        return False

    def _exceeds(self, condition: Condition, fields: Arrays) -> bool:
        """Whether some number may be above the limit of a condition; derived slots hold squares of differences."""
        slots = {slot.name: slot for slot in self.model.program.stream(condition.stream).slots}
        largest = max((float(np.max(np.abs(v), initial=0.0)) for v in fields.values()), default=0.0)
        widest = max((v[0].size for v in fields.values() if len(v)), default=1)
        above = {True: max(largest, widest * (2 * largest) ** 2), False: largest}
        return any(above[slots[slot].role == "derived"] > condition.limit for slot in condition.slots)

    def fits(self, steps: int) -> bool:
        """Whether the model has as many steps as a spec."""
        return len(self.ends) == steps * (self.depth or 1)

    def watch(self, case: Case) -> Seen:
        """Runs as many layers of a case as the model accepts; raises `WeftRuntimeError` if it refuses the inputs."""
        stopped = ""
        try:
            for depth in range(case.layers, 0, -1) if self.depth is None else (self.depth,):
                try:
                    trace = self.model.trace(dict(case.inputs), **{**_settings(case), "layers": depth})
                    outputs = _arrays(trace.outputs)
                except WeftRuntimeError as error:
                    if depth == self.depth:
                        raise
                    stopped = str(error)
                    continue
                layers = tuple(tuple(self.after_steps(trace, layer)) for layer in range(depth))
                settled = tuple(
                    SettledRows(number, tiers.bound, tiers.exact, tiers.undecided, tiers.fast)
                    for number, tiers in enumerate(self.model.report.by_layer, 1)
                )
                start, report = self.stored(trace.fields[0]), self.model.report
                instead = report.why if self.model.backend not in ("auto", report.backend) else ""
                return Seen(start, layers, outputs, stopped, settled, self.elsewhere, instead, trace.fields[-1])
            return Seen(self.stored(self.model.start(dict(case.inputs), seed=case.seed)), (), {}, stopped)
        except WeftRuntimeError:
            raise
        except Exception as error:  # a fault of the runtime: evidence against the model, not against the caller
            raise Crashed(f"{type(error).__name__}: {error}") from error

    @property
    def elsewhere(self) -> int:
        """Rows that the last call left undecided before the first layer and after the last."""
        report = self.model.report
        return report.total.undecided - sum(tiers.undecided for tiers in report.by_layer)

    def run(self, case: Case) -> dict[str, Array]:
        """The outputs of a run that nobody watches."""
        return _arrays(self.model(dict(case.inputs), **_settings(case)))

    def ended(self, case: Case, seen: Seen) -> Fields | None:
        """The end of a run that nobody watches, to be asked for outputs and the objective; None where it has none.

        Sums with soft weights may differ in bits from those that were seen. The reference runs as it was seen.
        """
        if self.model.backend == "reference":
            return seen.last
        try:
            return self.model.fields(dict(case.inputs), **_settings(case))
        except WeftRuntimeError:
            return None

    def final(self, case: Case, end: Fields | None) -> dict[str, Array]:
        """The outputs, made anew on the final fields where they are out of date."""
        return _arrays(end.final if end is not None else self.model.final(dict(case.inputs), **_settings(case)))

    def objective(self, case: Case, end: Fields | None) -> dict[str, Array]:
        """The objective of the final fields."""
        asked = end.objective if end is not None else self.model.objective(dict(case.inputs), **_settings(case))
        return {"objective": plain(asked)}

    def attempt(
        self, ask: Callable[..., dict[str, Array]], *about: Case | Fields | None
    ) -> tuple[dict[str, Array] | None, str]:
        """What a question gives, or why it gives nothing."""
        try:
            return ask(*about), ""
        except WeftRuntimeError as error:
            return None, str(error)
        except Exception as error:
            return None, f"crashed with {type(error).__name__}: {error}"

    def stored(self, fields: Mapping[str, Any]) -> dict[str, Array]:
        """The fields that last from layer to layer; random ones are fresh in each."""
        kept = {name for name, one in self.checked.fields.items() if one.role != "random"}
        return {name: self._array(name, value) for name, value in fields.items() if name in kept}

    def _array(self, name: str, value: Any) -> Array:
        found = plain(value)
        flat = self.checked.fields[name].width is None and not self.checked.fields[name].is_pair
        return (found[..., 0] if flat and found.ndim == 2 else found).astype(self.dtype)

    def after_steps(self, trace: Any, layer: int, problem: int | None = None) -> Iterator[dict[str, Array]]:
        """The fields as stored at the end of each step of a layer; of one problem, where the trace is of a batch."""
        here = () if problem is None else (problem,)
        fields = self.stored({name: value[here] for name, value in trace.fields[layer].items()})
        steps = self.checked.spec.steps
        first = 0 if self.depth is None else layer * len(steps)
        for step, block in zip(steps, self.ends[first : first + len(steps)], strict=True):
            for equation in step.equations:
                name = equation.target.name
                home = self.checked.fields[name].home
                fields = {
                    **fields,
                    name: self._array(name, trace[f"layers.{layer}.blocks.{block}.{home}.{name}"][here]),
                }
            yield fields

    def before_steps(self, trace: Any, layers: int, problem: int) -> Iterator[list[dict[str, Array]]]:
        """For each layer of one problem of a batch: the fields as stored at the beginning of each of its steps."""
        for layer in range(layers):
            first = self.stored({name: value[problem] for name, value in trace.fields[layer].items()})
            yield [first, *self.after_steps(trace, layer, problem)][:-1]

    def noise(self, case: Case, sizes: Mapping[str, int], layer: int) -> dict[str, Array]:
        """The random fields of a layer as the model stores them: as given or drawn, rounded to its precision."""
        found = {}
        for one in (self.checked.fields[f.target.name] for f in self.checked.spec.random):
            values = case.noise.get(one.name)
            if values is not None and layer < len(values):
                drawn = values[layer]
            else:
                drawn = draw(
                    one.kind, case.seed, one.name, layer, tuple(sizes[self.checked.index[i]] for i in one.indices)
                )
            found[one.name] = drawn.astype(self.dtype).astype(np.float64)
        return found


def _ends(program: Program) -> Iterator[int]:
    """The last sub-layer of each step that writes fields; other steps prepare the next one (they centre the data)."""
    block = -1
    for step in program.layer:
        block += len(step.sublayers)
        if step.writes:
            yield block


def _settings(case: Case) -> dict[str, Any]:
    return {"layers": case.layers, "seed": case.seed, "noise": columns(case.noise)}


def _arrays(outputs: Mapping[str, Any]) -> dict[str, Array]:
    return {name: plain(value) for name, value in outputs.items()}


def columns(noise: Arrays) -> dict[str, Array] | None:
    """Explicit noise as a model takes it: [layers, tokens, columns]."""
    return {name: v if v.ndim == 3 else v[..., np.newaxis] for name, v in noise.items()} or None


def plain(value: Any) -> Array:
    """A tensor or one-hot output as an array."""
    return np.asarray(value.detach().cpu().numpy() if hasattr(value, "detach") else value)
