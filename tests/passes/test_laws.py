"""Laws that hold for all data, on the compiled models."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import weftc

Array = NDArray[np.float64]
HARD = ["lloyd", "trimmed_kmeans", "weighted_kmeans"]
SEEDS = range(3)


def model(name: str, d: int = 2, k: int = 3, **params: float) -> weftc.Model:
    return weftc.load(weftc.compile(name, {"d": d, "k": k}, params))


def data(name: str, seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    out = {"x": rng.normal(size=(30, 2)), "c": rng.normal(size=(3, 2))}
    return {**out, "w": rng.random(30)} if name == "weighted_kmeans" else out


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", HARD)
def test_permuting_points_permutes_labels_and_keeps_centers_bit_for_bit(name: str, seed: int) -> None:
    given = data(name, seed)
    order = np.random.default_rng(seed + 100).permutation(30)
    turned = {key: value[order] if key in ("x", "w") else value for key, value in given.items()}
    one, two = model(name)(**given, layers=4), model(name)(**turned, layers=4)
    assert torch.equal(one["centers"], two["centers"])
    assert torch.equal(one["labels"].indices[order], two["labels"].indices)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", ["lloyd", "soft_kmeans", "trimmed_kmeans", "robust_kmeans"])
def test_moving_and_turning_the_data_moves_and_turns_the_centers(name: str, seed: int) -> None:
    given = data(name, seed)
    angle = 0.7
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    shift = np.array([3.0, -5.0])
    moved = {key: value @ turn.T + shift for key, value in given.items()}
    one, two = model(name)(**given, layers=3), model(name)(**moved, layers=3)
    np.testing.assert_allclose(one["centers"].numpy() @ turn.T + shift, two["centers"], rtol=0, atol=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", ["lloyd", "soft_kmeans"])
def test_doubling_every_point_changes_nothing(name: str, seed: int) -> None:
    given = data(name, seed)
    twice = {**given, "x": np.concatenate([given["x"], given["x"]])}
    one, two = model(name)(**given, layers=3), model(name)(**twice, layers=3)
    np.testing.assert_allclose(one["centers"], two["centers"], rtol=0, atol=1e-14)


@pytest.mark.parametrize("seed", SEEDS)
def test_sharp_softmax_is_a_choice(seed: int) -> None:
    given = data("lloyd", seed)
    hard, soft = model("lloyd")(**given, layers=3), model("soft_kmeans", gamma=1e6)(**given, layers=3)
    np.testing.assert_allclose(hard["centers"], soft["centers"], rtol=0, atol=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_trimming_nothing_is_lloyd_and_trimming_all_keeps_the_nearest(seed: int) -> None:
    given = data("lloyd", seed)
    plain = model("lloyd")(**given, layers=1)
    all_but_none = model("trimmed_kmeans", tau=99.9)(x=given["x"][:9], c=given["c"], layers=1)
    nine = model("lloyd")(x=given["x"][:9], c=given["c"], layers=1)
    nearest = model("trimmed_kmeans", tau=0)(**given, layers=1)
    distance = ((given["x"][:, None] - given["c"]) ** 2).sum(-1)
    for j in range(3):
        members = np.flatnonzero(plain["labels"].indices.numpy() == j)
        if len(members):
            assert nearest["centers"][j].tolist() == given["x"][members[distance[members, j].argmin()]].tolist()
    # 99.9 percent of m - 1 others is less than all of them, unless the cluster is smaller than 1000 points and tied
    assert all_but_none["labels"].indices.tolist() == nine["labels"].indices.tolist()


@pytest.mark.parametrize("seed", SEEDS)
def test_weights_equal_repetition(seed: int) -> None:
    given = data("lloyd", seed)
    times = np.random.default_rng(seed).integers(0, 4, size=30)
    repeated = {"x": np.repeat(given["x"], times, axis=0), "c": given["c"]}
    weighted = model("weighted_kmeans")(**given, w=times.astype(float), layers=3)
    plain = model("lloyd")(**repeated, layers=3)
    np.testing.assert_allclose(weighted["centers"], plain["centers"], rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    "styles",
    [
        {"scores": "dot"},
        {"erase": "attention"},
        {"scores": "dot", "square": "relu2"},
        {"scores": "dot", "centre": "off"},
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["lloyd", "lloyd_split", "trimmed_kmeans"])
def test_styles_of_hard_specs_give_the_same_bits(name: str, styles: dict[str, str]) -> None:
    given = data(name, 0)
    plain = weftc.load(weftc.compile(name, {"d": 2, "k": 3}))(**given, layers=4)
    styled = weftc.load(weftc.compile(name, {"d": 2, "k": 3}, **styles))(**given, layers=4)  # type: ignore[arg-type]
    assert torch.equal(plain["centers"], styled["centers"])


@pytest.mark.parametrize("seed", SEEDS)
def test_assignment_steps_keep_the_masses(seed: int) -> None:
    rng = np.random.default_rng(seed)
    found = weftc.load(weftc.compile("sinkhorn_dual", {"d": 2}))(x=rng.random((6, 2)), y=rng.random((6, 2)), layers=300)
    plan = found["plan"]
    np.testing.assert_allclose(plan.sum(0), 1, atol=1e-6)
    np.testing.assert_allclose(plan.sum(1), 1, atol=1e-6)
