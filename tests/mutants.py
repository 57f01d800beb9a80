"""Changed copies of a model that still load: weights flipped, scaled, cleared, moved by an ulp; other wiring.

Every mutant comes with a description, so that those which compute the same function can be listed with the reason.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from weft.evidence.inputs import Case, cases
from weft.types import Checked
from weft_runtime import Checkpoint, Model, WeftRuntimeError, load
from weft_runtime.ir import FFN, Attend, Head, Program, SelfKey, Step, Stream
from weft_runtime.touched import stated


@dataclass(frozen=True, slots=True)
class Mutant:
    """A changed model, what was changed, and the kind of change: the use of the tensor and the roles it connects."""

    model: Checkpoint
    change: str
    kind: tuple[str, ...]


# ---- weights ---------------------------------------------------------------------------------------------------------


def weight_mutants(made: Checkpoint, seed: int, count: int | None = None) -> Iterator[Mutant]:
    """Every entry changed in several ways, or a sample of them."""
    changes = []
    for name, array in made.tensors.items():
        flat = np.ravel(array)
        for at, value in enumerate(flat.tolist()):
            new = [-value, 1.5 * value, 0.0, float(np.nextafter(value, np.inf))] if value else [1.0, -0.25]
            changes += [(name, at, value, one) for one in new]
            other = (at + 1) % flat.size
            if flat[other] != value:
                changes.append((name, at, value, None))
    if count is not None:
        random.Random(seed).shuffle(changes)
        # half of the sample among the entries that are not zero: most are
        busy = [change for change in changes if change[2]]
        changes = busy[: count // 2] + [change for change in changes if not change[2]][: count - count // 2]
    for name, at, value, new in changes:
        array = np.array(made.tensors[name], dtype=np.float64)
        flat = array.reshape(-1)
        if new is None:
            other = (at + 1) % flat.size
            flat[at], flat[other] = flat[other], flat[at]
        else:
            flat[at] = new
        place = [int(axis) for axis in np.unravel_index(at, array.shape)]
        text = f"{name}{place}: {value:g} -> {'swapped with the next' if new is None else repr(new)}"
        yield Mutant(replace(made, tensors={**made.tensors, name: array}), text, _roles(made, name, place))


def _roles(made: Checkpoint, name: str, place: list[int]) -> tuple[str, ...]:
    """The use of a tensor, and the roles of the slots that an entry connects."""
    where = made.program.tensors()[name][0].where
    use = next(word for word in reversed(where.split(".")) if word in USES)
    if "masks" in where:
        use = f"mask {use}"
    found = []
    for axis, size in enumerate(made.tensors[name].shape):
        roles = {
            slot.role
            for stream in made.program.streams
            if stream.width == size
            for slot in stream.slots
            if slot.offset <= place[axis] < slot.offset + slot.width
        }
        found.append("|".join(sorted(roles)) or "feature")
    return (use, *found)


USES = ("q", "k", "value", "row", "carry", "a", "b", "out", "coefficient", "scale", "basis")


# ---- wiring ----------------------------------------------------------------------------------------------------------


def wiring_mutants(made: Checkpoint) -> Iterator[Mutant]:
    """The program changed in one place."""
    program = made.program
    for text, changed in _programs(program):
        used = changed.tensors()
        tensors = {name: array for name, array in made.tensors.items() if name in used}
        yield Mutant(replace(made, program=changed, tensors=tensors), text, ("wiring", text.split(":")[0]))


def _programs(program: Program) -> Iterator[tuple[str, Program]]:
    for part in ("prelude", "layer", "readout"):
        steps: tuple[Step, ...] = getattr(program, part)
        for at, step in enumerate(steps):
            for text, changed in _steps(program, step):
                yield f"{text} ({part}.{at})", replace(program, **{part: (*steps[:at], changed, *steps[at + 1 :])})
            if at + 1 < len(steps):
                swapped = (*steps[:at], steps[at + 1], step, *steps[at + 2 :])
                yield f"steps swapped: {part}.{at}", replace(program, **{part: swapped})
            yield f"step left out: {part}.{at}", replace(program, **{part: (*steps[:at], *steps[at + 1 :])})
    for at, stream in enumerate(program.streams):
        for text, changed_stream in _streams(stream):
            streams = (*program.streams[:at], changed_stream, *program.streams[at + 1 :])
            yield text, replace(program, streams=streams)
    for at, embed in enumerate(program.embedding):
        kinds = {"one": "position", "position": "one", "count": "one"}
        if embed.kind in kinds:
            changed_embed = replace(embed, kind=kinds[embed.kind], source="")  # type: ignore[arg-type]
            embedding = (*program.embedding[:at], changed_embed, *program.embedding[at + 1 :])
            yield f"embedding: {embed.slot} of {embed.stream}", replace(program, embedding=embedding)
    for at, output in enumerate(program.outputs):
        for field, value in (("again", None if output.again is not None else 0),):
            changed_output = replace(output, **{field: value})
            yield (
                f"output {field}: {output.name}",
                replace(program, outputs=(*program.outputs[:at], changed_output, *program.outputs[at + 1 :])),
            )
    for at, given in enumerate(program.inputs):
        changed_input = replace(given, low=(0.0, True))
        yield (
            f"contract: {given.name}",
            replace(program, inputs=(*program.inputs[:at], changed_input, *program.inputs[at + 1 :])),
        )
    if program.objective is not None:
        kind = "common" if program.objective.kind == "total" else "total"
        yield "objective: kind", replace(program, objective=replace(program.objective, kind=kind))
    if program.conditions:
        yield "condition: left out", replace(program, conditions=())


def _streams(stream: Stream) -> Iterator[tuple[str, Stream]]:
    for at, ffn in enumerate(stream.derived):
        for text, changed in _ffns(ffn):
            derived = (*stream.derived[:at], changed, *stream.derived[at + 1 :])
            yield f"derived {text}", replace(stream, derived=derived)
        yield (
            f"derived left out: {ffn.writes}",
            replace(stream, derived=(*stream.derived[:at], *stream.derived[at + 1 :])),
        )


def _ffns(ffn: FFN) -> Iterator[tuple[str, FFN]]:
    for function in ("copy", "relu", "reciprocal", "unit"):
        if function != ffn.function and ffn.b is None:
            yield f"function: {ffn.function} -> {function} of {ffn.writes}", replace(ffn, function=function)
    if ffn.function == "product":
        yield f"function: product -> unit of {ffn.writes}", replace(ffn, function="unit")
    if ffn.function == "unit":
        yield f"function: unit -> layer of {ffn.writes}", replace(ffn, function="layer")


def _steps(program: Program, step: Step) -> Iterator[tuple[str, Step]]:
    subs = step.sublayers
    for at, sub in enumerate(subs):
        yield f"sub-layer left out: {at}", replace(step, sublayers=(*subs[:at], *subs[at + 1 :]))
        variants = _attends(program, sub) if isinstance(sub, Attend) else _ffns(sub)
        for text, changed in variants:
            yield text, replace(step, sublayers=(*subs[:at], changed, *subs[at + 1 :]))


def _attends(program: Program, attend: Attend) -> Iterator[tuple[str, Attend]]:
    heads = attend.heads
    for at, head in enumerate(heads):
        yield f"head left out: {head.name}", replace(attend, heads=(*heads[:at], *heads[at + 1 :]))
        for text, changed in _heads(program, head):
            yield f"{text} of {head.name}", replace(attend, heads=(*heads[:at], changed, *heads[at + 1 :]))


def _heads(program: Program, head: Head) -> Iterator[tuple[str, Head]]:
    rule = head.weighting
    kinds = ["argmax", "softmax", "sparsemax", "normalize", "sum", "exp"]
    if rule.kind not in ("lse", "max"):
        for kind in kinds:
            if kind != rule.kind:
                changed: Any = replace(rule, kind=kind, count=None, percent=None, gamma=None)
                yield f"weighting: {rule.kind} -> {kind}", replace(head, weighting=changed)
    else:
        yield "weighting: number", replace(head, weighting=replace(rule, kind="max" if rule.kind == "lse" else "lse"))
    if rule.kind == "argmax":
        other = "split" if rule.ties == "first" else "first"
        yield f"ties: {rule.ties} -> {other}", replace(head, weighting=replace(rule, ties=other))
    if rule.percent is not None:
        yield "percent: halved", replace(head, weighting=replace(rule, percent=rule.percent / 2))
    if rule.count is not None:
        yield "count: one more", replace(head, weighting=replace(rule, count=rule.count + 1))
    if rule.gamma is not None:
        yield "gamma: more", replace(head, weighting=replace(rule, gamma=rule.gamma + Fraction(1, 1024)))
    for at, part in enumerate(head.score.parts):
        less = replace(head.score, parts=(*head.score.parts[:at], *head.score.parts[at + 1 :]))
        yield f"score part left out: {at}", replace(head, score=less)
        if part.scale is not None:
            bare = replace(part, scale=None)
            parts = (*head.score.parts[:at], bare, *head.score.parts[at + 1 :])
            yield f"scale left out: {at}", replace(head, score=replace(head.score, parts=parts))
    for at, mask in enumerate(head.masks):
        yield f"mask left out: {at}", replace(head, masks=(*head.masks[:at], *head.masks[at + 1 :]))
        flipped = {">": "<", ">=": "<=", "<": ">", "<=": ">="}.get(mask.op)
        if flipped is not None:
            turned: Any = replace(mask, op=flipped)
            yield f"mask turned: {at}", replace(head, masks=(*head.masks[:at], turned, *head.masks[at + 1 :]))
            edge: Any = replace(mask, op=f"{mask.op}=" if len(mask.op) == 1 else mask.op[0])
            yield f"mask edge: {at}", replace(head, masks=(*head.masks[:at], edge, *head.masks[at + 1 :]))
    if head.self_key is not None:
        yield "self key: left out", replace(head, self_key=None)
        yield "self key: without value", replace(head, self_key=SelfKey("", head.self_key.row))


# ---- what a mutant computes ------------------------------------------------------------------------------------------


def loads(mutant: Mutant) -> Checkpoint | None:
    """The mutant as it comes back from a file that says what its matrices change; None where the file is refused."""
    model = mutant.model
    try:
        return Checkpoint.from_bytes(replace(model, program=stated(model.program, model.tensors)).to_bytes())
    except WeftRuntimeError:
        return None


# Cases on which rounding stays small: centring the data changes nothing in exact arithmetic, but much at an offset.
GENTLE = ("random", "exact ties on a grid", "positive", "abandoned rows")


class Behaviour:
    """What a model answers on a few cases."""

    def __init__(self, checked: Checked, made: Checkpoint, count: int = 4) -> None:
        self.cases = list(cases(checked, made.dims, count, 7, families=GENTLE))
        self.wanted = self._answers(made)

    def same(self, other: Checkpoint) -> bool:
        """Whether another model gives the same answers, up to rounding."""
        for found, wanted in zip(self._answers(other), self.wanted, strict=True):
            if found is None or wanted is None:
                if found is not wanted:
                    return False
                continue
            for name, value in wanted.items():
                scale = float(np.max(np.abs(value), initial=1.0))
                if value.shape != found[name].shape or not np.allclose(found[name], value, rtol=0, atol=1e-9 * scale):
                    return False
        return True

    def _answers(self, made: Checkpoint) -> list[dict[str, np.ndarray] | None]:
        """Outputs after two layers, some evaluated again at the end, and the objective; None where it refuses."""
        model = load(made, backend="reference")
        return [self._answer(model, case) for case in self.cases]

    def _answer(self, model: Model, case: Case) -> dict[str, np.ndarray] | None:
        try:
            options: dict[str, Any] = {"layers": 2, "seed": case.seed}
            found = {key: _array(value) for key, value in model.final(dict(case.inputs), **options).items()}
            if model.program.objective is not None:
                found["the objective"] = _array(model.objective(dict(case.inputs), **options))
        except WeftRuntimeError:
            return None
        return found


def _array(value: Any) -> np.ndarray:
    dense = value.dense() if hasattr(value, "dense") else value
    return np.asarray(dense.detach().numpy() if hasattr(dense, "detach") else dense)
