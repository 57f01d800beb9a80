"""Results -> tables, as text for a terminal or as Markdown for a page. Times are milliseconds per iteration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from weftc.tools.bench.peers import PEERS
from weftc.tools.bench.results import Clock, Contest, Measurement, Results
from weftc.tools.bench.verdicts import TargetVerdict, verdicts

COLUMNS = (
    "implementation",
    "min ms",
    "median",
    "CPU ms",
    "ratio",
    "median",
    "CPU",
    "wrong rows",
    "error",
    "inertia",
    "bytes/point",
    "runs",
)
TARGET_COLUMNS = ("workload", "against", "measured", "median", "must", "aim", "", "worst")
CLOCKS: tuple[Clock, Clock] = ("wall", "cpu")
BRIEF = ("workload", "beside", "ms", "its ms", "ratio", "CPU ms", "its CPU ms", "CPU", "error", "bytes/point")
INDICATION = "sizes are not those of the targets: the marks are an indication"


@dataclass(frozen=True, slots=True)
class TextTable:
    """Rows of cells under a header; the first `words` columns are text, the others numbers."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: frozenset[int] = frozenset({0})

    def text(self) -> str:
        """Aligned columns; a column in which nothing is said is left out."""
        kept = [at for at in range(len(self.header)) if any(row[at] for row in self.rows)]
        lines = [self.header, *self.rows]
        widths = {at: max(len(line[at]) for line in lines) for at in kept}
        shown = []
        for line in lines:
            cells = [f"{line[a]:<{widths[a]}}" if a in self.words else f"{line[a]:>{widths[a]}}" for a in kept]
            shown.append("  ".join(cells).rstrip())
        return "\n".join(shown)

    def markdown(self) -> str:
        """A Markdown table, without the columns in which nothing is said."""
        kept = [at for at in range(len(self.header)) if any(row[at] for row in self.rows)]
        lines = [" | ".join(line[at] for at in kept) for line in (self.header, *self.rows)]
        rule = " | ".join("---" if at in self.words else "---:" for at in kept)
        return "\n".join(f"| {line} |" for line in (lines[0], rule, *lines[1:]))


def number(value: float | None, digits: int = 3) -> str:
    """A number to a few digits, without an exponent."""
    if value is None:
        return ""
    if value >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{number(value)}x"


def contest_table(contest: Contest) -> TextTable:
    """One contest."""
    return TextTable(COLUMNS, tuple(_row(contest, m) for m in contest.measurements))


def _row(contest: Contest, m: Measurement) -> tuple[str, ...]:
    points = contest.workload.n * contest.workload.problems
    agreement = m.agreement
    wrong = "" if agreement.rows is None else str(agreement.rows)
    error = "" if agreement.error is None else f"{agreement.error:.0e}"
    excess = "" if agreement.excess is None else f"{agreement.excess:+.2%}"
    memory = "" if m.memory is None else number(m.memory / points)
    if not m.times:
        return (m.title, "", "", "", "", "", "", wrong, error, excess, memory, "0")
    times = [m.per_iteration("wall"), m.per_iteration("wall", typical=True), m.per_iteration("cpu")]
    ratios = ["1x" if m is contest.ours else ""] * 3
    if m is not contest.ours:
        wall, typical = contest.ratio(m.peer), contest.ratio(m.peer, typical=True)
        ratios = [_ratio(wall), _ratio(typical), _ratio(contest.ratio(m.peer, "cpu"))]
    return (m.title, *(number(t * 1e3) for t in times), *ratios, wrong, error, excess, memory, str(len(m.times)))


def remarks(contest: Contest) -> list[str]:
    """What there is to say about a contest: who was left out, troubles, what our side reports."""
    out = list(contest.notes)
    out += [f"{m.title}: {m.agreement.trouble}; no ratio" for m in contest.measurements if m.agreement.trouble]
    policies: dict[str, list[str]] = {}
    for m in contest.measurements:
        if m.agreement.empty:
            policies.setdefault(PEERS[m.peer].policy, []).append(f"{m.title} {m.agreement.empty}")
    out += [f"empty clusters at the end: {', '.join(who)} ({policy})" for policy, who in policies.items()]
    for m in contest.measurements:
        if "backend" in m.facts:
            tiers = ", ".join(f"{name} {count:,}" for name, count in m.facts["tiers"].items() if count)
            why = f" ({m.facts['why']})" if m.facts.get("why") else ""
            out.append(f"{m.title}: backend {m.facts['backend']}{why}{'; rows settled: ' + tiers if tiers else ''}")
        elif "way" in m.facts:
            out.append(f"{m.title}: {m.facts['way']}")
    return out


def troubles(contest: Contest) -> list[str]:
    """What went wrong in a contest, or was left out."""
    return [
        *contest.notes,
        *(f"{m.title}: {m.agreement.trouble}; no ratio" for m in contest.measurements if m.agreement.trouble),
    ]


def brief_table(contests: Sequence[Contest]) -> TextTable:
    """Many contests about specs, a line for each."""
    rows = []
    for contest in contests:
        ours, work = contest.ours, contest.workload
        memory = "" if ours is None or ours.memory is None else number(ours.memory / (work.n * work.problems))
        for m in (m for m in contest.measurements if m.times and m is not ours):
            mine = ["", ""] if ours is None else [number(ours.per_iteration(clock) * 1e3) for clock in CLOCKS]
            theirs = [number(m.per_iteration(clock) * 1e3) for clock in CLOCKS]
            ratios = [_ratio(contest.ratio(m.peer, clock)) for clock in CLOCKS]
            error = "" if ours is None or ours.agreement.error is None else f"{ours.agreement.error:.0e}"
            pairs = [cell for three in zip(mine, theirs, ratios, strict=True) for cell in three]
            rows.append((work.name, m.title, *pairs, error, memory))
    return TextTable(BRIEF, tuple(rows), frozenset({0, 1}))


def target_table(found: Sequence[TargetVerdict]) -> TextTable:
    """Targets, what was measured and whether they were met."""
    rows = []
    for v in found:
        of = _ratio if v.target.sense in ("at least", "within") else number
        sign = "" if v.target.sense == "at least" else "<= "
        aim = "" if v.target.aim is None else sign + of(v.target.aim)
        shown = v.mark if v.complete or v.measured is None else f"{v.mark}, not all measured"
        worst = v.workload if len(v.target.workloads) > 1 else ""
        row = (v.target.what, v.against, of(v.measured) or "-", of(v.typical), sign + of(v.target.must), aim)
        rows.append((*row, shown, worst))
    return TextTable(TARGET_COLUMNS, tuple(rows), frozenset({0, 1, 6, 7}))


def start_table(results: Results) -> TextTable:
    """Seconds to get ready."""
    rows = [(s.what, number(min(s.seconds) * 1e3), number(median(s.seconds) * 1e3)) for s in results.starts]
    return TextTable(("in a fresh process", "min ms", "median"), tuple(rows))


def heading(results: Results) -> str:
    """When, where and how, in three lines."""
    machine = dict(results.machine)
    where = f"{machine.pop('cpu')}, {machine.pop('cores')} cores, {results.threads} threads, {machine.pop('system')}"
    rest = ", ".join(f"{name} {value}" for name, value in machine.items())
    return f"{results.date}: {where}\n{rest}\n$ {results.command}"


def contest_text(contest: Contest) -> str:
    """One contest, for a terminal."""
    table = f"{contest.workload.name}: {contest.workload.sizes}\n{contest_table(contest).text()}"
    return table + "".join(f"\n  {remark}" for remark in remarks(contest))


def closing_text(results: Results, clock: Clock = "wall") -> str:
    """What is known when all contests are over: the time to start, and the targets."""
    parts = []
    if results.starts:
        parts.append(f"start\n{start_table(results).text()}")
    found = verdicts(results, clock)
    if found:
        note = "" if results.exact_sizes else f"\n  {INDICATION}"
        parts.append(f"targets ({clock} time, fastest runs)\n{target_table(found).text()}{note}")
    return "\n\n".join(part for part in [*parts, *results.notes] if part)


def markdown(results: Results, clock: Clock = "wall") -> str:
    """Everything, for a page."""
    date, _, where = heading(results).partition(": ")
    first, second, command = where.split("\n")
    parts = [f"### {date}", f"{first}; {second}.", f"```\n{command}\n```"]
    found = verdicts(results, clock)
    if found:
        note = "" if results.exact_sizes else f" {INDICATION[0].upper()}{INDICATION[1:]}."
        parts += [f"Targets, by {clock} time of the fastest runs.{note}", target_table(found).markdown()]
    brief = [contest for contest in results.contests if contest.workload.spec]
    if brief:
        parts += ["**specs**", brief_table(brief).markdown()]
        parts += ["\n".join(f"- {c.workload.name}: {remark}" for c in brief for remark in troubles(c))]
    for contest in (contest for contest in results.contests if not contest.workload.spec):
        parts += [f"**{contest.workload.name}** {contest.workload.sizes}", contest_table(contest).markdown()]
        if remarks(contest):
            parts.append("\n".join(f"- {remark}" for remark in remarks(contest)))
    if results.starts:
        parts += ["**start**", start_table(results).markdown()]
    return "\n\n".join(part for part in [*parts, *results.notes] if part)
