"""The few best of many keys: a look in float32 leaves some, and these are ranked exactly."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import weftc

KINDS = ("grid", "far", "equal", "gauss")


def data(kind: str, many: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if kind == "grid":  # many ties
        return rng.integers(0, 4, (many, 3)).astype(np.float64)
    if kind == "equal":
        return np.full((many, 3), 7.0)
    if kind == "far":  # float32 cannot hold both where they are and how far apart
        return 2.0**20 + rng.integers(0, 64, (many, 3)) / 16
    return rng.integers(-(2**20), 2**20, (many, 3)) / 2.0**16


def nearest(x: np.ndarray, z: np.ndarray, many: int) -> np.ndarray:
    """By whole numbers, the first among equals."""
    a, b = (np.round(each * 2**16).astype(object) for each in (x, z))
    apart = ((a[None] - b[:, None]) ** 2).sum(2)
    return np.array([sorted(range(len(x)), key=lambda i: (row[i], i))[:many] for row in apart])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wanted", [1, 5])
def test_the_nearest_are_found_exactly(kind: str, wanted: int) -> None:
    x, z = data(kind, 300, 1), data(kind, 70, 2)
    model = weftc.load(weftc.compile("knn", {"d": 3, "m": 1}, {"n": wanted}, layers=1))
    t = np.arange(300.0)[:, None] ** 2
    found = model({"x": torch.tensor(x), "t": torch.tensor(t), "z": torch.tensor(z)}, layers=1)["answers"]
    assert model.report.backend == "planned"
    assert np.array_equal(found.numpy(), t[nearest(x, z, wanted)].mean(1))
