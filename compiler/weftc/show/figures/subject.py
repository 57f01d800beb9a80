"""What a picture is of: a spec or model, and perhaps data to run it on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from weftc.compiling import SpecLike, checked_spec, compile, sizes_from
from weftc.core.errors import InputError
from weftc.core.source import Source, printable
from weftc.core.types import Checked
from weftc.files.locate import is_model
from weftc.language.check.check import check
from weftc.language.parse.parse import parse
from weftc_runtime import Checkpoint
from weftc_runtime.data.progress import Progress, silence

if TYPE_CHECKING:
    from weftc.show.figures.watching import Course

LIMIT = 100  # layers of a run until nothing visible changes


class Subject:
    """A checked spec, the checkpoint it became, and the course of a run; the latter two are made when asked for."""

    def __init__(
        self,
        checked: Checked,
        made: Callable[[], Checkpoint],
        inputs: Mapping[str, Any],
        depth: Mapping[str, Any] | None = None,
        seed: int = 0,
        coordinates: Mapping[str, tuple[str, ...]] | None = None,
        tell: Progress = silence,
    ) -> None:
        self.checked, self.inputs, self.seed, self.tell = checked, inputs, seed, tell
        self.coordinates = coordinates or {}  # input -> names of its columns
        self._made, self._depth = made, depth

    @property
    def name(self) -> str:
        return self.checked.spec.name

    @cached_property
    def checkpoint(self) -> Checkpoint:
        return self._made()

    @cached_property
    def depth(self) -> Mapping[str, Any]:
        """How long to run: as asked, else as model or spec say, else until nothing visible changes."""
        if self._depth is not None:
            return self._depth
        program = self.checkpoint.program
        if program.unrolled or program.depth_asked:
            return {"layers": program.layers}
        if self.checked.spec.repeat is not None:
            return {"layers": self.checked.spec.repeat}
        return {"until_stable": True, "limit": LIMIT}

    @property
    def stops_early(self) -> bool:
        """Whether a run ends when there is nothing more to see: unless somebody said how long it is."""
        return self._depth is None and "layers" not in self.depth

    @cached_property
    def course(self) -> Course:
        """The run on the data, as far as pictures need it."""
        from weftc.show.figures.watching import watch

        return watch(self)


def subject_of(
    target: SpecLike | Checkpoint,
    data: Any = None,
    *,
    dims: Mapping[str, int] | None = None,
    params: Mapping[str, float] | None = None,
    layers: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    **styles: Any,
) -> Subject:
    """The subject that arguments in Python name: `data` is an array for the first open input, or input -> array."""
    model = _model(target)
    if model is not None and (dims or params or styles):
        raise InputError(
            "this is a model already; dimensions, parameters and styles are chosen when a spec is compiled"
        )
    checked = _spec_in(model) if model is not None else checked_spec(target)  # type: ignore[arg-type]
    inputs, coordinates = arrays_of(checked, data)
    known = {**sizes_from(checked, inputs), **(dims or {})}

    def made() -> Checkpoint:
        return model or compile(checked, _settled(checked, known), params, **styles)

    depth = None if layers is None else {"layers": layers}
    return Subject(checked, made, inputs, depth, seed, coordinates, progress or silence)


def _model(target: SpecLike | Checkpoint) -> Checkpoint | None:
    if isinstance(target, Checkpoint):
        return target
    if not isinstance(target, Checked | Source) and "\n" not in str(target) and is_model(str(target)):
        return Checkpoint.load(str(target))
    return None


def _spec_in(model: Checkpoint) -> Checked:
    return check(parse(Source(model.spec_name or "spec", model.spec_text)))


def _settled(checked: Checked, known: Mapping[str, int]) -> Mapping[str, int]:
    missing = [dim for dim in checked.dims if dim not in known]
    if missing:
        given = ", ".join(f"{dim!r}: NUMBER" for dim in missing)
        raise InputError(f"{checked.spec.name} needs {', '.join(missing)}; give dims={{{given}}}")
    return known


def arrays_of(checked: Checked, data: Any) -> tuple[dict[str, Any], dict[str, tuple[str, ...]]]:
    """Data as arrays by input, and the names of their columns where they have any."""
    from weftc.files.feeds import first_open

    if data is None:
        return {}, {}
    given = dict(data) if isinstance(data, Mapping) else {first_open(checked): data}
    known = [one.target.name for one in checked.spec.inputs]
    for name in given:
        if name not in known:
            raise InputError(
                f"{checked.spec.name} has no input {printable(str(name))}; its inputs are {', '.join(known)}"
            )
    named = {name: tuple(map(str, values.columns)) for name, values in given.items() if hasattr(values, "columns")}
    try:
        return {name: np.asarray(values, dtype=np.float64) for name, values in given.items()}, named
    except (TypeError, ValueError) as error:
        raise InputError(f"data must be arrays of numbers: {error}") from None
