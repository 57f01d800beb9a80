"""An order of nodes by what they compute: neither names nor the order of equations within a step change it."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from weftc.graph.graph import Graph
from weftc.graph.node import VERSIONS, Axis, FieldAt, Node

Key = tuple[Any, ...]


def canonical(graph: Graph) -> dict[Node, int]:
    """The place of every node of a bound graph. Fields that a step sets for the first time are told apart by what they
    are set to; equal ones by where they stand."""
    sets = {name: number for number, name in enumerate(graph.checked.sets)}
    of_field: dict[int, Key] = {}
    keys: dict[Node, Key] = {}

    def key(node: Node) -> Key:
        if node not in keys:
            keys[node] = made(node)
        return keys[node]

    def made(node: Node) -> Key:
        if node.op in VERSIONS:
            return 0, of_field[_field(node)], node.step
        reads = [key(x) for x in node.operands]
        if node.op == "affine":
            return 1, node.op, (), (), tuple(sorted(zip(reads, node.coefficients, strict=True)))
        if node.op == "product":
            reads.sort()
        detail = sets[str(node.detail)] if node.op == "count" else node.detail
        return 1, node.op, node.roles, _sortable(detail), tuple(reads)

    for node in graph.declared:
        of_field[_field(node)] = (0, _field(node))
    for number, step in enumerate(graph.steps, start=1):
        new = {_field(root.node): key(root.node.operands[0]) for root in step}
        for rank, field in enumerate(sorted(new.keys() - of_field.keys(), key=lambda f: (new[f], f))):
            of_field[field] = (number, rank)
    return {node: place for place, node in enumerate(sorted(graph.nodes, key=key))}


def _field(version: Node) -> int:
    assert isinstance(version.detail, FieldAt)
    return version.detail.field


def _sortable(detail: object) -> Key:
    """A detail as something that can be compared with that of another node of its operation."""
    match detail:
        case None:
            return (0,)
        case Axis(rank, number):
            return 2, rank, number
        case tuple():
            return 3, *map(_sortable, detail)
        case str():
            return 4, detail
    if is_dataclass(detail) and not isinstance(detail, type):
        return 5, *(_sortable(getattr(detail, f.name)) for f in fields(detail))
    return 1, detail
