"""A training step through a compiled model, beside the same thing written in plain torch: ratios of CPU time."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch

from weftc.training.trainable import trainable

LAYERS, TURNS = 6, 9
SPEC = """algorithm moving
tokens i, l in points
inputs x[i] : R^d
learn h = 1 > 0 per layer, t = 1/2 in [0, 1] per layer
layer x[i] = x[i] + t * ((sum[l] softmax[l](-|x[i] - x[l]|^2 / (2*h^2)) * x[l]) - x[i])
outputs points = x
"""


def ratio(dtype: torch.dtype, scores: str = "dot", problems: int = 8, points: int = 128) -> tuple[float, float]:
    """CPU time of a step beside plain torch (the least of several turns), and the largest difference of gradients."""
    model = trainable(SPEC, {"d": 2}, layers=LAYERS, dtype=dtype, scores=scores)  # type: ignore[arg-type]
    x = torch.tensor(np.random.default_rng(0).normal(size=(problems, points, 2)), dtype=dtype)
    raw = torch.zeros(LAYERS, 2, dtype=dtype, requires_grad=True)

    def compiled() -> None:
        model.zero_grad()
        model(x=x)["points"].square().sum().backward()

    def plain() -> None:
        raw.grad = None
        z = x
        for bandwidth, speed in raw:
            weights = torch.softmax(-(torch.cdist(z, z) ** 2) / (2 * bandwidth.exp() ** 2), dim=-1)
            z = z + torch.sigmoid(speed) * (weights @ z - z)
        z.square().sum().backward()  # type: ignore[no-untyped-call]

    taken: dict[Callable[[], None], float] = dict.fromkeys((compiled, plain), np.inf)
    for _ in range(TURNS):
        for step in taken:
            begun = time.process_time()
            step()
            taken[step] = min(taken[step], time.process_time() - begun)
    ours, theirs = torch.stack([model.raw["h"].grad, model.raw["t"].grad], dim=1), raw.grad
    assert theirs is not None
    return taken[compiled] / taken[plain], float((ours - theirs).abs().max() / theirs.abs().max())


def main() -> None:
    torch.set_num_threads(1)
    print("| precision | scores | step / plain torch | gradients differ by |\n|---|---|---|---|")
    for dtype in (torch.float64, torch.float32):
        for scores in ("dot", "l2"):
            slower, apart = ratio(dtype, scores)
            print(f"| {str(dtype)[6:]} | {scores} | {slower:.1f} | {apart:.0e} |")


if __name__ == "__main__":
    main()
