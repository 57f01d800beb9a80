"""The rules of the grammar -> the syntax tree: one small function per rule, found by its name.

The parser calls `Builder.build` for each rule it recognises, with the parts already built. Nothing of the grammar is left
behind: parentheses are gone, `+=` is spelt out, numbers are values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from weft import syntax as ast
from weft.example_values import fraction, rows, values, whole
from weft.problems import Problems
from weft.source import Span
from weft.tokens import Token
from weft.words import did_you_mean, listed

DEEPEST = 100  # levels of an expression; the passes after this one are recursive
LARGEST_POWER = 64
LARGEST_WHOLE = 1_000_000  # dimensions, layers: more is a slip of the finger
KINDS = ("onehot", "simplex", "real", *ast.NOISES)
EXPRESSIONS = ast.Expr.__args__  # type: ignore[attr-defined]
NODES = (*EXPRESSIONS, ast.Member, ast.Compare, ast.Different)

Rule = Callable[["Builder", Span, list[Any]], Any]


class Clause(NamedTuple):
    """What stands behind a reduction or in a weighting: `where ...`, `weighted ...`."""

    name: str
    span: Span
    value: Any


class Section(NamedTuple):
    """A section with what it declares."""

    name: str
    span: Span
    parts: list[Any]


@dataclass(slots=True)
class Builder:
    """Builds one `Spec`, noting problems that only show up while building."""

    problems: Problems
    _depth: dict[int, int] = field(default_factory=dict)  # id of a live expression -> levels below and including it

    def build(self, rule: str, span: Span, parts: list[Any]) -> Any:
        """What a rule stands for."""
        built = RULES[rule](self, span, parts)
        if isinstance(built, NODES):
            self._measure(rule, built, parts)
        return built

    def _measure(self, rule: str, built: Any, parts: list[Any]) -> None:
        below = max((self._below(part) for part in parts), default=0)
        depth = below if rule == "group" else below + 1
        if depth > DEEPEST >= below:
            self.problems.add("P115", Span(built.span.start, built.span.start + 1), "this expression is nested too deeply",
                              "", f"at most {DEEPEST} levels, where each term of a long sum is one; give parts of it names (`let`)")
        self._depth[id(built)] = depth

    def _below(self, part: Any) -> int:
        if isinstance(part, Clause):
            return self._below(part.value)
        if isinstance(part, tuple) and not isinstance(part, Token):
            return max((self._below(item) for item in part), default=0)
        if isinstance(part, ast.Ties):
            return self._below(part.epsilon)
        return self._depth[id(part)] if isinstance(part, NODES) else 0

    def whole(self, token: Token, what: str, least: int = 1, most: int = LARGEST_WHOLE) -> int:
        """The value of a whole number, which must lie in a sensible range."""
        value = int(token.text) if len(token.text) < 20 else most + 1
        if not least <= value <= most:
            self.problems.add("P116", token.span, f"{what} must be between {least} and {most}", f"this is {token.text[:20]}")
            return least
        return value


# ---- sections --------------------------------------------------------------------------------------------------------


def _spec(b: Builder, span: Span, parts: list[Any]) -> ast.Spec:
    """The whole spec; sections that appear twice are joined in the order of the text."""
    name, *rest = parts
    docs = [part.text[1:-1] for part in rest if isinstance(part, Token)]
    single: dict[str, Any] = {}
    many: dict[str, list[Any]] = {}
    for section in (part for part in rest if isinstance(part, Section)):
        if section.name in ("objective", "repeat", "steps"):
            if section.name in single:
                word = {"steps": "layer"}.get(section.name, section.name)
                b.problems.add("P108", Span(section.span.start, section.span.start + len(word)), f"a second `{word}`",
                               f"a spec has one `{word}`", "join the two, with `then` between steps" if word == "layer" else "keep one")
            single[section.name] = tuple(section.parts) if section.name == "steps" else section.parts[0]
        else:
            many.setdefault(section.name, []).extend(section.parts)
    tables = {key: tuple(found) for key, found in many.items()}
    return ast.Spec(b.problems.source, name.span, name.text, " ".join(docs), **tables, **single)


def _section(name: str) -> Rule:
    return lambda b, span, parts: Section(name, span, parts)


def _repeat(b: Builder, span: Span, parts: list[Any]) -> Section:
    return Section("repeat", span, [b.whole(parts[0], "`repeat`")])


def _example(b: Builder, span: Span, parts: list[Any]) -> Section:
    title, layers = "", 0
    for part in parts:
        if isinstance(part, Token) and part.type == "STRING":
            title = part.text[1:-1]
        elif isinstance(part, Token):
            layers = b.whole(part, "`layers`")
    given = tuple(part for part in parts if isinstance(part, ast.Given))
    expected = tuple(part for part in parts if isinstance(part, ast.Expected))
    return Section("examples", span, [ast.Example(span, title, given, layers, expected)])


def _given(b: Builder, span: Span, parts: list[Any]) -> ast.Given:
    value, _, end = whole(parts[1])
    return ast.Given(Span(span.start, end), parts[0].text, value)


def _expected(b: Builder, span: Span, parts: list[Any]) -> ast.Expected:
    value, _, end = whole(parts[1])
    return ast.Expected(Span(span.start, end), parts[0].text, value, None)


def _about(b: Builder, span: Span, parts: list[Any]) -> ast.Expected:
    value, digits, end = whole(parts[1])
    return ast.Expected(Span(span.start, end), parts[0].text, value, 10.0**-digits)


# ---- declarations ----------------------------------------------------------------------------------------------------


def _ref(_: Builder, span: Span, parts: list[Any]) -> ast.Ref:
    name, *indices = parts
    return ast.Ref(span, name.text, tuple(index.text for index in indices if index is not None))


def _tokenset(_: Builder, span: Span, parts: list[Any]) -> ast.TokenSet:
    *indices, name, size = parts
    return ast.TokenSet(span, tuple(index.text for index in indices), name.text, size)


def _input(_: Builder, span: Span, parts: list[Any]) -> ast.Field:
    target, type_, bound, init = parts
    return ast.Field(span, target, type_, bound, init)


def _unit_type(b: Builder, span: Span, parts: list[Any]) -> ast.Type:
    word, width = parts
    if word.text != "unit":
        b.problems.add("P117", word.span, f"'{word.text}' is not a kind of vector", "did you mean 'unit'?",
                       "write R^d, or unit R^d for vectors of length one")
    return ast.Type(span, "unit", width)


def _named_type(b: Builder, span: Span, parts: list[Any]) -> ast.Type:
    word = parts[0].text
    if word not in KINDS:
        guess = "R" if word == "r" else "real" if word in ("float", "scalar", "number") else ""
        b.problems.add("P117", span, f"'{word}' is not a type", f"did you mean '{guess}'?" if guess else did_you_mean(word, KINDS),
                       "types: R for a number, R^d for a vector, unit R^d for one of length one",
                       f"of pair fields: onehot, simplex, real; of random fields: {listed(ast.NOISES)}")
    return ast.Type(span, word)


def _bound(_: Builder, span: Span, parts: list[Any]) -> ast.Bound:
    if parts[0].text == "in":
        _, opening, low, _, high, closing = parts
        return ast.Bound(span, (low, opening.text == "("), (high, closing.text == ")"))
    side = (parts[1], len(parts[0].text) == 1)
    return ast.Bound(span, side, None) if parts[0].text[0] == ">" else ast.Bound(span, None, side)


def _const(_: Builder, span: Span, parts: list[Any]) -> float:
    value: float = parts[-1].value
    return -value if len(parts) == 2 else value


def _update(op: str) -> Rule:
    def rule(b: Builder, span: Span, parts: list[Any]) -> ast.Equation:
        target, body = parts
        if op:
            body = ast.Binary(span, op, target, body)  # type: ignore[arg-type]
        return ast.Equation(span, target, body)

    return rule


def _same(_: Builder, span: Span, parts: list[Any]) -> ast.Output:
    ref = ast.Ref(span, parts[0].text, ())
    return ast.Output(span, ref, ref)


# ---- expressions -----------------------------------------------------------------------------------------------------


def _binary(op: str) -> Rule:
    def rule(_: Builder, span: Span, parts: list[Any]) -> ast.Binary:
        return ast.Binary(span, op, parts[0], parts[-1])  # type: ignore[arg-type]

    return rule


def _pow(b: Builder, span: Span, parts: list[Any]) -> ast.Expr:
    base, exponent = parts[0], b.whole(parts[1], "an exponent", 0, LARGEST_POWER)
    return ast.Square(span, base.body) if isinstance(base, ast.Norm) and exponent == 2 else ast.Power(span, base, exponent)


def _clause(name: str) -> Rule:
    return lambda b, span, parts: Clause(name, span, parts[0])


def _ties(b: Builder, span: Span, parts: list[Any]) -> Clause:
    word = parts[0].text
    if word not in ast.TIE_RULES:
        b.problems.add("P118", parts[0].span, f"'{word}' is not a rule for ties", did_you_mean(word, ast.TIE_RULES),
                       "rules: first, split, average, within EPS")
    return Clause("ties", span, ast.Ties(span, word))


def _within(_: Builder, span: Span, parts: list[Any]) -> Clause:
    return Clause("ties", span, ast.Ties(span, "within", parts[0]))


def _split(b: Builder, word: Token, parts: list[Any], takes: tuple[str, ...]) -> tuple[list[ast.Expr], dict[str, Any]]:
    """Parts of a reduction or weighting as expressions and clauses."""
    clauses: dict[str, Any] = {}
    for clause in (part for part in parts if isinstance(part, Clause)):
        if clause.name not in takes:
            other = "sum and mean" if clause.name in ("weighted", "by") else "a weighting: put it inside its parentheses"
            b.problems.add("P106", clause.span, f"`{clause.name}` does not belong to {word.text}", "",
                           f"`{clause.name}` is a clause of {other}")
        elif clause.name in clauses:
            b.problems.add("P107", clause.span, f"a second `{clause.name}`", "",
                           "join conditions with `and`" if clause.name == "where" else "keep one of the two")
        clauses[clause.name] = clause.value
    return [part for part in parts if not isinstance(part, Clause)], clauses


def _reduction(b: Builder, span: Span, parts: list[Any]) -> ast.Reduce:
    word, index, *rest = parts
    (body,), clauses = _split(b, word, rest, ("weighted", "by", "where"))
    return ast.Reduce(span, word.text, index.text, body, clauses.get("weighted"), clauses.get("by"), clauses.get("where", ()))


def _weighting(b: Builder, span: Span, parts: list[Any]) -> ast.Weigh:
    word, index, *rest = parts
    (score, *arguments), clauses = _split(b, word, rest, ("where", "noise", "ties"))
    return ast.Weigh(span, word.text, index.text, score, tuple(arguments), clauses.get("where", ()), clauses.get("noise"),
                     clauses.get("ties"))


def _condition(b: Builder, span: Span, parts: list[Any]) -> ast.Condition:
    left = parts[0]
    if len(parts) == 1:
        if isinstance(left, ast.Ref):
            return ast.Member(span, left)
        b.problems.add("P105", span, "this is not a condition", "",
                       "a condition is a onehot field such as y[i,j], a comparison (a < b), or i != l")
        return ast.Compare(span, ">", left, left)
    _, mark, right = parts
    if mark.text == "!=":
        if isinstance(left, ast.Ref) and isinstance(right, ast.Ref) and not left.indices and not right.indices:
            return ast.Different(span, left.name, right.name)
        b.problems.add("P104", mark.span, "`!=` compares two indices of one set", "these are values",
                       "as in where i != l; for values use < or >")
        return ast.Compare(span, ">", left, right)
    return ast.Compare(span, mark.text, left, right)


RULES: dict[str, Rule] = {
    "start": _spec,
    "tokens": _section("tokens"),
    "inputs": _section("inputs"),
    "random": lambda b, s, p: Section("random", s, p[1:]),
    "params": _section("params"),
    "lets": _section("lets"),
    "layer": _section("steps"),
    "repeat": _repeat,
    "outputs": _section("outputs"),
    "objective": _section("objective"),
    "example": _example,
    "given": _given,
    "equals": _expected,
    "about": _about,
    "values": values,
    "scalar": fraction,
    "fraction": fraction,
    "rows": rows,
    "ref": _ref,
    "tokenset": _tokenset,
    "input": _input,
    "noisy": lambda b, s, p: ast.Field(s, *p),
    "states": _section("state"),
    "state": lambda b, s, p: ast.Field(s, p[0], p[1], start=p[2]),
    "param": lambda b, s, p: ast.Param(s, p[0].text, p[1], p[2]),
    "let": lambda b, s, p: ast.Let(s, *p),
    "same": _same,
    "named": lambda b, s, p: ast.Output(s, *p),
    "step": lambda b, s, p: ast.Step(s, tuple(p)),
    "set_to": _update(""),
    "add_to": _update("+"),
    "take_from": _update("-"),
    "number_t": lambda b, s, p: ast.Type(s, "number"),
    "vector_t": lambda b, s, p: ast.Type(s, "vector", p[0]),
    "unit_t": _unit_type,
    "named_t": _named_type,
    "dim_name": lambda b, s, p: p[0].text,
    "dim_int": lambda b, s, p: b.whole(p[0], "a size"),
    "bound": _bound,
    "init": lambda b, s, p: ast.Init(s, p[0].text, p[1] and p[1].text),
    "const": _const,
    "number": lambda b, s, p: ast.Num(s, float(p[0].text)),
    "else_": lambda b, s, p: ast.Else(s, *p),
    "add": _binary("+"),
    "sub": _binary("-"),
    "mul": _binary("*"),
    "div": _binary("/"),
    "neg": lambda b, s, p: ast.Neg(s, p[1]),
    "pow": _pow,
    "percent": lambda b, s, p: ast.Percent(s, p[0]),
    "group": lambda b, s, p: replace(p[0], span=s),
    "reduction": _reduction,
    "weighting": _weighting,
    "call": _weighting,
    "weighted": _clause("weighted"),
    "by": _clause("by"),
    "where": _clause("where"),
    "noise": _clause("noise"),
    "ties": _ties,
    "within": _within,
    "conditions": lambda b, s, p: tuple(p),
    "condition": _condition,
    "apply": lambda b, s, p: ast.Call(s, p[0].text, p[1]),
    "count": lambda b, s, p: ast.Count(s, p[0].text),
    "position": lambda b, s, p: ast.Position(s, p[0].text),
    "bars": lambda b, s, p: ast.Norm(s, p[0]),
    "inner": lambda b, s, p: ast.Inner(s, *p),
}
