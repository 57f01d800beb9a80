"""Whatever holds the numbers, they arrive; what hides some of them is refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse

import weftc
from weftc.compiling import compile
from weftc.core.errors import InputError
from weftc_runtime import RunError, load

X = np.array([[-3.0, 1.0], [-2.0, 0.5], [0.0, 0.25], [2.0, -1.0], [3.0, 4.0]])
START = X[[0, 4]]
MODEL = load(compile("lloyd", {"d": 2, "k": 2}))


def frozen(x: np.ndarray) -> np.ndarray:
    x = x.copy()
    x.flags.writeable = False
    return x


HOLDERS: dict[str, Callable[[np.ndarray], Any]] = {
    "not to be written to": frozen,
    "backwards": lambda x: x[::-1].copy()[::-1],
    "mirrored": lambda x: x[:, ::-1].copy()[:, ::-1],
    "by columns": np.asfortranarray,
    "other byte order": lambda x: x.astype(">f8"),
    "long double": lambda x: x.astype(np.longdouble),
    "objects": lambda x: x.astype(object),
    "fractions": lambda x: [[Fraction(float(number)) for number in row] for row in x],
    "masked, nothing hidden": lambda x: np.ma.masked_array(x, mask=False),
    "lists": lambda x: x.tolist(),
    "tensor": torch.as_tensor,
}
HIDDEN: dict[str, tuple[Callable[[np.ndarray], Any], str]] = {
    "mask": (lambda x: np.ma.masked_array(x, mask=x > 3), "x has masked entries; remove those rows or fill the gaps"),
    "sparse": (sparse.csr_matrix, r"x is sparse; give x.toarray\(\)"),
    "sparse tensor": (lambda x: torch.as_tensor(x).to_sparse(), r"x is sparse; give x.to_dense\(\)"),
    "text": (lambda x: x.astype(str), "x is not an array of numbers"),
    "text among objects": (lambda x: x.astype(str).astype(object), "x is not an array of numbers"),
    "gaps among objects": (lambda x: [[None, 1.0], [2.0, 3.0]], "x is not an array of numbers"),
    "too large": (lambda x: [[10**400, 1], [2, 3]], "x is not an array of numbers"),
}


@pytest.mark.parametrize("hold", HOLDERS.values(), ids=HOLDERS)
def test_the_same_numbers_give_the_same_answer(hold: Callable[[np.ndarray], Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        given = MODEL(x=hold(X), c=hold(START))
    assert torch.equal(given["centers"], MODEL(x=torch.as_tensor(X), c=torch.as_tensor(START))["centers"])


@pytest.mark.parametrize(("hide", "message"), HIDDEN.values(), ids=HIDDEN)
def test_what_hides_numbers_is_refused(hide: Callable[[np.ndarray], Any], message: str) -> None:
    with pytest.raises(RunError, match=message):
        MODEL(x=hide(X), c=START)


def test_whole_numbers_from_numpy_count_layers_and_seed() -> None:
    assert torch.equal(MODEL(x=X, seed=2, layers=np.int64(3))["centers"], MODEL(x=X, seed=2, layers=3)["centers"])
    many = MODEL(x=np.stack([X, X]), seed=np.arange(2))["centers"]
    assert torch.equal(many[1], MODEL(x=X, seed=1)["centers"])


def test_the_meaning_refuses_masks_too() -> None:
    with pytest.raises(InputError, match="x has masked entries"):
        weftc.interpret("lloyd", {"x": np.ma.masked_array(X, mask=X > 3), "c": START})
