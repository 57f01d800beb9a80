"""The algorithm graph -> places: equations as boxes in bands, one per step, and curves for what each reads.

Inputs stand on the left, outputs on the right. Expressions are drawn together with the equation they belong to, so a
box holds what the user wrote. A field that is read further on passes through the bands between on a lane of its own.
Lanes and boxes are ordered by where their neighbours are, to keep curves from crossing. Formulas are set in a
monospaced face, so their width is known without a font.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from weftc.core.source import printable
from weftc.graph.graph import Graph
from weftc.graph.node import VERSIONS, Node

GLYPH, LINE = 0.602, 1.32  # width of a letter and height of a line, in units of the type size
SIZE = 8.0  # type size, in points
LONGEST = 40  # letters of a line of a box
PAD, GAP, LANE, AIR, TITLE, EDGE = 6.0, 12.0, 5.0, 40.0, 16.0, 10.0
MARGIN = 8.0  # inside a band, beside its boxes
SWEEPS = 8  # rounds of ordering


@dataclass(slots=True)
class Box:
    """A box, or (without lines) a lane on which a value passes through a band."""

    name: str
    column: int
    kind: str  # input, state, random, parameter, equation, output, objective, lane
    lines: tuple[str, ...] = ()
    x: float = 0.0
    y: float = 0.0
    across: float = 0.0  # how long a lane is

    @property
    def width(self) -> float:
        return max(map(len, self.lines)) * GLYPH * SIZE + 2 * PAD if self.lines else self.across

    @property
    def height(self) -> float:
        return len(self.lines) * LINE * SIZE + 2 * PAD - 3 if self.lines else 0.0


@dataclass(frozen=True, slots=True)
class Curve:
    """A curve through points: each pair of neighbours is one smooth piece. `back`: into the next layer."""

    points: tuple[tuple[float, float], ...]
    label: str = ""
    back: bool = False


@dataclass(frozen=True, slots=True)
class Band:
    """A step, with its boxes between `left` and `right`."""

    title: str
    left: float
    right: float


@dataclass(slots=True)
class GraphLayout:
    """Everything with its place, in points from the top left corner."""

    name: str
    boxes: list[Box] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)
    bands: list[Band] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    width: float = 0.0
    bottom: float = 0.0  # of the bands
    height: float = 0.0


def layout(algorithm: Graph) -> GraphLayout:
    """Places for everything."""
    graph = _Graph(algorithm)
    columns = _ordered(graph)
    made = GraphLayout(printable(algorithm.checked.spec.name))
    _across(made, columns, graph.titles, LANE * len(graph.loop))
    _down(columns)
    made.boxes = [box for column in columns for box in column if box.lines]
    below = max(box.y + box.height for column in columns for box in column)
    made.curves = list(_curves(graph))
    made.curves += _returns(graph, made.bands, below)
    made.bottom = below + GAP + (LANE * 2 * len(graph.loop) + 4 if graph.loop else 0)
    made.notes = _notes(algorithm)
    made.height = made.bottom + EDGE + sum(LINE * SIZE for _ in made.notes) + (4 if made.notes else 0)
    return made


class _Graph:
    """Boxes, lanes and who reads whom, before anything has a place."""

    def __init__(self, graph: Graph) -> None:
        self.steps = len(graph.steps)
        self.titles = ["given", *(f"step {n + 1}" for n in range(self.steps)), "answers"]
        self.boxes: dict[str, Box] = {}
        self.reads: dict[str, list[str]] = {}  # box or lane -> where its lines come from, in the band before it
        shown = {node: kind for node in graph.nodes if (kind := _kind(node))}
        names = {node: _name(node) for node in shown}
        sources = {node: _sources(node, shown) for node in shown}
        read = {source for found in sources.values() for source in found}
        drawn = [node for node, kind in shown.items() if kind != "parameter" or node in read]
        for node in sorted(drawn, key=lambda n: n.span.start):
            said = graph.checked.spec.source.at(node.span)
            lines = _lines(f"objective {said}" if shown[node] == "objective" else said)
            self.boxes[names[node]] = Box(names[node], self._column(node), shown[node], lines)
        for node in drawn:
            column = self._column(node)
            earlier = [source for source in sources[node] if self._column(source) < column]
            self.reads[names[node]] = [self._reach(names[source], column) for source in earlier]
        first = {node.label: node for node in graph.declared}
        self.loop = {names[last]: names[first[name]] for last, name in graph.loop.items() if name in first}

    def _column(self, node: Node) -> int:
        return self.steps + 1 if node.op == "output" else node.step

    def _reach(self, source: str, column: int) -> str:
        """What stands for a box in the band before a column: itself, or the lane that it passes on."""
        at = source
        for between in range(self.boxes[source].column + 1, column):
            lane = f"{source} in {between}"
            if lane not in self.boxes:
                self.boxes[lane] = Box(source, between, "lane")
                self.reads[lane] = [at]
            at = lane
        return at


def _name(node: Node) -> str:
    """What a box is known by."""
    if node.op == "output":
        return f"output {node.label}" if node.label else "objective"
    return f"{node.label} after step {node.step}" if node.step else node.label


def _sources(node: Node, shown: Mapping[Node, str]) -> list[Node]:
    """The boxes that a box reads; expressions are looked through."""
    out: dict[Node, None] = {}
    stack = list(reversed(node.operands))
    while stack:
        top = stack.pop()
        if top in shown:
            out[top] = None
        else:
            stack.extend(reversed(top.operands))
    return sorted(out, key=lambda n: n.span.start)


def _kind(node: Node) -> str:
    """What a node of the graph is drawn as; nothing for expressions."""
    if node.op == "output":
        return "output" if node.label else "objective"
    return {"store": "equation"}.get(node.op, node.op if node.op in (*VERSIONS, "parameter") else "")


def _lines(text: str) -> tuple[str, ...]:
    """What the user wrote, in lines that fit a box; broken before operators and clauses."""
    rest = printable(" ".join(re.sub(r"#[^\n]*", " ", text).split()))
    lines: list[str] = []
    while len(rest) > LONGEST:
        at = _break(rest)
        lines.append(rest[:at].rstrip())
        rest = "  " + rest[at:].lstrip()
    return (*lines, rest)


def _break(text: str) -> int:
    """Where to end a line: before an operator or clause, the fewer brackets are open there the better."""
    depth, best = 0, (99, -LONGEST)
    for at, letter in enumerate(text[: LONGEST + 1]):
        depth += (letter in "([") - (letter in ")]")
        if letter == " " and at > LONGEST // 3:
            operator = re.match(r" (?:[-+*/=:] |where|else|weighted|by |noise|init)", text[at:])
            best = min(best, (depth + (0 if operator else 2), -at))
    return -best[1]


# ---- order -----------------------------------------------------------------------------------------------------------


def _ordered(graph: _Graph) -> list[list[Box]]:
    """The boxes and lanes of every band, from top to bottom."""
    names: list[list[str]] = [[] for _ in graph.titles]
    for name, box in graph.boxes.items():
        names[box.column].append(name)
    written = {name: at for at, name in enumerate(graph.boxes)}
    for column in names:
        column.sort(key=lambda name: (graph.boxes[name].kind == "parameter", written[name]))
    readers: dict[str, list[str]] = {}
    for name, sources in graph.reads.items():
        for source in sources:
            readers.setdefault(source, []).append(name)
    for sweep in range(SWEEPS):
        forward = sweep % 2 == 0
        near = graph.reads if forward else readers
        for column in names[1:] if forward else reversed(names[:-1]):
            at = {name: place / max(1, len(c) - 1) for c in names for place, name in enumerate(c)}
            column.sort(key=lambda name: _middle([at[other] for other in near.get(name, ())], at[name]))
    return [[graph.boxes[name] for name in column] for column in names]


def _middle(places: list[float], own: float) -> float:
    return sum(places) / len(places) if places else own


# ---- places ----------------------------------------------------------------------------------------------------------


def _across(made: GraphLayout, columns: list[list[Box]], titles: list[str], room: float) -> None:
    x = EDGE + room
    for column, title in zip(columns, titles, strict=True):
        wide = max([box.width for box in column] + [len(title) * GLYPH * SIZE + 8])
        slack = {titles[0]: 1.0, titles[-1]: 0.0}.get(title, 0.5)  # inputs and outputs stand close to the steps
        for box in column:
            box.across = wide + 2 * MARGIN
            box.x = x + MARGIN + (wide - box.width) * slack if box.lines else x
        made.bands.append(Band(title, x, x + wide + 2 * MARGIN))
        x += wide + 2 * MARGIN + AIR
    made.width = x - AIR + EDGE


def _down(columns: list[list[Box]]) -> None:
    """Boxes below each other, each band centred on the tallest."""
    heights = [sum(_tall(box) for box in column) + GAP * max(0, len(column) - 1) for column in columns]
    for column, height in zip(columns, heights, strict=True):
        y = EDGE + TITLE + GAP / 2 + (max(heights) - height) / 2
        for box in column:
            box.y = y if box.lines else y + LANE / 2
            y += _tall(box) + GAP


def _tall(box: Box) -> float:
    return box.height if box.lines else LANE


def _curves(graph: _Graph) -> Iterator[Curve]:
    """Every line from a box or lane to one in the next band; lines into a box arrive spread along its side."""
    for lane in (box for box in graph.boxes.values() if not box.lines):
        yield Curve(((lane.x, lane.y), (lane.x + lane.width, lane.y)), label="lane")
    for name, sources in graph.reads.items():
        into = graph.boxes[name]
        ordered = sorted(sources, key=lambda source: graph.boxes[source].y)
        for at, source in enumerate(ordered, start=1):
            start = graph.boxes[source]
            level = into.y + into.height * at / (len(ordered) + 1)
            way = ((start.x + start.width, start.y + start.height / 2), (into.x, level))
            yield Curve(way, label="" if into.lines else "lane")


def _returns(graph: _Graph, bands: list[Band], below: float) -> Iterator[Curve]:
    """From the last version of a field, under everything, to the first: the next layer starts there."""
    loop = sorted(graph.loop.items(), key=lambda pair: (graph.boxes[pair[0]].column, -graph.boxes[pair[1]].y))
    for depth, (last, first) in enumerate(loop, start=1):
        start, end = graph.boxes[last], graph.boxes[first]
        level = below + GAP / 2 + LANE * 2 * depth
        leaving, arriving = start.y + start.height * 0.85, end.y + end.height / 2
        right, left = bands[start.column].right + LANE * depth, bands[0].left + LANE - LANE * depth
        away = ((start.x + start.width, leaving), (right, leaving), (right, level))
        home = ((left, level), (left, arriving), (end.x, arriving))
        yield Curve(away + home, label=f"next layer: {first}", back=True)


def _notes(algorithm: Graph) -> list[str]:
    """Definitions, which boxes mention by name."""
    source = algorithm.checked.spec.source
    return [f"let {source.said(let.span)}" for let in algorithm.checked.spec.lets]
