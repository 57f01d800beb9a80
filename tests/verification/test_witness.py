"""Files that are not proved: where they differ from their spec, an input is found that shows it, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hostile_heads import Builder, Hostile
from weftc import verify
from weftc.compiling import checked_spec, compile
from weftc.interpreter.interpreter import Interpreter
from weftc.prover import prove
from weftc.verification.witness import witness
from weftc_runtime import Checkpoint, WeftRuntimeError, load

BAND = "points", "points"
HOSTILE = (
    Hostile(BAND, "argmax", "zero", "query outside", "none", "zero"),  # stops where a point is in a narrow band
    Hostile(BAND, "softmax", "zero", "query outside", "none", "zero"),
    Hostile(BAND, "argmax", "query's distance from the band", "all", "in the band", "sets the constant"),  # a rival
    Hostile(BAND, "top 1", "query's distance from the band", "all", "in the band", "sets the constant"),
    Hostile(BAND, "normalize", "signed", "all", "none", "zero"),  # stops where a mass is zero
    Hostile(("centers", "points"), "argmax", "zero", "key inside", "last", "adds what the carry takes"),
)


@pytest.mark.parametrize("head", HOSTILE, ids=lambda head: f"{head.weighting}, {head.mask}, {head.self_key}")
def test_a_difference_at_a_threshold_is_found(head: Hostile) -> None:
    made, checked = Builder(head).file(), checked_spec("lloyd")
    assert prove(made).verdict == "not shown"
    found = witness(checked, made)
    assert found is not None
    meaning = Interpreter(checked, made.dims)
    try:
        answers = load(made, backend="reference").final(dict(found.case.inputs), layers=1)
    except WeftRuntimeError:
        assert found.found is None
        return
    wanted = meaning.final(meaning.run(found.case.inputs, 1).fields)
    centers = np.asarray(answers["centers"])
    assert found.answer == "objective" or not np.allclose(centers, wanted["centers"])


def test_a_refuted_file_says_on_which_input() -> None:
    made = compile("lloyd", {"d": 1, "k": 2})
    (name,) = (name for name in made.tensors if name.endswith(".c.v"))
    wrong = replace(made, tensors={**made.tensors, name: made.tensors[name] * 2})
    verdict = verify(wrong, cases=2, dtypes=["float64"])
    assert verdict.verdict == "refuted"
    assert not verdict.ok
    text = " ".join(verdict.text().split())
    assert "refuted: on x = [[" in text
    assert "the file gives centers = [[" in text


@pytest.mark.parametrize("name", ["robust_kmeans", "trimmed_normmax"])
def test_what_is_only_beyond_the_prover_is_not_refuted(name: str) -> None:
    made = compile(name, {"d": 1, "k": 2}, members="offset")
    assert prove(made).verdict == "not shown"
    assert witness(checked_spec(name), made) is None


def test_no_shipped_spec_is_refuted_by_its_own_model() -> None:
    for name in ("lloyd", "gmm_em", "sinkhorn_log", "kmedoids", "spherical_kmeans", "sort", "trimmed_kmeans"):
        checked = checked_spec(name)
        made: Checkpoint = compile(checked, {dim: 2 for dim in checked.dims}, scores="dot")
        assert witness(checked, made) is None, name
