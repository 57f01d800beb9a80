"""Random fields and initialisers: published test vectors, laws of the numbers, and starts worked by hand."""

from __future__ import annotations

import zlib
from fractions import Fraction

import numpy as np
import pytest

from interpreting import CLUSTERS, FIVE, LLOYD, POINTS, interpreter
from weftc.core.errors import InputError
from weftc.interpreter.noise import draw, philox, uniforms
from weftc_runtime.data.initial import start as starts_of_runtime

# Known answers of Random123 1.09 for philox4x32-10: counter, key, result
VECTORS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text: str) -> tuple[int, ...]:
    return tuple(int(word, 16) for word in text.split())


@pytest.mark.parametrize(("counter", "key", "result"), VECTORS)
def test_philox_gives_the_published_words(counter: str, key: str, result: str) -> None:
    found = philox(words(counter), words(key))  # type: ignore[arg-type]
    assert tuple(int(w) for w in found) == words(result)


def test_numbers_are_a_function_of_seed_name_layer_and_tokens() -> None:
    seed = 3 + (5 << 32)
    r = [int(w) for w in philox((2, 1, 7, zlib.crc32(b"g")), (3, 5))]
    first, second = ((((r[a] << 32) | r[a + 1]) >> 11) * 2.0**-53 + 2.0**-54 for a in (0, 2))
    assert draw("uniform", seed, "g", 7, (4, 3))[2, 1] == first
    assert draw("gumbel", seed, "g", 7, (4, 3))[2, 1] == -np.log(-np.log(first))
    normal = np.sqrt(-2 * np.log(first)) * np.cos(2 * np.pi * second)
    assert draw("normal", seed, "g", 7, (4, 3))[2, 1] == normal
    # larger sets only add numbers, and one index means the second token is 0
    assert np.array_equal(draw("normal", seed, "g", 7, (9, 5))[:4, :3], draw("normal", seed, "g", 7, (4, 3)))
    assert np.array_equal(draw("normal", seed, "g", 7, (4,)), draw("normal", seed, "g", 7, (4, 1))[:, 0])
    for other in ((seed + 1, "g", 7), (seed, "h", 7), (seed, "g", 8)):
        assert not np.isin(draw("uniform", *other, (4, 3)), draw("uniform", seed, "g", 7, (4, 3))).any()


def test_numbers_have_the_moments_of_their_laws() -> None:
    n = 40_000  # standard error of a mean: 0.005 deviations
    for kind, mean, deviation in (("uniform", 0.5, 12**-0.5), ("normal", 0, 1), ("gumbel", 0.5772, np.pi / 6**0.5)):
        values = draw(kind, 11, "g", 0, (n // 4, 4))
        assert abs(values.mean() - mean) < 5 * deviation / np.sqrt(n)
        assert abs(values.std() - deviation) < 0.03
    assert draw("uniform", 11, "g", 0, (n,)).min() > 0


NOISY = f"{POINTS}random g[i] : normal layer a[i] = g[i] outputs a"


def test_each_layer_draws_anew_and_an_array_replaces_it() -> None:
    machine = interpreter(NOISY)
    for layers in (1, 2):
        found = machine.run({"x": FIVE}, layers, seed=4)["a"]
        assert np.array_equal(found, draw("normal", 4, "g", layers - 1, (5,)))
    given = np.arange(10.0).reshape(2, 5)
    assert machine.run({"x": FIVE}, 2, noise={"g": given})["a"].tolist() == given[1].tolist()


def test_noise_that_does_not_fit_is_refused() -> None:
    machine = interpreter(NOISY)
    with pytest.raises(InputError, match=r"noise for g must have the shape \[layers, 5\]"):
        machine.run({"x": FIVE}, 1, noise={"g": np.zeros((1, 4))})
    with pytest.raises(InputError, match="more than 1 layers"):
        machine.run({"x": FIVE}, 2, noise={"g": np.zeros((1, 5))})
    with pytest.raises(InputError, match="not finite in layer 1"):
        machine.run({"x": FIVE}, 1, noise={"g": np.full((1, 5), np.nan)})
    with pytest.raises(InputError, match="has no random field h"):
        machine.run({"x": FIVE}, 1, noise={"h": np.zeros((1, 5))})
    with pytest.raises(InputError, match="the seed must lie between"):
        machine.run({"x": FIVE}, 1, seed=-1)


# ---- initialisers ----------------------------------------------------------------------------------------------------


def start(kind: str, x: object, k: int, seed: int = 0) -> list[float]:
    text = LLOYD.replace("c[j] : R^d", f"c[j] : R^d init {kind}(x)")
    return interpreter(text, {"k": k}).start({"x": x}, seed=seed)["c"].ravel().tolist()


def pick(chances: list[float], number: float) -> int:
    cumulative = np.cumsum(chances)
    return next(at for at, c in enumerate(cumulative) if c > number * cumulative[-1])


def test_first_takes_distinct_rows_in_the_given_order() -> None:
    assert start("first", [[5.0], [5.0], [1.0], [5.0], [9.0]], 3) == [5.0, 1.0, 9.0]


@pytest.mark.parametrize("seed", range(12))
def test_random_and_spread_pick_by_inverse_cumulative_chances(seed: int) -> None:
    rows, counts = [1.0, 4.0, 7.0, 8.0, 12.0], [30.0, 2.0, 1.0, 9.0, 3.0]
    x = np.random.default_rng(0).permutation(np.repeat(rows, np.array(counts, dtype=int)))[:, np.newaxis]
    numbers = uniforms(seed, "init:c", 0, np.arange(4), 0)[0].tolist()
    left, expected = list(counts), []
    for number in numbers:
        at = pick(left, number)
        expected.append(rows[at])
        left[at] = 0.0
    assert start("random", x, 4, seed) == expected
    spread = [rows[pick(counts, numbers[0])]]
    for number in numbers[1:]:
        chances = [w * min((r - s) ** 2 for s in spread) for w, r in zip(counts, rows, strict=True)]
        spread.append(rows[pick(chances, number)])
    assert start("spread", x, 4, seed) == spread


def test_starts_do_not_depend_on_the_order_of_rows() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 1))
    for kind in ("random", "spread"):
        assert start(kind, x, 5, 9) == start(kind, rng.permutation(x), 5, 9)
        assert start(kind, x, 5, 9) != start(kind, x, 5, 10)
        assert len(set(start(kind, x, 30, 9))) == 30


def test_starts_do_not_depend_on_scale() -> None:
    x = np.random.default_rng(1).normal(size=(30, 1))
    for scale in (2.0**-1000, 2.0**1000):
        assert start("spread", x * scale, 6) == [value * scale for value in start("spread", x, 6)]


def test_spread_loses_no_row_among_wildly_mixed_scales() -> None:
    """One rule for interpreter and runtime, in fractions here: no squared distance overflows or vanishes."""
    pool = np.array([1.7e308, -1.7e308, 1e300, 1.0, 1 + 2**-52, 1e-300, 5e-324, 0.0])
    rng = np.random.default_rng(4)
    for seed in range(40):
        x = rng.choice(pool, size=(6, 2))
        x = x[np.sort(np.unique(x, axis=0, return_index=True)[1])]
        chosen = interpreter(LLOYD.replace("c[j] : R^d", "c[j] : R^d init spread(x)"), {"k": len(x)}).start(
            {"x": x}, seed=seed
        )["c"]
        assert chosen.tolist() == starts_of_runtime("spread", x, len(x), "c", "x", seed).tolist()
        rows = np.unique(x, axis=0)
        numbers = uniforms(seed, "init:c", 0, np.arange(len(x)), 0)[0].tolist()
        exact = [[Fraction(v) for v in row] for row in rows.tolist()]
        picks = [pick([1.0] * len(rows), numbers[0])]
        for number in numbers[1:]:
            chances = [min(sum((a - b) ** 2 for a, b in zip(r, exact[p], strict=True)) for p in picks) for r in exact]
            picks.append(pick([float(c / max(chances)) for c in chances], number))
        assert chosen.tolist() == rows[picks].tolist()


def test_copy_takes_the_rows_as_they_are() -> None:
    text = """algorithm test tokens i in points, p in modes inputs x[i] : R^d, m[p] : R^d init copy(x)
    layer m[p] = 2 * m[p] outputs m"""
    assert interpreter(text).run({"x": FIVE}, 1)["m"].tolist() == (2 * FIVE).tolist()


def test_starts_that_cannot_be_made_are_refused() -> None:
    with pytest.raises(InputError, match=r"c starts from 3 different rows of x .*has only 2 different rows"):
        start("spread", [[1.0], [2.0], [1.0]], 3)
    with pytest.raises(InputError, match="needs the dimension k"):
        interpreter(f"{CLUSTERS} layer c[j] = c[j] outputs c".replace("c[j] : R^d", "c[j] : R^d init first(x)")).start(
            {"x": FIVE}
        )
