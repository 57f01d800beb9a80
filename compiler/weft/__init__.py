"""Weft: algorithms over sets of vectors, compiled to exact transformers.

    weft.parse      text -> syntax tree                     weft.compile    spec -> checkpoint
    weft.check      spec -> checked spec                    weft.load       checkpoint -> nn.Module
    weft.interpret  spec, inputs -> outputs, the meaning    weft.verify     spec or checkpoint -> verdict
    weft.catalogue  the built-in specs

A spec may be given as its text, a built-in name, a path, or what `parse` and `check` return. Nothing here imports torch
before a model is loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.errors import InputError, SpecError, WeftError
from weft.source import Source
from weft.types import Checked
from weft.version import VERSION as __version__

if TYPE_CHECKING:
    from weft.api import assignment, check, interpret, load, parse, verify
    from weft.compiling import compile
    from weft.evidence.verdict import Verdict
    from weft.formatting.formatter import format
    from weft.locate import catalogue
    from weft.matching import match
    from weft.meaning.interpreter import Interpreter
    from weft.plotting.pictures import plot
    from weft.reporting.making import report
    from weft_runtime import Checkpoint, Model

__all__ = [
    "Checked",
    "Checkpoint",
    "InputError",
    "Interpreter",
    "Model",
    "Source",
    "SpecError",
    "Verdict",
    "WeftError",
    "__version__",
    "assignment",
    "catalogue",
    "check",
    "compile",
    "format",
    "interpret",
    "load",
    "match",
    "parse",
    "plot",
    "report",
    "verify",
]

_HOMES = {
    "assignment": "weft.api",
    "catalogue": "weft.locate",
    "check": "weft.api",
    "compile": "weft.compiling",
    "format": "weft.formatting.formatter",
    "interpret": "weft.api",
    "load": "weft.api",
    "match": "weft.matching",
    "parse": "weft.api",
    "plot": "weft.plotting.pictures",
    "report": "weft.reporting.making",
    "verify": "weft.api",
    "Checkpoint": "weft_runtime",
    "Interpreter": "weft.meaning.interpreter",
    "Model": "weft_runtime",
    "Verdict": "weft.evidence.verdict",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'weft' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
