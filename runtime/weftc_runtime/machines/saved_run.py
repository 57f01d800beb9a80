"""The state of a run between layers, in a folder: a run that was ended at any moment goes on where it was.

A state is written beside the last one and takes its place by a rename, so there is always a whole one. It holds the
fields that layers change and what inputs started with, each as the machine holds it (an index stays an index); shares
that a layer makes anew before anything reads them are left out. It also says what it is a state of: program, seed,
precision and data. A run of anything else does not go on from it.

Several processes that share a set each write the rows they hold; any number of them can go on.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from weftc_runtime.errors import RunError
from weftc_runtime.exact.rows import blocks
from weftc_runtime.format.program import Program
from weftc_runtime.format.tensors import slots_read
from weftc_runtime.kernels.collective import ALONE, Collective
from weftc_runtime.machines.planned import PlannedBackend
from weftc_runtime.plan.instructions import AttendPlan
from weftc_runtime.plan.slots import DenseSlot, IndexSlot, LazySlot, SlotValue, UniformSlot

if TYPE_CHECKING:
    from weftc_runtime.machines.run import Run

VERSION = 1
SAMPLE = 1 << 16  # rows of an input that tell it from another
COST = 20  # layers take at least so many times as long as writing their states
STATE = "state.json"
Array = npt.NDArray[Any]


@dataclass(slots=True)
class SavedRun:
    """A folder with the state of one run."""

    folder: Path
    identity: str  # of program, seed, precision and data
    collective: Collective = ALONE
    _layer: int = -1  # of the state that is there
    _wrote: float = 0.0  # when the last state was written, and how long that took
    _took: float = 0.0
    _started: dict[str, Array] = field(default_factory=dict)  # what inputs started with

    @classmethod
    def of(cls, folder: str | os.PathLike[str], identity: str, collective: Collective = ALONE) -> SavedRun:
        """The folder, made if need be, or why it cannot be used."""
        place = Path(folder)
        if place.exists() and not place.is_dir():
            raise RunError(f"{place} is not a folder; name one that keeps the state of the run")
        try:
            place.mkdir(exist_ok=True)
        except OSError as error:
            raise RunError(f"the folder {place} for the state of the run cannot be made: {error.strerror}") from None
        made = cls(place, identity, collective)
        known = made._read()
        if known is not None and known["identity"] != identity:
            raise RunError(
                f"{place} holds the state of another run (another spec, parameters, seed, precision or data); "
                "give another folder, or remove it to start anew"
            )
        return made

    # ------------------------------------------------------------------ reading
    def _current(self) -> Path | None:
        found = [path for path in self.folder.glob("layer-*") if (path / STATE).is_file()]
        return max(found, key=lambda path: int(path.name.partition("-")[2]), default=None)

    def _read(self) -> dict[str, Any] | None:
        place = self._current()
        if place is None:
            return None
        try:
            told = json.loads((place / STATE).read_text(encoding="utf-8"))
            if told["version"] != VERSION:
                raise ValueError
            return cast(dict[str, Any], told)
        except (OSError, ValueError, KeyError):
            raise RunError(f"{place / STATE} is not the state of a run; remove {self.folder} to start anew") from None

    def inputs(self) -> dict[str, Tensor]:
        """What inputs started with, if there is a state."""
        place = self._current()
        if place is None:
            return {}
        self._started = {path.stem.partition("-")[2]: np.load(path) for path in place.glob("input-*.npy")}
        return {name: torch.from_numpy(rows) for name, rows in self._started.items()}

    def restore(self, run: Run) -> int:
        """Puts the state into a run that is ready for its first layer: how many layers it has behind it."""
        told, place = self._read(), self._current()
        if told is None or place is None:
            return 0
        problem = run.problems[0]
        for stream, slot, form, parts in told["fields"]:
            arrays = {part: self._part(place, files, run, stream) for part, files in parts.items()}
            tokens, width = len(problem.residuals[stream]), run.program.stream(stream).slot(slot).width
            if self.collective.shares(stream) and -1 in next(iter(parts.values())).values():  # one process wrote it
                held = _held(form, arrays, self.collective.total(stream, tokens), width)
                held = _some(held, *self.collective.rows(stream, tokens))
            else:
                held = _held(form, arrays, tokens, width)
            if isinstance(run.engine, PlannedBackend):
                run.engine.fill(problem, stream, slot, held)
            else:
                rows = held.rows(slice(0, tokens))
                replaced = run.engine.derived_slots.bases.replaced
                problem.residuals[stream] = replaced(stream, slot, problem.residuals[stream], rows)
            run.engine.derived_slots.ready.add((stream, slot))
        if not isinstance(run.engine, PlannedBackend):
            run.engine.derived_slots.refresh(list(run.problems))
        run.layers[0] = self._layer = int(told["layers"])
        self._wrote = time.monotonic()
        return self._layer

    def _part(self, place: Path, files: Mapping[str, int], run: Run, stream: str) -> Array:
        """The rows of an array that this process holds; files with the first row of each, or one file for all."""
        opened = [(first, np.load(place / name, mmap_mode="r")) for name, first in files.items()]
        if len(opened) == 1 and opened[0][0] < 0:
            return np.array(opened[0][1])
        begin, end = self.collective.rows(stream, len(run.problems[0].residuals[stream]))
        pieces = [rows[max(0, begin - first) : max(0, end - first)] for first, rows in sorted(opened, key=_first)]
        return np.concatenate(pieces)

    # ------------------------------------------------------------------ writing
    def due(self) -> bool:
        """Whether a state is worth its time."""
        return self.collective.any(time.monotonic() - self._wrote >= COST * self._took)

    def layer_done(self, run: Run, layers: int, started: Mapping[str, Tensor]) -> None:
        """A state is written where it is due. What a layer keeps for the next one and that rounds otherwise than if it
        were made anew (exponentials) is dropped after every layer: where states were written changes no bit."""
        if isinstance(run.engine, PlannedBackend) and run.engine.keeps_exponentials:
            run.forget()
        if self.due():
            self.save(run, layers, started)

    def save(self, run: Run, layers: int, started: Mapping[str, Tensor]) -> None:
        """Writes the state after so many layers, in place of the one before."""
        begin, lead = time.monotonic(), self.collective.rank == 0
        place, partial = self.folder / f"layer-{layers}", self.folder / f".layer-{layers}.partial"
        try:
            if lead:
                shutil.rmtree(partial, ignore_errors=True)
                partial.mkdir()
                for name, rows in started.items():
                    self._started.setdefault(name, rows.cpu().numpy())
                for name, array in self._started.items():
                    _write(partial / f"input-{name}.npy", array)
            self.collective.wait()
            listed = [self._field(run, partial, stream, slot) for stream, slot in changed_fields(run)]
            told = self.collective.gather(listed)
            if lead:
                fields = [
                    [
                        stream,
                        slot,
                        form,
                        {part: dict(file for one in told for file in one[at][3][part]) for part in parts},
                    ]
                    for at, (stream, slot, form, parts) in enumerate(told[0])
                ]
                text = json.dumps({"version": VERSION, "identity": self.identity, "layers": layers, "fields": fields})
                (partial / STATE).write_text(text, encoding="utf-8")
                _sync(partial / STATE)
                shutil.rmtree(place, ignore_errors=True)
                partial.rename(place)
                _sync(self.folder)
                for old in self.folder.glob("layer-*"):
                    if old != place:
                        shutil.rmtree(old, ignore_errors=True)
            self.collective.wait()
        except OSError as error:
            raise RunError(f"the state of the run cannot be written to {self.folder}: {error.strerror}") from None
        self._layer, self._wrote = layers, time.monotonic()
        self._took = self._wrote - begin

    def _field(self, run: Run, folder: Path, stream: str, slot: str) -> tuple[str, str, str, dict[str, Any]]:
        """Writes a field: how it is held, and the files of its parts."""
        held, shared = run.held(run.problems[0], stream, slot), self.collective.shares(stream)
        if shared and self.collective.any(isinstance(held, IndexSlot) and not held.one_hot):
            held = DenseSlot(held.rows(slice(0, held.tokens)))
        form, arrays = _parts(held)
        mine = self.collective.rows(stream, held.tokens)[0] if shared and form != "uniform" else -1
        files = {}
        for part, array in arrays.items():
            name = f"{stream}-{slot}-{part}" if mine < 0 else f"{stream}-{slot}-{part}-{mine}"
            file = hashlib.sha256(name.encode()).hexdigest()[:16] + ".npy"  # names of slots are no names of files
            files[part] = [(file, mine)] if mine < 0 or len(array) else []
            if files[part] and (mine >= 0 or self.collective.rank == 0):
                _write(folder / file, array)
        return stream, slot, form, files


def _first(opened: tuple[int, Array]) -> int:
    return opened[0]


def _some(held: SlotValue, begin: int, end: int) -> SlotValue:
    """Some rows of a slot."""
    if isinstance(held, UniformSlot):
        return UniformSlot(held.row, end - begin)
    if isinstance(held, IndexSlot) and held.one_hot:
        return IndexSlot(end - begin, held.width, held.index[begin:end])
    return DenseSlot(held.rows(slice(begin, end)))


def _parts(held: SlotValue) -> tuple[str, dict[str, Array]]:
    """How a slot is held, and the arrays of it."""
    if isinstance(held, IndexSlot):
        arrays = {"index": held.index, "place": held.place, "values": held.values}
        return "sparse", {name: array.cpu().numpy() for name, array in arrays.items() if array is not None}
    if isinstance(held, UniformSlot):
        return "uniform", {"row": held.row.cpu().numpy()}
    if isinstance(held, DenseSlot):
        return "dense", {"value": held.value.cpu().numpy()}
    rows = [held.rows(part).cpu().numpy() for part in blocks(held.tokens, held.width)]
    return "dense", {"value": np.concatenate(rows) if rows else np.zeros((0, held.width))}


def _held(form: str, arrays: Mapping[str, Array], tokens: int, width: int) -> SlotValue:
    found = {name: torch.from_numpy(array) for name, array in arrays.items()}
    if form == "sparse":
        return IndexSlot(tokens, width, found["index"], found.get("place"), found.get("values"))
    return UniformSlot(found["row"], tokens) if form == "uniform" else DenseSlot(found["value"])


def changed_fields(run: Run) -> Iterator[tuple[str, str]]:
    """The fields that layers write, but for those that the next layer makes anew before anything reads them."""
    places = dict.fromkeys(place for step in run.program.layer for place in step.writes)
    for stream, slot in places:
        ready = (stream, slot) in run.engine.derived_slots.ready
        if run.program.stream(stream).slot(slot).role != "field" or not ready:
            continue
        deferred = isinstance(run.held(run.problems[0], stream, slot), LazySlot)
        if not deferred or not _is_made_anew(run, (stream, slot)):
            yield stream, slot


def _is_made_anew(run: Run, place: tuple[str, str]) -> bool:
    """Whether a layer clears a slot before it reads it, itself or through a derived one."""
    if not isinstance(run.engine, PlannedBackend):
        return False
    streams = {stream.name: stream for stream in run.program.streams}
    made_of = {place}
    for stream in run.program.streams:
        for ffn in stream.derived:
            if slots_read((ffn,), streams, run.engine.weights) & made_of:
                made_of |= {(stream.name, slot) for slot in ffn.writes}
    for path, sublayers in run.engine.prepared.plan.steps.items():
        if not path.startswith("layer"):
            continue
        for sub in sublayers:
            read = slots_read((sub.attend if isinstance(sub, AttendPlan) else sub.ffn,), streams, run.engine.weights)
            if read & made_of:
                return False
            if isinstance(sub, AttendPlan):
                for write in sub.slots:
                    if (write.stream, write.slot) == place:
                        return write.carry == "clear"
    return False


def forget(folder: str | os.PathLike[str]) -> None:
    """Removes the state of a run that has ended well; the folder too, if nothing else is there."""
    place = Path(folder)
    for path in (*place.glob("layer-*"), *place.glob(".layer-*.partial")):
        shutil.rmtree(path, ignore_errors=True)
    with suppress(OSError):
        place.rmdir()


def identity_of(
    program: Program, tensors: Mapping[str, Tensor], dtype: torch.dtype, seed: int, given: Mapping[str, str]
) -> str:
    """What a run is a run of; `given` are fingerprints of its inputs."""
    made = hashlib.sha256(repr((VERSION, program, str(dtype), seed, sorted(given.items()))).encode())
    for name in sorted(tensors):
        made.update(name.encode() + tensors[name].detach().cpu().numpy().tobytes())
    return made.hexdigest()


def fingerprint(rows: Tensor, collective: Collective = ALONE, shared: str = "") -> str:
    """Tells data from other data by some of their rows, and how many there are; the same however they are shared."""
    begin, end = collective.rows(shared, len(rows)) if shared else (0, len(rows))
    total = collective.total(shared, len(rows)) if shared else len(rows)
    step = max(1, total // SAMPLE)
    chosen = torch.arange(-(-begin // step) * step, end, step) - begin
    picked = rows[chosen].contiguous().cpu()
    mine = b"".join(
        hashlib.sha256(row.tobytes()).digest() for row in picked.numpy()
    )  # by row: processes begin anywhere
    every = b"".join(collective.gather(mine)) if shared else mine
    return f"{total} {tuple(rows.shape[1:])} {rows.dtype} {hashlib.sha256(every).hexdigest()}"


def _write(path: Path, array: Array) -> None:
    with path.open("wb") as file:
        np.save(file, array, allow_pickle=False)
        file.flush()
        os.fsync(file.fileno())


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
