"""Changed copies of a model: any number in any tensor, any field of any part of the program, sizes, parameters, text.

Nothing here knows a spec, and no field is named: the program is walked as the tree of dataclasses it is, and what may
stand at a place follows from its declared type and from what stands at the same place elsewhere in the program. Every
mutant is drawn from a random generator, so that a seed and a number name it.
"""

from __future__ import annotations

import random
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from weftc_runtime import Checkpoint, WeftRuntimeError
from weftc_runtime.format.program import (
    FFN,
    Attend,
    Head,
    Mask,
    Part,
    Program,
    ProgramStep,
    Score,
    SelfKey,
    Stream,
    Weighting,
)
from weftc_runtime.format.writes import stated

Path = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A changed model, and what was changed."""

    model: Checkpoint
    change: str
    kind: str


def mutant(made: Checkpoint, rng: random.Random, kind: str | None = None) -> Mutant | None:
    """One changed copy; None where the draw does not fit this model."""
    kind = kind or rng.choices(tuple(KINDS), WEIGHTS)[0]
    found = KINDS[kind](made, rng)
    if found is None:
        return None
    model, change = found
    more = KINDS["tensor"](model, rng) if kind != "tensor" and rng.random() < 0.1 else None
    if more is not None:  # two changes may hide each other
        model, change = more[0], f"{change}; {more[1]}"
    return Mutant(model, change, kind)


def file(changed: Checkpoint, says: bool) -> Checkpoint | None:
    """The mutant as it comes back from its file; None where that is refused. `says`: what its matrices change."""
    try:
        program = stated(changed.program, changed.tensors) if says else changed.program
        return Checkpoint.from_bytes(replace(changed, program=program).to_bytes())
    except WeftRuntimeError:
        return None
    except (KeyError, IndexError, StopIteration, ValueError, TypeError, AttributeError):
        return None  # `to_bytes` and `stated` are given programs that no reader would let pass


# ---- tensors ---------------------------------------------------------------------------------------------------------


def changed_tensor(made: Checkpoint, rng: random.Random) -> tuple[Checkpoint, str] | None:
    """A number flipped, scaled, cleared, moved by an ulp or a little, copied, or two of them exchanged; rows too."""
    names = sorted(made.tensors)
    if not names:
        return None
    name = rng.choice(names)
    array = np.array(made.tensors[name], dtype=np.float64)
    flat = array.reshape(-1)
    busy = np.flatnonzero(flat)
    at = int(rng.choice(busy)) if len(busy) and rng.random() < 0.6 else rng.randrange(flat.size)
    old = float(flat[at])
    how = rng.choice(("flip", "scale", "clear", "ulp", "tiny", "small", "one", "swap", "rows", "columns", "all"))
    match how:
        case "flip":
            flat[at] = -old
        case "scale":
            flat[at] = old * rng.choice((0.5, 1.5, 2.0, 3.0))
        case "clear":
            flat[at] = 0.0
        case "ulp":
            flat[at] = float(np.nextafter(old, rng.choice((-np.inf, np.inf))))
        case "tiny":
            flat[at] = old + rng.choice((1e-13, -1e-15, 3e-13, 1e-300))
        case "small":
            flat[at] = old + rng.choice((1e-3, -1e-5, 1e-7, 1e-9))
        case "one":
            flat[at] = rng.choice((1.0, -1.0, 0.25, -0.5, 2.0))
        case "swap":
            other = rng.randrange(flat.size)
            flat[at], flat[other] = flat[other], old
        case "all":
            flat *= rng.choice((-1.0, 0.0, 2.0, 0.5))
        case _:
            if array.ndim < 2:
                return None
            turned = array if how == "rows" else array.T
            i, j = rng.randrange(len(turned)), rng.randrange(len(turned))
            turned[[i, j]] = turned[[j, i]]
    if np.array_equal(array, made.tensors[name]):
        return None
    text = f"{name}: {how} at {[int(axis) for axis in np.unravel_index(at, array.shape)]}, {old!r} -> {flat[at]!r}"
    return replace(made, tensors={**made.tensors, name: array}), text


# ---- programs --------------------------------------------------------------------------------------------------------


@cache
def hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def places(value: Any, hint: Any, path: Path = ()) -> Iterator[tuple[Path, Any, Any]]:
    """Every place in a tree of dataclasses, tuples and mappings: path, what stands there, what may."""
    if path:
        yield path, value, hint
    if is_dataclass(value) and not isinstance(value, type):
        for one in fields(value):
            yield from places(getattr(value, one.name), hints(type(value))[one.name], (*path, one.name))
    elif isinstance(value, tuple) and value:
        inner = typing.get_args(_plain(hint, tuple))
        for at, one in enumerate(value):
            yield from places(one, inner[0] if inner[-1] is Ellipsis else inner[at], (*path, at))
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from places(one, str, (*path, key))


def _plain(hint: Any, kind: type) -> Any:
    """The member of a union that is of this kind."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return next((one for one in typing.get_args(hint) if (typing.get_origin(one) or one) is kind), hint)
    return hint


def placed(value: Any, path: Path, new: Any) -> Any:
    """The tree with something else at a place."""
    if not path:
        return new
    first, rest = path[0], path[1:]
    if isinstance(value, tuple):
        return (*value[:first], placed(value[first], rest, new), *value[first + 1 :])
    if isinstance(value, Mapping):
        return {**value, first: placed(value[first], rest, new)}
    return replace(value, **{first: placed(getattr(value, first), rest, new)})


def changed_program(made: Checkpoint, rng: random.Random) -> tuple[Checkpoint, str] | None:
    """One place of the program changed."""
    program = made.program
    every = list(places(program, Program))
    path, value, hint = rng.choice(every)
    options = list(_others(value, hint, _elsewhere(every, path), made, rng))
    options = [one for one in options if one != value]
    if not options:
        return None
    new = rng.choice(options)
    changed = placed(program, path, new)
    text = f"{'.'.join(map(str, path))}: {_short(value)} -> {_short(new)}"
    return _with_tensors(made, changed), text


def _with_tensors(made: Checkpoint, program: Program) -> Checkpoint:
    """The tensors that a program uses, as far as there are such."""
    try:
        used = program.tensors()
    except (StopIteration, KeyError, AttributeError, ValueError, TypeError):
        used = dict.fromkeys(made.tensors, ())
    tensors = {name: array for name, array in made.tensors.items() if name in used}
    return replace(made, program=program, tensors=tensors)


def _elsewhere(every: list[tuple[Path, Any, Any]], path: Path) -> list[Any]:
    """What stands in the same field of other parts of the program."""
    last = next((part for part in reversed(path) if isinstance(part, str)), "")
    found = [v for p, v, _ in every if next((part for part in reversed(p) if isinstance(part, str)), "") == last]
    return [v for v in found if not isinstance(v, dict)]


def _others(value: Any, hint: Any, pool: list[Any], made: Checkpoint, rng: random.Random) -> Iterator[Any]:
    """What else may stand at a place."""
    literal = _plain_literal(hint)
    yield from literal
    same = [one for one in pool if type(one) is type(value) or one is None or value is None]
    if same:
        yield rng.choice(same)
    match value:
        case bool():
            yield not value
        case int():
            yield from (value + 1, value - 1, 0, -value)
        case Fraction():
            yield from (value / 2, value + Fraction(1, 1024), -value, Fraction(0))
        case float():
            yield from (-value, value / 2, value + 1, float(np.nextafter(value, np.inf)), 0.0)
        case str() if not literal:
            shape = np.shape(made.tensors[value]) if value in made.tensors else None
            alike = [name for name, array in made.tensors.items() if np.shape(array) == shape]
            yield from rng.sample(alike, min(3, len(alike)))
            yield ""
        case tuple() if value:
            at, other = rng.randrange(len(value)), rng.randrange(len(value))
            yield (*value[:at], *value[at + 1 :])
            yield (*value, value[at])
            swapped = list(value)
            swapped[at], swapped[other] = swapped[other], swapped[at]
            yield tuple(swapped)
        case Mapping():
            for key in value:
                yield {name: one for name, one in value.items() if name != key}
        case None if "SelfKey" in str(hint):
            rows = [name for name, array in made.tensors.items() if np.ndim(array) == 1]
            squares = [name for name, array in made.tensors.items() if len({*np.shape(array)}) == 1]
            for row in (None, *rng.sample(rows, min(2, len(rows)))):
                yield SelfKey(rng.choice(["", *squares]), row)
        case None if "int" in str(hint):
            yield from (0, 1)
        case None if "Fraction" in str(hint):
            yield Fraction(rng.choice((1, 50, 90)))


def _plain_literal(hint: Any) -> tuple[Any, ...]:
    if typing.get_origin(hint) is typing.Literal:
        return typing.get_args(hint)
    return tuple(one for part in typing.get_args(hint) for one in _plain_literal(part) if hint is not None)


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) < 160 else text[:157] + "..."


# ---- what stands beside the program ----------------------------------------------------------------------------------


def changed_sizes(made: Checkpoint, rng: random.Random) -> tuple[Checkpoint, str] | None:
    """Another dimension or parameter than the weights were made for."""
    named = [("dims", name) for name in made.dims] + [("params", name) for name in made.params]
    if not named:
        return None
    part, name = rng.choice(named)
    old = getattr(made, part)[name]
    new = old + rng.choice((1, -1)) if part == "dims" else old * rng.choice((2.0, 0.5, -1.0, 1 + 2.0**-52))
    changed: Any = {part: {**getattr(made, part), name: new}}
    return replace(made, **changed), f"{part} {name}: {old} -> {new}"


SWAPS = (
    (" + ", " - "),
    (" - ", " + "),
    (" * ", " / "),
    (" / ", " * "),
    ("2", "3"),
    ("1", "2"),
    ("0", "1"),
    ("argmin", "argmax"),
    ("argmax", "argmin"),
    ("softmax", "sparsemax"),
    ("min[", "max["),
    ("max[", "min["),
    ("mean[", "sum["),
    ("sum[", "mean["),
    ("lowest", "highest"),
    ("ties split", "ties first"),
    (" else ", " + "),
    (" where ", " weighted "),
    (" weighted ", " where "),
    ("|^2", "|"),
    ("unit ", ""),
    (": R", ": unit R"),
    (": R", ": R > 0"),
    (" > 0", " >= 0"),
    (" <= ", " < "),
    (" < ", " <= "),
    ("logsumexp", "max"),
    ("exp(", "log("),
    ("log(", "exp("),
    ("sqrt(", "exp("),
)
NAME = re.compile(r"\b[A-Za-z_]\w*\b")


def changed_text(made: Checkpoint, rng: random.Random) -> tuple[Checkpoint, str] | None:
    """The spec inside the file says something else: an operator, a number, or a name in place of another."""
    body = made.spec_text.split("\nexample")[0]
    plain = re.sub(r"#.*|\"[^\"]*\"", lambda found: " " * len(found.group()), body)
    if rng.random() < 0.3:
        found = list(NAME.finditer(plain))
        one, other = rng.choice(found), rng.choice(found)
        old, new, at = one.group(), other.group(), one.start()
    else:
        old, new = rng.choice(SWAPS)
        where = [found.start() for found in re.finditer(re.escape(old), plain)]
        if not where:
            return None
        at = rng.choice(where)
    if old == new:
        return None
    text = body[:at] + new + body[at + len(old) :]
    return replace(made, spec_text=text), f"text {old!r} -> {new!r} at {at}"


# ---- sub-layers that were not there ----------------------------------------------------------------------------------

RULES = (
    *(Weighting("argmax", ties=ties) for ties in ("first", "split")),
    Weighting("argmax", ties="within", epsilon=Fraction(1, 4)),
    *(Weighting("top", count=count) for count in (1, 2)),
    Weighting("top", percent=Fraction(50)),
    Weighting("normmax", gamma=Fraction(1)),
    *(Weighting(kind) for kind in ("softmax", "sparsemax", "normalize", "sum", "exp")),
)


def added_head(made: Checkpoint, rng: random.Random) -> tuple[Checkpoint, str] | None:
    """One head more, any weighting, mask and self key: its value is zero, what the carry takes away, or a constant."""
    found = _place(made, rng)
    if found is None:
        return None
    path, attend = found
    streams = made.program.streams
    query, keys = rng.choice(streams), rng.choice(streams)
    tensors: dict[str, np.ndarray] = {}

    def row(stream: Stream, name: str) -> str:
        vector = np.zeros((1, stream.width))
        for _ in range(rng.choice((0, 1, 1, 2))):
            vector[0, rng.randrange(stream.width)] = rng.choice((1.0, -1.0, 0.125, -0.125, 2.0))
        tensors[name] = vector
        return name

    def score(name: str) -> Score:
        parts = []
        for at in range(rng.choice((0, 1, 1, 2))):
            q, k = row(query, f"{name}.q{at}"), row(keys, f"{name}.k{at}")
            if rng.random() < 0.5:
                parts.append(Part("dot", q, k))
            else:
                tensors[f"{name}.c{at}"] = np.array(rng.choice((1.0, -1.0)))
                parts.append(Part("l2", q, k, f"{name}.c{at}"))
        return Score(tuple(parts))

    masks = []
    for at in range(rng.choice((0, 0, 1, 1, 2))):
        op = rng.choice((">", ">=", "<", "<=", "other") if query is keys else (">", ">=", "<", "<="))
        masks.append(Mask(op, Score() if op == "other" else score(f"new.m{at}")))  # type: ignore[arg-type]
    ones = {stream.name: _constants(made, stream) for stream in (query, keys)}
    value, carry = np.zeros((query.width, keys.width)), None
    how = rng.choice(("zero", "zero", "one", "taken"))
    if how != "zero" and ones[query.name] and ones[keys.name]:
        target = rng.choice(ones[query.name]) if how == "one" else rng.randrange(query.width)
        name = attend.carry.get(query.name)
        carry = np.eye(query.width) if name is None else np.array(made.tensors[name])
        value[target, rng.choice(ones[keys.name])] = 1
        if how == "one":
            carry[target] = 0
        else:
            carry[target, rng.choice(ones[query.name])] -= 1
    own = None
    if rng.random() < 0.6:
        kept = np.zeros((query.width, query.width))
        if ones[query.name] and value.any() and rng.random() < 0.5:
            kept[int(np.flatnonzero(value.any(1))[0]), ones[query.name][0]] = 1
            tensors["new.own"] = kept
        competes = rng.random() < 0.6
        own = SelfKey("new.own" if kept.any() else "", row(query, "new.row") if competes else None)
        if competes:
            tensors["new.row"] = tensors["new.row"][0]
    tensors["new.v"] = value
    head = Head("new", query.name, keys.name, score("new.s"), rng.choice(RULES), "new.v", tuple(masks), own)
    if carry is not None:
        tensors["new.carry"] = carry
        attend = replace(attend, carry={**attend.carry, query.name: "new.carry"})
    program = placed(made.program, path, replace(attend, heads=(*attend.heads, head)))
    text = f"{'.'.join(map(str, path))}: a head {query.name} <- {keys.name}, {head.weighting.kind}, value {how}"
    return _with_tensors(replace(made, tensors={**made.tensors, **tensors}), program), text


def added_feed_forward(made: Checkpoint, rng: random.Random) -> tuple[Checkpoint, str] | None:
    """One feed-forward more: it adds nothing, but has no value everywhere; or it multiplies by what is 1."""
    found = _place(made, rng)
    if found is None:
        return None
    path, _ = found
    stream = rng.choice(made.program.streams)
    function = rng.choice(("reciprocal", "log", "sqrt", "unit", "layer", "exp", "product"))
    a = np.zeros((1, stream.width))
    a[0, rng.randrange(stream.width)] = rng.choice((1.0, -1.0))
    out = np.zeros((stream.width, 1))
    if function == "product":
        out[rng.randrange(stream.width), 0] = rng.choice((0.0, 1.0))
    ffn = FFN(stream.name, function, "new.keep", "new.a", "new.a" if function == "product" else None, "new.out", ())  # type: ignore[arg-type]
    step: ProgramStep = getattr(made.program, path[0])[path[1]]
    program = placed(made.program, path[:2], replace(step, sublayers=(*step.sublayers, ffn)))
    tensors = {**made.tensors, "new.keep": np.eye(stream.width), "new.a": a, "new.out": out}
    text = f"{'.'.join(map(str, path[:2]))}: {function} of {stream.name}"
    return _with_tensors(replace(made, tensors=tensors), program), text


def _place(made: Checkpoint, rng: random.Random) -> tuple[Path, Attend] | None:
    """An attention sub-layer of a step."""
    every = [(path, value) for path, value, _ in places(made.program, Program) if isinstance(value, Attend)]
    return rng.choice(every) if every else None


def _constants(made: Checkpoint, stream: Stream) -> list[int]:
    """The columns of a stream that hold 1."""
    slots = {one.slot for one in made.program.embedding if one.kind == "one" and one.stream == stream.name}
    return [slot.offset for slot in stream.slots if slot.name in slots]


KINDS: dict[str, Callable[[Checkpoint, random.Random], tuple[Checkpoint, str] | None]] = {
    "tensor": changed_tensor,
    "program": changed_program,
    "sizes": changed_sizes,
    "text": changed_text,
    "head": added_head,
    "feed-forward": added_feed_forward,
}
WEIGHTS = (32, 36, 3, 11, 12, 6)
