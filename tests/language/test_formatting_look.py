"""What formatted specs look like, and what the formatter promises when something goes wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import weftc
from formatting_texts import MESSY, NEAT
from weftc.cli import main
from weftc.core.errors import SpecError
from weftc.core.source import Source
from weftc.language.format import faithful, layout
from weftc.language.format.faithful import Unfaithful, ensure_same
from weftc.language.parse.parse import parse


def test_a_messy_spec() -> None:
    assert weftc.format(MESSY) == NEAT


def equation(text: str) -> str:
    """How one equation of a layer comes out."""
    found = weftc.format(f"algorithm a tokens i in p layer {text} outputs x").split("\n")
    return "\n".join(found[found.index("layer") + 1 : -3])


@pytest.mark.parametrize(
    ("written", "formatted"),
    [
        ("a=b-c- -d", "a = b - c - -d"),
        ("a=- - 2*h ^ 2/(3)", "a = --2*h^2/(3)"),
        ("a = 2 *h", "a = 2 * h"),
        ("a=||x[i]|^2-log w[ i ]|+exp|u|", "a = ||x[i]|^2 - log w[i]| + exp |u|"),
        ("a=<x ,-y>*<<u,v>,w>", "a = <x, -y>*<<u, v>, w>"),
        ("a=sum[i](x+1)where i!=l and<x,y>>=2 else(b)", "a = sum[i] (x + 1) where i != l and <x, y> >= 2 else (b)"),
        ("a=mean[i]x by lowest[i] (D where y,90 %)", "a = mean[i] x by lowest[i](D where y, 90%)"),
        ("a=sample[j](-D noise g[i , j])", "a = sample[j](-D noise g[i,j])"),
        ("a=argmin[j] -D ties within 1e-9", "a = argmin[j] -D ties within 1e-9"),
        ("a=count( points )/index( i )", "a = count(points)/index(i)"),
        ("a=unit(x)else 0", "a = unit(x) else 0"),
        ("x[i]=1 longer[i]-=2", "x[i]       = 1\n  longer[i] -= 2"),
        ("x=1 a_very_long_name[i]=2", "x = 1\n  a_very_long_name[i] = 2"),
        ("x=1 then xyz=2 a_very_long_name[i]=2", "x = 1\n  then\n  xyz = 2\n  a_very_long_name[i] = 2"),
        ("x=1 yy=1 then a_very_long_name[i]=2", "x  = 1\n  yy = 1\n  then\n  a_very_long_name[i] = 2"),
    ],
)
def test_equations(written: str, formatted: str) -> None:
    assert equation(written) == "  " + formatted


def test_long_lines_are_broken_at_the_loosest_place_that_fits() -> None:
    term = "sum[i] weight[i] * |x[i] - c[j]|^2"
    assert equation(f"value[j] = {term} else {term} + {term}").split("\n") == [
        f"  value[j] = {term}",
        f"             else {term} + {term}",
    ]
    assert equation(f"value[j] = ({term} + {term}) * ({term})").split("\n") == [
        f"  value[j] = ({term} + {term})",
        f"             * ({term})",
    ]
    listed = weftc.format(f"algorithm a tokens i in p outputs {', '.join(f'name_number_{at}' for at in range(20))}")
    assert [len(line) for line in listed.split("\n")[-4:-1]] == [111, 115, 102]


def test_comments_next_to_each_other_share_a_column() -> None:
    text = "algorithm a\ntokens i in p\nparam "
    far = weftc.format(
        text + f"a = 1 # one\nb = {'1 + ' * 9}1 # two\nc = {'1 + ' * 20}1 # three\nlayer a = b outputs a"
    )
    assert [line.index("#") for line in far.split("\n") if "#" in line] == [60, 60, 96]
    alone = weftc.format(text + f"a = 1\nb = {'1 + ' * 9}1 # two\n\nc = 1 # three\nlayer a = b outputs a")
    assert [line.index("#") for line in alone.split("\n") if "#" in line] == [52, 40]


# ---- what it promises ------------------------------------------------------------------------------------------------


def test_a_text_that_does_not_parse_is_refused_in_the_words_of_the_parser() -> None:
    text = "algorithm a\ntokens i im p\nlayer x[i] = = 2\noutputs x"
    with pytest.raises(SpecError) as parsing:
        parse(text)
    with pytest.raises(SpecError) as formatting:
        weftc.format(text)
    assert str(formatting.value) == str(parsing.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("p[i,j] = softmax", "p[i] = softmax", "spec:18:6 would turn the word 'j' into ']'"),
        ("# two", "", "spec:26:8 would turn the comment '# two' into '# end of the layer'"),
        ("# the end", "", "spec:35:1 would turn the comment '# the end' into ''"),
        ("x = [1], [2]", "x = [1, 2]", "spec:33:17 would turn the word ']' into '2'"),
        ("x = [1], [2]", "x = [1], [2],", ""),
        ("c = [1, 2]", "c = [1 2]", "formatting spec made a text that does not parse: error[P"),
    ],
)
def test_it_notices_that_it_went_wrong(old: str, new: str, message: str) -> None:
    changed = NEAT.replace(old, new)
    assert changed != NEAT
    before = Source("spec", MESSY)
    if not message:  # a comma that may be left out
        ensure_same(before, changed)
        return
    with pytest.raises(Unfaithful, match=re.escape(message)):
        ensure_same(before, changed)


def test_it_compares_trees_as_well_as_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faithful, "_words", lambda found: [])
    with pytest.raises(Unfaithful, match="spec:2:11 would change what the spec says"):
        ensure_same(Source("spec", MESSY), NEAT.replace("gamma = 3", "gamma = 4"))


def test_a_bug_changes_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.weft"
    path.write_text(MESSY)
    monkeypatch.setattr(layout.Page, "comments", lambda *_, **__: None)
    assert main(["fmt", str(path)]) == 3
    assert "comment" in capsys.readouterr().err
    assert path.read_text() == MESSY


def test_line_ends_follow_the_first_line() -> None:
    crlf = MESSY.replace("\n", "\r\n")
    assert weftc.format(crlf) == NEAT.replace("\n", "\r\n")
    assert weftc.format(MESSY.replace("\n", "\r\n").replace("\r\n", "\n", 1)) == NEAT
