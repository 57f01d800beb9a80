"""Training on from a compiled checkpoint: soft k-means learns which coordinate to ignore.

    python examples/training_on.py

Three groups in the plane, and a third coordinate that is noise, three times as wide as the groups are apart. Compiled
soft k-means, started from one point of each group, is misled by it. The compiled weights are a starting point like any
other: loaded with `trainable=True`, the matrices that compare points with centers are trained, on new data in every
step, to give each point's share to its own group. Printed: loss and accuracy on data kept aside, the distance to the
compiled weights, what each coordinate counts in the head that assigns, and whether the result is still what the spec
says: it should not be.
"""

from __future__ import annotations

import sys

import numpy as np
import torch

import weftc

LAYERS, STEPS, RATE, EACH = 2, 40, 0.05, 8
MEANS = np.array([[0.0, 2.0, 0.0], [-2.0, -1.0, 0.0], [2.0, -1.0, 0.0]])
GROUP = torch.arange(3).repeat_interleave(EACH)


def judged(model: weftc.Model, seed: int, problems: int = 2) -> tuple[torch.Tensor, float]:
    """On a batch of problems: the mean cross-entropy of the shares, and how many points are in their own group."""
    rng = np.random.default_rng(seed)
    x = MEANS[GROUP] + rng.normal(size=(problems, 3 * EACH, 3)) * [0.7, 0.7, 6.0]
    shares = model(x=x, c=x[:, ::EACH], layers=LAYERS)["shares"]
    own = shares[:, torch.arange(3 * EACH), GROUP]
    return -own.log().mean(), float((shares.argmax(dim=2) == GROUP).double().mean())


def main() -> int:
    torch.set_num_threads(1)  # the matrices are tiny
    model = weftc.load(weftc.compile("soft_kmeans", {"d": 3, "k": 3}, {"gamma": 0.2}), trainable=True)
    scores = {name: weight for name, weight in model.named_parameters() if name.endswith((".l2.0.q", ".l2.0.k"))}
    compiled = {name: weight.detach().clone() for name, weight in scores.items()}
    optimizer = torch.optim.Adam(scores.values(), lr=RATE)
    print("step   loss  right  distance  coordinates count")
    losses = []
    for step in range(STEPS + 1):
        if step % 10 == 0:
            with torch.no_grad():
                loss, right = judged(model, 0, problems=6)
                moved = sum(float(((weight - compiled[name]) ** 2).sum()) for name, weight in scores.items()) ** 0.5
                count = torch.diag(model.tensor("layer.0.0.y.l2.0.q").T @ model.tensor("layer.0.0.y.l2.0.k"))[:3]
            losses.append(float(loss))
            print(f"{step:4}  {losses[-1]:5.2f}  {right:5.0%}  {moved:8.2f} ", *(f"{number:5.2f}" for number in count))
        loss, _ = judged(model, step + 1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    verdict = weftc.verify(model.checkpoint(), cases=1).verdict
    print(f"is it still soft_kmeans? {verdict}")
    return 0 if losses[-1] < losses[0] / 10 and verdict == "refuted" else 1


if __name__ == "__main__":
    sys.exit(main())
