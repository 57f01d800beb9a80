"""Steps of Lloyd's algorithm in Ray: parts of the rows lie in its store, sums come back and are added.

pip install ray && python examples/cluster/with_ray.py
"""

from __future__ import annotations

from functools import reduce
from operator import add

import numpy as np
import ray
import torch
from step import moved, part

import weftc

rows = torch.tensor(np.random.default_rng(0).normal(size=(1_000_000, 16)), dtype=torch.float32)
compiled, centers = weftc.compile("lloyd", {"d": 16, "k": 64}).to_bytes(), rows[:64].clone()
ray.init()
work, parts = ray.remote(part), [ray.put(some) for some in rows.split(100_000)]
for _ in range(10):
    total = reduce(add, ray.get([work.remote(compiled, some, centers) for some in parts]))
    centers = moved(total, centers)
print(centers)
