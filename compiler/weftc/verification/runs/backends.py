"""A model -> the backends it is judged on, loaded once each.

`auto` takes whichever backend is the faster one for a problem, so evidence about `auto` is evidence about all of them:
the reference, and the planned backend where its plan covers the model.
"""

from __future__ import annotations

import torch

from weftc_runtime import Checkpoint, Model, RunError, load
from weftc_runtime.kernels.native.library import library


class Runners:
    """Models as backends run them; loading one, and planning how to run it, takes longer than a small case."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, str], tuple[Checkpoint, Model]] = {}  # a checkpoint that is held keeps its id

    def model(self, checkpoint: Checkpoint, dtype: str, backend: str) -> Model:
        """The model on a backend. It is the same one in every precision: ask for it again to change that."""
        key = id(checkpoint), backend
        if key not in self._known:
            self._known[key] = checkpoint, load(checkpoint, backend=backend)
        return self._known[key][1].to(getattr(torch, dtype))

    def backends(self, checkpoint: Checkpoint, asked: str) -> tuple[str, ...]:
        """The backends that `asked` stands for."""
        if asked != "auto":
            return (asked,)
        if self.uncovered(checkpoint):
            return ("reference",)
        library()  # small problems do not wait for a compiler, but this is about what it makes
        return ("reference", "planned")

    def uncovered(self, checkpoint: Checkpoint) -> str:
        """Why the planned backend does not cover a model; empty where it does."""
        try:
            self.model(checkpoint, "float64", "planned").plan()
        except RunError as reason:
            return str(reason)
        except Exception:  # a fault of the planner: runs will show it
            return ""
        return ""
