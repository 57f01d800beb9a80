"""Starts keep their bits: native code and blocks of NumPy pick the rows that a plain implementation picks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

import weftc
import weftc_runtime.threads
from weftc.interpreter.initial import initial_rows
from weftc_runtime.data import initial
from weftc_runtime.data.initial import start
from weftc_runtime.data.noise import uniforms
from weftc_runtime.kernels.native import starts
from weftc_runtime.kernels.native.library import library

Array = npt.NDArray[np.float64]


def plain(method: str, rows: Array, size: int, name: str, seed: int, mass: Array | None = None) -> Array:
    """The first implementation: whole arrays, NumPy alone. Bits are promised, so it stays as it was."""
    values, place = np.unique(rows.astype(np.float64) + 0.0, axis=0, return_inverse=True)
    weights = np.bincount(place.ravel(), weights=mass, minlength=len(values)).astype(np.float64)
    u = uniforms(seed, "init:" + name, 0, size, 1)[0][:, 0]

    def pick(masses: Array, number: float) -> int:
        cumulative = np.cumsum(masses)
        index = int(np.searchsorted(cumulative, number * cumulative[-1], side="right"))
        return min(index, int(np.flatnonzero(masses)[-1]))

    def squared(row: Array) -> tuple[Array, npt.NDArray[np.int64]]:
        with np.errstate(over="ignore"):
            difference = values - row
        wide = ~np.isfinite(difference).all(axis=1)
        difference[wide] = values[wide] / 2 - row / 2
        scale = np.frexp(np.abs(difference).max(axis=1))[1].astype(np.int64)
        total = np.zeros(len(values))
        for column in range(values.shape[1]):
            total += np.square(np.ldexp(difference[:, column], -scale))
        mantissa, power = np.frexp(total)
        return mantissa, np.where(total > 0, power + 2 * (scale + wide), -(2**20))

    picks = [pick(weights, float(u[0]))]
    if method == "random":
        for number in u[1:]:
            weights[picks[-1]] = 0.0
            picks.append(pick(weights, float(number)))
        return np.asarray(values[picks])
    mantissa, power = squared(values[picks[0]])
    for number in u[1:]:
        picks.append(pick(weights * np.ldexp(mantissa, np.maximum(power - power.max(), -4096)), float(number)))
        other, its_power = squared(values[picks[-1]])
        farther = (power > its_power) | ((power == its_power) & (mantissa > other))
        mantissa, power = np.where(farther, other, mantissa), np.where(farther, its_power, power)
    return np.asarray(values[picks])


def cases() -> dict[str, npt.NDArray[np.floating[npt.NBitBase]]]:
    """Rows of every kind, some of them repeated."""
    random = np.random.default_rng(7)
    normal = random.normal(size=(9000, 5))
    few = random.integers(0, 3, size=(9000, 4)).astype(np.float64)
    far = normal[:2000] * np.ldexp(1.0, random.integers(-900, 900, size=(2000, 1)))
    return {
        "normal": normal,
        "float32": normal.astype(np.float32),
        "few different rows": few,
        "zeros of both signs": np.where(few == 0, -0.0, few) * random.choice([-1.0, 1.0], size=few.shape),
        "rows repeated": normal[random.integers(0, 700, size=9000)],
        "one column": normal[:, :1],
        "the last column decides": np.concatenate([np.ones((9000, 6)), normal[:, :1]], axis=1),
        "low bits decide": 1.0 + random.integers(0, 4000, size=(9000, 1)) * 2.0**-52,
        "every other row and column": normal[::2, ::2],
        "backwards": normal[::-1, ::-1],
        "columns in memory": np.asfortranarray(normal),
        "beyond squares": far,
        "tiny": normal * 1e-200,
        "subnormal": random.integers(-9, 9, size=(3000, 3)) * 5e-324,
        "the whole range": random.choice([-1.7e308, 0.0, 1.7e308, 1.0], size=(3000, 4)),
    }


CASES = cases()


@pytest.fixture(params=["native", "native, three threads", "blocks"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    assert library() is not None
    monkeypatch.setattr(initial, "NATIVE", 0 if request.param != "blocks" else 2**60)
    monkeypatch.setattr(initial, "ENTRIES", 777)
    monkeypatch.setattr(weftc_runtime.threads, "cores", lambda: 3 if "three" in request.param else 1)
    return str(request.param)


@pytest.mark.parametrize("method", ["spread", "random"])
@pytest.mark.parametrize("name", CASES)
def test_starts_have_the_bits_of_the_plain_implementation(name: str, method: str, way: str) -> None:
    rows = CASES[name]
    size = min(12, len(np.unique(rows + 0.0, axis=0)))
    for seed in range(2):
        found, want = start(method, rows, size, "c", "x", seed), plain(method, rows, size, "c", seed)
        assert found.tobytes() == want.tobytes()


@pytest.mark.parametrize("method", ["spread", "random"])
@pytest.mark.parametrize("name", ["normal", "few different rows", "rows repeated", "beyond squares"])
def test_weighted_starts_have_the_bits_of_the_plain_implementation(name: str, method: str, way: str) -> None:
    rows = CASES[name]
    mass = np.random.default_rng(3).uniform(0.1, 3.0, size=len(rows))
    found, want = start(method, rows, 9, "c", "x", 5, mass), plain(method, rows, 9, "c", 5, mass)
    assert found.tobytes() == want.tobytes()


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_many_rows_are_sorted_on_many_cores(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough rows for pieces that are sorted side by side and merged, of values that repeat."""
    monkeypatch.setattr(weftc_runtime.threads, "cores", lambda: threads)
    random = np.random.default_rng(11)
    rows = np.concatenate([random.integers(0, 300, size=(250_000, 2)), random.normal(size=(250_000, 1))], axis=1)
    rows[:100_000, 2] = 0.0
    found = starts.native_urn(rows, None)
    assert found is not None
    values, first = np.unique(rows, axis=0, return_index=True)
    assert found.count == len(values)
    assert [found.row(place) for place in range(0, len(values), 997)] == first[::997].tolist()


def test_a_start_tells_how_far_it_is() -> None:
    told: list[tuple[str, int, int | None]] = []
    model = weftc.load(weftc.compile("lloyd", {"d": 1, "k": 3}, layers=1))
    model(x=[[0.0], [1.0], [5.0], [9.0]], progress=lambda *given: told.append(given))
    assert told == [
        *(("start", done, 3) for done in range(4)),
        ("layer", 0, 1),
        ("layer", 1, 1),
    ]  # once, not per backend


@pytest.mark.parametrize("method", ["random", "spread", "first"])
@pytest.mark.parametrize("native", [True, False])
def test_starts_of_several_seeds_are_those_of_each(method: str, native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not native:
        monkeypatch.setattr("weftc_runtime.data.initial.native_urn", lambda *_, **__: None)
    rows, mass = np.random.default_rng(2).integers(0, 4, size=(70, 2)) / 3, np.arange(1.0, 71.0)
    for some in (None, mass):
        together = initial.starts(method, rows, 5, "c", "x", [4, 0, 9], some)
        for seed, found in zip([4, 0, 9], together, strict=True):
            assert np.array_equal(found, initial.start(method, rows, 5, "c", "x", seed, some))


@pytest.mark.parametrize("name", ["normal", "few different rows", "rows repeated", "tiny", "backwards", "one column"])
def test_spectral_starts_are_those_of_the_interpreter(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(initial, "ENTRIES", 777)
    rows = CASES[name][:1500]
    size = min(4, len(np.unique(rows + 0.0, axis=0)))
    for seed in range(5):
        want = initial_rows("spectral", "c", "x", rows.astype(np.float64), size, seed)
        np.testing.assert_array_equal(start("spectral", rows, size, "c", "x", seed), want)


def test_spectral_starts_look_along_the_leading_eigenvectors() -> None:
    """What lies across them does not count; copies along them are picked last; weights are rows that are repeated."""
    rng = np.random.default_rng(0)
    rows, across = rng.normal(size=(60, 2)) * [9.0, 5.0], rng.normal(size=(60, 3)) * 1e-3
    for seed in range(10):
        picked = start("spectral", np.hstack([rows, across]), 2, "c", "x", seed)
        np.testing.assert_array_equal(picked[:, :2], start("spread", rows, 2, "c", "x", seed))
    line = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 0.0], [2.0, 0.0]])
    assert len(np.unique(start("spectral", line, 3, "c", "x", 0), axis=0)) == 3
    mass = np.array([3.0, 1.0, 2.0, 1.0])
    some = rng.normal(size=(4, 2))
    repeated = np.repeat(some, mass.astype(int), axis=0)
    for seed in range(5):
        want = start("spectral", repeated, 2, "c", "x", seed)
        np.testing.assert_array_equal(start("spectral", some, 2, "c", "x", seed, mass), want)
