"""The matrices of a checkpoint as block pictures with slot names: what `weftc inspect --stage weights` prints, drawn.

Blocks are not to scale. A block is labelled by what it is (`I`, `-2 I`, a number, `e2`; see `weftc.show.block_text`);
zero blocks are left white, fills tell the sign, and an identity shows its diagonal. In a matrix of many slots, slots
that it does not read are drawn together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log2

import numpy as np

from weftc.core.source import printable
from weftc.emit.matrices import Array
from weftc.show.block_text import hidden, picture_slots, projection, row_groups, shortened, symbol
from weftc.show.figures.canvas import Canvas, PaperFigure, text_width
from weftc.show.figures.choosing import wanted
from weftc.show.figures.pictures import PictureOptions
from weftc.show.figures.style import FAINT, HAIR, INK, NEGATIVE, PAGE, POINT, POSITIVE, SIZE, SMALL
from weftc.show.figures.subject import Subject
from weftc.show.weights_text import weighting_text
from weftc_runtime.format import program as ir

DIAGONAL = "#5b8db8"
MARGIN, GAP, LEAST = 8.0, 16.0, 12.0  # points: around the sheet, between matrices, smallest side of a block
UPRIGHT = 72.0  # width from which a name makes all names of a matrix stand upright
MANY = 4  # columns of a matrix up to which all are drawn
ELIDED = "⋯"
SPELLED = 100  # entries of a block without a name that are still shown one by one


@dataclass(frozen=True, slots=True)
class BlockPicture:
    """One matrix to be drawn: its title, and its rows and columns with their names."""

    title: str
    values: Array
    rows: tuple[tuple[str, slice], ...]
    columns: tuple[tuple[str, slice], ...]


def draw(subject: Subject, look: PictureOptions) -> PaperFigure:
    """Every head and feed-forward of the layer with all its matrices; or the heads asked for, wherever they are."""
    drawing = _Drawing(subject, Canvas((look.width or PAGE) * POINT))
    drawing.everything(look.heads)
    drawing.footer()
    return drawing.canvas.figure()


class _Drawing:
    def __init__(self, subject: Subject, canvas: Canvas) -> None:
        self.canvas, self.y, self.elided = canvas, MARGIN, False
        self.program, self.tensors = subject.checkpoint.program, subject.checkpoint.tensors
        self.slots = {stream.name: picture_slots(self.program, stream.name) for stream in self.program.streams}

    def everything(self, heads: Sequence[str]) -> None:
        names = [h.name for _, _, sub in self._sublayers() if isinstance(sub, ir.Attend) for h in sub.heads]
        chosen = set(wanted(list(dict.fromkeys(names)), heads))
        last = ""
        for place, step, sublayer in self._sublayers():
            if not heads and not place.startswith("step"):
                continue
            if isinstance(sublayer, ir.FFN):
                if heads:
                    continue
                last = self._place(place, step, last)
                self._feed_forward(sublayer)
                continue
            for head in sublayer.heads:
                if head.name in chosen:
                    last = self._place(place, step, last)
                    self._head(head, sublayer)

    def footer(self) -> None:
        """What needs a word of explanation."""
        if self.elided:
            words = f"{ELIDED} and a number: so many slots in a row that the matrix does not read"
            self.canvas.text(MARGIN, self.y + 3, words, fontsize=SMALL, color=FAINT)
            self.y += 9
        self.canvas.reach(self.y + MARGIN / 2)

    def _sublayers(self) -> Iterator[tuple[str, ir.ProgramStep, ir.Sublayer]]:
        """Sub-layers with their places; of unrolled layers only the first, whose form the others share."""
        each = len(self.program.steps_of(0))
        for place, step in self.program.places():
            part, _, number = place.partition(".")
            if part == "layer" and int(number) >= each:
                continue
            for sublayer in step.sublayers:
                yield f"{part} {int(number) + 1}" if part != "layer" else f"step {int(number) + 1}", step, sublayer

    # ------------------------------------------------------------------ headings
    def _place(self, place: str, step: ir.ProgramStep, last: str) -> str:
        if place != last:
            self._title(place.replace("readout", "read-out"), list(map(printable, step.equations)), last != "")
        return place

    def _title(self, left: str, equations: Sequence[str], ruled: bool) -> None:
        if ruled:
            self.y += 5
            self.canvas.path([(MARGIN, self.y), (self.canvas.width - MARGIN, self.y)], edgecolor=HAIR, linewidth=0.5)
            self.y += 7
        y = self.y + 5
        self.canvas.text(MARGIN, y, left, fontweight="bold")
        start = MARGIN + text_width(left) * 1.12 + 10
        room = self.canvas.width - MARGIN - start
        for line in (line for equation in equations for line in _wrapped(equation, room, SIZE)):
            self.canvas.text(start, y, line, mono=True)
            y += 10
        self.y = max(y - 10, self.y + 5) + 9

    # ------------------------------------------------------------------ sub-layers
    def _head(self, head: ir.Head, sublayer: ir.Attend | None) -> None:
        # A query token attends to keys; the arrow is the way of the values.
        words = (
            f"head {head.name}:  {head.query} ← {head.keys},  {weighting_text(head.weighting)} of {self._score(head)}"
        )
        self._caption(words, self._carries(sublayer) if sublayer is not None else "")
        self._flow(list(self._matrices(head)))

    def _feed_forward(self, ffn: ir.FFN) -> None:
        into = ", ".join(self._short(ffn.stream, slot) for slot in ffn.writes)
        self._caption(f"feed-forward of {ffn.stream}:  {into} ← W {ffn.function}(A z{', B z' if ffn.b else ''})", "")
        slots = self.slots[ffn.stream]
        names = [("A", ffn.a)] + ([("B", ffn.b)] if ffn.b is not None else [])
        made = [self._reading(title, name, ffn.stream) for title, name in names]
        units = tuple((one.name, one.columns) for one in hidden(self.tensors[ffn.a], slots))
        out = BlockPicture("W", self.tensors[ffn.out], tuple((s.name, s.columns) for s in slots), units)
        self._flow([*made, _without_zero_rows(out)])

    def _matrices(self, head: ir.Head) -> Iterator[BlockPicture]:
        many = len(head.score.parts) > 1
        for number, part in enumerate(head.score.parts, start=1):
            yield from self._part(part, head, f"{number}" if many else "")
        for number, mask in enumerate((m for m in head.masks if m.op != "other"), start=1):
            suffix = f"mask {number}" if len(head.masks) > 1 else "mask"
            for part in mask.score.parts:
                yield from self._part(part, head, suffix)
        if head.weighting.kind in ("lse", "max"):
            values = self.tensors[head.value].reshape(-1, 1)
            rows = tuple((s.name, s.columns) for s in self.slots[head.query])
            yield _without_zero_rows(BlockPicture("V", values, rows, (("number", slice(0, 1)),)))
        else:
            yield self._writing("V", head.value, head.query, head.keys)
        if head.self_key is not None:
            yield self._writing("V self", head.self_key.value, head.query, head.query)
            if head.self_key.row is not None:
                yield self._reading("score self", head.self_key.row, head.query)

    def _part(self, part: ir.Part, head: ir.Head, suffix: str) -> Iterator[BlockPicture]:
        yield self._reading(f"Q {suffix}".strip(), part.q, head.query)
        yield self._reading(f"K {suffix}".strip(), part.k, head.keys)
        if part.scale is not None:
            side, name = part.scale
            yield self._reading(f"times, of the {side}", name, head.query if side == "query" else head.keys)

    def _reading(self, title: str, name: str, stream: str) -> BlockPicture:
        """A matrix that reads tokens; its rows are queries, keys or hidden units."""
        values = np.atleast_2d(self.tensors[name])
        slots = self.slots[stream]
        return BlockPicture(title, values, tuple(row_groups(values, slots)), tuple((s.name, s.columns) for s in slots))

    def _writing(self, title: str, name: str, into: str, stream: str) -> BlockPicture:
        """A matrix from tokens to slots of tokens."""
        values = np.atleast_2d(self.tensors[name])
        rows = tuple((s.name, s.columns) for s in self.slots[into])
        columns = tuple((s.name, s.columns) for s in self.slots[stream])
        return _without_zero_rows(BlockPicture(title, values, rows, columns))

    # ------------------------------------------------------------------ words
    def _score(self, head: ir.Head) -> str:
        parts = []
        for number, part in enumerate(head.score.parts, start=1):
            mark = str(number) if len(head.score.parts) > 1 else ""
            if part.kind == "dot":
                parts.append(f"⟨Q{mark}z, K{mark}z′⟩")
            else:
                factor = 1.0 if part.coefficient is None else float(self.tensors[part.coefficient])
                parts.append(
                    f"{'−' if factor == -1 else '' if factor == 1 else f'{factor:.4g} '}|Q{mark}z − K{mark}z′|²"
                )
        text = " + ".join(parts).replace("+ -", "− ").replace("-", "−") or "0"
        for mask in head.masks:
            text += ",  other tokens only" if mask.op == "other" else f",  where ⟨Qz, Kz′⟩ of the mask {mask.op} 0"
        return text

    def _carries(self, sublayer: ir.Attend) -> str:
        kept = []
        for stream, name in sublayer.carry.items():
            formula = projection(self.tensors[name], self.slots[stream])
            if formula not in ("", "I"):
                kept.append(f"carry of {stream}: {formula}".replace(" - ", " − "))
        return ";  ".join(kept)

    def _short(self, stream: str, slot: str) -> str:
        slots = self.program.stream(stream).slots
        return shortened(slots)[[s.name for s in slots].index(slot)].name

    def _caption(self, words: str, aside: str) -> None:
        y = self.y + 4
        for line in _wrapped(words, self.canvas.width - 2 * MARGIN, SIZE, mono=False):
            self.canvas.text(MARGIN, y, line)
            y += 10
        if aside:
            room = self.canvas.width - 2 * MARGIN
            for line in _wrapped(aside, room, SMALL, mono=False):
                self.canvas.text(MARGIN, y - 0.5, line, fontsize=SMALL, color=FAINT)
                y += 9
        self.y = y + 1

    # ------------------------------------------------------------------ matrices
    def _flow(self, matrices: Sequence[BlockPicture]) -> None:
        """Matrices side by side, in as many lines as they need."""
        lines: list[list[_Panel]] = []
        room = 0.0
        short = [_elided(matrix) for matrix in matrices]
        self.elided |= any(one is not two for one, two in zip(short, matrices, strict=True))
        for panel in map(_Panel, short):
            if not lines or room + panel.width > self.canvas.width - MARGIN:
                lines.append([])
                room = MARGIN
            lines[-1].append(panel)
            room += panel.width + GAP
        for line in lines:
            x, header = MARGIN, max(panel.header for panel in line)
            bottoms = []
            for panel in line:
                bottoms.append(panel.draw(self.canvas, x, self.y, header))
                x += panel.width + GAP
            self.y = max(bottoms) + 9


class _Panel:
    """One matrix with its measures."""

    def __init__(self, matrix: BlockPicture) -> None:
        self.matrix = matrix
        self.cells = [[matrix.values[rows, columns] for _, columns in matrix.columns] for _, rows in matrix.rows]
        self.names = [[_symbol(block) for block in line] for line in self.cells]
        self.left = max((text_width(name, SMALL) for name, _ in matrix.rows), default=0.0) + 3
        self.upright = any(text_width(name, SMALL) > UPRIGHT for name, _ in matrix.columns)
        longest = max((text_width(name, SMALL) for name, _ in matrix.columns), default=0.0)
        self.header = longest + 3 if self.upright else 9.0
        self.widths = [self._side(n, across=True) for n in range(len(matrix.columns))]
        self.heights = [self._side(n, across=False) for n in range(len(matrix.rows))]
        self.title = text_width(matrix.title) * 1.1 + 4
        self.width = max(self.left + sum(self.widths), self.title)

    def _side(self, number: int, across: bool) -> float:
        """How long a side of a row or column of blocks is: enough for its labels, more for wide slots."""
        name, span = (self.matrix.columns if across else self.matrix.rows)[number]
        blocks = [line[number] for line in self.cells] if across else self.cells[number]
        entries = 1 if name.startswith(ELIDED) else span.stop - span.start
        least = LEAST + 2.5 * log2(max(1, entries))
        for block in blocks:
            if block.any() and not _symbol(block):
                least = max(least, 6.5 * block.shape[1 if across else 0])
        if across:
            said = [line[number] for line in self.names]
            least = max([least] + [text_width(word, SMALL) + 5 for word in said])
            least = least if self.upright else max(least, text_width(name, SMALL) + 4)
        return least

    def draw(self, canvas: Canvas, x: float, y: float, header: float) -> float:
        """Draws it with its top left corner here and its blocks below a header; the bottom it reaches."""
        canvas.text(x + self.left, y + 4, self.matrix.title, fontweight="bold", color=INK)
        top, left = y + 9 + header, x + self.left
        at = left
        for (name, _), width in zip(self.matrix.columns, self.widths, strict=True):
            if self.upright:
                look = {"rotation": 90, "ha": "center", "va": "bottom"}
                canvas.text(at + width / 2, top - 2, name, fontsize=SMALL, color=FAINT, **look)
            else:
                canvas.text(at + width / 2, top - 5, name, fontsize=SMALL, color=FAINT, ha="center")
            at += width
        down = top
        for number, ((name, _), height) in enumerate(zip(self.matrix.rows, self.heights, strict=True)):
            canvas.text(left - 3, down + height / 2, name, fontsize=SMALL, color=FAINT, ha="right")
            at = left
            for column, width in enumerate(self.widths):
                _block(canvas, self.cells[number][column], self.names[number][column], at, down, width, height)
                at += width
            down += height
        canvas.box(left, top, sum(self.widths), sum(self.heights), edgecolor=FAINT, linewidth=0.7)
        return down


def _symbol(block: Array) -> str:
    """What a block is in a word; nothing where its entries are shown instead."""
    if not block.any():
        return ""
    word = symbol(block).replace("-", "−")
    spelled = word == f"{block.shape[0]}x{block.shape[1]}"
    if not spelled:
        return word
    return "" if block.size <= SPELLED else f"{block.shape[0]} × {block.shape[1]}"


def _block(canvas: Canvas, block: Array, word: str, x: float, y: float, width: float, height: float) -> None:
    if not block.any():
        canvas.box(x, y, width, height, edgecolor="#e4e4e4", linewidth=0.4)
        return
    if not word:
        _entries(canvas, block, x, y, width, height)
        return
    fill = NEGATIVE if block[block != 0].max() < 0 else POSITIVE
    canvas.box(x, y, width, height, facecolor=fill, edgecolor=HAIR, linewidth=0.4)
    if word.endswith("I") and block.shape[0] > 1:
        canvas.path([(x, y), (x + width, y + height)], edgecolor=DIAGONAL, linewidth=1.0)
        ground = {"facecolor": fill, "edgecolor": "none", "pad": 0.6}
        canvas.text(x + width / 2, y + height / 2, word, fontsize=SMALL, ha="center", bbox=ground)
        return
    canvas.text(x + width / 2, y + height / 2, word, fontsize=SMALL, ha="center")


def _entries(canvas: Canvas, block: Array, x: float, y: float, width: float, height: float) -> None:
    """The entries of a block without a name, as shades."""
    rows, columns = block.shape
    most = float(np.abs(block).max())
    for row in range(rows):
        for column in range(columns):
            value = float(block[row, column])
            fill = _shade(POSITIVE if value > 0 else NEGATIVE, abs(value) / most)
            place = (x + column * width / columns, y + row * height / rows)
            canvas.box(*place, width / columns, height / rows, facecolor=fill, edgecolor="#e4e4e4", linewidth=0.3)
    canvas.box(x, y, width, height, edgecolor=HAIR, linewidth=0.5)


def _shade(colour: str, strength: float) -> str:
    """A colour, the paler the weaker; full strength is darker than a plain fill so that sizes can be told apart."""
    parts = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
    return "#" + "".join(f"{round(255 - strength * (255 - part) * 1.6):02x}" for part in parts)


def _without_zero_rows(matrix: BlockPicture) -> BlockPicture:
    rows = tuple((name, span) for name, span in matrix.rows if matrix.values[span].any())
    return BlockPicture(matrix.title, matrix.values, rows or matrix.rows[:1], matrix.columns)


def _elided(matrix: BlockPicture) -> BlockPicture:
    """The matrix with runs of zero columns drawn together, if it has many columns."""
    if len(matrix.columns) <= MANY:
        return matrix
    columns: list[tuple[str, slice]] = []
    run: list[slice] = []
    for name, span in (*matrix.columns, ("", slice(0, 0))):
        if span.stop and not matrix.values[:, span].any():
            run.append(span)
            continue
        if run:
            columns.append((f"{ELIDED}{len(run)}", slice(run[0].start, run[-1].stop)))
            run = []
        if span.stop:
            columns.append((name, span))
    return BlockPicture(matrix.title, matrix.values, matrix.rows, tuple(columns))


def _wrapped(text: str, room: float, size: float, mono: bool = True) -> list[str]:
    """Words in lines that fit."""
    lines: list[str] = []
    for word in text.split(" "):
        if lines and text_width(f"{lines[-1]} {word}", size, mono) <= room:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines
