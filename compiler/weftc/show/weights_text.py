"""The matrices of a checkpoint -> text: every sub-layer and head, every matrix a picture of blocks with slot names."""

from __future__ import annotations

from fractions import Fraction

from weftc.emit.matrices import Array
from weftc.show.block_text import draw, hidden, picture_slots, projection, row_groups, shortened
from weftc_runtime.format import program as ir
from weftc_runtime.format.checkpoint import Checkpoint


def weighting_text(w: ir.Weighting) -> str:
    """A weighting with its settings, in the words of a spec."""
    extra = {
        "argmax": "" if w.ties == "first" else f" ties {w.ties}",
        "top": f" {w.count}" if w.count is not None else f" {_decimal(w.percent)}%",
        "normmax": f" gamma {_decimal(w.gamma)}",
        "softmax": "" if w.sharpness is None else f" for argmax, sharpness {_decimal(w.sharpness)}",
    }
    return w.kind + extra.get(w.kind, "")


def _decimal(number: Fraction | None) -> str:
    return "" if number is None else f"{float(number):.12g}"


class Drawing:
    """Sub-layers and outputs of one checkpoint, as lines."""

    def __init__(self, checkpoint: Checkpoint, colour: bool) -> None:
        self.tensors, self.colour = checkpoint.tensors, colour
        program = checkpoint.program
        self.slots = {stream.name: picture_slots(program, stream.name) for stream in program.streams}
        self.names = {
            stream.name: dict(
                zip((s.name for s in stream.slots), (s.name for s in shortened(stream.slots)), strict=True)
            )
            for stream in program.streams
        }

    def matrix(self, title: str, name: str, rows: str | None, columns: str) -> list[str]:
        """A tensor that reads tokens of one stream; `rows`: the stream whose slots it writes."""
        array = self.tensors[name]
        array = array.reshape(1, -1) if array.ndim == 1 else array
        drawn = draw(array, self.slots[rows] if rows else None, self.slots[columns], self.colour)
        return [f"{title}  ({name})", *drawn]

    def carry(self, stream: str, name: str) -> list[str]:
        """What a residual keeps: a formula where it keeps and clears whole slots, else a picture."""
        formula = projection(self.tensors[name], self.slots[stream])
        title = f"carry of {stream}"
        return [f"{title} = {formula}  ({name})"] if formula else self.matrix(title, name, stream, stream)

    def sublayer(self, sublayer: ir.Sublayer, place: str) -> list[str]:
        """Attention with all its heads, or a feed-forward."""
        if isinstance(sublayer, ir.FFN):
            return self._feed_forward(sublayer, place)
        out = [f"== {place} attention"]
        for stream in (name for name in self.slots if name in sublayer.carry):
            out += self.carry(stream, sublayer.carry[stream])
        for head in sublayer.heads:
            out += [f"-- head {head.name}: {head.query} <- {head.keys}, {weighting_text(head.weighting)}"]
            out += [*self._weights(head), *self._values(head)]
        return out

    def output(self, o: ir.ProgramOutput) -> list[str]:
        """The head whose weights are an answer."""
        if o.head is None:
            return []
        out = [f"== output {o.name}: weights {o.head.query} <- {o.head.keys}, {weighting_text(o.head.weighting)}"]
        out += [*self._weights(o.head), *self._values(o.head)]
        return out if o.scale is None else [*out, *self.matrix("times", o.scale, None, o.head.query)]

    def _feed_forward(self, ffn: ir.FFN, place: str) -> list[str]:
        writes = ", ".join(self.names[ffn.stream][slot] for slot in ffn.writes)
        out = [f"== {place} feed-forward {ffn.stream}: {ffn.function} -> {writes}"]
        out += self.carry(ffn.stream, ffn.carry)
        out += self.matrix("A", ffn.a, None, ffn.stream)
        if ffn.b is not None:
            out += self.matrix("B", ffn.b, None, ffn.stream)
        slots = self.slots[ffn.stream]
        units = hidden(self.tensors[ffn.a], slots)
        return [*out, f"W  ({ffn.out})", *draw(self.tensors[ffn.out], slots, units, self.colour)]

    def _weights(self, head: ir.Head) -> list[str]:
        """What the weights of a head are made of: its score and its masks."""
        out = self._score("", head.score, head)
        for n, mask in enumerate(head.masks):
            if mask.op == "other":
                out.append(f"mask {n + 1}: other tokens only")
            else:
                what = f"{mask.op} 0" if mask.weighting is None else f"best, {weighting_text(mask.weighting)}"
                out += self._score(f" of mask {n + 1} ({what})", mask.score, head)
        return out

    def _values(self, head: ir.Head) -> list[str]:
        """What the weights are multiplied with."""
        if head.weighting.kind in ("lse", "max"):
            writes = ", ".join(self.names[head.query][slot] for slot in head.writes)
            out = [f"V  writes the number to {writes}  ({head.value})"]
        else:
            out = self.matrix("V", head.value, head.query, head.keys)
        if head.self_key:
            out += self.matrix("V of the self key", head.self_key.value, head.query, head.query)
            if head.self_key.row is not None:
                out += self.matrix("score of the self key", head.self_key.row, None, head.query)
        return out

    def _score(self, what: str, score: ir.Score, head: ir.Head) -> list[str]:
        out: list[str] = []
        for part in score.parts:
            factor = "" if part.coefficient is None else f" times {float(self.tensors[part.coefficient]):.6g}"
            out += self.matrix(f"Q{what} {part.kind}{factor}", part.q, None, head.query)
            out += self.matrix(f"K{what} {part.kind}", part.k, None, head.keys)
            if part.kind == "dot":
                out += self._product(what, self.tensors[part.q], self.tensors[part.k], head)
            if part.scale is not None:
                side, name = part.scale
                stream = head.query if side == "query" else head.keys
                out += self.matrix(f"times a number of the {side}", name, None, stream)
            for function in part.factors:
                inside = f"{what} inside {function.function}, which multiplies the part before"
                out += self._score(inside, function.score, head)
        return out

    def _product(self, what: str, q: Array, k: Array, head: ir.Head) -> list[str]:
        """The bilinear form Q'K between slots, where Q and K alone do not show it at a glance."""
        rows, columns = self.slots[head.query], self.slots[head.keys]
        if len(row_groups(q, rows)) == 1 and len(row_groups(k, columns)) == 1:
            return []
        return [f"Q'K{what}  ({head.query} x {head.keys})", *draw(q.T @ k, rows, columns, self.colour)]
