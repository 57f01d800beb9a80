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
    "learn": "parameters that training may change",
    "let": "names for expressions",
    "layer": "the equations of one iteration",
    "phase": "a layer of one kind, of several that run one after the other",
    "repeat": "how many layers to run when the user does not say",
    "outputs": "what a run returns",
    "objective": "one number for a whole run, to be small",
    "example": "inputs and what must come out",
}
WORD = {
    "R": "the type of numbers; `R^d` of vectors, `R^m x d` of matrices",
    "among": "keeps the best of a ranking",
    "and": "joins conditions",
    "by": "takes a mean by a weighting",
    "count": "the number of tokens of a set",
    "else": "the value to use where another is undefined",
    "in": "an index in its set; a number in a range",
    "index": "the position 1, 2, ... of a token",
    "init": "how an input starts when none is given",
    "layers": "how many layers an example runs",
    "noise": "what a sample adds to its scores",
    "per": "`per layer`: a number for each layer is learned",
    "then": "starts the next step of a layer",
    "ties": "what a choice does with equal scores",
    "weighted": "the weights of a mean",
    "where": "which tokens take part",
    "within": "the tolerance of `ties`",
}
TYPES = (
    ("R", "s[i] : R", "one number per token"),
    ("R^d", "s[i] : R^d", "a vector of d numbers per token; d is a dimension or a number"),
    ("unit R^d", "s[i] : unit R^d", "a vector of length one per token"),
    ("R^m x d", "s : R^k x d", "a matrix of m rows; it belongs to no token"),
    ("one of {a, b, c}", "s[i] : one of {a, b, c}", "a symbol per token, as a vector with a single 1"),
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
