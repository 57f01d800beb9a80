"""Data -> how sharp a softmax has to be so that a run on them is certified."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from weftc.core.errors import InputError
from weftc.core.types import Checked
from weftc.verification.steps.stepwise import Stepwise
from weftc.verification.temperature.certificate import Certificate, Certifier

LIMIT = 100  # layers, if nobody says how many
FIRST = 2.0  # times the sharpness that the smallest lead asks for: earlier layers cut into the leads of later ones
STEP, TRIES = 8.0, 4
GOOD = 1e-6  # a bound below this, relative to the largest field, is good enough


def calibrate(
    checked: Checked,
    dims: Mapping[str, int],
    params: Mapping[str, float],
    data: Mapping[str, Any],
    layers: int | None = None,
    seed: int = 0,
) -> Certificate:
    """The certificate of a run on these data at the smallest sharpness tried that gives a good one.

    Without a number of layers the run goes on until nothing changes.
    """
    exact = Stepwise(checked, dims, params)
    start = exact.start(data, seed=seed)
    depth, noise = _depth(exact, start, layers, seed)
    seen = Certifier(checked, dims, params, 1.0).follow(start, depth, noise)
    tied = next((number for number, layer in enumerate(seen, 1) if not layer.margin > 0), None)
    if tied is not None:
        raise InputError(
            f"no sharpness is enough for these data: in layer {tied} the best scores of a choice are equal, or closer "
            "than float64 can tell; give the sharpness as a number, or start elsewhere"
        )
    sharpness = FIRST * max((layer.enough for layer in seen), default=1.0)
    found = []
    for _ in range(TRIES):
        found.append(Certifier(checked, dims, params, sharpness).certify(start, depth, noise))
        if found[-1].bound <= GOOD * max(1.0, *(float(np.max(np.abs(v), initial=0.0)) for v in start.values())):
            break
        sharpness *= STEP
    return min(found, key=lambda certificate: (certificate.bound, certificate.sharpness))


def _depth(exact: Stepwise, start: Mapping[str, Any], layers: int | None, seed: int) -> tuple[int, dict[str, Any]]:
    """How many layers to follow, and the random fields of all of them."""
    sizes = exact.world(start).sizes
    if layers is None:
        fields, layers = dict(start), 0
        while layers < LIMIT:
            after = exact.advance(fields, layers, seed=seed).fields
            layers += 1
            if all(np.array_equal(after[name], fields.get(name, np.nan)) for name in after):
                break
            fields = after
    drawn = [exact.surroundings.noise(sizes, layer, seed, None) for layer in range(layers)]
    return layers, {name: np.stack([one[name] for one in drawn]) for name in (drawn[0] if drawn else {})}
