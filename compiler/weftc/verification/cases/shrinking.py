"""A case that fails -> one as small as can be found quickly that still does, written so that it can be pasted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from weftc.core.types import Checked
from weftc.verification.cases.inputs import Case
from weftc.verification.steps.comparing import Divergence
from weftc.verification.steps.layers import Judge

SHRINKINGS = 120  # smaller cases tried
LONG = 2000  # tokens of a case that takes as long as two short ones


def shrunk(judge: Judge, case: Case) -> tuple[Case, Divergence]:
    """A case as small as can be found quickly that still fails, and how it fails."""
    answers = judge.judge(case, answers=False).divergence is None  # then it fails only in what is asked for at the end
    divergence = judge.judge(case, answers).divergence
    assert divergence is not None
    tries = SHRINKINGS
    found = True
    while found and tries > 0:
        found = False
        for candidate in smaller(judge.checked, case):
            tries -= 1 + candidate.tokens // LONG
            worse = judge.judge(candidate, answers).divergence
            if worse is not None:
                case, divergence, found = candidate, worse, True
                break
            if tries <= 0:
                break
    return case, divergence


def written(case: Case) -> str:
    """The inputs of a case, to paste."""
    lines = []
    for name, values in (*case.inputs.items(), *case.noise.items()):
        text = np.array2string(
            np.asarray(values), separator=", ", threshold=60, floatmode="unique", max_line_width=96 - len(name)
        )
        indent = " " * (len(name) + 5)
        lines.append(f"  {name} = {text}".replace("\n", "\n" + indent))
    return "\n".join(lines)


def smaller(checked: Checked, case: Case) -> Iterator[Case]:
    """Cases a little simpler than one that fails: fewer layers, fewer tokens, rounder numbers. The simplest first."""
    if case.layers > 1:
        yield replace(case, layers=1)
    homes = {checked.fields[name].home for name in case.inputs}
    for home in sorted(h for h in homes if checked.is_open(h)):
        mine = [name for name in (*case.inputs, *case.noise) if checked.fields[name].home == home]
        size = len(next(case.inputs[name] for name in mine if name in case.inputs))
        chunk = size // 2
        while chunk >= 1:
            for first in range(0, size - chunk + 1, chunk):
                kept = [row for row in range(size) if not first <= row < first + chunk]
                if kept:
                    yield _with_rows(case, mine, kept)
            chunk //= 2
    for digits in (0, 1, 3, 6):
        for name, values in case.inputs.items():
            if checked.fields[name].kind in ("number", "vector", "real"):
                rounder = np.round(values, digits) + 0.0  # no zero has a sign
                bound = checked.fields[name].bound
                fits = bound is None or all(bound.admits(float(v)) for v in rounder.reshape(-1))
                if fits and not np.array_equal(rounder, values):
                    yield replace(case, inputs={**case.inputs, name: rounder})


def _with_rows(case: Case, names: list[str], rows: list[int]) -> Case:
    inputs = {name: values[rows] if name in names else values for name, values in case.inputs.items()}
    noise = {name: values[:, rows] if name in names else values for name, values in case.noise.items()}
    return replace(case, inputs=inputs, noise=noise)
