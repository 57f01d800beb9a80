"""What notebooks and terminals show of specs, programs, models and answers; and what errors carry beside their text."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

import weftc
from weftc.compiling import normal_form
from weftc.core.source import Source
from weftc.core.styles import Styles
from weftc.graph.build import build_graph
from weftc.language.bind import bind
from weftc.verification.verdict import Check, Verdict
from weftc_runtime import Checkpoint, Outputs, RunError

HOSTILE = "<script>alert('x')</script>\x1b[2J&\"'"
POINTS = np.array([[0.0, 0.0], [1.0, 0.0], [5.0, 5.0]])


class Reader(HTMLParser):
    """Notes the tags, the attributes and the text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.names: set[str] = set()
        self.text = ""
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.names.update(name for name, _ in attrs)
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.names.update(name for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.text += data


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert not reader.open
    return reader


def things() -> Iterator[tuple[str, Any, tuple[str, ...]]]:
    """Everything with a display, and words that must be in it."""
    checked = weftc.check("lloyd")
    made = weftc.compile(checked, {"d": 2, "k": 2})
    model = weftc.load(made)
    outputs = model(x=POINTS, seed=0)
    assert isinstance(outputs, Outputs)
    bound = bind(checked, {"d": 2, "k": 2}, {})
    verdict = Verdict("lloyd", (Check("layers", "3 steps", 2, True), Check("data", "1 step", 1, False, detail="off")))
    yield "spec", weftc.parse("lloyd"), ("argmin", "c[j]")
    yield "checked", checked, ("onehot over centers", "argmin")
    yield "graph", build_graph(checked), ("y[i,j] = argmin[j] |x[i] - c[j]|^2", "centers = c")
    yield "normal", normal_form(bound, Styles()), ("score -|x - c|^2",)
    yield "program", made.program, ("id()", "points <- centers", "argmax")
    yield "checkpoint", made, ("k = 2", "id()", "1 layer")
    yield "model", model, ("float64 on cpu", "starts by spread")
    yield "outputs", outputs, ("centers", "2 x 2", "one-hot, 2 columns")
    yield "answer", outputs["labels"], ("one-hot, 2 columns", "indices")
    yield "report", model.report, ("1", "rows settled by head", "blocks.0.y")
    yield "assignment", weftc.assignment("sinkhorn_log", {"d": 1}, depth=2), ("distance to the optimum", "projective")
    yield "verdict", verdict, ("not shown", "layers", "off", "NO")


@pytest.mark.parametrize(
    ("name", "value", "words"), list(things()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_displays_are_small_tables_and_lines(name: str, value: Any, words: tuple[str, ...]) -> None:
    html = value._repr_html_()
    page = read(html)
    for word in words:
        assert word in page.text
    assert len(html) < 20_000
    assert not {"script", "link", "style", "iframe", "img"} & set(page.tags)
    assert not any(attribute.startswith("on") or attribute in ("href", "src") for attribute in page.names)
    line = repr(value)
    assert "\n" not in line
    assert len(line) < 200
    assert "lloyd" in line or name in ("outputs", "answer", "report", "assignment")


def test_the_catalogue_is_a_list_by_subject() -> None:
    entries = weftc.catalogue()
    lines = repr(entries).splitlines()
    assert "clustering" in lines
    assert sorted(line.split()[0] for line in lines if line.startswith("  ")) == [entry.name for entry in entries]
    page = read(entries._repr_html_() or "")
    assert all(entry.name in page.text and entry.doc in page.text for entry in entries)
    assert "algorithm" not in repr(entries[0])


def test_a_report_of_a_run_says_how_it_ended() -> None:
    model = weftc.load(weftc.compile("lloyd", {"d": 2, "k": 2}))
    model(x=POINTS, seed=0, until_stable=True)
    assert "at a fixed point" in repr(model.report)
    model(x=[POINTS[:2], POINTS], seed=0)
    assert repr(model.report).startswith("Report(layers: 1 in 2 problems; backend: ")


def test_a_page_is_text_and_a_notebook_frames_it() -> None:
    page = weftc.report("lloyd", POINTS, dims={"k": 2}, layers=1, verify=False)
    assert page.startswith("<!doctype html>")
    framed = read(page._repr_html_())
    assert framed.tags == ["iframe"]
    assert {"srcdoc", "sandbox"} <= framed.names


def test_a_figure_shows_itself_without_magic() -> None:
    import struct

    data, size = weftc.plot("lloyd", dims={"d": 2, "k": 2})._repr_png_()
    assert data.startswith(b"\x89PNG")
    assert struct.unpack(">I", data[16:20])[0] == pytest.approx(2 * size["width"], abs=2)


def test_displays_take_the_colours_of_the_page() -> None:
    for _, value, _ in things():
        if "<svg" not in (html := value._repr_html_()):
            assert "background:#" not in html.replace(" ", "")
            assert not re.search(r"[^-]color:#(000|fff|111|eee)", html)


def hostile() -> Checkpoint:
    """A model whose names come from somebody with bad intentions."""
    from dataclasses import replace

    made = weftc.compile("lloyd", {"d": 1, "k": 2})
    streams = tuple(
        replace(s, slots=tuple(replace(t, name=t.name, meaning=HOSTILE) for t in s.slots)) for s in made.program.streams
    )
    program = replace(made.program, name=HOSTILE, streams=streams)
    return replace(made, program=program, spec_name=HOSTILE, params={HOSTILE: 1.0})


def test_nothing_in_a_display_is_trusted() -> None:
    made = hostile()
    for value in (made, made.program):
        page = read(value._repr_html_())
        assert "script" not in page.tags
        assert "<script>" in page.text
        assert "\x1b" not in value._repr_html_()
        assert "\x1b" not in repr(value)
    verdict = Verdict(HOSTILE, (Check(HOSTILE, HOSTILE, 1, False, detail=HOSTILE),), conditions=(HOSTILE,))
    page = read(verdict._repr_html_())
    assert "script" not in page.tags
    assert "\x1b" not in page.text


def test_comments_of_a_spec_are_text() -> None:
    text = f"algorithm a # {HOSTILE}\ntokens i in s\ninputs x[i] : R\nlayer\n x[i] = x[i]\noutputs x\n"
    for value in (weftc.parse(text.replace("\x1b", "")), weftc.check(text.replace("\x1b", ""))):
        page = read(value._repr_html_())
        assert "script" not in page.tags
        assert "<script>" in page.text


def test_what_is_made_on_request_is_not_made_for_a_display() -> None:
    model = weftc.load(weftc.compile("sinkhorn_dual", {"d": 1}))
    outputs = model(x=[[0.0], [1.0]], y=[[0.0], [1.0]])
    assert "on request" in outputs._repr_html_()
    assert "plan: on request" in repr(outputs)


# ---- errors ----------------------------------------------------------------------------------------------------------


def test_a_refused_spec_says_where_and_what_to_do() -> None:
    text = "algorithm a\ntokens i in s\ninputs x[i] : R\nlayer\n x[i] = x[i] + zz\noutputs x\n"
    with pytest.raises(weftc.SpecError) as caught:
        weftc.check(Source("mine.weft", text))
    error = caught.value
    assert error.place == "mine.weft:5:16"
    assert error.code is not None
    assert error.code.startswith("C")
    assert error.span is not None
    assert text[error.span.start : error.span.end] == "zz"
    assert error.hint
    assert error.hint in str(error)


def test_notebooks_show_a_refusal_without_a_stack() -> None:
    with pytest.raises(weftc.SpecError) as caught:
        weftc.parse("algorithm a\ntokens i in <b>\n")
    lines = caught.value._render_traceback_()
    assert "\n".join(lines) == str(caught.value)
    page = read(caught.value._repr_html_())
    assert "b" not in page.tags
    assert "error[" in page.text


def test_errors_survive_other_processes() -> None:
    with pytest.raises(weftc.SpecError) as caught:
        weftc.parse("algorithm a\ntokens")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.code, again.place) == (str(caught.value), caught.value.code, caught.value.place)
    run = pickle.loads(pickle.dumps(RunError("x: row 3 is wrong; mend it", input="x", place="row 3")))
    assert (run.input, run.place, run.hint) == ("x", "row 3", "mend it")


@pytest.mark.parametrize(
    ("inputs", "named", "place"),
    [
        ({"x": [[0.0], [float("nan")]]}, "x", "row 1"),
        ({"x": [[0.0]], "zz": 1}, "zz", None),
        ({}, "x", None),
        ({"x": [[[[0.0]]]]}, "x", None),
    ],
)
def test_a_run_that_is_refused_names_the_input(inputs: dict[str, Any], named: str, place: str | None) -> None:
    model = weftc.load(weftc.compile("lloyd", {"d": 1, "k": 1}))
    with pytest.raises(RunError) as caught:
        model(**inputs)
    assert caught.value.input == named
    assert (caught.value.place or "").startswith(place or "")
    assert (caught.value.place is None) == (place is None)
    assert caught.value.hint
    assert caught.value.hint in str(caught.value)


def test_the_interpreter_names_the_input_too() -> None:
    with pytest.raises(weftc.InputError) as caught:
        weftc.interpret("lloyd", {"x": [[0.0], [float("inf")]]}, dims={"k": 1})
    assert caught.value.input == "x"
    assert caught.value.place is not None
    assert caught.value.place.startswith("row 2")


def test_a_run_that_fails_in_the_middle_names_the_equation() -> None:
    text = "algorithm a\ntokens i, l in s\ninputs x[i] : R\nlayer\n x[i] = sum[l] exp(x[l])\noutputs x\n"
    with pytest.raises(RunError) as caught:
        weftc.load(weftc.compile(text))(x=[900.0])
    assert caught.value.place
    assert caught.value.place in str(caught.value)


# ---- what an import costs --------------------------------------------------------------------------------------------


def imported(code: str) -> set[str]:
    """The top-level packages that a fresh interpreter has imported after some code."""
    found = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*{{name.split('.')[0] for name in sys.modules}})"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(found.stdout.split())


def test_importing_weft_loads_nothing_heavy() -> None:
    heavy = {
        "torch",
        "numpy",
        "scipy",
        "sklearn",
        "ot",
        "networkx",
        "lark",
        "matplotlib",
        "pandas",
        "jinja2",
        "safetensors",
    }
    assert not imported("import weftc") & heavy
    assert not imported("import weftc.cli") & heavy


def test_compiling_and_running_loads_only_what_it_needs() -> None:
    code = "import weftc\nmodel = weftc.load(weftc.compile('lloyd', {'d': 1, 'k': 1}))\nmodel(x=[[1.0]])"
    assert not imported(code) & {"scipy", "sklearn", "ot", "matplotlib", "pandas", "jinja2", "IPython"}
