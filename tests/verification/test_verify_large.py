"""Large runs: evidence about what the planned backend does only at some size, and proof that it does it there."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from verifying import NEAREST
from weftc.compiling import checked_spec, compile
from weftc.verification.judged import WIDE
from weftc.verification.runs.backends import Runners
from weftc.verification.runs.large import large_runs
from weftc.verification.verdict import Check
from weftc_runtime.kernels.native.library import library
from weftc_runtime.machines.native_machine import NativeMachine

SOFT = """algorithm soft
tokens i in points, j in centers : k
inputs x[i] : R^d, c[j] : R^d
layer
  c[j] = sum[i] softmax[i](-|x[i] - c[j]|^2) * x[i]
outputs c
"""
PART = 4096  # keys that are added up in one go
Seen = Counter[str]


def large(spec: str, sizes: tuple[int, int], dtype: str = "float64", tiles: bool = False) -> Check | None:
    checked = checked_spec(spec)
    model = compile(checked, {name: sizes[name == "k"] for name in checked.dims})
    return large_runs(checked, [model], "l2", dtype, 0, Runners(), tiles)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """How often the kernels were in use that need some size."""
    if library() is None:
        pytest.fail("this machine has no native kernels to look at")
    found: Seen = Counter()

    def watch(owner: Any, name: str, note: Any) -> None:
        true = getattr(owner, name)

        def noted(*arguments: Any, **named: Any) -> Any:
            given = true(*arguments, **named)
            found.update(note(*arguments))
            return given

        monkeypatch.setattr(owner, name, noted)

    def instructions(machine: NativeMachine, layers: int, *_: Any) -> list[str]:
        points = max(ends[-1] for ends in machine.starts.values())
        found = [each.name for each in machine.plan.instructions]
        deep = [f"{name} of many layers" for name in found if layers > 1]
        kept = ["exponentials kept"] if machine.store is not None and machine.store.counts()[1] > layers > 1 else []
        return [*deep, *kept, *(f"{name} in parts" for name in found if points > PART)]

    watch(NativeMachine, "_to", instructions)
    return found


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_searches_with_bounds_and_sums_that_are_moved_are_judged(seen: Seen, dtype: str) -> None:
    check = large(NEAREST, WIDE, dtype)
    assert check is not None
    assert check.passed, check.detail
    assert check.backend == "planned"
    assert seen["choose of many layers"] > 0  # bounds and sums are carried from layer to layer there
    assert seen["gather_sum of many layers"] > 0


def test_tiles_are_merged(seen: Seen) -> None:
    check = large(SOFT, (2, 24), tiles=True)
    assert check is not None
    assert check.passed, check.detail
    assert seen["soft in parts"] > 0  # parts of keys, each added up on its own


def test_runs_that_nobody_watches_are_judged_too(seen: Seen) -> None:
    check = large("sinkhorn_log", (2, 3))
    assert check is not None
    assert check.passed, check.detail
    assert seen["exponentials kept"] > 0


def test_an_unwatched_run_that_differs_falls_short(monkeypatch: pytest.MonkeyPatch) -> None:
    from weftc.verification.steps.models import Watched

    true = Watched.run
    monkeypatch.setattr(Watched, "run", lambda self, case: {n: v + 1e-9 for n, v in true(self, case).items()})
    for spec in (NEAREST, SOFT):
        check = large(spec, (2, 3))
        assert check is not None
        assert not check.passed
        assert "a run of its own differs by 1e-09 from one that is traced" in check.detail


def test_heads_that_do_the_same_at_any_size_are_left_out() -> None:
    assert large("knn", (2, 3)) is None
