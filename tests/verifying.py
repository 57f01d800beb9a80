"""What the tests of verification share: a small spec, and models of it that somebody has edited."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from weftc.compiling import checked_spec
from weftc.verification.cases.inputs import cases
from weftc.verification.runs.runs import judge_of
from weftc_runtime import Checkpoint
from weftc_runtime.format.program import Attend

NEAREST = """algorithm nearest
tokens i in points, j in centers : k
inputs x[i] : R^d, c[j] : R^d
layer
  y[i,j] = argmin[j] |x[i] - c[j]|^2
  then
  c[j] = mean[i] x[i] where y[i,j] else c[j]
outputs c, y
example "by hand"
  x = [0], [2]  c = [1], [9]  layers 1
  c = [1], [9]
"""
SMALL = {"d": 1, "k": 2}


def head_values(model: Checkpoint) -> list[str]:
    """The value matrices of all heads of the layer."""
    attends = [sub for step in model.program.layer for sub in step.sublayers if isinstance(sub, Attend)]
    return sorted({head.value for attend in attends for head in attend.heads if head.value})


def edited(model: Checkpoint, name: str, values: np.ndarray) -> Checkpoint:
    return replace(model, tensors={**model.tensors, name: values})


def is_caught(model: Checkpoint, count: int = 12) -> bool:
    checked = checked_spec(model.spec_text)
    judged = judge_of(checked, model, "float64")
    return any(judged.judge(case).divergence is not None for case in cases(checked, model.dims, count))
