"""The residual streams as bars of named slots: which columns hold what, and who writes it."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2

from weftc.show.block_text import shortened
from weftc.show.figures.canvas import Canvas, PaperFigure, text_width
from weftc.show.figures.pictures import PictureOptions
from weftc.show.figures.style import COLUMN, FAINT, INK, PAGE, POINT, ROLES, SMALL
from weftc.show.figures.subject import Subject
from weftc_runtime.format import program as ir

MARGIN, BAR, LEAST = 8.0, 17.0, 17.0  # points: around the sheet, height of a bar, least width of a slot
MEANINGS = {
    "field": "data of the spec",
    "constant": "set by the embedding",
    "derived": "function of fields, kept up to date",
    "scratch": "zero between steps",
}


def draw(subject: Subject, look: PictureOptions) -> PaperFigure:
    """One bar per stream, in as many lines as it needs, and a legend of the roles."""
    program = subject.checkpoint.program
    canvas = Canvas(_width(program) if look.width is None else look.width * POINT)
    y = MARGIN
    for stream in program.streams:
        y = _stream(canvas, stream, _origins(program, stream.name), y)
    _legend(canvas, {slot.role for stream in program.streams for slot in stream.slots}, y)
    return canvas.figure()


def _width(program: ir.Program) -> float:
    """As wide as the longest line of slots, at least a column and at most a page."""
    lines = [
        sum(width for _, _, width in line)
        for stream in program.streams
        for line in _lines(stream.slots, PAGE * POINT - 2 * MARGIN, _origins(program, stream.name))
    ]
    return float(min(PAGE * POINT, max(COLUMN * POINT, max(lines) + 2 * MARGIN)))


def _stream(canvas: Canvas, stream: ir.Stream, origins: dict[str, str], y: float) -> float:
    many = "tokens: as many as the data" if stream.size is None else f"{stream.size} tokens"
    many += ", and a null token" if stream.null else ""
    canvas.text(MARGIN, y + 5, stream.name, fontweight="bold")
    start = MARGIN + text_width(stream.name) * 1.12 + 8
    canvas.text(start, y + 5, f"{many}, width {stream.width}", color=FAINT)
    y += 14
    for line in _lines(stream.slots, canvas.width - 2 * MARGIN, origins):
        x = MARGIN
        for slot, name, width in line:
            _slot(canvas, slot, name, origins.get(slot.name, ""), x, y, width)
            x += width
        y += BAR + 20
    return y + 2


def _slot(canvas: Canvas, slot: ir.Slot, name: str, origin: str, x: float, y: float, width: float) -> None:
    dashed = (0, (2, 1.5)) if slot.role == "scratch" else "-"
    canvas.box(x, y, width, BAR, facecolor=ROLES[slot.role], edgecolor=FAINT, linewidth=0.6, linestyle=dashed)
    canvas.text(x + width / 2, y + BAR / 2, name, ha="center")
    last = slot.offset + slot.width - 1
    span = f"{slot.offset}" if slot.width == 1 else f"{slot.offset}–{last}"
    canvas.text(x + width / 2, y + BAR + 5, span, fontsize=SMALL - 1, color=FAINT, ha="center")
    canvas.text(x + width / 2, y + BAR + 11.5, origin, fontsize=SMALL - 1, color=FAINT, ha="center")
    canvas.reach(y + BAR + 16)


def _lines(slots: Sequence[ir.Slot], room: float, origins: dict[str, str]) -> list[list[tuple[ir.Slot, str, float]]]:
    """Slots with their names and widths, broken into lines; wide slots are wider, but not to scale."""
    lines: list[list[tuple[ir.Slot, str, float]]] = []
    used = room + 1
    for slot, short in zip(slots, shortened(slots), strict=True):
        said = text_width(origins.get(slot.name, ""), SMALL - 1) + 6
        width = max(LEAST + 9 * log2(slot.width), text_width(short.name) + 9, said)
        if used + width > room:
            lines.append([])
            used = 0.0
        lines[-1].append((slot, short.name, width))
        used += width
    return lines


def _origins(program: ir.Program, stream: str) -> dict[str, str]:
    """Where the value of each slot is from, in a word or two."""
    found: dict[str, str] = {}
    for embed in program.embedding:
        if embed.stream == stream:
            said = {"input": "input", "noise": "noise", "one": "the number 1", "identity": "one-hot name"}
            said |= {"position": "position", "count": f"count of {embed.source}", "null": "null token"}
            found[embed.slot] = said[embed.kind]
    for number, step in enumerate(program.steps_of(0), start=1):
        for name, slot in step.writes:
            if name == stream:
                before = found.get(slot, "")
                found[slot] = f"{before}, step {number}" if before else f"step {number}"
    return found


def _legend(canvas: Canvas, roles: set[str], y: float) -> None:
    x = MARGIN
    for role, meaning in MEANINGS.items():
        if role not in roles:
            continue
        words = f"{role}: {meaning}"
        width = text_width(words, SMALL) + 22
        if x > MARGIN and x + width > canvas.width - MARGIN:
            x, y = MARGIN, y + 11
        dashed = (0, (2, 1.5)) if role == "scratch" else "-"
        canvas.box(x, y, 9, 6, facecolor=ROLES[role], edgecolor=FAINT, linewidth=0.5, linestyle=dashed)
        canvas.text(x + 12, y + 3, words, fontsize=SMALL, color=INK)
        x += width
    words = "numbers below: columns of the residual vector"
    if x + text_width(words, SMALL) > canvas.width - MARGIN:
        x, y = MARGIN, y + 11
    canvas.text(x, y + 3, words, fontsize=SMALL, color=INK)
    canvas.reach(y + 6 + MARGIN)
