"""Blocks of work side by side: threads that each run torch on one core, instead of one operation on all cores.

Small operations on many blocks scale better this way: no operation waits for the slowest core. The blocks must not
depend on each other; results come back in the order of the blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import local
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
    """What `work` gives for every item, as many at a time as torch may use cores."""
    many, before = cores(), torch.get_num_threads()
    if many == 1 or len(items) < 2 or device.type != "cpu":
        return [work(item) for item in items]
    inference = torch.is_inference_mode_enabled()

    def apart(item: Item) -> Result:
        with torch.inference_mode(inference), torch.no_grad():
            return work(item)

    def start() -> None:
        torch.set_num_threads(1)  # of this thread

    try:
        with ThreadPoolExecutor(min(many, len(items)), initializer=start) as pool:
            return list(pool.map(apart, items))
    finally:
        torch.set_num_threads(before)  # what threads that start later take over
