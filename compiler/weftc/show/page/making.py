"""`weftc.report`: a spec or model and data -> the HTML of a report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from weftc.compiling import SpecLike, checked_spec, compile, sizes_from
from weftc.core.errors import InputError, WeftError
from weftc.core.source import Source, printable
from weftc.core.types import Checked
from weftc.files.locate import is_model
from weftc.language.check.check import check
from weftc.language.parse.parse import parse
from weftc.show.page.writing import write_page
from weftc_runtime.data.progress import Progress, silence
from weftc_runtime.errors import WeftRuntimeError
from weftc_runtime.format.checkpoint import Checkpoint

if TYPE_CHECKING:
    from weftc.show.page.recording import Depth
    from weftc.verification.verdict import Verdict
    from weftc_runtime.data.results import Report
    from weftc_runtime.model import Model

ON_SCREEN = 720  # pixels of height of a report in a notebook
LIMIT = 50  # layers that a report runs at most when nobody says how many
NEAR = 1e-6  # share of its range that a field may still move by when the run ends by itself
CASES = 10  # of a verification
ROWS = 2_000  # of data that a verification compares on
PAIRS = 20_000_000  # up to which answers over pairs are made
WORK = 4_000_000  # numbers that the interpreter may go through for the objective of one layer


@dataclass(frozen=True, slots=True)
class Request:
    """What a report is to be made of. `names`: columns of the data; `sources`: where they are from."""

    checked: Checked
    checkpoint: Checkpoint
    inputs: Mapping[str, Any]
    depth: Depth
    seed: int = 0
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    verify: bool = True
    cases: int = CASES
    backend: str = "auto"
    command: str = ""


@dataclass(frozen=True, slots=True)
class Made:
    """A finished page, and what a summary says about it."""

    html: str
    layers: int
    stable: bool | None
    objective: float | None
    verdict: Verdict | None
    drawn: Mapping[str, int]
    run: Report


class ReportPage(str):
    """The HTML of a report: text, which a notebook shows as a page of its own."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"ReportPage({len(self)} letters of HTML)"

    def _repr_html_(self) -> str:
        return (
            f"<iframe srcdoc='{escape(self, quote=True)}' title='Weft report' sandbox='allow-scripts' "
            f"style='width:100%;height:{ON_SCREEN}px;border:1px solid rgba(128,128,128,0.4)'></iframe>"
        )


@overload
def report(
    target: SpecLike | Checkpoint,
    data: Any,
    path: None = None,
    **options: Any,
) -> ReportPage: ...
@overload
def report(
    target: SpecLike | Checkpoint,
    data: Any,
    path: str | Path,
    **options: Any,
) -> Path: ...
def report(
    target: SpecLike | Checkpoint,
    data: Any,
    path: str | Path | None = None,
    *,
    dims: Mapping[str, int] | None = None,
    params: Mapping[str, float] | None = None,
    layers: int | None = None,
    until_stable: bool = False,
    limit: int | None = None,
    seed: int = 0,
    verify: bool = True,
    cases: int = CASES,
    force: bool = False,
    progress: Progress | None = None,
    **styles: Any,
) -> ReportPage | Path:
    """A report about a spec or model run on data: its HTML, which a notebook shows, or with `path` the file written.

    `data` maps inputs to arrays or data frames; a single one feeds the first open input. `layers`, `until_stable` and
    `limit` say how long to run (default: as spec or model say, else until nothing visible changes, at most 50 layers).
    `verify=False` leaves the evidence out. An existing file is replaced only with `force`. Lowering styles as in
    `weftc.compile`.

    >>> import weftc
    >>> page = weftc.report("lloyd", [[0.0, 0.0], [1.0, 0.0], [5.0, 5.0]], dims={"k": 2}, verify=False)
    >>> page[:15]
    '<!doctype html>'
    """
    if path is not None:
        from weftc.show.page.writing import refuse_existing_file

        refuse_existing_file(Path(path), force)
    model = _model(target)
    if model is None:
        assert not isinstance(target, Checkpoint)
        checked = checked_spec(target)
    else:
        checked = check(parse(Source(model.spec_name or "spec", model.spec_text)))
        if dims or params or styles:
            raise InputError(
                "a model has its dimensions, parameters and styles already; compile the spec to change them"
            )
    given, names = _inputs(checked, data)
    if model is None:
        known = {**sizes_from(checked, given), **(dims or {})}
        model = compile(checked, known, params, layers, **styles)
    depth = depth_of(checked, model, isinstance(target, Checkpoint), layers, until_stable, limit)
    made = make(Request(checked, model, given, depth, seed, names, {}, verify, cases), progress)
    return ReportPage(made.html) if path is None else write_page(Path(path), made.html)


def depth_of(
    checked: Checked, model: Checkpoint, compiled: bool, layers: int | None, until_stable: bool, limit: int | None
) -> Depth:
    """How long to run: as asked, else as spec or model say, else until nothing visible changes."""
    from weftc.show.page.recording import Depth

    if layers is not None and (until_stable or limit is not None):
        raise InputError("give layers, or until_stable and limit, not both")
    written = checked.spec.repeat
    if model.program.unrolled or (compiled and model.program.depth_asked):
        written = model.program.layers
    if layers is None and not until_stable and limit is None:
        layers = written
    if layers is not None:
        return Depth(layers)
    if model.program.unrolled:
        raise InputError(
            f"the weights are unrolled for {model.program.layers} layers; this model cannot run until stable"
        )
    return Depth(None, limit or (300 if until_stable else LIMIT), 0.0 if until_stable else NEAR)


def make(request: Request, progress: Progress | None = None) -> Made:
    """Runs, verifies, and puts the page together."""
    from weftc.show.page.contents import Material, context
    from weftc.show.page.equations import correspondence
    from weftc.show.page.page import render
    from weftc.show.page.payload import payload
    from weftc.show.page.plane import plane
    from weftc.show.page.recording import record
    from weftc.show.page.slotwise import slotwise
    from weftc_runtime.model import load

    tell = progress or silence
    checked, checkpoint = request.checked, request.checkpoint
    _same_fields(checked, checkpoint)
    model = load(checkpoint, backend=request.backend)
    recording = record(model, checked, request.inputs, request.depth, request.seed, _objective(request, model), tell)
    answers, run = _answers(request, model, recording.ran)
    verdict = _verdict(request, tell) if request.verify else None
    tell("page", 0, None)
    shown = plane(recording, checked, checkpoint.dims, request.names)
    shapes = {name: tuple(np.shape(value)) for name, value in request.inputs.items()}
    material = Material(
        checked,
        checkpoint,
        recording,
        shown,
        answers,
        run,
        verdict,
        request.sources,
        shapes,
        request.depth.near,
        request.command,
    )
    found = correspondence(checked, slotwise(checkpoint))
    data = payload(recording, checkpoint.program, checked, shown)
    for one in data["patterns"]:
        one["lines"] = list(found.parts.get(one.pop("key"), ()))
    return Made(
        render(context(material, found, data), data),
        recording.ran,
        recording.stable,
        recording.frames[-1].objective,
        verdict,
        {name: len(tokens) for name, tokens in recording.tokens.items()},
        run,
    )


# ---- inputs ----------------------------------------------------------------------------------------------------------


def _model(target: SpecLike | Checkpoint) -> Checkpoint | None:
    if isinstance(target, Checkpoint):
        return target
    if isinstance(target, Path) or (isinstance(target, str) and "\n" not in target):
        return Checkpoint.load(target) if is_model(str(target)) else None
    return None


def _inputs(checked: Checked, data: Any) -> tuple[dict[str, Any], dict[str, tuple[str, ...]]]:
    """Arrays by input, and the names that data frames give to their columns."""
    declared = [one.target.name for one in checked.spec.inputs]
    if not isinstance(data, Mapping):
        on_open = [name for name in declared if checked.is_open(checked.fields[name].home)]
        if not declared:
            raise InputError(f"{checked.spec.name} has no inputs, so there is nothing to feed")
        data = {(on_open or declared)[0]: data}
    given, names = {}, {}
    for name, value in data.items():
        if name not in declared:
            raise InputError(
                f"{checked.spec.name} has no input {printable(str(name))}; its inputs are {', '.join(declared)}"
            )
        try:
            given[name] = np.asarray(value, np.float64)
        except (TypeError, ValueError):
            raise InputError(f"the data of {name} are not an array of numbers") from None
        columns = getattr(value, "columns", None)
        if columns is not None:
            names[name] = tuple(str(column) for column in columns)
    return given, names


def _same_fields(checked: Checked, checkpoint: Checkpoint) -> None:
    """A file may come from anywhere: its program must at least hold the fields of its spec."""
    held = {(stream.name, s.name) for stream in checkpoint.program.streams for s in stream.slots if s.role == "field"}
    for one in checked.fields.values():
        if (one.home, one.name) not in held:
            missing = f"{printable(one.name)} of {printable(one.home)}"
            raise InputError(f"the model does not hold {missing}, as its spec does; it was not compiled from it")


# ---- what is asked of the model --------------------------------------------------------------------------------------


def _objective(request: Request, model: Model) -> Callable[[Mapping[str, Any]], float] | None:
    """The objective of stored fields; None where a spec has none, or it would take too long.

    The model evaluates it where all that lasts from layer to layer are its inputs, the interpreter where there is
    state beside them.
    """
    from weftc.interpreter.interpreter import Interpreter

    checked, made = request.checked, request.checkpoint
    if checked.spec.objective is None:
        return None
    inputs = [one.target.name for one in checked.spec.inputs]
    if not checked.spec.state and not made.program.unrolled:
        return lambda fields: float(model.objective({name: fields[name] for name in inputs}, layers=0))
    rows = max((len(np.atleast_1d(value)) for value in request.inputs.values()), default=1)
    if rows * max(made.dims.values(), default=1) ** 2 > WORK:
        return None
    return Interpreter(checked, made.dims, made.params).objective


def _answers(request: Request, model: Model, layers: int) -> tuple[list[Any], Report]:
    from weftc.show.page.answers import answer

    values = model.final(dict(request.inputs), layers=layers, seed=request.seed)
    rows = max((len(np.atleast_1d(value)) for value in request.inputs.values()), default=1)
    out = []
    for output in request.checkpoint.program.outputs:
        if output.kind != "pattern" or rows**2 <= PAIRS:
            out.append(answer(output.name, values[output.name], request.checked, request.names))
    return out, model.report


def _verdict(request: Request, tell: Progress) -> Verdict:
    from weftc.verification.verdict import Check
    from weftc.verification.verdict import Verdict as Answer
    from weftc.verification.verification import verify

    few = all(len(np.atleast_1d(value)) <= ROWS for value in request.inputs.values())
    try:
        return verify(
            request.checkpoint,
            data=dict(request.inputs) if few else None,
            seed=request.seed,
            cases=request.cases,
            progress=tell,
            backend=request.backend,
        )
    except (WeftError, WeftRuntimeError) as error:  # the page says so; the run itself went well
        check = Check("verification", "", 0, False, detail=str(error))
        return Answer(request.checked.spec.name, (check,), request.seed)
