"""Colours of specs: every word of the language has its class, in Pygments, in editors and in the terminal."""

from __future__ import annotations

import json
import re
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from pygments.lexer import Lexer
from pygments.token import (
    STANDARD_TYPES,
    Comment,
    Error,
    Keyword,
    Name,
    Number,
    Operator,
    Punctuation,
    String,
    Whitespace,
    string_to_tokentype,
)

from spec_texts import GOOD
from weftc.cli import main
from weftc.commands import new
from weftc.core import vocabulary
from weftc.core.source import Source
from weftc.language.check.problems import Problems
from weftc.language.highlight import LOOKS, classified, coloured, rules, textmate, words
from weftc.language.parse.grammar import load
from weftc.language.parse.lexer import SECTIONS, tokenize
from weftc.language.parse.tree_declarations import KINDS
from weftc.language.pygments_lexer import WeftLexer

ROOT = Path(__file__).parents[2]
EDITORS = ROOT / "editors"
WORDS = [word for word in load().terminals if word.isidentifier()]
CALLED = (*vocabulary.REDUCTIONS, *vocabulary.WEIGHTINGS, *vocabulary.FUNCTIONS, "count", "index")


def lexed(text: str) -> list[tuple[object, str]]:
    """The tokens of a text, without white space."""
    return [(kind, piece) for kind, piece in WeftLexer().get_tokens(text) if kind is not Whitespace]


# ---- every word ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", sorted({*WORDS, *CALLED}))
def test_words_of_the_language_are_told_from_names(word: str) -> None:
    expected = Keyword
    if word in SECTIONS:
        expected = Keyword.Declaration
    elif word in CALLED:
        expected = Name.Builtin
    elif word == "R":
        expected = Keyword.Type
    assert lexed(word) == [(expected, word)]
    for other in (f"{word}s2", f"my_{word}", f"{word}'", f"{word}_"):
        assert lexed(other) == [(Name.Variable, other)]


@pytest.mark.parametrize("mark", sorted(mark for mark in load().terminals if not mark.isidentifier()))
def test_marks_are_operators_or_punctuation(mark: str) -> None:
    assert lexed(mark) == [(Punctuation if mark in "()[]{},:" else Operator, mark)]


@pytest.mark.parametrize(
    ("before", "choices", "expected"),
    [
        (":", KINDS, Keyword.Type),
        ("ties", vocabulary.TIE_RULES, Name.Constant),
        ("init", vocabulary.INITIALISERS, Name.Constant),
    ],
)
def test_words_that_are_names_elsewhere(before: str, choices: tuple[str, ...], expected: object) -> None:
    for word in choices:
        assert lexed(f"{before} {word}")[-1] == (expected, word)
        assert lexed(f"{before} {word}ly")[-1] == (Name.Variable, f"{word}ly")
        if word not in WORDS:
            assert lexed(word) == [(Name.Variable, word)]


def test_no_word_belongs_to_two_classes() -> None:
    every = [word for found in words().values() for word in found]
    assert len(every) == len(set(every))
    assert set(every) == {*WORDS, *CALLED}


def test_names_numbers_texts_and_comments() -> None:
    assert lexed('algorithm mine "a # text" # a "comment" sum\nx\' = 1e-3 + .5 * 12') == [
        (Keyword.Declaration, "algorithm"),
        (Name.Class, "mine"),
        (String.Double, '"a # text"'),
        (Comment.Single, '# a "comment" sum'),
        (Name.Variable, "x'"),
        (Operator, "="),
        (Number, "1e-3"),
        (Operator, "+"),
        (Number, ".5"),
        (Operator, "*"),
        (Number, "12"),
    ]


@pytest.mark.parametrize("text", ["ä", ";", '"never closed', "\x1b"])
def test_what_no_spec_may_contain_is_an_error(text: str) -> None:
    assert lexed(text)[0][0] is Error
    assert next(classified(text))[0] == ""


# ---- every spec ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_specs_have_no_errors_and_the_tokens_of_the_parser(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    found = lexed(text)
    assert all(kind is not Error for kind, _ in found)
    parsed = tokenize(text, load().terminals, Problems(Source("spec", text)))
    assert [piece for kind, piece in found if kind is not Comment.Single] == [token.text for token in parsed]
    assert "".join(piece for _, piece in classified(text)) == text


def test_it_recognises_a_spec() -> None:
    assert all(WeftLexer.analyse_text(path.read_text(encoding="utf-8")) > 0.5 for path in GOOD)
    assert WeftLexer.analyse_text("algorithm: a story about tokens\n") == 0


def test_pygments_finds_the_lexer() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    module, _, name = project["entry-points"]["pygments.lexers"]["weft"].partition(":")
    found = getattr(import_module(module), name)
    assert issubclass(found, Lexer)
    assert found.aliases == ["weft"]
    assert found.filenames == ["*.weft"]


def test_every_look_is_known_to_pygments() -> None:
    assert {string_to_tokentype(look.pygments) for look in LOOKS.values()} <= set(STANDARD_TYPES)


# ---- editors ---------------------------------------------------------------------------------------------------------


def test_the_textmate_grammar_is_up_to_date() -> None:
    stored = (EDITORS / "weft.tmLanguage.json").read_text(encoding="utf-8")
    assert stored == textmate(), "run: python -m weftc.language.highlight > editors/weft.tmLanguage.json"


def test_the_textmate_grammar_colours_what_the_lexer_does() -> None:
    grammar = json.loads(textmate())
    assert (grammar["scopeName"], grammar["fileTypes"]) == ("source.weft", ["weft"])
    kept = [rule for rule in rules() if rule.classes != ("space",)]
    for rule, pattern in zip(kept, grammar["patterns"], strict=True):
        groups = re.compile(pattern["match"]).groups
        assert groups == (0 if len(rule.classes) == 1 else len(rule.classes))
        assert {int(at) for at in pattern.get("captures", {})} <= set(range(1, groups + 1))
        assert "name" in pattern or pattern["captures"]
        assert pattern["match"] == rule.pattern


def test_the_folder_is_an_extension() -> None:
    package = json.loads((EDITORS / "package.json").read_text(encoding="utf-8"))
    manifest = package["contributes"]
    assert (EDITORS / package["main"]).is_file()
    assert manifest["configuration"]["properties"]["weft.server.command"]["default"] == ["weftc", "lsp"]
    assert package["activationEvents"] == [f"onLanguage:{manifest['languages'][0]['id']}"]
    assert (EDITORS / manifest["languages"][0]["configuration"]).is_file()
    assert (EDITORS / manifest["grammars"][0]["path"]).is_file()
    assert manifest["grammars"][0]["scopeName"] == json.loads(textmate())["scopeName"]
    configuration = json.loads((EDITORS / "language-configuration.json").read_text(encoding="utf-8"))
    assert configuration["comments"]["lineComment"] == "#"


# ---- terminals -------------------------------------------------------------------------------------------------------


def test_colours_change_nothing_else() -> None:
    text = new.starter("mine", "mine.weft")
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured(text)) == text
    assert "\x1b[1;34mlayer\x1b[0m" in coloured(text)


def test_a_spec_cannot_write_to_the_terminal() -> None:
    assert "\x1b]" not in coloured('# \x1b]0;title\x07\nalgorithm "\x1b]" \x1b]\r')
    assert "\r" not in coloured("a\r\n#b\r")


@pytest.mark.parametrize("terminal", [True, False])
def test_new_prints_in_colour_in_a_terminal(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(new, "in_colour", lambda: terminal)
    assert main(["new", "mine", "-o", "-"]) == 0
    assert ("\x1b[" in capsys.readouterr().out) is terminal
