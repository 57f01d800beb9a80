"""Nodes -> polynomials: one rule per operation. Sums and weightings become atoms that heads will compute.

%4 affine %2 - %3, %5 square %4     ->     KeptDistance(x, c): one atom, the difference is never multiplied out here
"""

from __future__ import annotations

import sys
from dataclasses import replace
from fractions import Fraction

from weftc.core.tied import Tied, plain
from weftc.core.vocabulary import DECIDING
from weftc.graph.node import Axis, Node, Reduction, Weighing, Where, in_domain
from weftc.language.check.constants import VALUES
from weftc.normal.slots import Leaf, Map
from weftc.passes.context import Context, NoAttentionForm, Opening, slot_poly
from weftc.passes.entries import dots_of_entries, entries_product
from weftc.passes.fallbacks import ONE_EACH, SEVERAL, emptiness, needed, otherwise, over_keys
from weftc.passes.heads import (
    apart,
    centred,
    function_of_pair,
    has_functions,
    has_open_distances,
    is_positive,
    linear,
    note,
    resolve,
    tabulate,
    total,
)
from weftc.passes.polynomial import ONE as UNIT
from weftc.passes.polynomial import (
    Applied,
    Atom,
    Dot,
    Exp,
    HeadRule,
    KeptDistance,
    MaskRule,
    OneHotId,
    PendingSum,
    Poly,
    Scalar,
    Size,
    Vector,
    Weight,
    axes,
    thaw,
    weigh,
)
from weftc.passes.ratios import divide, token_of, within_domain
from weftc.passes.scores import RESCALE, constants
from weftc.passes.sums import STORE_FIRST, mask_axes, query_of, sum_over
from weftc.passes.symbols import coordinate_of, place_of, symbol_vector
from weftc.passes.written_out import pinned_read, rows_written_out, sum_written_out

LEAST, MOST = Fraction(sys.float_info.min), Fraction(sys.float_info.max)


def poly(cx: Context, node: Node) -> Poly:
    """The polynomial of a node; a refusal is given the place of the innermost guilty expression."""
    try:
        found = dots_of_entries(cx, _lowered(cx.at(node.span), node))
        if not all(LEAST <= abs(c) <= MOST for c in found.terms.values()):
            raise NoAttentionForm("a factor of this is outside the range of float64", RESCALE, code="L302")
        return found
    except NoAttentionForm as refused:
        refused.span = refused.span or node.span
        raise


def _lowered(cx: Context, node: Node) -> Poly:
    """What relates too many tokens is written out, if one of them is of a fixed set."""
    inside = replace(cx, noted=[])
    try:
        found = _poly(inside, node)
    except NoAttentionForm as refused:
        if not refused.crowded:
            raise
        inside = replace(cx, noted=[])
        written = sum_written_out(inside, node, poly, _masks) if node.op == "reduce" else None
        written = rows_written_out(inside, node, poly) if written is None else written
        if written is None or (cx.guarded and inside.noted):  # an `else` is known per token: it is written out with it
            raise
        found = written
    cx.note(*inside.noted)
    return found


def _poly(cx: Context, node: Node) -> Poly:
    match node.op:
        case "const":
            return Poly.const(node.value)
        case "symbol" | "onehot":
            known = place_of(cx, node)
            if known is None:
                assert isinstance(node.detail, Axis)
                return Poly.atom(cx.one_hot(node.detail))
            return symbol_vector(cx, known, cx.home)
        case "read":
            return _read(cx, node)
        case "count":
            assert isinstance(node.detail, str)
            return Poly.atom(Size(list(cx.checked.sets).index(node.detail), node.detail))
        case "position":
            assert isinstance(node.detail, Axis)
            if node.detail in cx.pinned:
                return Poly.const(cx.pinned[node.detail] + 1)
            return Poly.atom(Scalar(cx.leaf(node.detail.set, Leaf("position")), node.detail))
        case "affine":
            out = Poly()
            terms = sorted(zip(node.operands, node.coefficients, strict=True), key=lambda term: cx.order[term[0]])
            for x, c in terms:
                out = out + poly(cx, x).scale(c)
            return out
        case "product":
            return _product(cx, node)
        case "quotient":
            return _quotient(cx, node)
        case "function":
            return _function(cx, node)
        case "else":
            return _else(cx, node)
        case "reduce":
            return _reduce(cx, node)
        case "weighting":
            return _weighting(cx, node)
    raise AssertionError(f"no polynomial of {node.op}")


def _read(cx: Context, node: Node) -> Poly:
    on = node.detail
    assert isinstance(on, tuple)
    field = cx.checked.fields[node.label]
    slot = cx.field(field.name)
    if on[0] in cx.pinned:
        return pinned_read(cx, field, slot, on)
    if len(on) == 2:
        return cx.row(slot, *on)
    return slot_poly(slot, on[0], slot.width if field.is_pair or field.width is not None else 0)


# ---- token-wise maths ------------------------------------------------------------------------------------------------


def _product(cx: Context, node: Node) -> Poly:
    factors = sorted(node.operands, key=cx.order.__getitem__)
    left = poly(cx, factors[0])
    right = poly(cx, factors[1]) if len(factors) > 1 else left
    match node.detail:
        case "times":
            if left.is_const or right.is_const:
                return left * right
            if left.terms == right.terms and not left.width:
                return _square(cx, left)
            if any(side.terms and all(constants(v) for _, v in side.terms) for side in (left, right)):
                return left * right  # with constant vectors: entries of a matrix
            return _factor(cx, left, right) * _factor(cx, right, left)
        case "entries":
            return entries_product(cx, _factor(cx, left), _factor(cx, right))
        case "inner" if len(factors) == 2 and (known := place_of(cx, factors[0])) is not None:
            return coordinate_of(cx, right, known)
        case "inner" if len(factors) == 2 and (known := place_of(cx, factors[1])) is not None:
            return coordinate_of(cx, left, known)
        case "inner":
            return _square(cx, left) if left.terms == right.terms else _whole(cx, left).dot(_whole(cx, right))
        case ("power", int() as exponent) if exponent != 2:
            return _whole(cx, left).power(exponent)
    return _square(cx, left)


def _quotient(cx: Context, node: Node) -> Poly:
    left, divisor = poly(cx, node.operands[0]), node.operands[1]
    known = divisor.shape
    power = divisor.detail if divisor.op == "product" else None
    if isinstance(power, tuple) and power[0] == "power":  # 1 / S^n is (1 / S)^n where a head computes 1 / S
        base = poly(cx, divisor.operands[0])
        found = divide(cx, Poly.const(1), base, known.positive and known.defined) if len(base.axes) == 2 else Poly()
        if has_functions(found):
            return _factor(cx, left, found) * found.power(power[1])
    right = poly(cx, divisor)
    if node.detail == "entries":
        return entries_product(cx, _factor(cx, left), _reciprocals(cx, right))
    try:
        pair = len(right.axes) == 2 and not any(map(cx.tokens, right.axes))
        if len(left.axes) != 2 or not pair:
            left = left if right.is_const else _factor(cx, left)
        return divide(cx, left, right, known.positive and known.defined)
    except NoAttentionForm as refused:
        refused.span = refused.span or node.operands[1].span
        raise


def _reciprocals(cx: Context, p: Poly) -> Poly:
    """1 over every coordinate of a vector of one token."""
    if cx.guarded:
        raise NoAttentionForm(
            "an `else` around `./` has no attention form",
            "divide by what is never 0, as in a ./ max(b, 1e-9), or by numbers: one coordinate after the other",
            code="L303",
        )
    i = token_of(cx, p)
    return slot_poly(cx.function(i.set, "reciprocal", linear(cx, p, i)), i, p.width)


def _square(cx: Context, p: Poly) -> Poly:
    p = _of_one_token(_caught(cx, p))
    if len(p.axes) > 2 and len(p.terms) > 1 and not cx.deciding:
        raise NoAttentionForm(
            f"a square of {len(p.axes)} tokens ({cx.said(p.axes)}); attention relates two", STORE_FIRST, crowded=True
        )
    sides = _sides(p)
    if sides is None or _pending(p):
        whole = _whole(cx, p)
        return whole.dot(whole)
    left, right, i, j, _ = sides
    return Poly.atom(KeptDistance(left.frozen, right.frozen, i, j))


def _sides(p: Poly) -> tuple[Poly, Poly, Axis, Axis, int] | None:
    """A, B and a sign of +-(A[i] - B[j]), if it is a difference of two tokens and nothing else (a constant belongs to
    A). A begins with something positive, so that x[i] - c[j] and c[j] - x[i] need the same slots."""
    if len(p.axes) != 2:
        return None
    i, j = sorted(p.axes)
    left = p.only(i)
    right = left - p
    if not left.axes or right.axes != {j}:
        return None
    sign = 1 if next(c for m, c in left.frozen if m != UNIT) > 0 else -1
    return left.scale(sign), right.scale(sign), i, j, sign


def _length(cx: Context, p: Poly) -> Poly:
    """|p|. A square that was multiplied out may round to something below zero: that counts as zero."""
    square = _square(cx, p)
    whole = cx.styles.scores == "l2" and any(isinstance(a, KeptDistance) for a in square.atoms)
    if len(square.axes) == 2 and not whole:
        square = function_of_pair(cx, "relu", square)
    return _apply(cx, "sqrt", square)


def _caught(cx: Context, p: Poly) -> Poly:
    """A difference before an `else`, with 0 for what may not exist (it is noted already), so that it can be kept."""
    if not cx.guarded or len(p.terms) < 2 or not _pending(p):
        return p

    def swap(a: Atom) -> Poly | None:
        empty = isinstance(a, PendingSum) and a.rule.may_be_empty
        return total(cx, replace(a, rule=a.rule.with_last())) if empty and isinstance(a, PendingSum) else None

    return p.replace(swap)


def _of_one_token(p: Poly) -> Poly:
    """A difference of a token and of sums that are the same for all tokens, with these sums on that token: it is taken
    there, and no product of two tokens has to stand for it."""
    if len(p.axes) != 2 or _pending(p):
        return p

    def is_same_for_all(a: Atom, elsewhere: Axis) -> bool:
        if not isinstance(a, PendingSum) or a.own or a.rule.self_key is not None or a.key == elsewhere:
            return False
        return thaw(a.rule.score).axes | mask_axes(a.rule.masks) <= {a.key}

    i, j = sorted(p.axes)
    for moves, stays in ((i, j), (j, i)):
        sums = [a for a in p.atoms if moves in axes(a)]
        if all(is_same_for_all(a, stays) for a in sums):
            landed = {a: Poly.atom(replace(a, query=stays)) for a in sums if isinstance(a, PendingSum)}
            return p.replace(landed.get)  # type: ignore[arg-type]
    return p


def _pending(p: Poly) -> bool:
    """Whether an `else` may still have to catch something in it."""
    return any(isinstance(a, PendingSum) and a.rule.may_be_empty for a in p.atoms)


def _whole(cx: Context, p: Poly) -> Poly:
    """A sum as one factor: multiplying it out would cancel what the difference keeps.

        values of one token                         a slot that holds their sum
        two tokens, numbers, one of a fixed set     a row: one number per token of that set
        two tokens otherwise                        the difference of two centred sides (`centred`)

    A score that decides is left as a polynomial of stored fields: that is compared exactly anyhow.
    """
    p = _of_one_token(_caught(cx, p))
    if len(p.terms) < 2 or (cx.guarded and _pending(p)) or not p.axes:
        return p
    if len(p.axes) == 1:
        (i,), common = p.axes, _common(p)
        return slot_poly(cx.function(i.set, "copy", linear(cx, p.scale(1 / common), i)), i, p.width).scale(common)
    if len(p.axes) > 2 or cx.deciding:
        return p
    if not p.width and any(cx.tokens(i) for i in p.axes):
        return tabulate(cx, apart(cx, p))
    sides = _sides(p)
    if sides is None:
        return p
    left, right, i, j, sign = sides
    left, right = centred(cx, resolve(cx, left), resolve(cx, right), i, j)
    return (left - right).scale(sign)


def factored(cx: Context, p: Poly) -> Poly:
    """c * (a - b) of stored values, not multiplied out where c is no power of two: each product would be rounded, and
    what the difference keeps be lost."""
    sums = any(isinstance(atom, PendingSum) for atom in p.atoms)
    return p if sums or len(p.axes) != 1 or _common(p) == 1 else _whole(cx, p)


def _common(p: Poly) -> Fraction:
    """The c of c * (a - b), where products with c are rounded and those without it are not; 1 where there is none."""
    first = next((c for m, c in p.terms.items() if m != UNIT), Fraction(1))
    exact = (_is_float(c / first) if m == UNIT else _is_power_of_two(c / first) for m, c in p.terms.items())
    return first if len(p.terms) > 1 and not _is_power_of_two(first) and all(exact) else Fraction(1)


def _is_power_of_two(c: Fraction) -> bool:
    top, bottom = abs(c.numerator), c.denominator
    return top & (top - 1) == 0 and bottom & (bottom - 1) == 0


def _is_float(c: Fraction) -> bool:
    return Fraction(float(c)) == c


def _factor(cx: Context, p: Poly, beside: Poly | None = None) -> Poly:
    """A sum as one factor, unless it holds sums over keys of the same token: those are rounded already. `beside`
    functions of scores a difference stays one: the head takes it of every pair (`sums`)."""
    if beside is not None and has_functions(beside) and len(p.axes) == 2:
        return p
    sums = any(isinstance(x, PendingSum) for a in p.atoms for x in ((a.left, a.right) if isinstance(a, Dot) else (a,)))
    return p if sums and len(p.axes) == 1 else _whole(cx, p)


def _function(cx: Context, node: Node) -> Poly:
    name, (body,) = node.kind, node.operands
    if name == "length":
        p = poly(cx, body)
        return _length(cx, p) if p.width else _apply(cx, "abs", p)
    if name == "unit":
        return _unit(cx, poly(cx, body), None)
    if cx.guarded and not in_domain(name, body):
        if body.shape.width is not None:
            message = f"an `else` around {name} of a vector has no attention form"
            raise NoAttentionForm(
                message, f"one coordinate after the other: y[i,e] = {name}(x[i,e]) else 0", code="L303"
            )
        return _apply(cx, name, within_domain(cx, name, poly(cx, body)))
    return _apply(cx, name, poly(cx, body))


def _apply(cx: Context, function: str, p: Poly) -> Poly:
    if function == "log":
        lse = _log_of_sum(cx, p)
        if lse is not None:
            return lse
    if p.is_const:
        return Poly.const(_constant(function, p.constant))
    if len(p.axes) == 2:
        return Poly.atom(Exp(p.frozen)) if function == "exp" else function_of_pair(cx, function, p)
    i = token_of(cx, p)
    return slot_poly(cx.function(i.set, function, linear(cx, p, i)), i, p.width)


def _constant(function: str, value: Fraction) -> Fraction:
    if function == "abs":
        return abs(value)
    try:
        if isinstance(value, Tied):
            return value.applied(function, VALUES[function])
        return Fraction(VALUES[function](float(value)))
    except (ValueError, OverflowError):
        raise NoAttentionForm(f"{function} of {float(value):g} is not a finite number", code="L302") from None


def _log_of_sum(cx: Context, p: Poly) -> Poly | None:
    """log(c * sum[k] exp(S)) = log c + lse[k] S: the log-normaliser of a head."""
    single = p.single
    if single is None or single[2] <= 0 or len(single[0]) != 1 or single[1]:
        return None
    s, power = single[0][0]
    if not isinstance(s, PendingSum) or power != 1 or s.rule.kind != "exp" or s.scalars or s.vectors:
        return None
    lse = total(cx, PendingSum(s.query, s.key, weigh("lse", s.rule.score, s.rule.masks)))
    return lse + Poly.const(_constant("log", single[2]))


def _unit(cx: Context, p: Poly, fallback: Poly | None) -> Poly:
    if not p.terms:
        if fallback is None:
            raise NoAttentionForm("unit of a vector that is always 0", code="L302")
        return fallback
    i = token_of(cx, p)
    other = None if fallback is None else linear(cx, fallback, i)
    return Poly.atom(Vector(cx.derive(i.set, p.width, Map("unit", form=linear(cx, p, i), fallback=other)), i))


# ---- else ------------------------------------------------------------------------------------------------------------


def _else(cx: Context, node: Node) -> Poly:
    body, fallback = node.operands
    if body.op == "function" and body.kind == "unit":
        inside, noted = _guarded(cx, body.operands[0])
        inside = otherwise(cx, inside, Poly(), noted)  # where it is undefined: 0 has no direction either
        return _unit(cx, inside, poly(cx, fallback))
    first, noted = _guarded(cx, body)
    second, more = _guarded(cx, fallback)
    return needed(cx, otherwise(cx, first, second, noted), noted, more)


def _guarded(cx: Context, node: Node) -> tuple[Poly, list[Opening]]:
    """What stands before an `else`, and what may leave it without a value; 0 is computed there."""
    inside = replace(cx, guarded=True, noted=[])
    body = poly(inside, node)
    body = body.replace(
        lambda a: resolve(inside, Poly.atom(a)) if isinstance(a, KeptDistance | Exp | Applied) else None
    )
    return body, inside.noted


def _before_else(cx: Context, p: Poly) -> Poly:
    """What a head scores by. Before an `else` its sums are made here, with 0 where they have no value: the
    head is made later, when nothing says any more that an `else` stands around it."""
    return resolve(cx, p) if cx.guarded else p


# ---- conditions and weightings ---------------------------------------------------------------------------------------


def _masks(cx: Context, where: tuple[Node, ...]) -> tuple[MaskRule, ...]:
    inside = replace(cx, deciding=True)
    out = []
    for condition in where:
        detail = condition.detail
        assert isinstance(detail, Where)
        if detail.kind == "different":
            out.append(_different(cx, *detail.axes))
        elif detail.kind == "member":
            half = Poly.const(Fraction(1, 2))
            out.append(MaskRule((poly(inside, condition.operands[0]) - half).frozen, member=True))
        else:
            p = poly(inside, condition.operands[0]) - poly(inside, condition.operands[1])
            out.append(MaskRule((p if detail.kind[0] == ">" else -p).frozen, strict=detail.kind in "<>"))
    return tuple(out)


def _different(cx: Context, left: Axis, right: Axis) -> MaskRule:
    """Where two axes name different tokens; one of them may be pinned."""
    if left in cx.pinned:
        left, right = right, left
    if right not in cx.pinned:
        return MaskRule(other=(left, right))
    half, place = Poly.const(Fraction(1, 2)), cx.pinned[right]
    if left in cx.pinned:
        return MaskRule((half if cx.pinned[left] != place else -half).frozen)
    name = cx.leaf(left.set, Leaf("name"), cx.tokens(left) or 1)
    return MaskRule((half - Poly.atom(Scalar(cx.pick(name, place), left))).frozen)


def _weighting(cx: Context, node: Node) -> Poly:
    how, score = node.detail, node.part("score")
    assert isinstance(how, Weighing)
    assert score is not None
    k = how.axis
    if k in cx.pinned:  # the weight of one token among all
        free = replace(cx, pinned={axis: place for axis, place in cx.pinned.items() if axis != k})
        (row,) = tabulate(free, _weighting(free, node)).atoms
        assert isinstance(row, Dot)
        held = row.left if isinstance(row.left, Vector) else row.right
        assert isinstance(held, Vector)
        return Poly.atom(Scalar(cx.pick(held.slot, cx.pinned[k]), held.axis))
    inside = replace(cx, noted=[])
    masks = _masks(inside, node.parts("where"))
    ranking = replace(inside, deciding=cx.deciding or how.kind in DECIDING)
    p = poly(ranking, score)
    for noise in node.parts("noise"):
        p = p + poly(ranking, noise)
    q = query_of(cx, p.axes | mask_axes(masks), k, f"this {how.kind}")
    if q == k:
        raise NoAttentionForm(
            f"{how.kind}[{cx.said([k])}] needs another token to choose for",
            "declare a second index over the same set: one for the token that chooses, one for the candidates",
        )
    p = _before_else(inside, p)
    rule = _rule_of(cx, node, -p if how.kind in ("argmin", "lowest") else p, masks, q)
    over_keys(replace(cx, home=q), inside.noted, k, masks)
    note(cx, rule, q, k)
    return Poly.atom(Weight(rule, q, k))


def _rule_of(cx: Context, node: Node, p: Poly, masks: tuple[MaskRule, ...], q: Axis) -> HeadRule:
    how = node.detail
    assert isinstance(how, Weighing)

    def number(x: Node | None) -> Fraction:
        assert x is not None
        value = poly(replace(cx, home=q), x)
        if not value.is_const:
            raise NoAttentionForm("this must be a number that is known when the spec compiles", code="L304")
        return plain(value.constant)

    score = p.frozen
    match how.kind:
        case "argmax" | "argmin" | "sample":
            if how.ties in (None, "first"):
                return weigh("argmax", score, masks, node.span)
            if how.ties == "within":
                epsilon = number(node.part("epsilon"))
                return weigh("argmax", score, masks, node.span, ties="within", epsilon=epsilon)
            return weigh("argmax", score, masks, node.span, ties="split")
        case "lowest" | "highest":
            kept = number(node.part("argument"))
            if how.percent:
                share = Fraction(repr(float(kept)))  # percentages are exact decimals
                return weigh("top", score, masks, node.span, percent=share)
            if kept.denominator != 1 or kept < 1:
                raise NoAttentionForm(
                    f"{how.kind} keeps a whole number of tokens, at least 1, not {float(kept):g}", code="L304"
                )
            return weigh("top", score, masks, node.span, count=int(kept))
        case "normmax":
            gamma = number(node.part("argument"))
            if gamma <= 0:
                raise NoAttentionForm(f"normmax needs a positive gamma, not {float(gamma):g}", code="L304")
            return weigh("normmax", score, masks, node.span, gamma=gamma)
        case "normalize":
            return replace(_normalize(cx, p, masks, q, how.axis), span=node.span)
    sharpness = None if how.sharpness is None else Fraction(how.sharpness)
    ties = "split" if how.split else "first"
    return weigh(how.kind, score, masks, node.span, ties=ties, sharpness=sharpness)


def _normalize(cx: Context, p: Poly, masks: tuple[MaskRule, ...], q: Axis, k: Axis) -> HeadRule:
    """Weights proportional to p; for exp(S), or a field whose logarithms are kept, that is a softmax.

    For exp(S) * g it is normalize(softmax(S) * g): a factor per query is free.
    """
    found = _softened(cx, p, masks)
    if found is None or has_functions(found[1]) or has_open_distances(cx, found[1]):
        return weigh("normalize", _lowered_exponential(cx, p, masks, q, k).frozen, masks)
    rule, rest = found
    if rest.is_const:
        return rule
    soft = Poly.atom(Weight(rule.with_last() if rule.masks else rule, q, k))
    return weigh("normalize", (soft * rest).frozen, masks)


def _lowered_exponential(cx: Context, p: Poly, masks: tuple[MaskRule, ...], q: Axis, k: Axis) -> Poly:
    """exp(S) * g as exp(S - lse S) * g: a factor per query is free, and the largest weights do not underflow."""
    found = _softened(cx, p, masks)
    if found is None:
        return p
    rule, rest = found
    single = rest.single
    plain = () if single is None else tuple(z for z in single[0] if not isinstance(z[0], Applied))
    seen = (*masks, MaskRule(Poly.term((plain, None)).frozen)) if plain else masks
    lse = weigh("lse", rule.score, seen)
    most = total(replace(cx, noted=[]), PendingSum(q, k, lse.with_last() if seen else lse))
    return Poly.atom(Exp(resolve(cx, thaw(rule.score) - most).frozen)) * rest


def _softened(cx: Context, p: Poly, masks: tuple[MaskRule, ...]) -> tuple[HeadRule, Poly] | None:
    """softmax(S) and g of p = exp(S) * g. The softmax is over the keys that count and whose g is not 0, so that it does
    not vanish for all of them, however far above them others are."""
    common = [a for a in p.atoms if all(dict(scalars).get(a) == 1 for scalars, _ in p.terms)]
    exponents = {a: e for a in common if (e := _exponent(cx, a)) is not None}
    if len(exponents) != 1:
        return None
    ((atom, exponent),) = exponents.items()
    rest = p.replace(lambda a: Poly.const(1) if a == atom else None)
    positive = rest.constant > 0 if rest.is_const else is_positive(cx, rest)
    counts = masks if positive else (*masks, MaskRule(rest.frozen))
    return weigh("softmax", exponent.frozen, counts), rest


def _exponent(cx: Context, a: Atom) -> Poly | None:
    """S of a factor exp(S): an exponential of a pair or of a token, or a field whose logarithms are kept."""
    if isinstance(a, Exp):
        return thaw(a.body)
    if isinstance(a, Scalar) and isinstance(a.slot.content, Map) and a.slot.content.function == "exp":
        out = Poly()
        for slot, c in a.slot.content.form:
            out = out + (Poly.const(c) if slot.is_one else Poly.atom(Scalar(slot, a.axis)).scale(c))
        return out
    if isinstance(a, Dot):
        name, row = (a.left, a.right) if isinstance(a.left, OneHotId) else (a.right, a.left)
        if isinstance(name, OneHotId) and isinstance(row, Vector) and isinstance(row.slot.content, Leaf):
            field = row.slot.content
            if field.kind == "field" and field.name in cx.logged:
                return cx.row(cx.leaf(row.slot.stream, Leaf("log", field.name), row.width), row.axis, name.axis)
    return None


# ---- reductions ------------------------------------------------------------------------------------------------------


def _reduce(cx: Context, node: Node) -> Poly:
    reduction, part = node.detail, node.part("body")
    assert isinstance(reduction, Reduction)
    assert part is not None
    kind, k = reduction.kind, reduction.axis
    by, weighted = node.part("by"), node.part("weighted")
    inside = replace(cx, noted=[])
    masks = _masks(inside, node.parts("where"))
    body = poly(inside, part)
    beside = replace(cx, noted=[])
    weights = Poly.const(1) if weighted is None else _before_else(beside, poly(beside, weighted))
    if by is None:
        over_keys(cx, inside.noted, k, masks, body, weights)
        over_keys(cx, beside.noted, k, masks, weights)  # a weight without a value is no weight of 0
    elif (inside.noted or beside.noted) and cx.guarded:
        raise NoAttentionForm(SEVERAL, ONE_EACH, code="L303")
    if kind in ("max", "min", "logsumexp"):
        return _extreme(cx, kind, body, k, masks)
    differs = has_functions(weights) and len(body.axes) == 2
    if body.axes == {k} or (not differs and _sides(body) is not None):
        body = _factor(cx, body)  # differences of stored values are taken before the sum
    if by is not None:
        return sum_over(cx, body * poly(cx, by), k, masks)
    if kind == "sum":
        return sum_over(cx, body * weights, k, masks)
    if weighted is None and not masks and _is_pair(body):
        return sum_over(cx, body, k) * _one_over(cx, k)
    weighing = weights.axes | mask_axes(masks)
    q = query_of(cx, weighing if weighing - {k} else body.axes, k, "this mean")
    if differs or has_functions(body):  # values of pairs are weighed as they are: see `sums`
        weights = _lowered_exponential(cx, weights, masks, q, k)
        rule = weigh("normalize", weights.frozen, masks, node.span)
        note(cx, rule, q, k)
        mass = sum_over(cx, weights, k, masks)
        if cx.guarded and rule.may_be_empty:
            mass = mass + emptiness(cx, rule, q, k)
        return divide(cx, sum_over(cx, body * weights, k, masks), mass, nonzero=True)
    soft = _softened(cx, weights, masks)
    whole = soft is None or has_functions(soft[1]) or has_open_distances(cx, soft[1])
    if soft is not None and not soft[1].is_const and not whole:
        return _mean_by(cx, body, replace(soft[0], span=node.span), soft[1], q, k)
    rule = replace(_normalize(cx, weights, masks, q, k), span=node.span)
    note(cx, rule, q, k)
    return sum_over(cx, body * Poly.atom(Weight(rule, q, k)), k)


def _mean_by(cx: Context, body: Poly, rule: HeadRule, factor: Poly, q: Axis, k: Axis) -> Poly:
    """The mean of `body` weighted by softmax * factor: a quotient of two sums that one head brings. The upper one is
    added up before it is divided, so that it rounds as the lower one does."""
    note(cx, rule, q, k)
    weight = Poly.atom(Weight(rule, q, k)) * factor
    mass = sum_over(cx, weight, k)
    if cx.guarded and rule.may_be_empty:
        mass = mass + emptiness(cx, rule, q, k)  # divided by 1 where no key counts
    return divide(cx, _whole(cx, sum_over(cx, body * weight, k)), mass, nonzero=True)


def _is_pair(p: Poly) -> bool:
    return any(isinstance(a, Dot | KeptDistance | Exp | Applied | Weight) and len(axes(a)) == 2 for a in p.atoms)


def _one_over(cx: Context, k: Axis) -> Poly:
    size = cx.tokens(k)
    return Poly.const(Fraction(1, size)) if size else Poly.term((((Size(k.rank, k.set), -1),), None))


def _extreme(cx: Context, kind: str, body: Poly, k: Axis, masks: tuple[MaskRule, ...]) -> Poly:
    """max, min and logsumexp over an axis: the number a head returns instead of a sum of values."""
    q = query_of(cx, body.axes | mask_axes(masks), k, f"this {kind}")
    if q == k:
        raise NoAttentionForm(
            f"{kind} over {cx.said([k])} has to land on another token",
            f"declare a second index over the set of {cx.said([k])} and use it on one side",
        )
    body = _before_else(cx, body)
    if kind == "logsumexp":
        return total(cx, PendingSum(q, k, weigh("lse", body.frozen, masks)))
    factor = 1 if kind == "max" else -1
    return total(cx, PendingSum(q, k, weigh("max", body.scale(factor).frozen, masks))).scale(factor)
