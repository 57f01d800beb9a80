"""How large expressions become when every `let` is put in where it is used, and their degree as polynomials.

Thirty lines of `let b = a * a` would be a billion terms, `((a^50)^50)^50` a polynomial of degree 125,000; what comes
after the checker works on the expanded form.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import comb, prod
from typing import NamedTuple

from weftc.core import syntax as ast
from weftc.language.check.names import Names
from weftc.language.check.problems import Problems

MOST_PARTS = 20_000
DEEPEST = 200
LARGEST_DEGREE = 128  # (|v|^2 + 1)^64: the highest power of a square
MOST_TERMS = 5_000


class Polynomial(NamedTuple):
    """Degree and number of terms, before like ones are joined."""

    degree: int
    terms: int

    def power(self, exponent: int) -> Polynomial:
        return Polynomial(self.degree * exponent, comb(self.terms + exponent - 1, exponent))


def sizes(spec: ast.Spec, names: Names, problems: Problems) -> None:
    """Reports expressions that are too large once written out; `let`s that need themselves are reported elsewhere."""
    known: dict[str, tuple[int, int]] = {}
    polynomials: dict[str, Polynomial] = {}
    for let in _inner_first(names):
        known[let.target.name] = _measure(let.body, known)
        if _fits(known[let.target.name]):
            polynomials[let.target.name], _ = _multiplied_out(let.body, polynomials)
    for body in _bodies(spec):
        parts, depth = _measure(body, known)
        if _fits((parts, depth)):
            _refuse_polynomial(body, polynomials, problems)
            continue
        large = f"{parts} parts" if parts > MOST_PARTS else f"{depth} levels"
        message = "this expression is too large once its definitions are put in"
        label = f"it would have {large if len(large) < 30 else 'more parts than can be counted'}"
        how = f"at most {MOST_PARTS} parts and {DEEPEST} levels; store parts of it as fields in an earlier step"
        problems.add("C215", body.span, message, label, how)


def _fits(measure: tuple[int, int]) -> bool:
    parts, depth = measure
    return parts <= MOST_PARTS and depth <= DEEPEST


def _refuse_polynomial(body: ast.Expr, known: Mapping[str, Polynomial], problems: Problems) -> None:
    """Reports the innermost part whose degree is too high, or that has too many terms."""
    found, guilty = _multiplied_out(body, known)
    if guilty is None:
        return
    high = found.degree > LARGEST_DEGREE
    message = "the degree of this polynomial is too high" if high else "this has too many terms once multiplied out"
    most, size = (LARGEST_DEGREE, found.degree) if high else (MOST_TERMS, found.terms)
    label = f"{size if size < 10**9 else 'more than a billion'}; at most {most} can be compiled"
    problems.add("C216", guilty.span, message, label, "store a part of it as a field in an earlier step")


def _multiplied_out(node: ast.Node, known: Mapping[str, Polynomial]) -> tuple[Polynomial, ast.Node | None]:
    """Size of an expression as a polynomial in its fields and functions; or of its innermost part that is too large."""
    below = []
    for child in ast.children(node):
        found, guilty = _multiplied_out(child, known)
        if guilty is not None:
            return found, guilty
        below.append(found)
    size = _combined(node, below, known)
    return size, node if size.degree > LARGEST_DEGREE or size.terms > MOST_TERMS else None


def _combined(node: ast.Node, below: Sequence[Polynomial], known: Mapping[str, Polynomial]) -> Polynomial:
    """`a + b`: 2 terms of degree 1; `(a + b)^3`: 4 terms of degree 3."""
    match node:
        case ast.Ref():
            return known.get(node.name, Polynomial(1, 1))
        case ast.Power():
            return below[0].power(node.exponent)
        case ast.Square():
            return below[0].power(2)
        case ast.Binary(op="+" | "-"):
            return Polynomial(max(p.degree for p in below), sum(p.terms for p in below))
        case ast.Binary() | ast.Inner():
            return Polynomial(sum(p.degree for p in below), prod(p.terms for p in below))
        case ast.Reduce(weighted=weighted):  # the weights of `by` are one factor, conditions none
            factors = below[: 1 if weighted is None else 2]
            return Polynomial(1 + sum(p.degree for p in factors), prod(p.terms for p in factors))
        case ast.Weigh() | ast.Call() | ast.Norm():
            return Polynomial(1, 1)
        case _:
            return Polynomial(max((p.degree for p in below), default=0), max((p.terms for p in below), default=1))


def _bodies(spec: ast.Spec) -> Iterator[ast.Expr]:
    yield from (equation.body for step in spec.steps for equation in step.equations)
    yield from (output.body for output in spec.outputs)
    yield from (field.start for field in spec.state if field.start is not None)
    if spec.objective is not None:
        yield spec.objective


def _inner_first(names: Names) -> list[ast.Let]:
    """The `let`s, each after those it uses; those on a cycle are left out."""
    uses = {
        name: {node.name for node in ast.walk(let.body) if isinstance(node, ast.Ref) and node.name in names.lets}
        for name, let in names.lets.items()
    }
    ordered: dict[str, ast.Let] = {}
    while ready := [name for name in uses if name not in ordered and uses[name] <= ordered.keys()]:
        ordered.update((name, names.lets[name]) for name in ready)
    return list(ordered.values())


def _measure(expr: ast.Expr, known: dict[str, tuple[int, int]]) -> tuple[int, int]:
    """Parts and levels of an expression with the `let`s written out."""
    parts = deepest = 0
    stack: list[tuple[ast.Node, int]] = [(expr, 1)]
    while stack:
        node, level = stack.pop()
        more, below = known.get(node.name, (1, 1)) if isinstance(node, ast.Ref) else (1, 1)
        parts, deepest = parts + more, max(deepest, level + below - 1)
        stack.extend((child, level + 1) for child in ast.children(node))
    return parts, deepest
