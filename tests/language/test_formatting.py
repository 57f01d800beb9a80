"""`weftc.format` of any spec, with anything between its tokens: it changes nothing else."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import weftc
from formatting_texts import EVERYTHING, assert_same
from spec_texts import GOOD
from weftc.commands import new
from weftc.core.source import Source
from weftc.fuzz.specs import draw
from weftc.language.format.lexemes import lexemes
from weftc.language.parse.parse import parse

# ---- any spec --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_specs_of_the_repository_are_formatted(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert weftc.format(text) == text, f"run: weftc fmt {path}"


def test_starter_is_formatted() -> None:
    text = new.starter("mine", "mine.weft")
    assert weftc.format(text) == text


@pytest.mark.parametrize("text", EVERYTHING)
def test_says_the_same_on_lines_that_fit(text: str) -> None:
    formatted = weftc.format(text)
    assert_same(text, formatted)
    assert all(len(line) <= 120 for line in formatted.split("\n"))


@pytest.mark.parametrize("text", EVERYTHING)
def test_one_line_becomes_the_same_as_a_token_a_line(text: str) -> None:
    """Only breaks at operators and between items are the author's to choose."""
    tokens = [lexeme.text for lexeme in lexemes(Source("spec", text))[0]]
    assert_same(" ".join(tokens), weftc.format(" ".join(tokens)))
    assert_same("\n".join(tokens), weftc.format("\n".join(tokens)))


def test_drawn_specs() -> None:
    for number in range(20):
        text = draw(5, number).text
        assert_same(text, weftc.format(text))
        line = " ".join(text.split())
        assert_same(line, weftc.format(line))


# ---- anything that may stand between two tokens ----------------------------------------------------------------------

GAPS = ("", "", "", " ", " ", "  ", "\t", "\n", "\n", "\n\n", "\n\n\n", " \t\n  ", "\f", "\r\n", "\r")
COMMENTS = ("#", "# one", "#two ", "# \t three\t", "# é ± \u2028 #", "#| < ] algorithm", '# "', "# x\r y")
BEFORE = ("", " ", "   ", "\n", "\n  ", "\n\n", "\n\n        ", "\r\n\t")


@st.composite
def gaps(choose: st.DrawFn) -> str:
    """White space, sometimes with comments."""
    if choose(st.integers(0, 7)):
        return choose(st.sampled_from(GAPS))
    pieces = choose(st.lists(st.tuples(st.sampled_from(BEFORE), st.sampled_from(COMMENTS)), min_size=1, max_size=3))
    return "".join(f"{before}{comment}\n" for before, comment in pieces) + choose(st.sampled_from(GAPS))


@st.composite
def mutilated(choose: st.DrawFn) -> str:
    """A spec with other white space and comments between all of its tokens."""
    text = choose(st.sampled_from(EVERYTHING))
    found, _ = lexemes(Source("spec", text))
    often = choose(st.sampled_from((0.05, 0.3, 1.0)))
    random = choose(st.randoms(use_true_random=False))
    supply = choose(st.lists(gaps(), min_size=1, max_size=40))
    out, end = [], 0
    for lexeme in found:
        gap = text[end : lexeme.token.start]
        if random.random() < often:
            gap = random.choice(supply)
            if not gap and _merges(out[-1] if out else "", lexeme.text):
                gap = " "
        out += [gap, lexeme.text]
        end = lexeme.token.end
    return "".join([*out, random.choice(supply)])


def _merges(before: str, after: str) -> bool:
    """Whether two tokens would be read as others without a space between them."""
    return bool(re.fullmatch(r"[\w.'][\w.']|[-+<>!=]=", before[-1:] + after[:1]))


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(mutilated())
def test_white_space_and_comments_anywhere(text: str) -> None:
    formatted = weftc.format(text)
    assert_same(text, formatted.replace("\r\n", "\n"))


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(EVERYTHING), st.randoms(use_true_random=False))
def test_optional_commas_may_be_there_or_not(text: str, random: Random) -> None:
    spec = parse(text)
    declared = (*spec.tokens, *spec.inputs, *spec.random, *spec.state, *spec.params, *spec.lets, *spec.outputs)
    changed, at = "", 0
    written = [one.span for one in declared if not text.startswith("phase", one.span.start)]  # not a phase's counter
    for end in sorted(span.end for span in written):
        changed += text[at:end] + random.choice((" ,", "", ","))
        comma = re.compile(r"[ \t]*,").match(text, end)
        at = comma.end() if comma else end
    assert weftc.format(changed + text[at:]) == weftc.format(text)


def test_a_layer_of_many_equations() -> None:
    equations = "\n".join(f"  a{at}[i] = sum[i] x[i] + {at}  # c" for at in range(200))
    text = f"algorithm big\ntokens i in points\nlayer\n{equations}\noutputs x\n"
    assert_same(text, weftc.format(text))
