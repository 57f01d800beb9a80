"""Disguises: the same function in other weights, proved; composed, deterministic, refused where nothing is proved."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weftc
from weftc.compiling import checked_spec
from weftc.core.errors import InputError
from weftc.files.locate import names
from weftc.prover import prove
from weftc.variants.disguising import disguise
from weftc.verification.cases.inputs import cases
from weftc_runtime import Checkpoint, load
from weftc_runtime.format.program import Attend

EXACT: dict[str, dict[str, Any]] = {
    "superpose": {"superpose": True},
    "distract": {"distract": 3},
    "merge": {"split": 2, "merge": True},
    "split": {"split": 3},
    "permute": {"permute": True},
    "scale": {"scale": True},
}
ROUNDED: dict[str, dict[str, Any]] = {
    "gauge": {"gauge": True},
    "rotate": {"rotate": True},
    "noise": {"noise": 1e-10},
    "dense": {"rotate": True, "gauge": True, "dense": True},
    "all": {
        "superpose": True,
        "distract": 2,
        "split": 2,
        "gauge": True,
        "permute": True,
        "scale": True,
        "rotate": True,
    },
}
# what is zero must stay zero there: empty sums, vectors of length 0, numbers whose logarithm is taken
DECIDED = frozenset(
    {
        *("spherical_kmeans", "soft_spherical_kmeans", "power_iteration", "sphere_flow"),
        *("weighted_kmeans", "gmm_em", "gmm_em_spherical", "lloyd_printed", "lloyd_split"),
    }
)
SOME = ["lloyd"]
ALL = [*SOME, *(pytest.param(name, marks=pytest.mark.slow) for name in names() if name not in SOME)]


def model(name: str, scores: str = "l2") -> Checkpoint:
    checked = checked_spec(name)
    return weftc.compile(checked, {dim: 3 if dim == "k" else 2 for dim in checked.dims}, scores=scores)  # type: ignore


def answers(made: Checkpoint, name: str) -> dict[str, np.ndarray]:
    (case,) = cases(checked_spec(name), made.dims, 1, 11, families=["random"], first=5)
    found = load(made, backend="reference")(dict(case.inputs), layers=2, seed=1)
    return {key: np.asarray(value.dense() if hasattr(value, "dense") else value) for key, value in found.items()}


@pytest.mark.parametrize("scores", ["l2", "dot"])
@pytest.mark.parametrize("name", ALL)
def test_every_disguise_of_every_spec_is_proved_and_gives_the_same(name: str, scores: str) -> None:
    made = model(name, scores)
    wanted = answers(made, name)
    for title, changes in {**EXACT, **ROUNDED}.items():
        other = Checkpoint.from_bytes(disguise(made, seed=7, **changes).to_bytes())
        proof = prove(other)
        if title in EXACT:
            assert proof.verdict == "proved", title
        elif proof.verdict == "not shown":
            assert name in DECIDED, title
            assert {step.place for step in proof.failures} == {"decisions"}, title
        for key, value in answers(other, name).items():
            far = 1e-6 if title == "noise" else 1e-9
            assert np.allclose(value, wanted[key], rtol=far, atol=far), (title, key)


def test_what_is_mixed_by_fours_is_proved_where_weights_are_short() -> None:
    for name in ("lloyd", "spherical_kmeans", "weighted_kmeans"):
        other = disguise(model(name, "dot"), rotate=True, gauge=True, seed=3)
        assert any((np.abs(other.tensors[basis]) == 0.5).any() for basis in other.program.basis.values())
        assert prove(other).verdict == "proved", name


def test_the_same_seed_gives_the_same_file_and_another_one_another() -> None:
    made = model("trimmed_kmeans")
    files = [disguise(made, seed=seed, distract=2, split=3, **{"rotate": True}).to_bytes() for seed in (1, 1, 2)]
    assert files[0] == files[1] != files[2]


def test_distractors_read_and_write_and_nothing_reads_them() -> None:
    made, other = model("lloyd"), disguise(model("lloyd"), distract=4, seed=5)
    width = {stream.name: stream.width for stream in made.program.streams}
    assert sum(stream.width for stream in other.program.streams) == sum(width.values()) + 4
    new = [h for s in other.program.layer for sub in s.sublayers if isinstance(sub, Attend) for h in sub.heads]
    assert len([head for head in new if head.name.startswith("distractor")]) == 4
    for head in new:
        value = other.tensors[head.value]
        if head.name.startswith("distractor"):
            assert value.any()
            assert not value[: width[head.query]].any()
        else:
            assert not value[:, width[head.keys] :].any()


def test_a_constant_that_names_say_already_has_no_column() -> None:
    made, other = model("lloyd"), disguise(model("lloyd"), superpose=True)
    assert other.program.stream("centers").width == made.program.stream("centers").width - 1
    assert all(embed.kind != "one" for embed in other.program.embedding if embed.stream == "centers")


def test_split_heads_are_merged_again() -> None:
    def count(one: Checkpoint) -> int:
        return sum(len(sub.heads) for step in one.program.steps() for sub in step.sublayers if isinstance(sub, Attend))

    made = model("trimmed_kmeans")
    apart = disguise(made, split=3, seed=2)
    assert count(apart) > count(made) == count(disguise(apart, merge=True))


@pytest.mark.parametrize("changes", [{"noise": 1e-3}, {"noise": -1.0}, {"split": 1000}, {"distract": -1}])
def test_what_cannot_be_proved_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="expected"):
        disguise(model("lloyd"), **changes)
