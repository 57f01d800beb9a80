"""Checks that a program is one the runtime can run: `verify(program, shapes)` returns or raises `ModelError`.

Invariants: counts within limits; names unique; slots contiguous; every reference to a stream, slot, input or tensor
resolves; parameters of weightings are complete and in range; tensors fit (`tensor_checks`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from weftc_runtime.errors import ModelError, need, shown
from weftc_runtime.format.program import FFN, HARD, Attend, Head, Input, Program, ProgramOutput, Stream, Weighting
from weftc_runtime.format.tensor_checks import check_shapes

MAX_STREAMS = 64
MAX_SLOTS = 4096  # of one stream
MAX_WIDTH = 1 << 16  # columns of one stream
MAX_TOKENS = 1 << 24  # of a fixed stream
MAX_STEPS = 1 << 14
MAX_SUBLAYERS = 1 << 16
MAX_HEADS = 1 << 16
MAX_PARTS = 1 << 10  # of one score
MAX_LAYERS = 1 << 20
MAX_NUMBER = 10**300  # of a fraction, so that it fits a float64

INITIALISERS = ("random", "spread", "spectral", "first", "copy")
CONDITIONAL = {"distinct": ("erase", "attention"), "bounded": ("members", "offset"), "margin": ("hardmax", "softmax")}
NEEDS_B = frozenset({"product", "select"})
MAY_HAVE_B = frozenset({"product", "select", "unit", "layer"})


def unique(names: Iterable[str], what: str) -> None:
    seen: set[str] = set()
    for name in names:
        need(bool(name), f"{what} has an empty name")
        need(name not in seen, f"{what} {shown(name)} appears twice")
        seen.add(name)


def verify(program: Program, shapes: Mapping[str, tuple[int, ...]] | None = None) -> None:
    """Raises `ModelError` unless the program is well formed and fits tensors of these shapes."""
    _counts(program)
    for stream in program.streams:
        _stream(stream)
    _Checker(program).run()
    if shapes is not None:
        check_shapes(program, shapes)


def _counts(program: Program) -> None:
    need(1 <= len(program.streams) <= MAX_STREAMS, f"{len(program.streams)} streams; a model has 1 to {MAX_STREAMS}")
    steps = list(program.steps())
    need(len(steps) <= MAX_STEPS, f"{len(steps)} steps; the limit is {MAX_STEPS}")
    sublayers = [sub for step in steps for sub in step.sublayers]
    need(len(sublayers) <= MAX_SUBLAYERS, f"{len(sublayers)} sub-layers; the limit is {MAX_SUBLAYERS}")
    heads = sum(len(sub.heads) for sub in sublayers if isinstance(sub, Attend))
    need(heads <= MAX_HEADS, f"{heads} heads; the limit is {MAX_HEADS}")
    need(0 <= program.layers <= MAX_LAYERS, f"{program.layers} layers; the limit is {MAX_LAYERS}")
    unique((stream.name for stream in program.streams), "stream")
    unique((given.name for given in (*program.inputs, *program.noises)), "input")
    unique((output.name for output in program.outputs), "output")
    fields = [slot.name for stream in program.streams for slot in stream.slots if slot.role == "field"]
    unique(fields, "field slot")
    if program.unrolled:
        whole = program.layers > 0 and len(program.layer) % program.layers == 0
        need(whole, f"{len(program.layer)} unrolled steps do not divide into {program.layers} layers")


def _stream(stream: Stream) -> None:
    name = shown(stream.name)
    need(
        stream.size is None or 1 <= stream.size <= MAX_TOKENS,
        f"stream {name} has size {stream.size}; at least 1 is needed",
    )
    need(len(stream.slots) <= MAX_SLOTS, f"stream {name} has {len(stream.slots)} slots; the limit is {MAX_SLOTS}")
    unique((slot.name for slot in stream.slots), f"slot of stream {name}")
    at = 0
    for slot in stream.slots:
        need(slot.width >= 1, f"slot {shown(slot.name)} of stream {name} has width {slot.width}; at least 1 is needed")
        gap = (
            f"slot {shown(slot.name)} of stream {name} starts at column {slot.offset}, but the one before ends at {at}"
        )
        need(slot.offset == at, gap)
        at += slot.width
        need(at <= MAX_WIDTH, f"stream {name} is wider than {MAX_WIDTH} columns")
    need(at >= 1, f"stream {name} has no slots")


class _Checker:
    """The references of one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.streams = {stream.name: stream for stream in program.streams}
        self.slots = {stream.name: {slot.name: slot for slot in stream.slots} for stream in program.streams}

    def run(self) -> None:
        program = self.program
        for stream_name in program.basis:
            need(stream_name in self.streams, f"a basis is for a stream {shown(stream_name)} that does not exist")
        self._inputs()
        self._embedding()
        for stream in program.streams:
            self._derived(stream)
        for path, step in program.places():
            for stream_name, slot in step.writes:
                self._slot(stream_name, slot, path)
                role = self.slots[stream_name][slot].role
                need(role == "field", f"{path} writes slot {shown(slot)}, which is {role}; a step sets fields")
            for index, sublayer in enumerate(step.sublayers):
                where = f"{path}.{index}"
                if isinstance(sublayer, FFN):
                    self._ffn(sublayer, where)
                else:
                    self._attend(sublayer, where)
        for answer in program.answers():
            self._output(answer)
        for number, condition in enumerate(program.conditions):
            need(condition.stream in self.streams, f"condition {number} names a stream that does not exist")
            need(bool(condition.slots) or condition.kind == "margin", f"condition {number} names no slot")
            need(0 <= condition.limit <= MAX_NUMBER, f"condition {number}: its limit is out of range")
            style, choice = CONDITIONAL[condition.kind]
            chosen = program.options.get(style) == choice
            need(
                chosen,
                f"condition {number} ({condition.kind}) belongs to {style}={choice}, which the file does not name",
            )
            for slot in condition.slots:
                self._slot(condition.stream, slot, f"condition {number}")

    def _slot(self, stream: str, slot: str, where: str) -> None:
        need(stream in self.streams, f"{where} names a stream {shown(stream)} that does not exist")
        need(
            slot in self.slots[stream], f"{where} names a slot {shown(slot)} that stream {shown(stream)} does not have"
        )

    def _inputs(self) -> None:
        inputs = {given.name: given for given in self.program.inputs}
        for given in (*self.program.inputs, *self.program.noises):
            where = f"input {shown(given.name)}"
            self._slot(given.stream, given.slot, where)
            slot = self.slots[given.stream][given.slot]
            need(given.kind != "number" or slot.width == 1, f"{where} is a number, but its slot has width {slot.width}")
            for bound in (given.low, given.high):
                need(bound is None or not math.isnan(bound[0]), f"{where} has a bound that is not a number")
            if given.init is not None:
                self._init(given, inputs, where)
        noisy = {"gumbel", "normal", "uniform"}
        for given in self.program.inputs:
            need(given.kind not in noisy, f"input {shown(given.name)} is {given.kind}; that belongs among the noises")
        for given in self.program.noises:
            need(given.kind in noisy, f"noise {shown(given.name)} is {given.kind}; known are gumbel, normal, uniform")
        fed = {given.stream for given in self.program.inputs}
        streams = {stream.name for stream in self.program.streams}
        for pairs in self.program.pairs:
            known = {*pairs.values, pairs.row, pairs.column} <= inputs.keys() and {pairs.rows, pairs.columns} <= streams
            need(known, "entries of pairs name inputs or streams that there are not")
        for stream in self.program.streams:
            known = stream.size is not None or stream.name in fed
            need(known, f"stream {shown(stream.name)} has no size and no input that would tell it")

    def _init(self, given: Input, inputs: Mapping[str, Input], where: str) -> None:
        assert given.init is not None
        method, source = given.init
        need(method in INITIALISERS, f"{where} starts by {shown(method)}; known are {', '.join(INITIALISERS)}")
        need(source is not None and source in inputs, f"{where} starts from {shown(source)}, which is no input")
        other = inputs[str(source)]
        need(other.init is None, f"{where} starts from {shown(source)}, which has an initialiser itself")
        mine, theirs = self.slots[given.stream][given.slot].width, self.slots[other.stream][other.slot].width
        need(mine == theirs, f"{where} has width {mine}, but it starts from {shown(source)} of width {theirs}")

    def _embedding(self) -> None:
        given = {"input": {i.name: i for i in self.program.inputs}, "noise": {i.name: i for i in self.program.noises}}
        filled: set[tuple[str, str]] = set()
        sources: set[str] = set()
        for embed in self.program.embedding:
            where = f"embedding of slot {shown(embed.slot)}"
            self._slot(embed.stream, embed.slot, where)
            need((embed.stream, embed.slot) not in filled, f"{where} appears twice")
            filled.add((embed.stream, embed.slot))
            stream, slot = self.streams[embed.stream], self.slots[embed.stream][embed.slot]
            if embed.kind in given:
                source = given[embed.kind].get(embed.source)
                if source is None:
                    raise ModelError(f"{where} reads {shown(embed.source)}, which is no {embed.kind}")
                place = (source.stream, source.slot) == (embed.stream, embed.slot)
                need(place, f"{where} reads {shown(embed.source)}, which belongs to slot {shown(source.slot)}")
                sources.add(embed.source)
            elif embed.kind == "identity":
                need(stream.size == slot.width, f"{where} has width {slot.width} for {stream.size} tokens")
            else:
                need(slot.width == 1, f"{where} ({embed.kind}) has width {slot.width}; it is one number")
            if embed.kind == "null":
                need(stream.null, f"{where} fills a null token that stream {shown(stream.name)} does not have")
                need(embed.power in (-1, 0, 1), f"{where}: its power is -1, 0 or 1")
                need(not embed.power or embed.source in self.streams, f"{where} counts a stream that does not exist")
            if embed.kind == "count":
                need(embed.source in self.streams, f"{where} counts {shown(embed.source)}, which is no stream")
        for name in (*given["input"], *given["noise"]):
            need(name in sources, f"input {shown(name)} is never embedded")

    def _derived(self, stream: Stream) -> None:
        written: set[str] = set()
        for index, ffn in enumerate(stream.derived):
            where = f"streams.{shown(stream.name)}.derived.{index}"
            self._ffn(ffn, where)
            need(ffn.stream == stream.name, f"{where} acts on another stream, {shown(ffn.stream)}")
            need(bool(ffn.writes), f"{where} writes no slot")
            for name in ffn.writes:
                role = self.slots[stream.name][name].role
                need(role == "derived", f"{where} writes slot {shown(name)}, which is {role}")
                need(name not in written, f"{where} writes slot {shown(name)}, which another one keeps up to date")
                written.add(name)
        for slot in stream.slots:
            kept = slot.role != "derived" or slot.name in written
            need(kept, f"derived slot {shown(slot.name)} of stream {shown(stream.name)} is never computed")

    def _ffn(self, ffn: FFN, where: str) -> None:
        need(ffn.stream in self.streams, f"{where} names a stream {shown(ffn.stream)} that does not exist")
        for slot in ffn.writes:
            self._slot(ffn.stream, slot, where)
        need(ffn.b is not None or ffn.function not in NEEDS_B, f"{where} ({ffn.function}) lacks its tensor b")
        need(ffn.b is None or ffn.function in MAY_HAVE_B, f"{where} ({ffn.function}) has a tensor b it cannot use")

    def _attend(self, attend: Attend, where: str) -> None:
        for stream in attend.carry:
            need(stream in self.streams, f"{where} carries a stream {shown(stream)} that does not exist")
        for stream, slot in attend.writes:
            self._slot(stream, slot, where)
        unique((head.name for head in attend.heads), f"head of {where}")
        for head in attend.heads:
            self._head(head, f"{where}.{shown(head.name)}")
            need(bool(head.value), f"{where}.{shown(head.name)} lacks its value tensor")

    def _head(self, head: Head, where: str) -> None:
        for side in (head.query, head.keys):
            need(side in self.streams, f"{where} names a stream {shown(side)} that does not exist")
        for slot in head.writes:
            self._slot(head.query, slot, where)
        for score in (head.score, *(mask.score for mask in head.masks)):
            parts = tuple(score.nested())
            need(len(parts) <= MAX_PARTS, f"{where} has a score of {len(parts)} parts; the limit is {MAX_PARTS}")
            for part in parts:
                has = part.coefficient is not None
                need(has or part.kind == "dot", f"{where} has an l2 part without a coefficient")
                need(not has or part.kind == "l2", f"{where} has a dot part with a coefficient")
        for mask in head.masks:
            if mask.op == "other":
                need(head.query == head.keys, f"{where} compares tokens of different streams for being the same")
                need(not mask.score.parts, f"{where} has a score on a mask that compares tokens")
            best = mask.weighting is not None
            need((mask.op == "best") == best, f"{where}: a mask of the best has a weighting, and no other")
            if mask.weighting is not None:
                self._weighting(mask.weighting, where)
                need(mask.weighting.kind in HARD, f"{where}: a mask of the best needs a weighting that decides")
        self._weighting(head.weighting, where)

    def _weighting(self, weighting: Weighting, where: str) -> None:
        within = weighting.ties == "within"
        chooses = weighting.kind == "argmax" or (weighting.sharpness is not None and not within)
        need(weighting.ties == "first" or chooses, f"{where}: {weighting.kind} has no tie rule")
        need(0 <= weighting.epsilon <= MAX_NUMBER, f"{where}: a tolerance is at least 0")
        need(within or weighting.epsilon == 0, f"{where}: a tolerance without `ties within`")
        if weighting.kind == "top":
            one = (weighting.count is None) != (weighting.percent is None)
            need(one, f"{where}: top needs a count or a percentage, one of the two")
            need(weighting.count is None or weighting.count >= 1, f"{where}: top keeps at least 1")
            need(weighting.percent is None or 0 <= weighting.percent <= 100, f"{where}: a percentage is from 0 to 100")
        else:
            none = weighting.count is None and weighting.percent is None
            need(none, f"{where}: only top takes a count or a percentage")
        if weighting.kind == "normmax":
            sound = weighting.gamma is not None and 0 < weighting.gamma <= MAX_NUMBER
            need(sound, f"{where}: normmax needs a gamma above 0")
        else:
            need(weighting.gamma is None, f"{where}: only normmax takes a gamma")
        sharp = weighting.sharpness is None or (weighting.kind == "softmax" and 0 < weighting.sharpness <= MAX_NUMBER)
        need(sharp, f"{where}: only a softmax stands for an argmax, at a sharpness above 0")

    def _output(self, output: ProgramOutput) -> None:
        where = f"output {shown(output.name)}"
        need(output.stream in self.streams, f"{where} names a stream {shown(output.stream)} that does not exist")
        if output.kind == "pattern":
            if output.head is None:
                raise ModelError(f"{where} is a pattern without a head")
            self._head(output.head, where)
            need(output.head.query == output.stream, f"{where} belongs to another stream than its head's queries")
            number = output.head.weighting.kind in ("lse", "max")
            need(not number, f"{where}: {output.head.weighting.kind} has no weights to show")
            need(output.again is None, f"{where} is a pattern; patterns are always made on the final state")
            return
        need(output.head is None and output.scale is None, f"{where} has a head, but is no pattern")
        self._slot(output.stream, output.slot, where)
        width = self.slots[output.stream][output.slot].width
        need(
            output.kind not in ("number", "total", "common") or width == 1,
            f"{where} is a number, but its slot has width {width}",
        )
        steps = len(self.program.layer)
        inside = output.again is None or 0 <= output.again < steps
        need(inside, f"{where} is to be made again by step {output.again}, but a layer has {steps} steps")
