"""Weightings: scores over an index become weights; each kind takes its own arguments and clauses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftc.core import syntax as ast
from weftc.core.types import Type
from weftc.core.vocabulary import CHOICES, WEIGHTINGS
from weftc.core.words import declared_at, field_words, width_words, written
from weftc.language.check.conditions import conditions

if TYPE_CHECKING:
    from weftc.language.check.expressions import Typing


def weighting(typing: Typing, expr: ast.Weigh, bound: frozenset[str]) -> Type | None:
    """The type of a weighting: never negative, and undefined where no candidate is left."""
    if not typing.index(expr.index, expr.span):
        return None
    inside = bound | {expr.index}
    score = _score(typing, expr, inside)
    indices = conditions(typing, expr.where, inside)
    sound = [
        _bound(typing, expr, bound),
        _argument(typing, expr, bound),
        _noise(typing, expr, inside),
        _ties(typing, expr, inside),
    ]
    if score is None or indices is None or not all(sound):
        return None
    indices |= score.indices | (frozenset(expr.noise.indices) if expr.noise else frozenset())
    if expr.index not in indices:
        label = f"so {expr.kind}[{expr.index}] has nothing to choose by"
        typing.problems.add("C241", expr.score.span, f"this score does not depend on {expr.index}", label)
        return None
    rule = expr.ties.rule if expr.ties else "first"
    onehot = expr.kind in CHOICES and rule in ("first", "within")
    dense = expr.kind == "softmax" or (expr.kind == "normalize" and score.positive)
    may_vanish = not all(map(ast.is_among, expr.where)) or (expr.kind == "normalize" and not score.positive)
    undefined = expr if may_vanish else score.undefined
    return Type(None, indices, undefined, dense and not expr.where, True, "onehot" if onehot else "simplex")


def _bound(typing: Typing, expr: ast.Weigh, bound: frozenset[str]) -> bool:
    """Whether something says which of the weights is meant."""
    i, kind = expr.index, expr.kind
    if i in bound:
        return True
    home = typing.names.index[i]
    typing.problems.add(
        "C213",
        expr.span,
        f"{kind}[{i}] gives one weight per {home} token, and nothing says which one is meant",
        f"index {i} is free",
        f"sum over it, as in sum[{i}] {kind}[{i}](...) * v[{i}], or put {i} on the left-hand side",
    )
    return False


def _score(typing: Typing, expr: ast.Weigh, inside: frozenset[str]) -> Type | None:
    score = typing.of(expr.score, inside)
    if score is None:
        return None
    if score.width is not None:
        label = f"this is {width_words(score.width)}"
        note = "take a squared distance |a - b|^2 or an inner product <a, b>"
        typing.problems.add("C240", expr.score.span, f"the scores of {expr.kind} must be numbers", label, note)
        return None
    if isinstance(score.undefined, ast.Call):
        typing.unit_alone(score.undefined)
        return None
    if expr.kind == "normalize" and not score.nonnegative:
        message = "normalize divides by the sum, so its weights must be known to be >= 0"
        note = "use exp(...), squares, a simplex field, or a field declared `: R >= 0`"
        typing.problems.add("C242", expr.score.span, message, "the sign of this is not known", note)
        return None
    return score


# ---- arguments -------------------------------------------------------------------------------------------------------


def _argument(typing: Typing, expr: ast.Weigh, bound: frozenset[str]) -> bool:
    """Whether the arguments behind the score are what the weighting takes."""
    kind, problems = expr.kind, typing.problems
    takes = WEIGHTINGS[kind].argument
    if takes is None:
        if expr.arguments:
            how = f"scale the score itself, as in {kind}[{expr.index}](gamma * S)"
            label = "this argument has no meaning here"
            problems.add("C243", expr.arguments[0].span, f"{kind} takes a score and nothing else", label, how)
        return not expr.arguments
    what, how = takes
    if len(expr.arguments) == 1:
        return _value(typing, expr, expr.arguments[0], bound)
    if expr.arguments:
        message, span = f"{kind} takes a score and one argument", expr.arguments[1].span
    else:
        message, span = f"{kind} needs a second argument: {what}", expr.span
    problems.add("C244", span, message, "", how.format(i=expr.index))
    return False


def _value(typing: Typing, expr: ast.Weigh, argument: ast.Expr, bound: frozenset[str]) -> bool:
    if isinstance(argument, ast.Percent):
        if expr.kind == "normmax":
            typing.no_percentage(argument, "normmax takes a budget, a positive number")
            return False
        return _constant(typing, argument.body, bound, "a share") is not None and _share(typing, argument)
    what = "the budget of normmax" if expr.kind == "normmax" else "how many to keep"
    found = _constant(typing, argument, bound, what)
    if found is None:
        return False
    if expr.kind == "normmax":
        if not found.positive:
            note = "declare the parameter with its range, as in param gamma = 1 > 0"
            typing.problems.add("C248", argument.span, "the budget of normmax must be known to be > 0", "", note)
        return found.positive
    return _whole(typing, expr, argument)


def _constant(typing: Typing, value: ast.Expr, bound: frozenset[str], what: str) -> Type | None:
    found = typing.number(value, bound, what)
    if found is not None and (found.indices or found.undefined is not None):
        label = "this depends on a token" if found.indices else "this may be undefined"
        note = "use numbers, parameters, dimensions and count(...)"
        typing.problems.add("C245", value.span, f"{what} must be the same for every token", label, note)
        return None
    return found


def _share(typing: Typing, argument: ast.Percent) -> bool:
    known = typing.range(argument.body)
    if known.low <= 100 and known.high >= 0:
        return True
    typing.problems.add("C246", argument.span, "a share lies between 0% and 100%", "this one does not")
    return False


def _whole(typing: Typing, expr: ast.Weigh, argument: ast.Expr) -> bool:
    if not isinstance(argument, ast.Num) or (argument.value >= 1 and argument.value.is_integer()):
        return True
    label = f"write {argument.value:g}% for a share" if 1 < argument.value <= 100 else ""
    message = f"{expr.kind} keeps a whole number of tokens, at least 1"
    typing.problems.add("C247", argument.span, message, label)
    return False


# ---- clauses ---------------------------------------------------------------------------------------------------------


def _noise(typing: Typing, expr: ast.Weigh, inside: frozenset[str]) -> bool:
    """Whether `noise` stands where it belongs and names a random field that differs between candidates."""
    problems, noise, i = typing.problems, expr.noise, expr.index
    if noise is None:
        if expr.kind == "sample":
            how = f"declare random g[i,j] : gumbel and write sample[{i}](S noise g[i,j])"
            spot = problems.spot(expr.span, "sample")
            problems.add("C249", spot, "sample needs its noise", "nothing random is named", how)
        return expr.kind != "sample"
    if expr.kind != "sample":
        how = f"sample[{i}](S noise g[i,j]) is the argmax of S + g"
        problems.add("C250", noise.span, f"`noise` belongs to sample, not to {expr.kind}", "", how)
        return False
    known = typing.fields.get(noise.name)
    if known is not None and known.role != "random":
        place = typing.names.declared(noise.name)
        where = declared_at(problems.source, place.target.span) if place else ""
        how = "declare the noise under `random`, as in random g[i,j] : gumbel"
        message = f"{noise.name} is not a random field"
        problems.add("C251", noise.span, message, f"it is {field_words(known)}", where, how)
        return False
    if typing.of(noise, inside) is None:
        return False
    if i not in noise.indices:
        message, label = f"the noise does not depend on {i}", "every candidate would get the same"
        problems.add("C251", noise.span, message, label, f"draw one per candidate: {written(noise.name, ('...', i))}")
        return False
    return True


def _ties(typing: Typing, expr: ast.Weigh, inside: frozenset[str]) -> bool:
    if expr.ties is None:
        return True
    problems, epsilon = typing.problems, expr.ties.epsilon
    why = WEIGHTINGS[expr.kind].ties
    if why is not None:
        why = why or f"{expr.kind} has no ties to settle"
        problems.add("C253", expr.ties.span, f"`ties` belongs to argmin and argmax, not to {expr.kind}", "", why)
        return False
    if epsilon is None:
        return True
    found = typing.number(epsilon, inside, "the tolerance of `ties within`")
    if found is None:
        return False
    if found.indices or not found.nonnegative:
        label = "this depends on a token" if found.indices else "the sign of this is not known"
        message = "the tolerance of `ties within` is a constant that is known to be >= 0"
        how = "write a number, or a parameter declared with its range: param eps = 1e-9 >= 0"
        problems.add("C254", epsilon.span, message, label, how)
        return False
    return True
