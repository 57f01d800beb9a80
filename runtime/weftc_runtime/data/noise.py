"""Random fields as a function of (seed, name, layer, token indices): the counter-based generator Philox4x32-10.

The key is the seed, the counter is (token, column, layer, crc32 of the name), all counted from 0, so any block of a
field can be made alone and is the same everywhere. The first 53 bits of a block give u in (0, 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeVar, cast
from zlib import crc32

import numpy as np
import numpy.typing as npt

from weftc_runtime.errors import RunError

Array = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint64]

_NUMBERS = (0xFFFFFFFF, 32, 0xD2511F53, 0xCD9E8D57, 0x9E3779B9, 0xBB67AE85)  # a word, half of 64 bits, factors, steps
_WIDE = tuple(map(np.uint64, _NUMBERS))
FEW = 16  # numbers that Python makes faster than NumPy
Word = TypeVar("Word", int, Words)


def philox(counter: tuple[Word, Word, Word, Word], seed: int | Words) -> tuple[Word, Word, Word, Word]:
    """Ten rounds of Philox4x32: four 32-bit words for every counter; seeds may be an array, too."""
    c0, c1, c2, c3 = counter
    alone = isinstance(c0, int)
    low, half, left_by, right_by, step0, step1 = cast(Any, _NUMBERS if alone else _WIDE)
    keys: Any = seed if alone else np.asarray(seed, dtype=np.uint64)
    key0, key1 = keys & low, keys >> half
    for _ in range(10):
        left, right = c0 * left_by, c2 * right_by  # 32 x 32 bits fit 64
        c0, c1, c2, c3 = (right >> half) ^ c1 ^ key0, right & low, (left >> half) ^ c3 ^ key1, left & low
        key0, key1 = (key0 + step0) & low, (key1 + step1) & low
    return c0, c1, c2, c3


def _unit_interval(high: Words, low: Words) -> Array:
    """53 bits -> the middle of their cell of (0, 1)."""
    cell = ((high << _WIDE[1]) | low) >> np.uint64(11)
    u = cell.astype(np.float64) * 2.0**-53 + 2.0**-54
    return np.minimum(u, _LAST)


_LAST = 1 - 2.0**-53  # the middle of the last cell would round to 1


def check_seed(seed: int) -> int:
    """The seed, when it is a whole number of 64 bits."""
    if not isinstance(seed, int | np.integer) or isinstance(seed, bool) or not 0 <= int(seed) < 1 << 64:
        raise RunError(f"seed is {seed!r}; it must be a whole number from 0 to 2^64 - 1")
    return int(seed)


def uniforms(seed: int, name: str, layer: int, tokens: int, columns: int) -> tuple[Array, Array]:
    """Two independent uniform fields (tokens, columns)."""
    return _uniforms_at(seed, name, layer, np.arange(tokens), np.arange(columns))


def first_columns(seeds: Sequence[int], name: str, tokens: int) -> list[list[float]]:
    """The first column of uniform fields of layer 0, one for every seed."""
    word, seeds = crc32(name.encode()), [check_seed(seed) for seed in seeds]
    if len(seeds) * tokens <= FEW:
        words = ([philox((i, 0, 0, word), seed)[:2] for i in range(tokens)] for seed in seeds)
        return [[min((((a << 32) | b) >> 11) * 2.0**-53 + 2.0**-54, _LAST) for a, b in each] for each in words]
    i = np.arange(tokens, dtype=np.uint64)[None]
    keys = np.array(seeds, dtype=np.uint64)[:, None]
    high, low, _, _ = philox((i, np.zeros_like(i), np.zeros_like(i), np.full_like(i, word)), keys)
    return cast(list[list[float]], _unit_interval(high, low).tolist())


def _uniforms_at(
    seed: int, name: str, layer: int, tokens: npt.NDArray[np.int64], columns: npt.NDArray[np.int64]
) -> tuple[Array, Array]:
    """The same for these tokens and columns alone."""
    i, j = np.meshgrid(tokens.astype(np.uint64), columns.astype(np.uint64), indexing="ij")
    rest = (np.full_like(i, layer & 0xFFFFFFFF), np.full_like(i, crc32(name.encode())))
    r0, r1, r2, r3 = philox((i, j, *rest), check_seed(seed))
    return _unit_interval(r0, r1), _unit_interval(r2, r3)


def noise(
    kind: Literal["gumbel", "normal", "uniform"], seed: int, name: str, layer: int, tokens: int, columns: int
) -> Array:
    """One layer of a random field (tokens, columns)."""
    return noise_at(kind, seed, name, layer, np.arange(tokens), np.arange(columns))


def noise_at(
    kind: Literal["gumbel", "normal", "uniform"],
    seed: int,
    name: str,
    layer: int,
    tokens: npt.NDArray[np.int64],
    columns: npt.NDArray[np.int64],
) -> Array:
    """These tokens and columns of one layer of a random field."""
    u, other = _uniforms_at(seed, name, layer, tokens, columns)
    if kind == "gumbel":
        return np.asarray(-np.log(-np.log(u)))
    if kind == "normal":
        return np.asarray(np.sqrt(-2.0 * np.log(u)) * np.cos(2.0 * np.pi * other))
    return u
