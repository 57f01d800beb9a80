"""The root of a square is a length: it never has to be taken of something that rounding made negative.

spec      tokens i in points inputs x[i] : R^d layer a[i] = sqrt(|x[i]|^2) outputs a
before    %2 product square(%1)
          %3 function sqrt(%2)
after     %2 function length(%1)
"""

from __future__ import annotations

from weftc.graph.graph import Graph, Nodes, rewritten
from weftc.graph.node import Node


def lengths(graph: Graph) -> Graph:
    """The graph with lengths for roots of squares."""

    def rewrite(nodes: Nodes, node: Node, operands: tuple[Node, ...]) -> Node | None:
        if node.op != "function" or node.detail != "sqrt" or operands[0].op != "product":
            return None
        square = operands[0].detail == "square"
        return nodes.add("function", operands[0].operands, "length", node.shape, node.span) if square else None

    return rewritten(graph, rewrite)
