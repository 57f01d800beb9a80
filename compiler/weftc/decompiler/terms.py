"""What numbers and vectors of a token are, in terms of a spec: polynomials of whole vectors, never of coordinates.

A `Poly` is a number: monomials of atoms with rational coefficients. A `Vec` is a vector: vector atoms with polynomials
as coefficients. Atoms are tuples; indices are numbers, those >= 0 free and those < 0 bound (-1 by the innermost sum or
choice around them), so that equal things are equal values.

    ref, NAME, (i, ...)       a field            vref, NAME, (i,)      a vector field
    inner, u, v               <u, v>             vsum, SET, vec        a sum of vectors
    coordinate, u, i          a coordinate of u     vfunction, NAME, vec  a function of every coordinate
    symbol, SIZE, N           the N-th of a vocabulary of so many      vtimes, powers   a product by coordinate
    count, SET                position, i        same, SET, i, j       1 where two tokens are the same one
    function, NAME, poly      exp, log, ...      unit, vec, vec|None   a vector by its length, and what if it is 0
    sum, SET, poly            over a bound index
    extreme, KIND, SET, score, masks             lse, max
    weight, SET, weighting, score, masks, i      the weight of token i in a choice over SET
    holds, OP, poly           differ, i, j       1 where a condition holds, else 0
    else, a, b                velse, a, b        a where it has a value, else b
    matrix, N, (i, ...)       vmatrix, N, (i,)   what could not be read
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from fractions import Fraction
from typing import Any, TypeAlias

Atom: TypeAlias = tuple[Any, ...]
Mono: TypeAlias = tuple[tuple[Atom, int], ...]
Poly: TypeAlias = dict[Mono, Fraction]
Frozen: TypeAlias = tuple[tuple[Mono, Fraction], ...]
Vec: TypeAlias = dict[Atom, Poly]
FrozenVec: TypeAlias = tuple[tuple[Atom, Frozen], ...]
Rename: TypeAlias = Callable[[int, int], int]  # an index, and how many sums and choices are around it

SELF, PAIR, KEY, OTHER = 0, 1, 2, 3  # the token itself; the second index of a row; the key of a head; one more
PLACEHOLDER, FIXED = 999, 1000  # indices from here on are single tokens: of the n-th fixed set, n thousand and more
ONE: Poly = {(): Fraction(1)}
VECTORS = ("vref", "vmatrix", "vsum", "unit", "velse", "vfunction", "vtimes", "symbol")
LONGEST = 300_000  # letters of a term
MOST_WORK = 150_000_000  # letters of all terms that are compared while a file is read
WORK: ContextVar[list[int]] = ContextVar("work")
LITERAL = ContextVar(
    "literal", default=False
)  # terms stay as the file has them: nothing is simplified, no number rounded


class TooLong(Exception):
    """Terms that grow beyond what anybody would read."""


def order(value: object) -> str:
    """By what terms are sorted; counted, so that reading comes to an end."""
    said = repr(value)
    work = WORK.get(None)
    if work is not None:
        work[0] += len(said)
    if len(said) > LONGEST or (work is not None and work[0] > MOST_WORK):
        raise TooLong
    return said


ADD_UP = frozenset({"argmax", "softmax", "sparsemax", "normmax", "top"})  # weights that sum to one, where any is


def number(value: Fraction | int) -> Poly:
    """A constant."""
    return {(): Fraction(value)} if value else {}


def atom(*parts: Any) -> Poly:
    """A single atom as a polynomial."""
    return {((parts, 1),): Fraction(1)}


def freeze(p: Poly) -> Frozen:
    """A hashable form, the same for equal polynomials."""
    return tuple(sorted(p.items(), key=order))


def freeze_vec(v: Vec) -> FrozenVec:
    """The same of a vector."""
    return tuple(sorted(((a, freeze(p)) for a, p in v.items()), key=order))


def thaw(v: FrozenVec) -> Vec:
    return {a: dict(p) for a, p in v}


def add(*terms: Poly) -> Poly:
    """The sum."""
    result: Poly = {}
    for term in terms:
        for mono, c in term.items():
            total = result.get(mono, 0) + c
            if total:
                result[mono] = Fraction(total)
            else:
                result.pop(mono, None)
    return result


def scale(p: Poly, factor: Fraction | int) -> Poly:
    """p times a number."""
    return {mono: c * factor for mono, c in p.items()} if factor else {}


def multiply(*factors: Poly) -> Poly:
    """The product. What is 0 or 1 is its own square."""
    result = ONE
    for q in factors:
        new: Poly = {}
        for left, c in result.items():
            for right, e in q.items():
                powers = dict(left)
                for a, power in right:
                    powers[a] = 1 if a[0] in ("same", "holds", "differ") else powers.get(a, 0) + power
                mono = tuple(sorted(powers.items(), key=order))
                new[mono] = new.get(mono, Fraction(0)) + c * e
        result = {mono: c for mono, c in new.items() if c}
    return result


def add_vec(*terms: Vec) -> Vec:
    """The sum of vectors."""
    result: Vec = {}
    for term in terms:
        for a, p in term.items():
            result[a] = add(result.get(a, {}), p)
    return {a: p for a, p in result.items() if p}


def scale_vec(v: Vec, factor: Poly) -> Vec:
    """A vector times a number."""
    return {a: q for a, p in v.items() if (q := multiply(p, factor))}


def times_vec(u: Vec, v: Vec) -> Vec:
    """The product by coordinate."""
    return add_vec(*(scale_vec(_times(a, b), multiply(p, q)) for a, p in u.items() for b, q in v.items()))


def _times(a: Atom, b: Atom) -> Vec:
    if a[0] == b[0] == "symbol":
        return {a: ONE} if a == b else {}
    powers = dict(a[1] if a[0] == "vtimes" else ((a, 1),))
    for one, power in b[1] if b[0] == "vtimes" else ((b, 1),):
        powers[one] = powers.get(one, 0) + power
    return {("vtimes", tuple(sorted(powers.items(), key=order))): ONE}


def function_vec(name: str, v: Vec) -> Vec:
    """A function of every coordinate."""
    if name == "reciprocal" and len(v) == 1:
        ((a, p),) = v.items()
        return {("vfunction", name, freeze_vec({a: ONE})): function(name, p)}
    return {("vfunction", name, freeze_vec(v)): ONE}


def coordinate(v: Vec, index: int) -> Poly:
    """The coordinate of a vector that a token of a set of as many names."""
    return add(*(multiply(p, _coordinate(a, index)) for a, p in v.items()))


def _coordinate(a: Atom, index: int) -> Poly:
    match a:
        case ("vsum", home, v):
            fresh = max(i for i in free({a: ONE}) | {index, OTHER} if i < PLACEHOLDER) + 1
            return total(home, None, coordinate(opened_vec(v, fresh), index), fresh)
        case ("velse", u, v):
            return atom("else", freeze(coordinate(thaw(u), index)), freeze(coordinate(thaw(v), index)))
        case ("unit", u, v):
            length = function("sqrt", inner(thaw(u), thaw(u)))
            found = multiply(coordinate(thaw(u), index), function("reciprocal", length))
            return found if v is None else atom("else", freeze(found), freeze(coordinate(thaw(v), index)))
        case ("vfunction", name, v):
            return function(name, coordinate(thaw(v), index))
        case ("vtimes", powers):
            return multiply(*(_coordinate(one, index) for one, power in powers for _ in range(power)))
    return atom("coordinate", a, index)


def inner(u: Vec, v: Vec) -> Poly:
    """<u, v>."""
    return add(*(multiply(p, q, _inner(a, b)) for a, p in u.items() for b, q in v.items()))


def _inner(a: Atom, b: Atom) -> Poly:
    if a[0] == b[0] == "symbol":
        return number(a == b)
    return atom("inner", *sorted((a, b), key=order))


def holds(op: str, p: Poly) -> Poly:
    """1 where a number compares with 0 as an operator says, else 0."""
    if set(p) <= {()}:
        c = p.get((), 0)
        return number({">": c > 0, ">=": c >= 0, "<": c < 0, "<=": c <= 0}[op])
    ((mono, c),) = [*((m, c) for m, c in p.items() if m)][:1]
    if len(p) <= 2 and len(mono) == 1 and mono[0][0][0] == "same" and set(p) <= {mono, ()}:  # it is 0 or 1
        yes, no = (holds(op, number(p.get((), 0) + c * value)) for value in (1, 0))
        _, _, i, j = mono[0][0]
        return yes if yes == no else {mono: Fraction(1)} if yes else atom("differ", i, j)
    return atom("holds", op, freeze(p))


def function(name: str, p: Poly) -> Poly:
    """A function of a number."""
    c = p.get((), Fraction(0))
    if set(p) <= {()} and name in ("relu", "relu2", "abs"):
        return number(abs(c) if name == "abs" else max(c, Fraction(0)) ** (2 if name == "relu2" else 1))
    if not p and name in ("exp", "sqrt", "tanh"):
        return ONE if name == "exp" else {}
    inside, outside = (dict(p), Fraction(1))
    if name == "reciprocal":
        if set(p) == {()}:
            return number(1 / p[()])
        if not p:
            return atom("function", name, ())
        if len(p) == 1:  # of a product: the product of the reciprocals
            ((mono, c),) = p.items()
            result = number(1 / c)
            for a, power in mono:
                one = atom("function", name, freeze({((a, 1),): Fraction(1)}))
                result = multiply(result, *([one] * power))
            return result
        leading = p[min(p, key=order)]
        inside, outside = scale(p, 1 / leading), 1 / leading
    return scale(atom("function", name, freeze(inside)), outside)


# ---- indices ---------------------------------------------------------------------------------------------------------


def rename(p: Poly, name: Rename, depth: int = 0) -> Poly:
    """A number about other tokens."""
    result: Poly = {}
    for mono, c in p.items():
        factors = [one for a, power in mono for one in [_atom(a, name, depth)] * power]
        result = add(result, scale(multiply(*factors), c))
    return result


def rename_vec(v: Vec, name: Rename, depth: int = 0) -> Vec:
    """A vector about other tokens."""
    return add_vec(*({_vector(a, name, depth): rename(p, name, depth)} for a, p in v.items()))


def _frozen(p: Frozen, name: Rename, depth: int) -> Frozen:
    return freeze(rename(dict(p), name, depth))


def _masks(masks: Iterable[Frozen], name: Rename, depth: int) -> tuple[Frozen, ...]:
    return tuple(sorted((_frozen(m, name, depth) for m in masks), key=order))


def _atom(a: Atom, name: Rename, depth: int) -> Poly:
    match a:
        case ("ref" | "matrix", label, indices):
            return atom(a[0], label, tuple(name(i, depth) for i in indices))
        case ("inner", u, v):
            return atom("inner", *sorted((_vector(u, name, depth), _vector(v, name, depth)), key=order))
        case ("coordinate", u, i):
            return atom("coordinate", _vector(u, name, depth), name(i, depth))
        case ("position", i):
            i = name(i, depth)
            return number(place(i)) if i >= FIXED else atom("position", i)
        case ("same", home, i, j):
            i, j = sorted((name(i, depth), name(j, depth)))
            return {} if FIXED <= i < j else ONE if i == j else atom("same", home, i, j)
        case ("differ", i, j):
            i, j = sorted((name(i, depth), name(j, depth)))
            return ONE if FIXED <= i < j else {} if i == j else atom("differ", i, j)
        case ("function", label, p):
            return atom("function", label, _frozen(p, name, depth))
        case ("holds", op, p):
            return atom("holds", op, _frozen(p, name, depth))
        case ("else", p, q):
            return atom("else", _frozen(p, name, depth), _frozen(q, name, depth))
        case ("sum", home, p):
            return atom("sum", home, _frozen(p, name, depth + 1))
        case ("extreme", kind, home, score, masks):
            return atom("extreme", kind, home, _frozen(score, name, depth + 1), _masks(masks, name, depth + 1))
        case ("weight", home, rule, score, masks, i):
            score, masks = _frozen(score, name, depth + 1), _masks(masks, name, depth + 1)
            return atom("weight", home, rule, score, masks, name(i, depth))
    return {((a, 1),): Fraction(1)}


def _vector(a: Atom, name: Rename, depth: int) -> Atom:
    match a:
        case ("vref" | "vmatrix", label, indices):
            return (a[0], label, tuple(name(i, depth) for i in indices))
        case ("vsum", home, v):
            return ("vsum", home, freeze_vec(rename_vec(thaw(v), name, depth + 1)))
        case ("unit" | "velse", u, v):
            after = None if v is None else freeze_vec(rename_vec(thaw(v), name, depth))
            return (a[0], freeze_vec(rename_vec(thaw(u), name, depth)), after)
        case ("vfunction", label, v):
            return ("vfunction", label, freeze_vec(rename_vec(thaw(v), name, depth)))
        case ("vtimes", powers):
            ((found, _),) = times_vecs(*({_vector(b, name, depth): ONE} for b, n in powers for _ in range(n))).items()
            return found
        case ("symbol", *_):
            return a
    raise AssertionError(a)


def times_vecs(first: Vec, *others: Vec) -> Vec:
    """The product of several by coordinate."""
    for other in others:
        first = times_vec(first, other)
    return first


def place(index: int) -> int:
    """Which token of its set an index is that names a single one: 1, 2, ..."""
    return index % FIXED + 1


def moved(p: Poly, names: Mapping[int, int]) -> Poly:
    """A number about other tokens: free indices that are replaced."""
    return rename(p, lambda index, _: names.get(index, index))


def moved_vec(v: Vec, names: Mapping[int, int]) -> Vec:
    return rename_vec(v, lambda index, _: names.get(index, index))


def close(p: Poly, index: int) -> Poly:
    """p with a free index bound by what is around it."""
    return rename(p, lambda one, depth: -1 - depth if one == index else one)


def close_vec(v: Vec, index: int) -> Vec:
    return rename_vec(v, lambda one, depth: -1 - depth if one == index else one)


def opened(p: Frozen, index: int) -> Poly:
    """What a sum or choice holds, about a free index."""
    return rename(dict(p), lambda one, depth: index if one == -1 - depth else one)


def opened_vec(v: FrozenVec, index: int) -> Vec:
    return rename_vec(thaw(v), lambda one, depth: index if one == -1 - depth else one)


def free(value: Any) -> set[int]:
    """The free indices of a number, a vector, or something frozen."""
    found: set[int] = set()

    def note(one: int, _: int) -> int:
        found.add(one)
        return one

    if isinstance(value, dict):
        is_vector = value and isinstance(next(iter(value.values())), dict)
        rename_vec(value, note) if is_vector else rename(value, note)
    elif value[0] in VECTORS:
        _vector(value, note, 0)
    else:
        _atom(value, note, 0)
    return {one for one in found if one >= 0}


# ---- sums ------------------------------------------------------------------------------------------------------------


def total(home: str, size: int | None, p: Poly, index: int) -> Poly:
    """The sum over the tokens of a set."""
    result: Poly = {}
    for mono, c in p.items():
        outside, inside = _split(mono, index)
        result = add(result, multiply({outside: c}, _total(home, size, inside, index)))
    return result


def _total(home: str, size: int | None, inside: Mono, index: int) -> Poly:
    if not inside:
        return atom("count", home) if size is None else number(size)
    for a, _ in inside:
        if a[0] == "same" and index in a[2:]:
            other = a[3] if a[2] == index else a[2]
            rest = tuple(part for part in inside if part[0] != a)
            return moved({rest: Fraction(1)}, {index: other})
    if sum(power for _, power in inside) == 2 and all(
        a[0] == "coordinate" and a[2] == index and index not in free(a[1]) for a, _ in inside
    ):
        return inner({inside[0][0][1]: ONE}, {inside[-1][0][1]: ONE})
    if len(inside) == 1 and inside[0][1] == 1:
        a = inside[0][0]
        adds_up = a[0] == "weight" and a[5] == index and a[2].kind in ADD_UP and not a[4] and not LITERAL.get()
        if adds_up and index not in free((*a[:5], -1)):
            return ONE
    return atom("sum", home, freeze(close({inside: Fraction(1)}, index)))


def total_vec(home: str, size: int | None, v: Vec, index: int) -> Vec:
    """The sum of vectors over the tokens of a set."""
    result: Vec = {}
    for a, p in v.items():
        depends = index in free(a)
        for mono, c in p.items():
            outside, inside = _split(mono, index)
            if not depends:
                result = add_vec(result, {a: multiply({outside: c}, _total(home, size, inside, index))})
                continue
            same = [b for b, _ in inside if b[0] == "same" and index in b[2:]]
            if same:
                other = same[0][3] if same[0][2] == index else same[0][2]
                rest = tuple(part for part in inside if part[0] != same[0])
                result = add_vec(result, moved_vec({a: {mono_product(outside, rest): c}}, {index: other}))
            else:
                one = freeze_vec(close_vec({a: {inside: Fraction(1)}}, index))
                result = add_vec(result, {("vsum", home, one): {outside: c}})
    return result


def rolled(p: Poly, bases: Mapping[str, int], sizes: Mapping[str, int | None]) -> Poly:
    """Sums with a term about every single token of a set, as sums over the set; what is 1 at one token, and 0 at
    others, times what that token has, is what the token has.
    """
    for home, base in bases.items():
        size = sizes[home] or 0
        groups: dict[Mono, dict[int, Mono]] = {}
        for mono in p:
            for token in free({mono: ONE[()]}) & set(range(base, base + size)):
                found = moved({mono: ONE[()]}, {token: PLACEHOLDER})
                if len(found) == 1:
                    groups.setdefault(next(iter(found)), {})[token] = mono
        for pattern, monos in groups.items():
            coefficients = {p.get(mono) for mono in monos.values()}
            if len(monos) < size or len(coefficients) > 1 or None in coefficients:
                continue
            (c,) = coefficients
            p = {mono: e for mono, e in p.items() if mono not in monos.values()}
            marks = [a for a, power in pattern if a[0] == "same" and PLACEHOLDER in a[2:] and power == 1]
            rest: Poly = {tuple(part for part in pattern if part[0] not in marks[:1]): Fraction(1)}
            if marks:
                (other,) = {*marks[0][2:]} - {PLACEHOLDER}
                rest = moved(rest, {PLACEHOLDER: other})
            else:
                rest = total(home, size, rest, PLACEHOLDER)
            p = add(p, scale(rest, c or 0))
    return p


def mono_product(left: Mono, right: Mono) -> Mono:
    (found,) = multiply({left: Fraction(1)}, {right: Fraction(1)})
    return found


def _split(mono: Mono, index: int) -> tuple[Mono, Mono]:
    """The factors that do not depend on an index, and those that do."""
    inside = tuple(part for part in mono if index in free(part[0]))
    return tuple(part for part in mono if part not in inside), inside


# ---- what stands for what has no value -------------------------------------------------------------------------------


def with_else(value: Any) -> Any:
    """(a else 0) + b (1 - (t else 0)) as a else b, where t is 1 where a has a value."""
    is_vector = bool(value) and isinstance(next(iter(value.values())), dict)
    left: dict[tuple[Mono, Atom | None], Fraction] = {}
    for key, inside in value.items():
        left |= {(mono, key): c for mono, c in inside.items()} if is_vector else {(key, None): inside}
    for entry in list(left):
        mono, vector = entry
        a = vector if not mono else mono[0][0] if len(mono) == 1 and mono[0][1] == 1 and not vector else None
        if a is None or a[0] not in ("else", "velse") or a[2] or entry not in left:
            continue
        choices = {b[1:5] for b in atoms(thaw(a[1]) if vector else dict(a[1])) if b[0] == "weight"}
        for there in {b for other, _ in left for b, power in other if b[0] == "else" and b != a and power == 1}:
            about = [b[1:5] for b in atoms(dict(there[1])) if b[0] == "weight"]
            without = {
                (tuple(part for part in other[0] if part[0] != there), other[1]): -c
                for other, c in left.items()
                if (there, 1) in other[0]
            }
            if there[2] or about[:1] not in [[one] for one in choices]:
                continue
            if all(left.get(other) == c for other, c in without.items()):
                c = left.pop(entry)
                for mono, other in without:
                    del left[mono, other], left[mono_product(mono, ((there, 1),)), other]
                if vector:
                    fallback = add_vec(*({b: {m: e / c}} for (m, b), e in without.items() if b))
                    entry = ((), ("velse", a[1], freeze_vec(fallback)))
                else:
                    entry = (((("else", a[1], freeze({m: e / c for (m, _), e in without.items()})), 1),), None)
                left[entry] = c
                break
    if not is_vector:
        return {mono: c for (mono, _), c in left.items()}
    return add_vec(*({b: {mono: c}} for (mono, b), c in left.items() if b))


# ---- looking inside --------------------------------------------------------------------------------------------------


def atoms(value: Any) -> Iterator[Atom]:
    """Every atom in a number or a vector, however deep."""
    if isinstance(value, dict):
        for key, inside in value.items():
            if isinstance(inside, dict):
                yield key
                yield from _within(key)
                yield from atoms(inside)
            else:
                for a, _ in key:
                    yield a
                    yield from _within(a)


def _within(a: Atom) -> Iterator[Atom]:
    match a:
        case ("inner", u, v):
            for one in (u, v):
                yield one
                yield from _within(one)
        case ("coordinate", u, _):
            yield u
            yield from _within(u)
        case ("function" | "holds" | "sum", _, p):
            yield from atoms(dict(p))
        case ("else", p, q):
            yield from atoms(dict(p))
            yield from atoms(dict(q))
        case ("extreme", _, _, score, masks) | ("weight", _, _, score, masks, _):
            yield from atoms(dict(score))
            for mask in masks:
                yield from atoms(dict(mask))
        case ("vsum" | "vfunction", _, v):
            yield from atoms(thaw(v))
        case ("vtimes", powers):
            for one, _ in powers:
                yield one
                yield from _within(one)
        case ("unit" | "velse", u, v):
            yield from atoms(thaw(u))
            if v is not None:
                yield from atoms(thaw(v))


def replaced(value: Any, swap: Callable[[Atom], Atom | None]) -> Any:
    """A number or vector in which atoms are replaced, at the top, in functions and inner products, not under sums."""
    if value and isinstance(next(iter(value.values())), dict):
        return add_vec(*({_swapped(a, swap): replaced(p, swap)} for a, p in value.items()))
    result: Poly = {}
    for mono, c in value.items():
        factors: list[Poly] = [{((_swapped(a, swap), power),): Fraction(1)} for a, power in mono]
        result = add(result, scale(multiply(*factors), c))
    return result


def _swapped(a: Atom, swap: Callable[[Atom], Atom | None]) -> Atom:
    new = swap(a)
    if new is not None:
        return new
    match a:
        case ("function", name, p):
            return ("function", name, freeze(replaced(dict(p), swap)))
        case ("inner", u, v):
            return ("inner", *sorted((_swapped(u, swap), _swapped(v, swap)), key=order))
        case ("coordinate", u, i):
            return ("coordinate", _swapped(u, swap), i)
        case ("vfunction", name, v):
            return ("vfunction", name, freeze_vec(replaced(thaw(v), swap)))
        case ("vtimes", powers):
            return ("vtimes", tuple(sorted(((_swapped(one, swap), n) for one, n in powers), key=order)))
    return a
