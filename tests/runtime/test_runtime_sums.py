"""Exact sums: equal to `math.fsum` bit for bit, in every order, with the gradients of a plain sum."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from weftc_runtime.exact import sums
from weftc_runtime.exact.sums import exact_sum, scale_by_power, weighted_sum

NUMBERS = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300)
TINY = st.floats(min_value=-1e-306, max_value=1e-306)
WHOLE = st.integers(-3, 3).map(float)


def bits(x: float) -> bytes:
    return torch.tensor(x, dtype=torch.float64).numpy().tobytes() if x else b"zero"


@contextmanager
def long_way() -> Iterator[None]:
    """Sums in tensors, however few terms there are."""
    few, sums.FEW = sums.FEW, 0
    yield
    sums.FEW = few


def total(x: list[float]) -> float:
    short = float(exact_sum(torch.tensor(x, dtype=torch.float64), 0))
    with long_way():
        assert bits(float(exact_sum(torch.tensor(x, dtype=torch.float64), 0))) == bits(short)
    return short


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.one_of(*(st.lists(kind, min_size=1, max_size=40) for kind in (NUMBERS, TINY, WHOLE))))
def test_the_sum_is_that_of_fsum(x: list[float]) -> None:
    assert bits(total(x)) == bits(math.fsum(x))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(NUMBERS, min_size=1, max_size=20), st.floats(-1e-300, 1e-300), st.randoms())
def test_cancellation_leaves_exactly_the_rest(x: list[float], rest: float, shuffle: random.Random) -> None:
    terms = [*x, *(-v for v in x), rest]
    shuffle.shuffle(terms)
    assert bits(total(terms)) == bits(rest)


@pytest.mark.parametrize(
    ("terms", "want"),
    [
        ([1.0, 2.0**-53], 1.0),  # half way: to even
        ([1.0 + 2.0**-52, 2.0**-53], 1.0 + 2.0**-51),  # half way: to even, upwards
        ([1.0, 2.0**-53, 2.0**-1074], 1.0 + 2.0**-52),  # just above half way, seen through 1021 bits
        ([1.0, 2.0**-53, 2.0**-200], 1.0 + 2.0**-52),
        ([1.0, 2.0**-53, -(2.0**-130)], 1.0),
        ([1.0, -(2.0**-54), -(2.0**-1074)], 1.0 - 2.0**-53),
        ([2.0**-1074, 2.0**-1074], 2.0**-1073),
        ([1.7e308, 1.7e308, -1.7e308], 1.7e308),
        ([1e16, 1.0, -1e16], 1.0),
    ],
)
def test_rounding_by_hand(terms: list[float], want: float) -> None:
    assert total(terms) == want
    assert total([-t for t in terms]) == -want


def test_a_sum_that_overflows_is_infinite() -> None:
    assert total([1.7e308, 1.7e308]) == math.inf


def test_every_axis_and_blocking() -> None:
    torch.manual_seed(0)
    x = torch.randn(700, 3, 401, dtype=torch.float64) * torch.logspace(-12, 12, 401, dtype=torch.float64)
    sums = exact_sum(x, 2)
    assert sums.shape == (700, 3)
    assert float(sums[5, 1]) == math.fsum(x[5, 1].tolist())
    assert torch.equal(exact_sum(x.flip(2), 2), sums)
    assert float(exact_sum(x, 0)[2, 7]) == math.fsum(x[:, 2, 7].tolist())


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(1, 5), st.integers(1, 6), st.integers(1, 4), st.floats(0, 1), st.booleans(), st.integers(0, 10**6))
def test_weighted_sums(queries: int, keys: int, columns: int, empty: float, own: bool, seed: int) -> None:
    torch.manual_seed(seed)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.float64) * (torch.rand(*shape) >= empty)

    w, v, o = draw(queries, keys), draw(keys, columns), draw(queries, columns) if own else None
    out = weighted_sum(w, v, o)
    with long_way():
        assert torch.equal(weighted_sum(w, v, o), out)
    for q in range(queries):
        for c in range(columns):
            terms = [float(w[q, k] * v[k, c]) for k in range(keys)] + ([float(o[q, c])] if o is not None else [])
            assert float(out[q, c]) == math.fsum(terms)


def test_gradients_are_those_of_a_plain_sum() -> None:
    torch.manual_seed(1)
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    w, v = (
        torch.randn(3, 4, dtype=torch.float64).requires_grad_(),
        torch.zeros(4, 2, dtype=torch.float64).requires_grad_(),
    )
    own = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: exact_sum(t, 0), (x,))
    assert torch.autograd.gradcheck(weighted_sum, (w, v, own))
    assert torch.autograd.gradgradcheck(weighted_sum, (w, v, own))


def test_powers_of_two_are_exact_at_both_ends() -> None:
    x = torch.tensor([1.5, 2.0**1023, 2.0**-1074], dtype=torch.float64)
    assert scale_by_power(x, torch.tensor([-1060, -2097, 2097])).tolist() == [1.5 * 2.0**-1060, 2.0**-1074, 2.0**1023]
