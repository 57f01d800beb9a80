"""The programs of RASP and of Tracr's library as specs: right at every length, by Python's own words for them."""

from __future__ import annotations

from typing import Any

import pytest
from numpy.random import Generator, default_rng

import weftc
from sequence_judges import JUDGES
from weftc.files.locate import builtin, names

NAMES = names("sequences")
LONGEST = 2000


def test_every_program_has_a_judge_and_is_short() -> None:
    assert set(NAMES) == set(JUDGES)
    assert all(builtin(name).text.count("\n") <= 30 for name in NAMES)


def drawn(name: str, length: int, rng: Generator) -> dict[str, Any]:
    """Inputs of a length: symbols in any order, brackets often balanced, numbers that tie where they may."""
    inputs: dict[str, Any] = {}
    for one in weftc.check(builtin(name)).spec.inputs:
        symbols = one.type.symbols
        if symbols and rng.random() < 0.5 and name.startswith("dyck"):
            inputs["t"] = balanced(length, symbols, rng)
        elif symbols:
            inputs["t"] = rng.choice(symbols, length).tolist()
        elif name == "sort_unique":
            inputs[one.target.name] = (rng.permutation(length) - length / 2).tolist()
        else:
            inputs[one.target.name] = (rng.integers(-length, length, length) / 4).tolist()
    return inputs


def balanced(length: int, symbols: tuple[str, ...], rng: Generator) -> list[str]:
    """Well nested brackets, perhaps with one symbol exchanged at the end."""
    closes = {"(": ")", "[": "]"}
    stack: list[str] = []
    found: list[str] = []
    while len(found) < length:
        if stack and (rng.random() < 0.5 or len(stack) >= length - len(found)):
            found.append(closes[stack.pop()])
        else:
            stack.append(str(rng.choice([one for one in symbols if one in closes])))
            found.append(stack[-1])
    if rng.random() < 0.5:
        found[-1] = str(rng.choice(symbols))
    return found


def assert_right(name: str, model: Any, length: int, rng: Generator) -> None:
    inputs = drawn(name, length, rng)
    got = model(**inputs)
    for output, want in JUDGES[name](**inputs).items():
        assert got[output].tolist() == want, (name, output, length)


@pytest.mark.parametrize("name", NAMES)
def test_a_program_is_right_at_small_lengths(name: str) -> None:
    rng = default_rng(len(name))
    for scores in ("l2", "dot"):
        model = weftc.load(weftc.compile(builtin(name), {}, scores=scores))
        for length in (1, 2, 3, 7, 17, 40):
            assert_right(name, model, length, rng)


@pytest.mark.slow
@pytest.mark.parametrize("scores", ["l2", "dot"])
@pytest.mark.parametrize("name", NAMES)
def test_a_program_is_right_at_every_length_tried(name: str, scores: str) -> None:
    rng = default_rng(1)
    model = weftc.load(weftc.compile(builtin(name), {}, scores=scores))
    for length in (*range(1, 65), 100, 257, 500, 1000, LONGEST):
        assert_right(name, model, length, rng)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_it_is_verified(name: str) -> None:
    assert weftc.verify(builtin(name)).verdict == "proved"
