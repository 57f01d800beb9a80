"""A syntax tree -> its text, which parses to the same tree. Parentheses stand wherever they could matter."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from weftc.core.syntax import (
    Binary,
    Call,
    Compare,
    Condition,
    Count,
    Different,
    Else,
    Equation,
    Expr,
    Field,
    Inner,
    Let,
    Member,
    Neg,
    Norm,
    Num,
    Output,
    Param,
    ParamBound,
    Percent,
    Position,
    Power,
    Reduce,
    Ref,
    Spec,
    Square,
    Symbol,
    TokenSet,
    TypeClause,
    Weigh,
)

# how tightly an expression binds; an operand must bind more tightly than its operator
NOTHING, ELSE, SUM, PRODUCT, ATOM = range(-1, 4)


def written(spec: Spec) -> str:
    """The text of a spec, without its examples."""
    doc = f' "{spec.doc}"' if spec.doc else ""
    lines = [f"algorithm {spec.name}{doc}"]
    lines += [f"tokens  {_tokens(one)}" for one in spec.tokens]
    lines += [f"inputs  {_field(one)}" for one in spec.inputs]
    lines += [f"random  {_field(one)}" for one in spec.random]
    lines += [f"state   {_field(one)}" for one in spec.state]
    lines += [f"{'learn' if one.learned else 'param'}   {_param(one)}" for one in spec.params]
    lines += [f"let     {_equation(one)}" for one in spec.lets]
    if spec.repeat is not None:
        lines.append(f"repeat  {spec.repeat}")
    lines.append("layer")
    for number, step in enumerate(spec.steps):
        lines += ["  then"] if number else []
        lines += [f"  {_equation(one)}" for one in step.equations]
    lines += [f"outputs {_output(one)}" for one in spec.outputs]
    if spec.objective is not None:
        lines.append(f"objective {expression(spec.objective)}")
    return "\n".join(lines) + "\n"


# ---- declarations ----------------------------------------------------------------------------------------------------


def _tokens(one: TokenSet) -> str:
    return f"{', '.join(one.indices)} in {one.name}" + ("" if one.size is None else f" : {one.size}")


def _field(one: Field) -> str:
    text = f"{_ref(one.target)} : {_type(one.type)}"
    text += written_bound(one.bound)
    if one.init is not None:
        text += f" init {one.init.kind}" + (f"({one.init.of})" if one.init.of else "")
    return text + (f" = {expression(one.start)}" if one.start is not None else "")


def _type(one: TypeClause) -> str:
    match one.kind:
        case "number":
            return "R"
        case "vector":
            return f"R^{one.width}"
        case "unit":
            return f"unit R^{one.width}"
        case "symbol":
            return f"one of {{{', '.join(map(_quoted, one.symbols))}}}"
    return one.kind


def _quoted(symbol: str) -> str:
    return f'"{symbol}"'


def written_bound(bound: ParamBound | None) -> str:
    """A range behind what it is of."""
    if bound is None:
        return ""
    low, high = bound.low, bound.high
    if low is not None and high is not None:
        return (
            f" in {'(' if low[1] else '['}{written_number(low[0])}, {written_number(high[0])}{')' if high[1] else ']'}"
        )
    if low is not None:
        return f" {'>' if low[1] else '>='} {written_number(low[0])}"
    assert high is not None
    return f" {'<' if high[1] else '<='} {written_number(high[0])}"


def _param(one: Param) -> str:
    often = " per layer" if one.learned == "per layer" else ""
    return (
        one.name
        + (f" = {expression(one.default)}" if one.default is not None else "")
        + written_bound(one.bound)
        + often
    )


def _equation(one: Equation | Let) -> str:
    return f"{_ref(one.target)} = {expression(one.body)}"


def _output(one: Output) -> str:
    plain = isinstance(one.body, Ref) and not one.body.indices and not one.target.indices
    if plain and isinstance(one.body, Ref) and one.body.name == one.target.name:
        return one.target.name
    return f"{_ref(one.target)} = {expression(one.body)}"


def _ref(one: Ref) -> str:
    return one.name + (f"[{','.join(one.indices)}]" if one.indices else "")


def written_number(value: float) -> str:
    """A number that is read as this value."""
    return repr(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


# ---- expressions -----------------------------------------------------------------------------------------------------


def expression(node: Expr, within: int = NOTHING) -> str:
    """The text of an expression, in parentheses unless it binds more tightly than its surroundings."""
    text, binds = _expression(node)
    return text if binds > within else f"({text})"


def _arithmetic(node: Expr) -> str:
    """An argument: a sum of products, in which reductions need parentheses."""
    return expression(node, SUM if isinstance(node, Reduce) else ELSE)


def _expression(node: Expr) -> tuple[str, int]:
    """The text, and how tightly it binds: an operand of an operator must bind more tightly than that."""
    match node:
        case Num():
            return written_number(node.value), ATOM + 1
        case Symbol(text=text):
            return _quoted(text), ATOM + 1
        case Ref():
            return _ref(node), ATOM + 1
        case Count(set=name):
            return f"count({name})", ATOM + 1
        case Position(index=index, onehot=onehot):
            return f"{'onehot' if onehot else 'index'}({index})", ATOM + 1
        case Call(function=function, body=body):
            return f"{function}({expression(body)})", ATOM + 1
        case Inner(left=left, right=right):
            return f"<{_arithmetic(left)}, {_arithmetic(right)}>", ATOM + 1
        case Norm(body=body):
            return f"|{_arithmetic(body)}|", ATOM + 1
        case Square(body=body):
            return f"|{_arithmetic(body)}|^2", ATOM
        case Power(base=base, exponent=exponent):
            return f"{expression(base, ATOM)}^{exponent}", ATOM
        case Percent(body=body):
            return f"{expression(body, ATOM)}%", ATOM
        case Weigh():
            return _weighting(node), ATOM + 1
        case Binary(op=("*" | "/" | ".*" | "./") as op, left=left, right=right):
            return f"{expression(left, SUM)} {op} {expression(right, PRODUCT)}", PRODUCT
        case Binary(op=op, left=left, right=right):
            return f"{_arithmetic(left)} {op} {expression(right, SUM)}", SUM
        case Neg(body=body):
            return f"-{expression(body, PRODUCT)}", SUM
        case Reduce():
            return _reduction(node), SUM
        case Else(body=body, fallback=fallback):
            return f"{expression(body, ELSE)} else {expression(fallback, SUM)}", ELSE


def _weighting(node: Weigh) -> str:
    inside = _arithmetic(node.score)
    inside += _where(node.where)
    inside += f" noise {_ref(node.noise)}" if node.noise is not None else ""
    if node.ties is not None:
        within = f" {expression(node.ties.epsilon, PRODUCT)}" if node.ties.epsilon is not None else ""
        inside += f" ties {node.ties.rule}{within}"
    arguments = "".join(f", {_arithmetic(argument)}" for argument in node.arguments)
    return f"{node.kind}[{node.index}]({inside}{arguments})"


def _reduction(node: Reduce) -> str:
    text = f"{node.kind}[{node.index}] {expression(node.body, PRODUCT)}"
    text += f" weighted {expression(node.weighted, PRODUCT)}" if node.weighted is not None else ""
    text += f" by {_weighting(node.by)}" if node.by is not None else ""
    return text + _where(node.where)


def _where(conditions: Iterable[Condition]) -> str:
    told = []
    for condition in conditions:
        match condition:
            case Member(field=field):
                told.append(_ref(field))
            case Different(left=left, right=right):
                told.append(f"{left} != {right}")
            case Compare(op=op, left=left, right=right):
                told.append(f"{expression(left, PRODUCT)} {op} {expression(right, PRODUCT)}")
    return f" where {' and '.join(told)}" if told else ""


def same(one: Any, other: Any) -> bool:
    """Whether two trees are the same but for where they were read, and how inputs are given."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    if type(one) is not type(other):
        return False
    if not hasattr(one, "span"):
        return bool(one == other)
    names = [f.name for f in fields(one) if f.name not in ("span", "source", "examples", "pairs")]
    return all(same(getattr(one, name), getattr(other, name)) for name in names)
