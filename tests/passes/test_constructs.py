"""Every construct of the language in a small spec: proved in both styles, right on its example, the same in float64."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from agreement import assert_agrees, default_dims, judge
from weftc.compiling import checked_spec, compile
from weftc.core.source import Source
from weftc.core.types import Checked
from weftc.interpreter.interpreter import Interpreter
from weftc.prover import prove
from weftc.verification.cases.examples import answers, settings
from weftc.verification.cases.inputs import cases

CONSTRUCTS = {path.stem: path for path in sorted((Path(__file__).parents[1] / "constructs").glob("*.weft"))}


def construct(name: str) -> Checked:
    return checked_spec(Source(f"{name}.weft", CONSTRUCTS[name].read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_examples_hold_in_the_meaning(name: str) -> None:
    checked = construct(name)
    assert checked.spec.examples
    for setting in settings(checked):
        found = Interpreter(checked, setting.params).run(setting.inputs, layers=setting.layers, noise=setting.noise)
        for answer in answers(setting, {key: np.asarray(value) for key, value in found.outputs.items()}):
            assert answer.right, f"{setting.title}: {answer}"


@pytest.mark.parametrize("scores", ["l2", "dot"])
@pytest.mark.parametrize("name", CONSTRUCTS)
def test_proved_and_the_same(name: str, scores: str) -> None:
    checked = construct(name)
    dims = default_dims(checked, 2, 2)
    proof = prove(compile(checked, dims, scores=scores))  # type: ignore[arg-type]
    assert proof.verdict == "proved", proof.text()
    turn = 2 * list(CONSTRUCTS).index(name)
    assert_agrees(judge(checked, dims, scores), cases(checked, dims, 3, seed=11, first=turn))
