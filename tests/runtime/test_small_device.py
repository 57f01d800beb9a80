"""A device without float64, in a process of its own: torch cannot forget a device once it knows it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parents[1]


def test_models_on_a_device_without_float64() -> None:
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / "on_small_device.py")]
    done = subprocess.run(words, cwd=HERE.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
