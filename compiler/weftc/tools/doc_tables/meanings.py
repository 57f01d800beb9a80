"""What the words of the language mean, one sentence each; `tables` puts it beside what registries and checker say.

A word of a registry that is missing here is a `KeyError` when its table is made, which a test sees.
"""

from __future__ import annotations

SECTION = {
    "algorithm": "the name of the spec, and texts that describe it",
    "tokens": "sets of tokens, and the indices that run over each",
    "inputs": "fields the user gives",
    "random": "fields drawn anew in every layer",
    "state": "fields with a start of their own",
    "param": "numbers that are settled when the spec compiles",
    "let": "names for expressions",
    "layer": "the equations of one iteration",
    "repeat": "how many layers to run when the user does not say",
    "outputs": "what a run returns",
    "objective": "one number for a whole run, to be small",
    "example": "inputs and what must come out",
}
WORD = {
    "R": "the type of numbers; `R^d` of vectors",
    "and": "joins conditions",
    "by": "takes a mean by a weighting",
    "count": "the number of tokens of a set",
    "else": "the value to use where another is undefined",
    "in": "an index in its set; a number in a range",
    "index": "the position 1, 2, ... of a token",
    "init": "how an input starts when none is given",
    "layers": "how many layers an example runs",
    "noise": "what a sample adds to its scores",
    "then": "starts the next step of a layer",
    "ties": "what a choice does with equal scores",
    "weighted": "the weights of a mean",
    "where": "which tokens take part",
    "within": "the tolerance of `ties`",
}
WEIGHTS = {
    "argmax": "1 for the largest score, 0 else",
    "argmin": "1 for the smallest score, 0 else",
    "softmax": "exp(S) / sum of exp(S)",
    "sparsemax": "the nearest point of the simplex to S",
    "normmax": "even on the best m; m is the smallest with gamma * (sum of gaps of the best m to the next) >= 1",
    "lowest": "even on the N smallest; with P%, on those with 100 * (number of smaller ones) <= P * (candidates - 1)",
    "highest": "even on the N largest; with P%, on those with 100 * (number of larger ones) <= P * (candidates - 1)",
    "sample": "1 for the largest S + g, 0 else",
    "normalize": "S / sum of S, for S known to be >= 0",
}
TIES = {
    "first": "the lowest index wins",
    "split": "even weights on all best ones",
    "average": "the same as `split`, in the words of the papers",
    "within": "scores closer than EPS to the best count as equal, the lowest index wins",
}
REDUCED = {
    "sum": "the sum",
    "mean": "the sum of weights times values over the sum of weights",
    "max": "the largest",
    "min": "the smallest",
    "logsumexp": "the logarithm of the sum of exponentials",
}
APPLIED = {
    "log": "the natural logarithm",
    "exp": "the exponential",
    "sqrt": "the square root",
    "relu": "t where t > 0, else 0",
    "tanh": "the hyperbolic tangent",
    "unit": "v / |v|",
}
DRAWN = {
    "gumbel": "-log(-log U), U uniform in (0, 1); with it, `sample` draws from softmax(S)",
    "normal": "mean 0, variance 1",
    "uniform": "in (0, 1)",
}
STARTS = {
    "spread": "different rows, far apart: each next one with a chance in proportion to how often it occurs times its "
    "squared distance to the nearest one picked before",
    "random": "different rows, with chances in proportion to how often each occurs",
    "first": "the first different rows",
    "copy": "all rows, in order",
}
TYPES = (
    ("R", "s[i] : R", "one number per token"),
    ("R^d", "s[i] : R^d", "a vector of d numbers per token; d is a dimension or a number"),
    ("unit R^d", "s[i] : unit R^d", "a vector of length one per token"),
    ("onehot", "s[i,j] : onehot", "one number per pair; in every row a single 1, else 0"),
    ("simplex", "s[i,j] : simplex", "one number per pair; every row >= 0 and sums to 1"),
    ("real", "s[i,j] : real", "one number per pair"),
)
LEVELS = {  # rules of the grammar from loose to tight -> what they are for people
    "rhs": "B where A is undefined",
    "expr": "sum and difference",
    "term": "reductions, and weightings without parentheses: reach over the product to their right",
    "chain": "product and quotient",
    "unary": "negation",
    "power": "whole power; percentage",
}
