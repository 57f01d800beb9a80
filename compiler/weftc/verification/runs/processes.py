"""Pieces of work that do not need each other, done by several processes at once: callables -> their results, in order.

The processes are copies of this one and take the next piece as they become free. A copy has one thread, so a process is
only copied before torch is loaded: the threads of torch would be missing in it, and waited for. The thread that draws a
line of progress is not missed.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

Result = TypeVar("Result")
Done = tuple[int, bool, Any]  # which piece, whether it has a result, and that or the error
MOST = 255  # pieces: each is one byte in a pipe


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def may_be_copied() -> bool:
    """Whether copies of this process can work."""
    return sys.platform == "linux" and "torch" not in sys.modules


def shared(
    work: Sequence[Callable[[], Result]], processes: int, copied: Callable[[int], None], waits: Callable[[], None]
) -> list[Result]:
    """The results of all pieces; of errors, the one that comes first in the work.

    `copied` is called in every copy, with its number from 1; `waits` while this process has nothing left to do itself.
    """
    processes = min(processes, len(work))
    if processes < 2 or len(work) > MOST or not may_be_copied():
        return [piece() for piece in work]
    queue, fill = os.pipe()
    os.write(fill, bytes(range(len(work))))
    os.close(fill)
    sys.stdout.flush()
    sys.stderr.flush()
    copies: dict[int, int] = {}  # process -> pipe
    try:
        for number in range(1, processes):
            back, out = os.pipe()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # of threads: see above
                process = os.fork()
            if not process:
                _copy(work, queue, out, lambda number=number: copied(number))  # type: ignore[misc]
            os.close(out)
            copies[process] = back
        done = _taken(work, queue)
        for back in copies.values():
            done += _received(back, waits)
    finally:
        os.close(queue)
        for process, back in copies.items():
            os.close(back)
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
    done.sort(key=lambda one: one[0])
    for _, right, result in done:
        if not right:
            raise result
    if len(done) < len(work):
        raise ChildProcessError("a process that shared the work was killed; was there enough memory?")
    return [result for _, _, result in done]


def _taken(work: Sequence[Callable[[], Result]], queue: int) -> list[Done]:
    """What this process has done when nothing is left to take; it stops at its first error."""
    done: list[Done] = []
    while byte := os.read(queue, 1):
        try:
            done.append((byte[0], True, work[byte[0]]()))
        except Exception as error:
            while os.read(queue, MOST):  # nobody begins another piece
                pass
            return [*done, (byte[0], False, error)]
    return done


def _copy(work: Sequence[Callable[[], Result]], queue: int, out: int, begin: Callable[[], None]) -> None:
    """The life of a copy; it ends here."""
    code = 1
    try:
        begin()
        with warnings.catch_warnings(record=True) as seen:
            done = _taken(work, queue)
        with os.fdopen(out, "wb") as pipe:
            pickle.dump((done, [(str(one.message), one.category) for one in seen]), pipe)
        code = 0
    finally:
        os._exit(code)  # not by an exception: what stands above belongs to the process that was copied


def _received(back: int, waits: Callable[[], None]) -> list[Done]:
    """What a copy has done; nothing if it was killed."""
    import select

    pieces = []
    while True:
        while not select.select([back], [], [], 0.1)[0]:
            waits()
        piece = os.read(back, 1 << 20)
        if not piece:
            break
        pieces.append(piece)
    if not pieces:
        return []
    done, seen = pickle.loads(b"".join(pieces))
    for text, category in seen:
        warnings.warn(text, category, stacklevel=2)
    return list(done)
