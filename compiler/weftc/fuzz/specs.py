"""A seed and a number -> a random well-typed spec: token sets, inputs, state, noise, parameters, steps, outputs.

Equations are drawn one at a time and kept if the checker accepts the spec with them; where it says that a value may be
undefined, an `else` is tried. So everything that comes out means something, and nothing is known about it beforehand.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random
from typing import Literal

from weftc.core.errors import WeftError
from weftc.core.source import NOWHERE, Source
from weftc.core.syntax import (
    Dimension,
    Else,
    Equation,
    Expr,
    Field,
    Init,
    Let,
    Output,
    Param,
    ParamBound,
    Phase,
    Ref,
    Spec,
    Step,
    TokenSet,
    TypeClause,
    Weigh,
)
from weftc.core.types import Checked, FieldType
from weftc.core.unparse import written
from weftc.fuzz.expressions import RandomExpressions, binary, num
from weftc.fuzz.hostile_names import hostile
from weftc.fuzz.motifs import with_motif
from weftc.fuzz.vocabulary import COUNTED, SHARE, Vocabulary
from weftc.language.check.check import check
from weftc.language.check.problems import Problems
from weftc.language.parse.globals import with_globals
from weftc.language.parse.parse import parse
from weftc.language.parse.phases import with_phases

ATTEMPTS = 12  # equations drawn before a step stays as it is
MOTIF = 0.3  # of specs with one piece of text that is no expression
PHASES = 0.25  # of the specs of several steps are tried as two phases
HOSTILE = 0.35  # of the specs have names that are easily confused
COMPUTED = ("y", "p", "r", "t", "b", "f")  # names for fields that equations introduce


@dataclass(frozen=True, slots=True)
class Drawn:
    """A spec that the checker accepts, and sizes for its dimensions."""

    checked: Checked
    dims: dict[str, int]

    @property
    def text(self) -> str:
        return self.checked.spec.source.text


def draw(seed: int, number: int) -> Drawn:
    """The spec with this number."""
    rng = Random(f"{seed}/{number}")
    spec = _header(rng)
    checked = accepted(spec)
    assert checked is not None, written(spec)
    spec, readable = replace(spec, steps=(), outputs=()), _given(checked)
    depth = rng.choice((1, 1, 2, 2, 3))
    if rng.random() < 0.4:
        spec, readable = _with_members(rng, spec, readable)
    for _ in range(rng.choice((1, 1, 2, 2, 3))):
        spec, readable = _with_step(rng, spec, readable, depth)
    if not spec.steps:
        spec = replace(spec, steps=(_idle(spec),))
    spec = _in_phases(Random(f"{seed}/{number}/phases"), spec)
    spec = _with_answers(rng, replace(spec, outputs=_shown(spec)))
    text = written(spec)
    final = check(parse(Source("fuzz", text)))
    extra = Random(f"{seed}/{number}/motif")
    if extra.random() < MOTIF:
        with suppress(WeftError):  # such as a unit vector where a part asks for none
            final = check(parse(Source("fuzz", with_motif(extra, text))))
    widths = {str(f.type.width) for f in (*spec.inputs, *spec.state) if isinstance(f.type.width, str)}
    dims = {name: rng.choice((1, 2, 2, 3) if name in widths else (1, 2, 3, 3, 4)) for name in final.dims}
    return _under_other_names(rng, Drawn(final, dims)) if rng.random() < HOSTILE else Drawn(final, dims)


def _in_phases(rng: Random, spec: Spec) -> Spec:
    """Some specs of several steps in two phases, where what one computes is not read by the other."""
    if len(spec.steps) < 2 or rng.random() > PHASES:
        return spec
    cut = rng.randrange(1, len(spec.steps))
    warm = Phase(NOWHERE, "warm", rng.choice((1, 2)), spec.steps[:cut])
    main = Phase(NOWHERE, "main", None, spec.steps[cut:])
    try:
        joined = with_phases(replace(spec, steps=(), phases=(warm, main)), Problems(spec.source))
    except WeftError:
        return spec
    return joined if accepted(joined) is not None else spec


def _under_other_names(rng: Random, drawn: Drawn) -> Drawn:
    """The same spec under hostile names, where the checker takes them."""
    text, names = hostile(rng, drawn.checked)
    try:
        checked = check(parse(Source("fuzz", text)))
    except WeftError:
        return drawn
    return Drawn(checked, {names.get(name, name): size for name, size in drawn.dims.items()})


def accepted(spec: Spec) -> Checked | None:
    """The checked spec, or None if the checker refuses it. Without steps or outputs it is completed first."""
    if not spec.steps:
        spec = replace(spec, steps=(_idle(spec),))
    if not spec.outputs:
        spec = replace(spec, outputs=_shown(spec))
    try:
        return check(with_globals(spec))
    except WeftError:
        return None


def _idle(spec: Spec) -> Step:
    """A step that changes nothing."""
    target = next(f.target for f in (*spec.state, *spec.inputs))
    return Step(NOWHERE, (Equation(NOWHERE, target, target),))


def _given(checked: Checked) -> frozenset[str]:
    return frozenset(name for name, one in checked.fields.items() if one.role != "computed")


def _equations(spec: Spec) -> Iterator[Equation]:
    return (equation for step in spec.steps for equation in step.equations)


def _shown(spec: Spec) -> tuple[Output, ...]:
    names = dict.fromkeys(equation.target.name for equation in _equations(spec))
    return tuple(Output(NOWHERE, Ref(NOWHERE, name, ()), Ref(NOWHERE, name, ())) for name in names)


# ---- declarations ----------------------------------------------------------------------------------------------------


def _header(rng: Random) -> Spec:
    """Everything before the layer."""
    sets = [TokenSet(NOWHERE, ("i", "l"), "points", None)]
    second = rng.random()
    if second < 0.8:
        sets.append(TokenSet(NOWHERE, ("j", "h"), "centers", rng.choice(("k", "k", 3))))
    if second > 0.6:
        sets.append(TokenSet(NOWHERE, ("q", "w"), "others", None))
    if rng.random() < 0.2:
        sets.append(TokenSet(NOWHERE, ("a", "o"), "coordinates", "d"))
    inputs = list(_inputs(rng, sets))
    fixed = [one for one in sets if one.size is not None]
    states = [
        Field(
            NOWHERE,
            Ref(NOWHERE, f"s{n}", (one.indices[0],)),
            TypeClause(NOWHERE, "number"),
            start=num(rng.choice((0.0, 1.0, 2.0))),
        )
        for n, one in enumerate(sets)
        if rng.random() < 0.5
    ]
    if rng.random() < 0.25:  # what belongs to no token
        bound = ParamBound(NOWHERE, (0.0, True), None) if rng.random() < 0.7 else None
        inputs.append(Field(NOWHERE, Ref(NOWHERE, "T", ()), TypeClause(NOWHERE, "number"), bound))
        inputs.append(Field(NOWHERE, Ref(NOWHERE, "b0", ()), TypeClause(NOWHERE, "vector", "d")))
        states.append(Field(NOWHERE, Ref(NOWHERE, "n0", ()), TypeClause(NOWHERE, "number"), start=num(1.0)))
    noise = []
    if rng.random() < 0.25:
        pair = (sets[0].indices[0], fixed[0].indices[0]) if fixed and rng.random() < 0.7 else (sets[0].indices[0],)
        noise.append(
            Field(NOWHERE, Ref(NOWHERE, "g", pair), TypeClause(NOWHERE, rng.choice(("gumbel", "normal", "uniform"))))
        )
    above = ParamBound(NOWHERE, (0.0, True), None)
    params = (
        Param(NOWHERE, "gamma", num(rng.choice((0.5, 1.0, 2.0, 0.3))), above),
        Param(
            NOWHERE, SHARE, num(rng.choice((0.0, 30.0, 50.0, 90.0))), ParamBound(NOWHERE, (0.0, False), (100.0, False))
        ),
        Param(NOWHERE, COUNTED, num(float(rng.choice((1, 2, 3)))), ParamBound(NOWHERE, (1.0, False), None)),
    )
    spec = Spec(
        Source("fuzz", ""), NOWHERE, "drawn", "", tuple(sets), tuple(inputs), tuple(noise), tuple(states), params
    )
    return _with_let(rng, spec) if rng.random() < 0.3 else spec


def _inputs(rng: Random, sets: list[TokenSet]) -> Iterator[Field]:
    """A vector and perhaps a number for every set, sometimes a unit vector or a pair field; starts now and then."""
    widths: tuple[Dimension, ...] = ("d",) if rng.random() < 0.8 else ("d", "e")
    for one, name, number in zip(sets, ("x", "c", "z"), ("u", "v", "m"), strict=False):
        kind: Literal["unit", "vector"] = "unit" if rng.random() < 0.1 else "vector"
        init = Init(NOWHERE, rng.choice(("spread", "random", "first")), "x")
        starts = one.size is not None and kind == "vector" and rng.random() < 0.2
        target = Ref(NOWHERE, name, (one.indices[0],))
        yield Field(NOWHERE, target, TypeClause(NOWHERE, kind, "d"), init=init if starts else None)
        if len(widths) > 1:
            yield Field(NOWHERE, Ref(NOWHERE, f"{name}e", (one.indices[0],)), TypeClause(NOWHERE, "vector", "e"))
        if rng.random() < 0.6:
            low = rng.choice((None, (0.0, False), (0.0, True)))
            bound = None if low is None else ParamBound(NOWHERE, low, None)
            yield Field(NOWHERE, Ref(NOWHERE, number, (one.indices[0],)), TypeClause(NOWHERE, "number"), bound)
    columns = [one for one in sets if one.size is not None]
    if columns and rng.random() < 0.3:
        home = rng.choice(sets)
        first = home.indices[1] if home is columns[0] else home.indices[0]
        rows: Literal["onehot", "simplex", "real"] = rng.choice(("onehot", "simplex", "real"))
        yield Field(NOWHERE, Ref(NOWHERE, "A", (first, columns[0].indices[0])), TypeClause(NOWHERE, rows))


def _with_let(rng: Random, spec: Spec) -> Spec:
    checked = accepted(spec)
    assert checked is not None, written(spec)
    words = Vocabulary.of(checked, frozenset(f.target.name for f in (*spec.inputs, *spec.state)))
    at = (spec.tokens[0].indices[0], spec.tokens[-1].indices[0])
    body = RandomExpressions(rng, words).number(at if len(spec.tokens) > 1 else at[:1], 1)
    target = Ref(NOWHERE, "D", at if len(spec.tokens) > 1 else at[:1])
    candidate = replace(spec, lets=(Let(NOWHERE, target, body),))
    return candidate if accepted(candidate) is not None else spec


# ---- steps -----------------------------------------------------------------------------------------------------------


def _with_step(rng: Random, spec: Spec, readable: frozenset[str], depth: int) -> tuple[Spec, frozenset[str]]:
    """The spec with one more step of one or two equations, if the checker accepts any that are drawn."""
    before = accepted(spec)
    assert before is not None
    expressions = RandomExpressions(rng, Vocabulary.of(before, readable))
    equations: tuple[Equation, ...] = ()
    for _ in range(ATTEMPTS):
        if len(equations) == 2 or (equations and rng.random() < 0.6):
            break
        drawn = _equation(rng, before, expressions, readable, depth)
        if drawn is None or any(drawn.target.name == e.target.name for e in equations):
            continue
        for candidate in _completed(rng, before, expressions, drawn):
            step = Step(NOWHERE, (*equations, candidate))
            if accepted(replace(spec, steps=(*spec.steps, step))) is not None:
                equations = step.equations
                break
    if not equations:
        return spec, readable
    written_now = frozenset(e.target.name for e in equations)
    return replace(spec, steps=(*spec.steps, Step(NOWHERE, equations))), readable | written_now


def _with_members(rng: Random, spec: Spec, readable: frozenset[str]) -> tuple[Spec, frozenset[str]]:
    """The spec with a step that assigns tokens to tokens of a fixed set: much is done with members."""
    fixed = [one for one in spec.tokens if one.size is not None]
    before = accepted(spec)
    if not fixed or before is None:
        return spec, readable
    first, second = spec.tokens[0].indices[0], fixed[0].indices[0]
    score = RandomExpressions(rng, Vocabulary.of(before, readable)).score((first,), second, 0)
    body = Weigh(NOWHERE, rng.choice(("argmin", "argmax")), second, score)
    step = Step(NOWHERE, (Equation(NOWHERE, Ref(NOWHERE, COMPUTED[0], (first, second)), body),))
    candidate = replace(spec, steps=(*spec.steps, step))
    return (candidate, readable | {COMPUTED[0]}) if accepted(candidate) is not None else (spec, readable)


def _equation(
    rng: Random, checked: Checked, expressions: RandomExpressions, readable: frozenset[str], depth: int
) -> Equation | None:
    """An equation for a field that exists, or for a new one."""
    words = expressions.words
    existing = [checked.fields[name] for name in sorted(readable) if checked.fields[name].role != "random"]
    if rng.random() < 0.45:
        return _update(rng, expressions, rng.choice(existing), depth)
    name = rng.choice([n for n in COMPUTED if n not in checked.fields] or [None])
    if name is None:
        return None
    home = rng.choice(list(words.sets))
    first = words.sets[home][0]
    columns = [one for one in words.fixed]
    if columns and rng.random() < 0.6:
        over = sorted(columns)[0]
        second = words.sets[over][1] if over == home else words.sets[over][0]
        return Equation(NOWHERE, Ref(NOWHERE, name, (first, second)), _row(rng, expressions, first, second, depth))
    target = Ref(NOWHERE, name, (first,))
    if words.widths and rng.random() < 0.4:
        vector = expressions.vector(rng.choice(words.widths), (first,), depth)
        return None if vector is None else Equation(NOWHERE, target, vector)
    return Equation(NOWHERE, target, expressions.number((first,), depth))


def _update(rng: Random, expressions: RandomExpressions, one: FieldType, depth: int) -> Equation | None:
    own = expressions.words.own(one)
    target = Ref(NOWHERE, one.name, own)
    if one.is_pair:
        return Equation(NOWHERE, target, _row(rng, expressions, one.indices[0], one.indices[1], depth))
    body = expressions.number(own, depth) if one.width is None else expressions.vector(one.width, own, depth)
    if body is not None and rng.random() < 0.2:
        body = binary(rng.choice("+-"), target, body)
    return None if body is None else Equation(NOWHERE, target, body)


def _row(rng: Random, expressions: RandomExpressions, first: str, second: str, depth: int) -> Expr:
    """What a pair field holds: mostly the weights of a weighting over its second index."""
    if rng.random() < 0.75:
        key, query = (second, first) if rng.random() < 0.9 else (first, second)
        return expressions.weighting((query,), key, depth - 1)
    return expressions.number((first, second), depth)


def _completed(rng: Random, checked: Checked, expressions: RandomExpressions, drawn: Equation) -> Iterator[Equation]:
    """An equation as drawn, and with an `else`."""
    yield drawn
    own = checked.fields.get(drawn.target.name)
    if own is not None and rng.random() < 0.8:
        yield replace(drawn, body=Else(NOWHERE, drawn.body, drawn.target))
    body = drawn.body
    vector = own is not None and own.width is not None
    if not isinstance(body, Weigh) and not vector:
        yield replace(drawn, body=Else(NOWHERE, body, expressions.leaf(drawn.target.indices[:1])))
    if len(drawn.target.indices) == 1:
        for width in expressions.words.widths:
            for ref in expressions.words.vectors(width, drawn.target.indices[0])[:1]:
                yield replace(drawn, body=Else(NOWHERE, body, ref))
    elif isinstance(body, Weigh):
        yield replace(drawn, body=Else(NOWHERE, body, binary("/", num(1.0), num(3.0))))


# ---- outputs ---------------------------------------------------------------------------------------------------------


def _with_answers(rng: Random, spec: Spec) -> Spec:
    """The spec with an expression among its outputs, and an objective, now and then."""
    checked = accepted(spec)
    assert checked is not None
    targets = [one.target for one in (*spec.inputs, *spec.state)] + [one.target for one in _equations(spec)]
    words = Vocabulary.of(checked, frozenset(one.name for one in targets))  # of the fields, those that the text names
    expressions = RandomExpressions(rng, words)
    if rng.random() < 0.3:
        first = rng.choice(list(words.sets.values()))[0]
        output = Output(NOWHERE, Ref(NOWHERE, "shown", (first,)), expressions.number((first,), 1))
        candidate = replace(spec, outputs=(*spec.outputs, output))
        spec = candidate if accepted(candidate) is not None else spec
    if rng.random() < 0.2:
        goal = expressions.reduction((), None, 1)
        candidate = replace(spec, objective=goal)
        spec = candidate if accepted(candidate) is not None else spec
    return spec
