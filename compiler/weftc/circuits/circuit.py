"""A checkpoint -> its circuit: nodes, the edges between them, and what every edge carries. No spec is read.

What a node sends is the columns of a matrix (V, or `out`); every matrix that carries the residual on moves them; a port
reads with matrices of its own (Q, K, V, A, B). There is an edge where the product of the three is not zero, and it is
in the circuit when its target has a way to an output.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from weftc.circuits.reading import Array, Port, SlotMatrices
from weftc.circuits.wiring import Operation, operations
from weftc_runtime.format.checkpoint import Checkpoint
from weftc_runtime.format.program import FFN, Attend, Head, Input

if TYPE_CHECKING:
    from weftc.circuits.ablation import AblationVerdict
    from weftc_runtime import Model

Kind = Literal["slot", "head", "mlp", "output"]


@dataclass(frozen=True, slots=True)
class CircuitNode:
    """A slot that is filled from outside, a head, a feed-forward, or an output; `equation` is for people."""

    name: str
    kind: Kind
    stream: str
    writes: tuple[str, ...] = ()
    equation: str = ""


@dataclass(frozen=True, slots=True, order=True)
class CircuitEdge:
    """One node read by a port of another."""

    source: str
    target: str
    port: str
    carries: tuple[str, ...] = field(default=(), compare=False)  # slots of the residual that is read

    @property
    def name(self) -> str:
        port = "" if self.port in ("in", "out") else f"<{self.port}>"
        return f"{self.source}->{self.target}{port}"


@dataclass(frozen=True, slots=True)
class Circuit:
    """What a model of so many layers consists of. `candidates` are all edges there could be, those inside included."""

    model: str
    layers: int
    nodes: tuple[CircuitNode, ...]
    edges: tuple[CircuitEdge, ...]
    candidates: tuple[CircuitEdge, ...] = field(repr=False)
    sent: Mapping[tuple[str, str, str], Array] = field(repr=False, compare=False)  # what may arrive there, as columns
    checkpoint: Checkpoint = field(repr=False, compare=False)

    @property
    def outside(self) -> tuple[CircuitEdge, ...]:
        """Edges that a residual network has, and this circuit has not."""
        inside = set(self.edges)
        return tuple(edge for edge in self.candidates if edge not in inside)

    @property
    def members(self) -> frozenset[str]:
        """The names of the nodes inside."""
        return frozenset(name for edge in self.edges for name in (edge.source, edge.target))

    def check(self, cases: int = 12, seed: int = 0) -> AblationVerdict:
        """Cuts every edge on so many inputs of all kinds: nothing may change outside, something must inside."""
        from weftc.circuits.ablation import check

        return check(self, cases, seed)

    def written(self, form: str = "json") -> str:
        """As a file: `json`, `graphml`, or `mib`, the JSON of the Mechanistic Interpretability Benchmark."""
        from weftc.circuits.writing import written

        return written(self, form)

    def score(self, found: Any) -> dict[str, float]:
        """How well edges that a method has found (edges, their names, or name -> score) agree with this circuit."""
        from weftc.circuits.scoring import score

        return score(self, found)


def circuit(target: Any, layers: int | None = None) -> Circuit:
    """The circuit of a checkpoint, of the file at a path, or of a loaded model as its weights are now.

    >>> import weftc
    >>> found = weftc.circuit(weftc.compile("lloyd", dims={"d": 2, "k": 3}))
    >>> print(*(edge.name for edge in found.edges if edge.port == "v"), sep="\\n")
    embed.centers.id()->layers.0.blocks.0.attn.y<v>
    input.x->layers.0.blocks.1.attn.c<v>
    """
    checkpoint = _checkpoint(target)
    depth = checkpoint.program.layers if layers is None else layers
    return _Deriving(checkpoint, depth).circuit()


def _checkpoint(target: Checkpoint | Model | str | os.PathLike[str]) -> Checkpoint:
    if isinstance(target, Checkpoint):
        return target
    if isinstance(target, str | os.PathLike):
        return Checkpoint.load(Path(target))
    return target.checkpoint()


class _Deriving:
    """Follows what every node has sent through the run."""

    def __init__(self, checkpoint: Checkpoint, layers: int) -> None:
        self.checkpoint, self.program, self.layers = checkpoint, checkpoint.program, layers
        self.matrices = SlotMatrices(checkpoint)
        self.streams = {stream.name: stream for stream in self.program.streams}
        self.nodes: dict[str, CircuitNode] = {}
        self.arrived: dict[str, dict[str, Array]] = {name: {} for name in self.streams}  # stream -> source -> columns
        self.null: dict[str, Array] = {}  # on the null token, which nothing changes
        self.edges: list[CircuitEdge] = []  # all
        self.live_edges: list[CircuitEdge] = []  # with a product that is not zero
        self.sent: dict[tuple[str, str, str], Array] = {}

    def circuit(self) -> Circuit:
        for name, stream, slots, null in filled(self.checkpoint):
            self._fill(name, stream, slots, null)
        for operation in operations(self.program, self.checkpoint.tensors, self.layers):
            self._operate(operation)
        for output in self.program.answers():
            name = f"output.{output.name}"
            self.nodes[name] = CircuitNode(name, "output", output.stream, equation=output.kind)
            for port in self.matrices.output_ports(output, self._there):
                self._read(name, port)
        used = self._useful()
        edges = tuple(edge for edge in self.live_edges if edge.target in used)
        nodes, every = tuple(self.nodes.values()), tuple(self.edges)
        return Circuit(self.program.name, self.layers, nodes, edges, every, self.sent, self.checkpoint)

    def _useful(self) -> set[str]:
        """The nodes with a way to an output."""
        used = {name for name, node in self.nodes.items() if node.kind == "output"}
        for edge in reversed(self.live_edges):  # in the order of the run: a target is met before what it reads
            if edge.target in used:
                used.add(edge.source)
        return used

    # ---- the run -----------------------------------------------------------------------------------------------------

    def _fill(self, name: str, stream: str, slots: tuple[str, ...], null: bool) -> None:
        home = self.streams[stream]
        columns = np.concatenate([np.eye(home.width)[:, home.slot(slot).columns] for slot in slots], 1)
        self.nodes[name] = CircuitNode(name, "slot", stream, slots, home.slot(slots[0]).meaning)
        if null:
            self.null[stream] = columns
        else:
            self.arrived[stream][name] = columns

    def _operate(self, operation: Operation) -> None:
        what = operation.what
        if isinstance(what, Input):
            for old in [name for name in self.arrived[what.stream] if is_noise(name, what)]:
                del self.arrived[what.stream][old]
            self._fill(operation.path, what.stream, (what.slot,), False)
        elif isinstance(what, FFN):
            name = node_name(operation, what)
            self._node(name, "mlp", what.stream, what)
            for port in self.matrices.ports(what, self._there):
                self._read(name, port)
            self._carry(what.stream, what.carry)
            self.arrived[what.stream][name] = self.matrices.sent(what)
        else:
            self._attend(operation, what)

    def _attend(self, operation: Operation, attend: Attend) -> None:
        for head in attend.heads:
            name = node_name(operation, head)
            self._node(name, "head", head.query, head)
            for port in self.matrices.ports(head, self._there):
                self._read(name, port)
        for stream, carry in attend.carry.items():
            self._carry(stream, carry)
        for head in attend.heads:
            self.arrived[head.query][node_name(operation, head)] = self.matrices.sent(head)

    def _node(self, name: str, kind: Kind, stream: str, what: Head | FFN) -> None:
        self.nodes[name] = CircuitNode(name, kind, stream, what.writes, what.origin.strip())

    def _carry(self, stream: str, name: str) -> None:
        matrix = self.matrices.of(name, stream, stream)
        if not np.array_equal(matrix, np.eye(len(matrix))):
            self.arrived[stream] = {source: matrix @ columns for source, columns in self.arrived[stream].items()}

    def _sources(self, stream: str, keys: bool) -> dict[str, Array]:
        null = {null_name(stream): self.null[stream]} if keys and stream in self.null else {}
        return self.arrived[stream] | null

    def _there(self, stream: str, keys: bool) -> Array:
        """Everything that has arrived in a stream."""
        columns = list(self._sources(stream, keys).values())
        return np.concatenate(columns, 1) if columns else np.zeros((self.streams[stream].width, 1))

    def _read(self, target: str, port: Port) -> None:
        stream = self.streams[port.stream]
        for source, columns in self._sources(port.stream, port.keys).items():
            read = port.reads(columns)
            carries = tuple(slot.name for slot in stream.slots if read[slot.columns].any())
            edge = CircuitEdge(source, target, port.name, carries)
            self.edges.append(edge)
            self.sent[source, target, port.name] = columns
            if carries:
                self.live_edges.append(edge)


# ---- names -----------------------------------------------------------------------------------------------------------


def node_name(operation: Operation, what: Head | FFN) -> str:
    """The name of a head or feed-forward, as its hook sites have it."""
    if isinstance(what, Head):
        return f"{operation.path}.attn.{what.name}"
    return (
        operation.path
        if ".derived." in operation.path or operation.path[:9] == "embedding"
        else f"{operation.path}.mlp"
    )


def null_name(stream: str) -> str:
    """The null token of a stream."""
    return f"embed.{stream}.null"


def is_noise(name: str, drawn: Input) -> bool:
    """Whether a node is an earlier draw of this random field."""
    parts = name.split(".", 3)
    return parts[0] == "layers" and parts[2:] == ["noise", drawn.name]


def filled(checkpoint: Checkpoint) -> Iterator[tuple[str, str, tuple[str, ...], bool]]:
    """The slots that are filled before the run: node, stream, slots, and whether it is the null token."""
    program = checkpoint.program
    for one in program.inputs:
        yield f"input.{one.name}", one.stream, (one.slot,), False
    nulls: dict[str, list[str]] = {}
    for embed in program.embedding:
        if embed.kind == "null":
            nulls.setdefault(embed.stream, []).append(embed.slot)
        elif embed.kind not in ("input", "noise"):
            yield f"embed.{embed.stream}.{embed.slot}", embed.stream, (embed.slot,), False
    for stream, slots in nulls.items():
        yield null_name(stream), stream, tuple(slots), True
