"""Blocks of work side by side: threads that each run torch on one core, instead of one operation on all cores.

Small operations on many blocks scale better this way: no operation waits for the slowest core. The blocks must not
depend on each other; results come back in the order of the blocks. Threads stay for the next blocks, with what
libraries keep for each of them; a process that was forked starts its own.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from threading import Barrier, Lock, local
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


_given = local()  # cores that `alone` keeps for `each`


def cores() -> int:
    """How many cores there are for blocks of work."""
    return getattr(_given, "cores", 0) or torch.get_num_threads()


@contextmanager
def alone() -> Iterator[None]:
    """Single operations on one core, blocks of work on all: an operation never waits for a core that is busy."""
    if getattr(_given, "cores", 0):
        yield
        return
    before, kept = torch.get_num_threads(), cores()
    _given.cores = kept
    torch.set_num_threads(1)
    try:
        yield
    finally:
        _given.cores = 0
        torch.set_num_threads(before)


def each(work: Callable[[Item], Result], items: Sequence[Item], device: torch.device) -> list[Result]:
    """What `work` gives for every item, as many at a time as torch may use cores, this thread among them."""
    many = min(cores(), len(items))
    if many < 2 or device.type != "cpu":
        return [work(item) for item in items]
    inference = torch.is_inference_mode_enabled()
    left, found = deque(enumerate(items)), dict[int, Result]()

    def take() -> None:
        with torch.inference_mode(inference), torch.no_grad():
            while left:
                try:
                    place, item = left.popleft()
                except IndexError:  # another thread was faster
                    return
                try:
                    found[place] = work(item)
                except BaseException:
                    left.clear()
                    raise

    pool = _threads(cores() - 1)
    others = [pool.submit(take) for _ in range(many - 1)]
    try:
        with alone(), _single():
            take()
    finally:
        wait(others)
    for other in others:
        other.result()
    return [found[place] for place in range(len(items))]


@contextmanager
def _single() -> Iterator[None]:
    """One core for what this thread does, blocks of work in it included."""
    before = _given.cores
    _given.cores = 1
    try:
        yield
    finally:
        _given.cores = before


_pools: dict[int, ThreadPoolExecutor] = {}
_starting = Lock()


def _threads(many: int) -> ThreadPoolExecutor:
    """So many threads, each with torch on one core."""
    with _starting:
        if many not in _pools:
            before, together = torch.get_num_threads(), Barrier(many)

            def start(_: int) -> None:
                torch.get_num_threads()  # what it takes over, it takes over now
                torch.set_num_threads(1)  # of this thread
                together.wait()

            pool = ThreadPoolExecutor(many, thread_name_prefix="weft")
            list(pool.map(start, range(many)))
            torch.set_num_threads(before)  # what threads that start later take over
            _pools[many] = pool
        return _pools[many]


def _forked() -> None:
    global _starting
    _starting = Lock()
    _pools.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
