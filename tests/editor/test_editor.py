"""What editors are told of a spec: mistakes, names and their places, types, completions, renaming."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import weftc
from weftc.core.errors import InputError
from weftc.core.vocabulary import FUNCTIONS, REDUCTIONS, WEIGHTINGS
from weftc.editor.completion import completions
from weftc.editor.document import Document, read
from weftc.editor.hover import MEANINGS, hover
from weftc.editor.rename import applied, rename
from weftc.editor.symbols import SourcePlace, definition, place_at, places, places_of
from weftc.files.locate import names as spec_names
from weftc.language.parse.grammar import load

SPECS = Path(weftc.__file__).parents[2] / "specs"
LLOYD = (SPECS / "lloyd.weft").read_text(encoding="utf-8")


def text_of(spec: str) -> str:
    return (SPECS / f"{spec}.weft").read_text(encoding="utf-8")


def at(text: str, mark: str) -> int:
    """The offset of the bar in a piece of a text: `argmin[|j]`."""
    assert text.count(mark.replace("¦", "")) == 1, mark
    return text.index(mark.replace("¦", "")) + mark.index("¦")


def offered(text: str, mark: str) -> list[str]:
    return [one.text for one in completions(read(text), at(text, mark))]


# ---- mistakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", spec_names(""))
def test_shipped_specs_have_no_mistakes(spec: str) -> None:
    document = read(text_of(spec))
    assert document.diagnostics == ()
    assert document.checked is not None


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("argmin[j] |x[i]", "argmn[j] |x[i]", "P"),
        ("x[i] - c[j]|^2    #", "x[i] - e[j]|^2    #", "C"),
        ("|x[i] - c[j]|^2    #", "tanh(x[i] - c[j])    #", "C"),
    ],
)
def test_mistakes_of_form_and_of_meaning_are_told(old: str, new: str, code: str) -> None:
    text = LLOYD.replace(old, new)
    assert text != LLOYD
    found = read(text).diagnostics
    assert [one.code[0] for one in found] == [code] * len(found)
    assert found


@pytest.mark.parametrize(
    "refused", sorted((Path(__file__).parents[1] / "refusals").glob("*.weft")), ids=lambda path: path.stem
)
def test_what_has_no_attention_form_is_told(refused: Path) -> None:
    found = read(refused.read_text(encoding="utf-8"), refused.name).diagnostics
    assert found
    assert {one.code[0] for one in found} == {"L"}


@pytest.mark.parametrize("spec", spec_names(""))
def test_no_text_on_the_way_to_a_spec_raises(spec: str) -> None:
    text = text_of(spec)
    for end in range(0, len(text), 41):
        document = read(text[:end])
        hover(document, end)
        completions(document, end)
        places(document)


def test_names_stay_known_while_a_line_is_unfinished() -> None:
    document = read(LLOYD.replace("where y[i,j] else c[j]", "where y[i,"))
    assert document.diagnostics
    assert {"x", "c", "y", "k"} <= set(document.names.values())


# ---- names and their places ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", spec_names(""))
def test_every_name_leads_to_where_it_is_declared(spec: str) -> None:
    document = read(text_of(spec))
    found = places(document)
    assert {place.name for place in found if place.space == "name"} >= set(document.names.values())
    for place in found:
        declared = definition(document, place)
        assert document.source.at(declared) == place.name
        assert declared in [one.span for one in places_of(document, place)]
        assert definition(document, place_at(document, declared.start) or place) == declared


def test_definitions_by_hand() -> None:
    document = read(LLOYD)

    def line(mark: str) -> tuple[int, int]:
        place = place_at(document, at(LLOYD, mark))
        assert place is not None
        return document.source.position(definition(document, place).start)

    assert line("centers = ¦c,") == (7, 9)
    assert line("where ¦y[i,j]") == (10, 3)
    assert line("argmin[¦j]") == (4, 9)
    assert line("init spread(¦x)") == (6, 9)
    assert line("¦labels  = [1") == (14, 24)
    assert place_at(document, at(LLOYD, "init ¦spread")) is None
    assert place_at(document, at(LLOYD, "algorithm ¦lloyd")) is None


# ---- hovering --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        ("inputs  ¦x[i]", "x[i] : R^d\n```\ninput: a vector of R^d per points token"),
        ("where ¦y[i,j]", "y[i,j] : onehot\n```\ncomputed field: a onehot pair field of points and centers"),
        ("in ¦centers :", "j in centers : k\n```\ntoken set: k of them"),
        ("in ¦points  ", "token set: how many is known only when it runs"),
        ("outputs   ¦centers", "centers = c\n```\noutput: a vector of R^d per centers token"),
        ("¦argmin[j]", "**argmin** (weighting): 1 for the smallest score"),
        ("init ¦spread(x)", "**spread**: different rows, far apart"),
        ("¦else c[j]   #", "**else**: the value to use where another is undefined"),
    ],
)
def test_hovering_says_what_stands_there(mark: str, said: str) -> None:
    found = hover(read(LLOYD), at(LLOYD, mark))
    assert found is not None
    assert said in found.markdown


def test_first_is_a_start_behind_init_and_a_rule_behind_ties() -> None:
    text = LLOYD.replace("init spread(x)", "init first(x)").replace("|^2    # equal", "|^2 ties first  # equal")
    said = [found.markdown for mark in ("init ¦first", "ties ¦first") if (found := hover(read(text), at(text, mark)))]
    assert said == ["**first**: the first different rows", "**first**: the lowest index wins"]


def test_every_word_of_the_language_has_a_meaning() -> None:
    words = {word for word in load().terminals if word.isidentifier()}
    assert words | {*FUNCTIONS, *REDUCTIONS, *WEIGHTINGS} <= set(MEANINGS)


# ---- completion ------------------------------------------------------------------------------------------------------


def declares(document: Document, offset: int) -> bool:
    place = place_at(document, offset)
    return place is not None and (place.space == "output" or definition(document, place).start == offset)


@pytest.mark.parametrize("spec", spec_names(""))
def test_what_stands_in_a_spec_is_offered_where_it_stands(spec: str) -> None:
    document = read(text_of(spec))
    for token in document.tokens:
        named = place_at(document, token.start) is not None
        word = token.text[0].isalpha() and (named or token.text in MEANINGS)
        if not word or declares(document, token.start):
            continue
        words = {re.sub(r"\[.*", "", one.text) for one in completions(document, token.start)}
        assert token.text in words, (token, sorted(words))


@pytest.mark.parametrize(
    ("mark", "some", "none"),
    [
        ("|x[i] - ¦c[j]|^2    #", ["c[j]", "x[i]", "softmax", "sum", "sqrt"], ["tokens", "where", "spread"]),
        ("inputs  x[i] : ¦R^d", ["R", "unit", "onehot", "simplex"], ["gumbel", "exp", "x[i]"]),
        ("init ¦spread", ["spread", "random", "first", "copy"], ["x[i]", "layer"]),
        ("mean[i] x[¦i]", ["i"], ["j", "x[i]"]),
        ("spread(¦x)", ["x"], ["k", "d"]),
        ("k-means: ¦assign", [], ["layer"]),
        ("# one ¦iteration", [], ["layer"]),
    ],
)
def test_only_what_fits_is_offered(mark: str, some: list[str], none: list[str]) -> None:
    found = offered(LLOYD, mark)
    assert set(some) <= set(found)
    assert not set(none) & set(found)


def test_completion_works_in_a_text_that_ends_here() -> None:
    text = LLOYD[: at(LLOYD, "|x[i] - ¦c[j]|^2    #")]
    assert {"c[j]", "x[i]", "softmax"} <= {one.text for one in completions(read(text), len(text))}
    assert [one.text for one in completions(read(""), 0)] == ["algorithm"]


# ---- renaming --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", spec_names(""))
def test_renaming_keeps_the_meaning_and_can_be_undone(spec: str) -> None:
    document = read(text_of(spec))
    for place in {(p.space, p.name): p for p in places(document)}.values():
        text = applied(document.source.text, rename(document, place, "fresh1"))
        after = read(text)
        assert after.checked is not None
        if any(one.both for one in places_of(document, place)):
            continue  # `outputs c` has become `c = fresh1`, on purpose
        back = next(p for p in places(after) if (p.space, p.name) == (place.space, "fresh1"))
        assert applied(text, rename(after, back, place.name)) == document.source.text


def test_an_output_keeps_its_name_when_its_field_is_renamed() -> None:
    text = LLOYD.replace("centers = c, labels = y", "c, labels = y").replace("  centers = ", "  c = ")
    document = read(text)
    assert document.checked is not None
    field = place_at(document, at(text, "inputs  x[i] : R^d\n        ¦c[j]"))
    assert field is not None
    assert "outputs   c = mu, labels" in applied(text, rename(document, field, "mu"))
    renamed = applied(text, rename(document, SourcePlace("output", "c", field.span), "mu"))
    assert "outputs   mu = c, labels" in renamed
    assert "  mu = [-5/3], [5/2]" in renamed


@pytest.mark.parametrize(
    ("new", "why"),
    [("x", "an input already"), ("softmax", "a word of the language"), ("2c", "is not a name"), ("é", "is not a name"),
     ("centers", "a token set already"), ("then", "a word of the language"), ("c" * 61, "is not a name")],
)  # fmt: skip
def test_a_name_that_will_not_do_is_refused_with_the_reason(new: str, why: str) -> None:
    document = read(LLOYD)
    place = place_at(document, at(LLOYD, "where y[i,j] else ¦c[j]"))
    assert place is not None
    with pytest.raises(InputError, match=why):
        rename(document, place, new)
