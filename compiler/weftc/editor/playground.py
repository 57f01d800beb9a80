"""Questions of the playground's page -> plain data for JSON: mistakes, runs layer by layer, patterns, matrices.

The page draws points in the plane and knows nothing of specs; which inputs they become is settled here. Everything is
NumPy or the standard library, so that it runs where there is no torch: in the browser.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weftc.commands.check import problems, sample
from weftc.core import syntax as ast
from weftc.core.errors import SpecError, WeftError
from weftc.core.source import NOWHERE, Source
from weftc.core.types import Checked, FieldType
from weftc.editor.completion import completions
from weftc.editor.document import read
from weftc.editor.hover import hover
from weftc.interpreter.environment import free, names_read
from weftc.interpreter.interpreter import Advance, Interpreter
from weftc.language.check.check import check
from weftc.language.highlight import classified
from weftc.language.parse.globals import SET as GLOBALS
from weftc.language.parse.parse import parse

Floats = NDArray[np.float64]
Points = Sequence[Sequence[float]]
PLANE = 2  # the page is flat: every vector that is drawn has two coordinates
DEFAULT_SIZE = 3  # of a dimension that nobody has chosen yet
UNDRAWN = 8  # tokens of an open set that nothing is drawn for
MOST_PATTERN_CELLS = 40_000
MOST_LAYERS = 200


# ---- typing ----------------------------------------------------------------------------------------------------------


def checked_text(text: str, lower: bool = False) -> dict[str, Any]:
    """The colours of a text, its mistakes, and what the page must ask for to run it.

    `lower`: also tells what has no attention form, which takes longer.
    """
    document = read(text, lower=lower)
    error = SpecError(document.source, document.diagnostics)
    found = [
        {**one, "start": diagnostic.span.start, "end": diagnostic.span.end, "shown": diagnostic.show(error.source)}
        for one, diagnostic in zip(problems(error), error.diagnostics, strict=True)
    ]
    asks = _asks(document.checked) if document.checked is not None else None
    return {"pieces": [list(piece) for piece in classified(text)], "problems": found, "asks": asks}


def hovered(text: str, offset: int) -> str:
    """What stands at a place, in Markdown; empty where there is nothing to say."""
    found = hover(read(text, lower=False), offset)
    return "" if found is None else found.markdown


def completed(text: str, offset: int) -> list[dict[str, str]]:
    """What can be typed at a place."""
    found = completions(read(text, lower=False), offset)
    return [{"text": one.text, "sort": one.sort, "detail": one.detail} for one in found]


def _asks(checked: Checked) -> dict[str, Any]:
    """The brushes, sizes and parameters of a spec."""
    spec = checked.spec
    return {
        "name": spec.name,
        "doc": spec.doc,
        "brushes": [{"field": one.name, "set": one.home, "unit": one.kind == "unit"} for one in _brushes(checked)],
        "scalars": [one.name for one in _scalars(checked)],
        "dims": [name for name in checked.dims if name not in _widths(checked)],
        "params": [
            {"name": name, "default": checked.spec.source.said(one.default.span) if one.default else ""}
            for name, one in checked.params.items()
        ],
        "layers": spec.repeat or 8,
        "inits": [one.target.name for one in spec.inputs if one.init is not None],
    }


def _given(checked: Checked) -> list[FieldType]:
    """The inputs that have no start of their own."""
    return [checked.fields[one.target.name] for one in checked.spec.inputs if one.init is None]


def _brushes(checked: Checked) -> list[FieldType]:
    """The inputs that points are drawn for: vectors as wide as the first, one brush each; else the first numbers."""
    given = [one for one in _given(checked) if one.kind != "symbol" and one.columns is None and one.home != GLOBALS]
    vectors = [one for one in given if one.width is not None]
    return [one for one in vectors if one.width == vectors[0].width] or given[:1]


def _scalars(checked: Checked) -> list[FieldType]:
    """Inputs that are one number per token: drawn along the x axis where a set has no vectors."""
    return [one for one in _brushes(checked) if one.width is None]


def _widths(checked: Checked) -> set[str]:
    """Dimensions that are the width of a vector the page draws or fills in: two, as the plane has."""
    drawn = {one.width for one in _brushes(checked) if isinstance(one.width, str)}
    sizes = {size for size in checked.sets.values() if isinstance(size, str)}
    return drawn | {one.width for one in checked.fields.values() if isinstance(one.width, str)} - sizes


# ---- running ---------------------------------------------------------------------------------------------------------


def ran(
    text: str,
    drawn: Mapping[str, Points],
    dims: Mapping[str, int],
    params: Mapping[str, float],
    layers: int,
    seed: int = 0,
) -> dict[str, Any]:
    """Every layer of a run on drawn points: the fields that can be drawn, the patterns, the objective."""
    try:
        checked = check(parse(Source("spec", text)))
        sizes, chosen = settings(checked, dims, params)
        interpreter = Interpreter(checked, sizes, chosen)
        fields = interpreter.start(inputs(checked, drawn, sizes), seed=seed)
        frames = [_frame(interpreter, fields, None)]
        for layer in range(min(layers, MOST_LAYERS)):
            advance = interpreter.advance(fields, layer, seed=seed)
            frames.append(_frame(interpreter, fields, advance))
            fields = advance.fields
    except WeftError as error:
        return {"error": str(error)}
    return {"frames": frames, "sets": dict(checked.sets), "columns": _columns(checked)}


def settings(
    checked: Checked, dims: Mapping[str, int], params: Mapping[str, float]
) -> tuple[dict[str, int], dict[str, float]]:
    """Every dimension and the parameters that were chosen, or have no default."""
    flat = _widths(checked)
    sizes = {name: PLANE if name in flat else int(dims.get(name, DEFAULT_SIZE)) for name in checked.dims}
    needed = {name: sample(one) for name, one in checked.params.items() if one.default is None}
    return sizes, needed | {name: float(value) for name, value in params.items()}


def _columns(checked: Checked) -> dict[str, list[str | None]]:
    """Field -> the set it lives on and, of a pair field, the set of its columns."""
    return {name: [one.home, one.columns] for name, one in checked.fields.items()}


def inputs(checked: Checked, drawn: Mapping[str, Points], dims: Mapping[str, int]) -> dict[str, Floats]:
    """Drawn points -> the inputs of a spec; what cannot be drawn gets a plain value."""
    given, counts = dict[str, Floats](), dict[str, int]()
    brushes = {one.name: one for one in _brushes(checked)}
    for name, one in brushes.items():
        points = np.asarray(drawn.get(name) or [], dtype=np.float64).reshape(-1, PLANE)
        fixed = _size(checked, one.home, dims)
        points = points if fixed is None else _exactly(points, fixed)
        counts[one.home] = min(counts.get(one.home, len(points)), len(points))
        given[name] = _units(points) if one.kind == "unit" else points
    for name, one in brushes.items():
        given[name] = given[name][: counts[one.home]]
        if one.width is None:
            given[name] = given[name][:, 0]
    for one in _given(checked):
        if one.name not in given:
            given[one.name] = _plain(checked, one, counts, dims, given)
    return given


def _size(checked: Checked, name: str, dims: Mapping[str, int]) -> int | None:
    """How many tokens a set has; None of an open one."""
    size = checked.sets[name]
    return dims[size] if isinstance(size, str) else size


def _plain(
    checked: Checked, one: FieldType, counts: Mapping[str, int], dims: Mapping[str, int], given: Mapping[str, Floats]
) -> Floats:
    """A value for an input that has no brush: the drawn places for vectors, even shares for numbers."""
    rows = counts.get(one.home, _size(checked, one.home, dims) or UNDRAWN)
    if one.kind == "symbol":
        return np.eye(len(one.symbols))[np.arange(rows) % len(one.symbols)]
    if one.width is not None:
        width = dims[one.width] if isinstance(one.width, str) else one.width
        places = next((given[b.name] for b in _brushes(checked) if b.home == one.home and b.width is not None), None)
        return places if places is not None and width == PLANE else np.eye(rows, width)
    if one.columns is not None:
        wide = _size(checked, one.columns, dims) or 1
        return np.eye(wide)[np.zeros(rows, dtype=int)] if one.kind == "onehot" else np.full((rows, wide), 1 / wide)
    share = 1 / max(rows, 1)
    if one.bound is not None and not one.bound.admits(share):
        share = sample(ast.Param(NOWHERE, one.name, None, one.bound))
    return np.full(rows, share)


def _exactly(points: Floats, count: int) -> Floats:
    """As many points as a fixed set has: the drawn ones, then some on a circle."""
    angles = 2 * math.pi * np.arange(count) / max(count, 1) + 0.5
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    return np.concatenate([points, circle[len(points) :]])[:count]


def _units(points: Floats) -> Floats:
    """Directions from the middle of the page; a point in the middle has none and becomes (1, 0)."""
    lengths = np.hypot(points[:, 0], points[:, 1])[:, np.newaxis]
    scaled = np.where(lengths > 0, points / np.where(lengths > 0, lengths, 1), [1.0, 0.0])
    # once more: the length of a rounded quotient may be off by a rounding, and the spec asks for exactly unit vectors
    return np.asarray(scaled / np.hypot(scaled[:, 0], scaled[:, 1])[:, np.newaxis])


def _frame(interpreter: Interpreter, before: Mapping[str, Floats], advance: Advance | None) -> dict[str, Any]:
    """One layer: its fields, its patterns, the value of the objective after it."""
    checked = interpreter.checked
    fields = before if advance is None else advance.fields
    objective = None
    if checked.spec.objective is not None and (advance is not None or _is_readable(checked)):
        objective = interpreter.objective(fields)
    return {
        "fields": {name: np.asarray(value).tolist() for name, value in fields.items() if _is_small(value)},
        "patterns": [*_patterns(interpreter, before, advance), *_couplings(interpreter, advance)] if advance else [],
        "objective": objective if objective is None or math.isfinite(objective) else None,
    }


def _is_small(value: Floats) -> bool:
    return np.size(value) <= MOST_PATTERN_CELLS


def _is_readable(checked: Checked) -> bool:
    """Whether the objective reads only what exists before the first layer."""
    computed = {name for name, one in checked.fields.items() if one.role == "computed"}
    return checked.spec.objective is not None and not computed & names_read(checked, checked.spec.objective)


# ---- patterns --------------------------------------------------------------------------------------------------------


def _patterns(interpreter: Interpreter, before: Mapping[str, Floats], advance: Advance) -> Iterator[dict[str, Any]]:
    """The weights of every weighting and mean of a layer, each as it was when its step read it."""
    checked, fields = interpreter.checked, before
    for step, after in zip(checked.spec.steps, advance.steps, strict=True):
        for equation in step.equations:
            if isinstance(equation.body, ast.Weigh) and len(equation.target.indices) == 2:
                told = checked.spec.source.said(equation.span)
                yield from _pattern(checked, equation.target.indices, told, np.asarray(after[equation.target.name]))
                continue
            for node in ast.walk(equation.body):
                weighing = _weighing(node)
                if weighing is not None:
                    yield from _read_pattern(interpreter, fields, weighing, checked.spec.source.said(node.span))
        fields = after


def _weighing(node: ast.Node) -> ast.Weigh | None:
    """A weighting, or the one that a mean amounts to: even, or in proportion to its weights."""
    if isinstance(node, ast.Weigh):
        return node
    if isinstance(node, ast.Reduce) and node.kind == "mean" and node.by is None and (node.weighted or node.where):
        score = node.weighted if node.weighted is not None else ast.Num(node.span, 1.0)
        return ast.Weigh(node.span, "normalize", node.index, score, where=node.where)
    return None


def _read_pattern(
    interpreter: Interpreter, fields: Mapping[str, Floats], node: ast.Weigh, told: str
) -> Iterator[dict[str, Any]]:
    """The weights of a weighting on given fields, rows that have none as zeros; nothing where noise decides."""
    checked = interpreter.checked
    rows = sorted(free(node) - {node.index})
    noises = {one.target.name for one in checked.spec.random}
    if node.noise is not None or len(rows) != 1 or {rows[0], node.index} - set(checked.index):
        return
    if noises & names_read(checked, node):
        return
    target = ast.Ref(node.span, "pattern", (rows[0], node.index))
    body = ast.Else(node.span, node, ast.Num(node.span, 0.0))
    spec = replace(checked.spec, outputs=(ast.Output(node.span, target, body),))
    known = interpreter.surroundings
    reader = Interpreter(replace(checked, spec=spec), known.dims, known.params)
    yield from _pattern(checked, target.indices, told, np.asarray(reader.outputs(fields)["pattern"]))


def _couplings(interpreter: Interpreter, advance: Advance) -> Iterator[dict[str, Any]]:
    """Outputs that are a number for each pair of tokens and no stored field: a transport plan, a kernel."""
    checked, found = interpreter.checked, interpreter.outputs(advance.fields)
    for output in checked.spec.outputs:
        if len(output.target.indices) == 2:
            told = checked.spec.source.said(output.span)
            yield from _pattern(checked, output.target.indices, told, np.asarray(found[output.target.name]))


def _pattern(checked: Checked, indices: Sequence[str], told: str, weights: Floats) -> Iterator[dict[str, Any]]:
    if _is_small(weights):
        query, keys = (checked.index[index] for index in indices)
        yield {"told": told, "query": query, "keys": keys, "weights": np.round(weights, 6).tolist()}


# ---- matrices --------------------------------------------------------------------------------------------------------


def matrices(text: str, dims: Mapping[str, int], params: Mapping[str, float]) -> dict[str, Any]:
    """Every matrix of the compiled transformer, as a picture of blocks in text, and how many numbers it holds."""
    from weftc.compiling import compile
    from weftc.show.stages import weights
    from weftc_runtime.format.structure import numbers

    try:
        checked = check(parse(Source("spec", text)))
        sizes, chosen = settings(checked, dims, params)
        checkpoint = compile(checked, dims=sizes, params=chosen)
    except WeftError as error:
        return {"error": str(error)}
    return {
        "text": weights(checkpoint, SimpleNamespace(dims=sizes, params=chosen, styles={}, colour=False)),
        "tensors": len(checkpoint.tensors),
        "numbers": numbers(checkpoint.tensors),
    }
