"""Several processes that run together over gloo, kept for all tests that need as many."""

from __future__ import annotations

import atexit
import multiprocessing
import tempfile
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import cache
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np


def _serve(rank: int, size: int, place: str, line: Connection) -> None:
    """One of the processes: does what it is asked until nothing comes any more."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{place}", rank=rank, world_size=size, timeout=timedelta(seconds=60)
    )
    while (job := line.recv()) is not None:
        work, given = job
        try:
            line.send((True, work(*given)))
        except Exception as error:
            line.send((False, (type(error).__name__, str(error))))
    dist.destroy_process_group()


class Ranks:
    """So many processes."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._folder = tempfile.TemporaryDirectory()
        spawn = multiprocessing.get_context("spawn")
        self._lines, self.processes = [], []
        for rank in range(size):
            here, there = spawn.Pipe()
            given = (rank, size, str(Path(self._folder.name) / "store"), there)
            process = spawn.Process(target=_serve, args=given, daemon=True)
            process.start()
            self._lines.append(here)
            self.processes.append(process)

    def start(self, work: Callable[..., Any], given: Sequence[tuple[Any, ...]]) -> None:
        """Asks every process for the same work, each on what it is given."""
        for line, one in zip(self._lines, given, strict=True):
            line.send((work, one))

    def results(self) -> list[tuple[bool, Any]]:
        """What came of it in each: whether it went well, and the result or the error; None where nobody answers."""
        found = []
        for line in self._lines:
            try:
                found.append(line.recv() if line.poll(60) else (False, None))
            except (EOFError, ConnectionResetError):
                found.append((False, None))
        return found

    def run(self, work: Callable[..., Any], given: Sequence[tuple[Any, ...]]) -> list[Any]:
        """The same where all is expected to go well."""
        self.start(work, given)
        found = self.results()
        assert all(well for well, _ in found), [error for well, error in found if not well]
        return [result for _, result in found]

    def end(self) -> None:
        """Lets the processes end."""
        for line, process in zip(self._lines, self.processes, strict=True):
            try:
                line.send(None)
            except (BrokenPipeError, OSError):
                process.kill()
        for process in self.processes:
            process.join(10)


@cache
def ranks(size: int) -> Ranks:
    """Processes that stay until the tests end."""
    made = Ranks(size)
    atexit.register(made.end)
    return made


def cuts(rows: int, size: int, ragged: int = 0) -> list[slice]:
    """The rows of every process: even shares, or uneven ones (`ragged`), the second process without any."""
    if ragged:
        ends = np.sort(np.random.default_rng(ragged).integers(0, rows + 1, size - 1)).tolist()
        ends = [0, *ends, rows]
        if size > 2:
            ends[2] = ends[1]
    else:
        ends = [rows * rank // size for rank in range(size + 1)]
    return [slice(start, end) for start, end in pairwise(ends)]
