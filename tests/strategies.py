"""Hypothesis strategies: inputs for any spec, from its declarations, with everything that makes decisions hard."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from weftc.core.types import Checked
from weftc.verification.cases.inputs import FAMILIES, PAIRS, Case, Shape, conform, draw

SCALES = (1.0, 1e-6, 1e-3, 1e3, 1e6)
OFFSETS = (0.0, 1.0, 1e3, 1e6)


def dimensions(checked: Checked) -> st.SearchStrategy[dict[str, int]]:
    """Sizes of all dimensions, one included."""
    return st.fixed_dictionaries({name: st.integers(1, 4) for name in checked.dims})


@st.composite
def shapes(draw_: st.DrawFn, checked: Checked, dims: Mapping[str, int]) -> Shape:
    """Sizes of all token sets: one token, as many as another set, fewer and more."""
    sizes = {}
    for name, size in checked.sets.items():
        fixed = dims[size] if isinstance(size, str) else size
        sizes[name] = draw_(st.integers(1, 7)) if fixed is None else fixed
    return Shape(dims, sizes)


@st.composite
def family_cases(draw_: st.DrawFn, checked: Checked, dims: Mapping[str, int], dtype: Any = np.float64) -> Case:
    """A case of one of the families that `weftc verify` uses."""
    shape = draw_(shapes(checked, dims))
    family = draw_(st.sampled_from(list(FAMILIES)))
    rng = np.random.default_rng(draw_(st.integers(0, 2**32 - 1)))
    return draw(checked, shape, family, rng, dtype)


@st.composite
def free_cases(draw_: st.DrawFn, checked: Checked, dims: Mapping[str, int], dtype: Any = np.float64) -> Case:
    """A case whose numbers Hypothesis chooses (and shrinks): a few small numbers, scaled and shifted together."""
    shape = draw_(shapes(checked, dims))
    scale, offset = draw_(st.sampled_from(SCALES)), draw_(st.sampled_from(OFFSETS))
    whole = draw_(st.booleans())
    inputs = {}
    for one in (checked.fields[f.target.name] for f in checked.spec.inputs):
        size = shape.of(checked, one)
        elements: st.SearchStrategy[float] = st.integers(-3, 3).map(float)
        if not whole:
            elements = st.floats(-4, 4, allow_nan=False, width=32)
        rng = np.random.default_rng(draw_(st.integers(0, 2**16)))
        values = None
        if one.kind not in PAIRS:
            values = draw_(hnp.arrays(np.float64, size, elements=elements)) * scale + offset
        inputs[one.name] = conform(one, values, size, "exact ties on a grid" if whole else "random", rng, dtype)
    return Case("drawn by Hypothesis", inputs, draw_(st.integers(1, 3)), draw_(st.integers(0, 2**32 - 1)))
