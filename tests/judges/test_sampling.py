"""SciPy's chi-square test as judge of `sample`.

Equality is one of distributions: with Gumbel noise a draw has the probabilities of the softmax of the scores. Counts
over many tokens and layers, with fixed seeds, must not be less likely than one in a thousand under that softmax; the
same test must reject a softmax at another temperature. Noise that is given decides the draw: equal noise, equal draw.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chisquare

import weftc
from judges.data_sets import Array
from weftc.compiling import checked_spec
from weftc.interpreter.interpreter import Interpreter

DRAWS = """algorithm draws
tokens i in points
       j in options : k
inputs s[i] : R, b[j] : R
random g[i,j] : gumbel
layer
  y[i,j] = sample[j](s[i] * b[j] noise g[i,j])
outputs y
"""
BIAS = np.array([0.0, 0.5, -0.7, 1.2, 0.1])


def softmax(scores: Array) -> Array:
    weights = np.exp(scores - scores.max())
    return np.asarray(weights / weights.sum())


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("side", ["transformer", "interpreter"])
def test_frequencies_are_those_of_the_softmax(side: str, seed: int) -> None:
    n = 4000
    inputs = {"s": np.ones(n), "b": BIAS}
    if side == "transformer":
        labels = weftc.load(weftc.compile(DRAWS, {"k": 5}))(inputs, seed=seed, layers=1)["y"].indices.numpy()
    else:
        labels = Interpreter(checked_spec(DRAWS)).run(inputs, 1, seed=seed)["y"].argmax(1)
    counts = np.bincount(labels, minlength=5)
    assert chisquare(counts, n * softmax(BIAS)).pvalue > 1e-3
    assert chisquare(counts, n * softmax(2 * BIAS)).pvalue < 1e-6, "the test could not tell another temperature"


def test_every_layer_draws_anew() -> None:
    """Successive draws are independent: a table of pairs of them has the product of their probabilities."""
    n, model = 3000, weftc.load(weftc.compile(DRAWS, {"k": 5}))
    inputs = {"s": np.ones(n), "b": BIAS}
    first, second = (model(inputs, seed=7, layers=t)["y"].indices.numpy() for t in (1, 2))
    pairs = np.bincount(5 * first + second, minlength=25)
    assert chisquare(pairs, n * np.outer(softmax(BIAS), softmax(BIAS)).reshape(-1)).pvalue > 1e-3


def test_equal_noise_equal_draw() -> None:
    rng = np.random.default_rng(3)
    inputs, noise = {"s": rng.normal(size=50), "b": BIAS}, {"g": rng.gumbel(size=(2, 50, 5))}
    want = Interpreter(checked_spec(DRAWS)).run(inputs, 2, noise=noise)["y"].argmax(1)
    scores = inputs["s"][:, None] * BIAS + noise["g"][1]
    assert np.sort(scores, 1)[:, -1].min() > np.sort(scores, 1)[:, -2].min(), "no margin"
    assert want.tolist() == scores.argmax(1).tolist()
    for style in ("l2", "dot"):
        model = weftc.load(weftc.compile(DRAWS, {"k": 5}, scores=style))  # type: ignore[arg-type]
        assert model(inputs, layers=2, noise=noise)["y"].indices.tolist() == want.tolist()


@pytest.mark.parametrize("kind", ["random", "spread"])
def test_initialisers_draw_by_their_chances(kind: str) -> None:
    """The first pick is uniform over the rows; `spread` takes the second in proportion to squared distances."""
    text = f"""algorithm starts
    tokens i in points, j in centers : k
    inputs x[i] : R^d, c[j] : R^d init {kind}(x)
    layer c[j] = c[j] outputs c"""
    x = np.array([[0.0], [1.0], [3.0], [7.0]])
    made = Interpreter(checked_spec(text), {"k": 2})
    picks = np.array([made.start({"x": x}, seed=seed)["c"][:, 0] for seed in range(2000)])
    first = np.array([(picks[:, 0] == v).sum() for v in x[:, 0]])
    assert chisquare(first).pvalue > 1e-3
    after = picks[picks[:, 0] == 1.0, 1]
    chances = np.array([1.0, 4.0, 36.0]) if kind == "spread" else np.ones(3)
    counts = np.array([(after == v).sum() for v in (0.0, 3.0, 7.0)])
    assert chisquare(counts, len(after) * chances / chances.sum()).pvalue > 1e-3
