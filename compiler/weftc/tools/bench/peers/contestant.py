"""What an implementation must do to take part, in this order:

prepare   once per workload: imports, compiles, loads     not timed with the runs, told as facts
hold      brings inputs into the form it works on         not timed, counted as input
run       solves the problem                              timed
outcome   what came out, as arrays                        not timed
settles   after how many iterations nothing changes       not timed, asked of ours only
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from weftc.tools.bench.workloads import Workload

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class PeerOutcome:
    """The answer of a run: iterations it made, arrays to judge it by, and what it tells about itself."""

    iterations: int
    arrays: Arrays = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


class Contestant(ABC):
    """One implementation in its own process."""

    def prepare(self, workload: Workload, threads: int) -> dict[str, Any]:
        """Imports what it needs and gets ready for a workload; returns facts such as seconds to compile."""
        self.workload, self.threads = workload, threads
        return {}

    @abstractmethod
    def hold(self, inputs: Arrays) -> Any:
        """The inputs in its own form."""

    @abstractmethod
    def run(self, held: Any, iterations: int) -> Any:
        """Solves the problem."""

    @abstractmethod
    def outcome(self, answer: Any, iterations: int) -> PeerOutcome:
        """What a run gave."""

    def settles(self, held: Any, limit: int) -> int:
        """After how many iterations nothing changes any more, at most `limit`; `limit` where it cannot tell."""
        return limit
