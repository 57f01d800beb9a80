"""Terms of the prover's kernel at points: exact numbers, so that every application of a rule is a claim that can fail.

A world has a few tokens of every open set and rational values of every field. A term is evaluated by what its atoms
are documented to stand for; an application of a rule by what its operation means, with the numbers and the weightings
of the exact executor. Nothing of the kernel is used but the table of its atoms.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from weftc.exact import Number, Undecided, exact
from weftc.exact.numbers import ONE, ZERO, total
from weftc.exact.weightings import number, weights
from weftc.prover.kernel import Application, Kernel, WeighingTerm
from weftc.prover.kernel.polynomials import Frozen, Mono
from weftc.prover.kernel.terms import Atom, ChoiceTerm, Terms
from weftc_runtime.format.program import Weighting

Tokens = Mapping[int, int]  # the name of a token -> its place in its set
NASTY = (0, 0, 0, 1, 1, -1, 2, -2, 3, Fraction(1, 2), Fraction(-1, 2), Fraction(1, 3), Fraction(5, 4))


class NoClaim(Exception):
    """A logarithm outside its domain is needed: no rule says anything here."""


@dataclass(slots=True)
class World:
    """Sizes of the open sets, and numbers for whatever is free; both from a seed."""

    kernel: Terms
    seed: int
    sizes: dict[str, int] = field(default_factory=dict)
    _known: dict[Any, Number] = field(default_factory=dict)

    def size(self, name: str) -> int:
        return self.sizes.setdefault(name, random.Random(f"{self.seed} {name}").choice((1, 1, 2, 3)))

    # ---- polynomials -------------------------------------------------------------------------------------------------

    def value(self, p: Frozen, tokens: Tokens) -> Number:
        """A polynomial about these tokens."""
        return total([exact(Fraction(c)) * self.mono(mono, tokens) for mono, c in p])

    def mono(self, mono: Mono, tokens: Tokens) -> Number:
        """A product; where one factor is zero, the others need not have a value."""
        result, late = ONE, []
        for a, power in mono:
            atom = self.kernel.atoms[a]
            if atom.kind == "log" or self.kernel.holds_kind(a, "log"):
                late.append((a, power))
                continue
            result = result * self._power(a, power, tokens)
            if result == ZERO:
                return ZERO
        for a, power in late:
            result = result * self._power(a, power, tokens)
        return result

    def _power(self, a: int, power: Any, tokens: Tokens) -> Number:
        atom = self.kernel.atoms[a]
        own = self._own(atom, tokens)
        if atom.kind == "exp":
            return (exact(Fraction(power)) * self.mono(atom.data, own)).exp()
        once = self.atom(a, own)
        result = ONE
        for _ in range(abs(int(power))):
            result = result * once
        return result if power > 0 else ONE / result

    def _own(self, atom: Atom, tokens: Tokens) -> dict[int, int]:
        """The places of an atom's tokens, by its own names."""
        return {name: tokens[token] for name, token in enumerate(atom.tokens)}

    def atom(self, a: int, own: Tokens) -> Number:
        """What an atom stands for."""
        key = (a, tuple(own.items()))
        if key not in self._known:
            self._known[key] = self._atom(self.kernel.atoms[a], own)
        return self._known[key]

    def _atom(self, atom: Atom, own: Tokens) -> Number:
        match atom.kind:
            case "field":
                name, column, place = atom.data
                return self._field(name, column, place, own)
            case "count":
                return exact(self.size(atom.data))
            case "position":
                return exact(own[0] + 1)
            case "kept" | "other":
                return self._free(f"{atom.data} {own}")
            case "differ":
                return exact(int(own[0] != own[1]))
            case "sum":
                over, mono = atom.data
                return total([self.mono(mono, {**own, len(own): key}) for key in range(self.size(over))])
            case "weight":
                return self._weight(atom, own)
            case "above" | "atleast" | "nothing":
                sign = self.value(atom.data, own).sign()
                return exact(int({"above": sign > 0, "atleast": sign >= 0, "nothing": sign == 0}[atom.kind]))
        return self.function(atom.kind, self.value(atom.data, own))

    def _field(self, name: str, column: int, place: int, own: Tokens) -> Number:
        token = own[0] if own else place
        if name in self.kernel.onehot:
            return exact(int(column == random.Random(f"{self.seed} {name} {token}").randrange(3)))
        found = self._free(f"{name} {column} {token}")
        if name in self.kernel.positive_fields:
            return found.magnitude() + exact(Fraction(1, 4))
        return found.magnitude() if name in self.kernel.nonnegative_fields else found

    def _free(self, what: str) -> Number:
        return exact(Fraction(random.Random(f"{self.seed} {what}").choice(NASTY)))

    def function(self, kind: str, value: Number) -> Number:
        """A function of one number, with the conventions of the kernel."""
        match kind:
            case "inverse":
                return ONE / value if value.sign() else ZERO
            case "exp":
                return value.exp()
            case "log":
                if value.sign() <= 0:
                    raise NoClaim
                return value.log()
            case "sqrt":
                return value.sqrt() if value.sign() > 0 else ZERO
            case "relu":
                return value.clipped()
            case "abs":
                return value.magnitude()
            case "tanh":
                return value.tanh()
            case "sigmoid":
                return ONE / (ONE + (-value).exp())
            case "softplus":
                return (ONE + value.exp()).log()
            case "sign":
                return exact(value.sign())
        raise AssertionError(f"no function {kind}")

    # ---- weightings --------------------------------------------------------------------------------------------------

    def _weight(self, atom: Atom, own: Tokens) -> Number:
        number_, places, which = atom.data
        choice = self.kernel.choices[number_]
        about = {name: own[name] for name in range(places)}
        scores = self._scores(choice, about)
        if which == "best":
            return number("max", scores) or ZERO
        found = weights(rule_of(choice.rule), scores) or {}
        place = {"open": own.get(places), "own": OWN}.get(which, which)
        return found.get(place, ZERO)

    def _scores(self, choice: ChoiceTerm, about: Tokens) -> dict[int, Number]:
        keys = range(len(choice.scores) if choice.over is None else self.size(choice.over))
        last = len(about)
        scores = {}
        for key in keys:
            at = key if choice.over is None else 0
            names = about if choice.over is None else {**about, last: key}
            if choice.masks is None or self.value(choice.masks[at], names).sign():
                scores[key] = self.value(choice.scores[at], names)
        if choice.own is not None:
            scores[OWN] = self.value(choice.own, about)
        return scores

    def keys(self, frozen: Any, tokens: Tokens) -> tuple[dict[int, Number], list[dict[int, int]]]:
        """The scores of candidates as they were given, and the tokens that each key stands for."""
        given, masks, over, bound, own = frozen
        ats = [dict(tokens) for _ in given] if over is None else [{**tokens, bound: k} for k in range(self.size(over))]
        scores = {}
        for key, at in enumerate(ats):
            place = key if over is None else 0
            if self.value(masks[place], at).sign():
                scores[key] = self.value(given[place], at)
        if own is not None:
            scores[OWN] = self.value(own, tokens)
        return scores, ats


OWN = 10**6  # the key that competes beside those of the set: it loses ties


def rule_of(rule: WeighingTerm) -> Weighting:
    """A weighting as the executor has it."""
    return Weighting(rule.kind, rule.ties, rule.epsilon, rule.count, rule.percent, rule.gamma)  # type: ignore[arg-type]


# ---- claims ----------------------------------------------------------------------------------------------------------


def holds(kernel: Terms, one: Application, seed: int) -> bool | None:
    """Whether an application of a rule is true at one point; None where nothing can be said there."""
    world = World(kernel, seed)
    try:
        return _holds(world, one, _tokens(world, one, seed))
    except (NoClaim, Undecided):
        return None


def known_of(kernel: Kernel, a: int, seed: int) -> bool | None:
    """Whether what the kernel knows of an atom without asking is true at a point; None where nothing can be said."""
    world, atom = World(kernel, seed), kernel.atoms[a]
    try:
        value = world.mono(((a, 1),), _places(world, atom.tokens, seed))
    except (NoClaim, Undecided):
        return None
    bit = not kernel.is_bit(a) or value in (ZERO, ONE)
    return (
        bit and (a not in kernel.positive or value.sign() > 0) and (not kernel.never_negative(a) or value.sign() >= 0)
    )


def not_negative(kernel: Terms, frozen: Frozen, seed: int) -> bool | None:
    """Whether a polynomial in names of its own is not negative at a point; None where nothing can be said."""
    world = World(kernel, seed)
    names = {token for mono, _ in frozen for a, _ in mono for token in kernel.atoms[a].tokens}
    try:
        return world.value(frozen, _places(world, names, seed)).sign() >= 0
    except (NoClaim, Undecided):
        return None


def _tokens(world: World, one: Application, seed: int) -> dict[int, int]:
    """Places for all tokens that are spoken of; of whichever set they are, there are that many."""
    names = {
        token for mono in _monos((one.operands, one.result)) for a, _ in mono for token in world.kernel.atoms[a].tokens
    }
    return _places(world, names, seed)


def _places(world: World, names: Iterable[int], seed: int) -> dict[int, int]:
    """Places for tokens that are spoken of by name."""
    rng = random.Random(f"{seed} tokens")
    least = min((world.size(name) for name in _sets(world.kernel)), default=1)
    return {token: rng.randrange(least) for token in sorted(names)}


def _sets(kernel: Terms) -> set[str]:
    found = {c.over for c in kernel.choices if c.over is not None}
    for atom in kernel.atoms:
        if atom.kind in ("count", "position", "differ"):
            found.add(atom.data)
        if atom.kind == "sum":
            found.add(atom.data[0])
    return found


def _monos(part: Any) -> list[Mono]:
    """All monomials in nested tuples."""
    if isinstance(part, tuple):
        if part and all(isinstance(x, tuple) and len(x) == 2 and _is_power(x[0], x[1]) for x in part):
            return [part]
        return [mono for x in part for mono in _monos(x)]
    return []


def _is_power(a: Any, power: Any) -> bool:
    return isinstance(a, int) and isinstance(power, int | Fraction)


def same(one: Number, other: Number) -> bool:
    """Whether two enclosures may be of the same number: they are 90 digits wide, so chance plays no part."""
    return one.low <= other.high and other.low <= one.high


def _same_order(world: World, operands: Any, result: Any, tokens: dict[int, int]) -> bool:
    """Whether scores rank all keys as others do."""
    over, bound, own, rows = operands

    def values(given: Any) -> list[Number]:
        if over is None:
            return [world.value(row, tokens) for row in given]
        keys = [world.value(given[0], {**tokens, bound: key}) for key in range(world.size(over))]
        return keys + [world.value(row, tokens) for row in given[1:] if own]

    old, new = values(rows), values(result)
    pairs = [(one, other) for one in range(len(old)) for other in range(one)]
    return all((old[a] - old[b]).sign() == (new[a] - new[b]).sign() for a, b in pairs)


def _holds(world: World, one: Application, tokens: dict[int, int]) -> bool:
    operands, result = one.operands, one.result
    match one.operation:
        case "parted":
            return same(world.value(operands[0], tokens), world.value(result, tokens))
        case "product":
            return same(world.mono(operands[0], tokens), world.value(result, tokens))
        case "inverse" | "exp" | "log" | "sqrt" | "relu" | "abs" | "tanh" | "sign":
            return same(world.function(one.operation, world.value(operands[0], tokens)), world.value(result, tokens))
        case ">" | ">=":
            sign = world.value(operands[0], tokens).sign()
            return world.value(result, tokens) == exact(int(sign > 0 or (sign == 0 and one.operation == ">=")))
        case "zeros":
            bits = [world.value(bit, tokens) for bit in result]
            assert all(bit in (ZERO, ONE) for bit in bits)
            return (world.value(operands[0], tokens).sign() == 0) == (ONE in bits)
        case "sum":
            over, bound, p = operands
            found = total([world.value(p, {**tokens, bound: key}) for key in range(world.size(over))])
            return same(found, world.value(result, tokens))
        case "order":
            return _same_order(world, operands, result, tokens)
        case "select":
            flag, *rest = (world.value(p, tokens) for p in operands)
            return flag in (ZERO, ONE) and same(rest[flag == ZERO], world.value(result, tokens))
        case "weigh":
            return _weighs(world, operands, result, tokens)
        case "largest" | "log sum":
            scores, _ = world.keys(operands[0], tokens)
            found_number = number("max" if one.operation == "largest" else "lse", scores)
            value, empty = (world.value(part, tokens) for part in result)
            return (empty == ONE) == (found_number is None) and same(found_number or ZERO, value)
        case "equal":
            if any(world.mono(((a, 1),), tokens) == ONE for a in result):
                return True
            return same(world.value(operands[0], tokens), world.value(operands[1], tokens))
        case "chooses itself":
            return _itself(world, operands)
        case "reading":
            return bool(float(world.value(result, {})) == operands[0])
    raise AssertionError(f"no operation {one.operation}")


def _weighs(world: World, operands: Sequence[Any], result: Any, tokens: dict[int, int]) -> bool:
    rule, keys = operands
    scores, ats = world.keys(keys, tokens)
    wanted = weights(rule_of(rule), scores)
    given, empty, own = result
    found = [world.value(given[at if keys[2] is None else 0], ats[at]) for at in range(len(ats))]
    fits = all(same((wanted or {}).get(at, ZERO), value) for at, value in enumerate(found))
    beside = keys[4] is None or same((wanted or {}).get(OWN, ZERO), world.value(own, tokens))
    return fits and beside and (world.value(empty, tokens) == ONE) == (wanted is None)


def _itself(world: World, operands: Sequence[Any]) -> bool:
    """The lead of a token over another one, where the coordinates differ."""
    score, coordinates = operands
    for other in range(1, 4):
        tokens = {0: 0, 1: other}
        mine = [world._field(name, column, -1, {0: 0}) for name, column in coordinates]
        theirs = [world._field(name, column, -1, {0: other}) for name, column in coordinates]
        if mine != theirs and not world.value(score, {0: 0, 1: 0}) > world.value(score, tokens):
            return False
    return True
