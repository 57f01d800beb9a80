"""The machine and the software of a run, in words."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from weftc.verification.runs.processes import cores

PACKAGES = ("weftc", "torch", "numpy", "scipy", "scikit-learn", "faiss-cpu", "POT")
CPU = Path("/proc/cpuinfo")


def machine() -> dict[str, str]:
    """What a reader must know to compare numbers."""
    found = {"cpu": processor(), "cores": str(cores()), "system": f"{platform.system()} {platform.machine()}"}
    load = getattr(os, "getloadavg", lambda: None)()
    if load is not None:
        found["load before"] = f"{load[0]:.1f}"
    found["python"] = platform.python_version()
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def processor() -> str:
    """The model of the processor and its vector instructions."""
    try:
        lines = CPU.read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    flags = next((line.split() for line in lines if line.startswith("flags")), [])
    vectors = next((name for name in ("avx512f", "avx2", "avx", "sse2") if name in flags), "")
    model = named[0] if named else platform.machine()
    return f"{model} ({vectors})" if vectors else model
