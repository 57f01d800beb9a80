"""Evidence that a model computes its spec: a spec or a model -> a `Verdict`.

Kinds of evidence, each a list of checks: a proof that the matrices compute the equations, for all inputs, in exact
arithmetic; the example blocks of the spec, run by the interpreter and by the transformer; every step of every layer,
held against the interpreter from the same stored fields, on random and on adversarial inputs; whole runs; how far a
finite temperature is from the exact algorithm; how often what is drawn by chance; how far a coupling is from its
optimum. A model is judged by what its weights compute, never by how they came about: nothing here compares bytes,
digests or a fresh compilation.

`proved` and `proved up to eps` are what proofs of all equations give, if no other check fails. `tested` is the
strongest that comparison can give, and what remains where an equation is not proved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from weftc.compiling import SpecLike, at_temperature, checked_spec, compile, sizes_from
from weftc.core.errors import InputError, WeftError
from weftc.core.source import Source, printable
from weftc.core.styles import CHOICES, Styles
from weftc.core.types import Checked
from weftc.files.locate import is_model
from weftc.language.check.check import check
from weftc.language.parse.parse import parse
from weftc.verification.runs.parts import Parts
from weftc.verification.verdict import Check, Verdict
from weftc_runtime.data.progress import Progress
from weftc_runtime.format.checkpoint import Checkpoint

if TYPE_CHECKING:
    from weftc.prover import Proof
    from weftc.verification.runs.runs import JudgedModel
    from weftc.verification.transport.by_depth import Assignment

__all__ = ["Check", "Verdict", "verify"]

Dtype = Literal["float64", "float32"]
DTYPES: tuple[Dtype, ...] = ("float64", "float32")
CASES = 20

OTHERS = 0.15  # of the cases, for styles beside those of scores

# Widths of vectors and sizes of fixed sets where the user leaves them open; the first is the ordinary one.
SIZES = ((2, 3), (1, 2), (3, 1), (1, 1), (2, 5))


def verify(
    target: SpecLike | Checkpoint,
    dims: Mapping[str, int] | None = None,
    params: Mapping[str, float] | None = None,
    data: Mapping[str, Any] | None = None,
    *,
    seed: int = 0,
    cases: int = CASES,
    dtypes: Sequence[Dtype] = DTYPES,
    progress: Progress | None = None,
    backend: str = "auto",
) -> Verdict:
    """Judges a spec (compiled in every style that equals it, at several sizes unless `dims` fixes them) or a model.

    `data` (input -> array) is compared on as well, next to `cases` generated cases per style and precision. `progress`
    is told which check is under way, and how many there are.

    >>> import weftc
    >>> weftc.verify("lloyd", cases=10).verdict
    'proved'
    """
    from weftc.verification.proofs import proofs
    from weftc.verification.runs.backends import Runners
    from weftc.verification.runs.large import large_runs
    from weftc.verification.runs.runs import examples, layers, on_data
    from weftc.verification.runs.sampling import sampling
    from weftc.verification.runs.trajectories import Trajectories
    from weftc.verification.steps.program_rounding import program_rounding
    from weftc.verification.steps.rounded import is_rounded, rounded_layers
    from weftc.verification.temperature.temperature import temperature
    from weftc.verification.transport.assignment import assignment, assignment_check

    if cases < 1:
        raise InputError("verify needs at least one case")
    model = _model(target)
    checked = _spec(target) if model is None else check(parse(Source(model.spec_name or "spec", model.spec_text)))
    if model is not None:
        _unchanged(model, dims, params)
    _known_inputs(checked, data or {})
    groups = _compiled(checked, dims or {}, params or {}, data or {}) if model is None else [_as_it_is(checked, model)]
    found: list[Check] = []
    proved: list[Proof] = []
    parts = Parts(progress, _how_many(checked, groups, len(dtypes), bool(data)))
    if checked.spec.examples:
        parts.begin("examples")
        found += examples(checked, model, CHOICES["scores"], backend)
    for group in groups:
        parts.begin(f"proof, {group.style}")
        one, behind = proofs(checked, [subject.checkpoint for subject in group.subjects], group.style)
        found.append(one)
        proved += behind
    rounded = model is not None and is_rounded(proved[0], model)
    if rounded:  # what an example states is exact, ties and all
        found = [one for one in found if one.name != "examples, transformer"]
    runners = Runners()
    trajectories = Trajectories(groups[0].meant, groups[0].subjects[0].checkpoint, seed, runners)
    for group in groups:
        style, first = group.style, group.subjects[0].checkpoint
        judged = runners.backends(first, backend)
        lossy = program_rounding(group.meant, first, style, seed)
        found += [lossy] if lossy is not None and not lossy.passed else []  # said only where there is something to say
        for dtype in dtypes:
            parts.begin(f"layers, {style}, {dtype}")
            count = max(1, round(cases * group.share))
            if rounded:
                found.append(rounded_layers(group.meant, first, proved[0], style, dtype, count, seed, data))
                continue
            for runner in judged:
                found.append(layers(checked, group.subjects, style, dtype, count, seed, runner, parts.within, runners))
        if rounded:
            continue
        if backend == "auto" and "planned" not in judged:
            found[-1] = _also_says(found[-1], f"the planned backend does not run this: {runners.uncovered(first)}")
        if data and group.whole:
            parts.begin(f"your data, {style}")
            for dtype in dtypes:
                found += [on_data(checked, first, style, dtype, data, seed, runner, runners) for runner in judged]
        if group.whole:
            parts.begin(f"whole runs, {style}")
            # once a layer is wrong, whole runs only say so less clearly
            sound = [one for one in judged if all(c.passed for c in found if c.backend == one and _is_about(c, style))]
            runs = [trajectories.against(first, style, one) for one in sound]
            if "planned" in sound:
                models = [first, *group.wide]
                for dtype in dtypes:
                    tiles = group is groups[0] and dtype == "float64"
                    runs.append(large_runs(checked, models, style, dtype, seed, runners, tiles))
            found += [run for run in runs if run is not None]
        if group.meant is not checked:
            parts.begin(f"temperature, {style}")
            found.append(temperature(checked, first, cases, seed, data))
        elif group is groups[0] and checked.spec.random:
            parts.begin(f"draws, {style}")
            found += [one for one in [sampling(checked, first, style, seed)] if one is not None]
    parts.begin("distance to an optimum")
    assigned = assignment(groups[0].meant, groups[0].subjects[0].checkpoint, data, seed=seed)
    found += [] if assigned is None else [assignment_check(assigned)]
    parts.end()
    conditions = {c.text: None for group in groups for c in group.subjects[0].checkpoint.program.conditions}
    assignments = () if assigned is None else (assigned,)
    return Verdict(checked.spec.name, tuple(found), seed, tuple(conditions), tuple(proved), assignments)


def distance_to_optimum(
    target: SpecLike | Checkpoint,
    dims: Mapping[str, int],
    params: Mapping[str, float],
    data: Mapping[str, Any],
    depth: int | None,
    seed: int,
) -> Assignment:
    """The table by depth of the coupling that a spec or model computes; an `InputError` where there is none."""
    from weftc.verification.transport.assignment import assignment

    model = _model(target)
    if model is not None:
        checked = check(parse(Source(model.spec_name or "spec", model.spec_text)))
        _unchanged(model, dims, params)
    else:
        checked = _spec(target)
    _known_inputs(checked, data)
    made = model or compile(checked, next(_dimensions(checked, dims, data)), params)
    found = assignment(checked, made, data, depth, seed)
    if found is None:
        raise InputError(
            f"{checked.spec.name} computes no coupling with a value on these inputs: no expression is the exponential "
            "of a row term and a column term that layers write, plus what no layer changes"
        )
    return found


@dataclass(frozen=True, slots=True)
class _Group:
    """Models of one style. `meant` is the spec they compute: at finite temperature, not the one that was written."""

    style: str
    subjects: list[JudgedModel]
    meant: Checked
    share: float = 1.0  # of the cases
    whole: bool = True  # whether whole runs and the user's data are compared too
    wide: tuple[Checkpoint, ...] = ()  # larger ones, for large runs


def _is_about(check: Check, style: str) -> bool:
    return check.name.startswith(f"layers ({style},")


def _also_says(check: Check, note: str) -> Check:
    return replace(check, detail="; ".join(part for part in (check.detail, note) if part))


def _how_many(checked: Checked, groups: Sequence[_Group], precisions: int, data: bool) -> int:
    """How many parts a verification has."""
    each = (1 + precisions + (group.whole + data * group.whole) + (group.meant is not checked) for group in groups)
    draws = bool(checked.spec.random) and groups[0].meant is checked
    return bool(checked.spec.examples) + sum(each) + draws + 1


def _spec(target: SpecLike | Checkpoint) -> Checked:
    assert not isinstance(target, Checkpoint)
    return checked_spec(target)


def _model(target: SpecLike | Checkpoint) -> Checkpoint | None:
    """The model a target is, or names."""
    if isinstance(target, Checkpoint):
        return target
    if isinstance(target, Path) or (isinstance(target, str) and "\n" not in target):
        return Checkpoint.load(target) if is_model(str(target)) else None
    return None


def _unchanged(model: Checkpoint, dims: Mapping[str, Any] | None, params: Mapping[str, Any] | None) -> None:
    for name, value in {**(dims or {}), **(params or {})}.items():
        fixed = {**model.dims, **model.params}
        if name in fixed and fixed[name] != value:
            raise InputError(
                f"this model was compiled with {name} = {fixed[name]}; it cannot be judged with {name} = {value}"
            )
        if name not in fixed:
            raise InputError(f"this model was compiled without {name}; compile the spec with it to judge that")


def _as_it_is(checked: Checked, model: Checkpoint) -> _Group:
    from weftc.verification.runs.runs import JudgedModel

    meant = at_temperature(checked, Styles.read(model.program.options))
    return _Group(model.program.options.get("scores", "as it is"), [JudgedModel(model)], meant)


def _compiled(
    checked: Checked, dims: Mapping[str, int], params: Mapping[str, float], data: Mapping[str, Any]
) -> list[_Group]:
    """The spec in both styles of scores at every size to be judged, and in every other style that equals it."""
    from weftc.show.style_effects import choices, chosen, same
    from weftc.verification.runs.runs import JudgedModel

    sizes = list(_dimensions(checked, dims, data))
    shares = [1.0] if len(sizes) == 1 else [0.4] + [0.6 / (len(sizes) - 1)] * (len(sizes) - 1)
    groups, plain = [], {}
    for style in CHOICES["scores"]:
        made = [compile(checked, one, params, scores=style) for one in sizes]  # type: ignore[arg-type]
        plain[style] = made[0]
        subjects = [JudgedModel(model, share) for model, share in zip(made, shares, strict=True)]
        wide = () if len(sizes) == 1 else (compile(checked, _wide(checked, dims, data), params, scores=style),)  # type: ignore[arg-type]
        groups.append(_Group(style, subjects, checked, wide=wide))
    for style, value in choices():
        if style in ("scores", "hardmax"):  # a finite temperature is another algorithm, near this one
            continue
        keywords = chosen(style, value)
        try:
            model = compile(checked, sizes[0], params, **keywords)
        except WeftError:  # a style that says it does not apply
            continue
        if not same(model, plain[keywords.get("scores", "l2")]):
            groups.append(_Group(f"{style}={value}", [JudgedModel(model)], checked, OTHERS, whole=False))
    return groups


def _dimensions(
    checked: Checked, given: Mapping[str, int], data: Mapping[str, Any], sizes: Sequence[tuple[int, int]] = SIZES
) -> Iterator[dict[str, int]]:
    """Dimensions to compile for: what is given or follows from the data, and several sizes for the rest."""
    known = {**sizes_from(checked, data), **given}
    counts = {size for size in checked.sets.values() if isinstance(size, str)}
    seen = []
    for width, count in sizes:
        dims = {name: known.get(name, count if name in counts else width) for name in checked.dims}
        if dims not in seen:
            seen.append(dims)
            yield dims


def _wide(checked: Checked, given: Mapping[str, int], data: Mapping[str, Any]) -> dict[str, int]:
    """Dimensions of a large model, where they are free."""
    from weftc.verification.runs.large import WIDE

    return next(_dimensions(checked, given, data, (WIDE,)))


def _known_inputs(checked: Checked, data: Mapping[str, Any]) -> None:
    inputs = [f.target.name for f in checked.spec.inputs]
    for name in data:
        if name not in inputs:
            raise InputError(f"{checked.spec.name} has no input {printable(name)}; its inputs are {', '.join(inputs)}")
