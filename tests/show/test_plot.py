"""Pictures for papers: every spec has those it can have, files are the same every time, text stays text."""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import weftc
from weftc.cli import main
from weftc.files.locate import names
from weftc.show.figures.pictures import PICTURES, available, picture
from weftc.show.figures.saving import save
from weftc.show.figures.subject import Subject, subject_of
from weftc.show.figures.watching import chosen_layers, leads, thinned
from weftc.verification.cases.examples import settings as examples
from weftc_runtime.format import program as ir

NAMES = names("")
POINTS = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [5.0, 5.0], [6.0, 5.0], [5.0, 7.0]])
FEW = {"dims": {"k": 2}, "layers": 2}


@cache
def example(name: str) -> Subject:
    """A spec on the data of its first example."""
    checked = weftc.check(name)
    one = examples(checked)[0]
    return subject_of(checked, dict(one.inputs), dims=one.dims, params=one.params, layers=min(one.layers, 3))


def words(figure: Any) -> str:
    """All text in a figure."""
    from matplotlib.text import Text

    return "\n".join(one.get_text() for one in figure.findobj(Text))


# ---- every spec ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_every_spec_has_its_pictures(name: str) -> None:
    subject = example(name)
    there = set(available(subject))
    assert {"graph", "stream", "weights"} <= there
    assert ("objective" in there) == (subject.checked.spec.objective is not None)
    for what in PICTURES:
        if what in there:
            figure = picture(subject, what)
            width, height = figure.get_size_inches()
            assert 1 < width < 40
            assert 0.3 < height < 80
        else:
            with pytest.raises(
                weftc.InputError, match=rf"{name} has no picture of {what}: .*; it has graph, stream, weights"
            ):
                picture(subject, what)


@pytest.mark.parametrize("scores", ["l2", "dot"])
def test_weights_show_every_head_and_slot(scores: Any) -> None:
    made = weftc.compile("lloyd", {"d": 2, "k": 3}, scores=scores)
    text = words(weftc.plot(made, "weights"))
    for head in (h for step in made.program.layer for s in step.sublayers for h in getattr(s, "heads", ())):
        assert f"head {head.name}:  {head.query} ← {head.keys}" in text
    assert "c[j] = mean[i] x[i] where y[i,j] else c[j]" in text
    assert {"Q", "K", "V"} <= set(text.split("\n"))
    assert "−0.5" in text  # the threshold of the mask


def test_only_the_heads_asked_for_are_drawn() -> None:
    made = weftc.compile("lloyd", {"d": 2, "k": 3})
    text = words(weftc.plot(made, "weights", heads=["c"]))
    assert "head c:" in text
    assert "head y:" not in text
    with pytest.raises(weftc.InputError, match=r"there is no head cc; did you mean 'c'"):
        weftc.plot(made, "weights", heads=["cc"])


def test_streams_show_every_slot_with_its_columns() -> None:
    made = weftc.compile("lloyd", {"d": 2, "k": 3})
    lines = words(weftc.plot(made, "stream")).split("\n")
    for stream in made.program.streams:
        assert stream.name in lines
        for slot in stream.slots:
            assert slot.name in lines
            span = str(slot.offset) if slot.width == 1 else f"{slot.offset}–{slot.offset + slot.width - 1}"
            assert span in lines


def test_rotated_weights_claim_no_slots() -> None:
    from weftc.variants.bases import rotated

    made = rotated(weftc.compile("lloyd", {"d": 2, "k": 2}))
    lines = words(weftc.plot(made, "weights")).split("\n")
    assert "residual" in lines
    assert "id()" not in lines
    plain, turned = (
        subject_of(one, {"x": POINTS, "c": POINTS[:2]}, layers=2).course
        for one in (weftc.compile("lloyd", {"d": 2, "k": 2}), made)
    )
    assert np.allclose(plain.over_time("c"), turned.over_time("c"))


# ---- what a run shows ------------------------------------------------------------------------------------------------


def test_the_course_of_a_run_is_the_run() -> None:
    subject = subject_of("lloyd", {"x": POINTS, "c": POINTS[[0, 1]]}, layers=3)
    course = subject.course
    model = weftc.load(subject.checkpoint)
    trace = model.trace(x=POINTS, c=POINTS[[0, 1]], layers=3, patterns=True)
    assert course.layers == 3
    for layer, fields in enumerate(trace.fields):
        assert np.array_equal(course.over_time("c")[layer], fields["c"].numpy())
        objective = model.objective(x=POINTS, c=POINTS[[0, 1]], layers=layer)
        assert course.objective[layer] == pytest.approx(float(objective), rel=1e-12)
    for layer in range(3):
        assert np.array_equal(course.heads["y"].patterns[layer], trace[f"layers.{layer}.blocks.0.y.pattern"].numpy())
    distances = np.sort(((POINTS[:, None] - POINTS[None, [0, 1]]) ** 2).sum(2), 1)
    assert np.allclose(course.heads["y"].leads[0], distances[:, 1] - distances[:, 0])


def test_an_objective_of_computed_fields_begins_with_the_first_layer() -> None:
    text = """algorithm a
tokens i in points, j in centers : k
inputs x[i] : R^d, c[j] : R^d
layer
  y[i,j] = argmin[j] |x[i] - c[j]|^2
outputs y
objective sum[i] sum[j] y[i,j] * |x[i] - c[j]|^2
"""
    course = subject_of(text, {"x": POINTS, "c": POINTS[[0, 3]]}, layers=1).course
    nearest = ((POINTS[:, None] - POINTS[None, [0, 3]]) ** 2).sum(2).min(1).sum()
    assert course.objective[0] is None
    assert course.objective[1] == pytest.approx(float(nearest), rel=1e-12)


def test_unrolled_layers_are_watched_like_shared_ones() -> None:
    given = {"x": POINTS, "c": POINTS[[0, 1]]}
    shared = subject_of("lloyd", given, layers=3).course
    unrolled = subject_of(weftc.compile("lloyd", {"d": 2, "k": 2}, layers=3, weights="unrolled"), given).course
    assert unrolled.layers == 3
    assert np.array_equal(shared.over_time("c"), unrolled.over_time("c"))
    assert [p.tolist() for p in shared.heads["y"].patterns] == [p.tolist() for p in unrolled.heads["y"].patterns]


def test_a_run_ends_when_nothing_visible_changes() -> None:
    given, slow = {"x": POINTS, "c": POINTS[[0, 3]]}, {"gamma": 0.05}
    soft = subject_of("soft_kmeans", given, params=slow).course
    assert soft.stopped
    assert 2 < soft.layers < 60
    moved = np.abs(np.diff(soft.over_time("c"), axis=0)).max((1, 2))
    assert 0 < moved[-1] < 1e-2 < moved[0]  # it still moves, but nobody can see it
    asked = subject_of("soft_kmeans", given, params=slow, layers=soft.layers + 2).course
    assert asked.layers == soft.layers + 2


def test_tokens_say_how_they_are_drawn() -> None:
    figure = weftc.plot("lloyd", "tokens", POINTS, **FEW)
    assert {"first dimension", "second dimension"} <= set(words(figure).split("\n"))
    wide = np.random.default_rng(0).normal(size=(12, 5)) * [5, 3, 1, 1, 1]
    by_components = weftc.plot("lloyd", "tokens", wide, **FEW)
    assert re.search(r"first principal component \(\d+% of variance\)", words(by_components))
    by_first = weftc.plot("lloyd", "tokens", wide, plane="first", **FEW)
    assert "first dimension of 5" in words(by_first)


def test_columns_of_a_frame_name_the_axes() -> None:
    class Frame:
        columns = ("east", "north")

        def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
            return POINTS

    assert {"east", "north"} <= set(words(weftc.plot("lloyd", "tokens", Frame(), **FEW)).split("\n"))


def test_large_inputs_are_thinned_and_the_picture_says_so() -> None:
    many = np.random.default_rng(1).normal(size=(200, 2))
    assert "shown are 64 of 200 points, evenly spaced" in words(weftc.plot("lloyd", "attention", many, **FEW))
    assert thinned(5, 10).tolist() == [0, 1, 2, 3, 4]
    kept = thinned(10_000, 64)
    assert len(kept) == 64
    assert (kept[0], kept[-1]) == (0, 9999)


@pytest.mark.parametrize(("layers", "most"), [(1, 5), (5, 5), (6, 5), (7, 5), (40, 5), (300, 5)])
def test_layers_shown_include_the_first_and_the_last(layers: int, most: int) -> None:
    chosen = list(chosen_layers(layers, most))
    assert len(chosen) == min(layers, most)
    assert (chosen[0], chosen[-1]) == (0, layers - 1)
    assert chosen == sorted(set(chosen))


def test_leads_are_those_of_the_chosen_over_the_rest() -> None:
    scores = np.array([[3.0, 1.0, 2.5], [2.0, 2.0, 0.0]])
    head = ir.Head("h", "a", "b", ir.Score(), ir.Weighting("argmax"), "v")
    assert leads(head, scores, np.array([[1.0, 0, 0], [1.0, 0, 0]])).tolist() == [0.5, 0.0]
    top = ir.Head("h", "a", "b", ir.Score(), ir.Weighting("top", count=2), "v")
    assert leads(top, scores, np.array([[0.5, 0, 0.5], [0.5, 0.5, 0]])).tolist() == [1.5, 2.0]


# ---- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("what", "endings"), [("weights", "svg"), ("tokens", "svg pdf"), ("attention", "svg png")])
def test_text_stays_text_and_bytes_stay_the_same(what: str, endings: str, tmp_path: Path) -> None:
    subject = subject_of("lloyd", POINTS, dims={"k": 2}, layers=1)
    for ending in endings.split():
        first, second = tmp_path / f"1.{ending}", tmp_path / f"2.{ending}"
        save(picture(subject, what), first)
        save(picture(subject, what), second)
        assert first.read_bytes() == second.read_bytes()
    svg = (tmp_path / "1.svg").read_text(encoding="utf-8")
    texts = [node.text for node in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]
    assert len(texts) > 3
    assert "<dc:date>" not in svg
    if "pdf" in endings:
        pdf = (tmp_path / "1.pdf").read_bytes()
        assert b"CreationDate" not in pdf
        assert b"CIDFontType2" in pdf or b"TrueType" in pdf  # letters, not outlines


def test_names_with_signs_of_typesetting_are_names(tmp_path: Path) -> None:
    frame = type("Frame", (), {"columns": ("$a_1$", "<b>"), "__array__": lambda self, dtype=None, copy=None: POINTS})
    save(weftc.plot("lloyd", "tokens", frame(), **FEW), tmp_path / "t.svg")
    texts = ElementTree.parse(tmp_path / "t.svg").iter("{http://www.w3.org/2000/svg}text")
    assert {"$a_1$", "<b>"} <= {node.text for node in texts}


def test_files_of_other_kinds_and_places_are_refused(tmp_path: Path) -> None:
    figure = weftc.plot("lloyd", "stream", dims={"d": 2, "k": 2})
    with pytest.raises(weftc.InputError, match=r"ends in \.png, \.svg or \.pdf"):
        save(figure, tmp_path / "a.jpg")
    with pytest.raises(weftc.InputError, match="cannot be written"):
        save(figure, tmp_path / "missing" / "a.png")
    assert not list(tmp_path.iterdir())


def test_python_writes_a_picture_where_it_is_told(tmp_path: Path) -> None:
    figure = weftc.plot("lloyd", data=POINTS, path=tmp_path / "a.svg", **FEW)  # without a word: the tokens
    save(weftc.plot("lloyd", "tokens", POINTS, **FEW), tmp_path / "b.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert figure.axes
    with pytest.raises(weftc.InputError, match=r"a\.svg exists; add force=True"):
        weftc.plot("lloyd", path=tmp_path / "a.svg")
    with pytest.raises(weftc.InputError, match=r"ends in \.png, \.svg or \.pdf"):
        weftc.plot("lloyd", path=tmp_path / "a.jpg")


def test_a_width_is_the_width() -> None:
    for what in PICTURES:
        assert weftc.plot("lloyd", what, POINTS, width=4.0, **FEW).get_size_inches()[0] == pytest.approx(4.0)


# ---- from Python and from the command line ---------------------------------------------------------------------------


def test_mistakes_are_told_in_python() -> None:
    with pytest.raises(weftc.InputError, match=r"there is no picture wieghts; did you mean 'weights'"):
        weftc.plot("lloyd", "wieghts")
    with pytest.raises(weftc.InputError, match=r"lloyd needs k, d; give dims="):
        weftc.plot("lloyd", "weights")
    with pytest.raises(weftc.InputError, match="shows a run; give data"):
        weftc.plot("lloyd", "tokens", dims={"d": 2, "k": 2})
    with pytest.raises(weftc.InputError, match="has no input zz; its inputs are x, c"):
        weftc.plot("lloyd", "tokens", {"zz": POINTS}, dims={"k": 2})
    with pytest.raises(weftc.InputError, match="there are no data for z"):
        weftc.plot("nearest_neighbor", "tokens", {"x": POINTS, "t": POINTS})
    with pytest.raises(weftc.InputError, match="a model already"):
        weftc.plot(weftc.compile("lloyd", {"d": 2, "k": 2}), "weights", dims={"k": 3})


def test_without_matplotlib_a_message_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(weftc.InputError, match=r"pip install weftc\[plot\]"):
        weftc.plot("lloyd", "graph")
    assert main(["plot", "lloyd", "--what", "graph"]) == 1
    assert "pip install weftc[plot]" in capsys.readouterr().err


def test_the_command_writes_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "points.csv"
    data.write_text("east,north\n" + "".join(f"{x},{y}\n" for x, y in POINTS))
    out = tmp_path / "tokens.svg"
    command = [
        "plot",
        "lloyd",
        "--what",
        "tokens",
        "--data",
        str(data),
        "-D",
        "k=2",
        "-o",
        str(out),
        "--width",
        "column",
    ]
    assert main(command) == 0
    assert "wrote" in capsys.readouterr().out
    assert "east" in out.read_text(encoding="utf-8")
    model = tmp_path / "m.safetensors"
    weftc.compile("lloyd", {"d": 2, "k": 2}).save(model)
    assert main(["plot", str(model), "--what", "weights", "-o", str(tmp_path / "w.png"), "--json"]) == 0
    assert '"inches": [6.9,' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lloyd", "--what", "tokens"], "shows a run; give --data FILE"),
        (["sort", "--what", "tokens"], "its tokens hold no vectors; it has graph, stream, weights, attention"),
        (["sort", "--what", "objective"], "it states no objective"),
        (["lloyd", "--what", "weights"], "is not known; give -D"),
        (["lloyd", "--what", "nothing"], "there is no such picture; there are graph"),
        (["lloyd", "--what", "graph", "-o", "a.jpg"], "ends in .png, .svg or .pdf"),
        (["lloyd", "--what", "graph", "-o", "missing/a.png"], "there is no folder missing"),
        (["lloyd", "--what", "graph", "--width", "0"], "column, page, or a number of inches"),
        (["lloyd", "--what", "stream", "--layers", "2", "--limit", "3"], "--limit is for runs until stable"),
    ],
)
def test_mistakes_on_the_command_line_are_told(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["plot", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
