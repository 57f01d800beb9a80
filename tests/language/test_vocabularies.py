"""Fields of symbols: what data, equations and answers make of `one of {a, b, c}`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import weftc
from weftc.cli import main
from weftc.core.unparse import written
from weftc.language.check.check import type_of
from weftc_runtime.errors import RunError

SPEC = """algorithm t
tokens  i, l in places
inputs  t[i] : one of {a, "(", 3},  s[i] : one of {x, a}
layer
  p[i] = t[i-1] else t[last]
  q[i] = mean[l] t[l] where l <= i else a
  n[i] = sum[l] <t[l], "("> where s[l] = a and t[l] != t[i]
  w[i] = s[count(places) + 1 - i] else x
outputs p, q, n, w, v[i] = p[i]
"""
T, S = ["a", "(", "3", "("], ["a", "x", "a", "a"]


def test_symbols_go_in_and_come_out() -> None:
    for scores in ("l2", "dot"):
        found = weftc.load(weftc.compile(SPEC, {}, scores=scores))(t=T, s=S)
        assert found["p"].tolist() == found["v"].tolist() == ["(", "a", "(", "3"]
        assert found["w"].tolist() == S[::-1]
        assert found["n"].tolist() == [1.0, 0.0, 1.0, 0.0]
        assert str(found["p"]) == "OneHot((, a, (, 3)"
    meant = weftc.interpret(SPEC, {"t": T, "s": S}, layers=1)
    assert np.asarray(meant["p"]).argmax(1).tolist() == [1, 0, 1, 2]
    assert np.array_equal(meant["q"], found["q"].numpy())  # shares: vectors, not symbols


def test_a_batch_of_sequences_and_rows_of_ones() -> None:
    model = weftc.load(weftc.compile(SPEC, {}))
    found = model(t=[T, T[::-1]], s=[S, S])["p"].tolist()
    assert found == [["(", "a", "(", "3"], ["a", "(", "3", "("]]
    rows = np.eye(3)[[0, 1, 2, 1]]
    assert model(t=rows, s=S)["p"].tolist() == found[0]
    assert model(t=T, s="aaaa")["w"].tolist() == list("aaaa")


@pytest.mark.parametrize("symbols", [["a", "z"], ["a", ""], "ab"])
def test_an_unknown_symbol_is_named(symbols: object) -> None:
    with pytest.raises(RunError, match=r"t: row 1 \(.*\) is no symbol of its vocabulary, which is a, \(, 3"):
        weftc.load(weftc.compile(SPEC, {}))(t=symbols, s=["a", "a"])
    with pytest.raises(weftc.InputError, match=r"t, row 2: .* is no symbol of its vocabulary"):
        weftc.interpret(SPEC, {"t": symbols, "s": ["a", "a"]}, layers=1)


def test_the_checker_knows_what_is_a_symbol() -> None:
    checked = weftc.check(SPEC)
    assert checked.fields["p"].symbols == ("a", "(", "3")
    assert checked.fields["q"].symbols == ()
    (shown,) = (o for o in checked.spec.outputs if o.target.name == "v")
    assert type_of(checked, shown.body, ("i",)).symbols == ("a", "(", "3")
    again = weftc.check(written(checked.spec))
    assert again.fields["p"] == checked.fields["p"]


def test_the_formatter_leaves_symbols_alone() -> None:
    text = weftc.format(SPEC)
    assert 'inputs  t[i] : one of {a, "(", 3}' in text
    assert "t[i-1] else t[last]" in text
    assert weftc.format(text) == text


@pytest.mark.parametrize("header", ["t\n", ""])
def test_a_data_file_holds_symbols(header: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, out = tmp_path / "tokens.csv", tmp_path / "out"
    data.write_text(header + "a\nb\nb\nc\n", encoding="utf-8")
    assert main(["run", "reverse", "--data", str(data), "-o", str(out)]) == 0
    assert (out / "r.csv").read_text(encoding="utf-8") == "r\nc\nb\nb\na\n"
    data.write_text(header + "a\nbee\n", encoding="utf-8")
    assert main(["run", "reverse", "--data", str(data), "-o", str(tmp_path / "more")]) == 1
    line = 2 + bool(header)
    assert f"line {line}, column 1" in (told := capsys.readouterr().err)
    assert "'bee' is no symbol of the vocabulary, 'a', 'b', 'c'" in told


def test_one_column_of_several_holds_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "tokens.csv"
    data.write_text("n,t\n1,a\n2,b\n", encoding="utf-8")
    assert main(["run", "reverse", "--data", str(data), "-o", str(tmp_path / "out")]) == 1
    assert "has 2 columns, and t is one symbol per row; choose one with --columns" in capsys.readouterr().err
    assert main(["run", "reverse", "--data", str(data), "--columns", "t", "-o", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / "r.csv").read_text(encoding="utf-8") == "r\nb\na\n"
