"""The counter-based generator and the initialisers: known answers, and functions of the seed alone."""

from __future__ import annotations

import math
from zlib import crc32

import numpy as np
import pytest

from weftc_runtime.data.initial import start
from weftc_runtime.data.noise import noise, philox, uniforms
from weftc_runtime.errors import RunError

# Published test vectors of Philox4x32-10: counter, key, output.
VECTORS = [
    ((0, 0, 0, 0), 0, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, 0xFFFFFFFFFFFFFFFF, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        0xA4093822 | 0x299F31D0 << 32,
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "want"), VECTORS)
def test_known_answers(counter: tuple[int, ...], key: int, want: tuple[int, ...]) -> None:
    words = philox(tuple(np.array([c], dtype=np.uint64) for c in counter), key)  # type: ignore[arg-type]
    assert tuple(int(w[0]) for w in words) == want


def by_hand(seed: int, name: str, layer: int, i: int, j: int) -> tuple[float, float]:
    """Two uniform numbers in plain Python integers."""
    c = [i, j, layer, crc32(name.encode())]
    k = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        left, right = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [(right >> 32) ^ c[1] ^ k[0], right & 0xFFFFFFFF, (left >> 32) ^ c[3] ^ k[1], left & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) % 2**32, (k[1] + 0xBB67AE85) % 2**32]
    one, two = ((c[n] << 32 | c[n + 1]) >> 11 for n in (0, 2))
    return one * 2.0**-53 + 2.0**-54, two * 2.0**-53 + 2.0**-54


def test_every_entry_is_a_function_of_its_indices() -> None:
    seed = 2**40 + 7
    u, other = uniforms(seed, "g", 3, 5, 4)
    for i in range(5):
        for j in range(4):
            assert (u[i, j], other[i, j]) == by_hand(seed, "g", 3, i, j)
    larger, _ = uniforms(seed, "g", 3, 9, 6)
    assert np.array_equal(larger[:5, :4], u)
    assert not np.array_equal(uniforms(seed, "h", 3, 5, 4)[0], u)
    assert not np.array_equal(uniforms(seed, "g", 2, 5, 4)[0], u)
    assert not np.array_equal(uniforms(7, "g", 3, 5, 4)[0], u)


def test_laws() -> None:
    u, other = by_hand(1, "n", 0, 2, 1)
    assert noise("uniform", 1, "n", 0, 3, 2)[2, 1] == u
    assert noise("gumbel", 1, "n", 0, 3, 2)[2, 1] == pytest.approx(-math.log(-math.log(u)), rel=1e-15)
    wave = math.sqrt(-2 * math.log(u)) * math.cos(2 * math.pi * other)
    assert noise("normal", 1, "n", 0, 3, 2)[2, 1] == pytest.approx(wave, rel=1e-14)
    many = noise("normal", 3, "n", 0, 20000, 1)
    assert abs(many.mean()) < 0.03
    assert abs(many.std() - 1) < 0.02
    gumbel = noise("gumbel", 3, "n", 0, 20000, 1)
    assert abs(gumbel.mean() - 0.5772) < 0.04


@pytest.mark.parametrize("seed", [-1, 2**64, 1.5, "0", True])
def test_bad_seeds_are_refused(seed: object) -> None:
    with pytest.raises(RunError, match="whole number"):
        noise("uniform", seed, "g", 0, 1, 1)  # type: ignore[arg-type]


ROWS = np.array([[3.0, 0.0], [1.0, 1.0], [3.0, 0.0], [0.0, 5.0], [1.0, 1.0], [3.0, 0.0], [2.0, 2.0]])


def test_first_takes_distinct_rows_in_order() -> None:
    assert start("first", ROWS, 3, "c", "x", 0).tolist() == [[3, 0], [1, 1], [0, 5]]


def test_copy_takes_the_rows_as_they_are() -> None:
    assert np.array_equal(start("copy", ROWS, None, "m", "x", 0), ROWS)


def test_random_is_by_multiplicity_without_replacement() -> None:
    """By hand: sorted rows (0,5) (1,1) (2,2) (3,0) with multiplicities 1, 2, 1, 3."""
    for seed in range(20):
        left = {(0.0, 5.0): 1.0, (1.0, 1.0): 2.0, (2.0, 2.0): 1.0, (3.0, 0.0): 3.0}
        want = []
        for pick in range(3):
            target, reached = by_hand(seed, "init:c", 0, pick, 0)[0] * sum(left.values()), 0.0
            for row in sorted(left):
                reached += left[row]
                if reached > target:
                    break
            want.append(list(row))
            left[row] = 0.0
        assert start("random", ROWS, 3, "c", "x", seed).tolist() == want


def test_spread_is_by_squared_distance() -> None:
    for seed in range(20):
        weight = {(0.0, 5.0): 1, (1.0, 1.0): 2, (2.0, 2.0): 1, (3.0, 0.0): 3}
        chosen: list[tuple[float, ...]] = []
        for pick in range(4):
            mass = {
                row: w * min((sum((a - b) ** 2 for a, b in zip(row, c, strict=True)) for c in chosen), default=1.0)
                for row, w in weight.items()
            }
            target, reached = by_hand(seed, "init:c", 0, pick, 0)[0] * sum(mass.values()), 0.0
            for row in sorted(mass):
                reached += mass[row]
                if reached > target:
                    break
            chosen.append(row)
        assert [tuple(r) for r in start("spread", ROWS, 4, "c", "x", seed).tolist()] == chosen


@pytest.mark.parametrize("method", ["random", "spread"])
def test_the_order_of_the_rows_does_not_matter(method: str) -> None:
    for seed in range(10):
        assert np.array_equal(start(method, ROWS, 3, "c", "x", seed), start(method, ROWS[::-1], 3, "c", "x", seed))


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_spread_survives_squares_out_of_range(scale: float) -> None:
    rows = start("spread", ROWS * scale, 4, "c", "x", 1)
    assert len({tuple(row) for row in rows.tolist()}) == 4


def test_too_few_rows_and_unknown_sizes_say_what_to_do() -> None:
    with pytest.raises(RunError, match="c starts from 5 different rows of x, which has only 4; give c"):
        start("spread", ROWS, 5, "c", "x", 0)
    with pytest.raises(RunError, match="give c: how many rows"):
        start("random", ROWS, None, "c", "x", 0)
