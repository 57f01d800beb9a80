"""An objective that is a sum over tokens is the total of a number that every token holds.

spec      tokens i in points inputs x[i] : R layer x[i] = 2 * x[i] outputs x objective -sum[i] x[i]
before    %7 reduce sum over points: %6
          %8 affine -%7
          %9 output objective = %8
after     %7 affine -%6
          %8 output objective = total of %7
"""

from __future__ import annotations

from dataclasses import replace

from weftc.graph.graph import Graph, Nodes, Root
from weftc.graph.node import Axis, Node, Reduction


def objective(graph: Graph) -> Graph:
    """The graph with its objective on the tokens that it is added up over, if it is such a sum."""
    root = graph.objective
    found = None if root is None else _summand(Nodes(graph.nodes), root.node.operands[0])
    if root is None or found is None:
        return graph
    axis, body = found
    nodes = Nodes(graph.nodes)
    shown = nodes.add("output", (body,), "total", body.shape, root.node.span)
    return replace(graph, objective=Root(shown, root.names, axis, (axis,)))


def _summand(nodes: Nodes, node: Node) -> tuple[Axis, Node] | None:
    """i and E of c * sum[i] E (E with the factor c, a number, inside), if a node is that."""
    if node.op == "reduce" and isinstance(node.detail, Reduction) and node.detail.kind == "sum":
        return (node.detail.axis, node.operands[0]) if node.roles == ("body",) else None
    inner = node.op == "affine" and len(node.operands) == 1
    number = node.op == "quotient" and not _reduces(node.operands[1])
    found = _summand(nodes, node.operands[0]) if inner or number else None
    if found is None:
        return None
    axis, body = found
    shape = replace(body.shape, positive=False, nonnegative=False, defined=body.shape.defined and node.shape.defined)
    return axis, nodes.add(node.op, (body, *node.operands[1:]), node.detail, shape, node.span)


def _reduces(node: Node) -> bool:
    return node.op == "reduce" or any(_reduces(x) for x in node.operands)
