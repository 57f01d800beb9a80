"""The pipeline as one function: text -> tree -> checked spec -> graph -> normal form -> program -> checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from weftc.core.errors import InputError
from weftc.core.source import Source
from weftc.core.styles import Styles
from weftc.core.syntax import Spec
from weftc.core.types import Checked
from weftc.emit.program import build
from weftc.files.locate import find_spec
from weftc.language.bind import BoundSpec, bind
from weftc.language.check.check import check
from weftc.language.parse.linking import standalone
from weftc.language.parse.parse import parse
from weftc.normal.form import NormalForm
from weftc.passes.finite_temperature import has_choices, tempered
from weftc.passes.ordinary import softmax_alone
from weftc.passes.pipeline import Goal, lowered
from weftc.passes.sharpness import MARGIN, candidates, sharpness_for
from weftc.version import VERSION
from weftc_runtime.format.checkpoint import Checkpoint

SpecLike = Checked | Spec | Source | str | Path


def spec_source(spec: Source | str | Path) -> Source:
    """The source of a spec from its text, a built-in name or a path."""
    if isinstance(spec, str) and ("\n" in spec or spec.lstrip().startswith("algorithm ")):
        return Source("spec", spec)
    return spec if isinstance(spec, Source) else find_spec(str(spec))


def checked_spec(spec: SpecLike) -> Checked:
    """A checked spec from whatever names one: itself, a tree, a source, its text, a built-in name or a path."""
    if isinstance(spec, Checked):
        return spec
    return check(spec if isinstance(spec, Spec) else parse(spec_source(spec)))


def settled(styles: Styles, bound: BoundSpec) -> Styles:
    """Styles with nothing left open: a sharpness that was left to us is chosen."""
    if styles.hardmax == "exact" or styles.sharpness is not None:
        return styles
    return replace(styles, sharpness=sharpness_for(MARGIN, candidates(bound.checked, bound.dims)))


def at_temperature(checked: Checked, styles: Styles) -> Checked:
    """What a style compiles: the spec itself, or its form at finite temperature."""
    return checked if styles.sharpness is None or not has_choices(checked) else tempered(checked, styles.sharpness)


def normal_form(bound: BoundSpec, styles: Styles) -> NormalForm:
    """The attention normal form of a spec in a style."""
    styles = settled(styles, bound)
    return lowered(at_temperature(bound.checked, styles), Goal(bound.dims, bound.params, styles))


def compile(
    spec: SpecLike,
    dims: Mapping[str, int] | None = None,
    params: Mapping[str, float] | None = None,
    layers: int | None = None,
    *,
    scores: Literal["l2", "dot"] = "l2",
    centre: Literal["auto", "on", "off"] = "auto",
    hardmax: Literal["exact", "softmax"] = "exact",
    sharpness: float | Literal["auto"] = "auto",
    data: Mapping[str, Any] | None = None,
    erase: Literal["linear", "attention"] = "linear",
    members: Literal["mask", "offset"] = "mask",
    null: Literal["key", "token"] = "key",
    square: Literal["square", "relu2"] = "square",
    norm: Literal["rms", "layer"] = "rms",
    weights: Literal["shared", "unrolled"] = "shared",
    heads: Literal["any", "softmax"] = "any",
) -> Checkpoint:
    """Compiles a spec to a transformer.

    `dims` and `params` set the spec's dimensions and parameters, `layers` how many layers the model runs by default
    (without it the spec's `repeat`, else 1). The rest are lowering styles (`weftc.core.styles`): transformers that
    look different and compute the same. `sharpness` belongs to hardmax="softmax"; "auto" is enough for a run on `data`
    (input -> array), or without data for scores that lead by 0.001. heads="softmax" refuses what needs another head.

    >>> import weftc
    >>> model = weftc.compile("lloyd", dims={"d": 2, "k": 3})
    >>> [stream.name for stream in model.program.streams]
    ['points', 'centers']
    """
    bound = bind(checked_spec(spec), dims or {}, params or {})
    sharp = None if sharpness == "auto" else sharpness
    styles = Styles(scores, centre, hardmax, erase, members, null, square, norm, weights, sharp)
    written = bound.checked.spec
    if data is not None and (hardmax == "exact" or sharp is not None):
        raise InputError("data are for hardmax=softmax with sharpness=auto: the margin is measured on them")
    depth = layers if layers is not None else written.repeat
    if depth is not None and (not isinstance(depth, int) or depth < 0):
        raise InputError(f"layers must be a whole number, at least 0, not {depth!r}")
    if weights == "unrolled" and depth == 0:
        raise InputError("unrolled weights need at least one layer; give layers=N")
    if data is not None:
        from weftc.verification.temperature.calibration import calibrate

        certificate = calibrate(bound.checked, bound.dims, bound.params, data, depth)
        styles = replace(styles, sharpness=certificate.sharpness)
    normal = normal_form(bound, styles)
    if heads == "softmax":
        softmax_alone(normal)
    elif heads != "any":
        raise InputError(f"heads must be one of any, softmax, not {heads!r}")
    made = build(normal, depth)
    return Checkpoint(
        made.program,
        made.tensors,
        written.name,
        standalone(written.source),
        bound.dims,
        bound.params,
        f"weftc {VERSION}",
    )


def sizes_from(checked: Checked, data: Mapping[str, Any]) -> dict[str, int]:
    """Dimensions that the shapes of data fix."""
    known: dict[str, int] = {}
    for name, values in data.items():
        one = checked.fields[name]
        columns = checked.sets[one.columns] if one.columns else one.width
        for dim, size in zip((checked.sets[one.home], columns), np.shape(values), strict=False):
            if isinstance(dim, str):
                known[dim] = size
    return known
