"""Data for the judges: four real data sets, and points around a few means."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray
from sklearn import datasets

Array = NDArray[np.float64]
REAL = ("iris", "wine", "digits", "breast_cancer")


@cache
def real(name: str) -> tuple[Array, NDArray[np.int64]]:
    """The rows of a data set as it ships with scikit-learn, in its own units, and their classes."""
    x, classes = getattr(datasets, f"load_{name}")(return_X_y=True)
    return np.asarray(x, dtype=np.float64), np.asarray(classes, dtype=np.int64)


def blobs(n: int, d: int, k: int, seed: int) -> tuple[Array, Array]:
    """Points around k means, and k of them to start from."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(k, d))[rng.integers(k, size=n)] * 5 + rng.normal(size=(n, d))
    return x, x[rng.choice(n, size=k, replace=False)]


def some_rows(x: Array, k: int, seed: int) -> Array:
    """k different rows."""
    distinct = np.unique(x, axis=0)
    return distinct[np.random.default_rng(seed).choice(len(distinct), size=k, replace=False)]
