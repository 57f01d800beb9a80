"""Forward and backward of soft layers beside the reference, in one run: `python -m weftc.tools.bench.gradients`."""

from __future__ import annotations

import time
from statistics import median

import numpy as np
import torch

import weftc
from weftc_runtime import Model

SIZES = ((0, 1000), (0, 5000), (32, 100), (64, 50))  # problems (0: no batch), points of each
ROUNDS, LAYERS, WIDTH, CENTERS = 5, 5, 8, 8


def seconds(model: Model, x: torch.Tensor) -> float:
    """One training step without the optimizer."""
    model.zero_grad()
    began = time.perf_counter()
    model(x=x, c=x[..., :CENTERS, :])["centers"].square().sum().backward()
    return time.perf_counter() - began


def main() -> None:
    torch.set_num_threads(1)
    checkpoint = weftc.compile("soft_kmeans", {"d": WIDTH, "k": CENTERS}, layers=LAYERS)
    models = [weftc.load(checkpoint, trainable=True, backend=backend) for backend in ("reference", "auto")]
    print("| problems | points | reference, ms | gradients, ms | times faster |\n|---|---|---|---|---|")
    for problems, points in SIZES:
        shape = (problems, points, WIDTH) if problems else (points, WIDTH)
        x = torch.tensor(np.random.default_rng(0).normal(size=shape))
        rounds = [[seconds(model, x) for model in models] for _ in range(ROUNDS + 1)][1:]  # the first warms up
        slow, fast = (1000 * median(times) for times in zip(*rounds, strict=True))
        print(f"| {problems or 1} | {points} | {slow:.0f} | {fast:.1f} | {slow / fast:.1f} |")


if __name__ == "__main__":
    main()
