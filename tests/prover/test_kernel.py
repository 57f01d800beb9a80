"""The prover's kernel: every rule against exact numbers, proofs as values, and a checker that believes none of them."""

from __future__ import annotations

import datetime
import json
import math
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from campaign import originals
from hostile_heads import Builder, everyone
from term_values import holds, known_of, not_negative
from weftc.compiling import at_temperature, compile
from weftc.core.source import Source
from weftc.core.styles import Styles
from weftc.core.types import Checked
from weftc.language.check.check import check
from weftc.language.parse.parse import parse
from weftc.prover import prove
from weftc.prover.checker import objection
from weftc.prover.kernel import (
    RULES,
    Application,
    Candidates,
    Factors,
    Kernel,
    NotAnInstance,
    Unproved,
    WeighingTerm,
    chooses_itself,
    equal,
    selected,
)
from weftc.prover.kernel.derivation import Derivation
from weftc.prover.kernel.polynomials import Poly, TooLarge, add, number, scale, subtract
from weftc.prover.kernel.terms import Terms
from weftc.prover.near.constants import Constants
from weftc.prover.search import search
from weftc_runtime import Checkpoint


def meant(made: Checkpoint) -> Checked:
    """The spec that a file stands for."""
    return at_temperature(check(parse(Source("spec", made.spec_text))), Styles.read(made.program.options))


# ---- rules on terms made at random -----------------------------------------------------------------------------------

WEIGHINGS = (
    *(WeighingTerm("argmax", ties) for ties in ("first", "split")),
    WeighingTerm("argmax", "within", Fraction(1, 2)),
    *(WeighingTerm("top", count=count) for count in (1, 2)),
    WeighingTerm("top", percent=Fraction(50)),
    WeighingTerm("normmax", gamma=Fraction(1)),
    *(WeighingTerm(kind) for kind in ("sparsemax", "entmax15", "softmax", "normalize", "sum", "exp")),
)
RULE = st.sampled_from(WEIGHINGS)
NUMBERS = st.sampled_from([1, -1, 2, -2, 3, Fraction(1, 2), Fraction(-3, 4), 4])


class Machine:
    """Draws terms: a stack of polynomials, and operations of the kernel that take from it and put on it."""

    def __init__(self, data: st.DataObject) -> None:
        self.kernel = Kernel(search, onehot=["y"], positive=["w"], nonnegative=["v"])
        self.draw = data.draw
        self.terms: list[Poly] = []

    def pick(self, strategy: Any) -> Any:
        return self.draw(strategy)

    def symbol(self) -> Poly:
        """A field of token 0, of the key token 1, or of a token of a fixed set; a column of a one-hot row; a number."""
        kind = self.pick(st.sampled_from(["x", "x", "w", "v", "y", "number", "count", "position"]))
        if kind == "number":
            return number(self.pick(NUMBERS))
        if kind == "count":
            return self.kernel.atom("count", "points")
        token = self.pick(st.sampled_from([0, 0, 1, 1, None]))
        if kind == "position":
            return self.kernel.atom("position", "points", (token or 0,))
        column = self.pick(st.integers(0, 1))
        place, tokens = (-1, (token,)) if token is not None else (0, ())
        return self.kernel.atom("field", (kind, column, place), tokens)

    def term(self) -> Poly:
        if self.terms and self.pick(st.integers(0, 2)):
            found: Poly = self.pick(st.sampled_from(self.terms))
            return found
        return self.symbol()

    def mask(self) -> Poly:
        one = number(1)
        kind = self.pick(st.sampled_from(["all", "all", "compare", "differ", "never"]))
        if kind == "compare":
            return self.kernel.compare(self.pick(st.sampled_from([">", ">=", "<", "<="])), self.term())
        if kind == "differ":
            return self.kernel.atom("differ", "points", (0, 1))
        return one if kind == "all" else {}

    def candidates(self) -> Candidates:
        own = self.term() if self.pick(st.integers(0, 3)) == 0 else None
        if own is not None:
            own = self.kernel.rename(own, {1: 0})
        if self.pick(st.booleans()):
            return Candidates((self.term(),), (self.mask(),), "points", 1, own)
        many = self.pick(st.integers(1, 3))
        scores = tuple(self.kernel.rename(self.term(), {1: 0}) for _ in range(many))
        return Candidates(scores, tuple(self.kernel.rename(self.mask(), {1: 0}) for _ in range(many)), own=own)

    def step(self) -> Iterator[Poly]:
        kernel, p = self.kernel, self.term()
        match self.pick(st.integers(0, 12)):
            case 0:
                yield add(p, self.term())
            case 1:
                yield kernel.multiply(p, self.term())
            case 2:
                yield kernel.power(p, 2)
            case 3 if p:
                inverse = kernel.inverse(p)
                yield inverse
                yield kernel.multiply(inverse, kernel.nothing(p))
                filled = add(p, scale(kernel.nothing(p), self.pick(NUMBERS)))
                yield kernel.inverse(filled)
                yield kernel.nothing(filled)
                there = kernel.compare(">", p)
                inside = add(kernel.relu(p), number(1), scale(there, -1))
                yield kernel.log(inside)
                yield kernel.compare(">", inside)
                yield kernel.multiply(there, kernel.multiply(kernel.nothing(p), kernel.compare(">=", p)))
                yield kernel.sqrt(scale(kernel.relu(p), 2))
                yield kernel.relu(scale(kernel.sign(p), self.pick(NUMBERS)))
            case 4:
                names = ["exp", "log", "sqrt", "relu", "tanh", "abs", "sigmoid", "softplus", "relu2"]
                yield kernel.apply(self.pick(st.sampled_from(names)), p)
            case 5:
                yield kernel.compare(self.pick(st.sampled_from([">", ">=", "<", "<="])), p)
            case 6:
                yield kernel.nothing(p)
            case 7:
                yield kernel.total("points", 1, p)
            case 8:
                keys = self.candidates()
                found = kernel.weigh(self.pick(RULE), keys)
                yield kernel.multiply(found.weights[0], found.empty)
                if keys.over is not None:
                    yield kernel.total("points", 1, found.weights[0])
                    yield kernel.total("points", 1, kernel.multiply(found.weights[0], p))
                    yield kernel.multiply(kernel.total("points", 1, kernel.multiply(found.weights[0], p)), found.empty)
                yield from found.weights
                yield found.own
            case 9:
                keys = self.candidates()
                yield (kernel.log_sum(keys) if keys.own is not None else kernel.largest(keys))[0]
            case 10:
                yield kernel.square([p, self.term()])
                yield from kernel.unit([p])[0]
                yield from kernel.unit([p, self.term()])[0]
            case 11:
                yield scale(p, self.pick(NUMBERS))
            case 12:
                yield kernel.rename(p, {1: 0})  # two tokens become one
            case _:
                yield p

    def run(self, steps: int) -> None:
        for _ in range(steps):
            try:
                self.terms += [p for p in self.step() if 0 < len(p) <= 12]
            except (TooLarge, ZeroDivisionError):
                continue


def assert_true(terms: Terms, applications: Iterable[Application], points: int) -> Counter[str]:
    """Evaluates claims at points; how many were true, by rule."""
    seen: Counter[str] = Counter()
    for at, one in enumerate(applications):
        for seed in range(at, at + points):  # other points for every claim
            found = holds(terms, one, seed)
            assert found is not False, f"{one} is wrong at point {seed}"
            seen[one.rule] += found is True
    return seen


def assert_known(kernel: Kernel, points: int) -> None:
    """Signs, bits and zeros that the kernel takes for granted, at points."""
    for seed in range(points):
        for a, atom in enumerate(kernel.atoms):
            told = known_of(kernel, a, seed)
            assert told is not False, f"{atom} is not what it is taken for at point {seed}"
        for frozen in sorted(kernel.squares):
            assert not_negative(kernel, frozen, seed) is not False, f"{frozen} is negative at point {seed}"


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_every_application_of_a_rule_is_true(data: st.DataObject) -> None:
    machine = Machine(data)
    kernel = machine.kernel
    machine.run(data.draw(st.integers(2, 14)))
    p, q = machine.term(), machine.term()
    if p and q:
        quotient = kernel.multiply(kernel.multiply(p, kernel.inverse(q)), q)
        equal(kernel, quotient, p)
        equal(kernel, quotient, kernel.multiply(p, subtract(number(1), kernel.nothing(q))))
    assert_true(kernel, kernel.journal.applications, 3)
    assert_known(kernel, 3)


# ---- each rule by itself ---------------------------------------------------------------------------------------------


def field_(kernel: Kernel, name: str, token: int | None = 0, column: int = 0) -> Poly:
    return kernel.atom("field", (name, column, -1 if token is not None else 0), () if token is None else (token,))


def open_keys(kernel: Kernel, own: bool = False, masked: bool = True) -> Candidates:
    """Keys of an open set: x of the query against x of the key, where that is large enough."""
    x, key = field_(kernel, "x"), field_(kernel, "x", 1)
    mask = kernel.compare(">", subtract(key, x)) if masked else number(1)
    score = add(kernel.multiply(x, key), scale(key, 2), x)
    return Candidates((score,), (mask,), "points", 1, add(x, number(1)) if own else None)


def fixed_keys(kernel: Kernel, own: bool = False, masked: bool = True) -> Candidates:
    """Three keys of a fixed set."""
    x, w = field_(kernel, "x"), field_(kernel, "w")
    scores = (add(scale(x, 2), w), add(scale(x, 4), w), add(w, number(1)))
    masks = tuple(
        kernel.compare(op, p) if masked else number(1) for op, p in zip((">", "<=", ">="), scores, strict=True)
    )
    return Candidates(scores, masks, own=x if own else None)


def every_keys(kernel: Kernel) -> Iterator[Candidates]:
    for own in (False, True):
        for masked in (False, True):
            yield open_keys(kernel, own, masked)
            yield fixed_keys(kernel, own, masked)


def weigh(*kinds: str) -> Callable[[Kernel], None]:
    def work(kernel: Kernel) -> None:
        for keys in every_keys(kernel):
            for rule in WEIGHINGS:
                if rule.kind in kinds:
                    kernel.weigh(rule, keys)

    return work


def without_weights(kernel: Kernel) -> None:
    for rule in WEIGHINGS:
        found = kernel.weigh(rule, open_keys(kernel))
        kernel.multiply(found.weights[0], found.empty)
        inside = kernel.multiply(found.weights[0], field_(kernel, "w", 1))
        kernel.multiply(kernel.total("points", 1, inside), found.empty)


def added_up(kernel: Kernel) -> None:
    for rule in WEIGHINGS:
        for keys in (open_keys(kernel), open_keys(kernel, own=True), open_keys(kernel, masked=False)):
            weight = kernel.weigh(rule, keys).weights[0]
            kernel.total("points", 1, weight)
            kernel.total("points", 0, kernel.rename(weight, {1: 0}))  # of every token for itself: not one


def of_every(operation: str) -> Callable[[Kernel], None]:
    """A function of polynomials with all kinds of factors and signs."""

    def work(kernel: Kernel) -> None:
        x, w, y = field_(kernel, "x"), field_(kernel, "w"), field_(kernel, "y")
        square = kernel.square([x, subtract(x, w)])
        several = kernel.square([x, field_(kernel, "x", 0, 1)])
        parts = [
            x,
            w,
            y,
            number(12),
            add(x, number(1)),
            square,
            several,
            kernel.sqrt(square),
            kernel.exp(x),
            kernel.sqrt(x),
        ]
        parts += [kernel.inverse(x), kernel.inverse(add(x, w)), kernel.relu(x), kernel.log(w), kernel.sqrt(number(12))]
        for p in parts:
            for q in (*parts, number(-2), number(Fraction(2, 3))):
                for r in (kernel.multiply(p, q), add(p, q), subtract(p, q)):
                    if r:
                        getattr(kernel, operation)(r)

    return work


def vanishing(kernel: Kernel) -> None:
    """Zeros of sums: of squares, of terms that are not negative, of terms that may cancel."""
    x = [field_(kernel, "x", 0, column) for column in (0, 1)]
    v = [field_(kernel, "v", 0, column) for column in (0, 1)]
    w, y = field_(kernel, "w"), field_(kernel, "y")
    for p in (kernel.square(x), add(*x), add(*v), add(v[0], kernel.power(x[0], 2)), add(kernel.multiply(w, v[0]), y)):
        for q in (number(1), w, x[0], v[1], kernel.compare(">", add(*v)), kernel.compare(">", x[1]), kernel.sqrt(x[1])):
            for r in (kernel.multiply(p, q), add(p, q)):
                kernel.zeros(r)


def divided(kernel: Kernel) -> None:
    """Numbers by themselves, and by what is 1 where they are zero."""
    x, v, y = field_(kernel, "x"), field_(kernel, "v"), field_(kernel, "y")
    for p in (x, v, y, kernel.relu(x), kernel.multiply(x, v), subtract(x, number(1)), kernel.square([x, v])):
        inverse, there = kernel.inverse(p), add(p, kernel.nothing(p))
        for q in (p, kernel.product(p, p), kernel.multiply(p, v)):
            kernel.product(q, inverse, inverse)
            kernel.multiply(q, inverse)
        kernel.zeros(there)
        kernel.product(p, kernel.inverse(there), x)


def compared(kernel: Kernel) -> None:
    x, w, y = (field_(kernel, name) for name in "xwy")
    for p in (x, w, y, kernel.square([x]), kernel.inverse(x), kernel.nothing(x), kernel.sign(x), kernel.relu(x)):
        for shift in (-1, Fraction(-1, 2), 0, 1):
            for sign in (1, -1, 3):
                moved = scale(add(p, number(shift)), sign)
                for found in (kernel.compare(">", moved), kernel.compare(">=", moved)):
                    assert kernel.multiply(found, found) == found
                if p != x or shift or sign < 0:
                    continue
                for q in (w, x, kernel.inverse(w)):
                    parts = kernel.multiply(q, subtract(kernel.compare(">=", moved), kernel.compare(">", moved)))
                    assert kernel.parted(parts) == kernel.multiply(q, kernel.nothing(moved))
                assert add(kernel.compare("<", moved), kernel.compare(">=", moved)) == number(1)


def multiplied_out(kernel: Kernel) -> None:
    x, w = field_(kernel, "x"), field_(kernel, "w")
    for divisor in (x, w, add(x, w), kernel.multiply(x, add(x, w))):
        quotient = kernel.multiply(kernel.inverse(divisor), divisor)
        there = subtract(number(1), kernel.nothing(divisor))
        assert equal(kernel, kernel.multiply(quotient, x), kernel.multiply(there, x))
        assert equal(kernel, quotient, number(1), kernel.zeros(divisor))
        assert equal(kernel, quotient, number(1)) == (divisor == w)


def ranked(kernel: Kernel) -> None:
    x, key, w = field_(kernel, "x"), field_(kernel, "x", 1), field_(kernel, "w")
    other, second = field_(kernel, "x", 0, 1), field_(kernel, "x", 1, 1)
    lengths = [
        kernel.sqrt(kernel.square([subtract(x, key), subtract(other, second)])),
        kernel.absolute(subtract(x, key)),
    ]
    for score in (*lengths, kernel.exp(kernel.multiply(x, key)), kernel.multiply(w, lengths[0])):
        for sign in (1, -1, 3):
            for rule in (one for one in WEIGHINGS if one.kind in ("argmax", "top")):
                kernel.weigh(rule, Candidates((scale(score, sign),), (number(1),), "points", 1))
                fixed = [kernel.rename(score, {1: 0}), lengths[0], {}] if score in lengths else [score, score, score]
                kernel.weigh(rule, Candidates(tuple(scale(p, sign) for p in fixed), (number(1),) * 3))


def chosen_by_a_flag(kernel: Kernel) -> None:
    x, w, y = field_(kernel, "x"), field_(kernel, "w"), field_(kernel, "y")
    sign = kernel.multiply(kernel.multiply(x, kernel.sqrt(kernel.square([x]))), kernel.inverse(kernel.square([x])))
    flags = y, kernel.compare(">", x), kernel.nothing(add(x, w)), kernel.multiply(sign, sign), number(1)
    for flag in flags:
        selected(kernel, flag, [(x, w), (kernel.inverse(x), number(2))])
    for number_ in (x, w, scale(y, 2), sign):
        with pytest.raises(Unproved):
            selected(kernel, number_, [(x, w)])


def erased(kernel: Kernel) -> None:
    x, key = ([field_(kernel, "x", token, column) for column in (0, 1)] for token in (0, 1))
    apart = kernel.square([subtract(a, b) for a, b in zip(x, key, strict=True)])
    coordinates = [("x", 0), ("x", 1)]
    assert chooses_itself(kernel, scale(apart, -1), coordinates)
    assert chooses_itself(kernel, subtract(scale(kernel.dot(x, key), 2), kernel.dot(key, key)), coordinates)
    assert not chooses_itself(kernel, apart, coordinates)
    assert not chooses_itself(kernel, scale(kernel.square([subtract(x[0], key[0])]), -1), coordinates)


def products(kernel: Kernel) -> None:
    x, y, z = field_(kernel, "x"), field_(kernel, "y"), field_(kernel, "y", 0, 1)
    for a in (x, subtract(x, number(1)), kernel.square([x])):
        inverse, root, positive, bit = kernel.inverse(a), kernel.sqrt(a), kernel.relu(a), kernel.compare(">", a)
        for p in (kernel.nothing(a), inverse, root, positive, bit, y, z):
            for q in (inverse, root, positive, bit, y, z, kernel.multiply(root, positive)):
                kernel.product(p, q, q)
    kernel.multiply(y, z)
    v = [field_(kernel, "v", 0, column) for column in (0, 1, 2)]
    for asked in (add(*v), add(v[0], kernel.multiply(v[1], y)), kernel.product(v[0], field_(kernel, "w"), v[1]), x):
        bits = kernel.compare(">", asked), kernel.nothing(asked)
        for p in (*v, kernel.multiply(v[0], x), kernel.multiply(v[1], y), x, kernel.multiply(v[2], bits[0])):
            for bit in bits:
                kernel.multiply(p, bit)


def guarded(kernel: Kernel) -> None:
    """What a file computes where it selects: signs, and numbers that are 1 where they would be outside a domain."""
    x, w, v = (field_(kernel, name) for name in ("x", "w", "v"))
    other = field_(kernel, "x", 0, 1)
    for p in (x, v, add(x, w), subtract(x, other), kernel.multiply(x, other), scale(x, -2), kernel.multiply(x, w)):
        sign = kernel.unit([p])[0][0]
        empty, above = kernel.nothing(p), kernel.compare(">", p)
        for flag in (kernel.multiply(sign, sign), kernel.relu(sign), kernel.relu(scale(sign, -1))):
            assert kernel.multiply(flag, flag) == flag or kernel.is_nonnegative(p)
            kernel.relu(scale(flag, -3))
            for q in (empty, above, kernel.compare(">=", p), sign, kernel.inverse(p)):
                kernel.product(flag, q)
        kernel.multiply(sign, empty)
        for flag in (empty, above, subtract(number(1), above), add(scale(empty, 2), number(-2)), add(above, number(1))):
            kernel.zeros(flag)
            kernel.nothing(flag)
        kernel.product(above, empty)
        kernel.product(above, kernel.compare(">=", p), empty)
        for c in (1, -2, Fraction(1, 3)):
            filled = add(p, scale(empty, c))
            kernel.inverse(filled)
            kernel.zeros(filled)
            kernel.log(filled)
            inside = add(scale(kernel.relu(p), abs(c)), number(1), scale(above, -1))
            kernel.log(inside)
            kernel.compare(">", inside)
            kernel.compare(">", filled)
            root = kernel.sqrt(scale(kernel.relu(p), abs(c)))
            kernel.inverse(add(root, scale(kernel.nothing(root), c)))
    quotient = kernel.inverse(add(x, kernel.nothing(x)))
    assert kernel.multiply(quotient, subtract(number(1), kernel.nothing(x))) == kernel.inverse(x)
    assert kernel.zeros(add(x, kernel.nothing(x))) == []
    assert kernel.zeros(add(x, kernel.nothing(other))) != []


def divided_by_powers(kernel: Kernel) -> None:
    for other in ("w", "v", "x"):
        for exponent in (2, 3, 4):
            kernel.inverse(kernel.power(add(number(1), field_(kernel, other), field_(kernel, "u")), exponent))


def test_the_larger_of_two_is_positive_where_one_is() -> None:
    kernel = Kernel(search)
    x, half = field_(kernel, "x"), number(Fraction(1, 2))
    assert kernel.is_positive(add(x, kernel.relu(subtract(half, x))))
    assert not kernel.is_positive(add(x, kernel.relu(subtract(scale(half, -1), x))))


def rounded(kernel: Kernel) -> None:
    constants = Constants(kernel)
    constants.learn([Fraction(1, 3), 6, Fraction(7, 10)], [3])
    for value in (1 / 3, -2 / 3, 0.7, math.sqrt(6), 1 / math.sqrt(6), math.log(6), 0.1):
        constants.exact(value, "w")


INSTANCES: Mapping[str, Callable[[Kernel], object]] = {
    **dict.fromkeys(["bit", "one-hot", "no quotient", "root squared", "relu squared"], products),
    **dict.fromkeys(["positive term", "zero term"], products),
    "no weight": without_weights,
    "quotient": of_every("inverse"),
    **dict.fromkeys(["quotient by itself"], divided),
    "quotient by a power": divided_by_powers,
    **dict.fromkeys(["exponential", "exponential of a logarithm"], of_every("exp")),
    "logarithm": of_every("log"),
    **dict.fromkeys(["root", "root of a number"], of_every("sqrt")),
    **dict.fromkeys(["relu", "relu of what has a sign"], of_every("relu")),
    "absolute": of_every("absolute"),
    "tanh": of_every("tanh"),
    **dict.fromkeys(["comparison", "comparison of a bit", "comparison of what is positive", "at least"], compared),
    **dict.fromkeys(["zero of a product", "never zero"], vanishing),
    **dict.fromkeys(["sum", "weights add up"], added_up),
    "shares": weigh("softmax", "normalize"),
    "plain weights": weigh("sum", "exp"),
    "choice": weigh("argmax", "top", "normmax", "sparsemax", "entmax15"),
    "one candidate": lambda kernel: kernel.weigh(
        WeighingTerm("argmax"), Candidates((field_(kernel, "x"),), (number(1),))
    ),
    "numbers": lambda kernel: [
        kernel.weigh(rule, Candidates(tuple(map(number, scores)), tuple(map(number, masks))))
        for rule in WEIGHINGS[:2]
        for scores in ((1, 2, 2), (0, 0, 0), (-1, -2, -1))
        for masks in ((1, 1, 1), (0, 1, 1), (1, 0, 0), (0, 0, 0))
    ],
    "largest": lambda kernel: [kernel.largest(keys) for keys in every_keys(kernel) if keys.own is None],
    "log sum exp": lambda kernel: [kernel.log_sum(keys) for keys in every_keys(kernel)],
    "cases": multiplied_out,
    **dict.fromkeys(["order", "sign squared", "sign of nothing", "sign", "sign of what has one"], guarded),
    **dict.fromkeys(["quotient where there is one", "logarithm where there is one"], guarded),
    **dict.fromkeys(["zero of a bit", "root of relu", "relu of a sign"], guarded),
    "selection": chosen_by_a_flag,
    "increasing": ranked,
    "itself": erased,
    "rounded": rounded,
}


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_holds_at_every_point(rule: str) -> None:
    kernel = Kernel(search, onehot=["y"], positive=["w"], nonnegative=["v"])
    INSTANCES[rule](kernel)
    noted = [one for one in kernel.journal.applications if one.rule == rule]
    assert assert_true(kernel, noted, 2 if len(noted) > 300 else 40)[rule] >= 3


def test_a_claim_that_is_wrong_is_noticed() -> None:
    """The judge of the tests above: another result is wrong at some point, whatever the rule."""
    for rule, work in INSTANCES.items():
        kernel = Kernel(search, onehot=["y"], positive=["w"], nonnegative=["v"])
        work(kernel)
        noted = [one for one in kernel.journal.applications if one.rule == rule and one.operation != "chooses itself"]
        for one in noted[:5]:
            wrong = replace(one, result=other(one))
            if one.operation == "equal":
                wrong = replace(one, operands=(one.operands[0], (((), Fraction(1, 2)),)))
            found = {holds(kernel, wrong, seed) for seed in range(30)}
            assert False in found, f"{wrong} is not noticed"


def other(one: Application) -> Any:
    """Another result than that of an application."""
    half = (((), Fraction(1, 2)),)
    match one.operation:
        case "weigh":
            return (tuple(half for _ in one.result[0]), (), half)
        case "largest" | "log sum":
            return (half, ())
        case "zeros":
            return ((((), 1),),)
        case "order":
            return tuple(tuple((mono, -c) for mono, c in row) for row in one.result)
    return half


# ---- what shipped specs use ------------------------------------------------------------------------------------------


def table(derivation: Derivation) -> Terms:
    """The terms that a derivation speaks of."""
    terms = Terms(search, derivation.onehot, derivation.positive, derivation.nonnegative)
    for atom in derivation.atoms:
        terms.intern(atom.kind, atom.data, atom.tokens)
    terms.choices = list(derivation.choices)
    return terms


@pytest.mark.parametrize("part", range(4))
def test_every_inference_about_shipped_specs_is_true(part: int) -> None:
    for _, made in originals(1)[part::4]:
        derivation = prove(made, meant(made)).derivation
        assert derivation is not None
        assert assert_true(table(derivation), derivation.applications, 1)


def test_every_inference_about_hostile_heads_is_true() -> None:
    for head in random.Random(datetime.date.today().toordinal()).sample(sorted(everyone(), key=str), 25):
        derivation = prove(Builder(head).file()).derivation
        if derivation is not None:  # None: what the file declares is not what the spec does
            assert assert_true(table(derivation), derivation.applications, 4)


# ---- proofs as values ------------------------------------------------------------------------------------------------

SMALL = [(name, made) for name, made in originals(1) if "offset" not in name]


@pytest.mark.parametrize("at", range(0, len(SMALL), 12))
def test_a_proof_is_replayed_from_plain_data(at: int) -> None:
    _, made = SMALL[at]
    derivation = prove(made, meant(made)).derivation
    assert derivation is not None
    again = Derivation.from_json(json.loads(json.dumps(derivation.json())))
    assert again == derivation
    assert objection(again, made, meant(made)) == ""


def test_a_proof_of_one_file_proves_no_other() -> None:
    made = compile("lloyd", {"d": 1, "k": 2})
    derivation = prove(made).derivation
    assert derivation is not None
    tensors = {name: array.copy() for name, array in made.tensors.items()}
    tensors["layer.1.0.c.v"] *= 2
    assert objection(derivation, replace(made, tensors=tensors), meant(made))
    other_spec = compile("lloyd_split", {"d": 1, "k": 2})
    assert objection(derivation, other_spec, meant(other_spec))


def test_what_a_proof_chooses_is_checked() -> None:
    made = compile("soft_kmeans", {"d": 1, "k": 2})
    derivation = prove(made).derivation
    assert derivation is not None
    wrong = []
    for question, about, answer in derivation.answers:
        if question == "factors":
            wrong.append(replace(answer, coefficient=answer.coefficient * 2))
        elif question == "scale":
            wrong.append(-answer)
        else:
            continue
        answers = tuple((q, a, wrong[-1] if (q, a) == (question, about) else old) for q, a, old in derivation.answers)
        assert objection(replace(derivation, answers=answers), made, meant(made))
    assert wrong
    fewer = replace(derivation, answers=derivation.answers[1:])
    assert "does not choose" in objection(fewer, made, meant(made))
    assert "applications" in objection(replace(derivation, applications=derivation.applications[1:]), made, meant(made))


def test_factors_with_another_product_are_no_factors() -> None:
    kernel = Kernel(lambda question, about, terms: Factors(1, (), (), (((), 1),)))
    with pytest.raises(NotAnInstance):
        kernel.inverse(field_(kernel, "x"))


SCRIPT = """
import hashlib, json, weftc
from weftc.prover import prove
for name in ("lloyd", "gmm_em", "sinkhorn_log", "spherical_kmeans"):
    made = weftc.compile(name, {dim: 2 for dim in weftc.check(name).dims})
    print(name, hashlib.sha256(json.dumps(prove(made).derivation.json()).encode()).hexdigest())
"""


def test_a_proof_does_not_depend_on_the_hash_seed() -> None:
    outputs = set()
    for seed in ("0", "1", "4711"):
        run = subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        outputs.add(run.stdout)
    assert len(outputs) == 1
    assert outputs.pop().count("\n") == 4


def test_a_quotient_in_which_another_one_cancels_is_multiplied_out() -> None:
    kernel = Kernel(search, positive=["w"])
    x, within = field_(kernel, "x"), kernel.inverse(add(field_(kernel, "w"), number(1)))
    divisor = add(kernel.multiply(within, x), kernel.multiply(within, kernel.power(x, 2)), number(3))
    whole = kernel.multiply(kernel.inverse(divisor), divisor)
    assert equal(kernel, whole, subtract(number(1), kernel.nothing(divisor)))
    assert not equal(kernel, whole, number(1))
    assert_true(kernel, kernel.journal.applications, 20)


def test_sums_and_powers_of_squares_are_known_not_to_be_negative() -> None:
    kernel = Kernel(search, positive=["w"], nonnegative=["v"])
    x, key, v, w = field_(kernel, "x"), field_(kernel, "x", 1), field_(kernel, "v"), field_(kernel, "w")
    gap = subtract(key, x)
    share = kernel.inverse(kernel.atom("count", "points"))
    for p in (kernel.power(gap, 2), kernel.power(gap, 4), kernel.product(kernel.square([gap]), v, w)):
        known = kernel.total("points", 1, kernel.multiply(p, share))
        assert kernel.is_nonnegative(known)
        assert kernel.is_nonnegative(kernel.multiply(known, v))
        assert not kernel.is_nonnegative(scale(known, -1))
        assert not kernel.is_nonnegative(kernel.multiply(known, x))
    assert not kernel.is_nonnegative(kernel.total("points", 1, kernel.power(gap, 3)))
    vanishing = kernel.multiply(v, kernel.square([gap, w]))
    assert kernel.is_nonnegative(vanishing)
    kernel.squares = {kernel.as_square(kernel.multiply(v, subtract(x, w)))}
    assert not kernel.is_nonnegative(subtract(x, w))  # where v is 0, nothing is known of it
