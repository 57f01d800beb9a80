"""`weft fmt` and `weft.format`: what they change, and that they change nothing else."""

from __future__ import annotations

import io
import json
import os
import re
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import weft
from spec_texts import GOOD, with_equation
from weft.cli import main
from weft.commands import new
from weft.errors import SpecError
from weft.formatting import faithful, layout
from weft.formatting.faithful import Unfaithful, ensure_same, shape
from weft.formatting.lexemes import lexemes
from weft.fuzz.specs import draw
from weft.language.parse import parse
from weft.source import Source

HERE = Path(__file__).parent
REFUSED = sorted((HERE / "refusals").glob("*.weft"))
PAGE = (HERE.parent / "specs" / "README.md").read_text(encoding="utf-8")
WHOLE = [block for block in re.findall(r"```weft\n(.*?)```", PAGE, re.DOTALL) if block.startswith("algorithm")]
EVERYTHING = [
    *(path.read_text(encoding="utf-8") for path in (*GOOD, *REFUSED)),
    *WHOLE,
    new.starter("mine", "mine.weft"),
    with_equation("s[j] = sum[i] 1 where i != l and |x[i]|^2 <= (1 + gamma) and <x[i], c[j]> > 0"),
    with_equation("c[j] -= mean[i] x[i] by lowest[i](D[i,j] where y[i,j], 99.9%) else (unit(c[j]) else 0) else c[j]"),
    with_equation("s[j] = ||x[i]|^2 - log w[i]| + exp |u[i]| - -2 * --3 - sum[i] (sum[l] u[l])^2"),
    with_equation("y[i,j] = argmin[j] D[i,j] ties within 1e-9"),
]  # fmt: skip


def comments(text: str) -> list[str]:
    found, end = lexemes(Source("spec", text))
    gaps = [*(lexeme.gap for lexeme in found), end]
    return [comment.text for gap in gaps for comment in gap.comments]


def assert_same(before: str, after: str) -> None:
    """Two texts say the same, the second is formatted, and looks it."""
    assert shape(parse(before)) == shape(parse(after))
    assert comments(before.replace("\r\n", "\n")) == comments(after)
    assert weft.format(after) == after
    assert after.endswith("\n")
    assert "\n\n\n" not in after
    assert not re.search(r"[ \t]\n", after)
    assert "\t" not in re.sub(r'#[^\n]*|"[^"\n]*"', "", after)


# ---- any spec --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_specs_of_the_repository_are_formatted(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert weft.format(text) == text, f"run: weft fmt {path}"


def test_starter_is_formatted() -> None:
    text = new.starter("mine", "mine.weft")
    assert weft.format(text) == text


@pytest.mark.parametrize("text", EVERYTHING)
def test_says_the_same_on_lines_that_fit(text: str) -> None:
    formatted = weft.format(text)
    assert_same(text, formatted)
    assert all(len(line) <= 120 for line in formatted.split("\n"))


@pytest.mark.parametrize("text", EVERYTHING)
def test_one_line_becomes_the_same_as_a_token_a_line(text: str) -> None:
    """Only breaks at operators and between items are the author's to choose."""
    tokens = [lexeme.text for lexeme in lexemes(Source("spec", text))[0]]
    assert_same(" ".join(tokens), weft.format(" ".join(tokens)))
    assert_same("\n".join(tokens), weft.format("\n".join(tokens)))


def test_drawn_specs() -> None:
    for number in range(20):
        text = draw(5, number).text
        assert_same(text, weft.format(text))
        line = " ".join(text.split())
        assert_same(line, weft.format(line))


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
    formatted = weft.format(text)
    assert_same(text, formatted.replace("\r\n", "\n"))


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(EVERYTHING), st.randoms(use_true_random=False))
def test_optional_commas_may_be_there_or_not(text: str, random: Random) -> None:
    spec = parse(text)
    declared = (*spec.tokens, *spec.inputs, *spec.random, *spec.state, *spec.params, *spec.lets, *spec.outputs)
    changed, at = "", 0
    for end in sorted(one.span.end for one in declared):
        changed += text[at:end] + random.choice((" ,", "", ","))
        comma = re.compile(r"[ \t]*,").match(text, end)
        at = comma.end() if comma else end
    assert weft.format(changed + text[at:]) == weft.format(text)


# ---- what it looks like ----------------------------------------------------------------------------------------------

MESSY = """#top
algorithm look "first"
 "second"
tokens i in points,j in centers:k,
l in others # trailing
# before inputs
inputs x[i]:R^d,weight[i]:R>=0 c[j]:R^d init spread(x)

  ,b[j] : unit R^d      # note
                        # and more of it
param a=1>0
 beta=2 in[0,1)   # range
 gamma=3 ,        # gamma
layer # one

 y[i,j]=argmin[j] (|x[i]-c[j]|^2)
 # about the next
 p[i,j] = softmax [j] - gamma*|x[i]-c[j]|^2/ 2


 then

 c[j] = mean[i] x[i]*weight[i] + sum[i] softmax[i](-gamma*|x[i]-c[j]|^2 where y[i,j]) * x[i] - 2*(mean[i] x[i] where y[i,j]) else c[j]
 b[j] +=
   1 +
   2   # two
   + sum [ i ] <  x[i] ,
      c [ j ] > ^ 2
 # end of the layer
# before outputs
outputs c,y, s[j]=sum[i] weight[i]
objective sum[i] min[j] |x[i]-c[j]|^2
example "t" x=[1],[2],c=[1,2] layers 1 c=[1]
 y=[1 / 2]
# the end"""  # noqa: E501

NEAT = """#top
algorithm look "first"
          "second"

tokens  i in points,  j in centers : k
        l in others                     # trailing

# before inputs
inputs  x[i] : R^d,  weight[i] : R >= 0,  c[j] : R^d  init spread(x)

        b[j] : unit R^d                 # note
                                        # and more of it
param   a     = 1 > 0
        beta  = 2 in [0, 1)             # range
        gamma = 3                       # gamma

layer                                   # one
  y[i,j] = argmin[j](|x[i] - c[j]|^2)
  # about the next
  p[i,j] = softmax[j] -gamma*|x[i] - c[j]|^2 / 2

  then
  c[j]   = mean[i] x[i]*weight[i] + sum[i] softmax[i](-gamma*|x[i] - c[j]|^2 where y[i,j]) * x[i]
           - 2*(mean[i] x[i] where y[i,j]) else c[j]
  b[j]  += 1
           + 2                          # two
           + sum[i] <x[i],
           c[j]>^2
  # end of the layer

# before outputs
outputs   c, y, s[j] = sum[i] weight[i]
objective sum[i] min[j] |x[i] - c[j]|^2

example "t"
  x = [1], [2]    c = [1, 2]    layers 1
  c = [1]
  y = [1/2]
# the end
"""


def test_a_messy_spec() -> None:
    assert weft.format(MESSY) == NEAT


def equation(text: str) -> str:
    """How one equation of a layer comes out."""
    found = weft.format(f"algorithm a tokens i in p layer {text} outputs x").split("\n")
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
    listed = weft.format(f"algorithm a tokens i in p outputs {', '.join(f'name_number_{at}' for at in range(20))}")
    assert [len(line) for line in listed.split("\n")[-4:-1]] == [111, 115, 102]


def test_comments_next_to_each_other_share_a_column() -> None:
    text = "algorithm a\ntokens i in p\nparam "
    far = weft.format(text + f"a = 1 # one\nb = {'1 + ' * 9}1 # two\nc = {'1 + ' * 20}1 # three\nlayer a = b outputs a")
    assert [line.index("#") for line in far.split("\n") if "#" in line] == [60, 60, 96]
    alone = weft.format(text + f"a = 1\nb = {'1 + ' * 9}1 # two\n\nc = 1 # three\nlayer a = b outputs a")
    assert [line.index("#") for line in alone.split("\n") if "#" in line] == [52, 40]


# ---- what it promises ------------------------------------------------------------------------------------------------


def test_a_text_that_does_not_parse_is_refused_in_the_words_of_the_parser() -> None:
    text = "algorithm a\ntokens i im p\nlayer x[i] = = 2\noutputs x"
    with pytest.raises(SpecError) as parsing:
        parse(text)
    with pytest.raises(SpecError) as formatting:
        weft.format(text)
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
    spec = parse(Source("spec", MESSY))
    if not message:  # a comma that may be left out
        ensure_same(spec, changed)
        return
    with pytest.raises(Unfaithful, match=re.escape(message)):
        ensure_same(spec, changed)


def test_it_compares_trees_as_well_as_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faithful, "_words", lambda found: [])
    with pytest.raises(Unfaithful, match="spec:2:11 would change what the spec says"):
        ensure_same(parse(MESSY), NEAT.replace("gamma = 3", "gamma = 4"))


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
    assert weft.format(crlf) == NEAT.replace("\n", "\r\n")
    assert weft.format(MESSY.replace("\n", "\r\n").replace("\r\n", "\n", 1)) == NEAT


# ---- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def messy(tmp_path: Path) -> Path:
    path = tmp_path / "messy.weft"
    path.write_text(MESSY)
    return path


def test_it_writes_the_file_and_only_when_it_changes(messy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    messy.chmod(0o640)
    assert main(["fmt", str(messy)]) == 0
    assert messy.read_text() == NEAT
    assert messy.stat().st_mode & 0o777 == 0o640
    assert capsys.readouterr().out == f"formatted {messy}\n"
    before = messy.stat()
    assert main(["fmt", str(messy)]) == 0
    assert (messy.stat().st_ino, messy.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert capsys.readouterr().out == ""
    assert [path.name for path in messy.parent.iterdir()] == ["messy.weft"]


def test_check_names_what_would_change(messy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    neat = messy.with_name("neat.weft")
    neat.write_text(NEAT)
    assert main(["fmt", "--check", str(messy), str(neat)]) == 1
    assert capsys.readouterr().out == f"would change {messy}\n"
    assert messy.read_text() == MESSY
    assert main(["fmt", "--check", str(neat)]) == 0


def test_diff_shows_how(messy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fmt", "--diff", str(messy)]) == 0
    shown = capsys.readouterr().out.split("\n")
    assert shown[:2] == [f"--- {messy} (now)", f"+++ {messy} (formatted)"]
    assert "-objective sum[i] min[j] |x[i]-c[j]|^2" in shown
    assert "+objective sum[i] min[j] |x[i] - c[j]|^2" in shown
    assert messy.read_text() == MESSY
    assert main(["fmt", "--check", "--diff", str(messy)]) == 1
    both = capsys.readouterr()
    assert both.out.split("\n") == shown
    assert both.err == f"would change {messy}\n"


def test_diff_does_not_let_a_file_write_to_the_terminal(messy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    messy.write_text(MESSY.replace("#top", "#top \x1b[31m"))
    main(["fmt", "--diff", str(messy)])
    assert "\x1b" not in capsys.readouterr().out


def feed(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_stdin_to_stdout(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    feed(monkeypatch, MESSY.encode())
    assert main(["fmt", "-"]) == 0
    assert capfd.readouterr().out == NEAT
    feed(monkeypatch, MESSY.encode())
    assert main(["fmt", "-", "--check"]) == 1
    assert capfd.readouterr().out == "would change -\n"
    feed(monkeypatch, b"algorithm \xff")
    assert main(["fmt", "-"]) == 1
    assert capfd.readouterr().err.startswith("error: stdin is not UTF-8 text")


def test_folders_are_walked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    places = ["b.weft", "a/c.weft", "a/d.txt", ".hidden/e.weft"]
    for place in places:
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_text(MESSY)
    assert main(["fmt", str(tmp_path), str(tmp_path / "b.weft")]) == 0
    assert [place for place in places if (tmp_path / place).read_text() == NEAT] == ["b.weft", "a/c.weft"]
    assert capsys.readouterr().out.count("formatted") == 2


def test_one_bad_file_does_not_keep_the_others(messy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = messy.with_name("bad.weft")
    bad.write_text("algorithm\n")
    assert main(["fmt", str(bad), str(messy)]) == 1
    assert messy.read_text() == NEAT
    assert bad.read_text() == "algorithm\n"
    assert "bad.weft:1" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["missing.weft", "empty"])
def test_nothing_is_touched_when_a_name_is_wrong(messy: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    (messy.parent / "empty").mkdir()
    assert main(["fmt", str(messy), str(messy.parent / name)]) == 2
    assert "there is no" in capsys.readouterr().err
    assert messy.read_text() == MESSY


def test_json(messy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    bad = messy.with_name("bad.weft")
    bad.write_text("algorithm\n")
    feed(monkeypatch, MESSY.encode())
    assert main(["fmt", "--json", "--diff", str(messy), str(bad), "-"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] is False
    first, second, third = told["files"]
    assert (first["file"], first["changed"], first["written"]) == (str(messy), True, False)
    assert "+tokens  i in points,  j in centers : k" in first["diff"].split("\n")
    assert second["error"].startswith("error[P")
    assert second["problems"][0]["line"] == 1
    assert third["text"] == NEAT


def test_marks_and_line_ends_of_a_file_stay(messy: Path) -> None:
    mark = b"\xef\xbb\xbf"
    messy.write_bytes(mark + MESSY.replace("\n", "\r\n").encode())
    assert main(["fmt", str(messy)]) == 0
    assert messy.read_bytes() == mark + NEAT.replace("\n", "\r\n").encode()
    assert main(["fmt", "--check", str(messy)]) == 0


def test_a_link_stays_a_link(messy: Path) -> None:
    link = messy.with_name("link.weft")
    link.symlink_to(messy)
    assert main(["fmt", str(link)]) == 0
    assert link.is_symlink()
    assert messy.read_text() == NEAT


def test_a_write_that_fails_leaves_the_file(
    messy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(self: Path, data: bytes) -> int:
        self.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    assert main(["fmt", str(messy)]) == 1
    assert f"cannot write {messy}: No space left on device" in capsys.readouterr().err
    assert messy.read_text() == MESSY
    assert [path.name for path in messy.parent.iterdir()] == ["messy.weft"]


def test_a_read_only_file_is_left(
    messy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    messy.chmod(0o444)
    if os.access(messy, os.W_OK):  # a user to whom nothing is forbidden
        monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    assert main(["fmt", str(messy)]) == 1
    assert "read-only" in capsys.readouterr().err
    assert messy.read_text() == MESSY


def test_a_layer_of_many_equations() -> None:
    equations = "\n".join(f"  a{at}[i] = sum[i] x[i] + {at}  # c" for at in range(200))
    text = f"algorithm big\ntokens i in points\nlayer\n{equations}\noutputs x\n"
    assert_same(text, weft.format(text))
