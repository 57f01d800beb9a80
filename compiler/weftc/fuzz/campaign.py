"""A seed -> random specs, one after the other, until time or number runs out, and what was found."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from weftc.fuzz.reducing import SECONDS, reduced
from weftc.fuzz.specs import Drawn, draw
from weftc.fuzz.trials import Trial, TrialCounts, TrialFailure, trials
from weftc_runtime.data.progress import Progress, silence


@dataclass(frozen=True, slots=True)
class Finding:
    """One failure, made small; `number` is that of the spec it was found with."""

    number: int
    trial: Trial
    failure: TrialFailure


@dataclass(slots=True)
class Campaign:
    """Random specs of one seed. `limit` and `minutes` bound it; both may be open."""

    seed: int = 0
    limit: int | None = None
    minutes: float | None = None
    most: int = 10  # failures, after which it stops
    seconds: float = SECONDS  # spent on making one failure small
    first: int = 0
    tally: TrialCounts = field(default_factory=TrialCounts)

    def run(self, tell: Progress = silence) -> Iterator[Finding]:
        """Everything that fails, as it is found; a fault that shows in several styles of one spec counts once."""
        until = None if self.minutes is None else time.monotonic() + 60 * self.minutes
        number, found = self.first, 0
        while found < self.most and (self.limit is None or number < self.first + self.limit):
            if until is not None and time.monotonic() > until:
                return
            tell(f"specs, {self.tally.steps} steps compared, {found} failures", number - self.first, self.limit)
            seen: set[tuple[str, str]] = set()
            for trial, failure in self._trials(number):
                if (failure.kind, failure.where) not in seen:
                    seen.add((failure.kind, failure.where))
                    tell(f"specs, {failure.kind} in spec {number}, making it small", number - self.first, self.limit)
                    found += 1
                    yield Finding(number, *reduced(trial, failure, self.seconds))
            number += 1

    def _trials(self, number: int) -> Iterator[tuple[Trial, TrialFailure]]:
        drawn: Drawn = draw(self.seed, number)
        yield from trials(drawn, self.seed, number, self.tally)
