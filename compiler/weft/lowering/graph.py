"""Checked spec -> the algorithm as a graph: typed operations as nodes, data flow as edges. The only user of networkx.

A node carries an `Operation`: kind, type, span and text. A field has one node per version: before the layer, after the
first step that writes it, and so on, labelled `c`, `c'`, ... (a label: the operation says which field it is of); every
expression of one step reads the versions from before it. Equal expressions of equal versions are one node, `let`s are
put in where they are used. One layer has no cycles; `loop` pairs the last version of each field with the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import networkx as nx

from weft import syntax as ast
from weft.language.check import type_of
from weft.source import Span, printable
from weft.types import Checked

Env: TypeAlias = Mapping[str, str]
OPERATORS = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide"}


@dataclass(frozen=True, slots=True)
class Operation:
    """A node: what it does, what it yields, and where it is written."""

    kind: str  # field, parameter, number, count, ... or the construct's own word
    type: str  # `R^d[i]`, `R[i,j]`, `onehot[i,j]`, ...
    span: Span
    text: str
    step: int = 0  # 0 before the layer, then 1, 2, ...; outputs come last
    field: str = ""  # the field that a node of kind `field` is a version of


@dataclass(frozen=True)
class Algorithm:
    """The graph of one algorithm."""

    checked: Checked
    graph: nx.DiGraph[str]

    def operations(self) -> Iterator[tuple[str, Operation]]:
        """Nodes in an order in which every node comes after what it reads."""
        for node in nx.lexicographical_topological_sort(self.graph):
            yield node, self.graph.nodes[node]["operation"]

    @property
    def loop(self) -> dict[str, str]:
        """The last version of every field that the layer writes -> the version the next layer starts from."""
        return {node: name for name, node in self._last.items() if self._operation(node).step}

    def _operation(self, node: str) -> Operation:
        found: Operation = self.graph.nodes[node]["operation"]
        return found

    @property
    def _last(self) -> dict[str, str]:
        """Every field -> its last version."""
        versions = [(op.step, node, op.field) for node, op in self.operations() if op.kind == "field"]
        return {field: node for _, node, field in sorted(versions)}

    def is_stale(self, field: str) -> int | None:
        """The step that last writes a field, counted from 0, if a later step of the layer writes something it reads."""
        last = self._last
        step = self._operation(last[field]).step
        if step == 0:
            return None
        finals = (last[self._operation(read).field] for read in self.fields_read(last[field]))
        return step - 1 if any(self._operation(f).step > step for f in finals) else None

    def fields_read(self, node: str) -> set[str]:
        """The versions of fields that a version of a field is computed from, within one step."""
        out, stack = set(), list(self.graph.predecessors(node))
        while stack:
            top = stack.pop()
            if self._operation(top).kind == "field":
                out.add(top)
            else:
                stack.extend(self.graph.predecessors(top))
        return out

    def verify(self) -> None:
        """Every edge leads forward: the equations of one layer form no cycle."""
        assert nx.is_directed_acyclic_graph(self.graph)

    def __str__(self) -> str:
        out = []
        for node, op in self.operations():
            reads = ", ".join(sorted(self.graph.predecessors(node)))
            out.append(f"{node:<24} {op.kind:<12} {op.type:<28}" + (f" <- {reads}" if reads else ""))
        return "\n".join(printable(line.rstrip()) for line in out)

    def __repr__(self) -> str:
        return f"Algorithm({self.checked.spec.name}: {len(self.graph)} nodes)"

    def _repr_html_(self) -> str:
        from weft.displays import algorithm_html

        return algorithm_html(self)

    def dot(self) -> str:
        """The graph in the DOT language."""
        lines = ["digraph algorithm {", "  rankdir=LR; node [shape=box, fontname=Helvetica];"]
        names = {node: f"n{n}" for n, node in enumerate(self.graph.nodes)}
        for node, op in self.operations():
            label = f"{node}\\n{op.type}".replace('"', "'")
            shape = ", style=rounded" if op.kind == "field" else ""
            lines.append(f'  {names[node]} [label="{printable(label)}"{shape}];')
        lines += [f"  {names[a]} -> {names[b]};" for a, b in self.graph.edges]
        return "\n".join([*lines, "}"])


def build_graph(checked: Checked) -> Algorithm:
    """The graph of a checked spec."""
    builder = _Builder(checked)
    builder.declarations()
    for n, step in enumerate(checked.spec.steps, start=1):
        builder.step(step, n)
    builder.outputs(len(checked.spec.steps) + 1)
    algorithm = Algorithm(checked, builder.graph)
    algorithm.verify()
    return algorithm


class _Builder:
    def __init__(self, checked: Checked) -> None:
        self.checked = checked
        self.graph: nx.DiGraph[str] = nx.DiGraph()
        self.versions: dict[str, str] = {}  # field -> the node of its current version
        self.count: dict[str, int] = {}
        self.known: dict[tuple[object, ...], str] = {}  # expressions that have a node already

    def add(self, name: str, op: Operation, reads: list[str]) -> str:
        self.graph.add_node(name, operation=op)
        for read in reads:
            self.graph.add_edge(read, name)
        return name

    def unique(self, name: str) -> str:
        self.count[name] = self.count.get(name, 0) + 1
        return name if self.count[name] == 1 else f"{name} #{self.count[name]}"

    def type_text(self, expr: ast.Expr, env: Env) -> str:
        found = type_of(self.checked, expr, frozenset(env))
        width = "R" if found.width is None else f"R^{found.width}"
        over = ",".join(sorted(env[i] for i in found.indices))
        return f"{width}[{over}]" if over else width

    def field_text(self, name: str) -> str:
        f = self.checked.fields[name]
        over = ",".join(f.indices)
        return f"{f.kind}[{over}]" if f.columns else f"{'R' if f.width is None else f'R^{f.width}'}[{over}]"

    def field(self, name: str, span: Span, reads: list[str], step: int) -> str:
        """A new version of a field."""
        node = name
        if name in self.versions:
            node += "'"
            while node in self.checked.fields or node in self.graph:
                node += "'"
        text = self.checked.spec.source.at(span)
        return self.add(node, Operation("field", self.field_text(name), span, text, step, name), reads)

    def declarations(self) -> None:
        spec = self.checked.spec
        for param in spec.params:
            self.add(param.name, Operation("parameter", "R", param.span, spec.source.at(param.span)), [])
        for declared in (*spec.inputs, *spec.random, *spec.state):
            name = declared.target.name
            reads = []
            if declared.start is not None:
                reads = [self.expression(declared.start, _own(declared.target), 0)]
            self.versions[name] = self.field(name, declared.span, reads, 0)

    def step(self, step: ast.Step, number: int) -> None:
        """All equations of a step read the old versions; the new ones count from the next step on."""
        fresh = {}
        for equation in step.equations:
            name = equation.target.name
            body = self.expression(equation.body, _own(equation.target), number)
            fresh[name] = self.field(name, equation.span, [body], number)
        self.versions.update(fresh)

    def outputs(self, step: int) -> None:
        source = self.checked.spec.source
        for output in self.checked.spec.outputs:
            if output.target.indices:
                node = self.expression(output.body, _own(output.target), step)
                kind = self.type_text(output.body, _own(output.target))
            else:
                node = self.versions[output.target.name if not isinstance(output.body, ast.Ref) else output.body.name]
                kind = self.graph.nodes[node]["operation"].type
            name = f"output {output.target.name}"
            self.add(name, Operation("output", kind, output.span, source.at(output.span), step), [node])
        objective = self.checked.spec.objective
        if objective is not None:
            node = self.expression(objective, {}, step)
            self.add("objective", Operation("output", "R", objective.span, source.at(objective.span), step), [node])

    def expression(self, expr: ast.Expr, env: Env, step: int) -> str:
        """The node of an expression; `env` maps the indices of the text to those of the equation."""
        checked = self.checked
        if isinstance(expr, ast.Ref):
            if expr.name in checked.lets:
                let = checked.lets[expr.name]
                inner = dict(zip(let.target.indices, (env[i] for i in expr.indices), strict=True))
                return self.expression(let.body, inner, step)
            if expr.name in self.versions:
                return self.versions[expr.name]
            if expr.name not in self.graph:
                self.add(expr.name, Operation("dimension", "whole number", expr.span, expr.name), [])
            return expr.name
        if isinstance(expr, ast.Num):
            text = f"{expr.value:g}" if float(f"{expr.value:g}") == expr.value else repr(expr.value)
            return self.add(text, Operation("number", "R", expr.span, text), [])
        inside = {**env, expr.index: expr.index} if isinstance(expr, ast.Reduce) else env
        reads = [name for child in ast.children(expr) for name in self._reads(child, inside, step)]
        type_ = "share" if isinstance(expr, ast.Percent) else self.type_text(expr, env)
        key = (_kind(expr), type_, tuple(reads), _detail(expr, inside))
        if key not in self.known:
            where = f"step {step}" if step else "start"
            text = checked.spec.source.at(expr.span)
            op = Operation(_kind(expr), type_, expr.span, text, step)
            self.known[key] = self.add(self.unique(f"{where}: {_kind(expr)}"), op, reads)
        return self.known[key]

    def _reads(self, node: ast.Node, env: Env, step: int) -> list[str]:
        """The nodes that a part of an expression hands on; conditions are looked through."""
        if isinstance(node, ast.Member):
            return [self.expression(node.field, env, step)]
        if isinstance(node, ast.Compare | ast.Ties | ast.Different):
            return [name for child in ast.children(node) for name in self._reads(child, env, step)]
        return [self.expression(node, env, step)]


def _detail(expr: ast.Expr, env: Env) -> tuple[object, ...]:
    """What tells apart two expressions that read the same nodes: the tokens they read from, and plain attributes."""
    out: list[object] = [getattr(expr, name, None) for name in ("set", "exponent", "op")]
    stack: list[ast.Node] = [expr]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Ref):
            out.append(tuple(env.get(i, i) for i in node.indices))
        elif isinstance(node, ast.Position):
            out.append(env.get(node.index, node.index))
        elif isinstance(node, ast.Different):
            out.append((env.get(node.left, node.left), env.get(node.right, node.right)))
        elif isinstance(node, ast.Compare):
            out.append(node.op)
        if node is expr or isinstance(node, ast.Compare | ast.Member | ast.Ties):
            stack.extend(ast.children(node))
    return tuple(out)


def _own(target: ast.Ref) -> dict[str, str]:
    return {i: i for i in target.indices}


def _kind(expr: ast.Expr) -> str:
    match expr:
        case ast.Binary():
            return OPERATORS[expr.op]
        case ast.Reduce() | ast.Weigh():
            return f"{expr.kind}[{expr.index}]"
        case ast.Call():
            return expr.function
    return {"Square": "square", "Norm": "length", "Inner": "inner"}.get(
        type(expr).__name__, type(expr).__name__.lower()
    )
