"""Inputs with a number for every pair of two open sets: weights, masks and biases, dense, sparse and from files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sparse
import torch

import weftc
from weftc.prover.proving import prove
from weftc_runtime.errors import RunError

SPEC = """algorithm pairs
tokens  i, l in nodes
        s in shops
inputs  x[i] : R^2,  u[i] : R,  y[s] : R^2,  A[i,l] : real >= 0,  B[i,l] : real,  C[i,s] : real
layer
  {}
outputs a
"""
RNG = np.random.default_rng(0)
N = 9
X, U, Y = RNG.normal(size=(N, 2)), RNG.normal(size=N), RNG.normal(size=(4, 2))
A = (RNG.uniform(size=(N, N)) < 0.4) * RNG.uniform(size=(N, N))
A[3] = 0
B, C = RNG.normal(size=(N, N)).round(1), RNG.normal(size=(N, 4)) * (RNG.uniform(size=(N, 4)) < 0.6)
GIVEN: dict[str, Any] = {"x": X, "u": U, "y": Y, "A": A, "B": B, "C": C}
SCORES = X @ X.T
MASS = A.sum(1)[:, None]


def weighed(scores: Any, kept: Any) -> Any:
    """Softmaxes of rows over what is kept, of the rows of X; X where nothing is."""
    shares = np.where(kept, np.exp(scores), 0)
    total = shares.sum(1, keepdims=True)
    return np.where(total > 0, shares @ X / np.where(total > 0, total, 1), X)


CASES = {
    "a[i] = sum[l] A[i,l] * x[l]": A @ X,
    "a[i] = mean[l] x[l] weighted A[i,l] else x[i]": np.where(MASS > 0, A @ X / np.where(MASS > 0, MASS, 1), X),
    "a[s] = sum[i] C[i,s] * x[i]": C.T @ X,
    "a[i] = sum[l] 1 where A[i,l]": (A > 0).sum(1),
    "a[i] = sum[l] A[i,l] * |x[i] - x[l]|^2": (A * ((X[:, None] - X[None]) ** 2).sum(-1)).sum(1),
    "a[i] = sum[l] softmax[l](<x[i], x[l]> + B[i,l]) * x[l] else 0": weighed(SCORES + B, A >= 0),
    "a[i] = sum[l] softmax[l](<x[i], x[l]> + B[i,l] where A[i,l] > 0) * x[l] else x[i]": weighed(SCORES + B, A > 0),
    "a[i] = sum[l] A[i,l] * u[l] / (1 + sum[i] A[l,i])": A @ (U / (1 + A.sum(1))),
    "a[i] = sum[l] relu(u[l] - u[i]) * A[i,l] where i != l": (A * np.maximum(U[None] - U[:, None], 0)).sum(1),
    "a[i] = sum[l] A[i,l] * (u[l-1] else 0)": A @ np.append(0, U[:-1]),
}
KINDS = (lambda m: m, sparse.csr_matrix, sparse.coo_array, lambda m: torch.tensor(m).to_sparse())


@pytest.mark.parametrize("equation", CASES)
def test_it_means_what_matrices_mean_and_is_proved(equation: str) -> None:
    checked = weftc.check(SPEC.format(equation))
    checkpoint = weftc.compile(checked)
    model = weftc.load(checkpoint)
    given = {**GIVEN, **{name: sparse.csc_matrix(GIVEN[name]) for name in "AB"}}
    found = model(**given, layers=1)["a"].numpy()
    assert np.abs(found - CASES[equation]).max() < 1e-12
    assert np.abs(found - np.asarray(weftc.interpret(checked, GIVEN, 1)["a"])).max() < 1e-14
    assert prove(checkpoint).verdict == "proved"
    assert {head.strategy for _, head in model.plan().heads()} <= {"equal"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_matrix_is_given_in_any_form(kind: Any) -> None:
    model = weftc.load(weftc.compile(SPEC.format("a[i] = sum[l] A[i,l] * x[l]")))
    given = {name: kind(value) if name in "ABC" else value for name, value in GIVEN.items()}
    assert model(**given, layers=1)["a"].tolist() == model(**GIVEN, layers=1)["a"].tolist()


@pytest.mark.parametrize(
    ("matrix", "told"),
    [
        (np.zeros((3, 4)), "A has shape [3, 4], but u says that there are 9 nodes"),
        (np.zeros((2, N, N)), "A is a batch of matrices; give one problem at a time"),
        ([[1, 2], [3]], "A must be a matrix of numbers"),
        (sparse.csr_matrix((10_000, 10_000)), "A has shape [10000, 10000]"),
    ],
)
def test_what_is_no_matrix_of_these_tokens_is_refused(matrix: Any, told: str) -> None:
    model = weftc.load(weftc.compile(SPEC.format("a[i] = sum[l] A[i,l] * u[l]")))
    with pytest.raises(RunError) as caught:
        model(**{**GIVEN, "A": matrix}, layers=1)
    assert told in str(caught.value)


def test_a_bias_of_too_many_pairs_is_refused_with_the_number() -> None:
    text = "algorithm b tokens i, l in p inputs u[i] : R, B[i,l] : real layer"
    text += " a[i] = sum[l] softmax[l](B[i,l]) * u[l] else 0 outputs a"
    model = weftc.load(weftc.compile(text))
    with pytest.raises(RunError, match="that takes 100,000,000 entries, more than 16,777,216"):
        model(u=np.zeros(10_000), B=sparse.csr_matrix((10_000, 10_000)), layers=1)


def test_an_empty_graph_has_no_sums() -> None:
    model = weftc.load(weftc.compile(SPEC.format("a[i] = mean[l] x[l] weighted A[i,l] else x[i]")))
    assert model(**{**GIVEN, "A": np.zeros((N, N))}, layers=1)["a"].tolist() == X.tolist()


@pytest.mark.parametrize("name", ["m.mtx", "m.npz", "m.npy", "entries.csv", "rows.csv"])
def test_a_matrix_is_read_from_a_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("flow.weft").write_text(
        "algorithm flow tokens i, l in p inputs A[i,l] : real, u[i] : R layer u[i] = sum[l] A[i,l] * u[l] outputs u"
    )
    matrix = np.array([[0, 2.0], [0.5, 0]])
    Path("u.csv").write_text("u\n1\n3\n")
    Path("entries.csv").write_text("from,to,number\n1,2,2\n2,1,0.5\n")
    Path("rows.csv").write_text("0,2\n0.5,0\n")
    Path("m.mtx").write_text("%%MatrixMarket matrix coordinate real general\n2 2 2\n1 2 2\n2 1 0.5\n")
    np.save("m.npy", matrix)
    sparse.save_npz("m.npz", sparse.csr_matrix(matrix))
    from weftc.cli import main

    assert main(["run", "flow.weft", "--data", f"A={name}", "--data", "u=u.csv", "--layers", "1", "-o", "out"]) == 0
    assert [float(word) for word in Path("out/u.csv").read_text().split()[1:]] == [6, 0.5]
