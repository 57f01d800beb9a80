"""Evidence that a model computes its spec: a spec or a model -> a `Verdict`.

Three kinds of evidence, each a list of checks: the example blocks of the spec, run by the interpreter and by the
transformer; every step of every layer, held against the interpreter from the same stored fields, on random and on
adversarial inputs; whole runs. A model is judged by what its weights compute, never by how they came about: nothing here
compares bytes, digests or a fresh compilation.

A verdict is as strong as the weakest kind of evidence that a claim rests on. `tested` is the strongest that comparison can
give; `proved` and `proved up to eps` are reserved for checks that hold for all inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from weft.catalogue import is_model
from weft.check import check
from weft.compiling import SpecLike, checked_spec, compile
from weft.errors import InputError
from weft.parse import parse
from weft.source import Source
from weft.styles import CHOICES
from weft.types import Checked
from weft.verdict import Check, Verdict
from weft_runtime.checkpoint import Checkpoint

if TYPE_CHECKING:
    from weft.evidence_layers import Judge

__all__ = ["Check", "Verdict", "verify"]

Dtype = Literal["float64", "float32"]
DTYPES: tuple[Dtype, ...] = ("float64", "float32")
CASES = 60
WHOLE_RUNS = 6
WHOLE_LAYERS = 6
DATA_LAYERS = 3

# Widths of vectors and sizes of fixed sets where the user leaves them open; the first is the ordinary one.
SIZES = ((2, 3), (1, 2), (3, 1), (1, 1), (2, 5))


@dataclass(frozen=True, slots=True)
class Subject:
    """One compiled model under judgement. `share` is its part of the cases."""

    checkpoint: Checkpoint
    share: float


def verify(
    target: SpecLike | Checkpoint,
    dims: Mapping[str, int] | None = None,
    params: Mapping[str, float] | None = None,
    data: Mapping[str, Any] | None = None,
    *,
    seed: int = 0,
    cases: int = CASES,
    dtypes: Sequence[Dtype] = DTYPES,
    progress: Callable[[str], None] | None = None,
) -> Verdict:
    """Judges a spec (compiled in every style, at several sizes unless `dims` fixes them) or a model as it is.

    `data` (input -> array) is compared on as well, next to `cases` generated cases per style and precision.

    >>> import weft
    >>> weft.verify("lloyd", cases=10).verdict
    'tested'
    """
    if cases < 1:
        raise InputError("verify needs at least one case")
    model = _model(target)
    if model is not None:
        checked = check(parse(Source(model.spec_name or "spec", model.spec_text)))
        _unchanged(model, dims, params)
        groups = {str(model.program.options.get("scores", "as compiled")): [Subject(model, 1.0)]}
    else:
        assert not isinstance(target, Checkpoint)
        checked = checked_spec(target)
        sizes = list(_dimensions(checked, dims or {}, data or {}))
        shares = [1.0] if len(sizes) == 1 else [0.4] + [0.6 / (len(sizes) - 1)] * (len(sizes) - 1)
        groups = {
            style: [
                Subject(compile(checked, one, params, scores=style), share)
                for one, share in zip(sizes, shares, strict=True)
            ]
            for style in CHOICES["scores"]
        }
    from weft.evidence_runs import examples, layers, on_data, whole_runs

    say = progress or (lambda text: None)
    found: list[Check] = []
    if checked.spec.examples:
        say("examples")
        found += examples(checked, model, tuple(groups) if model is None else ())
    for style, subjects in groups.items():
        for dtype in dtypes:
            say(f"layers, {style}, {dtype}")
            found.append(layers(checked, subjects, style, dtype, cases, seed))
        if data:
            say(f"your data, {style}")
            found += [on_data(checked, subjects[0].checkpoint, style, dtype, data, seed) for dtype in dtypes]
        say(f"whole runs, {style}")
        found.append(whole_runs(checked, subjects[0].checkpoint, style, seed))
    return Verdict(checked.spec.name, tuple(found), seed)


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


def _dimensions(checked: Checked, given: Mapping[str, int], data: Mapping[str, Any]) -> Iterator[dict[str, int]]:
    """Dimensions to compile for: what is given or follows from the data, and several sizes for the rest."""
    known = {**_from_data(checked, data), **given}
    counts = {size for size in checked.sets.values() if isinstance(size, str)}
    seen = []
    for width, count in SIZES:
        dims = {name: known.get(name, count if name in counts else width) for name in checked.dims}
        if dims not in seen:
            seen.append(dims)
            yield dims


def _from_data(checked: Checked, data: Mapping[str, Any]) -> dict[str, int]:
    import numpy as np

    known: dict[str, int] = {}
    for name, values in data.items():
        one = checked.fields.get(name)
        if one is None or one.role != "input":
            inputs = ", ".join(f.target.name for f in checked.spec.inputs)
            raise InputError(f"{checked.spec.name} has no input {name}; its inputs are {inputs}")
        shape = np.shape(values)
        home, columns = checked.sets[one.home], checked.sets[one.columns] if one.columns else one.width
        pairs = [(home, shape[0])] + ([(columns, shape[1])] if len(shape) == 2 else [])
        known |= {dim: size for dim, size in pairs if isinstance(dim, str)}
    return known
