"""Products in float32 are full ones, whatever the user has allowed by which switch, and the switches go back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
import torch

from planned_cases import assert_same_bits, both, compiled, problem
from weftc_runtime.kernels.precision import full_precision
from weftc_runtime.machines import heads_nearest

CUDA, ONEDNN = torch.backends.cuda.matmul, cast(Any, torch.backends.mkldnn).matmul
EVERY = cast(Any, torch.backends)


def switches() -> tuple[str, str]:
    return CUDA.fp32_precision, ONEDNN.fp32_precision


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before, every = switches(), EVERY.fp32_precision
    yield
    EVERY.fp32_precision = every
    CUDA.fp32_precision, ONEDNN.fp32_precision = before


def allow_all() -> None:
    CUDA.fp32_precision, ONEDNN.fp32_precision = "tf32", "bf16"


CHOICES: dict[str, Callable[[], object]] = {
    "nothing": lambda: None,
    "high": lambda: torch.set_float32_matmul_precision("high"),
    "medium": lambda: torch.set_float32_matmul_precision("medium"),
    "tf32 of CUDA": lambda: setattr(CUDA, "allow_tf32", True),
    "one switch": lambda: setattr(ONEDNN, "fp32_precision", "bf16"),
    "both switches": allow_all,
    "the switch above them": lambda: setattr(EVERY, "fp32_precision", "tf32"),
}


@pytest.mark.filterwarnings("ignore:TF32 acceleration")
@pytest.mark.parametrize("choice", CHOICES)
def test_full_precision_is_pinned_and_given_back(choice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads_nearest, "library", lambda build: None)  # torch multiplies
    reference, linear = both(compiled("lloyd", width=8, count=4))
    inputs = problem("lloyd", "random", 400, 13, d=8, k=4)
    expected = reference(inputs)
    CHOICES[choice]()
    chosen = switches()
    with full_precision():
        assert switches() == ("ieee", "ieee")
    assert switches() == chosen
    assert_same_bits(expected, linear(inputs))
    assert switches() == chosen


def test_the_first_to_leave_does_not_take_it_from_the_others() -> None:
    torch.set_float32_matmul_precision("high")
    one, other = full_precision(), full_precision()
    one.__enter__()
    other.__enter__()
    one.__exit__(None, None, None)
    assert switches() == ("ieee", "ieee")
    other.__exit__(None, None, None)
    assert switches() == ("tf32", "tf32")
    assert torch.get_float32_matmul_precision() == "high"
