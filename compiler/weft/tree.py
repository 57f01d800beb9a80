"""lark's parse tree -> the syntax tree: one small function per grammar rule, found by its name.

Leaves behind no trace of the grammar: parentheses are gone, `+=` is spelt out, numbers are values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from lark import Token, Tree

from weft import syntax as ast
from weft.errors import Diagnostic
from weft.source import Source, Span

Rule = Callable[["Builder", Span, list[Any]], Any]


def _span(item: Any) -> Span:
    if isinstance(item, Token):
        assert item.start_pos is not None
        assert item.end_pos is not None
        return Span(item.start_pos, item.end_pos)
    return Span(item.meta.start_pos, item.meta.end_pos)


@dataclass
class Builder:
    """Turns one parse tree into a `Spec`, collecting problems that only show up while building."""

    source: Source
    problems: list[Diagnostic]

    def spec(self, tree: Tree[Token]) -> ast.Spec:
        """The whole spec; sections that appear twice are joined in the order of the text."""
        name, *rest = tree.children
        docs = [str(t)[1:-1] for t in rest if isinstance(t, Token)]
        parts: dict[str, list[Any]] = {}
        for section in (t for t in rest if isinstance(t, Tree)):
            kids = section.children
            if section.data == "example":
                parts.setdefault("examples", []).append(self._example(section))
            elif section.data in ("objective", "repeat"):
                if section.data in parts:
                    self._twice(section)
                value = self.node(kids[0]) if section.data == "objective" else int(kids[0])
                parts[section.data] = [value]
            else:
                key = "steps" if section.data == "layer" else section.data
                if key == "steps" and key in parts:
                    self._twice(section)
                parts.setdefault(key, []).extend(self.node(kid) for kid in kids)
        single = {key: parts.pop(key)[0] for key in ("objective", "repeat") if key in parts}
        many = {key: tuple(values) for key, values in parts.items()}
        return ast.Spec(self.source, _span(name), str(name), " ".join(docs), **many, **single)

    def _twice(self, section: Tree[Token]) -> None:
        start = section.meta.start_pos
        self.problems.append(
            Diagnostic("P108", Span(start, start + len(section.data)), f"a second `{section.data}` section", "",
                       (f"a spec has one `{section.data}`; join the two",))
        )

    def node(self, tree: Any) -> Any:
        """The syntax node of a rule."""
        return RULES[tree.data](self, _span(tree), tree.children)

    def nodes(self, trees: list[Any]) -> tuple[Any, ...]:
        return tuple(self.node(t) for t in trees)

    def _example(self, tree: Tree[Token]) -> ast.Example:
        title, given, expected, layers = "", [], [], 0
        for kid in tree.children:
            if isinstance(kid, Token):
                if kid.type == "INT":
                    layers = int(kid)
                else:
                    title = str(kid)[1:-1]
            elif kid.data == "given":
                given.append(ast.Given(_span(kid), str(kid.children[0]), _values(kid.children[1])[0]))
            else:
                value, digits = _values(kid.children[1])
                tolerance = 10.0**-digits if kid.data == "about" else None
                expected.append(ast.Expected(_span(kid), str(kid.children[0]), value, tolerance))
        return ast.Example(_span(tree), title, tuple(given), layers, tuple(expected))


# ---- values of examples ----------------------------------------------------------------------------------------------


def _values(tree: Tree[Token]) -> tuple[ast.Value, int]:
    """The value, and the most decimals any number in it was written with. One bare number stands for itself."""
    items = [_value(kid) for kid in tree.children]
    digits = max(d for _, d in items)
    only = tree.children[0]
    bare = len(items) == 1 and isinstance(only, Tree) and (only.data != "rows" or _nested(only))
    return (items[0][0] if bare else tuple(v for v, _ in items)), digits


def _nested(tree: Tree[Token]) -> bool:
    """Whether `[...]` holds rows itself: `[[0], [1]]` is the whole value, `[0]` a single row of one."""
    inner = tree.children[0]
    return isinstance(inner, Tree) and any(isinstance(v, Tree) and v.data == "rows" for v in inner.children)


def _value(tree: Any) -> tuple[ast.Value, int]:
    if tree.data == "rows":
        if tree.children[0] is None:
            return (), 0
        items = [_value(kid) for kid in tree.children[0].children]
        return tuple(v for v, _ in items), max(d for _, d in items)
    sign = -1 if tree.children[0] == "-" else 1
    numbers = [t for t in tree.children if t != "-"]
    value = Fraction(str(numbers[0]))
    for divisor in numbers[1:]:
        value /= Fraction(str(divisor)) or Fraction(1)
    mantissa, _, exponent = str(numbers[0]).lower().partition("e")
    digits = len(mantissa.partition(".")[2]) - int(exponent or 0)
    return sign * value, digits


# ---- rules -----------------------------------------------------------------------------------------------------------


def _ref(_: Builder, span: Span, kids: list[Any]) -> ast.Ref:
    return ast.Ref(span, str(kids[0]), tuple(str(k) for k in kids[1:] if k is not None))


def _tokenset(b: Builder, span: Span, kids: list[Any]) -> ast.TokenSet:
    *indices, name, size = kids
    return ast.TokenSet(span, tuple(map(str, indices)), str(name), None if size is None else b.node(size))


def _input(b: Builder, span: Span, kids: list[Any]) -> ast.Field:
    ref, type_, bound, init = kids
    return ast.Field(span, b.node(ref), b.node(type_), bound and b.node(bound), init and b.node(init))


def _param(b: Builder, span: Span, kids: list[Any]) -> ast.Param:
    name, default, bound = kids
    return ast.Param(span, str(name), default and b.node(default), bound and b.node(bound))


def _update(op: str) -> Rule:
    def rule(b: Builder, span: Span, kids: list[Any]) -> ast.Equation:
        target, body = b.nodes(kids)
        if op:
            body = ast.Binary(span, op, target, body)  # type: ignore[arg-type]
        return ast.Equation(span, target, body)

    return rule


def _bound(b: Builder, span: Span, kids: list[Any]) -> ast.Bound:
    if kids[0] == "in":
        low, high = b.node(kids[2]), b.node(kids[4])
        return ast.Bound(span, (low, kids[1] == "("), (high, kids[5] == ")"))
    side = (b.node(kids[1]), len(kids[0]) == 1)
    return ast.Bound(span, side, None) if kids[0][0] == ">" else ast.Bound(span, None, side)


def _output(b: Builder, span: Span, kids: list[Any]) -> ast.Output:
    if len(kids) == 1:
        ref = ast.Ref(span, str(kids[0]), ())
        return ast.Output(span, ref, ref)
    target, body = b.nodes(kids)
    return ast.Output(span, target, body)


def _binary(op: str) -> Rule:
    def rule(b: Builder, span: Span, kids: list[Any]) -> ast.Binary:
        left, right = (b.node(k) for k in kids if not isinstance(k, Token))
        return ast.Binary(span, op, left, right)  # type: ignore[arg-type]

    return rule


def _pow(b: Builder, span: Span, kids: list[Any]) -> ast.Expr:
    base, exponent = b.node(kids[0]), int(kids[1])
    if isinstance(base, ast.Norm) and kids[0].data == "bars" and exponent == 2:
        return ast.Square(span, base.body)
    return ast.Power(span, base, exponent)


def _clauses(b: Builder, kids: list[Any]) -> tuple[list[ast.Expr], dict[str, Any]]:
    """Splits what stands in a call or behind a reduction into expressions and clauses."""
    exprs: list[ast.Expr] = []
    clauses: dict[str, Any] = {}
    for kid in kids:
        if kid.data not in ("weighted", "by", "where", "ties", "within", "noise"):
            exprs.append(b.node(kid))
            continue
        name = "ties" if kid.data == "within" else kid.data
        if name in clauses:
            b.problems.append(Diagnostic("P107", _span(kid), f"a second `{name}` clause", "",
                                         ("join conditions with `and`" if name == "where" else "keep one of the two",)))
        clauses[name] = b.node(kid)
    return exprs, clauses


def _reduction(b: Builder, span: Span, kids: list[Any]) -> ast.Reduce:
    exprs, clauses = _clauses(b, kids[2:])
    b.problems.extend(
        Diagnostic("P106", span, f"`{name}` does not belong to {kids[0]}", "",
                   (f"`{name}` is a clause of a weighting: put it inside its parentheses",))
        for name in ("ties", "noise") if name in clauses
    )
    return ast.Reduce(span, str(kids[0]), str(kids[1]), exprs[0], clauses.get("weighted"), clauses.get("by"),
                      clauses.get("where", ()))


def _weighting(b: Builder, span: Span, kids: list[Any]) -> ast.Weigh:
    exprs, clauses = _clauses(b, kids[2:])
    b.problems.extend(
        Diagnostic("P106", span, f"`{name}` does not belong to {kids[0]}", "",
                   (f"`{name}` is a clause of sum and mean",))
        for name in ("weighted", "by") if name in clauses
    )
    return ast.Weigh(span, str(kids[0]), str(kids[1]), exprs[0], tuple(exprs[1:]), clauses.get("where", ()),
                     clauses.get("noise"), clauses.get("ties"))


def _condition(b: Builder, span: Span, kids: list[Any]) -> ast.Condition:
    left = b.node(kids[0])
    if len(kids) == 1:
        if isinstance(left, ast.Ref):
            return ast.Member(span, left)
        b.problems.append(Diagnostic("P105", span, "this is not a condition", "",
                                     ("a condition is a one-hot pair field such as y[i,j], or a comparison",)))
        return ast.Compare(span, ">", left, left)
    right = b.node(kids[2])
    if kids[1] == "!=":
        if all(isinstance(x, ast.Ref) and not x.indices for x in (left, right)):
            return ast.Different(span, left.name, right.name)
        b.problems.append(Diagnostic("P104", _span(kids[1]), "`!=` compares two indices of one set, as in i != l", "",
                                     ("for values use < or >",)))
        return ast.Compare(span, ">", left, right)
    return ast.Compare(span, str(kids[1]), left, right)  # type: ignore[arg-type]


def _group(b: Builder, span: Span, kids: list[Any]) -> ast.Expr:
    inner: ast.Expr = b.node(kids[0])
    return replace(inner, span=span)


RULES: dict[str, Rule] = {
    "ref": _ref,
    "tokenset": _tokenset,
    "input": _input,
    "noisy": lambda b, s, k: ast.Field(s, b.node(k[0]), b.node(k[1])),
    "state": lambda b, s, k: ast.Field(s, b.node(k[0]), b.node(k[1]), start=b.node(k[2])),
    "param": _param,
    "let": lambda b, s, k: ast.Let(s, b.node(k[0]), b.node(k[1])),
    "same": _output,
    "named": _output,
    "step": lambda b, s, k: ast.Step(s, b.nodes(k)),
    "set_to": _update(""),
    "add_to": _update("+"),
    "take_from": _update("-"),
    "number_t": lambda b, s, k: ast.Type(s, "number"),
    "vector_t": lambda b, s, k: ast.Type(s, "vector", b.node(k[0])),
    "unit_t": lambda b, s, k: ast.Type(s, "unit", b.node(k[1])),
    "named_t": lambda b, s, k: ast.Type(s, str(k[0])),  # type: ignore[arg-type]
    "dim_name": lambda b, s, k: str(k[0]),
    "dim_int": lambda b, s, k: int(k[0]),
    "bound": _bound,
    "init": lambda b, s, k: ast.Init(s, str(k[0]), k[1] and str(k[1])),
    "const": lambda b, s, k: -b.node(k[1]).value if len(k) == 2 else b.node(k[0]).value,
    "number": lambda b, s, k: ast.Num(s, float(k[0])),
    "else_": lambda b, s, k: ast.Else(s, *b.nodes(k)),
    "add": _binary("+"),
    "sub": _binary("-"),
    "mul": _binary("*"),
    "div": _binary("/"),
    "neg": lambda b, s, k: ast.Neg(s, b.node(k[1])),
    "pow": _pow,
    "percent": lambda b, s, k: ast.Percent(s, b.node(k[0])),
    "group": _group,
    "reduction": _reduction,
    "weighting": _weighting,
    "call": _weighting,
    "weighted": lambda b, s, k: b.node(k[0]),
    "by": lambda b, s, k: b.node(k[0]),
    "where": lambda b, s, k: b.node(k[0]),
    "ties": lambda b, s, k: ast.Ties(s, str(k[0])),  # type: ignore[arg-type]
    "within": lambda b, s, k: ast.Ties(s, "within", b.node(k[0])),
    "noise": lambda b, s, k: b.node(k[0]),
    "conditions": lambda b, s, k: b.nodes(k),
    "condition": _condition,
    "apply": lambda b, s, k: ast.Call(s, str(k[0]), b.node(k[1])),
    "count": lambda b, s, k: ast.Count(s, str(k[0])),
    "position": lambda b, s, k: ast.Position(s, str(k[0])),
    "bars": lambda b, s, k: ast.Norm(s, b.node(k[0])),
    "inner": lambda b, s, k: ast.Inner(s, *b.nodes(k)),
}
