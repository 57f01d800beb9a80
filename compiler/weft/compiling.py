"""The pipeline as one function: text -> tree -> checked spec -> graph -> normal form -> program -> checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from weft.errors import InputError
from weft.language.bind import bind
from weft.language.check import check
from weft.language.parse import parse
from weft.locate import find_spec
from weft.lowering.graph import build_graph
from weft.lowering.lower import lower
from weft.lowering.program import build
from weft.lowering.styles import Styles
from weft.source import Source
from weft.syntax import Spec
from weft.types import Checked
from weft.version import VERSION
from weft_runtime.checkpoint import Checkpoint

SpecLike = Checked | Spec | Source | str | Path


def spec_source(spec: Source | str | Path) -> Source:
    """The source of a spec from its text, a built-in name or a path."""
    if isinstance(spec, str) and ("\n" in spec or spec.lstrip().startswith("algorithm ")):
        return Source("spec", spec)
    return spec if isinstance(spec, Source) else find_spec(str(spec))


def checked_spec(spec: SpecLike) -> Checked:
    """A checked spec from whatever names one: itself, a tree, a source, its text, a built-in name or a path."""
    if isinstance(spec, Checked):
        return spec
    return check(spec if isinstance(spec, Spec) else parse(spec_source(spec)))


def compile(
    spec: SpecLike,
    dims: Mapping[str, int] | None = None,
    params: Mapping[str, float] | None = None,
    layers: int | None = None,
    *,
    scores: Literal["l2", "dot"] = "l2",
    centre: Literal["auto", "on", "off"] = "auto",
    erase: Literal["linear", "attention"] = "linear",
    square: Literal["square", "relu2"] = "square",
    norm: Literal["rms", "layer"] = "rms",
    weights: Literal["shared", "unrolled"] = "shared",
) -> Checkpoint:
    """Compiles a spec to a transformer.

    `dims` and `params` set the spec's dimensions and parameters, `layers` how many layers the model runs by default
    (without it the spec's `repeat`, else 1). The rest are lowering styles (`weft.styles`): transformers that look
    different and compute the same.

    >>> import weft
    >>> model = weft.compile("lloyd", dims={"d": 2, "k": 3})
    >>> [stream.name for stream in model.program.streams]
    ['points', 'centers']
    """
    styles = Styles(scores, centre, erase, square, norm, weights)
    bound = bind(checked_spec(spec), dims or {}, params or {})
    written = bound.checked.spec
    depth = layers if layers is not None else written.repeat
    if depth is not None and (not isinstance(depth, int) or depth < 0):
        raise InputError(f"layers must be a whole number, at least 0, not {depth!r}")
    if weights == "unrolled" and depth == 0:
        raise InputError("unrolled weights need at least one layer; give layers=N")
    normal = lower(build_graph(bound.checked), bound.dims, bound.params, styles)
    made = build(normal, depth)
    return Checkpoint(
        made.program, made.tensors, written.name, written.source.text, bound.dims, bound.params, f"weft {VERSION}"
    )
