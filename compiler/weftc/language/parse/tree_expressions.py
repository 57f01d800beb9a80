"""Rules of the grammar for expressions, weightings, reductions and their clauses."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from weftc.core import syntax as ast
from weftc.core import vocabulary
from weftc.core.source import Span
from weftc.core.words import did_you_mean
from weftc.language.parse.lexer import Token
from weftc.language.parse.tree_parts import Clause, Rule

if TYPE_CHECKING:
    from weftc.language.parse.tree import Builder

LARGEST_POWER = 64
LARGEST_ENTRY_POWER = 16


def binary(op: str) -> Rule:
    def rule(_: Builder, span: Span, parts: list[Any]) -> ast.Binary:
        return ast.Binary(span, op, parts[0], parts[-1])  # type: ignore[arg-type]

    return rule


def pow(b: Builder, span: Span, parts: list[Any]) -> ast.Expr:
    base, exponent = parts[0], b.whole(parts[1], "an exponent", 0, LARGEST_POWER)
    if isinstance(base, ast.Norm) and exponent == 2:
        return ast.Square(span, base.body)
    return ast.Power(span, base, exponent)


def entry_pow(b: Builder, span: Span, parts: list[Any]) -> ast.Expr:
    """`a .^ 3` is `a .* a .* a`."""
    base: ast.Expr = parts[0]
    out = base
    for _ in range(b.whole(parts[1], "this exponent", 1, LARGEST_ENTRY_POWER) - 1):
        out = ast.Binary(span, ".*", out, base)
    return out


def pow_layer(_: Builder, span: Span, parts: list[Any]) -> ast.Expr:
    """`a ^ layer` is exp(layer * log(a))."""
    layer = ast.Ref(span, "layer", ())
    return ast.Call(span, "exp", ast.Binary(span, "*", layer, ast.Call(span, "log", parts[0])))


def of_two(_: Builder, span: Span, parts: list[Any]) -> ast.Expr:
    """`max(a, b)` is a + relu(b - a), `min(a, b)` is a - relu(a - b); of two numbers, and of each coordinate."""
    word, left, right = parts
    if isinstance(right, ast.Num):  # its sign is known
        left, right = right, left
    if word.text == "min":
        return ast.Binary(span, "-", left, ast.Call(span, "relu", ast.Binary(span, "-", left, right)))
    if left == ast.Num(left.span, 0):
        return ast.Call(span, "relu", right)
    return ast.Binary(span, "+", left, ast.Call(span, "relu", ast.Binary(span, "-", right, left)))


def read(b: Builder, span: Span, parts: list[Any]) -> ast.Ref | ast.ReadAt:
    """A field at tokens that indices name, or at positions."""
    name, *places = parts
    places = [place for place in places if place is not None]
    if all(isinstance(place, ast.Ref) and not place.indices for place in places):
        return ast.Ref(span, name.text, tuple(place.name for place in places))
    for place in places:
        if isinstance(place, ast.Num) and (place.value < 1 or not place.value.is_integer()):
            label = f"there is no token {place.value:g}"
            how = f"{name.text}[first] is the value of the first token, {name.text}[1] too"
            b.problems.add("P141", place.span, "positions are whole numbers, counted from 1", label, how)
    return ast.ReadAt(span, name.text, tuple(places))


def matrix(b: Builder, span: Span, parts: list[Any]) -> ast.Rows:
    """`[[1, a], [0, 1]]`."""
    parts = parts[1:]
    if len({len(row) for row in parts}) > 1:
        b.problems.add("P150", span, "the rows of a matrix have the same length", "these do not")
    return ast.Rows(span, tuple(parts))


def bars(_: Builder, span: Span, parts: list[Any]) -> ast.Norm:
    """`|v|`; `||v||`, as papers write it, is the absolute value of a length and so the same."""
    body = parts[0]
    return ast.Norm(span, body.body if isinstance(body, ast.Norm) else body)


def clause(name: str) -> Rule:
    return lambda b, span, parts: Clause(name, span, parts[0])


def ties(b: Builder, span: Span, parts: list[Any]) -> Clause:
    word = parts[0].text
    if word not in vocabulary.TIE_RULES:
        label, known = did_you_mean(word, vocabulary.TIE_RULES), "rules: first, split, average, within EPS"
        b.problems.add("P118", parts[0].span, f"'{word}' is not a rule for ties", label, known)
    return Clause("ties", span, ast.Ties(span, word))


def within(_: Builder, span: Span, parts: list[Any]) -> Clause:
    return Clause("ties", span, ast.Ties(span, "within", parts[0]))


def _split(b: Builder, word: Token, parts: list[Any], takes: tuple[str, ...]) -> tuple[list[ast.Expr], dict[str, Any]]:
    """Parts of a reduction or weighting as expressions and clauses."""
    clauses: dict[str, Any] = {}
    for clause in (part for part in parts if isinstance(part, Clause)):
        if clause.name not in takes:
            other = "a mean" if clause.name in ("weighted", "by") else "a weighting: put it inside its parentheses"
            message, how = f"`{clause.name}` does not belong to {word.text}", f"`{clause.name}` is a clause of {other}"
            b.problems.add("P106", clause.span, message, "", how)
        elif clause.name in clauses:
            how = "join conditions with `and`" if clause.name == "where" else "keep one of the two"
            b.problems.add("P107", clause.span, f"a second `{clause.name}`", "", how)
        clauses[clause.name] = clause.value
    return [part for part in parts if not isinstance(part, Clause)], clauses


def _where(b: Builder, index: Token, clauses: dict[str, Any]) -> tuple[ast.Condition, ...]:
    """The conditions of `where`, then that of `among`: the token has a weight in a ranking of those that meet them."""
    where: tuple[ast.Condition, ...] = clauses.get("where", ())
    ranking = clauses.get("among")
    if ranking is None:
        return where
    if ranking.kind not in ("lowest", "highest") or ranking.index != index.text:
        how = f"as in among highest[{index.text}](S, 3), or among lowest[{index.text}](S, 50%)"
        b.problems.add("P144", ranking.span, "`among` takes the best of the same tokens, by lowest or highest", "", how)
    span, zero = ranking.span, ast.Num(ranking.span, 0.0)
    ranked: ast.Expr = replace(ranking, where=(*where, *ranking.where))
    ranked = ast.Else(span, ranked, zero) if where or ranking.where else ranked
    return (*where, ast.Compare(span, ">", ranked, zero))


def reduction(b: Builder, span: Span, parts: list[Any]) -> ast.Expr:
    """A reduction; a mean by two weights is the quotient of two sums."""
    word, index, *rest = parts
    (body,), clauses = _split(b, word, rest, ("weighted", "by", "where", "among"))
    weighted, by, where = clauses.get("weighted"), clauses.get("by"), _where(b, index, clauses)
    if (
        weighted is not None
        and by is not None
        and word.text == "mean"
        and not where
        and (by.kind in ("lowest", "highest") and _names_others(weighted, index.text))
    ):
        kept = _where(b, index, {"where": by.where, "among": replace(by, where=())})
        return ast.Reduce(span, word.text, index.text, body, weighted, None, kept)
    if weighted is not None and by is not None and word.text == "mean" and not where:
        both = ast.Binary(span, "*", by, weighted)
        mass = ast.Reduce(span, "sum", index.text, both)
        return ast.Binary(span, "/", ast.Reduce(span, "sum", index.text, ast.Binary(span, "*", both, body)), mass)
    return ast.Reduce(span, word.text, index.text, body, weighted, by, where)


def _names_others(weights: ast.Expr, index: str) -> bool:
    """Whether weights are of pairs."""
    return any(name != index for part in ast.walk(weights) if isinstance(part, ast.Ref) for name in part.indices)


def weighting(b: Builder, span: Span, parts: list[Any]) -> ast.Weigh:
    word, index, *rest = parts
    (score, *arguments), clauses = _split(b, word, rest, ("where", "among", "noise", "ties"))
    where, noise, ties_rule = _where(b, index, clauses), clauses.get("noise"), clauses.get("ties")
    return ast.Weigh(span, word.text, index.text, score, tuple(arguments), where, noise, ties_rule)


def last_comparison(parts: list[Any]) -> ast.Compare | None:
    """The comparison that a reduction ends with."""
    last = parts[-1]
    ends = last.value[-1] if isinstance(last, Clause) and last.name == "where" else None
    return ends if isinstance(ends, ast.Compare) else None


def unclosed(b: Builder, node: ast.Weigh | ast.Compare, sign: str) -> None:
    """A weighting without parentheses, and a condition, end before `+` and `-`; hardly anybody goes on there and means
    them to."""
    if isinstance(node, ast.Compare):
        right = b.problems.source.said(node.right.span)
        how = f"for a {'sum' if sign == '+' else 'difference'} in the condition write {node.op} ({right} {sign} ...)"
        how += f"; otherwise put what ends with the condition in parentheses: (... {node.op} {right}) {sign} ..."
        message = f"does this condition end before the `{sign}`?"
        b.problems.add("P143", node.span, message, "without parentheses it does", how)
        return
    name = f"{node.kind}[{node.index}]"
    b.problems.add(
        "P143",
        node.span,
        f"does the score of this {node.kind} end before the `{sign}`?",
        "without parentheses it does",
        f"for a score that goes on write {name}(...) around all of it; otherwise ({name} ...) {sign} ...",
    )


def condition(b: Builder, span: Span, parts: list[Any]) -> ast.Condition:
    left = parts[0]
    if len(parts) == 1:
        if isinstance(left, ast.Ref):
            return ast.Member(span, left)
        how = "a condition is a onehot field such as y[i,j], a comparison (a < b), or i != l"
        b.problems.add("P105", span, "this is not a condition", "", how)
        return ast.Compare(span, ">", left, left)
    _, mark, right = parts
    bare = isinstance(left, ast.Ref) and isinstance(right, ast.Ref) and not left.indices and not right.indices
    if mark.text == "!=" and bare:
        return ast.Different(span, left.name, right.name)
    return ast.Compare(span, mark.text, left, right)
