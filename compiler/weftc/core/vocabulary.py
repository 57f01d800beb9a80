"""The words of the language that compute something, with what every stage may know of them.

How a word computes is said once per stage: each has a table from words to its own implementation, and raises for a word
that is not in it. `tests/project/test_vocabulary.py` asks every stage for every word; docs/extending.md adds one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class FunctionTraits:
    """A function of one number; `vectors`: what it does with a vector, coordinate by coordinate or as a whole.

    `increasing`: strictly, so that it changes no order. Where the argument is above `zero` the value is positive.
    """

    meaning: str
    domain: Literal["all numbers", "positive", "nonnegative"] = "all numbers"
    vectors: Literal["each", "whole"] = "each"
    numbers: bool = True
    increasing: bool = False
    sign: Literal["any", "nonnegative", "positive"] = "any"
    zero: float | None = None


@dataclass(frozen=True, slots=True)
class WeightingTraits:
    """Scores of the candidates become weights that add up to one.

    `decides`: who gets weight is a decision, made as exact arithmetic makes it. `chooses`: one candidate gets all.
    `order_only`: increasing functions around the score change nothing. `lowest`: low scores are good. `argument`: what
    stands behind the score, and an example. `ties`: why the clause `ties` has no place (None: it has one).
    """

    meaning: str
    decides: bool = False
    chooses: bool = False
    order_only: bool = False
    lowest: bool = False
    argument: tuple[str, str] | None = None
    ties: str | None = ""


KEEPS = "{} N keeps exactly N, lower index first; {} P% keeps all ties at the boundary"
FUNCTIONS: Mapping[str, FunctionTraits] = {
    "log": FunctionTraits("the natural logarithm", domain="positive", increasing=True, zero=1.0),
    "exp": FunctionTraits("the exponential", increasing=True, sign="positive"),
    "sqrt": FunctionTraits("the square root", domain="nonnegative", increasing=True, sign="nonnegative", zero=0.0),
    "relu": FunctionTraits("t where t > 0, else 0", sign="nonnegative", zero=0.0),
    "tanh": FunctionTraits("the hyperbolic tangent", increasing=True, zero=0.0),
    "abs": FunctionTraits("t without its sign", sign="nonnegative", zero=0.0),
    "sigmoid": FunctionTraits("1 / (1 + exp(-t))", increasing=True, sign="positive"),
    "softplus": FunctionTraits("log(1 + exp(t))", increasing=True, sign="positive"),
    "unit": FunctionTraits("v / |v|", vectors="whole", numbers=False),
}
WEIGHTINGS: Mapping[str, WeightingTraits] = {
    "argmax": WeightingTraits(
        "1 for the largest score, 0 else", decides=True, chooses=True, order_only=True, ties=None
    ),
    "argmin": WeightingTraits(
        "1 for the smallest score, 0 else", decides=True, chooses=True, order_only=True, lowest=True, ties=None
    ),
    "softmax": WeightingTraits("exp(S) / sum of exp(S)"),
    "sparsemax": WeightingTraits("the nearest point of the simplex to S"),
    "entmax15": WeightingTraits("max(0, S/2 - t)^2, with t such that they add up to 1"),
    "normmax": WeightingTraits(
        "even on the best m; m is the smallest with gamma * (sum of gaps of the best m to the next) >= 1",
        decides=True,
        argument=("its budget", "as in normmax[{i}](S, gamma)"),
    ),
    "lowest": WeightingTraits(
        "even on the N smallest; with P%, on those with 100 * (number of smaller ones) <= P * (candidates - 1)",
        decides=True,
        order_only=True,
        lowest=True,
        argument=("how many, or a share", "as in lowest[{i}](S, 3) or lowest[{i}](S, 90%)"),
        ties=KEEPS.format("lowest", "lowest"),
    ),
    "highest": WeightingTraits(
        "even on the N largest; with P%, on those with 100 * (number of larger ones) <= P * (candidates - 1)",
        decides=True,
        order_only=True,
        argument=("how many, or a share", "as in highest[{i}](S, 3) or highest[{i}](S, 90%)"),
        ties=KEEPS.format("highest", "highest"),
    ),
    "sample": WeightingTraits(
        "1 for the largest S + g, 0 else",
        decides=True,
        chooses=True,
        ties="with continuous noise equal scores do not happen; the first would win",
    ),
    "normalize": WeightingTraits("S / sum of S, for S known to be >= 0"),
}
REDUCTIONS: Mapping[str, str] = {
    "sum": "the sum",
    "mean": "the sum of weights times values over the sum of weights",
    "max": "the largest",
    "min": "the smallest",
    "logsumexp": "the logarithm of the sum of exponentials",
}
NOISES: Mapping[str, str] = {
    "gumbel": "-log(-log U), U uniform in (0, 1); with it, `sample` draws from softmax(S)",
    "normal": "mean 0, variance 1",
    "uniform": "in (0, 1)",
}
TIE_RULES: Mapping[str, str] = {
    "first": "the lowest index wins",
    "split": "even weights on all best ones",
    "average": "the same as `split`, in the words of the papers",
    "within": "scores closer than EPS to the best count as equal, the lowest index wins",
}
INITIALISERS: Mapping[str, str] = {
    "spread": "different rows, far apart: each next one with a chance in proportion to how often it occurs times its "
    "squared distance to the nearest one picked before",
    "spectral": "the same, with distances between the rows' images along the leading eigenvectors of the sum of x x^T, "
    "as many as rows are picked",
    "random": "different rows, with chances in proportion to how often each occurs",
    "first": "the first different rows",
    "copy": "all rows, in order",
}
DRAWN = frozenset({"spread", "spectral", "random"})  # initialisers that depend on the seed
DECIDING = frozenset(word for word, traits in WEIGHTINGS.items() if traits.decides)
CHOICES = frozenset(word for word, traits in WEIGHTINGS.items() if traits.chooses)
