"""The page about the language: every block on it is a spec that checks, and every word of the language is in one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from weftc.compiling import compile
from weftc.core import vocabulary
from weftc.core.errors import SpecError
from weftc.core.source import Source
from weftc.interpreter.interpreter import Interpreter
from weftc.language.check.check import check
from weftc.language.parse.grammar import load
from weftc.language.parse.lexer import SECTIONS
from weftc.language.parse.parse import parse
from weftc.verification.cases.examples import answers, settings

PAGE = Path(__file__).parents[2] / "specs" / "README.md"
TEXT = PAGE.read_text(encoding="utf-8")
BLOCKS: list[str] = re.findall(r"^```weft\n(.*?)^```", TEXT, re.S | re.M)
WHOLE = [block for block in BLOCKS if block.startswith("algorithm")]
FRAME = next(block for block in WHOLE if block.startswith("algorithm frame"))
DOTS = "  c[j] = c[j]                          # ...\n"


def whole(block: str) -> str:
    """A block as a spec: itself, or the frame with its equations at the dots and its sections at the end."""
    if block in WHOLE:
        return block
    section = re.search(rf"^({'|'.join(SECTIONS)})\b", block, re.M)
    start = section.start() if section else len(block)
    return FRAME.replace(DOTS, block[:start] or DOTS) + block[start:]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: " ".join(block.split())[:30])
def test_blocks_are_correct_specs(block: str) -> None:
    check(parse(Source("README.md", whole(block))))


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: " ".join(block.split())[:30])
def test_blocks_compile(block: str) -> None:
    checked = check(parse(Source("README.md", whole(block))))
    dims = {name: 2 + at for at, name in enumerate(checked.dims)}
    params = {name: 1.0 for name, param in checked.params.items() if param.default is None}
    assert compile(checked, dims, params).program.name == checked.spec.name


def test_examples_are_true() -> None:
    """The interpreter gives what the examples of the page say."""
    found = []
    for block in BLOCKS:
        checked = check(parse(Source("README.md", whole(block))))
        for setting in settings(checked):
            run = Interpreter(checked, setting.dims, setting.params).run(setting.inputs, setting.layers)
            found += answers(setting, run)
    assert len(found) == 3
    assert [str(answer) for answer in found if not answer.right] == []


def test_the_frame_has_a_place_for_equations() -> None:
    assert FRAME.count(DOTS) == 1


def test_a_mistake_in_a_block_would_be_noticed() -> None:
    with pytest.raises(SpecError, match="index i is free"):
        check(parse(whole("c[j] = x[i]\n")))


def test_every_word_of_the_language_is_shown() -> None:
    words = {word for word in load().terminals if word.isalpha()}
    words |= {*vocabulary.REDUCTIONS, *vocabulary.WEIGHTINGS, *vocabulary.FUNCTIONS, *vocabulary.NOISES}
    words |= {*vocabulary.TIE_RULES, *vocabulary.INITIALISERS, "onehot", "simplex", "real"}
    code = re.sub(r"#.*|\"[^\"\n]*\"", "", "\n".join(BLOCKS))
    shown = set(re.findall(r"[A-Za-z][A-Za-z0-9]*", code))
    assert words - shown == set()


def test_every_sign_of_the_language_is_shown() -> None:
    signs = {sign for sign in load().terminals if not sign.isalpha()}
    code = re.sub(r"#.*|\"[^\"\n]*\"", "", "\n".join(BLOCKS))
    assert {sign for sign in signs if sign not in code} == set()
