"""When a run has settled: a layer changes nothing, or little.

Little: the centers together moved by no more than a share of the variance of the data (squared distances, as in
scikit-learn), and everything else that fixed sets carry changed by no more than that share of its own size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from weftc.estimators.roles import Clustering

if TYPE_CHECKING:
    from weftc_runtime.data.stopping import SmallChange


def rule(roles: Clustering, tol: float, points: NDArray[Any], mass: NDArray[Any] | None) -> SmallChange | None:
    """The rule for these data; None: nothing may change."""
    if not tol:
        return None
    from weftc_runtime.data.stopping import Limit, SmallChange

    checked = roles.checked
    written = dict.fromkeys(e.target.name for step in checked.spec.steps for e in step.equations)
    carried = [checked.fields[name] for name in written if checked.fields[name].role in ("input", "state")]
    others = {f.name: Limit(share=tol) for f in carried if not checked.is_open(f.home)}
    return SmallChange({**others, roles.centers.name: Limit(most=tol * _variance(points, mass))})


def _variance(points: NDArray[Any], mass: NDArray[Any] | None) -> float:
    """The mean over the columns of their variances."""
    if mass is None:
        return float(points.var(axis=0, dtype=np.float64).mean())
    mean = np.average(points, axis=0, weights=mass)
    return float(np.average(np.square(points - mean), axis=0, weights=mass).mean())
