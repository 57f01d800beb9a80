"""Heads that weigh by functions of scores run in tiles on the planned machine, and give what the reference gives."""

from __future__ import annotations

import numpy as np
import pytest

import weftc
from weftc_runtime.machines import heads_stream

LINES = {
    "student": "v[i] = mean[l] x[l] weighted 1 / (1 + |x[i] - x[l]|^2)",
    "laplace": "v[i] = sum[l] softmax[l](-|x[i] - x[l]| where i != l) * x[l] else x[i]",
    "gravity": "v[i] = sum[l] (x[l] - x[i]) / (|x[i] - x[l]|^2 + 1/8) where i != l",
    "compact": "v[i] = mean[l] x[l] weighted relu(1 - |x[i] - x[l]|) where i != l else 2 * x[i]",
    "polynomial": "v[i] = sum[l] ((1 + <x[i], x[l]>)^3 / 8) * x[l]",
}
X = [np.random.default_rng(7).integers(-30, 31, (many, 2)) / 16 for many in (1, 9, 70)]


@pytest.mark.parametrize("scores", ["l2", "dot"])
@pytest.mark.parametrize("name", LINES)
def test_tiles_give_what_the_reference_gives(name: str, scores: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"algorithm t tokens i, l in points inputs x[i] : R^2 layer {LINES[name]} outputs v"
    made = weftc.compile(text, scores=scores)  # type: ignore[arg-type]
    planned, reference = weftc.load(made, backend="planned"), weftc.load(made, backend="reference")
    if name != "compact":  # where all weights are zero, the reference decides
        assert "in tiles" in str(planned.plan())
    monkeypatch.setattr(heads_stream, "TILE", 256)
    monkeypatch.setattr(heads_stream, "KEYS", 16)
    for x in X:
        if name == "compact" and len(x) < 70:
            continue
        wanted = reference(x=x, layers=1)["v"].numpy()
        found = weftc.load(made)(x=x, layers=1)["v"].numpy()
        assert np.abs(found - wanted).max() <= 1e-14 * max(1.0, np.abs(wanted).max())
    if name != "compact":
        batch = planned(x=X, layers=1)["v"]
        for found, x in zip(batch, X, strict=True):
            assert np.allclose(found.numpy()[: len(x)], reference(x=x, layers=1)["v"].numpy(), rtol=0, atol=1e-13)
