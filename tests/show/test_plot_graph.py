"""The drawing of the algorithm graph: what is where, in every spec; and the page about pictures."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

import weftc
from playing import Play
from weftc.cli import main
from weftc.files.locate import names
from weftc.graph.build import build_graph
from weftc.show.figures.graph_layout import LONGEST, Box, GraphLayout, layout
from weftc.show.figures.graph_svg import svg

ROOT = Path(__file__).parents[2]
NAMES = names("")
SPACE = "{http://www.w3.org/2000/svg}"


def placed(name: str) -> GraphLayout:
    return layout(build_graph(weftc.check(name)))


def overlap(one: Box, two: Box) -> bool:
    apart = one.x + one.width <= two.x or two.x + two.width <= one.x
    return not apart and not (one.y + one.height <= two.y or two.y + two.height <= one.y)


@pytest.mark.parametrize("name", NAMES)
def test_every_equation_has_its_box_in_its_band(name: str) -> None:
    checked, made = weftc.check(name), placed(name)
    said = {" ".join(" ".join(box.lines).split()): box for box in made.boxes}
    for number, step in enumerate(checked.spec.steps, start=1):
        for equation in step.equations:
            assert said[checked.spec.source.said(equation.span)].column == number
    for one in (*checked.spec.inputs, *checked.spec.state):
        assert said[checked.spec.source.said(one.span)].column == 0
    for output in checked.spec.outputs:
        assert said[checked.spec.source.said(output.span)].column == len(checked.spec.steps) + 1


@pytest.mark.parametrize("name", NAMES)
def test_nothing_overlaps_and_nothing_is_outside(name: str) -> None:
    made = placed(name)
    for at, box in enumerate(made.boxes):
        assert not any(overlap(box, other) for other in made.boxes[at + 1 :])
        band = made.bands[box.column]
        assert band.left <= box.x
        assert box.x + box.width <= band.right
        assert box.y >= 0
        assert box.y + box.height <= made.bottom
        assert all(len(line) <= LONGEST + 2 for line in box.lines)
    for curve in made.curves:
        assert all(0 <= x <= made.width and 0 <= y <= made.height for x, y in curve.points)


def sampled(points: tuple[tuple[float, float], ...], back: bool) -> Iterator[tuple[float, float]]:
    """Points along a line as it is drawn, its ends left out."""
    if back:
        for (x, y), (to_x, to_y) in pairwise(points):
            yield from ((x + (to_x - x) * at / 20, y + (to_y - y) * at / 20) for at in range(1, 20))
        return
    (x, y), (to_x, to_y) = points
    bend = (x + to_x) / 2
    for at in (step / 40 for step in range(1, 40)):
        weights = ((1 - at) ** 3, 3 * (1 - at) ** 2 * at, 3 * (1 - at) * at**2, at**3)
        level = (weights[0] + weights[1]) * y + (weights[2] + weights[3]) * to_y
        yield weights[0] * x + (weights[1] + weights[2]) * bend + weights[3] * to_x, level


@pytest.mark.parametrize("name", NAMES)
def test_no_line_runs_through_a_box(name: str) -> None:
    made = placed(name)
    for curve in made.curves:
        for x, y in sampled(curve.points, curve.back):
            for box in made.boxes:
                inside = box.x < x < box.x + box.width and box.y < y < box.y + box.height
                assert not inside, f"{box.lines[0]} at {x:.0f}, {y:.0f}"


def test_lines_lead_from_what_is_read_to_who_reads_it() -> None:
    made = placed("lloyd")
    boxes = {box.name: box for box in made.boxes}
    assign, moved, labels = boxes["y after step 1"], boxes["c after step 2"], boxes["output labels"]
    ends = [(curve.points[0], curve.points[-1]) for curve in made.curves]

    def leaves(box: Box) -> tuple[float, float]:
        return (box.x + box.width, box.y + box.height / 2)

    def arrives(end: tuple[float, float], box: Box) -> bool:
        return end[0] == box.x and box.y < end[1] < box.y + box.height

    assert any(start == leaves(boxes["x"]) and arrives(end, assign) for start, end in ends)
    assert any(start == leaves(boxes["c"]) and arrives(end, assign) for start, end in ends)
    assert any(start == leaves(assign) and arrives(end, moved) for start, end in ends)
    assert sum(arrives(end, labels) for _, end in ends) == 1
    assert sum(arrives(end, moved) for _, end in ends) == 3  # x and c on their lanes, y from its box
    (back,) = [curve for curve in made.curves if curve.back]
    assert back.label == "next layer: c"
    assert back.points[-1] == (boxes["c"].x, boxes["c"].y + boxes["c"].height / 2)


def test_what_a_box_says_is_escaped() -> None:
    text = "algorithm a\ntokens i in s\ninputs x[i] : R^d\nlayer\n x[i] = <x[i], x[i]> * x[i]\noutputs x\n"
    drawn = svg(layout(build_graph(weftc.check(text))))
    texts = [node.text for node in ElementTree.fromstring(drawn).iter(f"{SPACE}text")]
    assert "x[i] = <x[i], x[i]> * x[i]" in texts
    assert {node.tag for node in ElementTree.fromstring(drawn).iter()} <= {
        SPACE + tag for tag in ("svg", "title", "defs", "marker", "path", "rect", "text")
    }


def test_definitions_are_listed_below() -> None:
    assert placed("sinkhorn_log").notes == ["let C[i,j] = |x[i] - y[j]|^2"]


# ---- the command -----------------------------------------------------------------------------------------------------


def test_inspect_writes_the_drawing_and_other_stages_as_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "graph.svg"
    assert main(["inspect", "lloyd", "--stage", "graph", "-o", str(out)]) == 0
    assert capsys.readouterr().out == f"wrote {out}\n"
    assert out.read_text(encoding="utf-8") == svg(placed("lloyd"))
    text = tmp_path / "graph.txt"
    assert main(["inspect", "lloyd", "--stage", "graph", "-o", str(text)]) == 0
    capsys.readouterr()
    assert main(["inspect", "lloyd", "--stage", "graph"]) == 0
    assert text.read_text(encoding="utf-8") == capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--stage", "syntax", "-o", "a.svg"], "only the graph can be drawn here; weftc plot draws"),
        (["-o", "a.png"], "weftc plot --what graph writes .png and .pdf"),
        (["-o", "missing/a.svg"], "there is no folder missing"),
        (["-o", "."], "is a folder"),
    ],
)
def test_files_that_cannot_be_are_refused(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["inspect", "lloyd", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


# ---- the page --------------------------------------------------------------------------------------------------------


def test_the_page_plays_as_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    play = Play((ROOT / "docs" / "pictures.md").read_text(encoding="utf-8"))
    play.run()
    assert not play.faults, "\n\n".join(play.faults)


def test_the_drawing_on_the_page_is_up_to_date() -> None:
    shown = (ROOT / "docs" / "pictures" / "graph.svg").read_text(encoding="utf-8")
    assert shown == svg(placed("lloyd")), "run: make pictures"
