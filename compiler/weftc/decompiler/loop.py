"""What a program keeps from layer to layer, and the equations by which it changes: `Algorithm`.

The residual between two layers is split into cells, directions that hold one number, vector or row. Which ones there
are follows from where heads and feed-forwards write: what a layer writes in some directions is the new value of the
cell there, what the prelude left in them its start. A cell that no layer changes is a constant; one that is a function
of other cells of its token stands for that function; the others become fields of the spec.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from weftc.decompiler.execution import FeatureExecution, Residuals
from weftc.decompiler.linear import Array, Feature, joined, magnitude, multiple, nice, noise, ratio, with_short_numbers
from weftc.decompiler.terms import (
    ONE,
    PAIR,
    SELF,
    Atom,
    Poly,
    Vec,
    add,
    add_vec,
    atom,
    atoms,
    free,
    freeze,
    function,
    multiply,
    opened,
    replaced,
    scale,
)
from weftc_runtime.format.basis import bases_of
from weftc_runtime.format.checkpoint import Checkpoint
from weftc_runtime.format.program import Attend, Input, ProgramOutput, Stream, Weighting

MOST_ROUNDS = 8
AROUND_TOKENS = ("sum", "extreme", "weight", "else", "vsum", "velse")  # what is no function of one token
SMALL = 200  # letters of a term that stays as it is while directions are followed
Version = tuple[int, int]  # a cell, and how often it has been set in a layer
Place = tuple[str, str]  # a slot of a stream


@dataclass(slots=True, eq=False)
class ResidualCell:
    """Directions of a residual that hold one thing."""

    number: int
    stream: str
    directions: Array
    kind: str
    start: Feature | None = None
    change: Feature | None = None
    fixed: Feature | None = None  # what it holds, where no layer changes it

    def symbol(self, version: int = 0) -> Feature:
        """Its value, as a name."""
        label: Version = (self.number, version)
        if self.kind == "vector":
            return Feature(self.directions, "vector", {}, {("vref", label, (SELF,)): ONE})
        indices = (SELF,) if self.kind == "number" else (SELF, PAIR)
        return Feature(self.directions, self.kind, atom("ref", label, indices))


@dataclass(frozen=True, slots=True)
class ReadAnswer:
    """An output: a term, or the cell it shows."""

    output: ProgramOutput
    value: Feature
    cell: ResidualCell | None = None


@dataclass(slots=True)
class Algorithm:
    """What was read: in every step, the cells that are set and to what; starts; answers."""

    cells: list[ResidualCell]
    inputs: dict[str, ResidualCell]
    steps: list[list[tuple[ResidualCell, Feature]]] = field(default_factory=list)
    places: list[int] = field(default_factory=list)  # of every step in the program
    starts: list[ResidualCell] = field(default_factory=list)
    variables: list[ResidualCell] = field(default_factory=list)  # what layers change
    answers: list[ReadAnswer] = field(default_factory=list)
    objective: ReadAnswer | None = None


class Loop(FeatureExecution):
    """Reads the loop of one checkpoint."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        pair_sets: dict[str, str],
        apart: Iterable[Place] = (),
        again: Iterable[tuple[int, Place]] = (),
    ) -> None:
        super().__init__(checkpoint.program, checkpoint.tensors)
        self.pair_sets = pair_sets
        shown = [(one.stream, one.slot) for one in self.program.outputs if one.head is None]
        self.equals = frozenset(apart)  # slots that hold the same as others
        self.again = frozenset(again)  # slots that a step sets to what they are
        self.apart = dict.fromkeys((*shown, *sorted(apart)))  # slots that are cells of their own
        bases = bases_of(self.program, self.tensors)
        self.into = {s.name: bases[s.name].matrix if s.name in bases else np.eye(s.width) for s in self.program.streams}
        self.back = {
            s.name: bases[s.name].inverse if s.name in bases else np.eye(s.width) for s in self.program.streams
        }
        self.cells: list[ResidualCell] = []
        self.given: dict[str, Feature] = {}
        self.made = 0
        self.labels: dict[object, Version] = {}

    # ---- embedding and read-out --------------------------------------------------------------------------------------

    def embedded(self) -> Residuals:
        """What the embedding puts into the residuals."""
        state: Residuals = {stream.name: [] for stream in self.program.streams}
        inputs = {one.name: one for one in (*self.program.inputs, *self.program.noises)}
        for embed in self.program.embedding:
            stream = self.program.stream(embed.stream)
            directions = self.into[embed.stream][:, stream.slot(embed.slot).columns]
            match embed.kind:
                case "input" | "noise":
                    feature = self._input(inputs[embed.source], directions, stream)
                    self.given[embed.source] = feature
                case "one":
                    feature = Feature(directions, "number", ONE)
                case "identity":
                    feature = Feature(directions, embed.stream, atom("same", embed.stream, SELF, PAIR))
                case "position":
                    feature = Feature(directions, "number", atom("position", SELF))
                case "count":
                    size = self.sizes[embed.source]
                    known = atom("count", embed.source) if size is None else scale(ONE, size)
                    feature = Feature(directions, "number", known)
                case _:
                    feature = Feature(directions, "number", self.opaque(directions, SELF))
            state[embed.stream].append(feature)
        return state

    def _input(self, given: Input, directions: Array, stream: Stream) -> Feature:
        width = directions.shape[1]
        label = given.name
        if given.kind in ("vector", "unit") or given.symbols:
            return Feature(directions, "vector", {}, {("vref", label, (SELF,)): ONE})
        if given.kind == "number" or (label not in self.pair_sets and width == 1):
            return Feature(directions, "number", atom("ref", label, (SELF,)))
        return Feature(directions, self.pair_sets[label], atom("ref", label, (SELF, PAIR)))

    def rows(self, output: ProgramOutput) -> Array:
        """The read-out of an output."""
        return self.back[output.stream][self.program.stream(output.stream).slot(output.slot).columns]

    # ---- cells -------------------------------------------------------------------------------------------------------

    def algorithm(self) -> Algorithm:
        start = self.carried_out([s for step in self.program.prelude for s in step.sublayers], self.embedded(), "start")
        start = self.without_derived(start)
        self.where = "cells"
        for stream, features in start.items():
            self._grow(stream, features)
        for cell in self.cells:
            cell.fixed = None
        fixed: set[int] = set()
        for _ in range(MOST_ROUNDS):
            after = self.without_derived(self._layer(self.beginning()))
            old = list(self.cells)
            self._regrow(start, after)
            for stream in start:
                here = [cell for cell in self.cells if cell.stream == stream]
                for cell, begin, end in zip(
                    here, self.split(start[stream], here), self.split(after[stream], here), strict=True
                ):
                    cell.start, cell.change = begin, end
            now = set()
            for cell in self.cells:
                assert cell.change is not None
                assert cell.start is not None
                if cell in old and cell.change.key() in {cell.symbol().key(), (cell.fixed or cell.symbol()).key()}:
                    now.add(cell.number)
                    cell.fixed = replace(cell.start, directions=cell.directions)
                else:
                    cell.fixed = None
            if now == fixed and old == self.cells:
                break
            fixed = now
        return self._told(start)

    def beginning(self) -> Residuals:
        """What the residuals hold when a layer begins."""
        state: Residuals = {stream.name: [] for stream in self.program.streams}
        for cell in self.cells:
            state[cell.stream].append(cell.fixed or cell.symbol())
        return self.refreshed({stream: joined(features) for stream, features in state.items()})

    def without_derived(self, state: Residuals) -> Residuals:
        """The residuals without what feed-forwards keep up to date, which is a function of the rest."""
        state = dict(state)
        for stream in self.program.streams:
            for ffn in stream.derived:
                state[stream.name] = self._carried(ffn.carry, state[stream.name])
        return state

    def _layer(self, state: Residuals) -> Residuals:
        """The residuals after a layer, as far as directions go: what a sub-layer has made is a name in the next."""
        for at, step in enumerate(self.program.layer):
            for sublayer in step.sublayers:
                state = {stream: [self._abstract(stream, one) for one in ones] for stream, ones in state.items()}
                state = self.carried_out([sublayer], state, f"layer.{at}")
        return state

    def _abstract(self, stream: str, one: Feature) -> Feature:
        kept = {cell.fixed.key() for cell in self.cells if cell.fixed is not None}
        if len(repr((one.number, one.vector))) < SMALL or one.key() in kept:
            return one
        label = self.labels.setdefault((stream, one.key()), (-1 - len(self.labels), 0))
        return replace(ResidualCell(label[0], stream, one.directions, one.kind).symbol(), directions=one.directions)

    def _regrow(self, start: Residuals, after: Residuals) -> None:
        """The cells that hold what is there before and after a layer; those there were before keep their names."""
        old, self.cells = self.cells, []
        for stream in start:
            mine = [cell for cell in old if cell.stream == stream]
            here = {key: cell for cell in mine for key in (cell.symbol().key(), (cell.fixed or cell.symbol()).key())}
            new = [one for one in after[stream] if one.key() not in here]
            new.sort(key=lambda one: -one.directions.shape[1])  # a row holds numbers, no number a row
            same = [part for one in after[stream] if one.key() in here for part in _stayed(one, here[one.key()])]
            self._grow(stream, [*new, *same, *start[stream]], old)

    def _grow(self, stream: str, features: Iterable[Feature], old: Iterable[ResidualCell] = ()) -> None:
        """Adds cells until the features are in them."""
        here = [cell for cell in self.cells if cell.stream == stream]
        for one in [*self._whole_rows(stream), *self._parted(stream, features)]:
            rest = one.directions
            if here:
                known = np.concatenate([cell.directions for cell in here], axis=1)
                rest = rest - known @ np.linalg.lstsq(known, rest, rcond=None)[0]
            if magnitude(rest) <= noise() * magnitude(one.directions) * 10:
                continue
            u, s, _ = np.linalg.svd(rest, full_matrices=False)
            full = s[-1] > noise() * s[0]
            parts = [(rest, one.kind)] if full else [(u[:, [n]], "number") for n in range(len(s)) if s[n] > noise()]
            for directions, kind in parts:
                cell = self._cell(stream, directions, kind, old)
                here.append(cell)
                self.cells.append(cell)

    def _whole_rows(self, stream: str) -> Iterator[Feature]:
        """Slots in which numbers were found that are entries of a row."""
        for home, slot in self.apart:
            width = self.program.stream(home).slot(slot).width
            sets = [name for name, size in self.sizes.items() if size == width > 1]
            sets.sort(key=lambda name: name == stream)  # rows are mostly about tokens of another set
            if home == stream and sets and (home, slot) in self.equals:
                yield Feature(self.into[stream][:, self.program.stream(stream).slot(slot).columns], sets[0])

    def _parted(self, stream: str, features: Iterable[Feature]) -> Iterator[Feature]:
        """Features with what an output shows apart: where two outputs show the same, they are two cells."""
        for one in features:
            rest = one.directions
            for slot in (slot for home, slot in self.apart if home == stream):
                columns = self.program.stream(stream).slot(slot).columns
                share = self.into[stream][:, columns] @ (self.back[stream][columns] @ rest)
                if magnitude(share) > noise() * magnitude(one.directions) and magnitude(rest - share) > noise():
                    yield replace(one, directions=share)
                    rest = rest - share
            yield replace(one, directions=rest)

    def _cell(self, stream: str, directions: Array, kind: str, old: Iterable[ResidualCell]) -> ResidualCell:
        for cell in old:
            same = cell.stream == stream and cell.kind == kind
            if same and cell not in self.cells and ratio(directions, cell.directions) is not None:
                return cell
        self.made += 1
        return ResidualCell(self.made, stream, self._scaled(stream, directions, kind), kind)

    def _scaled(self, stream: str, directions: Array, kind: str) -> Array:
        """Directions up to a factor: as an input has them, as an output reads them, else of length one where that is
        a short factor.
        """
        for name, feature in self.given.items():
            at = next(one.stream for one in (*self.program.inputs, *self.program.noises) if one.name == name)
            if at == stream and feature.kind == kind and ratio(directions, feature.directions) is not None:
                return feature.directions
        for output in self.program.outputs:
            if output.head is None and output.stream == stream:
                rows = self.rows(output)
                share = rows @ directions
                if len(rows) == directions.shape[1] and magnitude(share) > noise() * magnitude(rows):
                    c = ratio(share, np.eye(len(rows)))
                    if c is not None:
                        return directions / c
        lengths = np.linalg.norm(directions, axis=0)
        short = float(nice(float(lengths[0])).limit_denominator(64))
        is_short = (
            magnitude(lengths - lengths[0]) <= noise() * lengths[0] and abs(short - lengths[0]) <= noise() * short
        )
        return directions / lengths[0] if is_short else directions

    def split(self, features: list[Feature], cells: list[ResidualCell]) -> list[Feature]:
        """What every cell of a stream holds."""
        known = np.concatenate([cell.directions for cell in cells], axis=1) if cells else np.zeros((1, 0))
        found = [Feature(cell.directions, cell.kind) for cell in cells]
        for one in features:
            shares = np.linalg.lstsq(known, one.directions, rcond=None)[0] if cells else np.zeros((0, 1))
            size, at = magnitude(shares), 0
            for place, cell in enumerate(cells):
                rows = shares[at : at + cell.directions.shape[1]]
                at += len(rows)
                part = self.image(rows, one, cell.kind, cell.stream, size)
                if part is None:
                    hidden = cell.kind == "vector"
                    part = Feature(
                        cell.directions,
                        cell.kind,
                        {} if hidden else self.opaque(rows, SELF, PAIR),
                        self.opaque_vec(rows, SELF) if hidden else {},
                    )
                old = found[place]
                found[place] = replace(
                    old, number=add(old.number, part.number), vector=add_vec(old.vector, part.vector)
                )
        return [self.rolled(with_short_numbers(one)) for one in found]

    # ---- equations ---------------------------------------------------------------------------------------------------

    def _told(self, start: Residuals) -> Algorithm:
        """The equations: first with as few fields as possible, then with those that turn out to be needed."""
        loop_cells = list(self.cells)
        forced = {cell.number for cell in loop_cells if cell.fixed is None and self._is_in(cell, self.equals)}
        while True:
            self.cells = list(loop_cells)
            found, missing = self._pass(forced)
            if not missing - forced:
                break
            forced |= missing
        before = [sub for step in self.program.prelude for sub in step.sublayers if isinstance(sub, Attend)]
        live = self._live(found)
        used_early = self._early(found, live)
        for cell in loop_cells:
            is_set = any(one is cell for step in found.steps for one, _ in step)
            begun = any(self._is_set(cell, sublayer) for sublayer in before)
            named = any(one is cell for one in found.inputs.values())
            if is_set and cell.number in live and not named and (begun or cell.number in used_early):
                found.starts.append(cell)
        kept = [
            (p, [one for one in s if one[0].number in live]) for p, s in zip(found.places, found.steps, strict=True)
        ]
        found.steps, found.places = [step for _, step in kept if step], [place for place, step in kept if step]
        if not found.steps:  # a layer says something
            inputs = {one.name for one in self.program.inputs}
            self._keep(found, [cell for cell in self.cells if self._given_in(cell) in inputs][:1])
        found.cells = [cell for cell in self.cells if cell.number in live]
        found.variables = [cell for cell in loop_cells if cell.fixed is None]
        return found

    def _is_in(self, cell: ResidualCell, places: Iterable[Place]) -> bool:
        """Whether a cell is one of some slots."""
        rows, stream = self.back[cell.stream] @ cell.directions, self.program.stream(cell.stream)
        parts = [rows[stream.slot(slot).columns] for home, slot in places if home == cell.stream]
        return any(magnitude(part) == magnitude(rows) for part in parts)

    def _is_set(self, cell: ResidualCell, sublayer: Attend) -> bool:
        """Whether an attention sub-layer drops what a cell has held, by its carry or by a head that takes it away."""
        if cell.stream not in sublayer.carry:
            return False
        kept = self.tensors[sublayer.carry[cell.stream]] @ cell.directions
        for head in sublayer.heads:
            if head.query == head.keys == cell.stream:
                kept = kept + self.tensors[head.value] @ cell.directions
        return magnitude(kept) <= noise()

    def _pass(self, forced: set[int]) -> tuple[Algorithm, set[int]]:
        """One reading of the layer, and cells that should be fields but are not."""
        inputs = {}
        for cell in self.cells:
            for name, feature in self.given.items():
                start = cell.fixed or cell.start
                if start is not None and start.key() == feature.key() and cell.fixed is None:
                    stays = any(c.fixed is not None and c.fixed.key() == feature.key() for c in self.cells)
                    if not stays and name not in inputs:
                        inputs[name] = cell
        found = Algorithm(self.cells, inputs)
        state, versions = self.beginning(), dict.fromkeys((cell.number for cell in self.cells), 0)
        missing: set[int] = set()
        kept: list[ResidualCell] = []
        for at, step in enumerate(self.program.layer):
            before = {c.number: v for c, v in self._values(self.without_derived(state))}
            after = self.without_derived(self.carried_out(step.sublayers, state, f"layer.{at}"))
            for stream, features in after.items():
                self._grow(stream, sorted(features, key=lambda one: -one.directions.shape[1]))
            values = list(self._values(after))
            changed = [(c, v) for c, v in values if c.number not in before or before[c.number].key() != v.key()]
            state, equations = self._set(values, changed, versions, forced)
            same = [place for step, place in self.again if step == at]
            for cell in self.cells:
                if cell not in (one for one, _ in equations) and self._is_in(cell, same):
                    equations.append((cell, cell.symbol(versions.get(cell.number, 0))))
                    self._name(found, cell)
            if equations:
                found.steps.append(equations)
                found.places.append(at)
        final = state
        for at, step in enumerate(self.program.readout):
            state = self.carried_out(step.sublayers, state, f"readout.{at}")
        for output in self.program.answers():
            answer = self._answer(output, final, state)
            set_cells = {cell.number for step in found.steps for cell, _ in step}
            if (shown := answer.cell) is not None and shown.number not in set_cells:
                if shown.fixed is None:
                    missing.add(shown.number)
                elif not self._given_in(shown):
                    kept.append(shown)
            if output is self.program.objective:
                found.objective = answer
            else:
                found.answers.append(answer)
        if kept:
            self._keep(found, kept)
        live = self._live(found)
        set_cells = {cell.number for step in found.steps for cell, _ in step}
        by_number = {cell.number: cell for cell in self.cells}
        for number in self._early(found, live):
            if number not in set_cells and by_number[number].fixed is None:
                missing.add(number)
        return found, missing

    def _given_in(self, cell: ResidualCell) -> str:
        """The input that a cell holds which no layer changes."""
        found = (name for name, one in self.given.items() if cell.fixed is not None and one.key() == cell.fixed.key())
        return next(found, "")

    def _keep(self, found: Algorithm, cells: list[ResidualCell]) -> None:
        """Equations that set cells to what they are."""
        if not found.steps:
            found.steps.append([])
            found.places.append(len(self.program.layer) - 1)
        for cell in cells:
            self._name(found, cell)
            found.steps[-1].append((cell, cell.symbol()))

    def _name(self, found: Algorithm, cell: ResidualCell) -> None:
        """A cell that holds an input has its name."""
        if label := self._given_in(cell):
            found.inputs.setdefault(label, cell)

    def _values(self, state: Residuals) -> Iterator[tuple[ResidualCell, Feature]]:
        for stream, features in state.items():
            here = [cell for cell in self.cells if cell.stream == stream]
            yield from zip(here, self.split(features, here), strict=True)

    def _set(
        self,
        values: list[tuple[ResidualCell, Feature]],
        changed: list[tuple[ResidualCell, Feature]],
        versions: dict[int, int],
        forced: set[int],
    ) -> tuple[Residuals, list[tuple[ResidualCell, Feature]]]:
        """The residuals after a step, with what it has set by name; and its equations."""
        now = {cell.number: value for cell, value in values}
        equations: list[tuple[ResidualCell, Feature]] = []
        order = [(c, replace(v, number=without_shift(v.number))) for c, v in changed]
        order.sort(key=lambda one: (len(one[1].number) + len(one[1].vector), _is_function(one[1].number)))
        for cell, value in order:
            swap = _names(
                {(c.number): (v, c.symbol(versions[c.number])) for c, v in equations if c.stream == cell.stream}
            )
            named = replace(value, number=replaced(value.number, swap), vector=replaced(value.vector, swap))
            is_kept = cell.number in forced or (bool(versions.get(cell.number)) and not value.is_nothing)
            if not is_kept and is_of_token(named):
                now[cell.number] = named
                continue
            versions[cell.number] = versions.get(cell.number, 0) + 1
            equations.append((cell, value))
            now[cell.number] = cell.symbol(versions[cell.number])
        state: Residuals = {stream.name: [] for stream in self.program.streams}
        for cell in self.cells:
            state[cell.stream].append(replace(now[cell.number], directions=cell.directions))
        return self.refreshed({stream: joined(features) for stream, features in state.items()}), equations

    def _answer(self, output: ProgramOutput, final: Residuals, state: Residuals) -> ReadAnswer:
        self.where = f"output {output.name}"
        if output.head is not None:
            head = output.head
            weights, _ = self.weights(head, self.score(head.score, head, state), self.masks(head, state), state)
            if output.scale is not None:
                weights = multiply(weights, self.row(output.scale, state[head.query], head.query))
            return ReadAnswer(output, Feature(np.zeros((0, 0)), head.keys, weights))
        rows = self.rows(output)
        value = self._read(rows, state[output.stream], output)
        for cell in self.cells:
            share = rows @ cell.directions if cell.stream == output.stream else np.zeros((0, 0))
            is_own = bool(share.size) and magnitude(share) > noise() and multiple(share) == 1
            if is_own and value.key() == self._read(rows, final[output.stream], output).key():
                return ReadAnswer(output, value, cell)
        return ReadAnswer(output, value)

    def _read(self, rows: Array, features: list[Feature], output: ProgramOutput) -> Feature:
        shares = [(rows @ one.directions, one) for one in features]
        size = max((magnitude(share) for share, _ in shares), default=0.0)
        shares = [(share, one) for share, one in shares if magnitude(share) > noise() * size]
        kind = {"vector": "vector", "pair": "", "onehot": ""}.get(output.kind, "number")
        if output.symbols:
            kind = "vector"
        if not kind:
            kind = next((one.kind for _, one in shares if one.kind not in ("vector", "number")), "number")
        number: Poly = {}
        vector: Vec = {}
        for share, one in shares:
            part = self.image(share, one, kind, output.stream, size)
            if part is None:
                part = Feature(share, kind, {} if kind == "vector" else self.opaque(share, SELF, PAIR))
                part = replace(part, vector=self.opaque_vec(share, SELF)) if kind == "vector" else part
            number, vector = add(number, part.number), add_vec(vector, part.vector)
        return self.rolled(with_short_numbers(Feature(rows, kind, number, vector)))

    # ---- what is used ------------------------------------------------------------------------------------------------

    def _live(self, found: Algorithm) -> set[int]:
        """Cells that an answer depends on."""
        live: set[int] = set()
        todo: list[int] = []
        for one in (*found.answers, *([found.objective] if found.objective is not None else [])):
            todo += [one.cell.number] if one.cell else [number for number, _ in versions_in(one.value)]
        by_number = {cell.number: cell for cell in self.cells}
        while todo:
            cell = todo.pop()
            if cell in live:
                continue
            live.add(cell)
            told = [value for step in found.steps for set_cell, value in step if set_cell.number == cell]
            start = by_number[cell].start
            told += [start] if start is not None else []
            todo += [other for value in told for other, _ in versions_in(value)]
        return live

    def _early(self, found: Algorithm, live: set[int]) -> set[int]:
        """Cells whose value at the beginning of a layer is read."""
        read = [value for step in found.steps for cell, value in step if cell.number in live]
        answers = [*found.answers, *([found.objective] if found.objective is not None else [])]
        read += [one.value for one in answers]
        return {cell for value in read for cell, version in versions_in(value) if version == 0}


def _stayed(one: Feature, cell: ResidualCell) -> list[Feature]:
    """What is still where it was, apart from what was added of it elsewhere."""
    old = cell.directions
    shares = np.asarray(np.linalg.lstsq(old, one.directions, rcond=None)[0], np.float64)
    c = ratio(shares, np.eye(len(shares))) if shares.shape[0] == shares.shape[1] else None
    rest = one.directions - old * (c or 0.0)
    if c is None or magnitude(rest) <= noise() * magnitude(one.directions):
        return [one]
    return [replace(one, directions=old), replace(one, directions=rest)]


def versions_in(value: Feature) -> set[Version]:
    """The fields that a term names."""
    return {
        a[1]
        for p in (value.number, value.vector)
        for a in atoms(p)
        if a[0] in ("ref", "vref") and a[1].__class__ is tuple
    }


def is_of_token(value: Feature) -> bool:
    """Whether it is a function of fields of one token."""
    return not any(a[0] in AROUND_TOKENS for p in (value.number, value.vector) for a in atoms(p))


def without_shift(p: Poly) -> Poly:
    """log of a softmax, where it is written as a score less the logarithm of its sum of exponentials."""
    for mono, c in p.items():
        if len(mono) == 1 and mono[0][0][0] == "extreme" and mono[0][0][1] == "lse" and c < 0:
            _, _, home, score, masks = mono[0][0]
            own = scale(opened(score, PAIR), -c)
            if not masks and all(p.get(term) == e for term, e in own.items()):
                kept = {term: e for term, e in dict(score).items() if -1 in _bound(term)}
                weight = atom("weight", home, Weighting("softmax"), freeze(kept), (), PAIR)
                rest = add(p, scale(own, -1), {mono: -c})
                return add(rest, scale(function("log", weight), -c))
    return p


def _is_function(p: Poly) -> bool:
    return any(a[0] == "function" for mono in p for a, _ in mono)


def _bound(term: object) -> set[int]:
    """Whether a term depends on what a choice runs over."""
    marked = opened(((term, 1),), PAIR + 70)  # type: ignore[arg-type]
    return {-1} if PAIR + 70 in free(marked) else set()


def _names(said: dict[int, tuple[Feature, Feature]]) -> Callable[[Atom], Atom | None]:
    """What replaces the terms that have just been given names."""
    table: dict[Atom, Atom] = {}
    for value, symbol in said.values():
        for p, q in ((value.number, symbol.number), (value.vector, symbol.vector)):
            if len(p) == 1 and next(iter(p.values())) in (1, ONE):
                key = next(iter(p))
                before = key[0][0] if symbol.kind != "vector" and len(key) == 1 and key[0][1] == 1 else key
                name = next(iter(q))
                table[before] = name[0][0] if symbol.kind != "vector" else name
    return table.get
