"""Spec texts and shortcuts for the tests of the interpreter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from weftc.interpreter.interpreter import InterpretedRun, Interpreter
from weftc.language.check.check import check
from weftc.language.parse.parse import parse

CLUSTERS = "algorithm test\ntokens i, l, q in points  j, h in centers : k\ninputs x[i] : R^d  c[j] : R^d\n"
POINTS = "algorithm test\ntokens i, l, q in points\ninputs x[i] : R^d\n"

FIVE = np.array([[-3.0], [-2.0], [0.0], [2.0], [3.0]])  # five points with a tie at 0
PAIR = np.array([[-1.0], [1.0]])
LINE = np.array([[0.0], [1.0], [2.0], [3.0], [10.0]])  # one cluster around 0, with an outlier
ORIGIN = np.array([[0.0]])

ASSIGN = "y[i,j] = argmin[j] |x[i] - c[j]|^2"
LLOYD = f"{CLUSTERS}layer {ASSIGN} then c[j] = mean[i] x[i] where y[i,j] else c[j] outputs c, y"


def interpreter(text: str, dims: Mapping[str, int] | None = None, **params: float) -> Interpreter:
    """The interpreter of a spec text."""
    return Interpreter(check(parse(text)), dims, params)


def run(text: str, inputs: Mapping[str, Any], layers: int = 1, **params: float) -> InterpretedRun:
    """A run of a spec text whose dimensions follow from the inputs."""
    return interpreter(text, **params).run(inputs, layers)
