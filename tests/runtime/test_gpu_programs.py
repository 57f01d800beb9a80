"""Programs for GPUs without one: interpreted against oracles, and compiled for five targets and looked at."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

from weftc_runtime.kernels.gpu import WIDEST
from weftc_runtime.kernels.triton.ahead import TARGETS, Compiled, broken_rules, compiled

HERE = Path(__file__).parents[1]
PROGRAMS = ("choose", "gather_sum", "soft")


def test_programs_as_they_are_interpreted() -> None:
    words = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", str(HERE / "on_triton.py")]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(words, cwd=HERE.parent, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr


def held_to_rules(name: str, dtype: str, target: str) -> Compiled:
    made = compiled(name, dtype, target)
    assert not broken_rules(name, made)
    assert 0 < made.registers <= 255
    return made


@pytest.fixture(autouse=True)
def _compiled_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_compile_and_keep_the_rules(name: str) -> None:
    held_to_rules(name, "fp32", "sm_80")


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["fp32", "fp64"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_compile_for_every_target_and_keep_the_rules(name: str, dtype: str, target: str) -> None:
    held_to_rules(name, dtype, target)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["fp32", "fp64"])
@pytest.mark.parametrize("features", [3, 40, 64, 100, WIDEST])
def test_wide_data_spill_nothing(features: int, dtype: str) -> None:
    for target in ("sm_75", "sm_90"):
        assert not broken_rules("choose", compiled("choose", dtype, target, features))


def test_sums_are_atomic_additions_of_integers() -> None:
    text = compiled("gather_sum", "fp32", "sm_90").text
    added = set(re.findall(r"\b(?:red|atom)\.\S+", text))
    assert added
    assert all(".add.u64" in one or ".add.s64" in one for one in added), added


@pytest.mark.parametrize(
    "line", ["sqrt.approx.ftz.f32 %f1, %f2;", "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "div.full.f32 %f1"]
)
def test_rules_can_be_broken(line: str) -> None:
    assert broken_rules("choose", Compiled(line, 40, 0))
    assert broken_rules("choose", Compiled("", 40, 8))
    assert broken_rules("choose", Compiled("ex2.approx.ftz.f32 %f1, %f2;", 40, 0))
    assert not broken_rules("soft", Compiled("ex2.approx.ftz.f32 %f1, %f2;", 40, 0))
