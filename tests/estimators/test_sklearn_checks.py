"""scikit-learn's own checks pass for the clusterers of all built-in specs, but for those that cannot, and say why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

from clusterings import CLUSTERINGS, EXPECTED, checked_estimator, expected_failures

OFTEN = ("lloyd", "kmedoids")  # a spec that takes weights, and one that takes none and draws


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([checked_estimator(spec) for spec in OFTEN], expected_failed_checks=expected_failures)
def test_estimator_checks(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("spec", [spec for spec in CLUSTERINGS if spec not in OFTEN])
def test_all_checks_but_those_that_cannot_pass(spec: str) -> None:
    estimator = checked_estimator(spec)
    found = check_estimator(estimator, on_skip=None, on_fail=None)
    failed = {one["check_name"]: str(one["exception"]) for one in found if one["status"] == "failed"}
    assert set(failed) == set(EXPECTED.get(spec, {})), failed
    assert len(found) > 45


def test_the_excuses_are_about_specs_that_exist() -> None:
    assert set(EXPECTED) <= set(CLUSTERINGS)
    assert len(CLUSTERINGS) >= 14
