"""Parameters, dimensions and sizes of fixed sets become numbers.

spec      tokens i in points, j in cs : k inputs x[i] : R param tau = 90 layer a[i] = tau * x[i] + count(cs) outputs a
before    %1 const 90.0
          %2 parameter tau = %1
          %4 product times(%2, %3)
          %5 count cs
after     %1 const 90.0
          %3 product times(%1, %2)
          %4 const 3.0
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from weftc.core.tied import exact
from weftc.graph.graph import Graph, Nodes, rewritten
from weftc.graph.node import Node


def bind(graph: Graph, dims: Mapping[str, int], params: Mapping[str, float]) -> Graph:
    """The graph for given sizes and values; a parameter that was not given has its default."""

    def rewrite(nodes: Nodes, node: Node, operands: tuple[Node, ...]) -> Node | None:
        value: Fraction | None = None
        if node.op == "parameter":
            if node.detail not in params:
                return operands[0]
            value = exact(params[str(node.detail)])
        elif node.op == "dimension":
            value = Fraction(dims[str(node.detail)])
        elif node.op == "count":
            size = graph.checked.sets[str(node.detail)]
            value = None if size is None else Fraction(dims[size] if isinstance(size, str) else size)
        if value is None:
            return None
        return nodes.add("const", (), value, node.shape, node.span, node.label)

    return rewritten(graph, rewrite)
