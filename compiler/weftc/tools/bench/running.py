"""Names and sizes -> `Results`: contests one after the other, then the time it takes to start."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from weftc.tools.bench.contest import Effort, hold, opening
from weftc.tools.bench.machine import machine
from weftc.tools.bench.peers import PEERS
from weftc.tools.bench.process import Processes
from weftc.tools.bench.results import Contest, Results
from weftc.tools.bench.samples import arrays
from weftc.tools.bench.starting import starts
from weftc.tools.bench.workloads import Workload

START = "start"


def bench(
    workloads: Sequence[Workload],
    effort: Effort,
    threads: int,
    *,
    with_start: bool,
    keep_processes: bool,
    exact_sizes: bool,
    command: str,
    say: Callable[[str], None],
    tell: Callable[[Contest], None],
) -> Results:
    """Runs everything. `keep_processes`: one process per implementation for all workloads, which saves imports.

    `say` hears what is going on, `tell` every contest when it is over.
    """
    where = machine()
    contests = []
    with (
        tempfile.TemporaryDirectory(prefix="weftc-bench-") as folder,
        Processes(threads, not keep_processes) as running,
    ):
        for workload in workloads:
            contests.append(hold(workload, running, Path(folder), effort, say))
            tell(contests[-1])
    begun = starts(1 if keep_processes else effort.rounds, threads, say) if with_start else []
    day = datetime.now(UTC).strftime("%Y-%m-%d")
    return Results(where, command, day, threads, exact_sizes, tuple(contests), tuple(begun))


def profiled(workload: Workload, threads: int) -> str:
    """Where the time of our side goes on one workload."""
    peer = workload.entries[0]
    with tempfile.TemporaryDirectory(prefix="weftc-bench-") as folder, Processes(threads, fresh=True) as running:
        files = {}
        for name, array in arrays(workload).items():
            files[name] = str(Path(folder) / f"{name}.npy")
            np.save(files[name], array)
        process = running.start(peer)
        told = process.ask("open", **opening(PEERS[peer], workload, files, threads, tiny=False))
        ready = ", ".join(f"{name} {value:.3f}" for name, value in told["facts"].items())
        text = process.ask("profile", iterations=workload.iterations)["text"]
    return f"{workload.name}: {workload.sizes}\n{PEERS[peer].title}: {ready}\n\n{text}"
