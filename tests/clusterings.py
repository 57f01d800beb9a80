"""The built-in specs that are clusterings, found by structure, and the checks of scikit-learn that one cannot pass."""

from __future__ import annotations

from typing import Any

from weftc.compiling import checked_spec
from weftc.estimators.mistakes import EstimatorError
from weftc.estimators.roles import clustering
from weftc.files.locate import names
from weftc.sklearn import WeftClusterer

ZERO_ROW = "its data has a row of zeros, which has no direction; the spec declares unit vectors"
EXPECTED = {
    "spherical_kmeans": {"check_estimators_dtypes": ZERO_ROW},
    "soft_spherical_kmeans": {"check_estimators_dtypes": ZERO_ROW},
}


def _is_clustering(name: str) -> bool:
    try:
        clustering(checked_spec(name))
    except EstimatorError:
        return False
    return True


CLUSTERINGS = [name for name in names("") if _is_clustering(name)]  # those of the top folder: others take longer


def expected_failures(estimator: Any) -> dict[str, str]:
    """The checks that an estimator cannot pass, each with the reason."""
    return EXPECTED.get(estimator.spec, {})


def checked_estimator(spec: str) -> WeftClusterer:
    """An estimator as scikit-learn checks its own: few clusters, few iterations."""
    return WeftClusterer(spec, n_clusters=2, max_iter=5)
