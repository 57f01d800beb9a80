"""What an experiment is: sizes, a measurement in named parts, findings, a picture."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from weftc_runtime.data.progress import Progress

BUDGETS = ("tiny", "small", "full")  # seconds, minutes, the papers' own sizes
Measured = dict[str, Any]  # plain data, as JSON has it


@dataclass(frozen=True, slots=True)
class Judgement:
    """What was found about one claim of a paper; `holds` is None where this run cannot tell."""

    claim: str  # its key in the paper's data file
    ours: str
    holds: bool | None


@dataclass(frozen=True, slots=True)
class Experiment:
    """One figure, table or law of a paper."""

    name: str
    title: str
    sizes: Mapping[str, Any]  # budget -> what `measure` takes
    measure: Callable[[Study, Any], Measured]
    judge: Callable[[Measured], Sequence[Judgement]]
    draw: Callable[[Figure, Measured], None]
    inches: tuple[float, float] = (6.9, 2.6)  # of the picture

    @property
    def paper(self) -> str:
        return self.name.partition("-")[0]


class Study:
    """Runs the parts of a measurement, tells how far it is, and keeps what is done in a folder."""

    def __init__(self, folder: Path | None = None, progress: Progress | None = None) -> None:
        self._folder, self._progress = folder, progress

    def run(self, parts: Mapping[str, Callable[[], Any]]) -> Measured:
        """Every part's result by its label; a part that the folder has already is read."""
        found: Measured = {}
        for number, (label, part) in enumerate(parts.items()):
            if self._progress is not None:
                self._progress(label, number, len(parts))
            kept = self._folder and self._folder / f"{re.sub(r'[^A-Za-z0-9.+-]+', '_', label)}.json"
            if kept and kept.exists():
                found[label] = json.loads(kept.read_text(encoding="utf-8"))
                continue
            found[label] = part()
            if kept:
                from weftc_runtime.format.whole_file import whole_file

                kept.parent.mkdir(parents=True, exist_ok=True)
                with whole_file(kept) as place:
                    Path(place).write_text(json.dumps(found[label]), encoding="utf-8")
        return found


def falls(values: Sequence[float], slack: float = 0.0) -> bool:
    """Whether every value is below the one before it, up to a slack."""
    return all(b < a + slack for a, b in pairwise(values))


def sci(value: float) -> str:
    """A number in a table."""
    return f"{value:.2g}" if value == 0 or 1e-3 <= abs(value) < 1e4 else f"{value:.1e}"
