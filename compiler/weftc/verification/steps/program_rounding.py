"""A program's matrices -> a bound on what rounding can do inside a step: no lucky case is needed to see a cancellation.

A running error analysis. Every column of a residual carries three magnitudes through the sub-layers of a step:

    size    the largest number it can hold, whatever is decided on the way, with fields as large as in a traced run
    error   how far rounding can take it from exact arithmetic: u times everything that is added up, carried on
    root    the same of its square root, where it is a sum of squares: |x + e| is as far from |x| as |e|, not as
            sqrt(2 |x| |e|); infinite where it may be negative

    c + 2^70 s - 2^70 s, s = [some point is in a narrow band]    s may be 1, so c may be off by u * 2^70

Heads may choose any key or none; relu, products and squares are bounded by their arguments. What no argument bounds (an
exponential, a reciprocal) has the size it had in the traced run. A field at the end of a step may be off by `LIMIT`
times the numeric contract for numbers as large as those of the spec itself (`spec_sizes`), and no more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weftc.core.styles import Styles
from weftc.core.types import Checked
from weftc.verification.cases.inputs import Case, cases
from weftc.verification.steps.condition import EPSILON, ROUNDINGS
from weftc.verification.steps.models import Watched
from weftc.verification.steps.spec_sizes import largest
from weftc.verification.steps.stepwise import Stepwise
from weftc.verification.verdict import Check
from weftc_runtime import Checkpoint, WeftRuntimeError, load
from weftc_runtime.format.program import FFN, Attend, Head, ProgramStep, Score

Floats = NDArray[np.float64]
LIMIT = 2.0**16
U = EPSILON / 2
TINY = float(np.finfo(np.float64).tiny)
TRACED = (np.ones(1), np.zeros(1))  # functions of scores are taken to be weights up to 1; roots may be of nothing
FAMILIES = ("random", "positive")


@dataclass(frozen=True, slots=True)
class Loss:
    """What rounding can do to something a step writes, and how large the spec's own numbers are there."""

    place: str
    field: str
    error: float
    scale: float


@dataclass(frozen=True, slots=True)
class ErrorRange:
    """Numbers of every column of a stream, or of some rows made of them: how large, and how wrong, they can be."""

    size: Floats
    error: Floats
    root: Floats

    @classmethod
    def of(cls, size: Floats, error: Floats) -> ErrorRange:
        """Numbers of either sign, if they are not all zero."""
        return cls(size, error, np.where(size + error > 0, np.inf, 0.0))

    def times(self, matrix: Floats) -> ErrorRange:
        """A matrix times them."""
        weights, terms = np.abs(matrix), np.count_nonzero(matrix, axis=1)
        size = weights @ self.size
        rounds = np.where(terms > 1, terms, np.where(_is_power(matrix), 0, 1)) * U
        signed = ((matrix < 0) & (self.size + self.error > 0)).any(axis=1)
        squares = np.multiply(weights, self.root**2, out=np.zeros_like(weights), where=weights > 0).sum(axis=1)
        root = np.where(signed, np.inf, np.sqrt(squares) + rounds * np.sqrt(size))
        return ErrorRange(size, weights @ self.error + rounds * size, root)

    def plus(self, other: ErrorRange) -> ErrorRange:
        both = self.size + other.size
        rounds = np.where((self.size > 0) & (other.size > 0), U, 0.0)
        root = np.hypot(self.root, other.root) + rounds * np.sqrt(both)
        return ErrorRange(both, self.error + other.error + rounds * both, root)

    def either(self, other: ErrorRange) -> ErrorRange:
        pairs = (self.size, other.size), (self.error, other.error), (self.root, other.root)
        return ErrorRange(*(np.maximum(a, b) for a, b in pairs))


def _is_power(matrix: Floats) -> NDArray[np.bool_]:
    """Which rows multiply by a power of two, at most."""
    return np.asarray((np.abs(np.frexp(matrix)[0]) == np.where(matrix == 0, 0.0, 0.5)).all(axis=1))


def program_rounding(checked: Checked, model: Checkpoint, style: str, seed: int) -> Check | None:
    """Whether a step can lose more than `LIMIT` times the contract; None where nothing could be traced."""
    found = [
        loss
        for case in cases(checked, model.dims, 2, seed, families=FAMILIES, first=1)
        for loss in losses(checked, model, case)
    ]
    if not found:
        return None
    worst = max(found, key=lambda one: one.error / one.scale)
    allowed = LIMIT * ROUNDINGS * EPSILON * worst.scale
    told = f"{worst.place}, {worst.field}: large numbers may cancel, and leave an error of {worst.error:.2g}"
    passed = worst.error <= allowed
    return Check(
        f"cancellation ({style})",
        "sums of every step",
        len(found),
        passed,
        worst.error,
        allowed,
        detail="" if passed else told,
    )


def losses(checked: Checked, model: Checkpoint, case: Case) -> Iterator[Loss]:
    """Everything that a step of the layer or the read-out writes, on one case."""
    program = model.program
    if program.rotated:
        return
    network = load(model, backend="reference")
    watched = Watched(checked, network)
    try:
        trace = network.trace(dict(case.inputs), layers=watched.depth or 1, seed=case.seed)
    except WeftRuntimeError:
        return
    whole = Stepwise(checked, model.dims, model.params)
    tokens = {one.name: len(trace[f"start.{one.name}.{one.slots[0].name}"]) for one in program.streams}
    analysis = Analysis(model, tokens)
    state = analysis.started(_seen(model, trace, "start"))
    for layer in range(watched.depth or 1):
        drawn = watched.noise(case, whole.world(watched.stored(trace.fields[layer])).sizes, layer)
        before = [watched.stored(trace.fields[layer]), *watched.after_steps(trace, layer)]
        number, block = 0, 0
        for step in _steps(model, layer, watched.depth):
            paths = [f"layers.{layer}.blocks.{block + at}" for at in range(len(step.sublayers))]
            block += len(step.sublayers)
            state = analysis.step(step, state, [_seen(model, trace, path) for path in paths])
            if not step.writes:
                continue
            scales = largest(whole.world(before[number]), checked.spec.steps[number].equations, drawn)
            for home, name in step.writes:
                part = program.stream(home).slot(name).columns
                yield Loss(f"step {number + 1}", name, _top(state[home].error[part]), max(1.0, scales.get(name, 1.0)))
            number += 1
    yield from _answers(checked, model, analysis, state, whole, watched, trace)


def _answers(
    checked: Checked,
    model: Checkpoint,
    analysis: Analysis,
    state: Mapping[str, ErrorRange],
    whole: Stepwise,
    watched: Watched,
    trace: Any,
) -> Iterator[Loss]:
    """The same for what is read at the end."""
    program, end = model.program, watched.stored(trace.fields[-1])
    at = 0
    for step in program.readout:
        paths = [f"readout.{at + one}" for one in range(len(step.sublayers))]
        at += len(step.sublayers)
        state = analysis.step(step, state, [_seen(model, trace, path) for path in paths])
    scales = largest(whole.world(end), whole.answers(), {})
    for output in program.answers():
        name = "objective" if output is program.objective else output.name
        if output.kind != "pattern" and name in scales:
            part = program.stream(output.stream).slot(output.slot).columns
            many = analysis.tokens[output.stream] if output.kind == "total" else 1
            error = many * _top(state[output.stream].error[part])
            yield Loss("outputs", name, error, max(1.0, scales[name]))


def _steps(model: Checkpoint, layer: int, depth: int | None) -> tuple[ProgramStep, ...]:
    steps = model.program.layer
    each = len(steps) // (depth or 1)
    return steps[layer * each : (layer + 1) * each] if depth else steps


def _top(values: Floats) -> float:
    return float(np.max(values, initial=0.0))


def _seen(model: Checkpoint, trace: Any, path: str) -> dict[str, Floats]:
    """The largest number in every column after a sub-layer; nothing for one that was not traced."""
    found = {}
    for stream in model.program.streams:
        columns = np.zeros(stream.width)
        for slot in stream.slots:
            key = f"{path}.{stream.name}.{slot.name}"
            if key not in trace:
                break
            values = np.abs(np.asarray(trace[key].detach().numpy(), float)).reshape(-1, slot.width)
            columns[slot.columns] = np.max(values, axis=0, initial=0.0)
        else:
            found[stream.name] = columns
    return found


@dataclass(slots=True)
class Analysis:
    """The rules, over the matrices of one file."""

    model: Checkpoint
    tokens: Mapping[str, int]
    _fields: dict[str, NDArray[np.bool_]] = field(init=False)  # constants too
    _constants: dict[str, NDArray[np.bool_]] = field(init=False)

    def __post_init__(self) -> None:
        self._fields, self._constants = self._columns("field", "constant"), self._columns("constant")

    def _columns(self, *roles: str) -> dict[str, NDArray[np.bool_]]:
        found = {}
        for stream in self.model.program.streams:
            found[stream.name] = np.zeros(stream.width, dtype=bool)
            for slot in stream.slots:
                found[stream.name][slot.columns] = slot.role in roles
        return found

    def _matrix(self, name: str) -> Floats:
        found = np.asarray(self.model.tensors[name], float)
        return found if found.ndim == 2 else found.reshape(1, -1)

    def started(self, seen: Mapping[str, Floats]) -> dict[str, ErrorRange]:
        """Before the first layer."""
        return self._refreshed({name: self._held(name, size) for name, size in seen.items()}, seen)

    def _held(self, stream: str, size: Floats) -> ErrorRange:
        """What is stored: no error yet. Constants (one, names, counts, positions) are not negative."""
        made = ErrorRange.of(size, np.zeros_like(size))
        return replace(made, root=np.where(self._constants[stream], 0.0, made.root))

    def step(
        self, step: ProgramStep, state: Mapping[str, ErrorRange], seen: list[dict[str, Floats]]
    ) -> dict[str, ErrorRange]:
        """After a step: errors of its fields stay for the caller to see, and are forgotten by the next one."""
        now = self._refreshed({name: self._begun(name, one) for name, one in state.items()}, {})
        for sublayer, after in zip(step.sublayers, seen, strict=True):
            if isinstance(sublayer, FFN):
                now[sublayer.stream] = self._fed(sublayer, now[sublayer.stream], after.get(sublayer.stream))
            else:
                now = self._attended(sublayer, now, after)
        if not seen or not seen[-1]:
            return now
        for name, one in now.items():  # fields are data again: as large as they were
            size = np.where(self._fields[name], seen[-1][name], np.maximum(one.size, seen[-1][name]))
            now[name] = ErrorRange(size, one.error, np.where(size > one.size, np.inf, one.root))
        return now

    def _begun(self, stream: str, one: ErrorRange) -> ErrorRange:
        """What was written before, for the step that reads it: fields and constants are data."""
        data, held = self._fields[stream], self._held(stream, one.size)
        return ErrorRange(one.size, np.where(data, 0.0, one.error), np.where(data, held.root, one.root))

    def _refreshed(self, state: Mapping[str, ErrorRange], seen: Mapping[str, Floats]) -> dict[str, ErrorRange]:
        found = dict(state)
        for stream in self.model.program.streams:
            for ffn in stream.derived:
                found[stream.name] = self._fed(ffn, found[stream.name], seen.get(stream.name))
        return found

    # ---- feed-forwards -----------------------------------------------------------------------------------------------

    def _fed(self, ffn: FFN, z: ErrorRange, after: Floats | None) -> ErrorRange:
        a, out = z.times(self._matrix(ffn.a)), self._matrix(ffn.out)
        b = None if ffn.b is None else z.times(self._matrix(ffn.b))
        held = z.size if after is None else after
        traced = np.array([_top(held[column != 0] / np.abs(column[column != 0])) for column in out.T])
        square = ffn.function == "product" and np.array_equal(self._matrix(ffn.a), self._matrix(ffn.b or ""))
        made = _square(a) if square else _function(ffn.function, a, b, traced)
        return z.times(self._matrix(ffn.carry)).plus(made.times(out))

    # ---- heads -------------------------------------------------------------------------------------------------------

    def _attended(
        self, attend: Attend, state: Mapping[str, ErrorRange], after: Mapping[str, Floats]
    ) -> dict[str, ErrorRange]:
        found = dict(state)
        for stream, name in attend.carry.items():
            found[stream] = state[stream].times(self._matrix(name))
        for head in attend.heads:
            found[head.query] = found[head.query].plus(self._head(head, state, after.get(head.query)))
        return found

    def _head(self, head: Head, state: Mapping[str, ErrorRange], after: Floats | None) -> ErrorRange:
        query, keys, kind = state[head.query], state[head.keys], head.weighting.kind
        many, score = self.tokens[head.keys], self._score(head.score, head, state)
        width = len(query.size)
        if kind in ("lse", "max"):
            column = np.abs(self._matrix(head.value)) if head.value else np.zeros((width, 1))
            number = ErrorRange.of(
                score.size + np.log(many + 1.0), score.error + 4 * U * (score.size + np.log(many + 1.0))
            )
            found = number.times(column.reshape(width, 1))
        elif not head.value:
            found = ErrorRange.of(np.zeros(width), np.zeros(width))
        else:
            found = self._weighed(kind, keys.times(self._matrix(head.value)), score, many, after)
        own = head.self_key
        if own is not None and own.value:
            found = found.either(query.times(self._matrix(own.value)))
        return found

    def _weighed(self, kind: str, value: ErrorRange, score: ErrorRange, many: int, after: Floats | None) -> ErrorRange:
        if kind == "sum":
            size = many * score.size * value.size
            error = many * (score.size * value.error + score.error * value.size) + 2 * U * size
            if np.isfinite(score.root).all() and not value.error.any() and not value.root.any():  # squares, added up
                return ErrorRange(size, error, np.sqrt(many * value.size) * score.root + 2 * U * np.sqrt(size))
            return ErrorRange.of(size, error)
        if kind == "exp":
            size = np.where(value.size > 0, value.size if after is None else after, 0.0)
            return ErrorRange.of(size, size * (score.error + 4 * U) + value.error)
        # an offset for tokens that are no members is added and taken away again, exactly: a condition bounds it
        exact = Styles.read(self.model.program.options).members == "offset"
        soft = np.minimum(2 * score.error, 1.0) if kind in ("softmax", "sparsemax", "entmax15") and not exact else 0.0
        return ErrorRange.of(value.size, value.error + (soft + 2 * U) * value.size)

    def _score(self, score: Score, head: Head, state: Mapping[str, ErrorRange]) -> ErrorRange:
        total = ErrorRange.of(np.zeros(1), np.zeros(1))
        for part in score.parts:
            q, k = state[head.query].times(self._matrix(part.q)), state[head.keys].times(self._matrix(part.k))
            if part.kind == "dot":
                size = float(q.size @ k.size)
                error = float(q.error @ k.size + q.size @ k.error) + (len(q.size) + 1) * U * size
                root = np.inf if size + error > 0 else 0.0
            else:
                signed = float(self.model.tensors[part.coefficient or ""])
                coefficient, rounds = abs(signed), (len(q.size) + 4) * U
                apart, wrong = q.size + k.size, q.error + k.error
                size = coefficient * float(apart @ apart)
                error = coefficient * float(2 * apart @ wrong) + rounds * size
                near = np.sqrt(coefficient) * float(np.linalg.norm(wrong) + rounds * np.linalg.norm(apart))
                root = near if signed >= 0 else np.inf
            made = ErrorRange(np.array([size]), np.array([error]), np.array([root]))
            if part.scale is not None:
                side = head.query if part.scale[0] == "query" else head.keys
                made = _product(made, state[side].times(self._matrix(part.scale[1])))
            for factor in part.factors:
                inside = self._score(factor.score, head, state)
                made = _product(made, _function(factor.function, inside, None, TRACED[factor.function == "sqrt"]))
            total = total.plus(made)
        return total


def _product(a: ErrorRange, b: ErrorRange) -> ErrorRange:
    size = a.size * b.size
    return ErrorRange.of(size, a.size * b.error + b.size * a.error + U * size)


def _square(a: ErrorRange) -> ErrorRange:
    return replace(_product(a, a), root=a.error + U * a.size)


def _function(name: str, a: ErrorRange, b: ErrorRange | None, traced: Floats) -> ErrorRange:
    """f of numbers within a and b; `traced`: how large its values were."""
    match name:
        case "product":
            assert b is not None
            return _product(a, b)
        case "relu2":
            return _square(a)
        case "copy":
            return a
        case "relu" | "abs":
            return ErrorRange.of(a.size, a.error)
        case "select":
            assert b is not None
            return a.either(ErrorRange(b.size[:-1], b.error[:-1], b.root[:-1]))
        case "tanh":
            return ErrorRange.of(np.minimum(a.size, 1.0), np.minimum(a.error, 1.0) + 4 * U)
        case "sigmoid":
            return ErrorRange.of(np.ones_like(a.size), np.minimum(a.error / 4, 1.0) + 4 * U)
        case "softplus":
            return ErrorRange.of(a.size + 1, a.error + 4 * U * (a.size + 1))
        case "sqrt":
            root = np.sqrt(a.size)
            near = np.minimum(a.error / np.maximum(traced, np.sqrt(a.error) + TINY), root)
            return ErrorRange.of(root, np.minimum(near, a.root) + U * root)
        case "unit" | "layer":
            size = np.ones_like(a.size) if b is None else np.maximum(1.0, b.size)
            return ErrorRange.of(size, 8 * U * size + (0.0 if b is None else b.error))
        case "exp":
            return ErrorRange.of(traced, traced * (np.minimum(a.error, 1.0) + 4 * U))
        case "reciprocal":
            return ErrorRange.of(traced, np.minimum(traced * a.error, 1.0) * traced + U * traced)
        case "log":
            return ErrorRange.of(traced, np.minimum(a.error, 1.0) + 4 * U * (1 + traced))
    raise AssertionError(f"no rule for {name}")


__all__ = ["Loss", "losses", "program_rounding"]
