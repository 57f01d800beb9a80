"""The rules of the prover: everything it may infer that is not arithmetic of polynomials.

A rule is an identity, with the condition under which it holds. Each is applied in one place, by the method of the
kernel that is named beside it, and every application is noted: what was asked, and what the answer is. A note is a
claim about numbers that can be evaluated at any point (`tests/term_values.py` does, with the executor's exact numbers).

Conventions, so that every term has a value everywhere: 1/0 is 0, the root of a negative number is 0, and where no key
is eligible (or there is no mass) every weight is 0. Whether a program *stops* there is not a matter of terms: the sets
of inputs on which program and spec have no value are compared apart. A logarithm outside its domain has no value, and
no claim is made where one is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from weftc.prover.kernel.polynomials import Frozen, Mono, Number

Operand: TypeAlias = Any  # frozen polynomials, monomials, names, numbers, and tuples of these


@dataclass(frozen=True, slots=True)
class Rule:
    """An identity, and where it holds."""

    name: str
    says: str
    where: str = "always"


@dataclass(frozen=True, slots=True)
class Application:
    """One use of a rule: the operation that was asked for, what it was applied to, and the result."""

    rule: str
    operation: str
    operands: tuple[Operand, ...]
    result: Operand


ZEROS = "in the second, a > 0, t >= 0 and every term of p is >= 0"
_RULES = (
    # ---- products: `products.Products._reduced`
    Rule("bit", "b b = b", "b is 0 or 1: an indicator, or an entry of a one-hot row"),
    Rule("one-hot", "b c = 0", "b and c are different entries of one one-hot row"),
    Rule("no quotient", "[p = 0] (1/p) = 0"),
    Rule("no weight", "[nobody is eligible] w = 0", "w is a weight of that choice, or a sum of such"),
    Rule("sign of nothing", "[p = 0] sign(p) = 0"),
    Rule("positive term", "t [t + p > 0] = t", "t >= 0 and every term of p is >= 0"),
    Rule("zero term", "t [t + p = 0] = 0", "t >= 0 and every term of p is >= 0, or p is 0"),
    Rule("quotient by itself", "p (1/p) = 1 - [p = 0]"),
    Rule("root squared", "sqrt(p)^2 = p", "p >= 0; elsewhere it is relu(p)"),
    Rule("relu squared", "relu(p)^2 = p relu(p)"),
    Rule("order", "[p > 0] [p = 0] = 0,  [p > 0] [p >= 0] = [p > 0],  [p = 0] [p >= 0] = [p = 0]"),
    Rule("sign squared", "sign(p)^2 = 1 - [p = 0]"),
    # ---- quotients: `products.Products.inverse`
    Rule("quotient", "1/(c a b) = (1/c) (1/a) (1/b),  1/(1/p) = p,  1/sqrt(p) = sqrt(p) (1/p)", "c is a number, not 0"),
    Rule("quotient by a power", "1/p^n = (1/p)^n", "n is a whole number above 1"),
    Rule("quotient where there is one", "1/(p + c [p = 0]) = 1/p + (1/c) [p = 0]", "c is a number, not 0"),
    # ---- functions: `functions.Functions`
    Rule("exponential", "exp(c m + d n) = exp(m)^c exp(n)^d"),
    Rule("exponential of a logarithm", "exp(c log p) = p^c", "c is whole and p > 0"),
    Rule("logarithm", "log(c exp(m)^k a^l p) = log c + k m + l log a + log p", "c > 0 and a > 0"),
    Rule(
        "logarithm where there is one",
        "log(relu(p) + 1 - [p > 0]) = [p > 0] log p,  log(p + [p = 0]) = (1 - [p = 0]) log p",
        "the result is zero where the factor is, whatever log p is there",
    ),
    Rule("root", "sqrt(c p) = sqrt(c) sqrt(p)", "c is a positive number"),
    Rule("root of relu", "sqrt(relu(p)) = sqrt(p)"),
    Rule("root of a number", "sqrt(a^2 b) = a sqrt(b)", "a is positive"),
    Rule("relu", "relu(c p) = c relu(p),  relu(-c p) = c relu(p) - c p", "c is a positive number"),
    Rule("relu of a sign", "relu(sign(p)) = [p > 0],  relu(-sign(p)) = [-p > 0]"),
    Rule("relu of what has a sign", "relu(p) = p,  relu(-p) = 0", "p >= 0"),
    Rule("absolute", "|p| = 2 relu(p) - p"),
    Rule("sign", "sign(c a p) = sign(p),  sign(-c p) = -sign(p)", "c and a are positive"),
    Rule("sign of what has one", "sign(p) = 1 - [p = 0],  sign(-p) = [p = 0] - 1", "p >= 0"),
    Rule("tanh", "tanh(-p) = -tanh(p)"),
    # ---- comparisons: `functions.Functions.compare`, `zeros`, `nothing`, `parted`
    Rule("comparison", "[c p > 0] = [p > 0],  [-c p > 0] = 1 - [p >= 0]", "c is a positive number"),
    Rule("comparison of a bit", "[a + c b > 0] is linear in b", "b is 0 or 1, a and c are numbers"),
    Rule("comparison of what is positive", "[p > 0] = 1, [-p >= 0] = 0", "p > 0"),
    Rule("at least", "[p >= 0] = [p > 0] + [p = 0]"),
    Rule("zero of a product", "[a b = 0] is 1 where [a = 0] or [b = 0] is;  [a t + [p > 0] = 0] = [t + p = 0]", ZEROS),
    Rule("zero of a bit", "[a + c b = 0] is linear in b", "b is 0 or 1, a and c are numbers"),
    Rule("never zero", "[p = 0] = 0,  [p + c [p = 0] = 0] = 0", "in the first p > 0; c is a number, not 0"),
    # ---- sums over an open set: `weightings.Kernel.total`
    Rule("sum", "sum(c a p + q) = c a sum(p) + sum(q), sum(1) = count", "a is not about the token that is summed over"),
    Rule(
        "weights add up", "sum(w) = 1 - [nobody is eligible], or 1 - own", "w is a weight of a choice, by its own key"
    ),
    # ---- weightings: `weightings.Kernel`
    Rule("shares", "softmax: w = exp(s) m / mass;  normalize: w = s m / mass"),
    Rule("plain weights", "sum: w = s m;  exp: w = exp(s) m"),
    Rule(
        "choice",
        "a choice among c s + t is one among s",
        "c > 0 (c = 1 for sparsemax and entmax15); t is that of every candidate",
    ),
    Rule(
        "increasing",
        "a ranking of s is one of s^2, of exp(p), tanh(p), sigmoid(p), softplus(p) one of p; likewise with a minus",
        "argmax without a tolerance, or top; s >= 0: a product of roots and what is not negative, or |p|",
    ),
    Rule("one candidate", "its weight is 1", "it is always eligible, and no other key competes"),
    Rule("numbers", "an argmax among numbers is what it is", "scores and masks are numbers"),
    Rule("largest", "max(c s + t) = c max(s) + t", "c > 0, t is the same for every candidate; 0 where there is none"),
    Rule("log sum exp", "lse = log of the mass, and 0 where there is none"),
    # ---- comparing: `equality`
    Rule("selection", "select(b, p, q) = b p + (1 - b) q", "b is 0 or 1: b b = b, by cases"),
    Rule("cases", "p = q if it holds where a divisor is 0, and, multiplied out, where it is not"),
    Rule("itself", "an argmax chooses the token itself", "its lead is positive definite in what tells tokens apart"),
    # ---- reading weights: `near.constants`
    Rule("rounded", "a weight stands for the constant c", "it is the float64 nearest to c, a constant of the spec"),
)
RULES: Mapping[str, Rule] = {rule.name: rule for rule in _RULES}


class Unproved(Exception):
    """A part of a spec or a program that the proof has no rule for; the text says which."""


class NotAnInstance(Exception):
    """What was proposed is not what a rule asks for: the search is wrong, or a proof was changed."""


@dataclass(frozen=True, slots=True)
class Factors:
    """A polynomial as coefficient * common factors * square roots * rest."""

    coefficient: Number
    common: Mono
    roots: tuple[int, ...]
    rest: Frozen


Question: TypeAlias = Literal["factors", "shift", "scale", "divisor"]
Oracle: TypeAlias = Callable[[Question, Operand, Any], Any]
"""Who is asked what a proof has to choose: the question, what it is about, and the table of terms.

    factors   a polynomial -> `Factors`, a way to write it as a product
    shift     rows of scores -> what to take away from every row
    scale     a score -> the positive number by which to divide all of them
    divisor   a polynomial -> the quotient in it to multiply out next, or None

Nothing is believed: the kernel checks that an answer is one, or every answer will do.
"""


@dataclass(slots=True)
class Journal:
    """Applications of rules, in the order in which they were first made, and what the oracle has answered."""

    applications: dict[Application, None] = field(default_factory=dict)
    answers: dict[tuple[Question, Operand], Any] = field(default_factory=dict)

    def note(self, rule: str, operation: str, operands: tuple[Operand, ...], result: Operand) -> None:
        """Notes one application."""
        self.applications[Application(RULES[rule].name, operation, operands, result)] = None
