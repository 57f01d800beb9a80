"""A verdict -> text for people: one line per check, then the tables behind them, then what went wrong.

No line is longer than `COLUMNS`, but for numbers that are meant to be pasted.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weftc.verification.verdict import Check, Verdict

COLUMNS = 98
NOTHING = 1e-300  # an error allowed only because numbers below this lose precision
SHOWN = ("your data", "layers (l2", "layers (dot", "layers (as it is")  # checks whose decisions are shown, by name
BOTH = "both backends: the reference, which carries out the matrices literally, and the fast, planned one"


def verdict_text(verdict: Verdict) -> str:
    """The whole answer."""
    lines = [f"{verdict.name}: {verdict.line}"]
    lines += wrapped(f"on condition that {one}" for one in verdict.conditions)
    lines += wrapped(f"the proof assumes that {one}" for one in verdict.assumptions)
    lines += aligned([HEAD, *(_row(check) for check in verdict.rows)])
    if any(check.compared.endswith("both backends") for check in verdict.rows):
        lines += wrapped([BOTH])
    lines += wrapped([LEGEND])
    lines += _settled(verdict.checks)
    lines += _leads(verdict.checks)
    for one in verdict.assignments:
        lines += ["", *one.lines()]
    lines += ["", *wrapped([verdict.claim])]
    for detail in dict.fromkeys(check.detail for check in verdict.checks if check.detail):
        first, *rest = detail.split("\n")
        lines += ["", *wrapped([f"{_who([c for c in verdict.checks if c.detail == detail])}: {first}"]), *rest]
    return "\n".join(lines)


HEAD = ("", "check", "compared", "cases", "worst", "allowed", "kappa")
LEGEND = (
    "worst: the difference that came nearest to its limit; allowed: that limit, 16 * eps * kappa * the largest value; "
    "eps: the spacing of numbers near 1; kappa: how much the equations magnify rounding (1: not at all)"
)


def _row(check: Check) -> tuple[str, ...]:
    return (
        "NO" if not check.passed else "-" if check.proof and check.strength == "tested" else "ok",
        check.name,
        check.compared,
        str(check.cases),
        f"{check.worst:.2g}",
        "exact" if check.proof else f"{check.allowed:.2g}" if check.allowed > NOTHING else "same bits",
        "" if check.proof else f"{check.kappa:.3g}",
    )


def _who(checks: Sequence[Check]) -> str:
    """Checks that have the same to say."""
    names = list(dict.fromkeys(check.name for check in checks))
    backends = list(dict.fromkeys(check.backend for check in checks if check.backend))
    where = f" on {backends[0]}" if len(backends) == 1 else " on both backends" if backends else ""
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "") + where


def _settled(checks: Sequence[Check]) -> list[str]:
    """Who settled the decisions, layer by layer; in float64 where that was judged, float32 stores no more than that."""
    shown = [check for check in checks if check.settled and check.name.startswith(SHOWN)]
    shown = [check for check in shown if "float64" in check.name] or shown
    if any(check.name.startswith(SHOWN[0]) for check in shown):
        shown = [check for check in shown if check.name.startswith(SHOWN[0])]
    rows = [
        (check.called if at == 0 else "", *map(str, (one.layer, one.fast, one.float64, one.exact, one.undecided)))
        for check in shown
        for at, one in enumerate(check.settled)
    ]
    if not rows:
        return []
    head = ("rows of decisions settled", "layer", "fast", "in float64", "exactly", "undecided")
    return ["", *aligned([head, *rows], right=1)]


def _leads(checks: Sequence[Check]) -> list[str]:
    """How sure choices are at finite temperature, layer by layer."""
    rows = [
        (
            str(one.layer),
            "-" if one.margin is None else f"{one.margin:.2g}",
            "a tie" if one.enough is None else f"{one.enough:.3g}",
            "-" if one.bound is None else f"{one.bound:.2g}",
            "-" if one.measured is None else f"{one.measured:.2g}",
            f"{one.certified} of {one.cases}",
        )
        for check in checks
        for one in check.leads
    ]
    if not rows:
        return []
    head = ("layer", "smallest lead", "sharpness for it", "error at most", "measured", "cases certified")
    return ["", *aligned([head, *rows], right=0)]


def aligned(rows: Sequence[Sequence[str]], right: int | None = None) -> list[str]:
    """Rows of cells in columns, flush left; from column `right` on, flush right."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    edge = len(widths) if right is None else right
    return [
        "  ".join(
            cell.rjust(width) if at >= edge else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def wrapped(texts: Iterable[str]) -> list[str]:
    """Sentences as lines that fit."""
    return [line for text in texts for line in textwrap.wrap(text, COLUMNS, break_long_words=False)]
