"""A checkpoint and inputs -> what its matrices say, in exact arithmetic.

The state is held slot by slot. A stream with a basis B is turned back first: with z the slots, its residual is B z, so
Q is read as Q B and a carry E as B^-1 E B, all rational. Inputs, weights and noise are float64 numbers or fractions,
which are rationals; nothing is rounded, and fields are not rounded to a storage precision between steps.

An entry may have no value (the logarithm of 0 in a slot kept up to date by `Stream.derived`). That is no error until
something needs it: a decision, a sum with a weight that is not 0, a field, an answer. What a head or a feed-forward of
a step cannot compute (no eligible key and no self key, a division by 0 into anything but derived slots) is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from weftc.exact import weightings
from weftc.exact.numbers import ONE, ZERO, Number, Undecided, exact, total
from weftc_runtime.format.checkpoint import Checkpoint
from weftc_runtime.format.program import (
    FFN,
    Attend,
    Condition,
    Head,
    Mask,
    Part,
    Program,
    ProgramOutput,
    ProgramStep,
    Score,
    SelfKey,
    Stream,
)

Row = list[tuple[int, Fraction]]  # the entries of a matrix row that are not 0
Matrix = list[Row]


class NoValue(Exception):
    """The program has no value here: a division by 0, no eligible key, a condition that the inputs do not meet."""


@dataclass(frozen=True, slots=True)
class Missing:
    """An entry without a value, and why."""

    reason: str


Entry = Number | Missing
Watch = Callable[[tuple[object, ...], Number], None]  # where a decision is made, and the number it depends on
Vector = list[Entry]
State = dict[str, list[Vector]]  # stream -> tokens, each with the entries of all its slots


@dataclass(slots=True)
class Execution:
    """A run after its layers. Answers are made when they are asked for, and may raise `NoValue`."""

    executor: Executor
    state: State
    ready: set[tuple[str, str]]
    nulls: Mapping[str, Vector]
    noise: Mapping[str, Any]
    layers: int

    @property
    def fields(self) -> dict[str, list[list[Number]]]:
        """Every field that has been set: its rows."""
        return {
            slot.name: self.executor.rows(self.state, stream, slot.name)
            for stream in self.executor.program.streams
            for slot in stream.slots
            if slot.role == "field" and (stream.name, slot.name) in self.ready
        }

    def outputs(self) -> dict[str, Any]:
        """The outputs as the layers hold them."""
        return self._answers(self.executor.program.outputs, again=False)

    def final(self) -> dict[str, Any]:
        """The outputs, those that are out of date evaluated again on the final state."""
        return self._answers(self.executor.program.outputs, again=True)

    def objective(self) -> Number:
        """The objective of the final state."""
        answer = self.executor.program.objective
        assert answer is not None
        found: Number = self._answers((answer,), again=False)[answer.name]
        return found

    def _answers(self, asked: Sequence[ProgramOutput], again: bool) -> dict[str, Any]:
        executor, found = self.executor, {}
        read = self.copy()
        executor.demand(self)
        redone = {one.again: self._again(one.again) for one in asked if again and one.again is not None}
        for step in executor.needed(asked):
            executor.demand(read)
            executor.step(step, read)
        for output in asked:
            run = redone[output.again] if again and output.again is not None else read
            found[output.name] = executor.answer(output, run)
        return found

    def _again(self, step: int) -> Execution:
        copy, last = self.copy(), max(self.layers - 1, 0)
        if not self.layers:
            self.executor.refill(copy, 0)
        self.executor.step(self.executor.steps(last)[step], copy)
        return copy

    def copy(self) -> Execution:
        """The same run, to be taken elsewhere."""
        state = {name: [list(token) for token in tokens] for name, tokens in self.state.items()}
        return Execution(self.executor, state, set(self.ready), self.nulls, self.noise, self.layers)


def execute(
    checkpoint: Checkpoint, inputs: Mapping[str, Any], layers: int = 1, noise: Mapping[str, Any] | None = None
) -> Execution:
    """Runs a file: embedding, prelude and layers. Arrays are nested sequences [tokens][columns] (or [tokens]).

    `noise`: name -> [layers][tokens][columns], for every random field. Raises `NoValue` where the program has none, and
    `Undecided` where numbers that are not rational are too close to be compared.
    """
    return Executor(checkpoint).run(inputs, layers, noise)


@dataclass(slots=True)
class Executor:
    """The matrices of a file, over slots."""

    checkpoint: Checkpoint
    watch: Watch | None = None  # is told every number whose sign decides something
    program: Program = field(init=False)
    _streams: dict[str, Stream] = field(init=False)
    _bases: dict[str, tuple[Matrix, Matrix]] = field(init=False)
    _matrices: dict[tuple[str, str, str], Matrix] = field(init=False)

    def __post_init__(self) -> None:
        self.program = self.checkpoint.program
        self._streams = {stream.name: stream for stream in self.program.streams}
        self._matrices = {}
        self._bases = {}
        for stream, name in self.program.basis.items():
            matrix = _sparse(self.checkpoint.tensors[name])
            self._bases[stream] = matrix, _inverse(matrix)

    # ---- running -----------------------------------------------------------------------------------------------------

    def run(self, inputs: Mapping[str, Any], layers: int, noise: Mapping[str, Any] | None = None) -> Execution:
        """The state after a number of layers."""
        run = self.start(inputs, noise)
        for index in range(layers):
            self.layer(run, index)
        return run

    def start(self, inputs: Mapping[str, Any], noise: Mapping[str, Any] | None = None) -> Execution:
        """The state before the first layer."""
        given = {(one.stream, one.slot): _rows(inputs[one.name]) for one in self.program.inputs}
        run = self._embedded(given, noise)
        for step in self.program.prelude:
            self.demand(run)
            self.step(step, run)
        return run

    def resume(self, run: Execution, fields: Mapping[str, Any]) -> Execution:
        """The same run with other numbers in its fields: those that another executor had stored, say."""
        copy = run.copy()
        for stream in self.program.streams:
            for slot in stream.slots:
                if slot.role == "field" and slot.name in fields:
                    for token, row in zip(copy.state[stream.name], _rows(fields[slot.name]), strict=True):
                        token[slot.columns] = row
                    copy.ready.add((stream.name, slot.name))
        self._refresh(copy)
        return copy

    def layer(self, run: Execution, index: int) -> None:
        """One layer, counted from 0."""
        self.refill(run, index)
        for step in self.steps(index):
            self.demand(run)
            self.step(step, run)
        run.layers = index + 1

    def steps(self, index: int) -> tuple[ProgramStep, ...]:
        """The steps of one layer."""
        if self.program.unrolled and index >= self.program.layers:
            raise NoValue(f"the file has {self.program.layers} layers, each with weights of its own")
        return self.program.steps_of(index)

    def refill(self, run: Execution, index: int) -> None:
        """Random fields as they are given for a layer."""
        for one in self.program.noises:
            columns = self._streams[one.stream].slot(one.slot).columns
            for token, row in zip(run.state[one.stream], _rows(run.noise[one.name][index]), strict=True):
                token[columns] = row
            run.ready.add((one.stream, one.slot))
        if self.program.noises:
            self._refresh(run)

    def _embedded(self, given: Mapping[tuple[str, str], list[Vector]], noise: Mapping[str, Any] | None) -> Execution:
        sizes = {stream.name: stream.size for stream in self.program.streams}
        sizes |= {stream: len(rows) for (stream, _), rows in given.items()}
        counts = {name: size for name, size in sizes.items() if size is not None}
        state: State = {
            name: [[ZERO] * stream.width for _ in range(counts[name])] for name, stream in self._streams.items()
        }
        nulls: dict[str, Vector] = {s.name: [ZERO] * s.width for s in self.program.streams if s.null}
        for embed in self.program.embedding:
            columns = self._streams[embed.stream].slot(embed.slot).columns
            if embed.kind == "null":
                count = exact(Fraction(counts[embed.source]) ** embed.power) if embed.power else ONE
                nulls[embed.stream][columns] = [count]
                continue
            for index, token in enumerate(state[embed.stream]):
                match embed.kind:
                    case "input":
                        token[columns] = given[embed.stream, embed.slot][index]
                    case "one":
                        token[columns] = [ONE]
                    case "identity":
                        token[columns] = [exact(int(index == other)) for other in range(counts[embed.stream])]
                    case "position":
                        token[columns] = [exact(index + 1)]
                    case "count":
                        token[columns] = [exact(counts[embed.source])]
        run = Execution(self, state, set(given), nulls, dict(noise or {}), 0)
        self._refresh(run)
        return run

    def step(self, step: ProgramStep, run: Execution) -> None:
        """Sub-layers one after the other, then the derived slots."""
        for sublayer in step.sublayers:
            run.ready |= {place for place in self._written(sublayer) if self._role(*place) == "field"}
            if isinstance(sublayer, FFN):
                lenient = all(self._role(*place) == "derived" for place in self._made(sublayer))
                run.state[sublayer.stream] = self._feed_forward(sublayer, run.state[sublayer.stream], lenient)
            else:
                run.state = self._attend(sublayer, run)
        for stream in self.program.streams:
            for slot in stream.slots:
                if slot.role == "field":
                    self.rows(run.state, stream, slot.name)
        self._refresh(run)

    def _refresh(self, run: Execution) -> None:
        """Derived slots anew, those whose sources have been set."""
        for stream in self.program.streams:
            known = {slot.name for slot in stream.slots if slot.role in ("constant", "scratch")}
            known |= {slot for name, slot in run.ready if name == stream.name}
            for ffn in stream.derived:
                if {slot for _, slot in self._read(ffn)} <= known:
                    run.state[stream.name] = self._feed_forward(ffn, run.state[stream.name], lenient=True)
                    known |= {slot for _, slot in self._written(ffn)}

    # ---- what sub-layers read and write, by their matrices -----------------------------------------------------------

    def _role(self, stream: str, slot: str) -> str:
        return self._streams[stream].slot(slot).role

    def _made(self, ffn: FFN) -> set[tuple[str, str]]:
        """The slots that the function of a feed-forward is written to."""
        return self._rows_filled(ffn.stream, self._matrix(ffn.out, ffn.stream, ""))

    def _written(self, sublayer: Attend | FFN) -> set[tuple[str, str]]:
        """The slots that a sub-layer does not leave as they are."""
        carries = {sublayer.stream: sublayer.carry} if isinstance(sublayer, FFN) else sublayer.carry
        found: set[tuple[str, str]] = set()
        for stream, name in carries.items():
            matrix = self._matrix(name, stream, stream)
            changed = [[] if row == [(at, Fraction(1))] else [(at, Fraction(1))] for at, row in enumerate(matrix)]
            found |= self._rows_filled(stream, changed)
        if isinstance(sublayer, FFN):
            return found | self._made(sublayer)
        for head in sublayer.heads:
            for name, columns in ((head.value, head.keys), (head.self_key.value if head.self_key else "", head.query)):
                if name:
                    columns = "" if _is_number(head) and name == head.value else columns
                    found |= self._rows_filled(head.query, self._matrix(name, head.query, columns))
        return found

    def _rows_filled(self, stream: str, matrix: Matrix) -> set[tuple[str, str]]:
        slots = self._streams[stream].slots
        return {(stream, slot.name) for slot in slots if any(matrix[slot.columns])}

    def _read(self, sublayer: Attend | FFN) -> set[tuple[str, str]]:
        """The slots that what a sub-layer writes depends on."""
        carries = {sublayer.stream: sublayer.carry} if isinstance(sublayer, FFN) else sublayer.carry
        found: set[tuple[str, str]] = set()
        for stream, name in carries.items():
            rows = [row for at, row in enumerate(self._matrix(name, stream, stream)) if row != [(at, Fraction(1))]]
            found |= self._columns_filled(stream, rows)
        if isinstance(sublayer, FFN):
            for each in (sublayer.a, sublayer.b):
                if each is not None:
                    found |= self._columns_filled(sublayer.stream, self._matrix(each, "", sublayer.stream))
            return found
        for head in sublayer.heads:
            found |= self._head_reads(head)
        return found

    def _head_reads(self, head: Head) -> set[tuple[str, str]]:
        found: set[tuple[str, str]] = set()
        for score in (head.score, *(mask.score for mask in head.masks)):
            for part in score.nested():
                found |= self._columns_filled(head.query, self._matrix(part.q, "", head.query))
                found |= self._columns_filled(head.keys, self._matrix(part.k, "", head.keys))
                if part.scale is not None:
                    side = head.query if part.scale[0] == "query" else head.keys
                    found |= self._columns_filled(side, self._matrix(part.scale[1], "", side))
        if head.value and not _is_number(head):
            found |= self._columns_filled(head.keys, self._matrix(head.value, head.query, head.keys))
        if head.self_key is not None:
            if head.self_key.value:
                found |= self._columns_filled(head.query, self._matrix(head.self_key.value, head.query, head.query))
            if head.self_key.row is not None:
                found |= self._columns_filled(head.query, self._matrix(head.self_key.row, "", head.query))
        return found

    def _columns_filled(self, stream: str, rows: Iterable[Row]) -> set[tuple[str, str]]:
        used = {column for row in rows for column, _ in row}
        slots = self._streams[stream].slots
        return {(stream, slot.name) for slot in slots if used & set(range(slot.offset, slot.offset + slot.width))}

    def needed(self, asked: Iterable[ProgramOutput]) -> list[ProgramStep]:
        """The steps of the read-out that what is asked depends on, in order."""
        wanted: set[tuple[str, str]] = set()
        for output in asked:
            if output.head is None:
                wanted.add((output.stream, output.slot))
            else:
                wanted |= self._head_reads(output.head)
                if output.scale is not None:
                    wanted |= self._columns_filled(output.stream, self._matrix(output.scale, "", output.stream))
        found: list[ProgramStep] = []
        for step in reversed(self.program.readout):
            wanted |= self._sources(wanted)
            if any(self._written(sublayer) & wanted for sublayer in step.sublayers):
                found.insert(0, step)
                for sublayer in step.sublayers:
                    wanted |= self._read(sublayer)
        return found

    def _sources(self, wanted: set[tuple[str, str]]) -> set[tuple[str, str]]:
        """What derived slots are made of."""
        found = set(wanted)
        for stream in self.program.streams:
            for ffn in reversed(stream.derived):
                if self._written(ffn) & found:
                    found |= self._read(ffn)
        return found

    # ---- sub-layers --------------------------------------------------------------------------------------------------

    def _attend(self, attend: Attend, run: Execution) -> State:
        state = dict(run.state)
        for stream, name in attend.carry.items():
            matrix = self._matrix(name, stream, stream)
            state[stream] = [_apply(matrix, token) for token in run.state[stream]]
        for head in attend.heads:
            outs = [self._head(head, query, run) for query in range(len(run.state[head.query]))]
            state[head.query] = [_added(*pair) for pair in zip(state[head.query], outs, strict=True)]
        return state

    def _feed_forward(self, ffn: FFN, tokens: list[Vector], lenient: bool) -> list[Vector]:
        carry, out = self._matrix(ffn.carry, ffn.stream, ffn.stream), self._matrix(ffn.out, ffn.stream, "")
        a = self._matrix(ffn.a, "", ffn.stream)
        b = None if ffn.b is None else self._matrix(ffn.b, "", ffn.stream)
        found = []
        for index, token in enumerate(tokens):
            inside = _apply(a, token)
            if self.watch is not None and ffn.function in ("reciprocal", "log", "sqrt", "unit"):
                for row, entry in enumerate(inside):
                    if not isinstance(entry, Missing):
                        self.watch((ffn, index, row), entry)
            hidden = _function(ffn.function, inside, None if b is None else _apply(b, token))
            for entry in hidden:
                if isinstance(entry, Missing) and not lenient:
                    raise NoValue(f"token {index} of {ffn.stream}: {entry.reason}")
            found.append(_added(_apply(carry, token), _apply(out, hidden)))
        return found

    def _head(self, head: Head, query: int, run: Execution) -> Vector:
        """What a head adds to one query token."""
        token, keys = run.state[head.query][query], self._keys(head, run)
        scores = self._candidates(head, query, run)
        own = head.self_key
        fallback = self._own_value(head, own, token)
        if _is_number(head):
            number = weightings.number(head.weighting.kind, scores)
            if number is None:
                return self._fallen_back(head, query, fallback)
            return _apply(self._matrix(head.value, head.query, ""), [number])
        weights = weightings.weights(head.weighting, scores)
        if weights is None:
            return self._fallen_back(head, query, fallback)
        value = self._matrix(head.value, head.query, head.keys)
        result: Vector = [ZERO] * self._streams[head.query].width
        for key, weight in weights.items():
            if weight != ZERO:
                made = _apply(value, keys[key]) if key < len(keys) else fallback
                result = _added(result, [_times(weight, entry) for entry in made])
        return result

    def _keys(self, head: Head, run: Execution) -> list[Vector]:
        keys = run.state[head.keys]
        return [*keys, run.nulls[head.keys]] if head.keys in run.nulls else keys

    def _own_value(self, head: Head, own: SelfKey | None, token: Vector) -> Vector:
        if own is None or not own.value:
            return [ZERO] * self._streams[head.query].width
        return _apply(self._matrix(own.value, head.query, head.query), token)

    def _fallen_back(self, head: Head, query: int, fallback: Vector) -> Vector:
        """The value of a self key that stands in for missing weights."""
        if head.self_key is None or head.self_key.row is not None:
            raise NoValue(f"head {head.name}, token {query} of {head.query}: no key is eligible, or they have no mass")
        return fallback

    def _candidates(self, head: Head, query: int, run: Execution) -> dict[int, Number]:
        """The scores of the eligible keys, and of the self key where it competes, after all keys."""
        token, keys = run.state[head.query][query], self._keys(head, run)
        left = dict(enumerate(keys))
        for mask in head.masks:
            if mask.weighting is None:
                left = {k: z for k, z in left.items() if self._eligible(mask, head, (query, token), (k, z))}
                continue
            ranked = {key: self._score(mask.score, head, token, other) for key, other in left.items()}
            chosen = weightings.weights(mask.weighting, ranked) or {}
            left = {key: other for key, other in left.items() if chosen.get(key, ZERO) != ZERO}
        scores = {key: self._score(head.score, head, token, other) for key, other in left.items()}
        if head.self_key is not None and head.self_key.row is not None:
            (row,) = _apply(self._matrix(head.self_key.row, "", head.query), token)
            own = _known(row)
            if self.watch is not None:
                for key, score in scores.items():
                    self.watch((head.name, "self key", query, key), score - own)
            scores[len(keys)] = own
        if self.watch is not None and head.weighting.kind == "normalize" and scores:
            self.watch((head.name, "mass", query), total(list(scores.values())))
        return scores

    def _eligible(self, mask: Mask, head: Head, query: tuple[int, Vector], key: tuple[int, Vector]) -> bool:
        if mask.op == "other":
            return query[0] != key[0]
        score = self._score(mask.score, head, query[1], key[1])
        if self.watch is not None:
            self.watch((head.name, mask.op, query[0], key[0]), score)
        sign = score.sign()
        return {">": sign > 0, ">=": sign >= 0, "<": sign < 0, "<=": sign <= 0}[mask.op]

    def _score(self, score: Score, head: Head, query: Vector, key: Vector) -> Number:
        return total([self._part(part, head, query, key) for part in score.parts])

    def _part(self, part: Part, head: Head, query: Vector, key: Vector) -> Number:
        left = _apply(self._matrix(part.q, "", head.query), query)
        right = _apply(self._matrix(part.k, "", head.keys), key)
        pairs = [(_known(one), _known(other)) for one, other in zip(left, right, strict=True)]
        if part.kind == "dot":
            value = total([one * other for one, other in pairs])
        else:
            assert part.coefficient is not None
            coefficient = exact(float(self.checkpoint.tensors[part.coefficient]))
            value = coefficient * total([(one - other).square() for one, other in pairs])
        if part.scale is not None:
            side, token = (head.query, query) if part.scale[0] == "query" else (head.keys, key)
            (scale,) = _apply(self._matrix(part.scale[1], "", side), token)
            value = value * _known(scale)
        for factor in part.factors:
            (made,) = _function(factor.function, [self._score(factor.score, head, query, key)], None)
            value = value * _known(made)
        return value

    # ---- answers -----------------------------------------------------------------------------------------------------

    def rows(self, state: State, stream: Stream, slot: str) -> list[list[Number]]:
        """The rows of a slot, all of which must have values."""
        return [[_known(entry) for entry in token[stream.slot(slot).columns]] for token in state[stream.name]]

    def answer(self, output: ProgramOutput, run: Execution) -> Any:
        """One output: rows of numbers, numbers, or one number."""
        if output.kind == "pattern":
            return [self._pattern(output, query, run) for query in range(len(run.state[output.stream]))]
        rows = self.rows(run.state, self._streams[output.stream], output.slot)
        match output.kind:
            case "total":
                return total([row[0] for row in rows])
            case "common":
                return rows[0][0]
            case "number":
                return [row[0] for row in rows]
        return rows

    def _pattern(self, output: ProgramOutput, query: int, run: Execution) -> list[Number]:
        head = output.head
        assert head is not None
        weights = weightings.weights(head.weighting, self._candidates(head, query, run))
        if weights is None:
            self._fallen_back(head, query, [])
        scale = ONE
        if output.scale is not None:
            scale = _known(_apply(self._matrix(output.scale, "", head.query), run.state[head.query][query])[0])
        return [scale * (weights or {}).get(key, ZERO) for key in range(len(run.state[head.keys]))]

    # ---- conditions --------------------------------------------------------------------------------------------------

    def demand(self, run: Execution) -> None:
        """Refuses a state that does not meet the conditions of the file, as far as their slots have been set."""
        for condition in self.program.conditions:
            if all((condition.stream, slot) in run.ready for slot in condition.slots):
                self._demand(condition, run.state)

    def _demand(self, condition: Condition, state: State) -> None:
        stream = self._streams[condition.stream]
        slots = [self.rows(state, stream, slot) for slot in condition.slots]
        rows = [[entry for row in token for entry in row] for token in zip(*slots, strict=True)]
        if condition.kind == "bounded":
            limit = exact(condition.limit)
            if any(limit < entry.magnitude() for row in rows for entry in row):
                raise NoValue(condition.text)
        if condition.kind == "distinct":
            for index, row in enumerate(rows):
                if any(_equal(row, other) for other in rows[:index]):
                    raise NoValue(condition.text)

    # ---- matrices ----------------------------------------------------------------------------------------------------

    def _matrix(self, name: str, rows: str, columns: str) -> Matrix:
        """A tensor over the slots of the stream it adds to and of the one it is applied to ("": neither)."""
        place = (name, rows, columns)
        if place not in self._matrices:
            matrix = _sparse(self.checkpoint.tensors[name])
            if columns in self._bases:
                matrix = _product(matrix, self._bases[columns][0])
            if rows in self._bases:
                matrix = _product(self._bases[rows][1], matrix)
            self._matrices[place] = matrix
        return self._matrices[place]


def _is_number(head: Head) -> bool:
    return head.weighting.kind in ("lse", "max")


def _sparse(array: Any) -> Matrix:
    rows = array.tolist() if array.ndim == 2 else [array.tolist()]
    return [[(at, Fraction(value)) for at, value in enumerate(row) if value] for row in rows]


def _product(left: Matrix, right: Matrix) -> Matrix:
    found = []
    for row in left:
        sums: dict[int, Fraction] = {}
        for at, coefficient in row:
            for column, value in right[at]:
                sums[column] = sums.get(column, Fraction(0)) + coefficient * value
        found.append([(column, value) for column, value in sorted(sums.items()) if value])
    return found


def _inverse(matrix: Matrix) -> Matrix:
    """By elimination, in fractions."""
    size = len(matrix)
    work = [[dict(row).get(at, Fraction(0)) for at in range(size)] for row in matrix]
    result = [[Fraction(int(row == at)) for at in range(size)] for row in range(size)]
    for at in range(size):
        pivot = next(row for row in range(at, size) if work[row][at])
        for rows in (work, result):
            rows[at], rows[pivot] = rows[pivot], rows[at]
        scale = work[at][at]
        for rows in (work, result):
            rows[at] = [value / scale for value in rows[at]]
        for row in range(size):
            factor = work[row][at]
            if row != at and factor:
                for rows in (work, result):
                    rows[row] = [one - factor * two for one, two in zip(rows[row], rows[at], strict=True)]
    return [[(at, value) for at, value in enumerate(row) if value] for row in result]


def _rows(array: Any) -> list[Vector]:
    """Nested sequences or an array as rows of numbers; numbers per token become rows of one."""
    rows = array.tolist() if hasattr(array, "tolist") else array
    return [[exact(value) for value in (row if isinstance(row, list | tuple) else (row,))] for row in rows]


def _known(entry: Entry) -> Number:
    if isinstance(entry, Missing):
        raise NoValue(entry.reason)
    return entry


def _equal(one: Sequence[Number], other: Sequence[Number]) -> bool:
    """Whether two rows agree everywhere; a coordinate that differs settles it, whatever the others are."""
    doubt = False
    for left, right in zip(one, other, strict=True):
        try:
            if (left - right).sign():
                return False
        except Undecided:
            doubt = True
    if doubt:
        raise Undecided
    return True


def _apply(matrix: Matrix, vector: Vector) -> Vector:
    found: Vector = []
    for row in matrix:
        terms = []
        missing = None
        for column, coefficient in row:
            entry = vector[column]
            if isinstance(entry, Missing):
                missing = entry
            else:
                terms.append(entry if coefficient == 1 else exact(coefficient) * entry)
        found.append(missing or (terms[0] if len(terms) == 1 else total(terms)))
    return found


def _added(one: Vector, other: Vector) -> Vector:
    return [_sum(left, right) for left, right in zip(one, other, strict=True)]


def _sum(left: Entry, right: Entry) -> Entry:
    if isinstance(left, Missing) or isinstance(right, Missing):
        return left if isinstance(left, Missing) else right
    if left is ZERO or right is ZERO:
        return right if left is ZERO else left
    return left + right


def _times(weight: Number, entry: Entry) -> Entry:
    return entry if isinstance(entry, Missing) or entry is ZERO else weight * entry


def _function(name: str, a: Vector, b: Vector | None) -> Vector:
    """f(a, b), row by row or for the vector as a whole."""
    if name == "select":
        assert b is not None
        if isinstance(b[-1], Missing):
            return [b[-1]] * len(a)
        return a if exact(Fraction(1, 2)) < b[-1] else b[:-1]
    if name in ("unit", "layer"):
        return _normed(name, a, b)
    if name == "product":
        assert b is not None
        return [_per_row(name, *pair) for pair in zip(a, b, strict=True)]
    return [_per_row(name, one, ONE) for one in a]


def _normed(name: str, a: Vector, b: Vector | None) -> Vector:
    numbers = [entry for entry in a if not isinstance(entry, Missing)]
    if len(numbers) < len(a):
        return [entry if isinstance(entry, Missing) else Missing("a part of the vector has no value") for entry in a]
    if name == "layer":
        mean = total(numbers) / exact(len(numbers))
        numbers = [number - mean for number in numbers]
    length = total([number.square() for number in numbers])
    if length.sign() == 0:
        return b if b is not None else [Missing("unit of the zero vector")] * len(a)
    root = length.sqrt()
    return [number / root for number in numbers]


def _per_row(name: str, a: Entry, b: Entry) -> Entry:
    if isinstance(a, Missing) or isinstance(b, Missing):
        return a if isinstance(a, Missing) else b
    match name:
        case "product":
            return a * b
        case "reciprocal":
            return ONE / a if a.sign() else Missing("a division by zero")
        case "log":
            return a.log() if a.sign() > 0 else Missing("the logarithm of a number that is not positive")
        case "exp":
            return a.exp()
        case "sqrt":
            return a.sqrt() if a.sign() >= 0 else Missing("the root of a negative number")
        case "relu":
            return a.clipped()
        case "relu2":
            return a.clipped().square()
        case "tanh":
            return a.tanh()
        case "sigmoid":
            return ONE / (ONE + (-a).exp()) if a.low >= 0 else a.exp() / (ONE + a.exp())
        case "softplus":
            return (ONE + a.exp()).log() if a.high <= 0 else a + (ONE + (-a).exp()).log()
        case "abs":
            return a.magnitude()
        case "copy":
            return a
    raise AssertionError(f"no function {name}")
