"""A circuit -> JSON, GraphML, or the JSON that tools around the Mechanistic Interpretability Benchmark exchange."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from weftc.circuits.circuit import Circuit
from weftc.core.errors import InputError


def written(circuit: Circuit, form: str) -> str:
    """The text of a file."""
    if form not in FORMS:
        raise InputError(f"a circuit is written as {', '.join(FORMS)}, not as {form!r}")
    return FORMS[form](circuit)


def as_data(circuit: Circuit) -> dict[str, Any]:
    """A circuit as plain data; `outside` are the edges that there could be and are not."""
    members = circuit.members
    nodes = [
        {
            "name": node.name,
            "kind": node.kind,
            "stream": node.stream,
            "writes": list(node.writes),
            "equation": node.equation,
            "inside": node.name in members,
        }
        for node in circuit.nodes
    ]
    edges = [
        {"source": e.source, "target": e.target, "port": e.port, "carries": list(e.carries), "name": e.name}
        for e in circuit.edges
    ]
    outside = [edge.name for edge in circuit.outside]
    return {"model": circuit.model, "layers": circuit.layers, "nodes": nodes, "edges": edges, "outside": outside}


def _json(circuit: Circuit) -> str:
    return json.dumps(as_data(circuit), indent=1) + "\n"


def _mib(circuit: Circuit) -> str:
    """`cfg`, `nodes` and `edges`: every node and edge that there could be, whether it is in the graph, and a score."""
    program, members, inside = circuit.checkpoint.program, circuit.members, set(circuit.edges)
    heads = sum(node.kind == "head" for node in circuit.nodes)
    cfg = {
        "model_name": circuit.model,
        "n_layers": circuit.layers,
        "n_heads": heads // max(circuit.layers, 1),
        "d_model": max(stream.width for stream in program.streams),
        "parallel_attn_mlp": False,
    }
    nodes = {node.name: {"in_graph": node.name in members} for node in circuit.nodes}
    edges = {e.name: {"score": float(e in inside), "in_graph": e in inside} for e in circuit.candidates}
    return json.dumps({"cfg": cfg, "nodes": nodes, "edges": edges}, indent=1) + "\n"


def _graphml(circuit: Circuit) -> str:
    keys = {"node": ("kind", "stream", "writes", "equation"), "edge": ("port", "carries")}
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">']
    for owner, names in keys.items():
        lines += [f'  <key id="{name}" for="{owner}" attr.name="{name}" attr.type="string"/>' for name in names]
    lines.append(f'  <graph id={quoteattr(circuit.model)} edgedefault="directed">')
    for node in circuit.nodes:
        if node.name in circuit.members:
            values = (node.kind, node.stream, " ".join(node.writes), node.equation)
            inner = _data(dict(zip(keys["node"], values, strict=True)))
            lines.append(f"    <node id={quoteattr(node.name)}>{inner}</node>")
    for number, edge in enumerate(circuit.edges):
        inner = _data({"port": edge.port, "carries": " ".join(edge.carries)})
        ends = f"source={quoteattr(edge.source)} target={quoteattr(edge.target)}"
        lines.append(f'    <edge id="{number}" {ends}>{inner}</edge>')
    return "\n".join([*lines, "  </graph>", "</graphml>", ""])


def _data(values: Mapping[str, str]) -> str:
    return "".join(f"<data key={quoteattr(name)}>{escape(value)}</data>" for name, value in values.items())


FORMS: Mapping[str, Callable[[Circuit], str]] = {"json": _json, "graphml": _graphml, "mib": _mib}
