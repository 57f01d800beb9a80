"""What a program promises its users, against the declarations of the spec: inputs, noise, streams, slots, outputs.

Nothing here is about numbers. A difference is a sentence; an empty list means that the two agree.
"""

from __future__ import annotations

from collections.abc import Iterator

from weftc.core import syntax as ast
from weftc.core.types import Checked, FieldType
from weftc.prover.induction.state import TokenCounts
from weftc_runtime.format.program import Embed, Input, Program


def differences(program: Program, checked: Checked, sizes: TokenCounts) -> list[str]:
    """Everything in which the declarations of a program are not those of its spec."""
    return [
        *_streams(program, checked, sizes),
        *_inputs(program, checked),
        *_embedding(program, checked),
        *_outputs(program, checked),
        *_writes(program, checked),
    ]


def _streams(program: Program, checked: Checked, sizes: TokenCounts) -> Iterator[str]:
    streams = {stream.name: stream for stream in program.streams}
    if set(streams) != set(checked.sets):
        yield f"streams {', '.join(streams)} for the sets {', '.join(checked.sets)}"
        return
    for name, stream in streams.items():
        if stream.size != sizes.size(name):
            yield f"stream {name} has {stream.size} tokens, the set {sizes.size(name)}"
        homes = {f.name for f in checked.fields.values() if f.home == name}
        held = {slot.name: slot for slot in stream.slots if slot.role == "field"}
        for slot in sorted(set(held) ^ homes):
            yield f"slot {slot} of {name} is not what the spec keeps there"
        for slot in sorted(set(held) & homes):
            if held[slot].width != sizes.width(checked.fields[slot]):
                yield f"slot {slot} of {name} has {held[slot].width} columns"


def _inputs(program: Program, checked: Checked) -> Iterator[str]:
    for role, given in (("input", program.inputs), ("random", program.noises)):
        wanted = {f.name: f for f in checked.fields.values() if f.role == role}
        if {one.name for one in given} != set(wanted):
            yield f"{role} fields {', '.join(one.name for one in given)}, not {', '.join(wanted)}"
            continue
        declared = {f.target.name: f for f in (*checked.spec.inputs, *checked.spec.random)}
        for one in given:
            if one != _declared(wanted[one.name], declared[one.name]):
                yield f"the input {one.name} has another contract than the spec declares"


def _declared(field: FieldType, written: ast.Field) -> Input:
    low, high = (field.bound.low, field.bound.high) if field.bound else (None, None)
    init = (written.init.kind, written.init.of) if written.init else None
    kind = "onehot" if field.kind == "symbol" else field.kind
    return Input(field.name, field.home, field.name, kind, low, high, init, field.symbols)


def _embedding(program: Program, checked: Checked) -> Iterator[str]:
    roles = {(stream.name, slot.name): slot.role for stream in program.streams for slot in stream.slots}
    places = [(embed.stream, embed.slot) for embed in program.embedding]
    if len(set(places)) != len(places):
        yield "a slot is embedded twice"
    fed = {one for one in program.embedding if one.kind in ("input", "noise")}
    kinds = {"input": "input", "random": "noise"}
    wanted = {
        Embed(kinds[f.role], f.home, f.name, f.name)  # type: ignore[arg-type]
        for f in checked.fields.values()
        if f.role in kinds
    }
    if fed != wanted:
        yield "the embedding does not put every input into its own slot"
    for embed in program.embedding:
        if embed.kind not in ("input", "noise") and roles[embed.stream, embed.slot] != "constant":
            yield f"the embedding fills {embed.slot} of {embed.stream}, which is no constant"


def _outputs(program: Program, checked: Checked) -> Iterator[str]:
    wanted = [output.target.name for output in checked.spec.outputs]
    if [output.name for output in program.outputs] != wanted:
        yield f"outputs {', '.join(o.name for o in program.outputs)}, not {', '.join(wanted)}"
        return
    for output in program.outputs:
        field = shown_field(checked, output.name)
        if field is None:
            if output.again is not None:
                yield f"the output {output.name} is an expression, but evaluated again by a step of the layer"
            continue
        shape = _shape(field)
        again = outdated(checked, field.name)
        if (output.kind, output.stream, output.slot, output.symbols) != (shape, field.home, field.name, field.symbols):
            yield f"the output {output.name} does not show the field {field.name}"
        if output.again is not None and again is None:
            yield f"the output {output.name} is evaluated again, though nothing it reads changes later"
        if output.again is None and again is not None:
            yield f"the output {output.name} is not evaluated again, though what it reads changes later"
    if not program.layer:
        yield "the program has no layer"
    if (program.objective is None) != (checked.spec.objective is None):
        yield "only one of program and spec states an objective"


def shown_field(checked: Checked, name: str) -> FieldType | None:
    """The field an output shows, or None for an expression."""
    field = checked.output_field(name)
    return checked.fields[field] if field is not None and field in checked.fields else None


def _shape(field: FieldType) -> str:
    if field.is_pair:
        return "onehot" if field.kind == "onehot" else "pair"
    if field.symbols:
        return "onehot"
    return "number" if field.width is None else "vector"


def outdated(checked: Checked, name: str) -> int | None:
    """The step whose equation for a field reads something that a later step writes: it is evaluated once more."""
    steps = checked.spec.steps
    for at in range(len(steps) - 1, -1, -1):
        for equation in steps[at].equations:
            if equation.target.name == name:
                later = {e.target.name for step in steps[at + 1 :] for e in step.equations}
                return at if later & _read(checked, equation.body) else None
    return None


def _read(checked: Checked, body: ast.Expr) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(body):
        if isinstance(node, ast.Ref):
            if node.name in checked.lets:
                found |= _read(checked, checked.lets[node.name].body)
            found.add(node.name)
    return found


def _writes(program: Program, checked: Checked) -> Iterator[str]:
    """Which fields the steps say they set: the runtime believes it."""
    starts = {(checked.fields[f.target.name].home, f.target.name) for f in checked.spec.state}
    said = {place for step in program.prelude for place in step.writes if _is_field(program, place)}
    if said != starts:
        yield "the prelude does not say that it sets exactly the state"
    steps = checked.spec.steps
    if len(program.layer) % len(steps) == 0:
        for number, step in enumerate(program.layer):
            equations = steps[number % len(steps)].equations
            wanted = {(checked.fields[e.target.name].home, e.target.name) for e in equations}
            if {place for place in step.writes if _is_field(program, place)} != wanted:
                yield f"layer.{number} does not say that it sets {', '.join(sorted(name for _, name in wanted))}"


def _is_field(program: Program, place: tuple[str, str]) -> bool:
    return program.stream(place[0]).slot(place[1]).role == "field"


__all__ = ["differences", "outdated", "shown_field"]
