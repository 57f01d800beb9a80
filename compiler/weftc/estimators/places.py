"""Where models run, and the models that are at hand: made once for a checkpoint, used again by the same thread.

A model notes what its last run did, so threads do not share them.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from threading import local
from typing import TYPE_CHECKING, Any

import numpy as np

from weftc.estimators.mistakes import EstimatorError

if TYPE_CHECKING:
    from weftc_runtime import Checkpoint, Model

MOST_KEPT = 8


class _Shelf(local):
    """The models of one thread, the one used last at the end; a checkpoint is kept so that its id stays its own."""

    def __init__(self) -> None:
        self.models: OrderedDict[tuple[Any, ...], tuple[Checkpoint, Model]] = OrderedDict()


_shelf = _Shelf()


@dataclass(frozen=True, slots=True)
class Place:
    """A device and a backend."""

    device: str
    backend: str

    def model(self, checkpoint: Checkpoint, dtype: np.dtype[Any]) -> Model:
        """The model of a checkpoint, storing its state in a dtype."""
        key = id(checkpoint), str(dtype), self.device, self.backend
        models = _shelf.models
        if key not in models:
            models[key] = checkpoint, self._loaded(checkpoint, dtype)
        models.move_to_end(key)
        while len(models) > MOST_KEPT:
            models.popitem(last=False)
        return models[key][1]

    def _loaded(self, checkpoint: Checkpoint, dtype: np.dtype[Any]) -> Model:
        import torch

        from weftc_runtime import load

        kind = torch.float32 if dtype == np.float32 else torch.float64
        try:
            return load(checkpoint, dtype=kind, device=self.device, backend=self.backend)
        except (RuntimeError, AssertionError) as error:  # torch on devices it does not know or have
            raise EstimatorError(f"device={self.device!r} cannot be used: {str(error).splitlines()[0]}") from None
