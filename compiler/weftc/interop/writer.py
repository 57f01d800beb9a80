"""A checkpoint -> the text of a Python module that runs it with torch alone, and the tensors it reads.

    points = F.linear(points, self.layer_0_0_carry_points) + added        one statement per matrix, in the file's order

The module has static control flow: no branch depends on numbers, so it can be traced, exported and compiled.
"""

from __future__ import annotations

import inspect
import keyword
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import FunctionType
from typing import TYPE_CHECKING, Any

from weftc.circuits.wiring import DerivedOrder
from weftc.core.errors import InputError
from weftc.interop import parts
from weftc_runtime.format.program import FFN, HARD, Attend, Embed, Head, Input, Mask, Program, Score, Weighting

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from weftc_runtime.format.checkpoint import Checkpoint

    Tensors = dict[str, npt.NDArray[np.float64]]

RESERVED = {*keyword.kwlist, *keyword.softkwlist, "torch", "F", "nn", "self", "batch", "layers", "margin", "dtype", "T"}
FUNCTIONS = {
    "reciprocal": "torch.reciprocal({})",
    "log": "torch.log({})",
    "exp": "torch.exp({})",
    "sqrt": "torch.sqrt({})",
    "relu": "torch.relu({})",
    "relu2": "torch.relu({}).square()",
    "tanh": "torch.tanh({})",
    "abs": "torch.abs({})",
    "sigmoid": "torch.sigmoid({})",
    "softplus": "F.softplus({}, threshold=700.0)",
    "copy": "{}",
}


@dataclass(frozen=True)
class Written:
    """A module: its text, its tensors by attribute, and what it takes and gives."""

    text: str
    tensors: Tensors
    class_name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    masks: Mapping[str, str]  # set of any size -> the argument that says which of its tokens there are
    attributes: Mapping[str, str]  # tensor of the file -> its attribute


def write(checkpoint: Checkpoint, layers: int | None = None, card: str = "") -> Written:
    """The module of a checkpoint, with `layers` layers unless its user asks for another number."""
    return _Writer(checkpoint, checkpoint.program.layers if layers is None else layers).written(card)


@dataclass
class _Names:
    """Words of the file -> identifiers, each different."""

    taken: set[str] = field(default_factory=lambda: {*RESERVED, *(name for name in vars(parts) if name[0] != "_")})
    known: dict[str, str] = field(default_factory=dict)

    def of(self, kind: str, word: str) -> str:
        key = f"{kind} {word}"
        if key not in self.known:
            plain = re.sub(r"\W+", "_", word, flags=re.ASCII).strip("_") or kind
            plain = plain if plain[0].isalpha() else f"{kind}_{plain}"
            name, number = plain, 2
            while name in self.taken:
                name, number = f"{plain}_{number}", number + 1
            self.taken.add(name)
            self.known[key] = name
        return self.known[key]


class _Writer:
    def __init__(self, checkpoint: Checkpoint, layers: int) -> None:
        self.program: Program = checkpoint.program
        self.arrays, self.layers = checkpoint.tensors, layers
        self.names, self.tensor_names = _Names(), _Names()
        self.lines: list[str] = []
        self.used: set[str] = set()  # parts
        self.read: dict[str, str] = {}  # tensor -> attribute
        for stream in self.program.streams:
            self.names.of("tokens", stream.name)
        self.derived = DerivedOrder(self.program, self.arrays)

    # ---- words -------------------------------------------------------------------------------------------------------

    def stream(self, name: str) -> str:
        return self.names.of("tokens", name)

    def mask_name(self, name: str) -> str:
        return self.names.of("mask", f"{self.stream(name)}_mask")

    def input(self, name: str) -> str:
        return self.names.of("input", name)

    def tensor(self, name: str) -> str:
        self.read[name] = self.tensor_names.of("tensor", name)
        return f"self.{self.read[name]}"

    def part(self, name: str) -> str:
        self.used.add(name)
        return name

    def say(self, line: str = "", indent: int = 2) -> None:
        self.lines.append("    " * indent + line if line else "")

    def linear(self, z: str, name: str) -> str:
        row = "[None]" if self.arrays[name].ndim == 1 else ""
        return f"F.linear({z}, {self.tensor(name)}{row})"

    # ---- the module --------------------------------------------------------------------------------------------------

    def written(self, card: str) -> Written:
        program = self.program
        class_name = "".join(word.capitalize() for word in re.findall(r"[A-Za-z0-9]+", program.name)) or "Exported"
        class_name = class_name if class_name[0].isalpha() else f"Model{class_name}"
        self._forward()
        body, self.lines = self.lines, []
        given = [self.input(one.name) for one in (*program.inputs, *program.noises)]
        text = "\n".join(
            [
                f'"""{_quoted(program.name)}: written by Weft; needs torch and nothing else.',
                "",
                *([*card.rstrip().split("\n"), ""] if card else []),
                *self._about(),
                '"""',
                "",
                "from __future__ import annotations",
                "",
                "import json",
                "from pathlib import Path",
                "",
                "import torch",
                "import torch.nn.functional as F",
                "from torch import Tensor, nn",
                "",
                *self._copied(),
                "",
                "",
                f"class {class_name}(nn.Module):",
                f'    """{_quoted(program.name)} as a transformer; see the head of this file."""',
                "",
                "    def __init__(self, path: str | Path | None = None, dtype: torch.dtype = torch.float64) -> None:",
                "        super().__init__()",
                '        path = Path(__file__).with_suffix(".safetensors") if path is None else Path(path)',
                "        for name, tensor in tensors_of(path).items():",
                "            self.register_buffer(name, tensor.to(dtype))",
                "",
                *body,
                "",
                "",
                "def tensors_of(path: Path) -> dict[str, Tensor]:",
                '    """The tensors of a safetensors file: a length, a JSON header, then the numbers."""',
                "    raw = path.read_bytes()",
                '    length = int.from_bytes(raw[:8], "little")',
                "    header = json.loads(raw[8 : 8 + length])",
                "    found = {}",
                "    for name, entry in header.items():",
                '        if name != "__metadata__":',
                '            start, end = (8 + length + offset for offset in entry["data_offsets"])',
                "            flat = torch.zeros(0, dtype=torch.float64)",
                "            if end > start:",
                "                flat = torch.frombuffer(bytearray(raw[start:end]), dtype=torch.float64)",
                '            found[name] = flat.reshape(entry["shape"])',
                "    return found",
                "",
            ]
        )
        tensors = {attribute: self.arrays[name] for name, attribute in sorted(self.read.items(), key=lambda x: x[1])}
        outputs = (*self._output_names(), "margin")
        masks = {stream.name: self.mask_name(stream.name) for stream in program.streams if stream.size is None}
        return Written(text, tensors, class_name, tuple(given), outputs, masks, self.read)

    def _output_names(self) -> list[str]:
        """Outputs as the spec names them, and the objective."""
        found = [one.name for one in self.program.outputs]
        if "margin" in found:
            raise InputError("an export has an output `margin` of its own: give the spec's output another name")
        if self.program.objective is not None:
            found.append(next(name for name in ("objective", "(objective)") if name not in found))
        return found

    def _about(self) -> Iterator[str]:
        for stream in self.program.streams:
            slots = " | ".join(f"{slot.name} {slot.width}" for slot in stream.slots)
            size = "any number of tokens" if stream.size is None else f"{stream.size} tokens"
            told = f"{_quoted(stream.name)} ({size}): [ {_quoted(slots)} ]"
            yield from textwrap.wrap(told, 110, initial_indent="    ", subsequent_indent="        ")

    def _copied(self) -> Iterator[str]:
        """The parts that are called, and what they call, in the order of their module."""
        every = {name: value for name, value in vars(parts).items() if isinstance(value, FunctionType)}
        wanted, size = set(self.used), -1
        while len(wanted) > size:
            size = len(wanted)
            wanted |= {other for name in wanted for other in every if other in every[name].__code__.co_names}
        for name, value in every.items():
            if name in wanted:
                yield "\n\n" + inspect.getsource(value).rstrip()

    # ---- forward -----------------------------------------------------------------------------------------------------

    def _forward(self) -> None:
        program = self.program
        inputs = [f"{self.input(one.name)}: Tensor" for one in (*program.inputs, *program.noises)]
        free = [stream for stream in program.streams if stream.size is None]
        options = [f"{self.mask_name(stream.name)}: Tensor | None = None" for stream in free]
        unrolled = program.unrolled
        if not unrolled:
            options.append(f"layers: int = {self.layers}")
        self.say("def forward(", 1)
        for word in ("self", *inputs, *options):
            self.say(f"{word},", 2)
        self.say(") -> dict[str, Tensor]:", 1)
        self.say('"""' + self._contract() + '"""')
        self.say("margins: list[Tensor] = []  # how clear every decision was")
        self._embed()
        for index, step in enumerate(program.prelude):
            self._step(f"prelude.{index}", step.sublayers, step.writes, step.equations, 2)
        if unrolled:
            for index, step in enumerate(program.layer):
                self._step(f"layer.{index}", step.sublayers, step.writes, step.equations, 2, index)
        else:
            self.say("for layer in range(layers):")
            self._noise("layer", 3)
            if not program.layer:
                self.say("pass", 3)
            for index, step in enumerate(program.layer):
                self._step(f"layer.{index}", step.sublayers, step.writes, step.equations, 3)
        for index, step in enumerate(program.readout):
            self._step(f"readout.{index}", step.sublayers, step.writes, step.equations, 2)
        self._answers()

    def _contract(self) -> str:
        def shape(one: Input, noise: bool) -> str:
            width = self.program.stream(one.stream).slot(one.slot).width
            flat = one.kind == "number" or (one.kind in ("gumbel", "normal", "uniform") and width == 1)
            size = self.program.stream(one.stream).size
            axes = f"{'layers, ' if noise else ''}..., {self.stream(one.stream) if size is None else size}"
            return f"{self.input(one.name)} ({axes}{'' if flat else f', {width}'})"

        told = [shape(one, False) for one in self.program.inputs] + [shape(one, True) for one in self.program.noises]
        return f"{'; '.join(told)}. Masks (..., tokens) are True where there is a token."

    def _first(self) -> str:
        one = (*self.program.inputs, *self.program.noises)[0]
        return self._rows(one, noise=not self.program.inputs)

    def _rows(self, one: Input, noise: bool = False) -> str:
        name = self.input(one.name) + ("[0]" if noise else "")
        return f"{name}.unsqueeze(-1)" if self._flat(one) else name

    def _flat(self, one: Input) -> bool:
        width = self.program.stream(one.stream).slot(one.slot).width
        return one.kind == "number" or (one.kind in ("gumbel", "normal", "uniform") and width == 1)

    def _embed(self) -> None:
        program = self.program
        fills: dict[tuple[str, str], Embed] = {(one.stream, one.slot): one for one in program.embedding}
        given = {(one.stream, one.slot): one for one in program.inputs}
        sized: dict[str, str] = {}
        for noise, every in ((False, program.inputs), (True, program.noises)):
            for one in every:
                sized.setdefault(one.stream, f"{self._rows(one, noise)}.shape[-2]")
        self.say(f"one = torch.ones_like({self._first()}[..., :1, :1])  # (..., 1, 1): the problems of a batch")
        for stream in program.streams:
            size = str(stream.size) if stream.size is not None else sized[stream.name]
            columns = []
            for slot in stream.slots:
                place = (stream.name, slot.name)
                ones = f"one.expand(*one.shape[:-2], {size}, {slot.width})"
                kind = fills[place].kind if place in fills else ""
                if place in given:
                    columns.append(self._rows(given[place]))
                elif kind == "one":
                    columns.append(ones)
                elif kind == "identity":
                    columns.append(f"torch.eye({size}, dtype=one.dtype, device=one.device) * one")
                elif kind == "position":
                    columns.append(f"torch.arange(1, {size} + 1, device=one.device).to(one.dtype)[:, None] * one")
                elif kind == "count":
                    columns.append(f"{ones} * {self._count(fills[place].source, sized)}")
                else:
                    columns.append(f"torch.zeros_like({ones})")
            self.say(f"{self.stream(stream.name)} = torch.cat([")
            for column in columns:
                self.say(f"{column},", 3)
            self.say("], -1)")
            if stream.null:
                self._null_token(stream.name, fills, sized)
        for name, basis in program.basis.items():
            self.say(f"{self.stream(name)} = {self.linear(self.stream(name), basis)}")
        self._remake(self.derived.first(), 2)

    def _count(self, stream: str, sized: Mapping[str, str]) -> str:
        size = self.program.stream(stream).size
        if size is not None:
            return str(size)
        self.used.add("number_of")
        return f"number_of({self.mask_name(stream)}, {sized[stream]}, one)"

    def _null_token(self, name: str, fills: Mapping[tuple[str, str], Embed], sized: Mapping[str, str]) -> None:
        columns = []
        for slot in self.program.stream(name).slots:
            embed = fills.get((name, slot.name))
            if embed is not None and embed.kind == "null":
                count = f" * ({self._count(embed.source, sized)} * one) ** {embed.power}" if embed.power else ""
                columns.append(f"one{count}")
            else:
                columns.append(f"torch.zeros_like(one.expand(*one.shape[:-2], 1, {slot.width}))")
        self.say(f"{self._null(name)} = torch.cat([{', '.join(columns)}], -1)  # one more key, never a query")

    def _null(self, name: str) -> str:
        return self.names.of("tokens", f"{self.stream(name)}_null")

    def _noise(self, layer: str, indent: int) -> None:
        for one in self.program.noises:
            columns = self.program.stream(one.stream).slot(one.slot).columns
            z, array = self.stream(one.stream), f"{self.input(one.name)}[{layer}]"
            array = f"{array}.unsqueeze(-1)" if self._flat(one) else array
            self.say(f"slots = {self._slots(one.stream)}", indent)
            before, after = f"slots[..., :{columns.start}]", f"slots[..., {columns.stop}:]"
            self.say(f"{z} = torch.cat([{before}, {array}, {after}], -1)", indent)
            if one.stream in self.program.basis:
                self.say(f"{z} = {self.linear(z, self.program.basis[one.stream])}", indent)
        self._remake(self.derived.after([(one.stream, one.slot) for one in self.program.noises]), indent)

    def _step(
        self, path: str, sublayers: Any, writes: Any, equations: tuple[str, ...], indent: int, layer: int | None = None
    ) -> None:
        if layer is not None and self.program.noises:
            each = len(self.program.layer) // self.program.layers
            if layer % each == 0:
                self._noise(str(layer // each), indent)
        self.say("", indent)
        for equation in equations or (path,):
            self.say(f"# {_quoted(equation)}", indent)
        for sublayer in sublayers:
            if isinstance(sublayer, FFN):
                self._feed_forward(sublayer, indent)
            else:
                self._attend(sublayer, indent)
        self._remake(self.derived.after(writes, sublayers), indent)

    def _remake(self, ffns: Iterator[FFN], indent: int) -> None:
        for ffn in ffns:
            self._feed_forward(ffn, indent)

    def _feed_forward(self, ffn: FFN, indent: int) -> None:
        z = self.stream(ffn.stream)
        a = self.linear(z, ffn.a)
        b = None if ffn.b is None else self.linear(z, ffn.b)
        match ffn.function:
            case "product":
                value = f"{a} * {b}"
            case "select":
                value = f"{self.part('select')}({a}, {b})"
            case "unit" | "layer":
                self.say(f"vector = {a if ffn.function == 'unit' else self.part('centred') + f'({a})'}", indent)
                self.say(f"terms = F.linear({z}.abs(), {self.tensor(ffn.a)}.abs())", indent)
                self.say(f"margins.append({self.part('cancelled')}(vector, terms))", indent)
                value = f"{self.part('unit')}(vector, {b})"
            case function:
                value = FUNCTIONS[function].format(a)
        stream = self.program.stream(ffn.stream)
        if all(stream.slot(slot).role == "derived" for slot in ffn.writes):
            value = f"{self.part('settled')}({value})"
        self.say(f"hidden = {value}", indent)
        self.say(f"{z} = {self.linear(z, ffn.carry)} + {self.linear('hidden', ffn.out)}", indent)

    # ---- attention ---------------------------------------------------------------------------------------------------

    def _attend(self, attend: Attend, indent: int) -> None:
        added: dict[str, list[str]] = {}
        for head in attend.heads:
            name = self.names.of("added", f"added_{head.name}")
            self._head(head, name, indent)
            added.setdefault(head.query, []).append(name)
        for stream in self.program.streams:
            if stream.name in attend.carry or stream.name in added:
                z = self.stream(stream.name)
                carried = self.linear(z, attend.carry[stream.name]) if stream.name in attend.carry else z
                self.say(f"{z} = {' + '.join([carried, *added.get(stream.name, [])])}", indent)

    def _score(self, score: Score, name: str, q: str, k: str, indent: int, decides: bool = False) -> None:
        """Says a score, one line per matrix. `decides`: and whether it is computed without rounding, `exactly`."""
        decides = decides and self._may_be_exact(score)
        if not score.parts:
            self.say(f"{name} = torch.zeros_like({q}[..., :1] + {k}[..., :1].transpose(-1, -2))", indent)
        if decides:
            self.say("exactly = one.flatten()[0] == 1", indent)
        for number, part in enumerate(score.parts):
            kind = self.part("squared_distance" if part.kind == "l2" else "inner_product")
            self.say(f"q, k = {self.linear(q, part.q)}, {self.linear(k, part.k)}", indent)
            term = f"{kind}(q, k)"
            if decides:
                self.say(f"exactly = exactly & {self.part('exact')}(q, k)", indent)
            if part.coefficient is not None:
                term = f"{self.tensor(part.coefficient)} * {term}"
            if part.scale is not None:
                side, row = part.scale
                factor = self.linear(q, row) if side == "query" else f"{self.linear(k, row)}.transpose(-1, -2)"
                self.say(f"factor = {factor}", indent)
                if decides:
                    self.say(f"exactly = exactly & {self.part('exact')}(factor, factor)", indent)
                term = f"{term} * factor"
            if part.factors:
                plain = f"{name}_{number}"
                self.say(f"{plain} = {term}", indent)
                term = plain
            for place, function in enumerate(part.factors):
                inside = f"{name}_{number}_{place}"
                self._score(function.score, inside, q, k, indent)
                term = f"{term} * {FUNCTIONS[function.function].format(inside)}"
            self.say(f"{name} = {f'{name} + ' if number else ''}{term}", indent)

    def _may_be_exact(self, score: Score) -> bool:
        """Whether a score of short binary fractions is one: no function, and short coefficients."""
        coefficients = [float(self.arrays[part.coefficient]) for part in score.parts if part.coefficient is not None]
        return not score.functions and all(c * 16 == round(c * 16) and abs(c) <= 16 for c in coefficients)

    def _margin(self, score: Score, clear: str, indent: int) -> None:
        """Says how clear a decision by a score was."""
        told = f"{self.part('unless_exact')}(exactly, {clear})" if self._may_be_exact(score) else clear
        self.say(f"margins.append({told})", indent)

    def _eligible(self, head: Head, q: str, k: str, indent: int) -> bool:
        """Says which keys count (`eligible` None: all); whether masks of the file restrict them."""
        terms: list[str] = []
        for mask in head.masks:
            if mask.weighting is None:
                terms.append(self._condition(mask, q, k, indent))
                continue
            self._there(head, terms, indent)
            name = self._compared(mask, q, k, indent)
            self.say(f"eligible = {self.part('everywhere')}(eligible, {name})", indent)
            self.say(f"best, _, clear = {self._decided(mask.weighting, name)}", indent)
            self._margin(mask.score, "clear", indent)
            terms = ["eligible", "(best > 0)"]
        self._there(head, terms, indent)
        return bool(terms)

    def _there(self, head: Head, terms: list[str], indent: int) -> None:
        """Says `eligible`: the keys that there are, and that meet conditions."""
        self.say(f"eligible = {' & '.join(terms) or None}", indent)
        if self.program.stream(head.keys).size is None:
            mask = self.mask_name(head.keys)
            there = f"{mask}.unsqueeze(-2)"
            if self.program.stream(head.keys).null:
                there = f"F.pad({there}, (0, 1), value=True)"
            self.say(f"if {mask} is not None:", indent)
            self.say(f"eligible = eligible & {there}" if terms else f"eligible = {there}", indent + 1)

    def _condition(self, mask: Mask, q: str, k: str, indent: int) -> str:
        if mask.op == "other":
            return f"{self.part('different')}({q})"
        name = self._compared(mask, q, k, indent)
        self._margin(mask.score, f"{self.part('nearest_zero')}({name})", indent)
        return f"({name} {mask.op} 0)"

    def _compared(self, mask: Mask, q: str, k: str, indent: int) -> str:
        """Says the score of a condition; its name."""
        name = self.names.of("compared", f"compared_{len(self.names.known)}")
        self._score(mask.score, name, q, k, indent, decides=True)
        return name

    def _head(self, head: Head, name: str, indent: int) -> None:
        q, k = self.stream(head.query), self.stream(head.keys)
        self.say(f"# {_quoted(head.name)}: {_quoted(head.origin)}".rstrip(": "), indent)
        if self.program.stream(head.keys).null:
            self.say(f"keys = torch.cat([{k}, {self._null(head.keys)}], -2)", indent)
            k = "keys"
        restricted = self._eligible(head, q, k, indent)
        own = head.self_key
        if head.weighting.kind == "softmax" and (own is None or own.row is None):
            self._attention(head, name, q, k, restricted, indent)
            return
        none = self._weights(head, q, k, indent)
        if head.weighting.kind in ("lse", "max"):
            self.say(f"{name} = {self.linear('weights', head.value)}", indent)
        elif own is not None and own.row is not None:
            value = f"weights[..., :-1] @ {self.linear(k, head.value)}" if head.value else f"torch.zeros_like({q})"
            mine = f" + weights[..., -1:] * {self.linear(q, own.value)}" if own.value else ""
            self.say(f"{name} = {value}{mine}", indent)
        else:
            value = f"weights @ {self.linear(k, head.value)}" if head.value else f"torch.zeros_like({q})"
            self.say(f"{name} = {value}", indent)
        if none:
            self._otherwise(head, name, q, restricted, indent)

    def _otherwise(self, head: Head, name: str, q: str, restricted: bool, indent: int) -> None:
        own = head.self_key
        if own is not None and own.row is None:
            instead = self.linear(q, own.value) if own.value else f"torch.zeros_like({name})"
            self.say(f"{name} = {self.part('unless')}(none, {name}, {instead})", indent)
        elif restricted or head.weighting.kind == "normalize":
            self.say(f"{name} = {self.part('unless')}(none, {name}, None)", indent)

    def _attention(self, head: Head, name: str, q: str, k: str, restricted: bool, indent: int) -> None:
        """A softmax head as ordinary attention: distances, taken from differences, are its bias."""
        queries, keys = [], []
        distances = Score(tuple(part for part in head.score.parts if part.kind == "l2" or part.factors))
        for number, part in enumerate(part for part in head.score.parts if part not in distances.parts):
            a, b = f"q{number}", f"k{number}"
            self.say(f"{a}, {b} = {self.linear(q, part.q)}, {self.linear(k, part.k)}", indent)
            if part.scale is not None:
                side, row = part.scale
                scaled, z = (a, q) if side == "query" else (b, k)
                self.say(f"{scaled} = {scaled} * {self.linear(z, row)}", indent)
            queries.append(a)
            keys.append(b)
        if not queries:
            queries, keys = [f"torch.zeros_like({q}[..., :1])"], [f"torch.zeros_like({k}[..., :1])"]
        if distances.parts:
            self._score(distances, "bias", q, k, indent)
        value = self.linear(k, head.value)
        bias = "bias" if distances.parts else None
        self.say(f"values = {value}", indent)
        called = f"{self.part('attention')}({_joined(queries)}, {_joined(keys)}, values, {bias}, eligible)"
        self.say(f"{name}, none = {called}", indent)
        self._otherwise(head, name, q, restricted, indent)

    def _weights(self, head: Head, q: str, k: str, indent: int) -> bool:
        """Says `weights` (one number per query for lse and max); whether it says `none` too."""
        how = head.weighting
        own = head.self_key
        decides = how.kind in ("argmax", "top") and how.ties != "within" and (own is None or own.row is None)
        self._score(head.score, "score", q, k, indent, decides)
        self.say(f"eligible = {self.part('everywhere')}(eligible, score)", indent)
        if own is not None and own.row is not None:
            self.say(f"score = torch.cat([score, {self.linear(q, own.row)}], -1)", indent)
            self.say("eligible = F.pad(eligible, (0, 1), value=True)", indent)
        if how.kind not in (*HARD, "normalize"):
            words = {"sum": "plain_sum", "exp": "exponential", "lse": "log_sum_exp", "max": "largest"}
            word = self.part(words.get(how.kind, how.kind))
            alone = how.kind in ("sum", "exp")
            self.say(f"weights{'' if alone else ', none'} = {word}(score, eligible)", indent)
            return not alone
        self.say(f"weights, none, clear = {self._decided(how, 'score')}", indent)
        if decides:
            self._margin(head.score, "clear", indent)
        else:
            self.say("margins.append(clear)", indent)
        return True

    def _decided(self, how: Weighting, score: str) -> str:
        """Weights, which queries have no key, and how clear that was."""
        match how.kind:
            case "argmax" if how.ties == "within":
                return f"{self.part('argmax_within')}({score}, eligible, {_number(how.epsilon)})"
            case "argmax":
                return f"{self.part('argmax')}({score}, eligible, {how.ties!r})"
            case "top" if how.count is not None:
                return f"{self.part('best_count')}({score}, eligible, {how.count})"
            case "top":
                assert how.percent is not None
                share = f"{how.percent.numerator}, {how.percent.denominator}"
                return f"{self.part('best_percent')}({score}, eligible, {share})"
            case "normmax":
                assert how.gamma is not None
                return f"{self.part('normmax')}({score}, eligible, {_number(how.gamma)})"
        return f"{self.part('normalize')}({score}, eligible)"

    # ---- what comes out ----------------------------------------------------------------------------------------------

    def _answers(self) -> None:
        self.say()
        self.say("margin = torch.stack(margins).amin(0) if margins else torch.full_like(one.flatten()[0], torch.inf)")
        found = []
        for number, (word, output) in enumerate(zip(self._output_names(), self.program.answers(), strict=True)):
            name = f"output_{number}"
            if output.kind == "pattern":
                self._pattern(output, name)
            else:
                self._columns(output, name)
            found.append(f"{word!r}: {name}")
        self.say(f"return {{{', '.join([*found, repr('margin') + ': margin'])}}}")

    def _pattern(self, output: Any, name: str) -> None:
        head = output.head
        q, k = self.stream(head.query), self.stream(head.keys)
        if self.program.stream(head.keys).null:
            self.say(f"keys = torch.cat([{k}, {self._null(head.keys)}], -2)")
            k = "keys"
        self._eligible(head, q, k, 2)
        self._weights(head, q, k, 2)
        self.say(f"{name} = weights[..., :{self.stream(head.keys)}.shape[-2]]")
        if output.scale is not None:
            self.say(f"{name} = {name} * {self.linear(q, output.scale)}")

    def _slots(self, stream: str) -> str:
        """The residual of a stream as its slots describe it."""
        z = self.stream(stream)
        if stream not in self.program.basis:
            return z
        basis = self.tensor(self.program.basis[stream])
        return f"torch.linalg.solve({basis}, {z}.transpose(-1, -2)).transpose(-1, -2)"

    def _columns(self, output: Any, name: str) -> None:
        z, program = self._slots(output.stream), self.program
        columns = program.stream(output.stream).slot(output.slot).columns
        part = f"{z}[..., {columns.start}:{columns.stop}]"
        match output.kind:
            case "total":
                self.say(f"{name} = {part}[..., 0]")
                if program.stream(output.stream).size is None:
                    mask = self.mask_name(output.stream)
                    self.say(f"{name} = {name} if {mask} is None else {name} * {mask}")
                self.say(f"{name} = {name}.sum(-1)")
            case "common":
                self.say(f"{name} = {part}[..., 0, 0]")
            case "number":
                self.say(f"{name} = {part}[..., 0]")
            case "onehot":
                self.say(f"{name} = {part}.argmax(-1)  # the index of the one")
            case _:
                self.say(f"{name} = {part}")


def _joined(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"torch.cat([{', '.join(names)}], -1)"


def _number(value: Any) -> str:
    """A fraction as a tensor expression: rounded once, whatever the dtype."""
    return f"one * {value.numerator} / {value.denominator}"


def _quoted(text: str) -> str:
    """Text for comments and docstrings: one line, nothing that ends them."""
    return text.replace("\\", "\\\\").replace('"""', "'''").replace("\n", " ")
