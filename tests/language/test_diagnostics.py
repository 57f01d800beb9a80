"""Every mistake and its exact message: `diagnostics/NAME.weft` is a faulty spec, `NAME.txt` what its author reads."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from conftest import Golden
from weftc.core.errors import SpecError
from weftc.core.source import Source
from weftc.language.check.check import check
from weftc.language.parse.files import read_spec
from weftc.language.parse.parse import parse

FOLDER = Path(__file__).parents[1] / "diagnostics"
SPECS = sorted(FOLDER.glob("*.weft"))


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_message_is_exactly_as_agreed(path: Path, golden: Golden) -> None:
    source = Source(path.name, read_spec(path).text)
    with pytest.raises(SpecError) as caught:
        check(parse(source))
    golden(path.with_suffix(".txt"), str(caught.value))


def test_every_golden_file_has_its_spec() -> None:
    assert {path.stem for path in FOLDER.glob("*.txt")} == {path.stem for path in SPECS}


def test_at_least_seventy_different_mistakes() -> None:
    messages = Counter(re.findall(r"^error\[[A-Z]\d+\]: (.*)", _all_messages(), re.M))
    assert len(messages) >= 70


def test_every_message_has_a_place_and_a_caret() -> None:
    for path in SPECS:
        for block in path.with_suffix(".txt").read_text(encoding="utf-8").strip().split("\n\n"):
            first, place, gutter, line, caret, *notes = block.split("\n")
            assert re.fullmatch(r"error\[[PC]\d{3}\]: \S.*", first)
            assert re.fullmatch(rf" +--> {re.escape(path.name)}:\d+:\d+", place)
            assert gutter.strip() == "|"
            assert re.match(r"\d+ \|", line)
            assert re.fullmatch(r" +\| +\^+( \S.*)?|  *\| \^+( \S.*)?", caret)
            assert all(re.fullmatch(r" += \S.*", note) for note in notes)


def test_messages_use_no_words_of_the_machinery() -> None:
    """Names of terminals, Python types and lark's words have no place in what a theorist reads."""
    words = r"\b(NAME|LPAR|RPAR|LSQB|RSQB|VBAR|REDUCTION|WEIGHTING|None|Token|Unexpected|__ANON|frozenset|AST|node)\b"
    for line in _all_messages().split("\n"):
        said = line.replace("algorithm NAME", "")
        assert not re.search(words, said), line


def _all_messages() -> str:
    return "\n".join(path.with_suffix(".txt").read_text(encoding="utf-8") for path in SPECS)
