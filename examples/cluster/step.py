"""One step of Lloyd's algorithm on some of the rows: what any engine can run where rows lie, and add up in any order.

    python examples/cluster/step.py

runs ten steps over parts of the data and compares the bits with a run that has all rows.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

import weftc
from weftc_runtime.exact.mergeable import MergeableSums


def part(checkpoint: bytes, rows: Tensor, centers: Tensor) -> MergeableSums:
    """The sums of some rows by their nearest center; sent to somebody who adds them."""
    model = weftc.load(weftc.Checkpoint.from_bytes(checkpoint), dtype=rows.dtype)
    labels = model(x=rows, c=centers, layers=1)["labels"].indices
    return MergeableSums.of(rows, labels, len(centers))


def moved(total: MergeableSums, centers: Tensor) -> Tensor:
    """The next centers; one without rows stays."""
    return torch.where(total.counts[:, None] > 0, total.means().to(centers.dtype), centers)


def main() -> None:
    """Ten steps over four parts."""
    rows = torch.tensor(np.random.default_rng(0).normal(size=(10_000, 8)), dtype=torch.float32)
    compiled, centers = weftc.compile("lloyd", {"d": 8, "k": 16}), rows[:16].clone()
    whole = weftc.load(compiled, dtype="float32")(x=rows, c=centers, layers=10)["centers"]
    for _ in range(10):
        total, *rest = [part(compiled.to_bytes(), some, centers) for some in rows.split(3_000)]
        for one in rest:
            total = total + one
        centers = moved(total, centers)
    print("the same bits:", torch.equal(centers, whole))


if __name__ == "__main__":
    main()
