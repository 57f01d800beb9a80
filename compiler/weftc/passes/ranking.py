"""Where only the order of scores counts, increasing functions around them are taken off: they would round.

spec      tokens i in points, j in cs : k inputs x[i] : R^d, c[j] : R^d layer y[i,j] = argmin[j] |x[i] - c[j]| outputs y
before    %5 function length(%4)
          %6 weighting argmin over cs: %5
after     %5 product square(%4)
          %6 weighting argmin over cs: %5
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from weftc.core.vocabulary import FUNCTIONS, WEIGHTINGS
from weftc.graph.graph import Graph, Nodes, rewritten
from weftc.graph.node import Node, Weighing, in_domain


def ranking(graph: Graph) -> Graph:
    """The graph with plain scores for choices and rankings."""

    def rewrite(nodes: Nodes, node: Node, operands: tuple[Node, ...]) -> Node | None:
        how = node.detail
        if not isinstance(how, Weighing) or not WEIGHTINGS[how.kind].order_only:
            return None
        if how.ties == "within" or node.parts("noise"):
            return None
        plain = tuple(
            _argument(nodes, x) if role == "score" else x for x, role in zip(operands, node.roles, strict=True)
        )
        return nodes.add(node.op, plain, how, node.shape, node.span, node.label, node.roles)

    return rewritten(graph, rewrite)


def _argument(nodes: Nodes, score: Node) -> Node:
    """What increasing functions are applied to: it is in the same order."""
    body = score.operands[0] if score.operands else score
    if score.op == "function":
        if score.kind == "length":
            return nodes.add("product", (body,), "square", replace(score.shape, positive=False), score.span)
        if FUNCTIONS[score.kind].increasing and in_domain(score.kind, body):
            return _argument(nodes, body)
        return score
    factor = Fraction(0)
    if score.op == "affine" and len(score.operands) == 1:
        factor = score.coefficients[0]
    elif score.op == "quotient" and score.operands[1].op == "const":
        factor = score.operands[1].value
    elif score.op == "product" and score.detail == "times":
        numbers = [x for x in score.operands if x.op == "const"]
        if len(numbers) == 1:
            factor = numbers[0].value
            body = next(x for x in score.operands if x.op != "const")
    inside = _argument(nodes, body) if factor else body
    if inside is body:
        return score
    if factor > 0:
        return inside
    shape = replace(inside.shape, positive=False, nonnegative=False)
    return nodes.add("affine", (inside,), (Fraction(-1),), shape, score.span)
