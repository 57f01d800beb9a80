"""What notebooks show of specs, graphs, normal forms, verdicts and refusals; everything in it is escaped.

Types carry thin `_repr_html_` methods; those of `core` find these functions where `weftc` has registered them. The
runtime's own types are shown by `weftc_runtime.format.display`, which knows nothing of the compiler.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from weftc.core.source import printable
from weftc_runtime.format.display import frame, table, text

if TYPE_CHECKING:
    from weftc.core.errors import SpecError
    from weftc.core.syntax import Spec
    from weftc.core.types import Checked
    from weftc.files.locate import Catalogue
    from weftc.graph.graph import Graph
    from weftc.normal.form import NormalForm
    from weftc.verification.transport.by_depth import Assignment
    from weftc.verification.verdict import Verdict

BLOCK = "margin:0.3em 0;padding:0;background:none;color:inherit;white-space:pre;overflow-x:auto;font-size:inherit"
LONGEST = 6000  # letters of a text that are shown
# Of middling lightness, so that they are read on white and on black.
COLOURS = {
    "comment": "opacity:0.6",
    "section": "font-weight:600;color:#3b7dd8",
    "keyword": "color:#3b7dd8",
    "reduction": "color:#a35fc4",
    "weighting": "color:#a35fc4",
    "function": "color:#a35fc4",
    "number": "color:#2a9292",
    "text": "color:#3d9140",
    "type": "color:#b07d12",
    "choice": "color:#b07d12",
    "algorithm": "font-weight:600",
}


def spec_html(spec: Spec) -> str:
    """The text of a spec in colours."""
    return frame(spec.name, "as written", source_html(spec.source.text))


def checked_html(checked: Checked) -> str:
    """The text of a spec, and what the checker found out about its fields."""
    rows = []
    for name, one in checked.fields.items():
        width = "" if one.width is None else f"R^{one.width}"
        kind = f"{one.kind} over {one.columns}" if one.columns else width or "R"
        rows.append((name, one.role, f"one for each of {one.home}", f"unit {kind}" if one.kind == "unit" else kind))
    fields = table(("field", "is", "given", "type"), rows)
    return frame(checked.spec.name, "checked", source_html(checked.spec.source.text), fields)


def catalogue_html(entries: Catalogue) -> str:
    """The specs by subject, with what each does."""
    parts = []
    for subject, group in entries.groups().items():
        parts.append(table((subject, ""), [(entry.name, entry.doc) for entry in group]))
    return frame("built-in specs", "weftc.check(name) shows one", *parts)


def source_html(source: str) -> str:
    """A spec's text with its words in colours."""
    from weftc.language.highlight import classified

    out = []
    for kind, piece in classified(source[:LONGEST]):
        look = COLOURS.get(kind, "")
        shown = text_block(piece.expandtabs() if kind == "space" else piece)
        out.append(f"<span style='{look}'>{shown}</span>" if look else shown)
    rest = "\n..." if len(source) > LONGEST else ""
    return f"<pre style='{BLOCK}'>{''.join(out)}{rest}</pre>"


def text_block(source: str) -> str:
    """Text of several lines as HTML."""
    return escape("\n".join(printable(line) for line in source.split("\n")), quote=True)


def normal_html(normal: NormalForm) -> str:
    """The attention normal form as it is printed."""
    shown = str(normal)
    cut = shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}\n..."
    body = f"<pre style='{BLOCK}'>{text_block(cut)}</pre>"
    return frame(normal.checked.spec.name, "attention normal form", body)


def graph_html(graph: Graph) -> str:
    """The algorithm graph as a drawing."""
    from weftc.show.figures.graph_layout import layout
    from weftc.show.figures.graph_svg import svg

    return f"<div style='max-width:100%;overflow-x:auto'>{svg(layout(graph))}</div>"


def verdict_html(verdict: Verdict) -> str:
    """The verdict, its claim, the checks with their numbers, and what went wrong."""
    rows = [
        ("ok" if check.passed else "NO", check.name, check.compared, check.cases, f"{check.worst:.2g}", _allowed(check))
        for check in verdict.rows
    ]
    checks = table(("", "check", "compared", "cases", "worst error", "allowed"), rows)
    notes = [f"<div>on condition that {text(one)}</div>" for one in verdict.conditions]
    failed = [f"<div>{text(check.called)}: {text(check.detail)}</div>" for check in verdict.checks if not check.passed]
    mark = "✓" if verdict.ok else "✗"
    return frame(f"{mark} {verdict.line}", verdict.name, f"<div>{text(verdict.claim)}</div>", *notes, checks, *failed)


def assignment_html(assignment: Assignment) -> str:
    """How far a coupling is from its optimum, layer by layer, as it is printed."""
    first, *rest = assignment.lines()
    return frame("Assignment", first, f"<pre style='{BLOCK}'>{text_block(chr(10).join(rest))}</pre>")


def _allowed(check: object) -> str:
    if getattr(check, "proof", False):
        return "exact"
    allowed = float(getattr(check, "allowed", 0.0))
    return f"{allowed:.2g}" if allowed else "same bits"


def error_html(error: SpecError) -> str:
    """Everything that is wrong with a spec, as the command line prints it."""
    return frame("spec refused", error.source.name, f"<pre style='{BLOCK}'>{text_block(str(error))}</pre>")
