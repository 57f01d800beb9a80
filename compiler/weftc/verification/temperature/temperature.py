"""A model of finite temperature against the exact algorithm: cases -> what was measured beside what is certified."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from weftc.core.errors import WeftError
from weftc.core.styles import Styles
from weftc.core.types import Checked
from weftc.verification.cases.inputs import Case, cases
from weftc.verification.steps.models import Crashed, Watched
from weftc.verification.steps.stepwise import Stepwise
from weftc.verification.temperature.certificate import Certificate, Certifier, LayerBound
from weftc.verification.verdict import Check, Lead
from weftc_runtime import Checkpoint, WeftRuntimeError, load

LAYERS = 3


def temperature(
    checked: Checked, model: Checkpoint, count: int, seed: int, data: Mapping[str, Any] | None = None
) -> Check:
    """Generated cases, or the user's data, through the model; every field of every layer within its certified bound."""
    sharpness = Styles.read(model.program.options).sharpness
    assert sharpness is not None, "only models at finite temperature are judged so"
    name = f"temperature (sharpness {sharpness:g})"
    found: list[Certificate] = []
    given = {key: np.asarray(value) for key, value in (data or {}).items()}
    for case in cases(checked, model.dims, 1 if given else count, seed, given=given):
        certificate = certified(checked, model, case, sharpness)
        if certificate is None:
            continue
        found.append(certificate)
        if not certificate.holds:
            broken = next(layer for layer in certificate.layers if not layer.holds)
            return _check(name, found, f"layer {broken.layer + 1}, {_worst(broken)}; family: {case.family}")
    return _check(name, found, "" if found else "no case has a value")


def certified(checked: Checked, model: Checkpoint, case: Case, sharpness: float) -> Certificate | None:
    """The certificate of one case, with what the model stored as measured; None when the spec has no value there."""
    exact = Stepwise(checked, model.dims, model.params)
    watched = Watched(checked, load(model))
    depth = watched.depth or min(case.layers, LAYERS)
    try:
        start = exact.start(case.inputs, seed=case.seed)
        sizes = exact.world(start).sizes
        drawn = [watched.noise(case, sizes, layer) for layer in range(depth)]
        noise = {key: np.stack([one[key] for one in drawn]) for key in (drawn[0] if drawn else {})}
        certificate = Certifier(checked, model.dims, model.params, sharpness).certify(start, depth, noise)
        seen = watched.watch(case)
        fields, layers = start, []
        for bound, stored in zip(certificate.layers, seen.layers, strict=False):
            fields = exact.advance(fields, bound.layer, seed=case.seed, noise=noise or None).fields
            apart = {key: float(np.max(np.abs(stored[-1][key] - fields[key]), initial=0.0)) for key in bound.bounds}
            layers.append(LayerBound(bound.layer, bound.margin, bound.enough, bound.bounds, apart))
    except (WeftError, WeftRuntimeError, Crashed):
        return None
    return Certificate(sharpness, tuple(layers))


def _check(name: str, found: list[Certificate], detail: str) -> Check:
    good = [layer for c in found for layer in c.layers if np.isfinite(max(layer.bounds.values(), default=0.0))]
    every = sum(len(c.layers) for c in found)
    worst = max(good, key=lambda layer: max(layer.measured.values(), default=0.0), default=None)
    notes = [detail] if detail else []
    if good:
        leads = [layer.margin for layer in good if np.isfinite(layer.margin)]
        if leads:
            enough = max(layer.enough for layer in good)
            notes.append(f"leads of {min(leads):.2g} and more; the smallest asks for a sharpness of {enough:.3g}")
    if every > len(good):
        notes.append(f"{every - len(good)} of {every} layers have no certificate: their leads are too small")
    short = _too_warm(found)
    if short and not detail:
        notes.append(detail := short)
    measured = 0.0 if worst is None else max(worst.measured.values(), default=0.0)
    allowed = 0.0 if worst is None else max(worst.bounds.values(), default=0.0)
    passed = bool(found) and not detail
    compared = f"{every} layers with the exact algorithm"
    return Check(
        name,
        compared,
        len(found),
        passed,
        measured,
        allowed,
        detail="; ".join(notes),
        shows="proved up to eps",
        certificate=True,
        eps=max((max(layer.bounds.values(), default=0.0) for layer in good), default=np.inf),
        leads=tuple(_leads(found)),
    )


def _too_warm(found: list[Certificate]) -> str:
    """Why a model is not near its spec: a sharpness too small for most leads; where there is a tie, none is enough."""
    apart = [(layer.enough, one.sharpness) for one in found for layer in one.layers if np.isfinite(layer.enough)]
    short = [enough for enough, sharpness in apart if enough > sharpness]
    if 2 * len(short) <= len(apart):
        return ""
    return (
        f"not near the spec: {len(short)} of {len(apart)} layers without a tie need a larger sharpness "
        f"(half of those {float(np.median(short)):.3g} or more)"
    )


def _leads(found: list[Certificate]) -> Iterator[Lead]:
    """The certificates of all cases, layer by layer."""
    for number in range(max((len(one.layers) for one in found), default=0)):
        layers = [one.layers[number] for one in found if number < len(one.layers)]
        good = [layer for layer in layers if np.isfinite(max(layer.bounds.values(), default=0.0))]
        yield Lead(
            number + 1,
            _finite(min(layer.margin for layer in layers)),
            _finite(max(layer.enough for layer in layers)),
            max((max(layer.bounds.values(), default=0.0) for layer in good), default=None),
            max((max(layer.measured.values(), default=0.0) for layer in good), default=None),
            len(good),
            len(layers),
        )


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _worst(layer: LayerBound) -> str:
    name = max(layer.bounds, key=lambda key: layer.measured[key] - layer.bounds[key])
    return f"{name} is {layer.measured[name]:.3g} away, the bound is {layer.bounds[name]:.3g}"
