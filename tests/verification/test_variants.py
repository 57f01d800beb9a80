"""The same function in other weights: rotated residuals, mixed, split and permuted heads; run, proved, and caught."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch

import weftc
from campaign import Judge
from mutants import changed_tensor, file
from weftc.compiling import checked_spec, compile
from weftc.core.errors import InputError
from weftc.files.locate import names
from weftc.prover import prove
from weftc.variants import mixed_heads, permuted_heads, rotated, split_heads
from weftc.verification.cases.inputs import cases
from weftc_runtime import Checkpoint, ModelError, RunError, load
from weftc_runtime.format.program import Attend, Head

EXACT: dict[str, Callable[[Checkpoint], Checkpoint]] = {
    "signed": lambda made: rotated(made, 3, "signed"),
    "signed heads": lambda made: mixed_heads(made, 3, "signed"),
    "split": lambda made: split_heads(made, 3),
    "permuted": lambda made: permuted_heads(made, 3),
}
DENSE: dict[str, Callable[[Checkpoint], Checkpoint]] = {
    "rotated": lambda made: rotated(made, 3),
    "mixed": lambda made: mixed_heads(made, 3),
    "all": lambda made: rotated(split_heads(mixed_heads(made, 3), 4), 5),
}


SPECS = ["lloyd", "spherical_kmeans", "sinkhorn_dual"]
ALL = [*SPECS, *(pytest.param(name, marks=pytest.mark.slow) for name in names() if name not in SPECS)]


def model(name: str, **styles: str) -> Checkpoint:
    checked = checked_spec(name)
    return compile(checked, {dim: 3 if dim == "k" else 2 for dim in checked.dims}, **styles)  # type: ignore[arg-type]


def answers(
    made: Checkpoint, name: str, family: str = "random", dtype: torch.dtype = torch.float64
) -> dict[str, np.ndarray]:
    (case,) = cases(checked_spec(name), made.dims, 1, 11, families=[family], first=5)
    # one backend for all: a basis needs the reference, and another backend adds in another order
    found = load(made, dtype=dtype, backend="reference")(dict(case.inputs), layers=2, seed=1)
    return {key: np.asarray(value.dense() if hasattr(value, "dense") else value) for key, value in found.items()}


# ---- what they compute -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_variants_without_rounding_are_proved_and_give_the_same(name: str) -> None:
    made = model(name, scores="dot")
    for title, change in EXACT.items():
        variant = Checkpoint.from_bytes(change(made).to_bytes())
        assert prove(variant).verdict == "proved", title
        found = answers(variant, name, "exact ties on a grid")
        for key, value in answers(made, name, "exact ties on a grid").items():
            # sums of dot products over permuted features, and halves of a value, round in another order
            assert np.allclose(found[key], value, rtol=0, atol=1e-13 if title != "signed" else 0), (title, key)


# a decision rests on numbers that are only near those of the spec: a norm or a mass that should be 0 may be 1e-17, a
# variance whose logarithm does not exist may have one, keys that are tied may not be
DECIDED = frozenset(
    {
        *("spherical_kmeans", "soft_spherical_kmeans", "power_iteration", "sphere_flow"),
        *("weighted_kmeans", "gmm_em", "gmm_em_spherical", "lloyd_printed", "lloyd_split"),
    }
)


@pytest.mark.parametrize("name", ALL)
def test_dense_variants_are_proved_up_to_eps_and_are_near(name: str) -> None:
    made = model(name)
    for title, change in DENSE.items():
        variant = Checkpoint.from_bytes(change(made).to_bytes())
        proof = prove(variant)
        if proof.verdict == "proved":  # these weights have come out the same
            assert not proof.deviations
            continue
        assert proof.deviations
        if name in DECIDED:
            assert proof.verdict == "not shown"
            assert {step.place for step in proof.failures} == {"decisions"}, proof.text()
        else:
            assert proof.verdict == "proved up to eps", proof.text()
            assert 0 < proof.eps < 1e-10
        assert prove(variant, slack=0.0).verdict == "not shown"
        found = answers(variant, name)
        for key, value in answers(made, name).items():
            assert np.allclose(found[key], value, rtol=0, atol=1e-9), (title, key)


def test_a_rotated_residual_is_what_is_stored_and_slots_are_read_through_the_inverse() -> None:
    made = model("lloyd")
    turned = rotated(made, 1)
    network = load(turned)
    seen: list[torch.Tensor] = []
    network.blocks[0].resid("points").hook_resid_post.register_forward_hook(
        lambda _, given, made: seen.append(given[0])
    )
    points = np.random.default_rng(0).normal(size=(6, 2))
    trace = network.trace(x=points, c=points[:3], layers=1)
    slots = [trace[f"layers.0.blocks.0.points.{slot.name}"] for slot in turned.program.stream("points").slots]
    basis = torch.tensor(turned.tensors["basis.points"])
    assert torch.allclose(seen[0], torch.cat(slots, 1) @ basis.T, atol=1e-14)
    assert not torch.allclose(seen[0], torch.cat(slots, 1), atol=0.1)


def test_ties_are_left_undecided_by_a_rotated_residual_and_follow_the_tie_rule() -> None:
    tied = {"x": np.array([[0.0, 0.0], [1.0, 1.0]]), "c": np.array([[-1.0, 0.0], [1.0, 0.0], [5.0, 5.0]])}
    plain, dense, signed = (
        load(one) for one in (model("lloyd"), rotated(model("lloyd"), 1), EXACT["signed"](model("lloyd")))
    )
    for network, undecided in ((plain, False), (dense, True), (signed, False)):
        labels = network(tied, layers=1)["labels"].indices
        assert labels.tolist() == [0, 1]
        assert any(tiers.undecided for tiers in network.report.by_layer) is undecided


def test_a_zero_vector_and_an_empty_sum_are_seen_through_a_rotation() -> None:
    away = np.array([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [0.0, 1e-30]])
    inputs = {"x": away, "c": np.array([[1.0, 0.5], [-3.0, 9.0], [-2.0, 9.0]]), "w": np.array([1.0, 1.0, 1.0, 0.0])}
    made = model("weighted_kmeans")
    want, found = (load(one)(inputs, layers=1)["centers"] for one in (made, rotated(made, 1)))
    assert torch.allclose(want, found, atol=1e-13)
    sphere = {"x": np.array([[1.0, 0.0], [-1.0, 0.0]]), "c": np.array([[0.0, 1.0], [0.0, -1.0], [0.0, 1.0]])}
    made = model("spherical_kmeans")
    want, found = (load(one)(sphere, layers=1)["centers"] for one in (made, rotated(made, 1)))
    assert torch.allclose(want, found, atol=1e-13)


def test_rotated_models_run_batches_in_float32_and_until_stable_but_not_on_the_linear_backend() -> None:
    made = model("lloyd")
    turned = rotated(made, 2)
    points = np.random.default_rng(1).normal(size=(2, 40, 2))
    network = load(turned, dtype=torch.float32)
    found = network(x=points, seed=0, until_stable=True)
    want = load(made, dtype=torch.float32)(x=points, seed=0, until_stable=True)
    assert all(network.report.stable)
    assert torch.allclose(found["centers"], want["centers"], atol=1e-5)
    assert network.report.backend == "reference"
    assert "basis" in network.report.why
    with pytest.raises(RunError, match="basis of its own"):
        load(turned, backend="planned")(x=points[0], seed=0)
    with pytest.raises(RunError, match="basis of its own"):
        network.plan()


# ---- what verify says ------------------------------------------------------------------------------------------------


def test_verify_judges_variants_by_what_they_compute() -> None:
    made = compile("lloyd", {"d": 1, "k": 2})
    assert weftc.verify(EXACT["signed"](made), cases=3).verdict == "proved"
    for variant in (rotated(made, 1), mixed_heads(made, 1)):
        verdict = weftc.verify(variant, cases=3)
        assert verdict.verdict == "proved up to eps", verdict.text()
        assert "scores within" in verdict.proofs[0].text()


def test_a_rotated_model_that_computes_something_else_is_caught_by_its_layers_too() -> None:
    from weftc.verification.steps.rounded import rounded_layers

    made = rotated(compile("lloyd", {"d": 1, "k": 2}), 1)
    proof = prove(made)
    assert rounded_layers(checked_spec("lloyd"), made, proof, "l2", "float64", 3, 0).passed
    name = next(name for name in made.tensors if name.endswith("c.v"))
    wrong = replace(made, tensors={**made.tensors, name: made.tensors[name] * 1.001})
    assert not rounded_layers(checked_spec("lloyd"), wrong, proof, "l2", "float64", 3, 0).passed


@pytest.mark.parametrize("kind", ["signed", "orthogonal"])
def test_an_edit_of_a_rotated_file_is_caught(kind: str) -> None:
    made = rotated(compile("lloyd", {"d": 1, "k": 2}), 1, kind)  # type: ignore[arg-type]
    judge, rng, killed = Judge(), random.Random(0), 0
    for _ in range(40):
        found = changed_tensor(made, rng)
        changed = file(found[0], says=True) if found is not None else None
        if changed is None:
            continue
        proof = prove(changed)
        if proof.verdict == "not shown":
            killed += 1
            continue
        assert proof.eps < 1e-8
        assert judge.difference(changed, near=bool(proof.eps)) is None, found
    assert killed > 10


# ---- the bound -------------------------------------------------------------------------------------------------------


def heads(made: Checkpoint) -> list[Head]:
    return [h for step in made.program.layer for s in step.sublayers if isinstance(s, Attend) for h in s.heads]


def form(made: Checkpoint, head: Head, bases: bool) -> list[list[Fraction]]:
    """The coefficient array Q^T K of the first part of a score, over slots, without rounding."""
    part = head.score.parts[0]
    sides = []
    for name, stream in ((part.q, head.query), (part.k, head.keys)):
        matrix = [[Fraction(x) for x in row] for row in made.tensors[name].tolist()]
        if bases:
            basis = [[Fraction(x) for x in row] for row in made.tensors[f"basis.{stream}"].tolist()]
            matrix = [[inner(row, column) for column in zip(*basis, strict=True)] for row in matrix]
        sides.append(list(zip(*matrix, strict=True)))
    return [[inner(q, k) for k in sides[1]] for q in sides[0]]


def inner(one: Iterable[Fraction], two: Iterable[Fraction]) -> Fraction:
    return sum((a * b for a, b in zip(one, two, strict=True)), Fraction(0))


@pytest.mark.parametrize("title", ["mixed", "rotated"])
def test_the_bound_of_scores_holds_and_is_not_far_from_what_is_measured(title: str) -> None:
    made = model("lloyd", scores="dot")
    variant = DENSE[title](made)
    proof = prove(variant)
    for plain, dense in zip(heads(made), heads(variant), strict=True):
        want, found = form(made, plain, False), form(variant, dense, title == "rotated")
        rows = zip(want, found, strict=True)
        measured = float(sum(abs(a - b) for one, two in rows for a, b in zip(one, two, strict=True)))
        stated = [one.inside for one in proof.deviations if one.place.endswith(f"head {dense.name}")]
        bound = max(stated, default=0.0)
        assert measured <= bound <= proof.eps
        assert bound <= 200 * measured or not measured  # scores that are left as they are; their masks are not


# ---- the file --------------------------------------------------------------------------------------------------------


def test_a_basis_is_part_of_the_file_and_checked() -> None:
    made = model("lloyd")
    assert b'"basis"' not in made.to_bytes()
    turned = rotated(made)
    assert Checkpoint.from_bytes(turned.to_bytes()).program == turned.program
    flat = np.ones_like(turned.tensors["basis.points"])
    with pytest.raises(ModelError, match="no basis: its condition number"):
        replace(turned, tensors={**turned.tensors, "basis.points": flat}).to_bytes()
    with pytest.raises(ModelError, match="a basis is for a stream nowhere"):
        replace(turned, program=replace(turned.program, basis={"nowhere": "basis.points"})).to_bytes()
    with pytest.raises(ModelError, match="needs a tensor"):
        replace(turned, tensors={n: a for n, a in turned.tensors.items() if n != "basis.points"}).to_bytes()


def test_rotations_add_up() -> None:
    made = model("lloyd")
    twice = rotated(rotated(made, 1, "signed"), 2, "signed")
    assert prove(twice).verdict == "proved"
    with pytest.raises(InputError, match="unknown kind"):
        rotated(made, 1, "diagonal")  # type: ignore[arg-type]
