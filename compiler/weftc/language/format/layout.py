"""Sections -> lines: words of sections at the left, what they declare at column 8, equations and examples at 2."""

from __future__ import annotations

from collections.abc import Sequence

from weftc.language.format.breaking import continuation, divided
from weftc.language.format.columns import WIDEST
from weftc.language.format.lexemes import Comment, Gap, Lexeme
from weftc.language.format.lines import Line, Page
from weftc.language.format.outline import OutlinedSection
from weftc.language.format.rows import Cell, Row, rows, separator

BODY = 8  # column of declarations, unless a longer word stands in the same block
INDENT = 2  # of equations and examples
INDENTED = ("layer", "phase", "example")
SET_OFF = ("algorithm", "tokens", *INDENTED)  # a blank line goes behind these


def layout(sections: Sequence[OutlinedSection], end: Gap) -> list[Line]:
    """The lines of a spec."""
    page = Page()
    blanks = [_after_blank(sections, at) for at in range(len(sections))]
    columns = _columns(sections, blanks)
    for at, section in enumerate(sections):
        gap = section.head[0].gap
        inner, outer = _owners(gap, indented=at > 1)
        page.comments(inner, columns[at - 1] if at else 0, blank=True)
        if outer:
            page.start(0, blanks[at]).comment = outer[0].text
            page.comments(outer[1:], 0, blank=True)
        _write(page, section, columns[at], gap.blank if outer else blanks[at])
    inner, outer = _owners(end, indented=len(sections) > 1)
    page.comments(inner, columns[-1], blank=True)
    page.comments(outer, 0, blank=True)
    return page.lines


# ---- between sections ------------------------------------------------------------------------------------------------


def _beside(comment: Comment) -> bool:
    """Whether a comment belongs to the line above it."""
    return comment.continues or not comment.own_line


def _owners(gap: Gap, indented: bool) -> tuple[tuple[Comment, ...], tuple[Comment, ...]]:
    """Comments before a section word: those that belong to what stands above, and those that belong to the word.

    A comment on a line of its own belongs to the section above only if it is indented, and that has items.
    """
    for at, comment in enumerate(gap.comments):
        if not _beside(comment) and not (indented and comment.column):
            return gap.comments[:at], gap.comments[at:]
    return gap.comments, ()


def _after_blank(sections: Sequence[OutlinedSection], at: int) -> bool:
    """Whether a section, with the comments that belong to it, has a blank line before it."""
    if at == 0:
        return False
    gap, above, name = sections[at].head[0].gap, sections[at - 1].name, sections[at].name
    _, outer = _owners(gap, indented=at > 1)
    if outer[0].after_blank if outer else gap.blank:
        return True
    always = above in SET_OFF or name in ("phase", "example") or (name == "layer" and above != "repeat")
    return always and not name == above == "tokens"


def _columns(sections: Sequence[OutlinedSection], blanks: Sequence[bool]) -> list[int]:
    """Where the items of each section start; sections without a blank line between them share a column."""
    columns: list[int] = []
    block: list[OutlinedSection] = []
    for section, blank in zip(sections, blanks, strict=True):
        if blank or section.name in INDENTED:
            columns += _block_columns(block)
            block = []
        block.append(section)
    return columns + _block_columns(block)


def _block_columns(block: Sequence[OutlinedSection]) -> list[int]:
    inline = [section for section in block if section.name not in INDENTED]
    column = max([BODY, *(len(section.name) + 1 for section in inline)])
    return [INDENT if section.name in INDENTED else column for section in block]


# ---- one section -----------------------------------------------------------------------------------------------------


def _write(page: Page, section: OutlinedSection, column: int, blank: bool) -> None:
    line = page.start(0, blank)
    line.code = section.name
    for lexeme in section.head[1:]:
        line = _head_part(page, line, lexeme, column)
    opens = True  # no blank line goes behind the section's word, nor behind `then`
    for at, row in enumerate(rows(section, column)):
        gap = row[0].item.gap
        page.comments(gap.comments, column, blank=not opens)
        if at == 0 and section.name not in INDENTED and not gap.comments:
            line.code = line.code.ljust(column)
        else:
            line = page.start(column, gap.blank and not (opens and all(map(_beside, gap.comments))))
        _write_row(page, line, row, column, separator(section))
        opens = row[0].item.kind == "then"


def _head_part(page: Page, line: Line, lexeme: Lexeme, column: int) -> Line:
    """Name and documentation of an algorithm, title of an example."""
    gap = lexeme.gap
    page.comments(gap.comments, column, blank=False)
    another = gap.broken and line.code.endswith('"')
    if gap.comments or another or line.end + 1 + len(lexeme.text) > WIDEST:
        line = page.start(column)
        line.code = lexeme.text
    else:
        line.code += " " + lexeme.text
    return line


def _write_row(page: Page, line: Line, row: Row, column: int, apart: str) -> None:
    for at, cell in enumerate(row):
        line.code += apart if at else ""
        _write_cell(page, line, cell, column)


def _write_cell(page: Page, line: Line, cell: Cell, column: int) -> None:
    """An item from where the line is now; the lines it is broken into follow."""
    start = line.end
    hang = continuation(cell, column)
    for at, part in enumerate(divided(cell, start, hang)):
        if at:
            page.comments(part[0].gap.comments, hang, blank=False)
            line = page.start(hang)
        line.code += "".join(" " * piece.space * bool(k) + piece.text for k, piece in enumerate(part))
