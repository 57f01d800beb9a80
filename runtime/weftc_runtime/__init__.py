"""Runs Weft checkpoints: a transformer program and its tensors become an `nn.Module`. Needs nothing of the compiler.

Importing this package does not import torch (the compiler writes checkpoints with NumPy alone); `load` and `Model` do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weftc_runtime.data.progress import Progress
from weftc_runtime.errors import ModelError, RunError, WeftRuntimeError
from weftc_runtime.format.checkpoint import Checkpoint

if TYPE_CHECKING:
    from weftc_runtime.data.results import OneHot, Outputs, Report, Trace
    from weftc_runtime.model import Model, load

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
    "OneHot": "data.results",
    "Outputs": "data.results",
    "Report": "data.results",
    "Trace": "data.results",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(f"weftc_runtime.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'weftc_runtime' has no attribute {name!r}")
