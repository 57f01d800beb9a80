"""The graph's own rules. Tests run this after every pass; so does `weftc inspect --check`.

1. Operands come before what reads them: no cycles.      2. Equal computations are one node.
3. A read names as many tokens as the field has.         4. Numbers and vectors are where they belong.
5. A field is stored once a step, and a step reads the versions from before it.
6. What is stored always has a value.                    7. Only tokens of a root's own axes are left over in it.
"""

from __future__ import annotations

from weftc.graph.graph import Graph, Root
from weftc.graph.node import VERSIONS, FieldAt, Node, Reduction, Weighing


class BrokenGraph(Exception):
    """A rule of the graph that does not hold: a mistake of the compiler, never of a spec."""


def verify(graph: Graph) -> None:
    """Raises `BrokenGraph` with the rule and the node."""
    seen: set[object] = set()
    before: set[Node] = set()
    for node in graph.nodes:
        _need(set(node.operands) <= before, node, "reads a node that comes after it")
        before.add(node)
        identity = (node.op, node.operands, node.roles, node.detail)
        _need(identity not in seen, node, "computes what another node computes")
        seen.add(identity)
        _typed(graph, node)
    _versions(graph)
    for root in graph.roots:
        _root(root)


def _need(holds: bool, node: Node, what: str) -> None:
    if not holds:
        raise BrokenGraph(f"{node!r} ({node.op} {node.label}) {what}")


def _typed(graph: Graph, node: Node) -> None:
    widths = [x.shape.width for x in node.operands]
    inside = {a for x in node.operands for a in x.shape.axes}
    match node.op:
        case "read":
            (version,) = node.operands
            axes = node.detail
            _need(version.op in VERSIONS, node, "reads what is no field")
            _need(isinstance(axes, tuple), node, "names no tokens")
            assert isinstance(axes, tuple)
            held, asked = [[a.set for a in of] for of in (version.shape.axes, axes)]
            _need(asked[: len(held)] == held[: len(asked)], node, "reads a field at tokens of other sets")
            at = (
                graph.checked.sets[name] for name in (*held[len(asked) :], *asked[len(held) :])
            )  # coordinates, if any
            widths = [w for w in (version.shape.width, node.shape.width) if w is not None]
            _need([*at] == widths[: len(held) != len(asked)], node, "reads coordinates that its field has not")
        case "affine":
            _need(len(node.coefficients) == len(node.operands), node, "has not one coefficient for each operand")
            _need(len({w for w in widths if w is not None}) <= 1, node, "adds vectors of different widths")
        case "product" if node.detail == "times":
            _need(sum(w is not None for w in widths) <= 1, node, "multiplies two vectors")
        case "quotient":
            _need(widths[1] in (None, widths[0]), node, "divides by a vector of another width")
        case "weighting" | "reduce":
            detail = node.detail
            assert isinstance(detail, Weighing | Reduction)
            score = node.part("score")
            _need(score is None or score.shape.width is None, node, "has a score that is no number")
            if node.op == "reduce":
                _need(detail.axis not in node.shape.axes, node, "still depends on what it reduces")
            inside.discard(detail.axis)
        case "input" | "random" | "state" | "store":
            kind = graph.field(node)
            _need(node.shape.width == kind.width, node, "is as wide as its field is not")
    if node.op not in ("read", "position", "onehot", "where", *VERSIONS):
        _need(set(node.shape.axes) <= inside | {*_own(node)}, node, "depends on tokens that it does not read")


def _own(node: Node) -> tuple[object, ...]:
    return (node.detail.axis,) if isinstance(node.detail, Weighing | Reduction) else ()


def _versions(graph: Graph) -> None:
    """Every step reads what the steps before it left."""
    current: dict[int, Node] = {}
    for node in graph.nodes:
        if node.op in VERSIONS and not node.step:
            assert isinstance(node.detail, FieldAt)
            current[node.detail.field] = node
    for step in graph.steps:
        stored: dict[int, Node] = {}
        for root in step:
            for read in graph.versions_read(root.node):
                assert isinstance(read.detail, FieldAt)
                _need(current.get(read.detail.field) is read, root.node, f"reads {read.label} of another step")
            assert isinstance(root.node.detail, FieldAt)
            _need(root.node.detail.field not in stored, root.node, "is stored twice in one step")
            stored[root.node.detail.field] = root.node
        current |= stored


def _root(root: Root) -> None:
    node = root.node
    for x in node.operands:
        if node.op == "store":
            _need(x.shape.defined, node, "may lack a value")
        left = set(x.shape.axes) - set(root.axes)
        _need(x.op in VERSIONS or not left, node, "depends on tokens that it is not for")
