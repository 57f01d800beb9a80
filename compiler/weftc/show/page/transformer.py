"""A checkpoint -> what a page says about its wiring: streams with their slots, steps with heads, maps and matrices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from weftc.core.source import printable
from weftc.emit.matrices import Array
from weftc.show.block_text import hidden, projection, row_groups, shortened
from weftc.show.page.equations import Correspondence, head_key, map_key, output_key, shown_steps
from weftc.show.page.formulas import Formulas
from weftc.show.page.pictures import picture
from weftc.show.weights_text import weighting_text
from weftc_runtime.format import program as ir
from weftc_runtime.format.checkpoint import Checkpoint

SECTIONS = {"prelude": "before the first layer", "layer": "each layer", "readout": "after the last layer"}


@dataclass(frozen=True, slots=True)
class MatrixView:
    """A drawn matrix: the letter it goes by, the tensor it is, how large, and its picture."""

    title: str
    tensor: str
    shape: str
    svg: Markup
    note: str


@dataclass(frozen=True, slots=True)
class SublayerView:
    """A head or a map. `lines` are keys of equations, `anchor` its name on the page."""

    key: str
    anchor: str
    kind: str  # head or map
    name: str
    summary: str
    facts: tuple[tuple[str, str], ...]
    matrices: tuple[MatrixView, ...]
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stage:
    """A step: where it stands, what it computes, what it keeps of the residual, and its parts."""

    title: str
    equations: tuple[str, ...]
    carries: tuple[str, ...]
    parts: tuple[SublayerView, ...]


@dataclass(frozen=True, slots=True)
class SlotView:
    """A slot: its columns, role, and what it holds."""

    name: str
    columns: str
    width: int
    role: str
    holds: str


@dataclass(frozen=True, slots=True)
class StreamView:
    """A stream: its name, how many tokens, its width and slots."""

    name: str
    tokens: str
    width: int
    slots: tuple[SlotView, ...]


def stream_views(program: ir.Program, sizes: Mapping[str, int]) -> list[StreamView]:
    """All residual streams."""
    fills = {(e.stream, e.slot): e for e in program.embedding}
    out = []
    for stream in program.streams:
        slots = tuple(
            SlotView(
                printable(s.name),
                f"{s.offset}" if s.width == 1 else f"{s.offset}\N{EN DASH}{s.offset + s.width - 1}",
                s.width,
                s.role,
                _holds(s, fills.get((stream.name, s.name))),
            )
            for s in stream.slots
        )
        count = f"{sizes.get(stream.name, 0):,}".replace(",", "\N{NARROW NO-BREAK SPACE}")
        kind = "open: the number is known only when it runs" if stream.size is None else "fixed when it compiles"
        null = ", and a null token" if stream.null else ""
        out.append(StreamView(printable(stream.name), f"{count} tokens ({kind}){null}", stream.width, slots))
    return out


def _holds(slot: ir.Slot, fill: ir.Embed | None) -> str:
    """What a slot holds, in words."""
    if fill is not None:
        told = {
            "input": "given by the user",
            "noise": "drawn anew in every layer",
            "one": "the number 1, for constants",
            "identity": "the token's one-hot name",
            "position": "the token's position 1, 2, ...",
            "count": f"the number of {printable(fill.source)}",
            "null": "0, but on the null token",
        }
        return told[fill.kind]
    if slot.role == "field":
        return "computed by the layers"
    if slot.role == "derived":
        return "a function of the token's own fields, kept up to date"
    return "work space, empty between steps" if slot.role == "scratch" else "a constant"


class Wiring:
    """The steps and parts of one checkpoint."""

    def __init__(self, checkpoint: Checkpoint, found: Correspondence) -> None:
        self.program, self.tensors, self.found = checkpoint.program, checkpoint.tensors, found
        self.formulas = Formulas(checkpoint)
        self.slots = {stream.name: shortened(stream.slots) for stream in checkpoint.program.streams}
        self.anchors = {key: f"part-{n}" for n, key in enumerate(found.parts)}

    def stages(self) -> list[Stage]:
        """Every step that is shown, and the heads whose weights are answers."""
        out = []
        for place, step in shown_steps(self.program):
            section, _, number = place.partition(".")
            steps = sum(1 for other, _ in shown_steps(self.program) if other.startswith(f"{section}."))
            title = f"{SECTIONS[section]}, step {int(number) + 1} of {steps}" if steps > 1 else SECTIONS[section]
            parts, carries = [], []
            for n, sublayer in enumerate(step.sublayers):
                if isinstance(sublayer, ir.FFN):
                    parts.append(self._map(sublayer, map_key(place, n)))
                    continue
                carries += [self._carry(stream, name) for stream, name in sublayer.carry.items()]
                parts += [self._head(head, head_key(place, n, m)) for m, head in enumerate(sublayer.heads)]
            told = tuple(printable(equation) for equation in step.equations)
            if parts or carries:
                out.append(Stage(title, told, tuple(dict.fromkeys(c for c in carries if c)), tuple(parts)))
        answers = [self._head(o.head, output_key(o.name), o) for o in self.program.outputs if o.head is not None]
        if answers:
            out.append(Stage("answers that are attention weights", (), (), tuple(answers)))
        return out

    def _carry(self, stream: str, name: str) -> str:
        """What a residual keeps, in words."""
        matrix, slots = self.tensors[name], self.slots[stream]
        cleared = [printable(s.name) for s in slots if not matrix[s.columns, s.columns].any()]
        if not projection(matrix, slots):
            return f"{printable(stream)}: the residual is carried by a matrix of its own ({printable(name)})"
        return f"{printable(stream)}: {', '.join(cleared)} cleared, everything else carried on" if cleared else ""

    def _head(self, head: ir.Head, key: str, output: ir.ProgramOutput | None = None) -> SublayerView:
        formulas = self.formulas
        facts = [("score", formulas.score(head.score, head.query, head.keys))]
        facts += [("where", mask) for mask in formulas.masks(head)]
        facts += [("weights", weighting_text(head.weighting))]
        if output is None:
            facts += [("writes", ", ".join(formulas.value(head)))]
        else:
            facts += [("gives", f"its weights are the answer {output.name}")]
        if head.self_key is not None and output is None:
            facts += [("besides", formulas.own(head))]
        matrices = self._scores("", head.score, head)
        for n, mask in enumerate(head.masks):
            if mask.op != "other":
                number = f" {n + 1}" if len(head.masks) > 1 else ""
                matrices += self._scores(f" of the mask{number}", mask.score, head)
        if head.weighting.kind not in ("lse", "max") and output is None:
            matrices.append(self._matrix("V", head.value, head.query, head.keys))
        if head.self_key is not None and output is None:
            matrices.append(self._matrix("V of the token itself", head.self_key.value, head.query, head.query))
            if head.self_key.row is not None:
                matrices.append(self._matrix("score of the null key", head.self_key.row, None, head.query))
        name = printable(head.name if output is None else output.name)
        arrow = f"{printable(head.query)} \N{LEFTWARDS ARROW} {printable(head.keys)}"
        return SublayerView(
            key,
            self.anchors[key],
            "head",
            name,
            f"{arrow}, {weighting_text(head.weighting)}",
            tuple((what, printable(text)) for what, text in facts),
            tuple(matrices),
            self.found.parts[key],
        )

    def _map(self, ffn: ir.FFN, key: str) -> SublayerView:
        slots = self.slots[ffn.stream]
        matrices = [self._matrix("A", ffn.a, None, ffn.stream)]
        if ffn.b is not None:
            matrices.append(self._matrix("B", ffn.b, None, ffn.stream))
        units = hidden(np.atleast_2d(self.tensors[ffn.a]), slots)
        if self.tensors[ffn.out].shape[1] == sum(u.width for u in units):
            matrices.append(self._drawn("W", ffn.out, slots, units))
        names = {s.name: short.name for s, short in zip(self.program.stream(ffn.stream).slots, slots, strict=True)}
        return SublayerView(
            key,
            self.anchors[key],
            "map",
            printable(", ".join(names.get(slot, slot) for slot in ffn.writes)),
            f"{printable(ffn.stream)}, token by token: {ffn.function}",
            (("computes", printable(self.formulas.map(ffn))),),
            tuple(matrices),
            self.found.parts[key],
        )

    def _scores(self, what: str, score: ir.Score, head: ir.Head) -> list[MatrixView]:
        out = []
        seen: set[tuple[str, str]] = set()
        for part in score.parts:
            if (part.q, part.k) in seen:  # a coefficient in several pieces, on the same matrices
                continue
            seen.add((part.q, part.k))
            kind = "distance" if part.kind == "l2" else "product"
            told = f" ({kind})" if len({p.q for p in score.parts}) > 1 else ""
            out.append(self._matrix(f"Q{what}{told}", part.q, None, head.query))
            out.append(self._matrix(f"K{what}{told}", part.k, None, head.keys))
            q, k = np.atleast_2d(self.tensors[part.q]), np.atleast_2d(self.tensors[part.k])
            rows, columns = self.slots[head.query], self.slots[head.keys]
            if part.kind == "dot" and max(len(row_groups(q, rows)), len(row_groups(k, columns))) > 1:
                shape = f"{q.shape[1]} \N{MULTIPLICATION SIGN} {k.shape[1]}"
                drawn = picture(q.T @ k, rows, columns, f"Q'K{what} of head {head.name}")
                out.append(MatrixView(f"QᵀK{what}", "", shape, drawn.svg, drawn.note))
            if part.scale is not None:
                side, name = part.scale
                out.append(
                    self._matrix(f"factor of the {side}", name, None, head.query if side == "query" else head.keys)
                )
        return out

    def _matrix(self, title: str, name: str, rows: str | None, columns: str) -> MatrixView:
        return self._drawn(title, name, self.slots[rows] if rows is not None else None, self.slots[columns])

    def _drawn(
        self, title: str, name: str, rows: tuple[ir.Slot, ...] | None, columns: tuple[ir.Slot, ...] | list[ir.Slot]
    ) -> MatrixView:
        array: Array = np.atleast_2d(self.tensors[name])
        drawn = picture(array, rows, columns, f"{title}, tensor {name}")
        shape = f"{array.shape[0]} \N{MULTIPLICATION SIGN} {array.shape[1]}"
        return MatrixView(title, printable(name), shape, drawn.svg, drawn.note)
