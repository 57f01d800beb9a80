"""Batches of problems, of one size and of several, and what is drawn for each."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from few_points import data, ragged
from programs import PERCENT, dual_ascent, hard_clustering, largest, soft_clustering
from weftc_runtime import OneHot, load
from weftc_runtime.data.noise import noise


# ---------------------------------------------------------------------- batches
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_batch_is_bit_equal_to_its_problems(dtype: torch.dtype) -> None:
    for model, inputs in (
        (load(hard_clustering(2, 3), dtype), ("x",)),
        (load(soft_clustering(2, 3, 1.5), dtype), ("x",)),
        (load(dual_ascent(2), dtype), ("x", "y")),
    ):
        parts = [{name: data(10 * seed + ord(name), 7) for name in inputs} for seed in range(3)]
        batch = model({name: torch.stack([part[name] for part in parts]) for name in inputs}, layers=3, seed=4)
        for number, part in enumerate(parts):
            single = model(part, layers=3, seed=4)
            for name, value in single.items():
                if isinstance(value, OneHot):
                    assert batch[name][number] == value
                else:
                    assert torch.equal(batch[name][number], value)


def test_ragged_batches_use_each_problems_own_size() -> None:
    """count, percentages and null values depend on the number of tokens."""
    places = [[0, 1, 2], [0, 2, 3, 5], [4]]
    xs, ys = [data(n, len(p)) for n, p in enumerate(places)], [data(50 + n, len(p)) for n, p in enumerate(places)]
    x, mask = ragged(places, 6, xs)
    y, _ = ragged(places, 6, ys)
    model = load(dual_ascent(2))
    masked = model(x=x, y=y, mask={"pairs": mask}, layers=2)
    listed = model(x=xs, y=ys, layers=2)
    for number, rows in enumerate(places):
        single = model(x=xs[number], y=ys[number], layers=2)
        assert torch.equal(masked["u"][number, rows], single["u"])
        assert torch.equal(masked["plan"][number][rows][:, rows], single["plan"])
        assert torch.equal(listed["u"][number, : len(rows)], single["u"])
        gaps = [place for place in range(6) if place not in rows]
        assert masked["u"][number, gaps].abs().sum() == 0
        assert masked["plan"][number][gaps].abs().sum() == 0
        assert masked["plan"][number][:, gaps].abs().sum() == 0


def test_padding_has_no_label_and_changes_no_rank() -> None:
    places = [[0, 1, 2, 3, 4], [1, 3]]
    parts = [torch.tensor([[0.0], [1.0], [2.0], [3.0], [10.0]]), torch.tensor([[4.0], [8.0]])]
    x, mask = ragged(places, 5, parts)
    model = load(hard_clustering(1, 1, update=PERCENT))
    out = model(x=x, c=[[0.0]], mask={"points": mask})
    assert out["labels"].indices.tolist() == [[0] * 5, [-1, 0, -1, 0, -1]]
    assert out["labels"].dense()[1].sum() == 2
    assert out["centers"].tolist() == [[[1.0]], [[4.0]]]


def test_fixed_inputs_may_be_shared_by_a_batch() -> None:
    model = load(hard_clustering(2, 2))
    xs, c = torch.stack([data(1, 5), data(2, 5)]), data(9, 2)
    shared = model(x=xs, c=c)
    assert torch.equal(shared["centers"], model(x=xs, c=torch.stack([c, c]))["centers"])


def test_seeds_may_differ_in_a_batch() -> None:
    model = load(hard_clustering(2, 3))
    x = data(5, 30)
    out = model(x=torch.stack([x, x]), seed=[1, 2], layers=0)["centers"]
    assert torch.equal(out[0], model(x=x, seed=1, layers=0)["centers"])
    assert torch.equal(out[1], model(x=x, seed=2, layers=0)["centers"])
    assert not torch.equal(out[0], out[1])


# ---------------------------------------------------------------------- noise
def test_noise_is_a_function_of_seed_name_layer_and_token() -> None:
    model = load(largest("copy", 3, noisy=True))
    fields = model.start(x=[0.0, 1.0], a=[0.0, 0.1, 0.2])
    for layer in range(3):
        fields = after = model.advance(fields, layer, seed=11)
        g = noise("gumbel", 11, "g", layer, 2, 3)
        assert np.array_equal(after["g"].numpy(), g)
        best = (g + np.array([0.0, 0.1, 0.2])).argmax(1)
        assert after["y"].argmax(1).tolist() == best.tolist()
    given = np.array([[[9.0, 0, 0], [0, 9, 0]], [[0, 0, 9], [9, 0, 0]]])
    assert model(x=[0.0, 1.0], a=[0.0, 0.1, 0.2], noise={"g": given}, layers=2)["y"].indices.tolist() == [2, 0]
    assert model.trace(x=[0.0, 1.0], a=[0.0] * 3, noise={"g": given}).fields[1]["g"].tolist() == given[0].tolist()
