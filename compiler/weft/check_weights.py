"""The types of reductions and weightings, and the rules of their clauses (`where`, `by`, `weighted`, `ties`, `noise`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft import syntax as ast
from weft.types import Type
from weft.words import declared_at, field_words, width_words, written

if TYPE_CHECKING:
    from weft.check_expressions import Typing

CHOICES = ("argmin", "argmax")
WITH_ARGUMENT = {
    "lowest": ("how many, or a share", "as in lowest[{i}](S, 3) or lowest[{i}](S, 90%)"),
    "highest": ("how many, or a share", "as in highest[{i}](S, 3) or highest[{i}](S, 90%)"),
    "normmax": ("its budget", "as in normmax[{i}](S, gamma)"),
}


def weigh(typing: Typing, expr: ast.Weigh, bound: frozenset[str]) -> Type | None:
    """A weighting: numbers over `index` become weights that are not negative."""
    if not typing.index(expr.index, expr.span):
        return None
    free = expr.index not in bound
    if free:
        home = typing.names.index[expr.index]
        typing.problems.add(
            "C213",
            expr.span,
            f"{expr.kind}[{expr.index}] gives one weight per {home} token, and nothing says which one is meant",
            f"index {expr.index} is free",
            f"sum over it, as in sum[{expr.index}] {expr.kind}[{expr.index}](...) * v[{expr.index}], "
            f"or put {expr.index} on the left-hand side",
        )
    inside = bound | {expr.index}
    score = _score(typing, expr, inside)
    indices = conditions(typing, expr.where, inside)
    sound = [_argument(typing, expr, bound), _noise(typing, expr, inside), _ties(typing, expr, inside)]
    if score is None or indices is None or free or not all(sound):
        return None
    indices |= score.indices | (frozenset(expr.noise.indices) if expr.noise else frozenset())
    if expr.index not in indices:
        typing.problems.add(
            "C241",
            expr.score.span,
            f"this score does not depend on {expr.index}",
            f"so {expr.kind}[{expr.index}] has nothing to choose by",
        )
        return None
    rule = expr.ties.rule if expr.ties else "first"
    onehot = expr.kind == "sample" or (expr.kind in CHOICES and rule in ("first", "within"))
    masked = bool(expr.where)
    dense = expr.kind == "softmax" or (expr.kind == "normalize" and score.positive)
    undefined = expr if masked or (expr.kind == "normalize" and not score.positive) else score.undefined
    return Type(None, indices, undefined, dense and not masked, True, "onehot" if onehot else "simplex")


def _score(typing: Typing, expr: ast.Weigh, inside: frozenset[str]) -> Type | None:
    score = typing.of(expr.score, inside)
    if score is None:
        return None
    if score.width is not None:
        typing.problems.add(
            "C240",
            expr.score.span,
            f"the scores of {expr.kind} must be numbers",
            f"this is {width_words(score.width)}",
            "take a squared distance |a - b|^2 or an inner product <a, b>",
        )
        return None
    if isinstance(score.undefined, ast.Call):
        typing.unit_alone(score.undefined)
        return None
    if expr.kind == "normalize" and not score.nonnegative:
        typing.problems.add(
            "C242",
            expr.score.span,
            "normalize divides by the sum, so its weights must be known to be >= 0",
            "the sign of this is not known",
            "use exp(...), squares, a simplex field, or a field declared `: R >= 0`",
        )
        return None
    return score


def _argument(typing: Typing, expr: ast.Weigh, bound: frozenset[str]) -> bool:
    """Whether the arguments behind the score are what the weighting takes."""
    takes = WITH_ARGUMENT.get(expr.kind)
    problems = typing.problems
    if takes is None:
        if expr.arguments:
            problems.add(
                "C243",
                expr.arguments[0].span,
                f"{expr.kind} takes a score and nothing else",
                "this argument has no meaning here",
                "scale the score itself, as in softmax[j](gamma * S)" if expr.kind == "softmax" else "",
            )
        return not expr.arguments
    if len(expr.arguments) != 1:
        what, how = takes
        spot = expr.span if not expr.arguments else expr.arguments[1].span
        problems.add(
            "C244",
            spot,
            f"{expr.kind} needs a second argument: {what}"
            if not expr.arguments
            else f"{expr.kind} takes a score and one argument",
            "",
            how.format(i=expr.index),
        )
        return False
    argument = expr.arguments[0]
    share = isinstance(argument, ast.Percent)
    if share and expr.kind == "normmax":
        problems.add(
            "C260",
            argument.span,
            "a percentage only makes sense as the share of `lowest` or `highest`",
            "",
            "normmax takes a budget, a positive number",
        )
        return False
    value = argument.body if isinstance(argument, ast.Percent) else argument
    what = "a share" if share else "the budget of normmax" if expr.kind == "normmax" else "how many to keep"
    found = typing.number(value, bound, what)
    if found is None:
        return False
    if found.indices or found.undefined is not None:
        problems.add(
            "C245",
            value.span,
            f"{what} must be the same for every token",
            "this depends on a token" if found.indices else "this is not a constant",
            "use numbers, parameters, dimensions and count(...)",
        )
        return False
    known = typing.range(value)
    if share and (known.low > 100 or known.high < 0):
        problems.add("C246", argument.span, "a share lies between 0% and 100%", f"this is {known.low:g}%")
        return False
    if (
        not share
        and expr.kind != "normmax"
        and isinstance(value, ast.Num)
        and not (value.value >= 1 and value.value.is_integer())
    ):
        problems.add(
            "C247",
            value.span,
            f"{expr.kind} keeps a whole number of tokens, at least 1",
            f"write {value.value:g}% for a share" if 1 < value.value <= 100 else "",
        )
        return False
    if expr.kind == "normmax" and not found.positive:
        problems.add(
            "C248",
            value.span,
            "the budget of normmax must be known to be > 0",
            "",
            "declare the parameter with its range, as in param gamma = 1 > 0",
        )
        return False
    return True


def _noise(typing: Typing, expr: ast.Weigh, inside: frozenset[str]) -> bool:
    """Whether `noise` stands where it belongs and names a random field that differs between candidates."""
    problems, noise = typing.problems, expr.noise
    if noise is None:
        if expr.kind == "sample":
            problems.add(
                "C249",
                problems.spot(expr.span, "sample"),
                "sample needs its noise",
                "nothing random is named",
                "declare random g[i,j] : gumbel and write sample[i](S noise g[i,j])",
            )
        return expr.kind != "sample"
    if expr.kind != "sample":
        problems.add(
            "C250",
            noise.span,
            f"`noise` belongs to sample, not to {expr.kind}",
            "",
            "sample[i](S noise g[i,j]) is the argmax of S + g",
        )
        return False
    known = typing.fields.get(noise.name)
    if known is not None and known.role != "random":
        place = typing.names.declared(noise.name)
        problems.add(
            "C251",
            noise.span,
            f"{noise.name} is not a random field",
            f"it is {field_words(known)}",
            declared_at(problems.source, place.target.span) if place else "",
            "declare the noise under `random`, as in random g[i,j] : gumbel",
        )
        return False
    found = typing.of(noise, inside)
    if found is None:
        return False
    if expr.index not in noise.indices:
        problems.add(
            "C251",
            noise.span,
            f"the noise does not depend on {expr.index}",
            "every candidate would get the same",
            f"draw one number per candidate: {written(noise.name, ('...', expr.index))}",
        )
        return False
    return True


def _ties(typing: Typing, expr: ast.Weigh, inside: frozenset[str]) -> bool:
    if expr.ties is None:
        return True
    if expr.kind not in CHOICES:
        notes = {
            "lowest": "lowest N keeps exactly N, lower index first; lowest P% keeps all ties at the boundary",
            "highest": "highest N keeps exactly N, lower index first; highest P% keeps all ties at the boundary",
        }
        typing.problems.add(
            "C253",
            expr.ties.span,
            f"`ties` belongs to argmin and argmax, not to {expr.kind}",
            "",
            notes.get(
                expr.kind,
                f"{expr.kind} has no ties to settle"
                if expr.kind != "sample"
                else "with continuous noise equal scores do not happen; the first one would win",
            ),
        )
        return False
    epsilon = expr.ties.epsilon
    if epsilon is None:
        return True
    found = typing.number(epsilon, inside, "the tolerance of `ties within`")
    if found is None:
        return False
    if found.indices or not found.nonnegative:
        typing.problems.add(
            "C254",
            epsilon.span,
            "the tolerance of `ties within` is a constant that is known to be >= 0",
            "this depends on a token" if found.indices else "the sign of this is not known",
            "write a number, or a parameter declared with its range: param eps = 1e-9 >= 0",
        )
        return False
    return True


# ---- conditions ------------------------------------------------------------------------------------------------------


def conditions(typing: Typing, where: tuple[ast.Condition, ...], inside: frozenset[str]) -> frozenset[str] | None:
    """The indices some conditions depend on; None after reporting a problem."""
    found = [_condition(typing, condition, inside) for condition in where]
    known = [indices for indices in found if indices is not None]
    return frozenset().union(*known) if len(known) == len(found) else None


def _condition(typing: Typing, condition: ast.Condition, inside: frozenset[str]) -> frozenset[str] | None:
    match condition:
        case ast.Member(field=ref):
            return _member(typing, ref, inside)
        case ast.Compare(left=left, right=right):
            sides = [_side(typing, side, inside) for side in (left, right)]
            return None if None in sides else sides[0] | sides[1]  # type: ignore[operator]
        case ast.Different(left=left, right=right):
            return _different(typing, condition, left, right, inside)


def _member(typing: Typing, ref: ast.Ref, inside: frozenset[str]) -> frozenset[str] | None:
    problems, name = typing.problems, ref.name
    if name in typing.names.lets:
        typing.of(ref, inside)
        problems.add(
            "C261",
            ref.span,
            "`where` needs a stored onehot field or a comparison",
            f"{name} is a definition (`let`)",
            f"store it by an equation in an earlier step: {written(name, ref.indices)} = argmin[...] ...",
        )
        return None
    found = typing.of(ref, inside)
    if found is None:
        return None
    if found.kind == "onehot":
        return found.indices
    if found.kind == "simplex":
        problems.add(
            "C262",
            ref.span,
            f"`where` cannot use {name}: a token may be shared by several",
            f"{name} holds weights (simplex), not one choice (onehot)",
            f"weigh by it instead: mean[...] ... weighted {written(name, ref.indices)}; "
            "or use `ties first`, which chooses one",
        )
    else:
        problems.add(
            "C261",
            ref.span,
            "`where` needs a onehot field or a comparison",
            f"{written(name, ref.indices)} is {width_words(found.width)}",
            f"compare it, as in where {written(name, ref.indices)} > 0" if found.width is None else "",
        )
    return None


def _side(typing: Typing, side: ast.Expr, inside: frozenset[str]) -> frozenset[str] | None:
    found = typing.number(side, inside, "each side of a comparison", "compare |v|^2 or <a, b>")
    if found is None:
        return None
    if found.undefined is not None:
        typing.problems.add(
            "C263",
            found.undefined.span,
            "a comparison needs values that are always defined",
            "this may be undefined",
            "give it an `else`, in parentheses: (... else 0)",
        )
        return None
    return found.indices


def _different(
    typing: Typing, node: ast.Different, left: str, right: str, inside: frozenset[str]
) -> frozenset[str] | None:
    if not all([typing.index(i, node.span, inside) for i in (left, right)]):
        return None
    ours, theirs = typing.names.index[left], typing.names.index[right]
    if ours != theirs:
        typing.problems.add(
            "C264",
            node.span,
            "`!=` compares two indices of one token set",
            f"{left} runs over {ours}, {right} over {theirs}",
            "tokens of two sets are never the same",
        )
        return None
    if left == right:
        typing.problems.add(
            "C264",
            node.span,
            f"{left} != {right} is never true",
            "both sides are the same index",
            f"declare a second index over {ours}",
        )
        return None
    return frozenset((left, right))


# ---- reductions ------------------------------------------------------------------------------------------------------


def reduce(typing: Typing, expr: ast.Reduce, bound: frozenset[str]) -> Type | None:
    """A sum, mean, max, min or logsumexp over `index`."""
    if not typing.index(expr.index, expr.span):
        return None
    home = typing.names.index[expr.index]
    problems = typing.problems
    if expr.index in bound:
        problems.add(
            "C214",
            problems.spot(expr.span, expr.index),
            f"{expr.index} already stands for a token here",
            f"{expr.kind}[{expr.index}] would give it a second meaning",
            f"declare another index over the same set, as in tokens {expr.index}, {expr.index}2 in {home}",
        )
        return None
    inside = bound | {expr.index}
    body = _body(typing, expr, inside)
    indices = conditions(typing, expr.where, inside)
    weights = _weights(typing, expr, bound)
    if body is None or indices is None or weights is None:
        return None
    indices |= body.indices | weights.indices
    if expr.index not in indices:
        instead = f"count({home})" if expr.kind == "sum" else "the value itself"
        problems.add(
            "C232",
            expr.body.span,
            f"this does not depend on {expr.index}",
            f"so {expr.kind}[{expr.index}] is not needed",
            f"write {instead}" if expr.kind != "sum" else f"the number of {home} tokens is count({home})",
        )
        return None
    signed = expr.kind != "logsumexp"
    positive, nonnegative = body.positive and signed, body.nonnegative and signed
    undefined = body.undefined
    if expr.by is not None:
        undefined = weights.undefined or undefined
    elif expr.kind == "sum":
        positive = positive and not expr.where
    elif expr.where or weights.undefined is not None or not weights.positive:
        undefined = expr
    return Type(body.width, indices - {expr.index}, undefined, positive, nonnegative)


def _body(typing: Typing, expr: ast.Reduce, inside: frozenset[str]) -> Type | None:
    body = typing.of(expr.body, inside)
    if body is None:
        return None
    if isinstance(body.undefined, ast.Call):
        typing.unit_alone(body.undefined)
        return None
    if body.width is not None and expr.kind not in ("sum", "mean"):
        typing.problems.add(
            "C233",
            expr.body.span,
            f"{expr.kind} is over numbers",
            f"this is {width_words(body.width)}",
            "vectors have no order; take |v|^2 or <a, b>",
        )
        return None
    return body


def _weights(typing: Typing, expr: ast.Reduce, bound: frozenset[str]) -> Type | None:
    """What a reduction is weighted with; plain ones are weighted with 1."""
    problems, kind, i = typing.problems, expr.kind, expr.index
    if kind != "mean" and (expr.weighted is not None or expr.by is not None):
        word = "weighted" if expr.weighted is not None else "by"
        guilty = expr.weighted if expr.weighted is not None else expr.by
        assert guilty is not None
        typing.of(guilty, bound | {i})
        problems.add(
            "C234",
            guilty.span,
            f"`{word}` goes with mean, not with {kind}",
            "",
            (
                f"for a sum, multiply: sum[{i}] w[{i}] * v[{i}]"
                if word == "weighted"
                else f"for a sum, multiply: sum[{i}] W[{i}](...) * v[{i}]"
            )
            if kind == "sum"
            else "",
        )
        return None
    if expr.weighted is not None and expr.by is not None:
        problems.add(
            "C235",
            expr.by.span,
            "a mean is `weighted` or taken `by` a weighting, not both",
            "",
            f"for both, write mean[{i}] v[{i}] weighted w[{i}] * W[{i}](...) else ...",
        )
        return None
    if expr.by is not None:
        return _by(typing, expr, expr.by, bound)
    if expr.weighted is None:
        return Type(positive=True, nonnegative=True)
    found = typing.number(expr.weighted, bound | {i}, "a weight", "for vectors take |v|^2 or <a, b>")
    if found is None:
        return None
    if isinstance(found.undefined, ast.Call):
        typing.unit_alone(found.undefined)
        return None
    if not found.nonnegative:
        problems.add(
            "C236",
            expr.weighted.span,
            "weights must be known to be >= 0",
            "the sign of this is not known",
            "declare the field `: R >= 0`, or use exp(...), squares, a simplex or onehot field",
        )
        return None
    return found


def _by(typing: Typing, expr: ast.Reduce, by: ast.Weigh, bound: frozenset[str]) -> Type | None:
    problems = typing.problems
    if expr.where:
        span = expr.where[0].span.to(expr.where[-1].span)
        text = " ".join(problems.source.at(span).split())
        problems.add(
            "C237",
            span,
            "together with `by`, `where` belongs inside the weighting",
            f"should {by.kind} see the tokens that are left out, or not?",
            f"write by {by.kind}[{by.index}](... where {text if len(text) < 60 else '...'} ...)",
        )
        return None
    if by.index != expr.index:
        problems.add(
            "C238",
            by.span,
            f"`by` must weigh the tokens of {expr.index}",
            f"{by.kind}[{by.index}] weighs {by.index}",
            f"write by {by.kind}[{expr.index}](...)",
        )
        return None
    return weigh(typing, by, bound | {expr.index})
