"""Steps of Lloyd's algorithm in Dask: parts of the rows lie on its workers, sums are added there, in any order.

pip install 'dask[distributed]' && python examples/cluster/with_dask.py
"""

from __future__ import annotations

import numpy as np
import torch
from dask import bag
from dask.distributed import Client
from step import MergeableSums, moved, part

import weftc


def add(one: MergeableSums, other: MergeableSums) -> MergeableSums:
    """Sums of more rows."""
    return one + other


if __name__ == "__main__":
    rows = torch.tensor(np.random.default_rng(0).normal(size=(1_000_000, 16)), dtype=torch.float32)
    compiled, centers = weftc.compile("lloyd", {"d": 16, "k": 64}).to_bytes(), rows[:64].clone()
    with Client():
        parts = bag.from_sequence(rows.split(100_000), npartitions=10).persist()
        for _ in range(10):
            total = parts.map(lambda some, centers=centers: part(compiled, some, centers)).fold(add).compute()
            centers = moved(total, centers)
    print(centers)
