"""What the processes of a run do together: sums, largest numbers, lists. One process alone does nothing.

Every process holds some rows of each shared set, in the order of the processes, and all rows of every other set. What
is added up is added as integers, so that no number of processes and no order changes a bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor


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

    def sum(self, numbers: Tensor) -> Tensor:
        """Integers of all processes, added."""
        return numbers

    def max(self, numbers: Tensor) -> Tensor:
        """The largest of the numbers of all processes, place by place."""
        return numbers

    def stack(self, numbers: Tensor) -> Tensor:
        """The numbers of all processes, one after the other along a new first axis."""
        return numbers[None]

    def shift(self, numbers: Tensor, sizes: list[int], turn: int) -> Tensor:
        """What the process `turn` places on holds, rows of as many as `sizes` says, once round the ring."""
        return numbers

    def gather(self, mine: Any) -> list[Any]:
        """What every process gives, in their order."""
        return [mine]

    def any(self, flag: bool) -> bool:
        """Whether it is so in some process."""
        return flag

    def wait(self) -> None:
        """Until all are here."""

    def share(self, counts: Mapping[str, int]) -> None:
        """Notes how many rows of every shared set this process holds."""


ALONE = Collective()


class ProcessGroup(Collective):
    """The processes of a group of torch.distributed (gloo, nccl)."""

    def __init__(self, group: Any) -> None:
        import torch.distributed as dist

        if not dist.is_initialized():
            from weftc_runtime.errors import RunError

            raise RunError("there is no process group; call torch.distributed.init_process_group first")
        self._dist, self._group = dist, group
        device = torch.device("cuda") if dist.get_backend(group) == "nccl" else torch.device("cpu")
        self._device = device
        Collective.__init__(self, dist.get_rank(group), dist.get_world_size(group))

    def _sent(self, numbers: Tensor) -> Tensor:
        self.sent += numbers.numel() * numbers.element_size()
        return numbers.to(self._device).contiguous()

    def sum(self, numbers: Tensor) -> Tensor:
        assert numbers.dtype == torch.int64
        moved = self._sent(numbers)
        moved = moved.clone() if moved is numbers else moved
        self._dist.all_reduce(moved, group=self._group)
        return moved.to(numbers.device)

    def max(self, numbers: Tensor) -> Tensor:
        moved = self._sent(numbers)
        moved = moved.clone() if moved is numbers else moved
        self._dist.all_reduce(moved, op=self._dist.ReduceOp.MAX, group=self._group)
        return moved.to(numbers.device)

    def stack(self, numbers: Tensor) -> Tensor:
        moved = self._sent(numbers)
        found = [torch.empty_like(moved) for _ in range(self.size)]
        self._dist.all_gather(found, moved, group=self._group)
        return torch.stack(found).to(numbers.device)

    def shift(self, numbers: Tensor, sizes: list[int], turn: int) -> Tensor:
        before, after = (self.rank - 1) % self.size, (self.rank + 1) % self.size
        moved = self._sent(numbers)
        found = torch.empty(
            sizes[(self.rank + turn) % self.size], *moved.shape[1:], dtype=moved.dtype, device=moved.device
        )
        peers = [self._dist.get_global_rank(self._group, peer) for peer in (before, after)]
        ways = [
            self._dist.P2POp(self._dist.isend, moved, peers[0], self._group),
            self._dist.P2POp(self._dist.irecv, found, peers[1], self._group),
        ]
        for way in self._dist.batch_isend_irecv(ways):
            way.wait()
        return found.to(numbers.device)

    def gather(self, mine: Any) -> list[Any]:
        found: list[Any] = [None] * self.size
        self._dist.all_gather_object(found, mine, group=self._group)
        return found

    def any(self, flag: bool) -> bool:
        return bool(self.max(torch.tensor([int(flag)])).item())

    def wait(self) -> None:
        self._dist.barrier(group=self._group)

    def share(self, counts: Mapping[str, int]) -> None:
        told = self.gather(dict(counts))
        self.starts = {}
        for name in counts:
            ends = [0]
            for one in told:
                ends.append(ends[-1] + one[name])
            self.starts[name] = ends
