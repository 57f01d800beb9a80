"""What the processes of a run do together: sums, largest numbers, lists. One process alone does nothing.

Every process holds some rows of each shared set, in the order of the processes, and all rows of every other set. What
is added up is added as integers, so that no number of processes and no order changes a bit.

All processes go through the same operations in the same order. Before each they tell each other, in 24 bytes, that all
is well and which operation comes: an error in one is an error in all, with the same message, and processes that come
apart find out instead of waiting for ever.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from zlib import crc32

import torch
from torch import Tensor

from weftc_runtime.errors import RunError

WORD = 24  # bytes that go before every operation
LEAVES, FAILED = 1, 2  # what is not well, in a word
BLOCK = 1 << 24  # bytes that are shown to all at a time


class Ended(RunError):
    """What ended a run in all its processes."""


class Lost(Ended):
    """Another process has ended, or cannot be reached."""


class Left(Exception):
    """Another process leaves what all were carrying out in one native call."""


@dataclass(eq=False)
class Collective:
    """One process among `size`; alone, every answer is its own."""

    rank: int = 0
    size: int = 1
    starts: dict[str, list[int]] = field(default_factory=dict)  # by shared set: the first row of each process, the end
    sent: int = 0  # bytes given to others so far

    def shares(self, stream: str) -> bool:
        """Whether this process holds only some rows of a set."""
        return stream in self.starts

    def rows(self, stream: str, local: int) -> tuple[int, int]:
        """The first row and the end of what this process holds of a set."""
        if stream not in self.starts:
            return 0, local
        return self.starts[stream][self.rank], self.starts[stream][self.rank + 1]

    def total(self, stream: str, local: int) -> int:
        """How many rows a set has."""
        return self.starts[stream][-1] if stream in self.starts else local

    def most(self, stream: str, local: int) -> int:
        """How many rows of a set a process holds at most."""
        ends = self.starts.get(stream, [0, local])
        return max(end - start for start, end in pairwise(ends))

    def sum(self, numbers: Tensor) -> Tensor:
        """Integers of all processes, added."""
        return numbers

    def max(self, numbers: Tensor) -> Tensor:
        """The largest of the numbers of all processes, place by place."""
        return numbers

    def stack(self, numbers: Tensor) -> Tensor:
        """The numbers of all processes, one after the other along a new first axis."""
        return numbers[None]

    def joined(self, rows: Tensor, stream: str) -> Tensor:
        """The rows of a shared set, those of all processes."""
        return rows

    def passed(self, rows: Tensor, many: int) -> Tensor:
        """So many rows from the process before; the next one gets these."""
        return rows

    def shown(self, mine: Tensor | None, shape: tuple[int, ...], dtype: torch.dtype, source: int) -> Tensor:
        """What one process shows to all."""
        assert mine is not None
        return mine

    def gather(self, mine: Any) -> list[Any]:
        """What every process gives, in their order."""
        return [mine]

    def leave(self) -> None:
        """Tells all that this process leaves what they carry out: their next operation raises `Left`."""

    def any(self, flag: bool) -> bool:
        """Whether it is so in some process."""
        return flag

    def wait(self) -> None:
        """Until all are here."""

    def share(self, counts: Mapping[str, int]) -> None:
        """Notes how many rows of every shared set this process holds."""

    @contextmanager
    def as_one(self) -> Iterator[None]:
        """An error in one process ends this for all of them."""
        yield


ALONE = Collective()


class ProcessGroup(Collective):
    """The processes of a group of torch.distributed (gloo, nccl)."""

    def __init__(self, group: Any) -> None:
        import torch.distributed as dist

        if not dist.is_initialized():
            raise RunError("there is no process group; call torch.distributed.init_process_group first")
        # all processes: not held, because torch may end with an abort where somebody holds its default group to the end
        self._dist, self._group = dist, None if group is dist.group.WORLD else group
        if dist.get_rank(group) < 0:
            raise RunError("this process does not belong to the group; load the model in those that do")
        self._device = torch.device("cuda") if dist.get_backend(group) == "nccl" else torch.device("cpu")
        Collective.__init__(self, dist.get_rank(group), dist.get_world_size(group))

    # ------------------------------------------------------------------ one for all
    @contextmanager
    def as_one(self) -> Iterator[None]:
        try:
            yield
        except Ended:
            raise
        except Exception as error:
            self._all(self._sent(torch.tensor([FAILED, 0, 0])), largest=True)
            self._tell(error)

    def _tell(self, error: Exception | None) -> None:
        """Raises in every process what went wrong in the first that something went wrong in."""
        mine = None
        if error is not None:
            ours = hasattr(error, "place")  # told on purpose
            mine = str(error) if ours else f"{type(error).__name__}: {error}", *_where(error)
        told = self._listed(mine)
        rank, found = next((rank, one) for rank, one in enumerate(told) if one is not None)
        text = found[0] if told.count(found) == self.size else f"process {rank} of {self.size}: {found[0]}"
        raise Ended(text, input=found[1], place=found[2]) from error

    @contextmanager
    def _line(self) -> Iterator[None]:
        """What torch says when another process does not answer."""
        try:
            yield
        except RuntimeError as error:
            reason = str(error).splitlines()[0][:200]
            raise Lost(
                f"process {self.rank} of {self.size} has lost another one, which has ended or does not answer "
                f"({reason}); start the run again, with `resume` it goes on from its last state"
            ) from None

    def _next(self, what: str) -> None:
        """All is well here, and this is what comes."""
        word = crc32(what.encode()) & 0x7FFFFFFF
        worst, high, low = self._all(self._sent(torch.tensor([0, word, -word])), largest=True).tolist()
        if worst == FAILED:
            self._tell(None)
        if worst == LEAVES:
            raise Left
        if high != -low:
            raise Ended(
                f"the processes have come apart (process {self.rank} of {self.size} was at: {what}); "
                "give all of them the same model, the same settings and the same inputs of sets that are not shared"
            )

    def leave(self) -> None:
        if self._all(self._sent(torch.tensor([LEAVES, 0, 0])), largest=True)[0] == FAILED:
            self._tell(None)

    def _sent(self, numbers: Tensor) -> Tensor:
        self.sent += numbers.numel() * numbers.element_size()
        return numbers.to(self._device).contiguous()

    # ------------------------------------------------------------------ operations
    def sum(self, numbers: Tensor) -> Tensor:
        assert numbers.dtype == torch.int64
        self._next(f"sum {tuple(numbers.shape)}")
        return self._all(self._sent(numbers), largest=False).to(numbers.device)

    def max(self, numbers: Tensor) -> Tensor:
        self._next(f"max {tuple(numbers.shape)} {numbers.dtype}")
        return self._all(self._sent(numbers), largest=True).to(numbers.device)

    def stack(self, numbers: Tensor) -> Tensor:
        self._next(f"stack {tuple(numbers.shape)} {numbers.dtype}")
        return torch.stack(self._of_all(self._sent(numbers))).to(numbers.device)

    def joined(self, rows: Tensor, stream: str) -> Tensor:
        """Rows of another process go into place; the shortest are filled up on their way."""
        starts, most = self.starts[stream], self.most(stream, len(rows))
        padded = rows.new_zeros(most, *rows.shape[1:])
        padded[: len(rows)] = rows
        counts = [end - start for start, end in pairwise(starts)]
        return torch.cat([part[:count] for part, count in zip(self.stack(padded), counts, strict=True)])

    def passed(self, rows: Tensor, many: int) -> Tensor:
        self._next(f"pass {tuple(rows.shape[1:])} {rows.dtype}")
        found = torch.empty(many, *rows.shape[1:], dtype=rows.dtype, device=self._device)
        return self._to_next(self._sent(rows), found).to(rows.device)

    def shown(self, mine: Tensor | None, shape: tuple[int, ...], dtype: torch.dtype, source: int) -> Tensor:
        self._next(f"show {shape} {dtype} {source}")
        numbers = torch.empty(shape, dtype=dtype) if mine is None else mine
        moved = numbers.to(self._device) if mine is None else self._sent(numbers)
        return self._of(moved, source).to(numbers.device)

    def gather(self, mine: Any) -> list[Any]:
        self._next("gather")
        return self._listed(mine)

    # ------------------------------------------------------------------ torch.distributed
    def _all(self, numbers: Tensor, largest: bool) -> Tensor:
        total = numbers.clone()
        with self._line():
            operation = self._dist.ReduceOp.MAX if largest else self._dist.ReduceOp.SUM
            self._dist.all_reduce(total, op=operation, group=self._group)
            return total

    def _of_all(self, numbers: Tensor) -> list[Tensor]:
        found = [torch.empty_like(numbers) for _ in range(self.size)]
        with self._line():
            self._dist.all_gather(found, numbers, group=self._group)
            return found

    def _to_next(self, numbers: Tensor, found: Tensor) -> Tensor:
        dist = self._dist
        group: Any = self._group or dist.group.WORLD
        after, before = (dist.get_global_rank(group, (self.rank + step) % self.size) for step in (1, -1))
        asked = [dist.P2POp(dist.isend, numbers, after, self._group)] if len(numbers) else []
        asked += [dist.P2POp(dist.irecv, found, before, self._group)] if len(found) else []
        with self._line():
            for work in dist.batch_isend_irecv(asked) if asked else ():
                work.wait()
            return found

    def _of(self, numbers: Tensor, source: int) -> Tensor:
        with self._line():
            group: Any = self._group or self._dist.group.WORLD
            self._dist.broadcast(numbers, self._dist.get_global_rank(group, source), group=self._group)
            return numbers

    def _listed(self, mine: Any) -> list[Any]:
        self.sent += len(pickle.dumps(mine))
        found: list[Any] = [None] * self.size
        with self._line():
            self._dist.all_gather_object(found, mine, group=self._group)
            return found

    def any(self, flag: bool) -> bool:
        return bool(self.max(torch.tensor([int(flag)])).item())

    def wait(self) -> None:
        self._next("wait")

    def share(self, counts: Mapping[str, int]) -> None:
        told = self.gather(dict(counts))
        self.starts = {}
        for name in counts:
            ends = [0]
            for one in told:
                ends.append(ends[-1] + one[name])
            self.starts[name] = ends


def _where(error: Exception) -> tuple[str | None, str | None]:
    """The input and the place that an error names."""
    return getattr(error, "input", None), getattr(error, "place", None)
