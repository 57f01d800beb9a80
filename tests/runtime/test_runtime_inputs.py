"""What a user can get wrong in a call: each mistake names the input, the row and the way out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import weftc
from programs import dual_ascent, hard_clustering, largest, neighbours
from weftc_runtime import OneHot, RunError, load
from weftc_runtime.format.checkpoint import Checkpoint

X = [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
NAN, INF = float("nan"), float("inf")


def clustering() -> Checkpoint:
    return hard_clustering(2, 2)


def with_input(**changes: Any) -> Checkpoint:
    """The clustering program with another contract on x."""
    base = clustering()
    x, c = base.program.inputs
    return replace(base, program=replace(base.program, inputs=(replace(x, **changes), replace(c, init=("first", "x")))))


MISTAKES: list[tuple[Checkpoint, dict[str, Any], str]] = [
    (clustering(), {}, r"input x is missing; give model\(x=\.\.\.\)"),
    (clustering(), {"x": None}, "input x is missing"),
    (clustering(), {"x": X, "cc": X}, "unknown input cc; did you mean c"),
    (clustering(), {"x": X, "layer": 3}, "unknown input layer; did you mean layers"),
    (clustering(), {"x": [[0.0, NAN], [1.0, 1.0]]}, r"x: row 0, column 1 \(nan\) is not finite; remove the row"),
    (clustering(), {"x": [[0.0, 1.0], [1.0, -INF]]}, r"x: row 1, column 1 \(-inf\) is not finite"),
    (clustering(), {"x": np.zeros((0, 2))}, "x is empty; points needs at least one token"),
    (clustering(), {"x": [[1.0], [2.0]]}, r"x has shape \[2, 1\]: rows of width 1, but 2 is expected"),
    (clustering(), {"x": [1.0, 2.0]}, r"x has shape \[2\]; it must be \[tokens, 2\]"),
    (clustering(), {"x": np.zeros((1, 2, 3, 2))}, r"x has shape \[1, 2, 3, 2\]"),
    (clustering(), {"x": [[1.0], [2.0, 3.0]]}, "x is not an array of numbers with rows of equal length"),
    (clustering(), {"x": [["a", "b"]]}, "x is not an array of numbers"),
    (clustering(), {"x": np.zeros((2, 2), complex)}, "x holds complex128; give numbers"),
    (clustering(), {"x": X, "c": X}, "c has 3 rows, but centers has 2 tokens in this model"),
    (clustering(), {"x": X, "layers": -1}, "layers is -1; it must be a whole number"),
    (clustering(), {"x": X, "layers": 1.5}, "layers is 1.5"),
    (clustering(), {"x": X, "layers": 2, "until_stable": True}, "give `layers` or `until_stable`, not both"),
    (clustering(), {"x": X, "until_stable": True, "limit": -2}, "limit is -2"),
    (clustering(), {"x": X, "seed": -1}, "seed is -1; it must be a whole number from 0"),
    (clustering(), {"x": [X, X], "seed": [1, 2, 3]}, "3 seeds for 2 problems"),
    (clustering(), {"x": [[1.0, 1.0]] * 5}, "c starts from 2 different rows of x, which has only 1; give c"),
    (
        clustering(),
        {"x": np.zeros((2, 3, 2)), "c": np.zeros((3, 2, 2))},
        r"of different lengths \(x: 2, c: 3\)",
    ),
    (clustering(), {"x": np.zeros((0, 3, 2))}, "the batch is empty"),
    (clustering(), {"x": X, "mask": {"points": [True]}}, "`mask` is for batches"),
    (clustering(), {"x": [X], "mask": {"dots": [[True]]}}, "unknown token set dots; did you mean points"),
    (clustering(), {"x": [X], "mask": {"points": [[1, 1, 1]]}}, r"int64\[1, 3\]; it must be bool\[1, 3\]"),
    (clustering(), {"x": [X], "mask": {"points": [[True]]}}, r"bool\[1, 1\]; it must be bool\[1, 3\]"),
    (clustering(), {"x": [X], "mask": {"points": [[False] * 3]}}, "problem 0 of the batch has no token of points"),
    (
        clustering(),
        {"x": [X], "c": [X[:2]], "mask": {"centers": [[True, False]]}},
        "centers has a fixed number",
    ),
    (clustering(), {"x": [X, [[0.0, 0.0], [1.0, INF], [2.0, 2.0]]]}, r"x: problem 1, row 1, column 1 \(inf\)"),
    (dual_ascent(1), {"x": [[0.0]], "y": [[0.0], [1.0]]}, "y has 2 rows, but x, also of pairs, has 1"),
    (
        with_input(kind="unit"),
        {"x": [[1.0, 0.0], [1.0, 1.0]]},
        "x: row 1 is not a unit vector; divide it",
    ),
    (with_input(kind="onehot"), {"x": [[1.0, 0.0], [0.5, 0.5]]}, "x: row 1 is not one-hot"),
    (with_input(kind="onehot"), {"x": [[1.0, 1.0]]}, "x: row 0 is not one-hot"),
    (with_input(kind="simplex"), {"x": [[0.5, 0.5], [0.5, 0.6]]}, "x: row 1 is not a row of weights"),
    (with_input(kind="simplex"), {"x": [[1.5, -0.5]]}, "x: row 0 is not a row of weights"),
    (with_input(low=(0.0, False)), {"x": [[0.0, 1.0], [0.0, -1.0]]}, r"x: row 1, column 1 \(-1\) .* at least 0"),
    (with_input(low=(0.0, True)), {"x": [[1.0, 0.0]]}, r"x: row 0, column 1 \(0\) .* more than 0"),
    (with_input(high=(5.0, True)), {"x": [[5.0, 0.0]]}, r"x: row 0, column 0 \(5\) .* less than 5"),
    (with_input(high=(5.0, False)), {"x": [[6.0, 0.0]]}, "at most 5"),
    (largest("copy", 2, noisy=True), {"x": [0.0], "a": [0.0, 0.0], "noise": {"h": 0}}, "unknown random field h"),
    (
        largest("copy", 2, noisy=True),
        {"x": [0.0], "a": [0.0, 0.0], "noise": {"g": np.zeros((1, 1, 2))}, "layers": 2},
        r"noise g has shape \[1, 1, 2\]; it must be \[layers, 1, 2\].* at least 2 layers",
    ),
    (
        largest("copy", 2, noisy=True),
        {"x": [0.0], "a": [0.0, 0.0], "noise": {"g": np.full((1, 1, 2), INF)}},
        "noise g holds a value that is not finite",
    ),
    (largest("log", 2), {"x": [0.0], "a": [1.0, 0.0]}, r"argmax\[j\] f\(a\[j\]\): token 1 of centers.* not positive"),
    (largest("sqrt", 2), {"x": [0.0], "a": [1.0, -4.0]}, "the root of a negative number"),
    (largest("reciprocal", 2), {"x": [0.0], "a": [0.0, 1.0]}, "token 0 of centers.* a division by zero"),
    (largest("exp", 2), {"x": [0.0], "a": [1.0, 1000.0]}, "an exponential that overflows"),
]


@pytest.mark.parametrize(("checkpoint", "call", "message"), MISTAKES, ids=[row[2][:50] for row in MISTAKES])
def test_mistakes_are_named(checkpoint: Checkpoint, call: dict[str, Any], message: str) -> None:
    with pytest.raises(RunError, match=message):
        load(checkpoint)(**call)


def test_an_exponential_in_a_head_that_overflows_is_named() -> None:
    base = neighbours(kind="exp")
    loud = replace(base, tensors={**base.tensors, "score.k": base.tensors["score.k"] * 800})
    with pytest.raises(RunError, match=r"m\[i\] = .*token 0 of points.* exp\(800\) overflows"):
        load(loud)(x=[1.0, 2.0])
    assert load(base)(x=[1.0, 2.0])["m"].tolist() == pytest.approx([3 * np.e, 3 * np.e])


def test_a_soft_score_that_overflows_is_named() -> None:
    with pytest.raises(RunError, match=r"u \+= .*token 0 of pairs.* a score overflows float64; scale the inputs down"):
        load(dual_ascent(1))(x=[[1e200], [0.0]], y=[[0.0], [0.0]])


def test_advance_and_start_name_their_mistakes() -> None:
    model = load(clustering())
    fields = model.start(x=X)
    with pytest.raises(RunError, match="field c is missing"):
        model.advance({"x": fields["x"]}, 0)
    with pytest.raises(RunError, match="layer is -1"):
        model.advance(fields, -1)
    with pytest.raises(RunError, match="unknown input z"):
        model.advance({**fields, "z": 1}, 0)
    with pytest.raises(RunError, match="unknown input q"):
        model.start(q=X)


def test_an_input_that_needs_no_other_may_come_without_its_name() -> None:
    model = load(clustering())
    named = model(x=X, seed=3)["centers"]
    assert model(X, seed=3)["centers"].equal(named)
    assert model.final(X, seed=3)["centers"].equal(named)
    assert model(X, c=X[:2])["centers"].equal(model(x=X, c=X[:2])["centers"])
    with pytest.raises(RunError, match=r"there are several: model\(x=\.\.\.\)"):
        model(X, x=X)
    with pytest.raises(RunError, match="unknown input z"):
        model(X, z=X)


SORTING = "algorithm t\ntokens i, l in items\n       g in one : 1\ninputs x[i] : R, c[g] : R, z[i] : R^d\n"
SORTING += "layer\n  rank[i] = sum[l] 1 where x[l] < x[i]\n  m[g] = c[g] * (mean[i] x[i])\noutputs rank, m\n"


def test_a_column_of_numbers_is_as_many_tokens_as_it_has_rows() -> None:
    model, meant = load(weftc.compile("sort")), weftc.interpret("sort", {"x": [3.0, 1.0, 2.0]})
    name = next(output.name for output in model.program.outputs if output.kind == "number")
    for given in ([[3.0], [1.0], [2.0]], [3.0, 1.0, 2.0], np.array([[3.0], [1.0], [2.0]], np.float32)):
        assert model(given)[name].tolist() == np.asarray(meant[name]).tolist()
    assert tuple(model([[3.0, 1.0]])[name].shape) == (1, 2)


def test_a_column_beside_a_batch_is_a_batch() -> None:
    model, z = load(weftc.compile(SORTING, {"d": 1})), np.zeros((2, 3, 1))
    found = model(x=[[3.0, 1.0, 2.0], [4.0, 6.0, 5.0]], c=[[1.0], [2.0]], z=z)
    assert found["rank"].tolist() == [[2.0, 0.0, 1.0], [0.0, 2.0, 1.0]]
    assert found["m"].tolist() == [[2.0], [10.0]]
    one = model(x=[[3.0], [4.0]], c=[[1.0], [2.0]], z=z[:, :1])
    assert one["m"].tolist() == [[3.0], [8.0]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_contracts_allow_what_the_dtype_can_hold(dtype: torch.dtype) -> None:
    rng = np.random.default_rng(0)
    v = rng.normal(size=(200, 2))
    v /= np.linalg.norm(v, axis=1, keepdims=True)
    load(with_input(kind="unit"), dtype)(x=v, layers=0)
    w = rng.random(size=(200, 2))
    load(with_input(kind="simplex"), dtype)(x=w / w.sum(1, keepdims=True), layers=0)
    off = v.copy()
    off[7] *= 1 + 40 * torch.finfo(dtype).eps
    with pytest.raises(RunError, match="row 7 is not a unit vector"):
        load(with_input(kind="unit"), dtype)(x=off, layers=0)


def test_many_ways_to_give_an_array() -> None:
    model = load(clustering())
    want = model(x=np.array(X))["centers"]
    for x in (X, tuple(map(tuple, X)), torch.tensor(X), np.array(X, dtype=np.int64), [torch.tensor(r) for r in X]):
        assert torch.equal(model(x=x)["centers"], want)
    assert torch.equal(model({"x": X})["centers"], want)
    assert torch.equal(model({"x": X}, c=None)["centers"], want)
    onehot = load(with_input(kind="onehot"))
    hot = OneHot(torch.tensor([0, 1, 1]), 2)
    assert torch.equal(onehot(x=hot)["centers"], onehot(x=[[1, 0], [0, 1], [0, 1]])["centers"])


def test_inputs_may_have_names_of_options() -> None:
    base = clustering()
    x, c = base.program.inputs
    embedding = tuple(replace(e, source="mask") if e.source == "x" else e for e in base.program.embedding)
    inputs = (replace(x, name="mask"), replace(c, init=("spread", "mask")))
    model = load(replace(base, program=replace(base.program, inputs=inputs, embedding=embedding)))
    plain = load(base)
    assert torch.equal(model({"mask": X})["centers"], plain(x=X)["centers"])


def test_a_one_hot_output_behaves() -> None:
    hot = OneHot(torch.tensor([1, -1, 0]), 3, torch.float32)
    assert hot.shape == (3, 3)
    assert hot.dense().tolist() == [[0, 1, 0], [0, 0, 0], [1, 0, 0]]
    assert hot.dense().dtype == torch.float32
    assert np.asarray(hot).sum() == 2
    assert np.asarray(hot, dtype=np.float64).dtype == np.float64
    assert len(hot) == 3
    assert hot[:2] == OneHot(torch.tensor([1, -1]), 3)
    assert hot != OneHot(torch.tensor([1, 0, 0]), 3)
    assert hot != 3
    assert "3 columns" in repr(hot)


def test_copies_start_with_as_many_tokens_as_their_source() -> None:
    base = dual_ascent(1)
    x, y = base.program.inputs
    program = replace(base.program, inputs=(x, replace(y, init=("copy", "x"))))
    model = load(replace(base, program=program))
    assert torch.equal(model(x=[[0.0], [1.0]])["u"], model(x=[[0.0], [1.0]], y=[[0.0], [1.0]])["u"])


def test_patterns_are_made_on_request() -> None:
    out = load(dual_ascent(1))(x=[[0.0], [1.0]], y=[[0.0], [1.0]])
    assert "plan: on request" in repr(out)
    assert out["plan"].shape == (2, 2)
    assert "plan: [2, 2]" in repr(out)
    with pytest.raises(KeyError, match="did you mean plan"):
        out["plann"]
