"""The parts of a long piece of work, counted for whoever asked to be told how far it is."""

from __future__ import annotations

import mmap

from weftc_runtime.data.progress import Progress, silence


class Parts:
    """Says which part is under way, and how many have begun before it, in all processes that share the work."""

    def __init__(self, tell: Progress | None, total: int, processes: int = 1) -> None:
        self._tell, self._total = tell or silence, total
        self._what, self._process = "", 0
        self._begun = memoryview(mmap.mmap(-1, 8 * processes)).cast("q")  # memory that copies of this process share

    def copied(self, process: int) -> None:
        """In a copy of the process that tells: it counts, and is silent."""
        self._tell, self._process = silence, process

    def begin(self, what: str) -> None:
        """The next part; those before it are done, or under way elsewhere."""
        self._what = what
        self._tell(what, sum(self._begun), self._total)
        self._begun[self._process] += 1

    def within(self, detail: str) -> None:
        """Something to say about the part that is under way."""
        self._tell(f"{self._what}, {detail}", sum(self._begun) - 1, self._total)

    def wait(self) -> None:
        """Nothing is left to begin here."""
        self._tell("what other processes have begun", max(sum(self._begun) - 1, 0), self._total)

    def end(self) -> None:
        """All parts are done."""
        self._tell("done", self._total, self._total)
