"""Which heads move when a compiled model is trained on data it was not compiled for?

    python examples/which_heads_moved.py

The teacher is soft k-means that assigns points four times as sharply. The student is compiled with the ordinary
sharpness and trained to give the teacher's centers on data that are shifted away from the origin and stretched: once
with scores trained and all else frozen, once with values trained and scores frozen. What has to change is known, and
only the first can do it. Printed: the loss on data kept aside, and how far every head went, by `weftc.distance`.
"""

from __future__ import annotations

import sys

import numpy as np
import torch

import weftc

STEPS, RATE, SHIFT, STRETCH = 60, 0.02, np.array([2.0, -1.0]), np.array([1.0, 1.5])

FREEZES = {
    "nothing trained": ("kind:scores", "kind:values", "kind:carry"),
    "scores trained": ("kind:values", "kind:carry"),
    "values trained": ("kind:scores", "kind:carry"),
}


def points(seed: int, problems: int = 6) -> torch.Tensor:
    """Problems of twelve points each, away from the origin."""
    drawn = np.random.default_rng(seed).normal(size=(problems, 12, 2))
    return torch.tensor(drawn * STRETCH + SHIFT)


def trained(compiled: weftc.Checkpoint, teacher: weftc.Model, freeze: tuple[str, ...]) -> tuple[weftc.Model, float]:
    """A student after training, and its loss on data kept aside."""
    student = weftc.load(compiled, trainable=True, freeze=freeze)
    weights = [weight for weight in student.parameters() if weight.requires_grad]

    def loss(seed: int) -> torch.Tensor:
        x = points(seed)
        want, got = (model(x=x, c=x[:, :3])["centers"] for model in (teacher, student))
        return (got - want).square().mean()

    optimizer = torch.optim.Adam(weights, lr=RATE) if weights else None
    for step in range(STEPS if optimizer else 0):
        optimizer.zero_grad()
        loss(step + 1).backward()
        optimizer.step()
    with torch.no_grad():
        return student, float(loss(0))


def main() -> int:
    torch.set_num_threads(1)  # the matrices are tiny
    dims = {"d": 2, "k": 3}
    compiled = weftc.compile("soft_kmeans", dims, {"gamma": 0.5}, layers=1)
    teacher = weftc.load(weftc.compile("soft_kmeans", dims, {"gamma": 2.0}, layers=1))
    losses = {}
    for name, freeze in FREEZES.items():
        student, losses[name] = trained(compiled, teacher, freeze)
        found = weftc.distance(compiled, student)
        print(f"{name}: loss {losses[name]:.2f}")
        print("".join(f"  {head:18}{found.weights[head][1]:5.0%}\n" for head in found.moved), end="")
    return 0 if losses["scores trained"] < losses["nothing trained"] / 3 else 1


if __name__ == "__main__":
    sys.exit(main())
