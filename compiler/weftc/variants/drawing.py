"""Random invertible matrices with their inverses."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from weftc.core.errors import InputError

Array: TypeAlias = npt.NDArray[np.float64]
Kind: TypeAlias = Literal["orthogonal", "signed"]


def drawn(size: int, kind: Kind, rng: np.random.Generator) -> Array:
    """An orthogonal matrix: a dense one, or a permutation with signs."""
    if kind == "signed":
        matrix = np.zeros((size, size))
        matrix[np.arange(size), rng.permutation(size)] = rng.choice((-1.0, 1.0), size)
        return matrix
    if kind != "orthogonal":
        raise InputError(f"unknown kind of variant {kind!r}; known are orthogonal, signed")
    made, upper = np.linalg.qr(rng.normal(size=(size, size)))
    return np.asarray(made * np.sign(np.diag(upper)))


def conditioned(size: int, kind: Kind, rng: np.random.Generator) -> tuple[Array, Array]:
    """An invertible matrix that is far from orthogonal, unless it is `signed`, and its inverse; condition 16."""
    left = drawn(size, kind, rng)
    if kind == "signed":
        return left, left.T
    right, sizes = drawn(size, kind, rng), np.geomspace(0.25, 4.0, size)
    return left * sizes @ right, right.T / sizes @ left.T
