"""Random fields: numbers that are a function of (seed, name, layer, tokens), the same everywhere and in any order.

The generator is Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): ten rounds of
multiplications that turn a counter and a key into four 32-bit words. Here key = (seed mod 2^32, seed div 2^32) and
counter = (first token, second token, layer, crc32 of the name); tokens and layers count from 0.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weftc.core.errors import InputError
from weftc.interpreter.tables import Floats

Words = NDArray[np.uint64]  # 32-bit words, in 64 bits to multiply them

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
LOW = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)


def philox(counter: tuple[Any, Any, Any, Any], key: tuple[int, int]) -> tuple[Words, Words, Words, Words]:
    """Four 32-bit words for every counter; the counters are arrays of one shape, or numbers."""
    a, b, c, d = (np.asarray(word, dtype=np.uint64) for word in counter)
    first, second = (np.uint64(m) for m in MULTIPLIERS)
    for step in range(ROUNDS):
        left_key, right_key = (
            np.uint64((word + step * bump) & 0xFFFFFFFF) for word, bump in zip(key, KEY_STEPS, strict=True)
        )
        left, right = a * first, c * second
        a, b, c, d = (right >> HALF) ^ b ^ left_key, right & LOW, (left >> HALF) ^ d ^ right_key, left & LOW
    return a, b, c, d


def uniforms(seed: int, name: str, layer: int, i: Any, j: Any) -> tuple[Floats, Floats]:
    """Two independent numbers in (0, 1) for each pair of tokens."""
    if not 0 <= seed < 2**64:
        raise InputError(f"the seed must lie between 0 and 2^64 - 1, not {seed}")
    counter = (i, j, layer, zlib.crc32(name.encode("utf-8")))
    r = philox(counter, (seed & 0xFFFFFFFF, seed >> 32))
    return _unit_interval(r[0], r[1]), _unit_interval(r[2], r[3])


def _unit_interval(high: Words, low: Words) -> Floats:
    """The 53 leading bits as a fraction, moved half a step away from 0; the last one would round to 1 and may not."""
    bits = ((high << HALF) | low) >> np.uint64(11)
    return np.minimum(bits.astype(np.float64) * 2.0**-53 + 2.0**-54, 1.0 - 2.0**-53)


def draw(kind: str, seed: int, name: str, layer: int, shape: tuple[int, ...]) -> Floats:
    """A random field of numbers (n,) or pairs (n, k) for one layer."""
    rows = np.arange(shape[0])
    i, j = np.meshgrid(rows, np.arange(shape[1]), indexing="ij") if len(shape) == 2 else (rows, np.zeros_like(rows))
    first, second = uniforms(seed, name, layer, i, j)
    match kind:
        case "gumbel":
            return np.asarray(-np.log(-np.log(first)))
        case "normal":
            return np.asarray(np.sqrt(-2.0 * np.log(first)) * np.cos(2.0 * np.pi * second))
    return first
