"""A run, watched from the hook sites of its model -> what pictures are drawn from.

Everything is computed from all tokens (objective, margins); of states and attention patterns only as many tokens are
kept as a picture can show, evenly spaced. The model runs on the reference backend, with the matrices as they stand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from weftc.core.errors import InputError, WeftError
from weftc.show.figures.choosing import chooses
from weftc_runtime.format import program as ir
from weftc_runtime.format.tensors import NUMBER_HEADS

if TYPE_CHECKING:
    from weftc.interpreter.interpreter import Interpreter
    from weftc.show.figures.subject import Subject
    from weftc_runtime import Model

Array = NDArray[np.float64]
Numbers = NDArray[np.intp]  # of tokens
SHOWN = 1500  # tokens of a stream that are drawn in the plane
VISIBLE = 5e-4  # of the spread of a field: less is no change that a picture shows
CELLS = 64  # tokens along a side of an attention pattern


@dataclass(frozen=True, slots=True)
class HeadCourse:
    """One head of the layer: its pattern in every layer (thinned), and the lead of every choice it makes."""

    head: ir.Head
    rows: Numbers  # numbers of the queries kept
    columns: Numbers  # numbers of the keys kept
    patterns: list[Array] = field(default_factory=list)
    leads: list[Array] = field(default_factory=list)  # per layer, one per query; only of heads that choose


@dataclass(slots=True)
class Course:
    """A run as pictures see it; times run from 0 (before the first layer) to `layers`."""

    program: ir.Program
    sizes: dict[str, int] = field(default_factory=dict)
    kept: dict[str, Numbers] = field(default_factory=dict)  # stream -> numbers of the tokens kept
    states: list[dict[tuple[str, str], Array]] = field(default_factory=list)  # (stream, slot) -> kept rows, per time
    stopped: bool = False  # because nothing visible changed any more
    objective: list[float | None] = field(default_factory=list)  # per time; None where it has no value yet
    heads: dict[str, HeadCourse] = field(default_factory=dict)

    @property
    def layers(self) -> int:
        return len(self.states) - 1

    def field(self, name: str) -> tuple[str, str]:
        """The stream and slot of a field."""
        return next((s.name, t.name) for s in self.program.streams for t in s.slots if t.name == name)

    def over_time(self, name: str) -> Array:
        """A field at all times, (times, tokens kept, width)."""
        return np.stack([state[self.field(name)] for state in self.states])


def thinned(count: int, most: int) -> Numbers:
    """Evenly spaced token numbers, all of them if there are few."""
    every = np.arange(count) if count <= most else np.unique(np.linspace(0, count - 1, most).round())
    return every.astype(np.intp)


def watch(subject: Subject) -> Course:
    """Runs the model of a subject on its data."""
    from weftc_runtime import load

    missing = [
        one.target.name
        for one in subject.checked.spec.inputs
        if one.init is None and one.target.name not in subject.inputs
    ]
    if missing:
        raise InputError(f"there are no data for {', '.join(missing)}; give data")
    model = load(subject.checkpoint, backend="reference")
    watcher = _Watcher(subject, model)

    def tell(what: str, done: int, total: int | None, /) -> None:
        subject.tell(what, done, total)
        if subject.stops_early and watcher.stands_still():
            raise _Enough

    try:
        model(dict(subject.inputs), seed=subject.seed, progress=tell, **subject.depth)
    except _Enough:
        watcher.course.stopped = True
    finally:
        watcher.close()
    if watcher.course.layers < 1:
        raise InputError("there is nothing to draw: the run has no layers; give layers=1 or more")
    return watcher.course


class _Enough(Exception):
    """Raised to end a run of which there is nothing more to see."""


class _Watcher:
    def __init__(self, subject: Subject, model: Model) -> None:
        from weftc.interpreter.interpreter import Interpreter

        made = subject.checkpoint
        self.course = Course(model.program)
        self.subject = subject
        self.meaning: Interpreter | None = None
        if subject.checked.spec.objective is not None:
            self.meaning = Interpreter(subject.checked, made.dims, made.params)
        self.seen: dict[str, Array] = {}
        self.known: set[str] = {item.name for item in model.program.inputs}
        self.known |= {one.target.name for one in subject.checked.spec.state}
        self.written = {slot for step in model.program.layer for _, slot in step.writes}
        self.handles: list[Any] = []
        self.places: dict[str, tuple[int, int]] = {}  # in a layer, of the heads that are kept
        steps = model.program.layer
        first_layer = model.program.steps_of(0)
        blocks_per_layer = sum(len(step.sublayers) for step in first_layer)
        at = 0
        for number, step in enumerate(steps):
            for sublayer in step.sublayers:
                block: Any = model.blocks[at]
                if number == 0 and sublayer is step.sublayers[0]:
                    self._hook_streams(block, "hook_resid_pre", once=True)
                for place, head in enumerate(sublayer.heads if isinstance(sublayer, ir.Attend) else ()):
                    self._hook_head(block, head, (at % blocks_per_layer, place))
                if (number + 1) % len(first_layer) == 0 and sublayer is step.sublayers[-1]:
                    self._hook_streams(block, "hook_resid_post", once=False)
                at += 1

    def stands_still(self) -> bool:
        """Whether the last layer moved nothing that it writes by more than the eye can see."""
        if self.course.layers < 2:
            return False
        before, after = self.course.states[-2:]
        for (stream, slot), values in after.items():
            size = float(np.ptp(values)) if slot in self.written and values.size else 0.0
            if size and float(np.abs(values - before[stream, slot]).max()) > VISIBLE * size:
                return False
        return True

    def close(self) -> None:
        """Takes all hooks away."""
        for handle in self.handles:
            handle.remove()

    # ------------------------------------------------------------------ states
    def _hook_streams(self, block: Any, site: str, once: bool) -> None:
        names = list(block.streams)
        for name in names:
            listener = self._stream_listener(name, name == names[-1], once)
            self.handles.append(getattr(block.resid(name), site).register_forward_hook(listener))

    def _stream_listener(self, stream: str, last: bool, once: bool) -> Callable[..., None]:
        def listen(module: Any, inputs: Any, output: Any) -> None:
            if once and self.course.states:
                return
            self.seen[stream] = output.detach().cpu().numpy().copy()
            if last:
                self._note()

        return listen

    def _note(self) -> None:
        """All streams of one time are seen."""
        course, state, fields = self.course, {}, {}
        if course.states:
            self.known |= self.written
        for stream in course.program.streams:
            rows = self._slots_of(stream.name)
            course.sizes[stream.name] = len(rows)
            kept = course.kept.setdefault(stream.name, thinned(len(rows), SHOWN))
            for slot in stream.slots:
                state[stream.name, slot.name] = rows[kept][:, slot.columns]
                if slot.role == "field" and slot.name in self.known:
                    fields[slot.name] = rows[:, slot.columns]
        course.states.append(state)
        course.objective.append(self._objective(fields))

    def _slots_of(self, stream: str) -> Array:
        """The tokens of a stream with their slots side by side, whatever the basis of the residual is."""
        rows, basis = self.seen[stream], self.course.program.basis.get(stream)
        return rows if basis is None else np.asarray(np.linalg.solve(self.subject.checkpoint.tensors[basis], rows.T).T)

    def _objective(self, fields: Mapping[str, Array]) -> float | None:
        if self.meaning is None:
            return None
        types = self.subject.checked.fields
        shaped = {
            name: values[:, 0] if types[name].width is None and types[name].columns is None else values
            for name, values in fields.items()
            if name in types
        }
        try:
            return self.meaning.objective(shaped)
        except (WeftError, KeyError):  # it reads a field that the first layer computes
            return None

    # ------------------------------------------------------------------ heads
    def _hook_head(self, block: Any, head: ir.Head, place: tuple[int, int]) -> None:
        """Watches a head at its place in a layer: sub-layer and number."""
        sites = block.head(head.name)
        scores: list[Array] = []

        def listen_scores(module: Any, inputs: Any, output: Any) -> None:
            scores[:] = [output.detach().cpu().numpy()]

        def listen_pattern(module: Any, inputs: Any, output: Any) -> None:
            self._pattern(head, place, output.detach().cpu().numpy(), scores[0] if scores else None)

        if chooses(head):
            self.handles.append(sites.hook_attn_scores.register_forward_hook(listen_scores))
        if head.weighting.kind not in NUMBER_HEADS:  # a number has no pattern
            self.handles.append(sites.hook_pattern.register_forward_hook(listen_pattern))

    def _pattern(self, head: ir.Head, place: tuple[int, int], pattern: Array, scores: Array | None) -> None:
        course = self.course
        if self.places.setdefault(head.name, place) != place:
            return  # another head that brings its values to the same scratch slot
        if head.name not in course.heads:
            rows, columns = thinned(len(pattern), CELLS), thinned(pattern.shape[1], CELLS)
            course.heads[head.name] = HeadCourse(head, rows, columns)
        one = course.heads[head.name]
        one.patterns.append(pattern[np.ix_(one.rows, one.columns)].copy())
        if scores is not None and pattern.shape[1] > 1:
            one.leads.append(leads(head, scores, pattern))


def leads(head: ir.Head, scores: Array, pattern: Array) -> Array:
    """By how much the keys chosen lead over the best one left out, per query; 0 where scores tie."""
    sharpness = head.weighting.sharpness
    if sharpness is not None:
        ordered = np.sort(scores, 1)
        return np.asarray((ordered[:, -1] - ordered[:, -2]) / float(sharpness))
    chosen = pattern > 0
    worst = np.where(chosen, scores, np.inf).min(1)
    best = np.where(chosen, -np.inf, scores).max(1)
    gaps = worst - best
    return np.asarray(np.maximum(gaps[np.isfinite(gaps)], 0.0))


def ordered_by_choice(course: Course, stream: str) -> Numbers | None:
    """An order of the kept queries of a stream in which those that attend alike at the end stand together."""
    for one in course.heads.values():
        if one.head.query == stream and len(one.columns) <= 32 and one.patterns and one.head.keys != stream:
            final = one.patterns[-1]
            return np.asarray(np.lexsort((-final.max(1), final.argmax(1))))
    return None


def chosen_layers(layers: int, most: int) -> Sequence[int]:
    """Layers to show, counted from 0: the first, the last, and some between, denser at the start."""
    if layers <= most:
        return range(layers)
    spread = np.unique(np.geomspace(1, layers, most).round().astype(int) - 1)
    extra = [one for one in range(layers) if one not in spread][: most - len(spread)]
    return sorted([*map(int, spread), *extra])
