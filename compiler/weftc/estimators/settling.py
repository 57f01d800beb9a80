"""When a run has settled: a layer changes nothing, or little.

Little: the centers together moved by no more than a share of the variance of the data (squared distances, as in
scikit-learn), and everything else that fixed sets carry changed by no more than that share of its own size.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from weftc.estimators.roles import Clustering

if TYPE_CHECKING:
    from weftc_runtime.data.results import Fields


@dataclass(slots=True)
class StopRule:
    """When to stop; `met` says whether it was the reason to."""

    centers: str
    others: tuple[str, ...]
    share: float  # of their own size that the others may change by, both squared
    moved: float  # that the centers may move by, squared
    met: bool = field(default=False, init=False)

    def __call__(self, before: Fields, after: Fields) -> bool:
        """Whether a layer changed little."""
        little = _squares(after[self.centers].cpu() - before[self.centers].cpu()) <= self.moved
        self.met = self.share > 0 and little and all(self._small(name, before, after) for name in self.others)
        return self.met

    def _small(self, name: str, before: Fields, after: Fields) -> bool:
        return _squares(after[name].cpu() - before[name].cpu()) <= self.share * _squares(after[name].cpu())


def _squares(value: Any) -> float:
    return float(value.double().square().sum())


def rule(roles: Clustering, tol: float, points: NDArray[Any], mass: NDArray[Any] | None) -> StopRule:
    """The rule for these data."""
    checked = roles.checked
    written = dict.fromkeys(e.target.name for step in checked.spec.steps for e in step.equations)
    carried = [checked.fields[name] for name in written if checked.fields[name].role in ("input", "state")]
    others = tuple(f.name for f in carried if not checked.is_open(f.home) and f.name != roles.centers.name)
    return StopRule(roles.centers.name, others, tol, tol * _variance(points, mass) if tol else 0.0)


def _variance(points: NDArray[Any], mass: NDArray[Any] | None) -> float:
    """The mean over the columns of their variances."""
    if mass is None:
        return float(points.var(axis=0, dtype=np.float64).mean())
    mean = np.average(points, axis=0, weights=mass)
    return float(np.average(np.square(points - mean), axis=0, weights=mass).mean())
