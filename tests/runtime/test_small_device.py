"""Pretended devices, each in a process of its own: torch cannot forget a device once it knows it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parents[1]


@pytest.mark.parametrize("kind", ["small", "wide"])
def test_models_on_a_device_without_float64_and_on_one_that_has_it(kind: str) -> None:
    words = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*words, str(HERE / f"on_{kind}_device.py")], cwd=HERE.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
