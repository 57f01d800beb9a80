"""Two models -> how far apart they are: their outputs on the same inputs, and their weights, head by head."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from weftc.core.errors import InputError
from weftc.core.source import Source
from weftc_runtime.errors import RunError
from weftc_runtime.format.checkpoint import Checkpoint
from weftc_runtime.format.program import FFN, Attend, Program

if TYPE_CHECKING:
    from weftc_runtime import Model


@dataclass(frozen=True, slots=True)
class ModelDistance:
    """`outputs`: by name, the largest difference and the share of values that differ. `weights`: by head or
    feed-forward, the length of the difference and that relative to the first model's. `unlike`: only one has them."""

    outputs: Mapping[str, tuple[float, float]]
    weights: Mapping[str, tuple[float, float]]
    unlike: tuple[str, ...]
    cases: int
    refused: int

    @property
    def moved(self) -> tuple[str, ...]:
        """The parts whose weights differ, the farthest first."""
        return tuple(name for name, (far, _) in sorted(self.weights.items(), key=lambda x: -x[1][0]) if far > 0)

    def text(self) -> str:
        """For people."""
        lines = [f"outputs on {self.cases} inputs ({self.refused} more have no value in one of them):"]
        lines += [f"  {name}: up to {far:.4g} apart, {share:.1%} differ" for name, (far, share) in self.outputs.items()]
        lines.append("weights:")
        lines += [f"  {name}: {self.weights[name][0]:.4g} apart ({self.weights[name][1]:.1%})" for name in self.moved]
        same = len(self.weights) - len(self.moved)
        lines.append(f"  {same} of {len(self.weights)} heads and feed-forwards have the same weights")
        lines += [f"  only in one of them: {name}" for name in self.unlike]
        return "\n".join(lines)

    def json(self) -> dict[str, Any]:
        """As plain data."""
        outputs = {name: {"largest": far, "share": share} for name, (far, share) in self.outputs.items()}
        weights = {name: {"length": far, "relative": share} for name, (far, share) in self.weights.items()}
        counts = {"cases": self.cases, "refused": self.refused}
        return {**counts, "outputs": outputs, "weights": weights, "moved": list(self.moved), "only": list(self.unlike)}


def distance(one: Any, other: Any, cases: int = 20, seed: int = 0) -> ModelDistance:
    """How far two models (checkpoints, paths or loaded ones) are apart, as functions and as weights.

    Functions are compared on random inputs as the first one's spec declares them; both must take the same inputs.
    """
    first, second = checkpoint_of(one), checkpoint_of(other)
    names = [sorted(item.name for item in checkpoint.program.inputs) for checkpoint in (first, second)]
    if names[0] != names[1]:
        raise InputError(f"these take different inputs: {', '.join(names[0])} and {', '.join(names[1])}")
    weights, unlike = _weights(first, second)
    outputs, ran, refused = _outputs(first, second, cases, seed)
    return ModelDistance(outputs, weights, unlike, ran, refused)


def checkpoint_of(target: Checkpoint | Model | str | os.PathLike[str]) -> Checkpoint:
    """What a checkpoint, the file at a path, or a loaded model as it is now holds."""
    if isinstance(target, Checkpoint):
        return target
    return Checkpoint.load(Path(target)) if isinstance(target, str | os.PathLike) else target.checkpoint()


def _parts(program: Program) -> Iterator[tuple[str, set[str]]]:
    """The heads and feed-forwards with the names of their tensors."""
    uses = program.tensors()
    for path, step in program.places():
        for index, sublayer in enumerate(step.sublayers):
            parts = [f"{path}.{index}"] if isinstance(sublayer, FFN) else []
            parts += [f"{path}.{index}.{head.name}" for head in sublayer.heads] if isinstance(sublayer, Attend) else []
            for part in parts:
                yield part, {n for n, all_uses in uses.items() if any(u.where.startswith(f"{part}.") for u in all_uses)}


def _weights(first: Checkpoint, second: Checkpoint) -> tuple[dict[str, tuple[float, float]], tuple[str, ...]]:
    mine, theirs = dict(_parts(first.program)), dict(_parts(second.program))
    found, unlike = {}, [name for name in (*mine, *theirs) if (name in mine) != (name in theirs)]
    for name in (name for name in mine if name in theirs):
        shapes = [{t: np.shape(c.tensors[t]) for t in p[name]} for c, p in ((first, mine), (second, theirs))]
        if shapes[0] != shapes[1]:
            unlike.append(name)
            continue
        apart = np.sqrt(sum(float(np.sum((first.tensors[t] - second.tensors[t]) ** 2)) for t in mine[name]))
        size = np.sqrt(sum(float(np.sum(first.tensors[t] ** 2)) for t in mine[name]))
        found[name] = (float(apart), float(apart / size) if size else float(apart > 0))
    return found, tuple(unlike)


def _outputs(
    first: Checkpoint, second: Checkpoint, count: int, seed: int
) -> tuple[dict[str, tuple[float, float]], int, int]:
    from weftc.language.check.check import check
    from weftc.language.parse.parse import parse
    from weftc.verification.cases.inputs import cases
    from weftc_runtime import load

    if not first.spec_text:
        raise InputError("the first model has no spec in it, which says what its inputs may be")
    spec = check(parse(Source(first.spec_name, first.spec_text)))
    models, ran, refused = [load(checkpoint) for checkpoint in (first, second)], 0, 0
    far: dict[str, float] = {}
    differ: dict[str, list[int]] = {}
    for case in cases(spec, first.dims, count, seed, families=("random",)):
        try:
            pair = [model(case.inputs, seed=case.seed, layers=first.program.layers) for model in models]
        except RunError:
            refused += 1
            continue
        ran += 1
        for name in (name for name in pair[0] if name in pair[1]):
            a, b = (np.asarray(answer[name], float) for answer in pair)
            if a.shape == b.shape:
                far[name] = max(far.get(name, 0.0), float(np.abs(a - b).max(initial=0.0)))
                rows = (a != b).reshape(len(a), -1).any(1) if a.ndim else (a != b).reshape(1)
                known = differ.setdefault(name, [0, 0])
                known[0], known[1] = known[0] + int(rows.sum()), known[1] + rows.size
    return {name: (far[name], differ[name][0] / max(differ[name][1], 1)) for name in far}, ran, refused
