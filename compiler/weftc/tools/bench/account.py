"""Results -> one JSON object: every repetition, every ratio, every verdict."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from weftc.tools.bench.results import Clock, Contest, Measurement, Results
from weftc.tools.bench.verdicts import verdicts


def account(results: Results, clock: Clock = "wall") -> dict[str, Any]:
    """What `--json` prints. Times are seconds, sizes bytes, ratios a peer's time per iteration over ours."""
    return {
        "ok": not results.troubles,
        "date": results.date,
        "command": results.command,
        "machine": dict(results.machine),
        "threads": results.threads,
        "target_sizes": results.exact_sizes,
        "contests": [_contest(contest) for contest in results.contests],
        "targets": [
            {**asdict(v.target), "peer": v.against, "measured": v.measured, "median": v.typical}
            | {"worst": v.workload, "mark": v.mark, "complete": v.complete}
            for v in verdicts(results, clock)
        ],
        "starts": [{"what": s.what, "seconds": list(s.seconds)} for s in results.starts],
        "notes": list(results.notes),
        "troubles": results.troubles,
    }


def _contest(contest: Contest) -> dict[str, Any]:
    work = asdict(contest.workload)
    shown = {name: work[name] for name in ("name", "kind", "n", "d", "k", "iterations", "data", "dtype", "problems")}
    return {
        "workload": shown,
        "ours": contest.workload.entries[0],
        "measurements": [_measurement(contest, m) for m in contest.measurements],
        "notes": list(contest.notes),
    }


def _measurement(contest: Contest, m: Measurement) -> dict[str, Any]:
    points = contest.workload.n * contest.workload.problems
    return {
        "peer": m.peer,
        "title": m.title,
        "version": m.version,
        "iterations": m.iterations,
        "wall": [wall for wall, _ in m.times],
        "cpu": [cpu for _, cpu in m.times],
        "ratio": {
            "wall_min": contest.ratio(m.peer),
            "wall_median": contest.ratio(m.peer, typical=True),
            "cpu_min": contest.ratio(m.peer, "cpu"),
        },
        "memory": m.memory,
        "memory_per_point": None if m.memory is None else m.memory / points,
        "agreement": asdict(m.agreement),
        "facts": dict(m.facts),
    }
