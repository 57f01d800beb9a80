"""Weft: algorithms over sets of vectors, compiled to exact transformers.

    weftc.parse      text -> syntax tree                     weftc.compile    spec -> checkpoint
    weftc.check      spec -> checked spec                    weftc.load       checkpoint -> nn.Module
    weftc.interpret  spec, inputs -> outputs, the meaning    weftc.verify     spec or checkpoint -> verdict
    weftc.catalogue  the built-in specs                      weftc.disguise   checkpoint -> the same in other weights
    weftc.explain    checkpoint -> a spec, from its weights

A spec may be given as its text, a built-in name, a path, or what `parse` and `check` return. Nothing here imports torch
before a model is loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weftc.core import display
from weftc.core.errors import InputError, SpecError, WeftError
from weftc.core.source import Source
from weftc.core.types import Checked
from weftc.version import VERSION as __version__

if TYPE_CHECKING:
    from weftc.api import assignment, check, interpret, load, parse, verify
    from weftc.compiling import compile
    from weftc.decompiler.explanation import explain
    from weftc.estimators.matching import match
    from weftc.files.locate import catalogue
    from weftc.interop.exporting import export
    from weftc.interpreter.interpreter import Interpreter
    from weftc.language.format.formatter import format
    from weftc.show.figures.pictures import plot
    from weftc.show.page.making import report
    from weftc.training.trainable import trainable
    from weftc.training.training import train
    from weftc.variants.attention import compare
    from weftc.variants.disguising import disguise
    from weftc.verification.verdict import Verdict
    from weftc_runtime import Checkpoint, Model

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
    "circuit",
    "compare",
    "compile",
    "disguise",
    "distance",
    "explain",
    "export",
    "format",
    "interpret",
    "load",
    "match",
    "parse",
    "plot",
    "report",
    "train",
    "trainable",
    "verify",
]

_HOMES = {
    "assignment": "weftc.api",
    "catalogue": "weftc.files.locate",
    "check": "weftc.api",
    "circuit": "weftc.circuits.circuit",
    "compare": "weftc.variants.attention",
    "compile": "weftc.compiling",
    "distance": "weftc.variants.distance",
    "disguise": "weftc.variants.disguising",
    "explain": "weftc.decompiler.explanation",
    "export": "weftc.interop.exporting",
    "format": "weftc.language.format.formatter",
    "interpret": "weftc.api",
    "load": "weftc.api",
    "match": "weftc.estimators.matching",
    "parse": "weftc.api",
    "plot": "weftc.show.figures.pictures",
    "report": "weftc.show.page.making",
    "train": "weftc.training.training",
    "trainable": "weftc.training.trainable",
    "verify": "weftc.api",
    "Checkpoint": "weftc_runtime",
    "Interpreter": "weftc.interpreter.interpreter",
    "Model": "weftc_runtime",
    "Verdict": "weftc.verification.verdict",
}

_DRAWN = "weftc.show.displays"
display.register(**{kind: f"{_DRAWN}:{kind}_html" for kind in ("spec", "checked", "error", "catalogue")})


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'weftc' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
