"""A checkpoint -> an `nn.Module` that runs it: named inputs in, named outputs out.

The parameters are the tensors of the checkpoint, kept in float64; `dtype` is how the state is stored between steps and
how outputs are given. They are frozen unless `trainable`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from weftc_runtime import freezing
from weftc_runtime.data.arrays import tensor_of
from weftc_runtime.data.batch import Batch
from weftc_runtime.data.hooks import LayerSites, Named, blocks
from weftc_runtime.data.progress import Pace, Progress, silence
from weftc_runtime.data.reader import SETTINGS, Reader, call_of, forms_of
from weftc_runtime.data.results import Fields, Outputs, Report, Tiers, Trace, together
from weftc_runtime.data.stopping import Limit, SmallChange, Until
from weftc_runtime.errors import RunError, Uncovered, shown, suggestion
from weftc_runtime.format.checkpoint import Checkpoint
from weftc_runtime.format.display import model_html, model_line
from weftc_runtime.format.program import Program
from weftc_runtime.format.structure import one_at_a_time, shapes
from weftc_runtime.format.tensor_checks import check_values
from weftc_runtime.format.writes import stated
from weftc_runtime.freezing import Words
from weftc_runtime.kernels.collective import ALONE, ProcessGroup
from weftc_runtime.machines import answers, gradients
from weftc_runtime.machines.choose import Planner, check_backend, given_apart, hindrance
from weftc_runtime.machines.conditions import short_leads
from weftc_runtime.machines.devices import Placement
from weftc_runtime.machines.lost_digits import lost_digits
from weftc_runtime.machines.planned import PlannedBackend
from weftc_runtime.machines.planned_program import PlannedProgram
from weftc_runtime.machines.run import Run, Sites
from weftc_runtime.machines.saved_run import SavedRun, fingerprint, identity_of
from weftc_runtime.machines.sharded import refuse_what_cannot_be_shared
from weftc_runtime.patching import Cache, Names, Replacement, caching, patched, site_names
from weftc_runtime.plan.instructions import Plan
from weftc_runtime.reference.backend import Reference
from weftc_runtime.threads import alone, safely

DTYPES = (torch.float32, torch.float64)
SAVED = 0.2  # seconds between two looks at whether a state is worth its time
ROTATED = "the residual has a basis of its own"  # plans look for slots in columns
Result = TypeVar("Result")
Seed = int | Sequence[int] | None
Arrays = Mapping[str, Any] | None


def load(
    source: str | os.PathLike[str] | Checkpoint,
    dtype: torch.dtype | str = torch.float64,
    device: str | torch.device = "cpu",
    trainable: bool = False,
    backend: str = "auto",
    deterministic: bool = False,
    group: Any = None,
    shared: Iterable[str] | None = None,
    freeze: Words = (),
) -> Model:
    """The model of a checkpoint, or of the file at a path. `backend`: auto, reference or planned.

    `freeze`: what stays as it is while a `trainable` model is trained: head:NAME, slot:NAME, kind:NAME (`freezing`).

    `deterministic`: sums with soft weights, too, get the same bits whatever the blocks, threads and batches.
    A `device` without float64 takes `dtype=torch.float32`: it looks for best keys, and the CPU does all else.
    `group`: processes of torch.distributed that run together; each is given its rows of the `shared` sets (all of open
    size unless some are named) and all rows of every other, and gets the outputs of its rows.
    """
    checkpoint = source if isinstance(source, Checkpoint) else Checkpoint.load(source)
    return Model(checkpoint, dtype, device, trainable, backend, deterministic, group, shared, freeze)


@dataclass(slots=True)
class GivenInputs:
    """What a call is given; read, checked and started once, whichever backends try."""

    named: Mapping[str, Any]
    batch: Batch | None = None
    started: frozenset[str] = frozenset()  # inputs that start by themselves


class Model(nn.Module):
    """A compiled algorithm as a module. See `forward` for how to call it."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        dtype: torch.dtype | str = torch.float64,
        device: str | torch.device = "cpu",
        trainable: bool = False,
        backend: str = "auto",
        deterministic: bool = False,
        group: Any = None,
        shared: Iterable[str] | None = None,
        freeze: Words = (),
    ) -> None:
        super().__init__()
        dtype = dtype_of(dtype)
        self.backend = check_backend(backend)  # may be changed between runs
        self.deterministic = deterministic  # this, too
        program = checkpoint.program
        program.verify(shapes(checkpoint.tensors))
        tensors = one_at_a_time(checkpoint.tensors)
        check_values(program, tensors)
        self.program: Program = program
        self.dtype = dtype
        self.spec_name, self.spec_text = checkpoint.spec_name, checkpoint.spec_text
        self.dims, self.params = dict(checkpoint.dims), dict(checkpoint.params)
        self.compiler = checkpoint.compiler
        self.report = Report()  # of the last run
        self._planner = Planner(program)
        self._forms = forms_of(program, program.inputs)
        self._placement = Placement.of(device)
        self._placement.check(dtype)
        self.weights = Named()
        self._owners: dict[str, tuple[nn.Module, str]] = {}  # where each is looked up, without a walk along its path
        for name, array in tensors.items():
            tensor = torch.tensor(np.asarray(array), dtype=torch.float64, device=self._placement.state)
            self._owners[name] = _register(self.weights, name, nn.Parameter(tensor, requires_grad=trainable))
        if freeze and not trainable:
            raise RunError("`freeze` names what is not trained; give trainable=True too")
        freezing.freeze(self, freeze)
        streams = tuple(stream.name for stream in program.streams)
        self.prelude = blocks(program.prelude, streams)
        self.blocks = blocks(program.layer, streams)
        self.readout = blocks(program.readout, streams)
        self.layers = LayerSites(program)
        self.collective, self.shared = ALONE, frozenset[str]()
        if group is not None:
            self._join_group(group if isinstance(group, ProcessGroup) else ProcessGroup(group), shared)
        elif shared is not None:
            raise RunError("`shared` names the sets that the processes of a group share; give `group` too")

    def _join_group(self, group: ProcessGroup, shared: Iterable[str] | None) -> None:
        """Runs together with other processes from here on, if the program can."""
        open_sets = [stream.name for stream in self.program.streams if stream.size is None]
        names = open_sets if shared is None else [shared] if isinstance(shared, str) else list(shared)
        for name in names:
            if name not in open_sets:
                raise RunError(
                    f"{shown(name)} is no set of open size that could be shared{suggestion(name, open_sets)}"
                )
        if group.size == 1:
            return
        if self.backend == "reference":
            raise RunError("the reference backend runs in one process; give backend='auto' with a group")
        self.collective, self.shared = group, frozenset(names)
        try:
            refuse_what_cannot_be_shared(self.program, self.plan(), self.shared)
        except Uncovered as reason:
            raise RunError(f"{shown(self.program.name)} cannot run in several processes: {reason}") from None

    # ------------------------------------------------------------------ as a module
    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Model:
        """Moves the model; a change of dtype changes how state is stored, the weights stay float64."""
        placement = Placement.of(fn(torch.empty(0, dtype=torch.int32, device=self.device)).device)
        try:
            dtype = fn(torch.empty(0, dtype=self.dtype)).dtype
        except TypeError:
            if not placement.apart:
                raise
            dtype = torch.float64  # what such a device does not take
        dtype_of(dtype)
        placement.check(dtype)

        def move(tensor: Tensor) -> Tensor:
            moved = tensor.to(placement.state) if placement.apart else fn(tensor)
            return moved if moved.dtype == tensor.dtype else tensor.to(moved.device)

        super()._apply(move, recurse)  # type: ignore[no-untyped-call]
        self.dtype, self._placement = dtype, placement
        return self

    @property
    def device(self) -> torch.device:
        """Where the answers are given, and the weights are if it has float64."""
        return self._place().device

    def _place(self) -> Placement:
        if self._placement.apart:
            return self._placement
        device = self.tensor(next(iter(self._owners))).device
        return self._placement if device == self._placement.device else Placement(device, device)

    def tensor(self, name: str) -> nn.Parameter:
        """The parameter that holds a tensor of the checkpoint."""
        if name not in self._owners:
            raise KeyError(f"no tensor {name!r}{suggestion(name, self._owners)}")
        owner, leaf = self._owners[name]
        found = owner._parameters.get(leaf)
        return found if found is not None else cast(nn.Parameter, getattr(owner, leaf))  # somebody computes it

    def home_of(self, name: str) -> tuple[nn.Module, str]:
        """The module that holds a tensor of the checkpoint, and its name there."""
        return self._owners[name]

    def checkpoint(self) -> Checkpoint:
        """The model as it is now, to save or to verify: trained and edited weights make files like any other."""
        tensors = {name: self.tensor(name).detach().cpu().numpy().copy() for name in self._owners}
        origin = (self.spec_name, self.spec_text, self.dims, self.params, self.compiler)
        return Checkpoint(stated(self.program, tensors), tensors, *origin)

    def extra_repr(self) -> str:
        inputs = ", ".join(item.name for item in self.program.inputs)
        return f"{self.program.name}: {inputs} -> {', '.join(output.name for output in self.program.outputs)}"

    def __repr__(self) -> str:
        """One line; every parameter and hook site is listed by `named_modules`."""
        return f"Model({model_line(self)})"

    def _repr_html_(self) -> str:
        return model_html(self)

    # ------------------------------------------------------------------ running
    def __call__(self, inputs: Any = None, /, **options: Any) -> Outputs:
        """Runs the algorithm: see `forward`. Torch gets inputs as a mapping: their names may be its own (`self`)."""
        named, settings = self._sorted(inputs, options)
        return cast(Outputs, super().__call__(named.named, **settings))

    def forward(
        self,
        inputs: Any = None,
        /,
        *,
        layers: int | None = None,
        seed: Seed = None,
        mask: Arrays = None,
        noise: Arrays = None,
        until_stable: bool = False,
        limit: int = 300,
        progress: Progress | None = None,
        until: Until | None = None,
        resume: str | os.PathLike[str] | None = None,
        **named: Any,
    ) -> Outputs:
        """Runs the algorithm: `model(x=..., c=...)` -> outputs by name, as the layers hold them.

        Inputs may also be given as a mapping, and one that needs no other without its name: `model(x)`.

        layers        how many; as compiled when not given. until_stable: until nothing changes, at most `limit`
        seed          for initialisers and random fields; one for all problems of a batch, or one each
        mask          {token set: bool[batch, tokens]} for batches of problems of different sizes
        noise         {random field: array [layers, tokens, columns]} instead of the generator
        progress      called before the first layer and after each: `weftc_runtime.Progress`
        until         shown the stored fields before and after every layer; when it says True, the run ends. A
                      `SmallChange` ends every problem of a batch by itself, without coming back for each layer
        resume        a folder that keeps the state between layers; a run that was ended goes on from there
        """
        settings: dict[str, Any] = {"layers": layers, "seed": seed, "mask": mask, "noise": noise}
        settings |= {"until_stable": until_stable, "limit": limit, "progress": progress, "until": until}
        settings |= {"resume": resume}
        return self._answer(self._named(inputs, named), settings, partial(answers.outputs, again=False))

    def final(self, inputs: Any = None, /, **options: Any) -> Outputs:
        """Like a call, but outputs made from values that changed later in the layer are made once more at the end."""
        return self._answer(*self._sorted(inputs, options), partial(answers.outputs, again=True))

    def objective(self, inputs: Any = None, /, **options: Any) -> Tensor:
        """The objective of the final state: a number, or one per problem of a batch."""
        if self.program.objective is None:
            raise RunError(f"{shown(self.program.name)} states no objective")
        return self._answer(*self._sorted(inputs, options), answers.objective)

    def fields(self, inputs: Any = None, /, **options: Any) -> Fields:
        """The stored fields after the last layer, each made when it is asked for; they know outputs and objective."""
        named, settings = self._sorted(inputs, options)
        return self._answer(named, settings, answers.ended)

    def trace(self, inputs: Any = None, /, *, patterns: bool = False, **options: Any) -> Trace:
        """Every slot of every stream after every sub-layer, and on request every attention pattern."""
        named, settings = self._sorted(inputs, options)
        if self.collective.size > 1:
            raise RunError("a trace is made in one process; load without a group for it")
        if self.backend == "planned" and patterns:
            raise RunError("the planned backend makes no attention patterns; load with backend='reference' for them")

        with safely():
            tracer = answers.Tracer(patterns)
            self._run(named, **settings, tracer=tracer)
            return self._place().back(tracer.trace())

    # ------------------------------------------------------------------ looking in
    def sites(self) -> list[str]:
        """The names of all places where a run can be looked at or changed; `layers.{t}.` in front means one layer."""
        return site_names(self)

    def run_with_cache(self, inputs: Any = None, /, *, names: Names = None, **options: Any) -> tuple[Outputs, Cache]:
        """Outputs and activations by name. `names`: a name, names, patterns with `*`, or a test; None keeps all."""
        with caching(self, names) as cache:
            return self(inputs, **options), cache

    def patch(self, edits: Mapping[str | tuple[str, str], Replacement], seed: int = 0) -> AbstractContextManager[None]:
        """Runs inside this context have activations replaced: name -> tensor, function, `zero`, `mean`, `resample`.

        A pair of names is a path: what the first adds to the residual is replaced as the second reads it, and
        nowhere else. `seed` is that of `resample`.
        """
        return patched(self, edits, seed)

    def start(self, inputs: Any = None, /, *, seed: Seed = None, mask: Arrays = None, **named: Any) -> Fields:
        """The stored fields before the first layer, each [tokens, width]."""
        given = self._named(inputs, named)

        def begin() -> Fields:
            run = self._begin(given, seed, mask, None, 0)
            run.prelude()
            return self._place().back(answers.fields(run))

        return self._running(begin)

    def advance(
        self,
        fields: Mapping[str, Any],
        layer: int,
        *,
        seed: Seed = None,
        mask: Arrays = None,
        noise: Arrays = None,
    ) -> Fields:
        """One layer from stored fields. Fields that nothing has set yet may be absent; random fields are drawn anew."""
        if not isinstance(layer, int | np.integer) or isinstance(layer, bool) or layer < 0:
            raise RunError(f"layer is {layer!r}; layers are counted from 0")
        if self.program.unrolled and layer >= self.program.layers:
            raise RunError(f"layer is {layer}, but the weights are unrolled for {self.program.layers} layers")
        for item in self.program.inputs:
            if item.slot not in fields:
                raise RunError(f"field {shown(item.slot)} is missing; give every input of the model")
        known = answers.field_inputs(self.program)
        drawn = {item.slot for item in self.program.noises}
        stored = {name: value for name, value in fields.items() if name not in drawn}
        places = {item.name: (item.stream, item.slot) for item in known}

        def go() -> Fields:
            forms = forms_of(self.program, known)
            reader = Reader(self.program, forms, self.dtype, self._place().state, may_start=False)
            batch = reader.read(stored, mask, seed)
            run = self._enter(batch, places, noise, layer + 1)
            if not run.run_many(layer, 1):
                run.layer(layer)
            self._note(run)
            return self._place().back(answers.fields(run))

        return self._running(go)

    def plan(self) -> Plan:
        """How the planned backend would run the model; a `RunError` says why it would not."""
        if self.program.rotated:
            raise RunError(ROTATED)
        try:
            return self._planner.planned(self._tensors()).prepared.plan
        except Uncovered as reason:
            raise RunError(str(reason)) from None

    # ------------------------------------------------------------------ backends
    def _tensors(self) -> dict[str, Tensor]:
        return {
            name: held if (held := owner._parameters.get(leaf)) is not None else self.tensor(name)
            for name, (owner, leaf) in self._owners.items()
        }

    def _answer(self, named: GivenInputs, settings: Mapping[str, Any], read: Callable[[Run], Result]) -> Result:
        """What `read` makes of a run."""

        def go() -> Result:
            run = self._run(named, **settings)
            found = self._place().back(read(run))
            if run.why != self.report.why:  # what was read needed the reference
                self.report = replace(self.report, backend="reference", why=run.why)
            return found

        return self._running(go)

    def _running(self, go: Callable[[], Result]) -> Result:
        """What a run makes, in as many processes as share its sets: an error in one ends all."""
        if self.collective.size == 1:
            with safely():
                return go()
        if self.backend == "reference":
            raise RunError("the reference backend runs in one process; give backend='auto' with a group")
        with safely(), self.collective.as_one():
            found = go()
            told = self.collective.gather((self.report.heads, self.report.by_layer))
            heads = {
                name: together(one.get(name, Tiers()) for one, _ in told) for name in {n for t, _ in told for n in t}
            }
            by_layer = tuple(together(layer) for layer in zip(*(layers for _, layers in told), strict=True))
            self.report = replace(self.report, heads=dict(sorted(heads.items())), by_layer=by_layer)
            return found

    def _chosen(
        self, tensors: Mapping[str, Tensor], batch: Batch, places: Iterable[tuple[str, str]], patterns: bool
    ) -> tuple[PlannedProgram | None, str]:
        """The plan to run with, or None and why the reference runs: all of it is known before the first layer."""
        if self.backend == "reference":
            return None, ""
        planned = None
        why = "a trace was asked for" if patterns else ROTATED if self.program.rotated else ""
        why = why or hindrance(self._sites(), tensors, batch)
        try:
            planned = None if why else self._planner.planned(tensors)
        except Uncovered as reason:
            why = str(reason)
        if planned is not None:
            why = given_apart(planned.prepared.plan, places)
            if self.deterministic and planned.prepared.plan.adds_in_tiles and self.collective.size == 1:
                why = "sums with soft weights depend on its tiles; deterministic ones are the reference's"
        if why and self.backend == "planned":
            raise RunError(f"the planned backend cannot run this: {why}")
        return None if why else planned, why

    # ------------------------------------------------------------------ inside
    def _named(self, inputs: Any, named: Mapping[str, Any]) -> GivenInputs:
        """All inputs by name; one that needs no other may come without."""
        if inputs is None or isinstance(inputs, Mapping):
            return GivenInputs({**(inputs or {}), **named})
        needed = [item.name for item in self.program.inputs if item.init is None]
        known = [item.name for item in self.program.inputs]
        only = known if len(known) == 1 else needed
        if len(only) != 1 or only[0] in named:
            raise RunError(f"inputs are given by name, because there are several: {call_of(*(needed or known))}")
        return GivenInputs({only[0]: inputs, **named})

    def _sorted(self, inputs: Any, options: Mapping[str, Any]) -> tuple[GivenInputs, dict[str, Any]]:
        """Named inputs apart from the settings of a run."""
        settings = {name: options[name] for name in SETTINGS if name in options}
        return self._named(inputs, {name: options[name] for name in options if name not in SETTINGS}), settings

    def _run(
        self,
        given: GivenInputs,
        layers: int | None = None,
        seed: Seed = None,
        mask: Arrays = None,
        noise: Arrays = None,
        until_stable: bool = False,
        limit: int = 300,
        progress: Progress | None = None,
        tracer: answers.Tracer | None = None,
        until: Until | None = None,
        resume: str | os.PathLike[str] | None = None,
    ) -> Run:
        for name, told in (("progress", progress), ("until", until)):
            if told is not None and not callable(told):
                raise RunError(f"{name} is a {type(told).__name__}; it must be a function")
        many = self._how_many(layers, until_stable, limit)
        tell, total, place = progress or silence, None if until_stable else many, self._place()
        saved = None if resume is None else self._saved(resume, given, seed)
        run = self._begin(given, seed, mask, noise, many, tell, tracer is not None and self.backend == "auto")
        if isinstance(until, SmallChange):
            run.little, until, until_stable = self._limits(until), None, True
        if saved is not None and run.batch.batched:
            raise RunError("`resume` keeps the state of one problem, not of a batch")
        if tracer is not None:
            tracer.watch(run)
        with alone() if isinstance(run.engine, PlannedBackend) else nullcontext():
            if tracer is None and until is None:
                run.join()
            run.prelude()
            if tracer is not None:
                tracer.started()
            index = 0 if saved is None else saved.restore(run)
            tell("layer", index, total)
            pace = self._pace(run, progress, until is not None, saved is not None)
            while index < many:
                before = None if until is None else place.back(answers.lazy_fields(run))
                many_ran = 0 if tracer is not None else run.run_many(index, pace.next(many - index), until_stable)
                pace.done(many_ran)
                if not many_ran and not run.layer(index, until_stable):
                    break
                index += many_ran or 1
                tell("layer", index, total)
                if saved is not None and index < many and not all(run.stable):
                    saved.layer_done(run, index, self._started(run, given))
                if tracer is not None:
                    tracer.layer_done()
                if until is not None and before is not None and until(before, place.back(answers.lazy_fields(run))):
                    break
        run.part()
        self._note(run)
        return run

    def _pace(self, run: Run, progress: Progress | None, watched: bool, saved: bool) -> Pace:
        """How many layers run before somebody looks: all of them, if nobody does."""
        pause = inf if progress is None else float(getattr(progress, "pause", 0.0))
        if saved:  # what a layer keeps for the next one is dropped after every layer: see `SavedRun.layer_done`
            keeps = isinstance(run.engine, PlannedBackend) and run.engine.keeps_exponentials
            pause = 0.0 if keeps else min(pause, SAVED)
        together = run.collective
        return Pace(
            0.0 if watched else pause, lambda mine: float(together.max(torch.tensor([mine], dtype=torch.float64)))
        )

    def _limits(self, rule: SmallChange) -> dict[tuple[str, str], Limit]:
        """How much slots may change in the layer that ends a run."""
        places = {item.name: (item.stream, item.slot) for item in answers.field_inputs(self.program)}
        for name in rule.limits:
            if name not in places:
                raise RunError(f"until: {shown(name)} is no stored field{suggestion(name, places)}")
        if not rule.limits:
            raise RunError("until: a rule without fields holds at once; name one")
        return {places[name]: limit for name, limit in rule.limits.items()}

    def _saved(self, folder: str | os.PathLike[str], given: GivenInputs, seed: Seed) -> SavedRun:
        """The folder of a run; what inputs started with there they start with again."""
        if seed is not None and not isinstance(seed, int | np.integer):
            raise RunError("`resume` keeps the state of one problem; give one seed")
        rows = {name: tensor_of(shown(name), value) for name, value in given.named.items() if value is not None}
        homes = {item.name: item.stream for item in self.program.inputs if item.stream in self.shared}
        if self.shared:
            self.collective.share({homes[name]: len(value) for name, value in rows.items() if name in homes})
        seen = {name: fingerprint(value, self.collective, homes.get(name, "")) for name, value in rows.items()}
        identity = identity_of(self.program, self._tensors(), self.dtype, int(seed or 0), seen)
        saved = SavedRun.of(folder, identity, self.collective)
        if given.batch is None:  # rows of a shared set that nobody gave are copies, and are made again
            given.started = frozenset(i.name for i in self.program.inputs if i.name not in rows and i.name not in homes)
            begun = {name: value for name, value in saved.inputs().items() if name in given.started}
            given.named = {**given.named, **rows, **begun}
        return saved

    def _started(self, run: Run, given: GivenInputs) -> dict[str, Tensor]:
        """The inputs that nobody gave."""
        return {name: rows.value for name, rows in run.batch.values.items() if name in given.started}

    def _how_many(self, layers: int | None, until_stable: bool, limit: int) -> int:
        for name, value in (("layers", layers), ("limit", limit)):
            if value is not None and (not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 0):
                raise RunError(f"{name} is {value!r}; it must be a whole number, at least 0")
        fixed = self.program.layers if self.program.unrolled else None
        if until_stable:
            if layers is not None:
                raise RunError("give `layers` or `until_stable`, not both")
            if fixed is not None:
                raise RunError(f"the weights are unrolled for {fixed} layers; this model cannot run until stable")
            return limit
        many = self.program.layers if layers is None else layers
        if fixed is not None and many != fixed:
            raise RunError(f"the weights are unrolled for {fixed} layers; this model cannot run {many}")
        return many

    def _begin(
        self,
        given: GivenInputs,
        seed: Seed,
        mask: Arrays,
        noise: Arrays,
        layers: int,
        tell: Progress = silence,
        traced: bool = False,
    ) -> Run:
        if given.batch is None:
            given_to = self.program, self._forms, self.dtype, self._place().state
            reader = Reader(*given_to, progress=tell, collective=self.collective, shared=self.shared)
            given.batch = reader.read(given.named, mask, seed)
        batch = given.batch
        places = {item.name: (item.stream, item.slot) for item in self.program.inputs}
        return self._enter(batch, places, noise, layers, traced)

    def _enter(
        self, batch: Batch, places: Mapping[str, tuple[str, str]], noise: Arrays, layers: int, traced: bool = False
    ) -> Run:
        tensors, place = self._tensors(), self._place()
        planned, why = self._chosen(tensors, batch, places.values(), traced)
        engine: Reference | PlannedBackend
        if planned is not None:
            many = self.collective.size > 1
            together = (self.collective, self.deterministic) if many else ()
            engine = PlannedBackend(planned, self.dtype, place.state, place.scan, batch.batched, *together)
        else:
            smooth = self.backend == "auto" and not (traced or self.deterministic)
            smooth = smooth and gradients.wanted(self.program, tensors, batch, self._sites())
            kind = gradients.SoftGradients if smooth else Reference
            engine = kind(self.program, self._planner.literal(tensors), self.dtype, batch.batched)
        run = Run.begin(engine, Sites(*self._sites()), batch, places, noise or {}, layers, place.state)
        run.why = why
        return run

    def _sites(self) -> tuple[nn.ModuleList, nn.ModuleList, nn.ModuleList, LayerSites]:
        return self.prelude, self.blocks, self.readout, self.layers

    def _note(self, run: Run) -> None:
        backend = "planned" if isinstance(run.engine, PlannedBackend) else "reference"
        backend = "gradients" if isinstance(run.engine, gradients.SoftGradients) else backend
        warnings = short_leads(self.program, run.engine.leads)
        for problem in run.problems[:1] if self.program.dot_scores else ():
            warnings += lost_digits(self.program, self._tensors(), partial(run.read, problem))
        ran, settled = (tuple(run.layers), tuple(run.stable)), tuple(run.settled)
        where = self._place().told(run.engine.prepared.plan if isinstance(run.engine, PlannedBackend) else None)
        self.report = Report(*ran, run.engine.tiers, backend, run.why, warnings=warnings, by_layer=settled, where=where)


def dtype_of(dtype: torch.dtype | str) -> torch.dtype:
    """A dtype of torch, or by its name (`"float32"`)."""
    name = str(dtype).removeprefix("torch.")
    for known in DTYPES:
        if str(known) == f"torch.{name}":
            return known
    raise RunError(f"dtype {shown(name)} is not supported; load with float32 or float64")


def _register(root: Named, name: str, parameter: nn.Parameter) -> tuple[nn.Module, str]:
    """Puts a parameter where its dotted name says: the module that holds it, and its name there."""
    *parts, leaf = name.split(".")
    for part in parts:
        root = root.nested(part)
    return root, root.place(leaf, parameter)
