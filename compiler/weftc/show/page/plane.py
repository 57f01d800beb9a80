"""Fields of a recording -> positions in the plane: plain coordinates, or the principal components of wider vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weftc.core.types import Checked, FieldType
from weftc.show.page.recording import Recording

Array = NDArray[Any]
STRETCH = 6.0  # how many times longer one side may be than the other before the axes get units of their own


@dataclass(frozen=True, slots=True)
class Trail:
    """A vector field in the plane: positions in every frame, or once if no layer writes it."""

    name: str
    stream: str
    frames: tuple[Array, ...]  # (tokens, 2) each
    moves: bool
    given: bool  # an input or state, not only computed on the way


@dataclass(frozen=True, slots=True)
class Plane:
    """What is drawn, and what its axes mean."""

    trails: tuple[Trail, ...]
    axes: tuple[str, str]
    how: str  # in a sentence
    low: tuple[float, float]
    high: tuple[float, float]
    equal: bool  # whether both axes have the same unit


def plane(
    recording: Recording, checked: Checked, dims: Mapping[str, int], names: Mapping[str, Sequence[str]]
) -> Plane | None:
    """The vectors that can be compared with the first open input, if they have two dimensions or more."""
    width = _width(checked, dims)
    if width is None:
        return None
    dimension, size = width
    chosen = [one for one in checked.fields.values() if one.width == dimension and one.role != "random"]
    chosen = [one for one in chosen if one.name in recording.frames[-1].fields]
    if not chosen:
        return None
    first = [one for one in chosen if one.role == "input"] or chosen
    base = np.concatenate([_rows(recording, one, 0) for one in first])
    project, axes, how = _projection(base, size, [one.name for one in first], _labels(chosen, names, size))
    trails = []
    for one in chosen:
        written = any(
            not np.array_equal(_rows(recording, one, 0), _rows(recording, one, at))
            for at in range(1, len(recording.frames))
        )
        count = len(recording.frames) if written else 1
        frames = tuple(project(_rows(recording, one, at)) for at in range(count))
        trails.append(Trail(one.name, one.home, frames, written, one.role != "computed"))
    every = np.concatenate([frame for trail in trails if trail.given or len(trails) == 1 for frame in trail.frames])
    low, high = every.min(0), every.max(0)
    spread = np.maximum(high - low, 1e-12 * np.maximum(1.0, np.abs(high)))
    equal = bool(spread.max() <= STRETCH * spread.min())
    if not equal:
        how += "; the two axes have units of their own"
    if spread.min() <= 1e-9 * max(1.0, float(np.abs(high).max())):
        spread = np.maximum(spread, 1.0)
    pad = 0.06 * spread
    return Plane(tuple(trails), axes, how, _pair(low - pad), _pair(low + spread + pad), equal)


def _pair(values: Array) -> tuple[float, float]:
    return float(values[0]), float(values[1])


def _width(checked: Checked, dims: Mapping[str, int]) -> tuple[str | int, int] | None:
    """The width of the vectors to draw: that of the first input on an open set, else of any vector."""
    inputs = [checked.fields[one.target.name] for one in checked.spec.inputs]
    ordered = [*(one for one in inputs if checked.is_open(one.home)), *inputs, *checked.fields.values()]
    for one in ordered:
        if one.width is not None:
            size = one.width if isinstance(one.width, int) else dims[one.width]
            if size >= 2:
                return one.width, size
    return None


def _rows(recording: Recording, one: FieldType, frame: int) -> Array:
    """A field in a frame; one that has no value at the start yet, as it was first."""
    for at in range(frame, len(recording.frames)):
        if one.name in recording.frames[at].fields:
            return np.asarray(recording.frames[at].fields[one.name], np.float64)
    raise KeyError(one.name)


def _labels(chosen: Sequence[FieldType], names: Mapping[str, Sequence[str]], size: int) -> tuple[str, ...] | None:
    """What the data call the coordinates."""
    for one in chosen:
        if one.name in names and len(names[one.name]) == size and all(names[one.name]):
            return tuple(names[one.name])
    return None


def _projection(
    base: Array, size: int, fields: Sequence[str], labels: tuple[str, ...] | None
) -> tuple[Any, tuple[str, str], str]:
    """A map into the plane, the names of its axes, and what it is in a sentence."""
    if size == 2:
        axes = (labels[0], labels[1]) if labels else ("coordinate 1", "coordinate 2")
        return (lambda rows: rows), axes, "the two coordinates, as they are"
    middle = base.mean(0)
    _, lengths, directions = np.linalg.svd(base - middle, full_matrices=False)
    turned = directions[:2]
    if len(turned) < 2:
        turned = np.eye(size)[:2]
    signs = np.sign(turned[np.arange(2), np.abs(turned).argmax(1)])
    turned = turned * signs[:, np.newaxis]
    total = float((lengths**2).sum())
    share = float((lengths[:2] ** 2).sum()) / total if total > 0 else 1.0
    how = (
        f"the first two principal components of {', '.join(fields)} at the start, "
        f"which hold {100 * share:.0f} % of the variance of {size} dimensions"
    )
    return (lambda rows: (rows - middle) @ turned.T), ("component 1", "component 2"), how
