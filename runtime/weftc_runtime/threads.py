"""Blocks of work side by side: threads that each run torch on one core, instead of one operation on all cores.

Small operations on many blocks scale better this way: no operation waits for the slowest core. The blocks must not
depend on each other; results come back in the order of the blocks. Threads stay for the next blocks, with what
libraries keep for each of them; a process that was forked starts its own.

The threads of OpenMP do not survive a fork, and the process that was forked would wait for them for ever: there, torch
runs on one core at a time (`safely`), and blocks of work on all of them as ever.

How many cores an operation takes is said to the libraries below torch, for this thread alone: `torch.set_num_threads`
would also be the setting of every thread that starts later. Where these libraries are not found, nothing is said.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from ctypes import CDLL
from functools import cache
from threading import Barrier, Lock, local
from typing import Any, TypeVar

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
    _given.cores = torch.get_num_threads()  # from here on torch has asked for what is its own in this thread
    before = _take_cores(1), _take_mkl_cores(1)
    try:
        yield
    finally:
        _take_cores(before[0])
        _take_mkl_cores(before[1])
        _given.cores = 0


def safely() -> AbstractContextManager[None]:
    """For everything that calls torch: single operations on one core where the threads of others were left behind."""
    return alone() if _is_forked else nullcontext()


def _take_cores(many: int) -> int:
    """Lets OpenMP use so many cores in this thread: how many it had."""
    before = torch.get_num_threads()
    if _libraries()[0] is not None:
        _libraries()[0](many)
    return before


def _take_mkl_cores(many: int) -> int:
    """The same for MKL; 0 stands for as many as OpenMP."""
    call = _libraries()[1]
    return 0 if call is None else int(call(many))


@cache
def _libraries() -> tuple[Any, Any]:
    """What sets the cores of a thread, of OpenMP and of MKL, each None where torch was built without."""
    try:
        torch_itself = CDLL(torch._C.__file__)
    except OSError:
        return None, None
    openmp = getattr(torch_itself, "omp_set_num_threads", None)
    return openmp, getattr(torch_itself, "MKL_Set_Num_Threads_Local", None) if openmp else None


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
            together = Barrier(many)

            def start(_: int) -> None:
                _take_cores(1)
                _take_mkl_cores(1)
                together.wait()

            pool = ThreadPoolExecutor(many, thread_name_prefix="weftc")
            list(pool.map(start, range(many)))
            _pools[many] = pool
        return _pools[many]


_is_forked = False


def _forked() -> None:
    global _starting, _is_forked
    _starting, _is_forked = Lock(), True
    _pools.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
