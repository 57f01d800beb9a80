"""A checkpoint -> an `nn.Module` that runs it: named inputs in, named outputs out.

The parameters are the tensors of the checkpoint, kept in float64; `dtype` is how the state is stored between steps and
how outputs are given. They are frozen unless `trainable`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from weft_runtime.attention import HeadRun
from weft_runtime.checkpoint import Checkpoint
from weft_runtime.errors import RunError, shown, suggestion
from weft_runtime.exact import Exact
from weft_runtime.hooks import Block, Named, attribute, blocks
from weft_runtime.inputs import Batch, Layout, Reader
from weft_runtime.ir import Input, Output, Program, Step
from weft_runtime.noise import noise as draw
from weft_runtime.reference import Problem, Reference
from weft_runtime.results import Fields, OneHot, Outputs, Report, Trace
from weft_runtime.scores import linear
from weft_runtime.sums import exact_sum

DTYPES = (torch.float32, torch.float64)
Seed = int | Sequence[int] | None
Arrays = Mapping[str, Any] | None


def load(
    source: str | os.PathLike[str] | Checkpoint,
    dtype: torch.dtype = torch.float64,
    device: str | torch.device = "cpu",
    trainable: bool = False,
) -> Model:
    """The model of a checkpoint, or of the file at a path."""
    checkpoint = source if isinstance(source, Checkpoint) else Checkpoint.load(source)
    return Model(checkpoint, dtype, device, trainable)


@dataclass(slots=True)
class _Run:
    """One run under way: its backend, its batch, and what the caller asked for."""

    engine: Reference
    batch: Batch
    problems: list[Problem]
    noise: Mapping[str, Tensor]
    layers: list[int] = field(default_factory=list)
    stable: list[bool] = field(default_factory=list)
    fields: list[Fields] = field(default_factory=list)
    seen: dict[str, Tensor] = field(default_factory=dict)


class Model(nn.Module):
    """A compiled algorithm as a module. See `forward` for how to call it."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        dtype: torch.dtype = torch.float64,
        device: str | torch.device = "cpu",
        trainable: bool = False,
    ) -> None:
        super().__init__()
        _check_dtype(dtype)
        program = checkpoint.program
        program.verify({name: np.shape(array) for name, array in checkpoint.tensors.items()})
        self.program: Program = program
        self.dtype = dtype
        self.spec_name, self.spec_text = checkpoint.spec_name, checkpoint.spec_text
        self.dims, self.params = dict(checkpoint.dims), dict(checkpoint.params)
        self.report = Report()
        self.weights = Named()
        self._paths: dict[str, str] = {}
        for name, array in checkpoint.tensors.items():
            tensor = torch.tensor(np.asarray(array), dtype=torch.float64, device=device)
            self._paths[name] = _register(self.weights, name, nn.Parameter(tensor, requires_grad=trainable))
        streams = tuple(stream.name for stream in program.streams)
        self.prelude = blocks(program.prelude, streams)
        self.blocks = blocks(program.layer, streams)
        self.readout = blocks(program.readout, streams)

    # ------------------------------------------------------------------ as a module
    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Model:
        """Moves the model; a change of dtype changes how state is stored, the weights stay float64."""
        dtype = fn(torch.empty(0, dtype=self.dtype)).dtype
        _check_dtype(dtype)

        def move(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            return moved if moved.dtype == tensor.dtype else tensor.to(moved.device)

        super()._apply(move, recurse)  # type: ignore[no-untyped-call]
        self.dtype = dtype
        return self

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(iter(self.parameters())).device

    def tensor(self, name: str) -> nn.Parameter:
        """The parameter that holds a tensor of the checkpoint."""
        if name not in self._paths:
            raise KeyError(f"no tensor {name!r}{suggestion(name, self._paths)}")
        return self.weights.get_parameter(self._paths[name])

    def extra_repr(self) -> str:
        inputs = ", ".join(item.name for item in self.program.inputs)
        return f"{self.program.name}: {inputs} -> {', '.join(output.name for output in self.program.outputs)}"

    # ------------------------------------------------------------------ running
    def forward(
        self,
        inputs: Arrays = None,
        /,
        *,
        layers: int | None = None,
        seed: Seed = None,
        mask: Arrays = None,
        noise: Arrays = None,
        until_stable: bool = False,
        limit: int = 300,
        **named: Any,
    ) -> Outputs:
        """Runs the algorithm: `model(x=..., c=...)` -> outputs by name, as the layers hold them.

        layers        how many; as compiled when not given. until_stable: as many as change something, up to `limit`
        seed          for initialisers and random fields; one for all problems of a batch, or one each
        mask          {token set: bool[batch, tokens]} for batches of problems of different sizes
        noise         {random field: array [layers, tokens, columns]} instead of the generator
        """
        run = self._run(_joined(inputs, named), layers, seed, mask, noise, until_stable, limit)
        return self._outputs(run, again=False)

    def final(self, inputs: Arrays = None, /, **options: Any) -> Outputs:
        """Like a call, but outputs made from values that changed later in the layer are made once more at the end."""
        named, settings = _sorted(inputs, options)
        return self._outputs(self._run(named, **settings), again=True)

    def objective(self, inputs: Arrays = None, /, **options: Any) -> Tensor:
        """The objective of the final state: a number, or one per problem of a batch."""
        if self.program.objective is None:
            raise RunError(f"{shown(self.program.name)} states no objective")
        named, settings = _sorted(inputs, options)
        run = self._run(named, **settings)
        self._read_out(run)
        return cast(Tensor, self._answer(self.program.objective, run, run.problems))

    def trace(self, inputs: Arrays = None, /, *, patterns: bool = False, **options: Any) -> Trace:
        """Every slot of every stream after every sub-layer, and on request every attention pattern."""
        named, settings = _sorted(inputs, options)
        run = self._run(named, **settings, traced=True, patterns=patterns)
        outputs = self._outputs(run, again=False)
        return Trace(run.seen, run.fields, outputs)

    def start(self, inputs: Arrays = None, /, *, seed: Seed = None, mask: Arrays = None, **named: Any) -> Fields:
        """The stored fields before the first layer."""
        run = self._begin(_joined(inputs, named), seed, mask, None, 0)
        return self._fields(run)

    def advance(
        self,
        fields: Mapping[str, Any],
        layer: int,
        *,
        seed: Seed = None,
        mask: Arrays = None,
        noise: Arrays = None,
    ) -> Fields:
        """One layer from stored fields; fields that no layer has set yet may be absent."""
        if not isinstance(layer, int) or layer < 0:
            raise RunError(f"layer is {layer!r}; layers are counted from 0")
        program, known = self.program, self._field_inputs()
        reader = Reader(program, known, self.dtype, self.device, may_start=False, checked=True)
        for item in program.inputs:
            if item.slot not in fields:
                raise RunError(f"field {shown(item.slot)} is missing; give every input of the model")
        batch = reader.read(fields, mask, seed)
        run = self._enter(batch, {item.name: item.slot for item in known}, noise, layer + 1)
        self._layer(run, layer, run.problems, skip=set(fields))
        return self._fields(run)

    # ------------------------------------------------------------------ inside a run
    def _run(
        self,
        given: Mapping[str, Any],
        layers: int | None = None,
        seed: Seed = None,
        mask: Arrays = None,
        noise: Arrays = None,
        until_stable: bool = False,
        limit: int = 300,
        traced: bool = False,
        patterns: bool = False,
    ) -> _Run:
        many = self._how_many(layers, until_stable, limit)
        with self._context():
            run = self._begin(given, seed, mask, noise, many)
            if traced:
                self._watch(run, patterns)
            run.layers = [0] * run.batch.count
            run.stable = [False] * run.batch.count
            for index in range(many):
                active = [p for p in run.problems if not run.stable[p.number]]
                if not active:
                    break
                before = [dict(problem.z) for problem in active]
                self._layer(run, index, active, traced=traced)
                for problem, old in zip(active, before, strict=True):
                    run.layers[problem.number] += 1
                    run.stable[problem.number] = until_stable and self._unchanged(old, problem.z)
                if traced:
                    run.fields.append(self._fields(run))
            run.engine.tap = run.engine.pattern_tap = None
            if traced:
                self._watch(run, patterns)
        self.report = Report(tuple(run.layers), tuple(run.stable), run.engine.tiers)
        return run

    def _context(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def _how_many(self, layers: int | None, until_stable: bool, limit: int) -> int:
        for name, value in (("layers", layers), ("limit", limit)):
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
                raise RunError(f"{name} is {value!r}; it must be a whole number, at least 0")
        if until_stable:
            if layers is not None:
                raise RunError("give `layers` or `until_stable`, not both")
            if self._unrolled:
                raise RunError("a model with unrolled weights has a fixed number of layers; it cannot run until stable")
            return limit
        many = self.program.layers if layers is None else layers
        if self._unrolled and many != self.program.layers:
            raise RunError(
                f"the weights of this model are unrolled for {self.program.layers} layers; it cannot run {many}"
            )
        return many

    @property
    def _unrolled(self) -> bool:
        return self.program.options.get("weights") == "unrolled"

    def _begin(self, given: Mapping[str, Any], seed: Seed, mask: Arrays, noise: Arrays, layers: int) -> _Run:
        program = self.program
        batch = Reader(program, program.inputs, self.dtype, self.device).read(given, mask, seed)
        run = self._enter(batch, {item.name: item.slot for item in program.inputs}, noise, layers)
        for number, (step, sites, first) in enumerate(_placed(program.prelude, self.prelude)):
            del number
            run.engine.step(step, run.problems, sites, "prelude", first)
        return run

    def _enter(self, batch: Batch, slots: Mapping[str, str], noise: Arrays, layers: int) -> _Run:
        """The residual right after the embedding."""
        program = self.program
        weights = {name: self.tensor(name) for name in self._paths}
        engine = Reference(program, weights, self.dtype, batch.batched)
        explicit = self._explicit_noise(noise or {}, batch, layers)
        problems = []
        places = {item.name: (item.stream, item.slot) for item in (*program.inputs, *self._field_inputs())}
        for number, values in enumerate(batch.values):
            filled = {places[name]: rows for name, rows in values.items()}
            problems.append(Problem(self._embed(filled, batch.layouts, number), number))
        del slots
        engine.ready.update(places[name] for name in batch.values[0])
        engine.refresh(problems)
        return _Run(engine, batch, problems, explicit)

    def _embed(
        self, filled: Mapping[tuple[str, str], Tensor], layouts: Mapping[str, Layout], number: int
    ) -> dict[str, Tensor]:
        constants = {(embed.stream, embed.slot): embed for embed in self.program.embedding}
        sizes = {name: len(layout.rows[number]) for name, layout in layouts.items()}
        state: dict[str, Tensor] = {}
        for stream in self.program.streams:
            tokens = sizes[stream.name]
            pieces = []
            for slot in stream.slots:
                place = (stream.name, slot.name)
                piece = torch.zeros(tokens, slot.width, dtype=torch.float64, device=self.device)
                if place in filled:
                    piece = filled[place]
                elif place in constants:
                    kind, source = constants[place].kind, constants[place].source
                    if kind == "one":
                        piece = torch.ones_like(piece)
                    elif kind == "identity":
                        piece = torch.eye(tokens, dtype=torch.float64, device=self.device)
                    elif kind == "position":
                        order = torch.arange(1, tokens + 1, dtype=torch.float64, device=self.device)
                        piece = order[:, None]
                    elif kind == "count":
                        piece = torch.full_like(piece, sizes[source])
                pieces.append(piece)
            state[stream.name] = torch.cat(pieces, 1)
        return state

    def _layer(
        self, run: _Run, index: int, problems: list[Problem], traced: bool = False, skip: set[str] | None = None
    ) -> None:
        self._noise(run, index, problems, skip or set())
        path = f"layers.{index}.blocks" if traced else "blocks"
        for step, sites, first in self._steps(index):
            run.engine.step(step, problems, sites, path, first)

    def _steps(self, index: int) -> Iterator[tuple[Step, list[Block], int]]:
        """The steps of one layer with their hook sites; unrolled weights have their own for each layer."""
        placed = list(_placed(self.program.layer, self.blocks))
        if not self._unrolled:
            yield from placed
            return
        each = len(placed) // self.program.layers
        yield from placed[index * each : (index + 1) * each]

    def _noise(self, run: _Run, index: int, problems: list[Problem], skip: set[str]) -> None:
        """Fills the random fields anew before a layer."""
        for item in self.program.noises:
            if item.slot in skip:
                continue
            slot = self.program.stream(item.stream).slot(item.slot)
            for problem in problems:
                z = problem.z[item.stream]
                if item.name in run.noise:
                    rows = run.noise[item.name][problem.number, index]
                    rows = rows[run.batch.layouts[item.stream].rows[problem.number]]
                elif z.is_meta:
                    rows = z.new_empty(len(z), slot.width)
                else:
                    seed = run.batch.seeds[problem.number]
                    made = draw(cast(Any, item.kind), seed, item.name, index, len(z), slot.width)
                    rows = torch.as_tensor(made, device=self.device)
                rows = rows.to(self.dtype).to(torch.float64)
                problem.z[item.stream] = torch.cat([z[:, : slot.offset], rows, z[:, slot.offset + slot.width :]], 1)
            run.engine.ready.add((item.stream, item.slot))
        if self.program.noises:
            run.engine.refresh(problems)

    def _explicit_noise(self, noise: Mapping[str, Any], batch: Batch, layers: int) -> dict[str, Tensor]:
        known = {item.name: item for item in self.program.noises}
        found: dict[str, Tensor] = {}
        for name, value in noise.items():
            if name not in known:
                raise RunError(f"noise for an unknown random field {shown(name)}{suggestion(str(name), known)}")
            item = known[name]
            slot = self.program.stream(item.stream).slot(item.slot)
            tokens = batch.layouts[item.stream].places
            tensor = value if isinstance(value, Tensor) else torch.as_tensor(np.asarray(value))
            tensor = tensor.to(device=self.device, dtype=torch.float64)
            wanted = f"[layers, {tokens}, {slot.width}]"
            if tensor.dim() == 3:
                tensor = tensor[None].expand(batch.count, *tensor.shape)
            good = (
                tensor.dim() == 4 and tensor.shape[0] == batch.count and tuple(tensor.shape[2:]) == (tokens, slot.width)
            )
            if not good or tensor.shape[1] < layers:
                have = list(value.shape) if hasattr(value, "shape") else list(tensor.shape)
                raise RunError(
                    f"noise {shown(name)} has shape {have}; it must be {wanted} with at least {layers} layers"
                )
            if not tensor.is_meta and not bool(torch.isfinite(tensor).all()):
                raise RunError(f"noise {shown(name)} holds a value that is not finite")
            found[name] = tensor
        return found

    def _unchanged(self, old: Mapping[str, Tensor], new: Mapping[str, Tensor]) -> bool:
        for step in self.program.layer:
            for name, slot in step.writes:
                columns = self.program.stream(name).slot(slot).columns
                if not torch.equal(old[name][:, columns], new[name][:, columns]):
                    return False
        return True

    # ------------------------------------------------------------------ results
    def _field_inputs(self) -> list[Input]:
        """Every field slot as something that can be given, for `advance`."""
        known = {(item.stream, item.slot): item for item in (*self.program.inputs, *self.program.noises)}
        found = []
        for stream in self.program.streams:
            for slot in stream.slots:
                if slot.role != "field":
                    continue
                item = known.get((stream.name, slot.name))
                number = item is not None and item.kind == "number"
                found.append(Input(slot.name, stream.name, slot.name, "number" if number else "real"))
        return found

    def _fields(self, run: _Run) -> Fields:
        shown_fields: dict[str, Tensor] = {}
        for item in self._field_inputs():
            if (item.stream, item.slot) in run.engine.ready:
                value = self._stacked(run, run.problems, item.stream, item.slot)
                shown_fields[item.slot] = value[..., 0] if item.kind == "number" else value
        return Fields(shown_fields)

    def _stacked(self, run: _Run, problems: list[Problem], stream: str, slot: str) -> Tensor:
        columns = self.program.stream(stream).slot(slot).columns
        return self._placed_back(run, [p.z[stream][:, columns] for p in problems], stream).to(self.dtype)

    def _placed_back(self, run: _Run, parts: list[Tensor], stream: str) -> Tensor:
        """Rows of all problems at the places they came from; zeros where there is padding."""
        if not run.batch.batched:
            return parts[0]
        layout = run.batch.layouts[stream]
        whole = []
        for part, rows in zip(parts, layout.rows, strict=True):
            if len(part) == layout.places:
                whole.append(part)
            else:
                zeros = torch.zeros(layout.places, *part.shape[1:], dtype=part.dtype, device=part.device)
                whole.append(zeros.index_copy(0, rows, part))
        return torch.stack(whole)

    def _outputs(self, run: _Run, again: bool) -> Outputs:
        redone: dict[int, list[Problem]] = {}
        if again:
            for step in sorted({o.again for o in self.program.outputs if o.again is not None}):
                redone[step] = self._again(run, step)
        self._read_out(run)
        found: dict[str, Any] = {}
        for output in self.program.outputs:
            problems = redone[output.again] if again and output.again is not None else run.problems
            found[output.name] = self._answer(output, run, problems)
        return Outputs(found)

    def _again(self, run: _Run, step: int) -> list[Problem]:
        """The final state after one more pass through one step, on a copy."""
        problems = [problem.copy() for problem in run.problems]
        if not any(run.layers):
            self._noise(run, 0, problems, set())
        last = max(0, self.program.layers - 1) if self._unrolled else 0
        chosen, sites, first = list(self._steps(last))[step]
        engine = replace(run.engine, ready=set(run.engine.ready), tap=None, pattern_tap=None)
        engine.step(chosen, problems, sites, "again", first)
        return problems

    def _read_out(self, run: _Run) -> None:
        for step, sites, first in _placed(self.program.readout, self.readout):
            run.engine.step(step, run.problems, sites, "readout", first)

    def _answer(self, output: Output, run: _Run, problems: list[Problem]) -> Tensor | OneHot:
        if output.kind == "pattern":
            return self._pattern(output, run, problems)
        if output.kind == "total":
            columns = self.program.stream(output.stream).slot(output.slot).columns
            totals = [exact_sum(p.z[output.stream][:, columns][:, 0], 0).to(self.dtype) for p in problems]
            return torch.stack(totals) if run.batch.batched else totals[0]
        value = self._stacked(run, problems, output.stream, output.slot)
        if output.kind == "number":
            return value[..., 0]
        if output.kind == "onehot":
            plain = value.detach()
            best = torch.where((plain != 0).any(-1), plain.argmax(-1), -1)
            return OneHot(best, plain.shape[-1], self.dtype)
        return value

    def _pattern(self, output: Output, run: _Run, problems: list[Problem]) -> Tensor:
        head = output.head
        assert head is not None
        parts = []
        engine = run.engine
        for problem in problems:
            exact = Exact(engine.exact_weights, engine.streams, problem.z, engine.active())
            engine._enter(problem, True)
            pieces = HeadRun(head, engine.weights, problem.z, problem.radii, exact, False).run(True)
            pattern = _drain(pieces)
            if output.scale is not None:
                pattern = pattern * linear(problem.z[head.query], engine.weights[output.scale][None])
            parts.append(pattern.to(self.dtype))
        if not run.batch.batched:
            return parts[0]
        rows = [self._placed_back(run, [p.T for p in parts], head.keys)]
        turned = [part.T for part in rows[0]]
        return self._placed_back(run, turned, head.query)

    def _watch(self, run: _Run, patterns: bool) -> None:
        """Notes every slot after every sub-layer from here on."""

        def tap(path: str, problems: list[Problem]) -> None:
            for stream in self.program.streams:
                for slot in stream.slots:
                    by_number = {problem.number: problem for problem in run.problems}
                    by_number.update({problem.number: problem for problem in problems})
                    ordered = [by_number[number] for number in sorted(by_number)]
                    run.seen[f"{path}.{stream.name}.{slot.name}"] = self._stacked(run, ordered, stream.name, slot.name)

        def pattern_tap(path: str, found: list[Tensor]) -> None:
            from weft_runtime.reference import padded

            whole = padded(found) if run.batch.batched else found[0]
            run.seen[f"{path}.pattern"] = whole.to(self.dtype)

        if not run.fields:
            tap("start", run.problems)
            run.fields.append(self._fields(run))
        run.engine.tap = tap
        run.engine.pattern_tap = pattern_tap if patterns else None


def _placed(steps: Sequence[Step], sites: nn.ModuleList) -> Iterator[tuple[Step, list[Block], int]]:
    """Every step with its blocks of hook sites and the number of its first block."""
    at = 0
    for step in steps:
        yield step, [cast(Block, sites[at + i]) for i in range(len(step.sublayers))], at
        at += len(step.sublayers)


def _drain(pieces: Any) -> Tensor:
    """The pattern of a head, left as it is."""
    kind, tensor = next(pieces)
    while kind != "pattern":
        kind, tensor = pieces.send(tensor)
    return cast(Tensor, tensor)


def _joined(inputs: Arrays, named: Mapping[str, Any]) -> dict[str, Any]:
    if inputs is not None and not isinstance(inputs, Mapping):
        raise RunError("inputs are given by name: model(x=...), or model({'x': ...})")
    return {**(inputs or {}), **named}


_SETTINGS = ("layers", "seed", "mask", "noise", "until_stable", "limit")


def _sorted(inputs: Arrays, options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    settings = {name: options[name] for name in _SETTINGS if name in options}
    return _joined(inputs, {name: value for name, value in options.items() if name not in _SETTINGS}), settings


def _check_dtype(dtype: torch.dtype) -> None:
    if dtype not in DTYPES:
        raise RunError(f"{str(dtype).removeprefix('torch.')} is not supported; load with float32 or float64")


def _register(root: Named, name: str, parameter: nn.Parameter) -> str:
    """Puts a parameter where its dotted name says; the path it ended up at."""
    parts = [attribute(part) for part in name.split(".")]
    module: nn.Module = root
    for part in parts[:-1]:
        if part not in module._modules:
            module.add_module(part, Named())
        child = module._modules[part]
        assert child is not None
        module = child
    leaf = parts[-1]
    while leaf in module._modules or leaf in module._parameters:
        leaf += "_"
    module.register_parameter(leaf, parameter)
    return ".".join([*parts[:-1], leaf])
