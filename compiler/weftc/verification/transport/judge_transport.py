"""POT as an independent judge of couplings: its own iteration in the log domain, in float64.

Equality: the coupling with the marginals asked for is unique, so POT's and ours differ by no more than POT's own row
and column sums leave open (`bounded`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

NAME = "POT"
WORK = 4 * 10**6  # entries computed, at most: iterations times the size of the coupling
MOST = 2000  # iterations
TIGHT = 1e-15  # error of the marginals at which it stops


def judged(kernel: Floats, rows: Floats, columns: Floats) -> tuple[Floats, Floats] | None:
    """POT's scaling of exp(kernel) to these marginals: the coupling, and its logarithms; None where it has none."""
    from ot.bregman import sinkhorn_log  # it takes seconds to import

    mass = float(rows.sum())
    many = int(min(MOST, max(100, WORK // kernel.size)))
    cost = kernel.max() - kernel
    plan, log = sinkhorn_log(
        rows / mass, columns / mass, cost, 1.0, numItermax=many, stopThr=TIGHT, warn=False, log=True
    )
    scaled = np.log(mass) + log["log_u"][:, np.newaxis] + log["log_v"] - cost
    return (mass * np.asarray(plan), np.asarray(scaled)) if np.isfinite(scaled).all() else None
