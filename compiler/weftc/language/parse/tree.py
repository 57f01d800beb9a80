"""The rules of the grammar -> the syntax tree: one small function per rule, found by its name.

The parser calls `Builder.build` for each rule it recognises, with the parts already built. Nothing of the grammar is
left behind: parentheses are gone, `+=` is spelt out, numbers are values.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, get_args

from weftc.core import syntax as ast
from weftc.core.source import Span
from weftc.language.check.example_values import fraction, rows, symbol, values
from weftc.language.check.problems import Problems
from weftc.language.parse import tree_declarations as declarations
from weftc.language.parse import tree_expressions as expressions
from weftc.language.parse.lexer import Token
from weftc.language.parse.tree_parts import Clause, Rule, Section

DEEPEST = 100  # levels of an expression; the passes after this one are recursive
LARGEST_WHOLE = 1_000_000  # dimensions, layers: more is a slip of the finger
OPERATIONS = ("add", "sub", "mul", "div", "entry_mul", "entry_div", "neg")
NODES = (*get_args(ast.Expr), *get_args(ast.Condition), ast.Transpose, ast.Rows, ast.MatrixCall)


@dataclass(slots=True)
class Builder:
    """Builds one `Spec`, noting problems that only show up while building."""

    problems: Problems
    _depth: dict[int, int] = field(default_factory=dict)  # id of a live expression -> levels below and including it
    # id of an expression -> itself (so that no other gets the id), and the weighting without ( ), or the comparison, at
    # its right end
    _unclosed: dict[int, tuple[Any, ast.Weigh | ast.Compare]] = field(default_factory=dict)

    def build(self, rule: str, span: Span, parts: list[Any]) -> Any:
        """What a rule stands for."""
        if rule in ("add", "sub") and id(parts[0]) in self._unclosed:
            expressions.unclosed(self, self._unclosed[id(parts[0])][1], "+" if rule == "add" else "-")
        built = RULES[rule](self, span, parts)
        if isinstance(built, NODES):
            self._measure(rule, built, parts)
            if rule == "weighting":
                self._unclosed[id(built)] = built, built
            elif rule == "reduction" and (compared := expressions.last_comparison(parts)) is not None:
                self._unclosed[id(built)] = built, compared
            elif rule in OPERATIONS and id(parts[-1]) in self._unclosed:
                self._unclosed[id(built)] = built, self._unclosed[id(parts[-1])][1]
        return built

    def _measure(self, rule: str, built: Any, parts: list[Any]) -> None:
        below = max((self._below(part) for part in parts), default=0)
        depth = below if rule == "group" else 1 if isinstance(built, ast.Ref) else below + 1
        if depth > DEEPEST:
            spot = Span(built.span.start, built.span.start + 1)
            how = f"at most {DEEPEST} levels, where each term of a long sum is one; give parts of it names (`let`)"
            self.problems.add("P115", spot, "this expression is nested too deeply", "", how)
            self.problems.stop()
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
            message, label = f"{what} must be between {least} and {most}", f"this is {token.text[:20]}"
            self.problems.add("P116", token.span, message, label)
            return least
        return value


RULES: dict[str, Rule] = {
    "start": declarations.spec,
    "tokens": declarations.section("tokens"),
    "inputs": declarations.section("inputs"),
    "random": lambda b, s, p: Section("random", s, p[1:]),
    "params": declarations.section("params"),
    "learns": declarations.section("params"),
    "lets": declarations.section("lets"),
    "layer": declarations.section("steps"),
    "phase": declarations.phase,
    "phase_repeat": lambda b, s, p: b.whole(p[0], "`repeat`"),
    "phase_until": lambda b, s, p: None,
    "repeat": declarations.repeat,
    "outputs": declarations.section("outputs"),
    "objective": declarations.section("objective"),
    "example": declarations.example,
    "given": declarations.given,
    "equals": declarations.expected,
    "about": declarations.about,
    "values": values,
    "scalar": fraction,
    "fraction": fraction,
    "rows": rows,
    "nested": lambda b, s, p: rows(b, s, p[1:]),
    "ref": declarations.ref,
    "read": expressions.read,
    "tokenset": declarations.tokenset,
    "input": declarations.input,
    "noisy": lambda b, s, p: ast.Field(s, *p),
    "states": declarations.section("state"),
    "state": lambda b, s, p: ast.Field(s, p[0], p[1], start=p[2]),
    "param": lambda b, s, p: ast.Param(s, p[0].text, p[1], p[2]),
    "learn": lambda b, s, p: ast.Param(s, p[0].text, p[1], p[2], "per layer" if p[3] else "once"),
    "often": lambda b, s, p: True,
    "let": lambda b, s, p: ast.Let(s, *p),
    "same": declarations.same,
    "named": lambda b, s, p: ast.Output(s, *p),
    "step": declarations.step,
    "use": declarations.use,
    "binding": lambda b, s, p: ast.Binding(s, p[0].text, p[1]),
    "set_to": declarations.update(""),
    "add_to": declarations.update("+"),
    "take_from": declarations.update("-"),
    "vocabulary_t": declarations.symbols,
    "symbol": lambda b, s, p: p[0],
    "symbol_v": symbol,
    "symbol_e": lambda b, s, p: ast.Symbol(s, p[0].text[1:-1]),
    "number_t": lambda b, s, p: ast.TypeClause(s, "number"),
    "vector_t": lambda b, s, p: ast.TypeClause(s, "vector", p[0]),
    "unit_t": declarations.unit_type,
    "matrix_t": lambda b, s, p: ast.TypeClause(s, "matrix", p[2], rows=p[0]),
    "named_t": declarations.named_type,
    "dim_name": lambda b, s, p: p[0].text,
    "dim_int": lambda b, s, p: b.whole(p[0], "a size"),
    "bound": declarations.bound,
    "init": lambda b, s, p: ast.Init(s, p[0].text, p[1] and p[1].text),
    "const": declarations.const,
    "number": lambda b, s, p: ast.Num(s, float(p[0].text)),
    "else_": lambda b, s, p: ast.Else(s, *p),
    "add": expressions.binary("+"),
    "sub": expressions.binary("-"),
    "mul": expressions.binary("*"),
    "div": expressions.binary("/"),
    "entry_mul": expressions.binary(".*"),
    "entry_div": expressions.binary("./"),
    "entry_pow": expressions.entry_pow,
    "of_two": expressions.of_two,
    "neg": lambda b, s, p: ast.Neg(s, p[1]),
    "pow": expressions.pow,
    "pow_layer": expressions.pow_layer,
    "layer_number": lambda b, s, p: ast.Ref(s, "layer", ()),
    "percent": lambda b, s, p: ast.Percent(s, p[0]),
    "group": lambda b, s, p: replace(p[0], span=s),
    "reduction": expressions.reduction,
    "weighting": expressions.weighting,
    "call": expressions.weighting,
    "weighted": expressions.clause("weighted"),
    "by": expressions.clause("by"),
    "where": expressions.clause("where"),
    "noise": expressions.clause("noise"),
    "among": expressions.clause("among"),
    "ties": expressions.ties,
    "within": expressions.within,
    "conditions": lambda b, s, p: tuple(p),
    "condition": expressions.condition,
    "apply": lambda b, s, p: ast.Call(s, p[0].text, p[1]),
    "count": lambda b, s, p: ast.Count(s, p[0].text),
    "position": lambda b, s, p: ast.Position(s, p[0].text),
    "onehot": lambda b, s, p: ast.Position(s, p[1].text, onehot=True),
    "transposed": lambda b, s, p: ast.Transpose(s, p[0]),
    "row": lambda b, s, p: tuple(p),
    "matrix": expressions.matrix,
    "of_matrix": lambda b, s, p: ast.MatrixCall(s, p[0].text, p[1]),
    "bars": expressions.bars,
    "inner": lambda b, s, p: ast.Inner(s, *p),
}
