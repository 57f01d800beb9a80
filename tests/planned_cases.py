"""Problems for the planned backend, from any spec's declarations, and what it must share with the reference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

import weftc_runtime
from agreement import default_dims
from weftc.compiling import checked_spec, compile
from weftc.verification.cases.inputs import Shape, draw
from weftc_runtime import Checkpoint, Model, OneHot
from weftc_runtime.plan.instructions import Plan


@cache
def compiled(name: str, width: int = 2, count: int = 3, **styles: Any) -> Checkpoint:
    """A built-in spec, compiled."""
    checked = checked_spec(name)
    return compile(checked, default_dims(checked, width, count), layers=3, **styles)


def problem(name: str, family: str, tokens: int, seed: int, dtype: str = "float64", **dims: int) -> dict[str, Any]:
    """Inputs of a spec of one of the families that `weftc verify` uses, `tokens` in every open set."""
    checked = checked_spec(name)
    sizes = {**default_dims(checked), **dims}
    fixed = {s: sizes[size] if isinstance(size, str) else size for s, size in checked.sets.items()}
    shape = Shape(sizes, {s: tokens if size is None else size for s, size in fixed.items()})
    return dict(draw(checked, shape, family, np.random.default_rng(seed), np.dtype(dtype)).inputs)


def both(checkpoint: Checkpoint, dtype: torch.dtype = torch.float64) -> tuple[Model, Model]:
    """The reference and the planned backend of one checkpoint."""
    reference = weftc_runtime.load(checkpoint, dtype=dtype, backend="reference")
    return reference, weftc_runtime.load(checkpoint, dtype=dtype, backend="planned")


def plain(value: Tensor | OneHot) -> Tensor:
    """An output as numbers."""
    return value.indices if isinstance(value, OneHot) else value


def assert_same_bits(one: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    """All outputs are equal."""
    assert list(one) == list(other)
    for name in one:
        assert torch.equal(plain(one[name]), plain(other[name])), name


def promises_bits(plan: Plan) -> bool:
    """Whether every weight is decided or a constant: then the backends agree bit for bit."""
    return not any(head.strategy == "stream" or head.head.weighting.kind == "softmax" for _, head in plan.heads())


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Torch on so many cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
