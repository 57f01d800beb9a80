"""Files made by hand, against the executor in exact arithmetic: what is proved is the same function."""

from __future__ import annotations

import datetime
import random
from collections import Counter
from typing import Any

import pytest

import weftc
from hostile_heads import INPUTS, Builder, Hostile, everyone
from weftc.exact import NoValue, Number, Undecided, execute
from weftc.prover import prove
from weftc_runtime import Checkpoint

TODAY = datetime.date.today().toordinal()  # other heads every day; a failure names the head
CLOSE = "too close to call"
HEADS = sorted(everyone(), key=str)


def answers(made: Checkpoint, inputs: dict[str, Any]) -> Any:
    """What a file answers in exact arithmetic, to 15 digits; None where it has none, CLOSE where nobody can tell."""
    try:
        run = execute(made, inputs, layers=1)
        return _rounded([run.final(), run.objective()])
    except NoValue:
        return None
    except Undecided:  # irrational weights whose sum is 1 or nearly so: this input tells nothing
        return CLOSE


def _rounded(value: Any) -> Any:
    match value:
        case dict():
            return {name: _rounded(one) for name, one in value.items()}
        case list() | tuple():
            return [_rounded(one) for one in value]
        case Number():
            return float(f"{float(value):.15g}")
    return value


@pytest.fixture(scope="module")
def meant() -> list[Any]:
    """What Lloyd itself answers."""
    return [answers(weftc.compile("lloyd", {"d": 1, "k": 2}), inputs) for inputs in INPUTS]


def judge(head: Hostile, meant: list[Any]) -> str:
    """The verdict of the proof, and whether the file is the same function."""
    made = Builder(head).file()
    verdict = prove(made).verdict
    same = all(answers(made, inputs) in (one, CLOSE) for inputs, one in zip(INPUTS, meant, strict=True))
    assert same or not verdict.startswith("proved"), f"{verdict}, and not the same function: {head}"
    return f"{verdict}, {'the same' if same else 'another'}"


def test_what_is_proved_is_the_same_function(meant: list[Any]) -> None:
    print("seed", TODAY)
    seen = Counter(judge(head, meant) for head in random.Random(TODAY).sample(HEADS, 60))
    assert any(kind.endswith("another") for kind in seen)
    assert any(kind.startswith("proved") for kind in seen)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_no_head_of_any_kind_is_proved_and_wrong(part: int, meant: list[Any]) -> None:
    print(Counter(judge(head, meant) for head in HEADS[part::10]))
