"""The algorithm as a graph of nodes, and the doorway to networkx, which carries it, sorts it and finds paths in it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import networkx as nx

from weftc.core.source import NOWHERE, Span
from weftc.core.types import Checked, FieldType
from weftc.graph.node import VERSIONS, Axis, FieldAt, Node, NodeType, Op

ANYTHING = NodeType()
Identity = tuple[Op, tuple[Node, ...], tuple[str, ...], Hashable]


class Nodes:
    """Makes nodes, each computation once."""

    def __init__(self, known: Iterable[Node] = ()) -> None:
        self._made: dict[Identity, Node] = {(n.op, n.operands, n.roles, n.detail): n for n in known}
        self._next = max((n.number for n in self._made.values()), default=-1) + 1

    def add(
        self,
        op: Op,
        operands: tuple[Node, ...] = (),
        detail: Hashable = None,
        shape: NodeType = ANYTHING,
        span: Span = NOWHERE,
        label: str = "",
        roles: tuple[str, ...] = (),
    ) -> Node:
        """The node of a computation: the one there is, or a new one."""
        roles = roles or ("",) * len(operands)
        key = (op, operands, roles, detail)
        if key not in self._made:
            self._made[key] = Node(self._next, op, operands, roles, detail, shape, span, label)
            self._next += 1
        return self._made[key]


@dataclass(frozen=True, slots=True)
class Root:
    """What a graph is there for: a version that a step stores, a start or an output. `names`: axes as the text calls
    them; `home`: the token that it belongs to (None: every token of some set)."""

    node: Node
    names: Mapping[Axis, str]
    home: Axis | None
    axes: tuple[Axis, ...] = ()


@dataclass(frozen=True)
class Graph:
    """The graph of one algorithm: its roots, and through them everything that counts."""

    checked: Checked
    declared: tuple[Node, ...]  # inputs, random fields and states, read or not
    starts: tuple[Root, ...]  # states with what they start from
    steps: tuple[tuple[Root, ...], ...]  # stores
    outputs: tuple[Root, ...]
    objective: Root | None = None

    @property
    def roots(self) -> Iterator[Root]:
        yield from self.starts
        for step in self.steps:
            yield from step
        yield from self.outputs
        if self.objective is not None:
            yield self.objective

    @cached_property
    def network(self) -> nx.DiGraph[Node]:
        """The nodes that a root reads, as networkx has them."""
        out: nx.DiGraph[Node] = nx.DiGraph()
        stack = [*self.declared, *(root.node for root in self.roots)]
        out.add_nodes_from(stack)
        while stack:
            node = stack.pop()
            for read in node.operands:
                if read not in out:
                    stack.append(read)
                out.add_edge(read, node)
        return out

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Every node after what it reads."""
        return tuple(nx.lexicographical_topological_sort(self.network, key=lambda node: node.number))

    def field(self, version: Node) -> FieldType:
        """The field that a node is a version of."""
        assert isinstance(version.detail, FieldAt)
        return tuple(self.checked.fields.values())[version.detail.field]

    @cached_property
    def last(self) -> dict[str, Node]:
        """Every field -> its last version."""
        versions = sorted((n for n in self.nodes if n.op in VERSIONS), key=lambda n: n.step)
        return {self.field(node).name: node for node in versions}

    @property
    def loop(self) -> dict[Node, str]:
        """The last version of every field that the layer writes -> the field the next layer starts from."""
        return {node: name for name, node in self.last.items() if node.step}

    def is_stale(self, name: str) -> int | None:
        """The step that last writes a field, counted from 0, if a later step of the layer writes something it reads."""
        own = self.last[name]
        if own.step == 0:
            return None
        finals = (self.last[self.field(read).name] for read in self.versions_read(own))
        return own.step - 1 if any(final.step > own.step for final in finals) else None

    def versions_read(self, node: Node) -> list[Node]:
        """The versions of fields that a node is computed from, within one step."""
        out: dict[Node, None] = {}
        stack = list(node.operands)
        while stack:
            top = stack.pop()
            if top.op in VERSIONS:
                out[top] = None
            else:
                stack.extend(top.operands)
        return list(out)

    def __str__(self) -> str:
        from weftc.graph.text import written

        return written(self)

    def __repr__(self) -> str:
        return f"Graph({self.checked.spec.name}: {len(self.nodes)} nodes)"

    def _repr_html_(self) -> str:
        from weftc.show.displays import graph_html

        return graph_html(self)


Rewrite = Callable[[Nodes, Node, tuple[Node, ...]], Node | None]


def rewritten(graph: Graph, rewrite: Rewrite) -> Graph:
    """The graph with every node made anew: `rewrite` gives what becomes of a node with its new operands, or None to
    keep it. What nothing reads any more is gone."""
    nodes = Nodes()
    new: dict[Node, Node] = {}
    for node in graph.nodes:
        operands = tuple(new[x] for x in node.operands)
        found = rewrite(nodes, node, operands)
        if found is None:
            found = nodes.add(node.op, operands, node.detail, node.shape, node.span, node.label, node.roles)
        new[node] = found

    def moved(root: Root) -> Root:
        return Root(new[root.node], root.names, root.home, root.axes)

    return Graph(
        graph.checked,
        tuple(new[node] for node in graph.declared),
        tuple(map(moved, graph.starts)),
        tuple(tuple(map(moved, step)) for step in graph.steps),
        tuple(map(moved, graph.outputs)),
        None if graph.objective is None else moved(graph.objective),
    )
