"""A graph as text, one node a line, and the difference of two.

%4  affine    R^d[points, centers]   %2 - %3
"""

from __future__ import annotations

from difflib import unified_diff
from fractions import Fraction

from weftc.core.source import printable
from weftc.graph.graph import Graph
from weftc.graph.node import Axis, FieldAt, Node, Reduction, Weighing, Where


def written(graph: Graph, types: bool = True) -> str:
    """The nodes, numbered in the order in which they are printed; with their types unless told otherwise."""
    numbers = {node: f"%{n}" for n, node in enumerate(graph.nodes)}
    lines = []
    for node in graph.nodes:
        what = _what(node, numbers)
        line = (
            f"{numbers[node]:<5} {node.op:<10} {node.shape!s:<28} {what}"
            if types
            else f"{numbers[node]} {node.op} {what}"
        )
        lines.append(printable(line.rstrip()))
    return "\n".join(lines)


def difference(before: Graph, after: Graph) -> str:
    """What a pass changed, as a diff of the two texts; empty when it changed nothing."""
    lines = unified_diff(written(before).splitlines(), written(after).splitlines(), "before", "after", "", "", 2, "")
    return "\n".join(lines)


def _what(node: Node, numbers: dict[Node, str]) -> str:
    reads = [numbers[x] for x in node.operands]
    match node.detail:
        case FieldAt(step=step):
            of = f"{node.label} := {reads[0]}" if reads else node.label
            return f"{of} (step {step})" if step else of
        case Weighing(axis=axis) | Reduction(axis=axis):
            pairs = zip(node.roles, reads, strict=True)
            named = [r if role in ("body", "score") else f"{role} {r}" for role, r in pairs]
            return f"{_kind(node)} over {_axis(axis)}: {', '.join(named)}"
        case Where(kind="different", axes=(left, right)):
            return f"{_axis(left)} != {_axis(right)}"
        case Where(kind="member"):
            return f"{reads[0]} is 1"
        case Where(kind=op):
            return f"{reads[0]} {op} {reads[1]}"
        case Fraction() as number:
            return f"{float(number)!r}"
        case Axis() as axis:
            return f"of {_axis(axis)}"
    if node.op == "read":
        assert isinstance(node.detail, tuple)
        return f"{node.label} {reads[0]} at {', '.join(map(_axis, node.detail))}"
    if node.op == "affine":
        terms = [_term(c, r) for c, r in zip(node.coefficients, reads, strict=True)]
        return " + ".join(terms).replace("+ -", "- ")
    if node.op == "output":
        return f"{node.label or 'objective'} = {'total of ' * (node.detail == 'total')}{reads[0]}"
    if node.op in ("parameter", "dimension", "count"):
        return f"{node.detail}" + (f" = {reads[0]}" if reads else "")
    return f"{node.kind}({', '.join(reads)})"


def _kind(node: Node) -> str:
    how = node.detail
    if isinstance(how, Weighing):
        more = [f"ties {how.ties}"] if how.ties else []
        more += [f"sharpness {how.sharpness:g}"] if how.sharpness is not None else []
        return " ".join([how.kind, *more])
    return node.kind


def _term(c: Fraction, name: str) -> str:
    return name if c == 1 else f"-{name}" if c == -1 else f"{c} {name}"


def _axis(axis: Axis) -> str:
    return axis.set + "~" * axis.number if axis.number >= 0 else axis.set
