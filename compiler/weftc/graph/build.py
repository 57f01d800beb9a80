"""Checked spec -> algorithm graph. `let`s are put in where they are used; indices become axes.

spec      tokens i in ps, j in cs : k inputs x[i] : R^d, c[j] : R^d layer y[i,j] = argmin[j] |x[i] - c[j]|^2 outputs y
after     %0 input x
          %1 input c
          %2 read x %0 at ps
          %3 read c %1 at cs
          %4 affine %2 - %3
          %5 product square(%4)
          %6 weighting argmin over cs: %5
          %7 store y := %6 (step 1)
          %8 output y = %7
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from fractions import Fraction
from typing import TypeAlias

from weftc.core import syntax as ast
from weftc.core.source import Span
from weftc.core.types import Checked
from weftc.graph.graph import Graph, Nodes, Root
from weftc.graph.node import Axis, FieldAt, Node, NodeType, Op, Reduction, Weighing, Where
from weftc.language.check.check import type_of

Env: TypeAlias = Mapping[str, Axis]  # index of the text -> axis
HOMELESS = -2  # number of the axis that an objective lands on


def build_graph(checked: Checked) -> Graph:
    """The graph of a checked spec."""
    return _Builder(checked).graph()


class _Builder:
    def __init__(self, checked: Checked) -> None:
        self.checked = checked
        self.nodes = Nodes()
        self.ranks = {name: rank for rank, name in enumerate(checked.sets)}
        self.ordinals = {name: number for number, name in enumerate(checked.fields)}
        self.versions: dict[str, Node] = {}
        self.names: dict[Axis, str] = {}  # of the equation being read

    def graph(self) -> Graph:
        spec = self.checked.spec
        declared_, starts = [], []
        for op, fields in (("input", spec.inputs), ("random", spec.random), ("state", spec.state)):
            for declared in fields:
                root = self._declared(op, declared)  # type: ignore[arg-type]
                declared_.append(root.node)
                if declared.start is not None:
                    starts.append(root)
        steps = []
        for number, step in enumerate(spec.steps, start=1):
            stored = [self._stored(equation, number) for equation in step.equations]
            self.versions.update({e.target.name: root.node for e, root in zip(step.equations, stored, strict=True)})
            steps.append(tuple(stored))
        outputs = tuple(self._output(number, output) for number, output in enumerate(spec.outputs))
        objective = None
        if spec.objective is not None:
            self.names = {}
            body = self.expression(spec.objective, {}, None)
            node = self.nodes.add("output", (body,), "objective", body.shape, spec.objective.span)
            objective = Root(node, self.names, None)
        return Graph(self.checked, tuple(declared_), tuple(starts), tuple(steps), outputs, objective)

    # ---- roots

    def _own(self, indices: tuple[str, ...]) -> dict[str, Axis]:
        """Axes for the indices of a left-hand side."""
        env: dict[str, Axis] = {}
        for index in indices:
            home = self.checked.index[index]
            env[index] = Axis(self.ranks[home], sum(a.set == home for a in env.values()), home)
        self.names = {axis: index for index, axis in env.items()}
        return env

    def _declared(self, op: Op, declared: ast.Field) -> Root:
        name = declared.target.name
        env = self._own(declared.target.indices)
        axes = tuple(env.values())
        reads: tuple[Node, ...] = ()
        if declared.start is not None:
            reads = (self.expression(declared.start, env, axes[0]),)
        shape = self._field_shape(name, axes)
        node = self.nodes.add(op, reads, FieldAt(self.ordinals[name]), shape, declared.span, name)
        self.versions[name] = node
        return Root(node, self.names, axes[0], axes)

    def _stored(self, equation: ast.Equation, step: int) -> Root:
        name = equation.target.name
        env = self._own(equation.target.indices)
        axes = tuple(env.values())
        body = self.expression(equation.body, env, axes[0])
        detail = FieldAt(self.ordinals[name], step)
        node = self.nodes.add("store", (body,), detail, self._field_shape(name, axes), equation.span, name)
        return Root(node, self.names, axes[0], axes)

    def _output(self, number: int, output: ast.Output) -> Root:
        env = self._own(output.target.indices)
        axes = tuple(env.values())
        if axes:
            body = self.expression(output.body, env, axes[0])
        else:
            body = self.versions[output.body.name if isinstance(output.body, ast.Ref) else output.target.name]
        node = self.nodes.add("output", (body,), number, body.shape, output.span, output.target.name)
        return Root(node, self.names, axes[0] if axes else None, axes)

    def _field_shape(self, name: str, axes: tuple[Axis, ...]) -> NodeType:
        f = self.checked.fields[name]
        return NodeType(axes, f.width, f.positive, f.nonnegative)

    # ---- expressions

    def expression(self, expr: ast.Expr, env: Env, home: Axis | None) -> Node:
        """The node of an expression: `env` maps the indices of the text to axes, `home` is the token it is for."""

        def sub(x: ast.Expr) -> Node:
            return self.expression(x, env, home)

        def add(op: Op, operands: tuple[Node, ...], detail: Hashable = None, roles: tuple[str, ...] = ()) -> Node:
            return self.nodes.add(op, operands, detail, self._shape(expr, env), expr.span, roles=roles)

        match expr:
            case ast.Num():
                return self.nodes.add("const", (), Fraction(expr.value), _sign(expr.value), expr.span)
            case ast.Symbol():
                return add("symbol", (), (expr.vocabulary.index(expr.text), len(expr.vocabulary)))
            case ast.Ref():
                return self._ref(expr, env, home)
            case ast.Count():
                return self.nodes.add("count", (), expr.set, NodeType(positive=True, nonnegative=True), expr.span)
            case ast.Position():
                return add("onehot" if expr.onehot else "position", (), env[expr.index])
            case ast.Neg() | ast.Binary(op="+" | "-"):
                return self._affine(expr, env, home)
            case ast.Binary(op="*"):
                left, right = sorted((sub(expr.left), sub(expr.right)), key=lambda n: n.number)
                return add("product", (left, right), "times")
            case ast.Binary(op=".*"):
                left, right = sorted((sub(expr.left), sub(expr.right)), key=lambda n: n.number)
                return add("product", (left, right), "entries")
            case ast.Binary():
                detail = "entries" if expr.op == "./" else None
                return add("quotient", (sub(expr.left), sub(expr.right)), detail)
            case ast.Power():
                return add("product", (sub(expr.base),), ("power", expr.exponent))
            case ast.Square():
                return add("product", (sub(expr.body),), "square")
            case ast.Inner():
                left, right = sorted((sub(expr.left), sub(expr.right)), key=lambda n: n.number)
                return add("product", (left, right), "inner")
            case ast.Norm():
                return add("function", (sub(expr.body),), "length")
            case ast.Call():
                return add("function", (sub(expr.body),), expr.function)
            case ast.Else():
                return add("else", (sub(expr.body), sub(expr.fallback)))
            case ast.Reduce():
                return self._reduce(expr, env, home)
            case ast.Weigh():
                return self._weigh(expr, env, home)
            case ast.Percent():
                return sub(expr.body)
        raise AssertionError(f"no node for {type(expr).__name__}")

    def _shape(self, expr: ast.Expr, env: Env) -> NodeType:
        found = type_of(self.checked, expr, frozenset(env))
        axes = tuple(sorted(env[i] for i in found.indices))
        return NodeType(axes, found.width, found.positive, found.nonnegative, found.undefined is None)

    def _affine(self, expr: ast.Expr, env: Env, home: Axis | None) -> Node:
        """A sum with its signs, flat."""
        terms: dict[Node, Fraction] = {}

        def collect(x: ast.Expr, sign: int) -> None:
            match x:
                case ast.Neg():
                    collect(x.body, -sign)
                case ast.Binary(op="+" | "-"):
                    collect(x.left, sign)
                    collect(x.right, sign if x.op == "+" else -sign)
                case _:
                    node = self.expression(x, env, home)
                    terms[node] = terms.get(node, Fraction(0)) + sign

        collect(expr, 1)
        operands = tuple(sorted(terms, key=lambda n: n.number))
        shape = self._shape(expr, env)
        return self.nodes.add("affine", operands, tuple(terms[n] for n in operands), shape, expr.span)

    def _ref(self, ref: ast.Ref, env: Env, home: Axis | None) -> Node:
        checked = self.checked
        if ref.name in checked.lets:
            let = checked.lets[ref.name]
            inner = dict(zip(let.target.indices, (env[i] for i in ref.indices), strict=True))
            return self.expression(let.body, inner, home)
        if ref.name in self.versions:
            axes = tuple(env[i] for i in ref.indices)
            version = self.versions[ref.name]
            shape = self._shape(ref, env)
            return self.nodes.add("read", (version,), axes, shape, ref.span, ref.name)
        if ref.name in checked.params:
            param = checked.params[ref.name]
            default = () if param.default is None else (self.expression(param.default, {}, home),)
            return self.nodes.add("parameter", default, ref.name, self._shape(ref, env), param.span, ref.name)
        positive = NodeType(positive=True, nonnegative=True)
        return self.nodes.add("dimension", (), ref.name, positive, ref.span, ref.name)

    def _reduce(self, expr: ast.Reduce, env: Env, home: Axis | None) -> Node:
        axis, inner = self._bound(expr.index, env, home)
        parts = [("body", self.expression(expr.body, inner, home))]
        if expr.weighted is not None:
            parts.append(("weighted", self.expression(expr.weighted, inner, home)))
        if expr.by is not None:
            parts.append(("by", self.expression(expr.by, inner, home)))
        parts += [("where", self._condition(c, inner, home)) for c in expr.where]
        return self._node("reduce", parts, Reduction(expr.kind, axis), self._shape(expr, env), expr.span)

    def _weigh(self, expr: ast.Weigh, env: Env, home: Axis | None) -> Node:
        axis = env[expr.index]
        parts = [("score", self.expression(expr.score, env, home))]
        parts += [("argument", self.expression(a, env, home)) for a in expr.arguments]
        parts += [("where", self._condition(c, env, home)) for c in expr.where]
        if expr.noise is not None:
            parts.append(("noise", self.expression(expr.noise, env, home)))
        if expr.ties is not None and expr.ties.epsilon is not None:
            parts.append(("epsilon", self.expression(expr.ties.epsilon, env, home)))
        percent = any(isinstance(a, ast.Percent) for a in expr.arguments)
        ties = None if expr.ties is None else expr.ties.rule
        how = Weighing(expr.kind, axis, ties, percent, expr.sharpness, expr.split)
        return self._node("weighting", parts, how, self._shape(expr, env), expr.span)

    def _node(
        self, op: Op, parts: list[tuple[str, Node]], detail: Reduction | Weighing, shape: NodeType, span: Span
    ) -> Node:
        operands, roles = tuple(node for _, node in parts), tuple(role for role, _ in parts)
        return self.nodes.add(op, operands, detail, shape, span, roles=roles)

    def _bound(self, index: str, env: Env, home: Axis | None) -> tuple[Axis, Env]:
        """An axis for a bound index: the first over its set that is not in use."""
        of = self.checked.index[index]
        taken = {*env.values(), home}
        number = next(n for n in range(len(taken) + 1) if Axis(self.ranks[of], n, of) not in taken)
        axis = Axis(self.ranks[of], number, of)
        others = {name for a, name in self.names.items() if a != axis}
        self.names.setdefault(axis, f"another {index}" if index in others else index)
        return axis, {**env, index: axis}

    def _condition(self, condition: ast.Condition, env: Env, home: Axis | None) -> Node:
        reads: tuple[Node, ...] = ()
        match condition:
            case ast.Different(_, left, right):
                detail = Where("different", (env[left], env[right]))
            case ast.Member(_, ref):
                detail, reads = Where("member"), (self.expression(ref, env, home),)
            case ast.Compare(_, op, left, right):
                detail = Where(op)
                reads = (self.expression(left, env, home), self.expression(right, env, home))
        axes = tuple(sorted({*detail.axes, *(a for node in reads for a in node.shape.axes)}))
        return self.nodes.add("where", reads, detail, NodeType(axes), condition.span)


def _sign(value: float) -> NodeType:
    return NodeType(positive=value > 0, nonnegative=value >= 0)
