"""A model with single edges changed: every port may read another value of what one node has sent.

Runs are batches of the same problem, so that many edges are cut at once, each in a run of its own. What nobody changes
is computed from the residual as a whole, as a model does; only the difference that a changed edge makes is taken from
what its source has sent. Functions of torch go through, gradients too. Decisions are made in floating point.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from weftc.circuits.circuit import Circuit, CircuitEdge, filled, is_noise, node_name, null_name
from weftc.circuits.wiring import Operation, operations
from weftc.interop import parts
from weftc_runtime.format.program import FFN, Attend, Embed, Head, Input, Mask, ProgramOutput, Score, Weighting
from weftc_runtime.reference.feed_forward import TOKENWISE

Key = tuple[str, str, str]  # source, target, port
Sent = dict[Key, Tensor]


@dataclass(frozen=True, slots=True)
class Change:
    """In run b of the batch an edge carries `value` instead of what was sent, as far as `share[b]` says (0 to 1)."""

    share: Tensor
    value: Tensor | None = None  # None: nothing


@dataclass(frozen=True, slots=True)
class RoutedRun:
    """What came out, (runs, ...) each, and, if asked for, what every edge carried."""

    outputs: Mapping[str, Tensor]
    sent: Mapping[Key, Tensor]


class RoutedModel:
    """The model of a circuit, edge by edge."""

    def __init__(self, circuit: Circuit) -> None:
        from weftc.circuits.reading import SlotMatrices

        self.circuit, self.program = circuit, circuit.checkpoint.program
        matrices = SlotMatrices(circuit.checkpoint)
        self.operations = tuple(operations(self.program, circuit.checkpoint.tensors, circuit.layers))
        self.streams = {stream.name: stream for stream in self.program.streams}
        self.bases = matrices.bases
        self._matrices, self._known = matrices, dict[tuple[str, str, str], Tensor]()

    def run(
        self,
        inputs: Mapping[str, Any],
        changes: Mapping[Key, Change] | None = None,
        *,
        runs: int = 1,
        noise: Mapping[str, Any] | None = None,
        record: bool = False,
    ) -> RoutedRun:
        """The outputs of `runs` runs on the same inputs; edges are named by (source, target, port)."""
        return _Run(self, inputs, changes or {}, runs, noise or {}, record).run()

    def matrix(self, name: str, columns: str = "", rows: str = "") -> Tensor:
        key = (name, columns, rows)
        if key not in self._known:
            self._known[key] = torch.from_numpy(np.ascontiguousarray(self._matrices.of(*key)))
        return self._known[key]


def key_of(edge: CircuitEdge) -> Key:
    """How a change names an edge."""
    return edge.source, edge.target, edge.port


@dataclass
class _Run:
    model: RoutedModel
    inputs: Mapping[str, Any]
    changes: Mapping[Key, Change]
    runs: int
    noise: Mapping[str, Any]
    record: bool
    z: dict[str, Tensor] = field(default_factory=dict)  # stream -> (runs, tokens, width)
    sent: dict[str, dict[str, Tensor]] = field(default_factory=dict)  # stream -> source -> likewise
    null: dict[str, Tensor] = field(default_factory=dict)
    seen: Sent = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.changed: dict[tuple[str, str], list[tuple[str, Change]]] = {}
        for (source, target, port), change in self.changes.items():
            self.changed.setdefault((target, port), []).append((source, change))
        wanted = {source for source, _, _ in self.changes}
        self.followed = None if self.record else wanted

    # ---- filling -----------------------------------------------------------------------------------------------------

    def run(self) -> RoutedRun:
        self._fill()
        for operation in self.model.operations:
            what = operation.what
            if isinstance(what, Input):
                self._draw(operation, what)
            elif isinstance(what, FFN):
                self._feed_forward(node_name(operation, what), what)
            else:
                self._attend(operation, what)
        outputs = {one.name: self._answer(one) for one in self.model.program.answers()}
        return RoutedRun(outputs, self.seen)

    def _fill(self) -> None:
        program = self.model.program
        given = {one.name: self._rows(one, self.inputs[one.name]) for one in program.inputs}
        for one in program.noises:
            given.setdefault(f"noise {one.name}", self._rows(one, np.asarray(self.noise[one.name])[0]))
        sizes = {stream.name: stream.size for stream in program.streams}
        for item in (*program.inputs, *program.noises):
            rows = given.get(item.name, given.get(f"noise {item.name}"))
            assert rows is not None
            sizes[item.stream] = sizes[item.stream] or rows.shape[-2]
        fills = {(one.stream, one.slot): one for one in program.embedding}
        for stream in program.streams:
            tokens = sizes[stream.name]
            assert tokens is not None
            self.z[stream.name] = torch.zeros(self.runs, tokens, stream.width, dtype=torch.float64)
            self.sent[stream.name] = {}
        for name, home, slots, null in filled(self.model.circuit.checkpoint):
            stream = self.model.streams[home]
            if null:
                row = torch.zeros(self.runs, 1, stream.width, dtype=torch.float64)
                for slot in slots:
                    embed = fills[home, slot]
                    count = float(sizes[embed.source] or 0) ** embed.power if embed.power else 1.0
                    row[..., stream.slot(slot).columns] = count
                self.null[home] = row
                continue
            (slot,) = slots
            known = given.get(name.removeprefix("input.")) if name.startswith("input.") else None
            tokens = self.z[home].shape[-2]
            value = known if known is not None else _constant(fills[home, slot], tokens, sizes)
            self._put(home, name, slot, value)

    def _rows(self, one: Input, values: Any) -> Tensor:
        rows = torch.as_tensor(np.asarray(values), dtype=torch.float64) if not isinstance(values, Tensor) else values
        width = self.model.streams[one.stream].slot(one.slot).width
        return rows.reshape(*rows.shape[:1], width) if rows.dim() < 3 else rows

    def _put(self, stream: str, name: str, slot: str, value: Tensor) -> None:
        columns, z = self.model.streams[stream].slot(slot).columns, self.z[stream]
        filled_rows = torch.zeros_like(z)
        filled_rows[..., columns] = value
        before, after = z[..., : columns.start], z[..., columns.stop :]
        self.z[stream] = torch.cat([before, filled_rows[..., columns], after], -1)
        self._sends(stream, name, filled_rows)

    def _sends(self, stream: str, name: str, value: Tensor) -> None:
        if self.followed is None or name in self.followed:
            self.sent[stream][name] = value

    def _draw(self, operation: Operation, one: Input) -> None:
        for old in [name for name in self.sent[one.stream] if is_noise(name, one)]:
            del self.sent[one.stream][old]
        rows = self._rows(one, np.asarray(self.noise[one.name])[operation.layer])
        self._put(one.stream, operation.path, one.slot, rows)

    def linear(self, z: Tensor, name: str, columns: str = "", rows: str = "") -> Tensor:
        """A tensor of the file, over slots, applied to tokens."""
        return F.linear(z, self.model.matrix(name, columns, rows))

    # ---- reading -----------------------------------------------------------------------------------------------------

    def _read(self, target: str, port: str, stream: str, keys: bool = False) -> Tensor:
        """The residual as a port reads it."""
        z, null = self.z[stream], self.null.get(stream) if keys else None
        if null is not None:
            z = torch.cat([z, null], -2)
        if self.record:
            for source, value in self.sent[stream].items():
                self.seen[source, target, port] = F.pad(value, (0, 0, 0, z.shape[-2] - value.shape[-2]))
            if null is not None:
                self.seen[null_name(stream), target, port] = self._of_null(stream)
        for source, change in self.changed.get((target, port), ()):
            if source == null_name(stream):
                now = self._of_null(stream)
            else:
                now = self.sent[stream][source]
                now = F.pad(now, (0, 0, 0, z.shape[-2] - now.shape[-2]))
            instead = torch.zeros_like(now) if change.value is None else change.value
            moved = z + change.share[:, None, None] * (instead - now)
            # runs in which nothing is changed keep their bits, but let gradients through
            z = moved if change.share.requires_grad else torch.where(change.share[:, None, None] == 0, z, moved)
        return z

    def _of_null(self, stream: str) -> Tensor:
        tokens = self.z[stream].shape[-2]
        return F.pad(self.null[stream], (0, 0, tokens, 0))

    # ---- computing ---------------------------------------------------------------------------------------------------

    def _feed_forward(self, name: str, ffn: FFN) -> None:
        z = self._read(name, "in", ffn.stream)
        a = self.linear(z, ffn.a, ffn.stream)
        b = None if ffn.b is None else self.linear(z, ffn.b, ffn.stream)
        match ffn.function:
            case "product":
                assert b is not None
                hidden = a * b
            case "select":
                assert b is not None
                hidden = parts.select(a, b)
            case "unit" | "layer":
                hidden = parts.unit(a if ffn.function == "unit" else parts.centred(a), b)
            case function:
                hidden = TOKENWISE[function](a)
        stream = self.model.streams[ffn.stream]
        if all(stream.slot(slot).role == "derived" for slot in ffn.writes):
            hidden = parts.settled(hidden)
        added = self.linear(hidden, ffn.out, "", ffn.stream)
        self._carry(ffn.stream, ffn.carry)
        self.z[ffn.stream] = self.z[ffn.stream] + added
        self._sends(ffn.stream, name, added)

    def _carry(self, stream: str, name: str) -> None:
        matrix = self.model.matrix(name, stream, stream)
        if torch.equal(matrix, torch.eye(len(matrix), dtype=matrix.dtype)):
            return
        self.z[stream] = F.linear(self.z[stream], matrix)
        self.sent[stream] = {source: F.linear(value, matrix) for source, value in self.sent[stream].items()}

    def _attend(self, operation: Operation, attend: Attend) -> None:
        added = [(head, node_name(operation, head)) for head in attend.heads]
        values = [self._head(name, head) for head, name in added]
        for stream, carry in attend.carry.items():
            self._carry(stream, carry)
        for (head, name), value in zip(added, values, strict=True):
            self.z[head.query] = self.z[head.query] + value
            self._sends(head.query, name, value)

    def _head(self, name: str, head: Head) -> Tensor:
        q, k = self._read(name, "q", head.query), self._read(name, "k", head.keys, True)
        weights, none, eligible = self._weights(head, q, k)
        own, kind = head.self_key, head.weighting.kind
        if kind in ("lse", "max"):
            added = self.linear(weights, head.value, "", head.query)
        else:
            over = weights[..., :-1] if own is not None and own.row is not None else weights
            added = torch.zeros_like(self.z[head.query])
            if head.value:
                v = self._read(name, "v", head.keys, True)
                added = over @ self.linear(v, head.value, head.keys, head.query)
        mine = torch.zeros_like(added)
        if own is not None and own.value:
            z = self._read(name, "self", head.query)
            mine = self.linear(z, own.value, head.query, head.query)
        if own is not None and own.row is not None:
            return added + weights[..., -1:] * mine
        if none is None:
            return added
        if own is not None:
            return parts.unless(none, added, mine)
        return parts.unless(none, added, None) if eligible is not None or kind == "normalize" else added

    def _score(self, score: Score, head: Head, q: Tensor, k: Tensor) -> Tensor:
        total = torch.zeros(self.runs, q.shape[-2], k.shape[-2], dtype=q.dtype)
        for number, part in enumerate(score.parts):
            a, b = self.linear(q, part.q, head.query), self.linear(k, part.k, head.keys)
            term = parts.squared_distance(a, b) if part.kind == "l2" else parts.inner_product(a, b)
            if part.coefficient is not None:
                term = self.model.matrix(part.coefficient).reshape(()) * term
            if part.scale is not None:
                side, row = part.scale
                scale = self.linear(q, row, head.query) if side == "query" else self.linear(k, row, head.keys)
                term = term * (scale if side == "query" else scale.transpose(-1, -2))
            for factor in part.factors:
                term = term * TOKENWISE[factor.function](self._score(factor.score, head, q, k))
            total = total + term if number else term
        return total

    def _eligible(self, head: Head, q: Tensor, k: Tensor) -> Tensor | None:
        found = None
        for mask in head.masks:
            if mask.weighting is not None:
                score = self._score(mask.score, head, q, k)
                holds = _decided(mask.weighting, score, parts.everywhere(found, score))[0] > 0
            else:
                holds = self._holds(mask, head, q, k)
            found = holds if found is None else found & holds
        return found

    def _holds(self, mask: Mask, head: Head, q: Tensor, k: Tensor) -> Tensor:
        if mask.op == "other":
            return parts.different(q)
        score = self._score(mask.score, head, q, k)
        match mask.op:
            case ">":
                return score > 0
            case ">=":
                return score >= 0
            case "<":
                return score < 0
        return score <= 0

    def _weights(self, head: Head, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Weights (one number per query for lse and max), which queries have no key, and what masks say."""
        restricted = self._eligible(head, q, k)
        score = self._score(head.score, head, q, k)
        eligible = parts.everywhere(restricted, score)
        own, how = head.self_key, head.weighting
        if own is not None and own.row is not None:
            score = torch.cat([score, self.linear(q, own.row, head.query)], -1)
            eligible = F.pad(eligible, (0, 1), value=True)
        none: Tensor | None = None
        match how.kind:
            case "argmax" | "top" | "normmax":
                weights, none = _decided(how, score, eligible)
            case "normalize":
                weights, none, _ = parts.normalize(score, eligible)
            case "sum":
                weights = parts.plain_sum(score, eligible)
            case "exp":
                weights = parts.exponential(score, eligible)
            case "lse":
                weights, none = parts.log_sum_exp(score, eligible)
            case "max":
                weights, none = parts.largest(score, eligible)
            case "softmax":
                weights, none = parts.softmax(score, eligible)
            case "sparsemax":
                weights, none = parts.sparsemax(score, eligible)
            case "entmax15":
                weights, none = parts.entmax15(score, eligible)
        return weights, none, restricted

    def _answer(self, output: ProgramOutput) -> Tensor:
        """An output as numbers; a one-hot one as it stands in its slot."""
        name = f"output.{output.name}"
        if output.head is not None:
            head = output.head
            q, k = self._read(name, "q", head.query), self._read(name, "k", head.keys, True)
            weights, _, _ = self._weights(head, q, k)
            found = weights[..., : self.z[head.keys].shape[-2]]
            return found if output.scale is None else found * self.linear(q, output.scale, head.query)
        z = self._read(name, "out", output.stream)
        columns = z[..., self.model.streams[output.stream].slot(output.slot).columns]
        match output.kind:
            case "total":
                return columns[..., 0].sum(-1)
            case "common":
                return columns[..., 0, 0]
            case "number":
                return columns[..., 0]
        return columns


def _decided(how: Weighting, score: Tensor, eligible: Tensor) -> tuple[Tensor, Tensor]:
    """The weights of a weighting that decides, and which queries have no key."""
    if how.kind == "argmax" and how.ties == "within":
        return parts.argmax_within(score, eligible, torch.tensor(float(how.epsilon)).to(score))[:2]
    if how.kind == "argmax":
        return parts.argmax(score, eligible, how.ties)[:2]
    if how.count is not None:
        return parts.best_count(score, eligible, how.count)[:2]
    if how.percent is not None:
        return parts.best_percent(score, eligible, how.percent.numerator, how.percent.denominator)[:2]
    assert how.gamma is not None
    return parts.normmax(score, eligible, torch.tensor(float(how.gamma)).to(score))[:2]


def _constant(embed: Embed, tokens: int, sizes: Mapping[str, int | None]) -> Tensor:
    match embed.kind:
        case "one":
            return torch.ones(tokens, 1, dtype=torch.float64)
        case "identity":
            return torch.eye(tokens, dtype=torch.float64)
        case "position":
            return torch.arange(1, tokens + 1, dtype=torch.float64)[:, None]
        case _:
            return torch.full((tokens, 1), float(sizes[embed.source] or 0), dtype=torch.float64)
