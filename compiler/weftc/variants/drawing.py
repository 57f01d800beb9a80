"""Random invertible matrices with their inverses."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from weftc.core.errors import InputError

Array: TypeAlias = npt.NDArray[np.float64]
Kind: TypeAlias = Literal["orthogonal", "dyadic", "signed"]
MIXED = np.array([[1.0, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]]) / 2  # orthogonal


def drawn(size: int, kind: Kind, rng: np.random.Generator) -> Array:
    """An orthogonal matrix: a dense one; one that mixes by fours, with entries +-1/2; or a permutation with signs.

    What the second does to short binary fractions is exact, as it is for the third whatever the numbers are.
    """
    if kind == "dyadic":
        blocks = np.eye(size)
        for at in range(0, size - 3, 4):
            blocks[at : at + 4, at : at + 4] = MIXED
        return drawn(size, "signed", rng) @ blocks @ drawn(size, "signed", rng)
    if kind == "signed":
        matrix = np.zeros((size, size))
        matrix[np.arange(size), rng.permutation(size)] = rng.choice((-1.0, 1.0), size)
        return matrix
    if kind != "orthogonal":
        raise InputError(f"unknown kind of variant {kind!r}; known are orthogonal, dyadic, signed")
    made, upper = np.linalg.qr(rng.normal(size=(size, size)))
    return np.asarray(made * np.sign(np.diag(upper)))


def conditioned(size: int, kind: Kind, rng: np.random.Generator) -> tuple[Array, Array]:
    """An invertible matrix that is far from orthogonal, unless it is `signed`, and its inverse; condition 16."""
    left = drawn(size, kind, rng)
    if kind != "orthogonal":
        return left, left.T
    right, sizes = drawn(size, kind, rng), np.geomspace(0.25, 4.0, size)
    return left * sizes @ right, right.T / sizes @ left.T


def is_short(*arrays: Array) -> bool:
    """Whether numbers are whole multiples of 2^-20, and small: sums and halves of some of them round nothing."""
    return all(
        bool((array * 2.0**20 == np.round(array * 2.0**20)).all() and (abs(array) < 2.0**20).all()) for array in arrays
    )
