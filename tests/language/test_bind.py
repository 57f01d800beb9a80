"""Dimensions and parameters that users give: exact messages for what does not fit, and what is kept of what does."""

from __future__ import annotations

from fractions import Fraction

import pytest

from weftc.core.errors import InputError
from weftc.core.source import Source
from weftc.language.bind import BoundSpec, bind, split
from weftc.language.check.check import check
from weftc.language.parse.parse import parse

SPEC = check(
    parse(
        Source(
            "mine.weft",
            """algorithm mine
tokens  i in points
        j in centers : k
inputs  x[i] : R^d, c[j] : R^d
param   tau = 90 in [0, 100), gamma > 0, m = 3 >= 1, share = 50
        half = gamma / 2 > 0, step = half * (count(points) + 1) > 0, odd = 1 / (k - 2)
layer
  y[i,j] = argmin[j] |x[i] - c[j]|^2
  then
  c[j] = mean[i] x[i] by lowest[i](|x[i] - c[j]|^2 where y[i,j], share%) else c[j]
  z[j] = mean[i] |x[i]| by lowest[i](|x[i] - c[j]|^2, m)
outputs c
""",
        )
    )
)
DIMS: dict[str, object] = {"d": 2, "k": 5}


def refused(dims: dict[str, object], params: dict[str, object]) -> str:
    with pytest.raises(InputError) as caught:
        bind(SPEC, dims, params)  # type: ignore[arg-type]
    return str(caught.value)


def test_values_are_kept_as_given_and_defaults_left_open() -> None:
    bound = bind(SPEC, {"k": 5, "d": 2}, {"gamma": 1, "tau": "99.9"})
    assert bound == BoundSpec(SPEC, {"k": 5, "d": 2}, {"gamma": 1.0, "tau": 99.9})
    assert list(bound.dims) == ["k", "d"]
    assert Fraction(repr(bound.params["tau"])) == Fraction(999, 10)


def test_strings_of_the_command_line_are_numbers() -> None:
    assert bind(SPEC, {"d": "2", "k": "5"}, {"gamma": "1e-3"}).dims == {"k": 5, "d": 2}
    assert split(SPEC, {"k": "5", "tau": "90", "what": "1"}) == ({"k": "5"}, {"tau": "90", "what": "1"})


NAMES = "(mine has k, d, tau, gamma, m, share, half, step, odd)"
WHOLE = "the dimension k must be a positive whole number, not {}; for example dims={{'k': 5}}"
FINITE = "the parameter gamma must be a finite number, not {}; for example params={{'gamma': 0.5}}"
MESSAGES: list[tuple[dict[str, object], dict[str, object], str]] = [
    ({}, {"gamma": 1}, "mine needs the dimensions k and d; for example dims={'k': 5, 'd': 6}"),
    ({"k": 5}, {"gamma": 1}, "mine needs the dimension d; for example dims={'d': 5}"),
    ({"k": 0, "d": 2}, {"gamma": 1}, WHOLE.format("0")),
    ({"k": 2.5, "d": 2}, {"gamma": 1}, WHOLE.format("2.5")),
    ({"k": "five", "d": 2}, {"gamma": 1}, WHOLE.format("five")),
    ({"k": True, "d": 2}, {"gamma": 1}, WHOLE.format("True")),
    ({"k": 10**9, "d": 2}, {"gamma": 1}, "the dimension k is 1000000000; the largest supported is 1000000"),
    ({"d": 2}, {"gamma": 1, "k": 5}, "k is a dimension of mine, not a parameter; give it among the dimensions"),
    (DIMS, {"gamma": "much"}, FINITE.format("much")),
    (DIMS, {"gamma": "nan"}, FINITE.format("nan")),
    (DIMS, {"gamma": float("inf")}, FINITE.format("inf")),
    (DIMS, {"gamma": "\x1b"}, FINITE.format("'\\x1b'")),
    (DIMS, {"gamma": 0}, "the parameter gamma must be > 0, not 0 (declared at mine.weft:5:37)"),
    (DIMS, {"gamma": 1, "taw": 9}, f"unknown dimension or parameter taw; did you mean 'tau'? {NAMES}"),
    (
        DIMS,
        {},
        "the parameter gamma has no default (> 0); give one, for example params={'gamma': 1} "
        "(declared at mine.weft:5:31)",
    ),
    (
        DIMS,
        {"gamma": 1, "tau": 100},
        "the parameter tau must be in [0, 100), not 100 (declared at mine.weft:5:18)",
    ),
    (
        {**DIMS, "x": 3},
        {"gamma": 1},
        f"unknown dimension or parameter x; it is a field: give its values as data {NAMES}",
    ),
    (
        {**DIMS, "tau": 5},
        {"gamma": 1},
        "tau is a parameter of mine, not a dimension; give it among the parameters (declared at mine.weft:5:9)",
    ),
    (
        DIMS,
        {"gamma": 1, "m": 2.5},
        "lowest keeps a whole number of tokens, at least 1, but m is 2.5 (used at mine.weft:11:55)",
    ),
    (
        DIMS,
        {"gamma": 1, "share": 120},
        "lowest keeps a share between 0% and 100%, but share% is 120% (used at mine.weft:10:66)",
    ),
    (
        {"d": 2, "k": 2},
        {"gamma": 1},
        "the default of odd cannot be computed from these values; give it, for example params={'odd': 1} "
        "(declared at mine.weft:6:70)",
    ),
]


@pytest.mark.parametrize(("dims", "params", "message"), MESSAGES, ids=[message[:50] for _, _, message in MESSAGES])
def test_messages(dims: dict[str, object], params: dict[str, object], message: str) -> None:
    assert refused(dims, params) == message


def test_everything_wrong_is_listed_at_once() -> None:
    assert len(refused({"k": 0, "q": 1}, {"tau": 200, "nothing": 1}).splitlines()) == 6


def test_a_computed_default_out_of_its_range_is_noticed() -> None:
    params = "param a = 1, b = a - 2, c = b * 2 > 0"
    spec = check(parse(f"algorithm t tokens i in p inputs x[i] : R^d {params} layer x[i] = b*x[i] outputs x"))
    with pytest.raises(
        InputError, match=r"the default of c comes to -2 here, but must be > 0; give it, for example params="
    ):
        bind(spec, {"d": 1}, {})
    assert bind(spec, {"d": 1}, {"a": 3}).params == {"a": 3.0}
