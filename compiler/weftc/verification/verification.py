"""Evidence that a model computes its spec: a spec or a model -> a `Verdict`.

Kinds of evidence, each a list of checks: a proof that the matrices compute the equations, for all inputs, in exact
arithmetic; the example blocks of the spec, run by the interpreter and by the transformer; every step of every layer,
held against the interpreter from the same stored fields, on random and on adversarial inputs; whole runs; how far a
finite temperature is from the exact algorithm; how often what is drawn by chance; how far a coupling is from its
optimum. A model is judged by what its weights compute, never by how they came about: nothing here compares bytes,
digests or a fresh compilation. `judged` says what is compiled, `judging` what is checked.

`proved` and `proved up to eps` are what proofs of all equations give, if no other check fails. `tested` is the
strongest that comparison can give, and what remains where an equation is not proved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weftc.compiling import SpecLike, checked_spec, compile
from weftc.core.errors import InputError
from weftc.core.source import Source, printable
from weftc.core.types import Checked
from weftc.files.locate import is_model
from weftc.language.check.check import check
from weftc.language.parse.parse import parse
from weftc.verification.judged import as_it_is, compiled, dimensions
from weftc.verification.judging import DTYPES, Dtype, Findings, Verification, VerificationPart, gathered
from weftc.verification.runs.parts import Parts
from weftc.verification.runs.processes import shared
from weftc.verification.verdict import Check, Verdict
from weftc_runtime.data.progress import Progress
from weftc_runtime.format.checkpoint import Checkpoint

if TYPE_CHECKING:
    from weftc.verification.transport.by_depth import Assignment

__all__ = ["Check", "Verdict", "verify"]

CASES = 20


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
    processes: int = 1,
) -> Verdict:
    """Judges a spec (compiled in every style that equals it, at several sizes unless `dims` fixes them) or a model.

    `data` (input -> array) is compared on as well, next to `cases` generated cases per style and precision. `progress`
    is told which check is under way, and how many there are. `processes` may share the work where this one has not yet
    loaded torch.

    >>> import weftc
    >>> weftc.verify("lloyd", cases=10).verdict
    'proved'
    """
    if cases < 1:
        raise InputError("verify needs at least one case")
    model = _model(target)
    checked = _spec(target) if model is None else check(parse(Source(model.spec_name or "spec", model.spec_text)))
    if model is not None:
        _unchanged(model, dims, params)
    _known_inputs(checked, data or {})
    groups = compiled(checked, dims or {}, params or {}, data or {}) if model is None else [as_it_is(checked, model)]
    asked = Verification(checked, model, tuple(groups), data or {}, seed, cases, tuple(dtypes), backend)
    work = asked.work()
    parts = [part for together in work for part in together]
    told = Parts(progress, len(parts), processes)

    def judged(together: Sequence[VerificationPart]) -> list[Findings]:
        found = []
        for part in together:
            told.begin(str(part))
            found.append(part.judge(told.within))
        return found

    done = shared([partial(judged, together) for together in work], processes, told.copied, told.wait)
    told.end()
    found = gathered(parts, [one for together in done for one in together])
    conditions = {c.text: None for group in groups for c in group.first.program.conditions}
    return Verdict(
        checked.spec.name,
        tuple(check for one in found for check in one.checks),
        seed,
        tuple(conditions),
        tuple(proof for one in found for proof in one.proofs),
        tuple(one.assignment for one in found if one.assignment is not None),
    )


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
    made = model or compile(checked, next(dimensions(checked, dims, data)), params)
    found = assignment(checked, made, data, depth, seed)
    if found is None:
        raise InputError(
            f"{checked.spec.name} computes no coupling with a value on these inputs: no expression is the exponential "
            "of a row term and a column term that layers write, plus what no layer changes"
        )
    return found


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


def _known_inputs(checked: Checked, data: Mapping[str, Any]) -> None:
    inputs = [f.target.name for f in checked.spec.inputs]
    for name in data:
        if name not in inputs:
            raise InputError(f"{checked.spec.name} has no input {printable(name)}; its inputs are {', '.join(inputs)}")
