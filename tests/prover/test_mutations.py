"""Changed models and changed specs: what computes something else is never accepted.

Mutants are drawn anew every day, and a failure names its seed and number: `python tests/campaign.py --seed S --first N
--count 1`. Those that were accepted once are kept by what was changed.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from campaign import Campaign, Judge
from mutants import KINDS
from weftc.compiling import compile
from weftc.prover import prove
from weftc_runtime import Checkpoint

TODAY = datetime.date.today().toordinal()
ORDINARY = 500
PARTS, EACH = 40, 500  # 20,000 in all


def run(kind: str | None, first: int, count: int, judged: float = 0.3, verified: float = 0.0) -> Campaign:
    campaign = Campaign(TODAY, judged, verified, kind)
    tally = campaign.run(range(first, first + count))
    print("seed", TODAY, tally)
    assert not tally.wrong, "\n".join(tally.wrong)
    return campaign


@pytest.mark.parametrize("kind", KINDS)
def test_what_changes_the_function_is_not_accepted(kind: str) -> None:
    many = {"tensor": 160, "program": 180, "text": 50, "head": 60, "feed-forward": 30, "sizes": 20}[kind]
    counts = Counter[str]()
    for first in range(0, 6 * many, many):  # most feed-forwards that are added change nothing: until one does
        counts += run(kind, first, many, judged=0.3 if many > 30 else 1.0).tally.counts
        if counts["changed, not shown"]:
            break
    assert counts["changed, not shown"]  # the judge sees differences
    assert kind in ("sizes", "text") or counts["same, proved"]


def test_the_ordinary_run_tries_five_hundred() -> None:
    assert ORDINARY == 160 + 180 + 50 + 60 + 30 + 20


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_no_mutant_of_many_is_accepted(part: int) -> None:
    run(None, part * EACH, EACH, judged=0.3, verified=0.05)


# ---- what was accepted once ------------------------------------------------------------------------------------------


def lloyd() -> Checkpoint:
    return compile("lloyd", {"d": 1, "k": 2})


def changed(made: Checkpoint, name: str, at: tuple[int, ...], value: float) -> Checkpoint:
    array = np.array(made.tensors[name])
    array[at] = value
    return replace(made, tensors={**made.tensors, name: array})


def a_root_read_as_nothing() -> Checkpoint:
    """A weight that is the root of a number of the spec, in a score whose other coefficients are larger."""
    made = compile("gmm_em_spherical", {"d": 1, "k": 2}, scores="dot")
    return changed(made, "layer.0.0.log_y.q", (2, 0), 0.001)


def a_variance_that_is_only_near_zero() -> Checkpoint:
    """Where the spec takes the logarithm of 0, the file takes that of 1e-32."""
    made = compile("gmm_em", {"d": 1, "k": 2}, scores="dot", null="token")
    name = next(name for name in made.tensors if name.endswith("centre(x)'2.v"))
    at = tuple(int(axis) for axis in np.argwhere(made.tensors[name] == 1.0)[0])
    return changed(made, name, at, float(np.nextafter(1.0, 2.0)))


@pytest.mark.parametrize("make", [a_root_read_as_nothing, a_variance_that_is_only_near_zero])
def test_what_was_accepted_once_is_not_shown(make: Callable[[], Checkpoint]) -> None:
    assert prove(make()).verdict == "not shown"


def test_a_weight_that_is_an_ulp_off_is_proved_up_to_that_ulp_only() -> None:
    made = lloyd()
    (name,) = (name for name in made.tensors if name.endswith(".c.v"))
    at = tuple(int(axis) for axis in np.argwhere(made.tensors[name] == 1.0)[0])
    proof = prove(changed(made, name, at, float(np.nextafter(1.0, 2.0))))
    assert proof.verdict == "proved up to eps"
    assert 1e-16 < proof.eps < 3e-16
    assert prove(changed(made, name, at, float(np.nextafter(1.0, 2.0))), slack=0.0).verdict == "not shown"


def test_the_judge_knows_every_original() -> None:
    judge = Judge()
    assert judge.difference(lloyd()) is None
    (name,) = (name for name in lloyd().tensors if name.endswith(".c.v"))
    assert judge.difference(changed(lloyd(), name, (0, 0), 2.0)) is not None
