"""Runs Weft checkpoints: a transformer program and its tensors become an `nn.Module`. Needs nothing of the compiler.

Importing this package does not import torch (the compiler writes checkpoints with NumPy alone); `load` and `Model` do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft_runtime.checkpoint import Checkpoint
from weft_runtime.errors import ModelError, RunError, WeftRuntimeError
from weft_runtime.progress import Progress

if TYPE_CHECKING:
    from weft_runtime.model import Model, load
    from weft_runtime.results import OneHot, Outputs, Report, Trace

__all__ = [
    "Checkpoint",
    "Model",
    "ModelError",
    "OneHot",
    "Outputs",
    "Progress",
    "Report",
    "RunError",
    "Trace",
    "WeftRuntimeError",
    "load",
]

_LAZY = {
    "Model": "model",
    "load": "model",
    "OneHot": "results",
    "Outputs": "results",
    "Report": "results",
    "Trace": "results",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(f"weft_runtime.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'weft_runtime' has no attribute {name!r}")
