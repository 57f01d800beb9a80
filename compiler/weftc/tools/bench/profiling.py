"""A contestant and its inputs -> where the time of a run goes, as text for people who make it faster."""

from __future__ import annotations

import cProfile
import io
import pstats
import time
from typing import Any

from weftc.tools.bench.peers.contestant import Contestant

LINES = 25


def profile(contestant: Contestant, held: Any, iterations: int) -> str:
    """Seconds by number of iterations, then by Python function, then by torch operation."""
    return "\n".join(
        [
            _phases(contestant, held, iterations),
            _functions(contestant, held, iterations),
            _operations(contestant, held, iterations),
        ]
    )


def _seconds(contestant: Contestant, held: Any, iterations: int) -> tuple[float, float]:
    cpu, begun = time.process_time(), time.perf_counter()
    contestant.run(held, iterations)
    return time.perf_counter() - begun, time.process_time() - cpu


def _phases(contestant: Contestant, held: Any, iterations: int) -> str:
    """What comes before the first iteration, the first, and each further one."""
    out = ["iterations  wall ms   CPU ms"]
    counts = sorted({0, 1, 2, max(2, iterations // 2), iterations})
    walls: dict[int, float] = {}
    for many in counts:
        wall, cpu = min(_seconds(contestant, held, many) for _ in range(2))
        walls[many] = wall
        out.append(f"{many:>10}  {wall * 1e3:>7.1f}  {cpu * 1e3:>7.1f}")
    first, last = walls[1] - walls[0], counts[-1]
    each = (walls[last] - walls[1]) / (last - 1) if last > 1 else first
    out.append(f"set-up and answers {walls[0] * 1e3:.1f} ms, first iteration {first * 1e3:.1f} ms, ")
    out[-1] += f"each further one {each * 1e3:.1f} ms\n"
    return "\n".join(out)


def _functions(contestant: Contestant, held: Any, iterations: int) -> str:
    """Python functions of the main thread, by their own time."""
    watch = cProfile.Profile()
    watch.runcall(contestant.run, held, iterations)
    text = io.StringIO()
    pstats.Stats(watch, stream=text).strip_dirs().sort_stats("tottime").print_stats(LINES)
    return text.getvalue().strip() + "\n"


def _operations(contestant: Contestant, held: Any, iterations: int) -> str:
    """torch operations, by their own CPU time."""
    try:
        from torch.profiler import ProfilerActivity
        from torch.profiler import profile as watched
    except ImportError:
        return ""
    with watched(activities=[ProfilerActivity.CPU]) as watch:
        contestant.run(held, iterations)
    return str(watch.key_averages().table(sort_by="self_cpu_time_total", row_limit=LINES, max_name_column_width=40))
