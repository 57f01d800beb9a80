"""A model gives back its checkpoint: the compiled one as long as nobody touched it, the trained one afterwards."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from weftc.compiling import compile
from weftc_runtime import Checkpoint, load

SIZES = {"d": 2, "k": 2}
X = np.array([[-3.0, 1.0], [-2.0, 0.5], [0.0, 0.25], [2.0, -1.0], [3.0, 4.0]])


def test_untouched_weights_make_the_same_file() -> None:
    compiled = compile("soft_kmeans", SIZES, {"gamma": 0.5}, layers=3)
    assert load(compiled, trainable=True).checkpoint().to_bytes() == compiled.to_bytes()
    assert load(compiled, dtype=torch.float32).checkpoint().to_bytes() == compiled.to_bytes()


def test_trained_weights_are_saved_and_run(tmp_path: Path) -> None:
    compiled = compile("soft_kmeans", SIZES)
    model = load(compiled, trainable=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    before = model.checkpoint()
    (model(x=X, c=X[:2])["centers"] ** 2).sum().backward()
    optimizer.step()
    model.checkpoint().save(tmp_path / "trained.safetensors")
    again = Checkpoint.load(tmp_path / "trained.safetensors")
    moved = [name for name, array in again.tensors.items() if not np.array_equal(array, compiled.tensors[name])]
    assert "layer.1.0.c.v" in moved
    assert all(np.array_equal(array, compiled.tensors[name]) for name, array in before.tensors.items())  # a copy
    kept = load(again, trainable=True)  # the same machine
    assert torch.equal(kept(x=X, c=X[:2])["centers"], model(x=X, c=X[:2])["centers"])
