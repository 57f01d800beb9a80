"""When the best key of every token is the token itself: erasing a slot by self-attention.

The score of a token with itself, less its score with another, must be a positive definite quadratic form in the
differences of the coordinates that tell tokens apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from weft.proof.algebra import Algebra
from weft.proof.polynomials import Poly, add, scale, subtract


def chooses_itself(algebra: Algebra, score: Poly, coordinates: Sequence[tuple[str, int]]) -> bool:
    """Whether score(0, 0) > score(0, 1) for all tokens 0, 1 that differ in some of these field coordinates."""
    gap = subtract(merged(algebra, score), score)
    pairs = {
        coordinate: tuple(algebra.intern("field", (*coordinate, -1), (token,)) for token in (0, 1))
        for coordinate in coordinates
    }
    place = {pair[1]: number for number, pair in enumerate(pairs.values())}
    mine = {pair[0]: number for number, pair in enumerate(pairs.values())}
    size = len(pairs)
    form = [[Fraction(0)] * size for _ in range(size)]
    for mono, coefficient in gap.items():
        atoms = [a for a, power in mono for _ in range(int(power))]
        crossed = [a for a in atoms if a in mine], [a for a in atoms if a in place]
        if len(atoms) == 2 and len(crossed[0]) == 1 and len(crossed[1]) == 1:
            r, c = mine[crossed[0][0]], place[crossed[1][0]]
            form[r][c] -= Fraction(coefficient) / 4
            form[c][r] -= Fraction(coefficient) / 4
    rebuilt: Poly = {}
    differences = [subtract({((a, 1),): 1}, {((b, 1),): 1}) for a, b in pairs.values()]
    for r in range(size):
        for c in range(size):
            if form[r][c]:
                rebuilt = add(rebuilt, scale(algebra.multiply(differences[r], differences[c]), form[r][c]))
    return rebuilt == gap and _is_definite(form)


def merged(algebra: Algebra, p: Poly) -> Poly:
    """p with the token 1 being the token 0."""
    result: Poly = {}
    for mono, coefficient in p.items():
        term: Poly = {(): coefficient}
        for a, power in mono:
            moved = algebra.rename({((a, 1),): 1}, {1: 0})
            factor = moved if power > 0 else algebra.inverse(moved)
            term = algebra.multiply(term, algebra.power(factor, abs(int(power))))
        result = add(result, term)
    return result


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
