"""Two models on the same data -> their attention side by side: which head does what another one does, by layer.

Patterns are rows of weights, one for each query. Two are as far apart as their rows on average, by half the sum of the
absolute differences: the share of the weight that would have to move, 0 for equal ones and 1 for disjoint ones. Rows
are divided by their sums over tokens: the share of a null or self key does not count.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment

from weftc.core.errors import InputError
from weftc.core.source import printable
from weftc.variants.distance import checkpoint_of
from weftc_runtime.format.checkpoint import Checkpoint

if TYPE_CHECKING:
    from weftc_runtime import Model

Pattern = NDArray[np.float64]  # queries, keys
Patterns = Mapping[str, tuple[Pattern, ...]]  # head -> its pattern in every layer
SITE = re.compile(r"layers\.(\d+)\.(blocks\.\d+)\.attn\.(.+)\.hook_pattern")
APART = 2.0  # more than any two patterns are
SLACK = 1e-4  # of weights that were computed in low precision


@dataclass(frozen=True, slots=True)
class HeadMatch:
    """A head and the head of the other model that attends most like it."""

    head: str
    other: str
    apart: tuple[float, ...]  # in every layer of the first model
    layers: tuple[int, ...]  # the layer of the other one that each was compared with
    last: tuple[Pattern, Pattern]  # what both attend to in the last layer

    @property
    def distance(self) -> float:
        return float(np.mean(self.apart))


@dataclass(frozen=True, slots=True)
class AttentionComparison:
    """`optimum`: for each model and head, how far every layer is from the pattern wanted, where one was given."""

    matches: tuple[HeadMatch, ...]
    alone: tuple[tuple[str, ...], tuple[str, ...]]  # heads without a partner
    wanted: Pattern | None
    optimum: tuple[Mapping[str, tuple[float, ...]], Mapping[str, tuple[float, ...]]]

    def __str__(self) -> str:
        return self.text(("the first", "the second"))

    def text(self, names: tuple[str, str]) -> str:
        """For people."""
        lines = ["heads that attend most alike, and the share of the weight that differs, by layer:"]
        for one in self.matches:
            shown = " ".join(f"{far:.3f}" for far in one.apart)
            lines.append(f"  {one.head} ~ {one.other}: {one.distance:.3f} on average ({shown})")
        for name, heads in zip(names, self.alone, strict=True):
            lines += [f"  only in {name}: {head}" for head in heads]
        if self.wanted is not None:
            lines.append("share of the weight that differs from the optimum, by layer:")
            for name, found in zip(names, self.optimum, strict=True):
                lines += [f"  {name}, {h}: {' '.join(f'{far:.3f}' for far in apart)}" for h, apart in found.items()]
        return "\n".join(lines)

    def json(self) -> dict[str, Any]:
        """As plain data."""
        matches = [
            {"head": m.head, "other": m.other, "distance": m.distance, "layers": list(m.apart), "with": list(m.layers)}
            for m in self.matches
        ]
        found: dict[str, Any] = {"matches": matches, "alone": [list(heads) for heads in self.alone]}
        if self.wanted is not None:
            found["optimum"] = [{head: list(apart) for head, apart in one.items()} for one in self.optimum]
        return found


def patterns_of(model: Model, inputs: Mapping[str, Any], layers: int | None = None, seed: int = 0) -> Patterns:
    """What every head attends to, in every layer; heads whose weights are no shares (plain sums) do not attend."""
    options = {} if layers is None else {"layers": layers}
    _, cache = model.run_with_cache(inputs, names="layers.*hook_pattern", seed=seed, **options)
    found: dict[str, dict[int, Pattern]] = {}
    for name in cache:
        if site := SITE.fullmatch(name):
            found.setdefault(f"{site[2]}.{site[3]}", {})[int(site[1])] = np.asarray(cache[name], dtype=np.float64)
    return _attending({head: tuple(by_layer[n] for n in sorted(by_layer)) for head, by_layer in found.items()})


def recorded(attention: str | os.PathLike[str] | ArrayLike) -> Patterns:
    """Patterns that any other program has recorded: (layers, heads, queries, keys), or without heads."""
    shown, array = _read(attention)
    if array.ndim not in (3, 4) or array.dtype.kind != "f":
        raise InputError(f"{shown} has the shape {array.shape}; attention is (layers, heads, queries, keys)")
    array = array[:, None] if array.ndim == 3 else array
    heads = {f"head {n}": tuple(np.asarray(array[:, n], dtype=np.float64)) for n in range(array.shape[1])}
    if heads.keys() != _attending(heads).keys():
        raise InputError(f"{shown} is no attention: weights are at least 0, and add up to 1 at most")
    return heads


def _attending(patterns: Patterns) -> Patterns:
    def shares(pattern: Pattern) -> bool:
        return bool((pattern >= -SLACK).all() and (pattern.sum(-1) <= 1 + SLACK).all())

    return {head: several for head, several in patterns.items() if all(map(shares, several))}


def recorded_matrix(attention: str | os.PathLike[str] | ArrayLike) -> Pattern:
    """A pattern that is wanted: (queries, keys), its rows divided by their sums."""
    shown, array = _read(attention)
    if array.ndim != 2 or array.dtype.kind not in "fiu" or not (array.sum(1) > 0).all() or (array < 0).any():
        raise InputError(f"{shown} is no attention: a matrix of numbers >= 0, some in every row")
    return np.asarray(array / array.sum(1, keepdims=True), dtype=np.float64)


def _read(attention: str | os.PathLike[str] | ArrayLike) -> tuple[str, NDArray[Any]]:
    """What was recorded, and what to call it."""
    if not isinstance(attention, str | os.PathLike):
        return "what was given", np.asarray(attention)
    shown = printable(str(attention))
    try:
        return shown, np.load(Path(attention), allow_pickle=False)
    except OSError:
        raise InputError(f"there is no file {shown}") from None
    except ValueError as error:
        raise InputError(f"cannot read {shown}: {error}") from None


def compare(
    one: Checkpoint | Model | str | os.PathLike[str],
    other: Checkpoint | Model | str | os.PathLike[str] | ArrayLike,
    data: Mapping[str, Any],
    *,
    optimum: str | os.PathLike[str] | ArrayLike | None = None,
    layers: int | None = None,
    seed: int = 0,
) -> AttentionComparison:
    """What two models (checkpoints, paths or loaded ones) attend to on the same data, head by head.

    `other` may be attention that another program has recorded: an array of (layers, heads, queries, keys), or the path
    of its .npy. `optimum`, in the same way, is the attention wanted: (queries, keys). The heads of the two are matched
    so that all together are as close as they can be. Printed, what comes back is a table.
    """
    both: tuple[Any, Any] = one, other
    found = [recorded(it) if _is_recorded(it) else patterns_of(model_of(it), data, layers, seed) for it in both]
    return matched(found[0], found[1], None if optimum is None else recorded_matrix(optimum))


def matched(one: Patterns, other: Patterns, wanted: Pattern | None = None) -> AttentionComparison:
    """Matches heads so that all together are as close as they can be; only patterns of one size can be close.

    Where the numbers of layers differ, layers are compared with those as deep in the other model, in proportion.
    """
    heads, others = list(one), list(other)
    found = {(a, b): _matched(a, b, one[a], other[b]) for a in heads for b in others}
    table = [[APART if (match := found[a, b]) is None else match.distance for b in others] for a in heads]
    rows, columns = linear_sum_assignment(np.reshape(table, (len(heads), len(others))))
    pairs = [found[heads[r], others[c]] for r, c in zip(rows, columns, strict=True)]
    matches = tuple(match for match in pairs if match is not None)
    if not matches:
        sizes = [sorted({pattern.shape for several in some.values() for pattern in several}) for some in (one, other)]
        raise InputError(
            f"no head of the one has as many queries and keys as a head of the other: {sizes[0]} and {sizes[1]}; "
            "give the data that the attention was recorded on"
        )
    paired = {m.head for m in matches}, {m.other for m in matches}
    alone = (tuple(h for h in heads if h not in paired[0]), tuple(h for h in others if h not in paired[1]))
    return AttentionComparison(matches, alone, wanted, (_near(one, wanted), _near(other, wanted)))


def far(one: Pattern, other: Pattern) -> float:
    """The share of the weight that would have to move, on average over queries."""
    return float(np.abs(one - other).sum(-1).mean() / 2)


def _near(patterns: Patterns, wanted: Pattern | None) -> dict[str, tuple[float, ...]]:
    """How far heads of the right size are from what is wanted."""
    if wanted is None:
        return {}
    found = {head: [_over_tokens(pattern, wanted) for pattern in several] for head, several in patterns.items()}
    fitting = {head: several for head, several in found.items() if several[0].shape == wanted.shape}
    return {head: tuple(far(pattern, wanted) for pattern in several) for head, several in fitting.items()}


def _matched(head: str, other: str, one: tuple[Pattern, ...], another: tuple[Pattern, ...]) -> HeadMatch | None:
    """Layer by layer; nothing where their sizes differ."""
    mine = [_over_tokens(pattern, another[0]) for pattern in one] if another else []
    theirs = [_over_tokens(pattern, one[0]) for pattern in another] if one else []
    if not mine or not theirs or mine[0].shape != theirs[0].shape:
        return None
    last = max(len(mine) - 1, 1)
    places = tuple(round(n * (len(theirs) - 1) / last) for n in range(len(mine)))
    apart = tuple(far(pattern, theirs[place]) for pattern, place in zip(mine, places, strict=True))
    return HeadMatch(head, other, apart, places, (mine[-1], theirs[places[-1]]))


def _over_tokens(pattern: Pattern, like: Pattern) -> Pattern:
    """The pattern without the null or self key that it has as one more, the last; its rows divided by their sums."""
    kept = pattern[:, :-1] if pattern.shape == (like.shape[0], like.shape[1] + 1) else pattern
    total = kept.sum(-1, keepdims=True)
    return kept / np.where(total == 0, 1.0, total)


def model_of(target: Any) -> Model:
    """A model that tells its patterns."""
    from weftc_runtime import load

    return load(checkpoint_of(target), backend="reference")


def _is_recorded(target: Any) -> bool:
    if isinstance(target, str | os.PathLike):
        return Path(target).suffix == ".npy"
    return not (isinstance(target, Checkpoint) or hasattr(target, "checkpoint"))
