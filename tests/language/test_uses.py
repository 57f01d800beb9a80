"""`use`: algorithms of other files, of the same file and of the house, put into one that stands alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import weftc
from weftc.core.errors import SpecError
from weftc.core.unparse import same, written
from weftc.editor.document import read
from weftc.language.parse.linking import standalone
from weftc.language.parse.parse import parse
from weftc.prover.proving import prove

PARTS = """algorithm assign
tokens  i, l in points
        j in centers : k
inputs  x[i] : R^d,  c[j] : R^d
param   near = 9 > 0
let     D[i,j] = |x[i] - c[j]|^2
layer
  n[i]   = sum[l] 1 where |x[i] - x[l]|^2 < near
  y[i,j] = argmin[j] D[i,j]
outputs labels = y

algorithm keep
tokens  j in centers : k
inputs  c[j] : R^d
state   old[j] : R^d = c[j]
random  g[j] : normal
layer
  use shift with a = c
  then
  old[j] = c[j]
outputs c, moved[j] = |c[j] - old[j]|^2

algorithm shift
tokens  j in centers : k
inputs  a[j] : R^d
layer
  a[j] = a[j] / k
outputs a
"""
MAIN = """algorithm main
tokens  q in queries
        m in modes : 3
inputs  z[q] : R^e,  b[m] : R^e
let     n[q] = |z[q]|^2
layer
  use assign from "parts.weft" with x = z, c = b, y = a, near = 2
  b[m] = 2 * b[m]
  then
  use keep from "parts.weft" with centers = modes, c = b
outputs b, a
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "parts.weft").write_text(PARTS, encoding="utf-8")
    (tmp_path / "sub" / "main.weft").write_text(MAIN, encoding="utf-8")
    return tmp_path / "sub"


def test_names_are_those_of_the_algorithm_that_uses_it(folder: Path) -> None:
    expected = """algorithm main
tokens  q, l in queries
        m in modes : 3
inputs  z[q] : R^e,  b[m] : R^e
state   old[m] : R^e = b[m]
random  g[m] : normal
let     n[q] = |z[q]|^2,  D[q,m] = |z[q] - b[m]|^2
layer
  b[m] = 2 * b[m]
  n'[q] = sum[l] 1 where |z[q] - z[l]|^2 < 2
  a[q,m] = argmin[m] D[q,m]
  then
  b[m] = b[m] / 3
  then
  old[m] = b[m]
outputs b, a
"""
    found = weftc.parse(folder / "main.weft")
    assert same(parse(expected), found), written(found)


def test_a_model_holds_all_that_it_uses(folder: Path) -> None:
    checkpoint = weftc.compile(folder / "main.weft", {"e": 1})
    (folder / "parts.weft").unlink()
    x, b = np.array([[0.0], [1.0], [9.0]]), np.array([[0.0], [3.0], [9.0]])
    meant = weftc.interpret(checkpoint.spec_text, {"z": x, "b": b}, layers=1)
    assert meant["b"].tolist() == [[0.0], [2.0], [6.0]]
    found = weftc.load(checkpoint)(z=x, b=b)
    assert all((found[name].numpy() == meant[name]).all() for name in meant)
    assert "from" not in checkpoint.spec_text.partition("# assign of")[0]
    assert standalone(parse(checkpoint.spec_text).source) == checkpoint.spec_text
    assert prove(checkpoint).verdict == "proved"


def test_two_files_with_one_name_clash_and_rings_end(folder: Path) -> None:
    (folder / "more.weft").write_text(PARTS.replace("j in centers : k", "j in centers : k", 1), encoding="utf-8")
    (folder / "main.weft").write_text(MAIN.replace('keep from "parts', 'assign from "more'), encoding="utf-8")
    with pytest.raises(SpecError, match="two algorithms are called assign"):
        weftc.parse(folder / "main.weft")
    ring = 'algorithm {} tokens i in p inputs x[i] : R layer use {} from "{}.weft" outputs x'
    (folder / "one.weft").write_text(ring.format("one", "two", "two"), encoding="utf-8")
    (folder / "two.weft").write_text(ring.format("two", "one", "one"), encoding="utf-8")
    with pytest.raises(SpecError, match="one -> two -> one would never end"):
        weftc.parse(folder / "one.weft")


def test_a_mistake_is_shown_where_it_stands(folder: Path) -> None:
    (folder / "parts.weft").write_text(PARTS.replace("a[j] / k", "a[j] / kk"), encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        weftc.check(folder / "main.weft")
    assert f"{folder / 'parts.weft'}:27:17" in str(caught.value)
    assert "a[j] / kk" in str(caught.value)
    document = read(MAIN, str(folder / "main.weft"))
    assert [one.span.start for one in document.diagnostics] == [MAIN.index("use keep")]
    assert "parts.weft:27:17" in document.diagnostics[0].notes[0]


def test_words_of_use_are_names_elsewhere() -> None:
    text = (
        "algorithm a tokens use in p, e in q inputs from[e] : R, with[use] : R layer with[use] = with[use] outputs with"
    )
    assert [one.target.name for one in weftc.parse(text).inputs] == ["from", "with"]
