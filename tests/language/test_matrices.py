"""Matrices: each line of a spec is what NumPy makes of it, in the meaning and in both score styles."""

from __future__ import annotations

import numpy as np
import pytest

import weftc

FRAME = """algorithm t
tokens  i in points
        e, f in axes : d
inputs  A : R^m x d,  B : R^d x d,  x[i] : R^d,  y[i] : R^m
let     M = 2 * B - identity
layer
  {}
outputs v
"""
RNG = np.random.default_rng(4)
A, B, X, Y = (RNG.integers(-3, 4, shape) / 2 for shape in ((3, 2), (2, 2), (4, 2), (4, 3)))
EYE = np.eye(2)
M = 2 * B - EYE
WANTED = {
    "v[i] = A * x[i]": X @ A.T,
    "v[i] = A^T * y[i] + x[i]": Y @ A + X,
    "v[i] = M * x[i]": X @ M.T,
    "v[i] = B * B^T * A^T * A * x[i]": X @ (B @ B.T @ A.T @ A).T,
    "v[i] = B^3 * x[i]": X @ np.linalg.matrix_power(B, 3).T,
    "v[i] = (B - 3 * identity / 2)^T * x[i]": X @ (B - 1.5 * EYE),
    "v[i] = diag(x[i]) * B * x[i]": X * (X @ B.T),
    "v[i] = diag(B)": np.tile(np.diag(B), (4, 1)),
    "v[i] = relu(B) * x[i]": X @ np.maximum(B, 0).T,
    "v[i] = (x[i] * x[i]^T) * B * x[i]": X * np.einsum("ni,ij,nj->n", X, B, X)[:, None],
    "v[i] = <x[i], B * x[i]>": np.einsum("ni,ij,nj->n", X, B, X),
    "v[i] = y[i]^T * A * x[i]": np.einsum("ni,ij,nj->n", Y, A, X),
    "v[i] = <A, y[i] * x[i]^T>": np.einsum("ni,ij,nj->n", Y, A, X),
    "v[i] = y[i]^T * y[i] + trace(B) + |A|^2": (Y**2).sum(1) + np.trace(B) + (A**2).sum(),
    "v[i] = [[1, -2], [0, 1/3], [0, 0]] * x[i]": X @ np.array([[1, -2], [0, 1 / 3], [0, 0]]).T,
    "v[i] = [[1, trace(B)], [0, |x[i]|^2]]^T * B * x[i]": np.stack(
        [X @ B[0], np.trace(B) * (X @ B[0]) + (X**2).sum(1) * (X @ B[1])], 1
    ),
    "v = A * [[1, -2], [1/2, 0]] * B": A @ np.array([[1, -2], [0.5, 0]]) @ B,
    "v[i] = exp(x[i]) ./ sqrt(1/2 * [[2, 0], [0, 2]] * exp(x[i]))": np.sqrt(np.exp(X)),
    "v = A * M": A @ M,
    "v = A^T * A - B^T": A.T @ A - B.T,
    "v = mean[i] y[i] * x[i]^T": np.einsum("ni,nj->ij", Y, X) / 4,
    "v = -B .* B / 2": -B * B / 2,
    "v = trace(B * M * B)": np.trace(B @ M @ B),
    "v = A * (sum[i] x[i])": A @ X.sum(0),
    "v[e,f] = B[f,e] + B[e,e] * <B[e], B[f]>": B.T + np.diag(B)[:, None] * (B @ B.T),
    "v[e] = onehot(e) - B[e]": EYE - B,
}


@pytest.mark.parametrize("line", WANTED)
def test_is_what_numpy_makes_of_it(line: str) -> None:
    text, data = FRAME.format(line), {"A": A, "B": B, "x": X, "y": Y}
    dims = {"d": 2, "m": 3}
    if "[[" in line:
        text, dims = text.replace(": d", ": 2").replace("x d", "x 2").replace("^d", "^2").replace("^m", "^3"), {}
    wanted = np.asarray(WANTED[line])
    meant = np.asarray(weftc.interpret(text, data, layers=1)["v"])
    assert np.allclose(meant.reshape(wanted.shape), wanted, atol=1e-12)
    for scores in ("l2", "dot"):
        made = weftc.compile(text, dims, scores=scores)  # type: ignore[arg-type]
        for backend in ("reference", "planned"):
            found = weftc.load(made, backend=backend)(**data, layers=1)["v"].numpy()
            assert np.allclose(found.reshape(wanted.shape), wanted, atol=1e-12), (scores, backend)


def test_the_diagonal_alone_is_made_for_as_many_queries_as_keys() -> None:
    """The native machine makes only the diagonal where nothing else is read; it did so for one token only."""
    text = "algorithm t tokens e in axes : 5 inputs B : R^5 x 5 layer v = diag(B * B) outputs v"
    square = np.arange(25.0).reshape(5, 5)
    found = weftc.load(weftc.compile(text))(B=square, layers=1)["v"].numpy()
    assert (found.reshape(5) == np.diag(square @ square)).all()


def test_kalman_with_matrices_over_many_layers() -> None:
    """Predict and correct with one look at a time, against the textbook's formulas."""
    text = """algorithm t
tokens t in times
inputs A : R^2 x 2, C : R^1 x 2, z[t] : R^1
state  m : R^2 = 0, P : R^2 x 2 = identity
layer
  o = mean[t] z[t] where t = layer else 0
  m = A * m
  P = A * P * A^T + 0.1 * identity
  then
  S = C * P * C^T + identity
  then
  K = P * C^T / trace(S)
  then
  m = m + K * (o - C * m)
  P = (identity - K * C) * P
outputs m, P
"""
    A, C, looks = np.array([[1.0, 0.5], [0.0, 0.9]]), np.array([[1.0, 0.0]]), RNG.normal(size=(6, 1))
    m, P = np.zeros(2), np.eye(2)
    for z in looks:
        m, P = A @ m, A @ P @ A.T + 0.1 * np.eye(2)
        K = P @ C.T / (C @ P @ C.T + 1)
        m, P = m + K @ (z - C @ m), (np.eye(2) - K @ C) @ P
    found = weftc.load(weftc.compile(text))(A=A, C=C, z=looks, layers=6)
    assert np.allclose(found["m"].numpy().reshape(2), m, atol=1e-12)
    assert np.allclose(found["P"].numpy(), P, atol=1e-12)
