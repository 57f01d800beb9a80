"""Whether two polynomials are equal: as they are, or after multiplying out every quotient, by cases.

Multiplying by p what was divided by p is sound wherever p is not zero. Where p is zero, 1/p is zero by convention, and
so is p; that case is compared on its own, unless neither side has a value there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction

from weftc.prover.kernel.polynomials import Frozen, Poly, TooLarge, add, freeze, number, scale, subtract
from weftc.prover.kernel.products import Products
from weftc.prover.kernel.rules import NotAnInstance, Unproved
from weftc.prover.kernel.terms import INDICATORS

MOST_ROUNDS = 40


def equal(kernel: Products, p: Poly, q: Poly, absent: Iterable[Poly] = ()) -> bool:
    """Whether p = q; `absent` are indicators of cases that need not be covered (neither side has a value there)."""
    if p == q:
        return True
    off = _single_bits(kernel, absent)
    gap = subtract(p, q)
    if off:
        gap = kernel.substitute(gap, lambda a: {} if a in off else None)
    try:
        shown = is_zero(kernel, gap, off)
    except TooLarge:
        return False
    if shown:
        kernel.journal.note("cases", "equal", (freeze(p), freeze(q)), tuple(sorted(off)))
    return shown


def selected(kernel: Products, flag: Poly, rows: Sequence[tuple[Poly, Poly]]) -> list[Poly]:
    """The first of each pair where a flag is 1, the second where it is 0."""
    if not equal(kernel, kernel.multiply(flag, flag), flag):
        raise Unproved("a selection by a number that is not known to be 0 or 1")
    other = subtract(number(1), flag)
    found = [add(kernel.multiply(flag, p), kernel.multiply(other, q)) for p, q in rows]
    for (p, q), result in zip(rows, found, strict=True):
        kernel.journal.note("selection", "select", (freeze(flag), freeze(p), freeze(q)), freeze(result))
    return found


def _single_bits(kernel: Products, absent: Iterable[Poly]) -> frozenset[int]:
    """Indicators that stand alone."""
    found = set()
    for one in absent:
        if len(one) == 1:
            ((mono, c),) = one.items()
            if c == 1 and len(mono) == 1 and kernel.atoms[mono[0][0]].kind in INDICATORS:
                found.add(mono[0][0])
    return frozenset(found)


def is_zero(kernel: Products, gap: Poly, absent: frozenset[int] = frozenset()) -> bool:
    """Whether a polynomial is zero. Atoms in `absent` are indicators of divisors that are not zero."""
    for _ in range(MOST_ROUNDS):
        gap = kernel.parted(gap)
        if not gap:
            return True
        held: int | None = kernel.asked("divisor", freeze(gap))
        if held is None:
            return False
        atom = kernel.atoms[held]
        if atom.kind != "inverse":
            raise NotAnInstance("what is multiplied out is no quotient")
        divisor = kernel.open(atom.data, atom.tokens)
        caught = kernel.intern("nothing", *_own(kernel.local(kernel.support(divisor))))
        if caught not in absent and not kernel.is_positive(divisor):
            zero: dict[int, Poly] = {held: {}, caught: number(1)}
            there = kernel.multiply(kernel.substitute(gap, zero.get), {((caught, 1),): 1})
            if not is_zero(kernel, there, absent):
                return False
        gap = _multiplied_out(kernel, kernel.substitute(gap, _nowhere(caught)), held, divisor)
    return False


def _own(found: tuple[Poly, tuple[int, ...]]) -> tuple[Frozen, tuple[int, ...]]:
    return freeze(found[0]), found[1]


def _nowhere(bit: int) -> Callable[[int], Poly | None]:
    """What puts 0 for an indicator."""
    return lambda a: {} if a == bit else None


def _multiplied_out(kernel: Products, gap: Poly, held: int, divisor: Poly) -> Poly:
    """A polynomial times the power of a divisor that it is divided by."""
    powers = [int(dict(mono).get(held, 0)) for mono in gap]  # negative ones too, where the divisor is positive
    most = max(powers, default=0)
    raised = [kernel.power(divisor, n) for n in range(most - min(powers, default=0) + 1)]
    result: Poly = {}
    for mono, coefficient in gap.items():
        power = int(dict(mono).get(held, 0))
        rest = tuple(part for part in mono if part[0] != held)
        result = add(result, kernel.multiply({rest: coefficient}, raised[most - power]))
    return result


# ---- where there is no value -----------------------------------------------------------------------------------------


def covers(kernel: Products, wide: Iterable[Frozen], narrow: Iterable[Frozen]) -> bool:
    """Whether everything in `narrow` is zero where everything in `wide` is: each has one of these as a factor."""
    known = set(wide)
    return all(not one or one in known or any(_is_factor(kernel, w, one) for w in known) for one in set(narrow))


def _is_factor(kernel: Products, bit: Frozen, one: Frozen) -> bool:
    """Whether `one` is only not zero where `bit`, about the same tokens, is 1."""
    flag, p = dict(bit), dict(one)
    return bool(flag) and kernel.multiply(flag, flag) == flag and kernel.multiply(flag, p) == p


# ---- erasing by self-attention ---------------------------------------------------------------------------------------


def chooses_itself(kernel: Products, score: Poly, coordinates: Sequence[tuple[str, int]]) -> bool:
    """Whether score(0, 0) > score(0, 1) for all tokens 0, 1 that differ in some of these coordinates.

    A coordinate is (field, column), or (set, -1): the position of the token.

    The score of a token with itself, less its score with another, must be a positive definite quadratic form in the
    differences of these coordinates.
    """
    gap = subtract(kernel.rename(score, {1: 0}), score)
    pairs = [[_coordinate(kernel, *one, token) for token in (0, 1)] for one in coordinates]
    mine, other = ({pair[side]: place for place, pair in enumerate(pairs)} for side in (0, 1))
    form = [[Fraction(0)] * len(pairs) for _ in pairs]
    for mono, coefficient in gap.items():
        atoms = [a for a, power in mono for _ in range(int(power))]
        ours, theirs = [mine[a] for a in atoms if a in mine], [other[a] for a in atoms if a in other]
        if len(atoms) == 2 and len(ours) == 1 and len(theirs) == 1:
            for r, c in ((ours[0], theirs[0]), (theirs[0], ours[0])):
                form[r][c] -= Fraction(coefficient) / 4
    differences = [subtract({((a, 1),): 1}, {((b, 1),): 1}) for a, b in pairs]
    rebuilt: Poly = {}
    for r, row in enumerate(form):
        for c, entry in enumerate(row):
            if entry:
                rebuilt = add(rebuilt, scale(kernel.multiply(differences[r], differences[c]), entry))
    shown = rebuilt == gap and _is_definite(form)
    if shown:
        kernel.journal.note("itself", "chooses itself", (freeze(score), tuple(coordinates)), ())
    return shown


def _coordinate(kernel: Products, name: str, column: int, token: int) -> int:
    if column < 0:
        return kernel.intern("position", name, (token,))
    return kernel.intern("field", (name, column, -1), (token,))


def _is_definite(form: list[list[Fraction]]) -> bool:
    """Whether a symmetric matrix is positive definite, by exact elimination."""
    rows = [list(row) for row in form]
    for pivot in range(len(rows)):
        if rows[pivot][pivot] <= 0:
            return False
        for r in range(pivot + 1, len(rows)):
            factor = rows[r][pivot] / rows[pivot][pivot]
            if factor:
                rows[r] = [a - factor * b for a, b in zip(rows[r], rows[pivot], strict=True)]
    return True
