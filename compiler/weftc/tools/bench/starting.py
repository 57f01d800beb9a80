"""Seconds to get ready: imports, compilation and first calls, in fresh processes, in alternating rounds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec

from weftc.tools.bench.process import THREADS
from weftc.tools.bench.results import Start

COMPILE = 'c = weftc.compile("lloyd", dims={"d": 128, "k": 256})'
CALL = "m(x=x, c=x[:256], layers=1)"

VERIFY = (
    "import subprocess, sys; "
    "subprocess.run([sys.executable, '-m', 'weftc', 'verify', 'lloyd'], capture_output=True, check=True)"
)

# module that is needed -> steps of one process: what, and the Python that is timed
OURS = {
    "import weftc": "import weftc",
    "first weftc.compile (lloyd, d 128, k 256)": COMPILE,
    "second weftc.compile": COMPILE,
    "weftc.load, with import of torch": "m = weftc.load(c)",
    "first call (5000 points, one layer)": "import torch; x = torch.rand(5000, 128); " + CALL,
    "second call": CALL,
}
CHAINS: dict[str, Mapping[str, str]] = {
    "weftc": OURS,
    "torch": {"import torch": "import torch"},
    "weftc.cli": {"weftc verify lloyd, the whole command": VERIFY},
    "sklearn": {"import sklearn.cluster": "import sklearn.cluster"},
    "faiss": {"import faiss": "import faiss"},
    "ot": {"import ot": "import ot"},
}


def starts(rounds: int, threads: int, say: Callable[[str], None]) -> list[Start]:
    """Every step, once per round."""
    chains = {module: steps for module, steps in CHAINS.items() if find_spec(module) is not None}
    found: dict[str, list[float]] = {what: [] for steps in chains.values() for what in steps}
    for number in range(rounds):
        for module, steps in chains.items():
            say(f"start: round {number + 1}: {module}")
            for what, seconds in zip(steps, _seconds(list(steps.values()), threads), strict=True):
                found[what].append(seconds)
    return [Start(what, tuple(seconds)) for what, seconds in found.items()]


def _seconds(steps: list[str], threads: int) -> list[float]:
    """Of every step, in one fresh process."""
    lines = ["import json, time", "seconds = []"]
    for step in steps:
        lines += ["begun = time.perf_counter()", step, "seconds.append(time.perf_counter() - begun)"]
    lines.append("print(json.dumps(seconds))")
    env = {**os.environ, **dict.fromkeys(THREADS, str(threads)), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", "\n".join(lines)]
    run = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    seconds: list[float] = json.loads(run.stdout.splitlines()[-1])
    return seconds
