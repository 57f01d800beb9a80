"""The parts of a long piece of work, counted for whoever asked to be told how far it is."""

from __future__ import annotations

from weftc_runtime.data.progress import Progress, silence


class Parts:
    """Says which part is under way, and how many are done."""

    def __init__(self, tell: Progress | None, total: int | None = None) -> None:
        self._tell, self._total = tell or silence, total
        self._begun, self._what = 0, ""

    def begin(self, what: str) -> None:
        """The next part; those before it are done."""
        self._what = what
        self._tell(what, self._begun, self._total)
        self._begun += 1

    def within(self, detail: str) -> None:
        """Something to say about the part that is under way."""
        self._tell(f"{self._what}, {detail}", self._begun - 1, self._total)

    def end(self) -> None:
        """All parts are done."""
        self._tell("done", self._begun, self._total)
