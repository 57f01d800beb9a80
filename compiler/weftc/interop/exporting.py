"""A spec or model -> a file that runs without Weft: plain torch, torch.export or ONNX."""

from __future__ import annotations

import importlib.util
import io
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from weftc.core.errors import InputError
from weftc.interop.writer import Written, write
from weftc_runtime.format.tensors import writes
from weftc_runtime.format.whole_file import whole_file

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from weftc.compiling import SpecLike
    from weftc_runtime.format.checkpoint import Checkpoint

Kind = Literal["module", "pt2", "onnx", "softmax", "hub"]
SUFFIXES: Mapping[str, Kind] = {".py": "module", ".pt2": "pt2", ".onnx": "onnx"}
ORDINARY = {"scores": "dot", "hardmax": "softmax", "centre": "off", "sharpness": "auto"}  # styles of `softmax`
FEW = 7  # tokens in every open set of the inputs that a model is traced with
PROBLEMS = 3  # problems in the batch it is traced with


@dataclass(frozen=True, slots=True)
class Export:
    """What was written: the files, the first of them the one to open, and what the model takes and gives."""

    kind: Kind
    paths: tuple[Path, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    card: str

    def text(self) -> str:
        """For people."""
        files = ", ".join(str(path) for path in self.paths)
        return f"wrote {files}\ntakes {', '.join(self.inputs)}; gives {', '.join(self.outputs)}\n{self.card}"


def export(
    target: SpecLike | Checkpoint,
    path: str | os.PathLike[str],
    *,
    to: Kind | None = None,
    dims: Mapping[str, int] | None = None,
    params: Mapping[str, float] | None = None,
    layers: int | None = None,
    dtype: str = "float64",
    batch: bool = False,
    force: bool = False,
    **styles: Any,
) -> Export:
    """Writes a model for other people's tools; the kind follows from the ending of `path` (.py, .pt2, .onnx).

    `to="softmax"` writes a module whose heads are all softmax attention over inner products, at a finite temperature
    (a null key of the query's own is one more score), without the objective. `to="hub"` writes a folder with the
    model, a config.json and a card, as model hubs have them.

    `batch` gives pt2 and ONNX files one more axis in front, and masks for sets of any size; a Python module takes
    both as it is. A file gives the outputs of the spec, its objective and `margin`: how clear the closest decision
    was. It decides in floating point, where Weft decides exactly: below about 1e-12 (1e-5 in float32) a decision may
    be another one.
    """
    target_path = Path(path)
    kind = to or SUFFIXES.get(target_path.suffix)
    if kind is None:
        raise InputError(f"{target_path.name}: the ending of an export is .py, .pt2 or .onnx (or say which with `to`)")
    if dtype not in ("float64", "float32"):
        raise InputError(f"an export is in float64 or float32, not in {dtype}")
    if kind == "softmax":
        styles = {**ORDINARY, **styles}
    checkpoint = _checkpoint(target, dims, params, layers, styles)
    depth = checkpoint.program.layers if layers is None else layers
    if checkpoint.program.unrolled and depth != checkpoint.program.layers:
        raise InputError(
            f"this model has {checkpoint.program.layers} layers, each with weights of its own, not {depth}"
        )
    if kind == "hub":
        return _save_hub(checkpoint, target_path, force)
    if kind == "softmax":
        checkpoint = ordinary(checkpoint)
    card = about(checkpoint, depth, dtype)
    written = write(checkpoint, depth, card)
    stored = target_path.with_suffix(".safetensors")
    paths = (target_path, stored) if kind in ("module", "softmax") else (target_path,)
    for one in paths:
        if one.exists() and not force:
            raise InputError(f"{one} exists; --force (in Python force=True) replaces it")
    if not target_path.absolute().parent.is_dir():
        raise InputError(f"there is no folder {target_path.absolute().parent}")
    if kind in ("module", "softmax"):
        _save_module(written, target_path, stored)
    else:
        _save_traced(kind, checkpoint, written, target_path, dtype, batch, depth)
    return Export(kind, paths, written.inputs, written.outputs, card)


def ordinary(checkpoint: Checkpoint) -> Checkpoint:
    """The model without its objective, if all its heads are ordinary softmax attention; an error that names another."""
    from dataclasses import replace

    program = checkpoint.program
    if program.objective is not None:
        wanted = {(output.stream, output.slot) for output in program.outputs}
        kept = tuple(step for step in program.readout if wanted & set(writes(step)))
        program = replace(program, objective=None, readout=kept)
    patterns = [output.head for output in program.outputs if output.head is not None]
    found = [head for _, step in program.places() for sub in step.sublayers for head in getattr(sub, "heads", ())]
    for head in (*found, *patterns):
        if head.weighting.kind != "softmax" or head.masks:
            raise InputError(
                f"head {head.name} ({head.weighting.kind}) is no ordinary softmax attention; "
                "of a spec, `--to softmax` compiles with --scores dot --hardmax softmax --centre off"
            )
    return replace(checkpoint, program=program)


def _save_hub(checkpoint: Checkpoint, folder: Path, force: bool) -> Export:
    from weftc.interop.hub import card, save_folder

    if folder.exists() and not (force and folder.is_dir()):
        raise InputError(f"{folder} exists; --force (in Python force=True) writes into it")
    if not folder.absolute().parent.is_dir():
        raise InputError(f"there is no folder {folder.absolute().parent}")
    program, text = checkpoint.program, card(checkpoint)
    folder.mkdir(exist_ok=True)
    names = tuple(one.name for one in program.inputs), tuple(one.name for one in program.outputs)
    return Export("hub", save_folder(checkpoint, folder), *names, text)


def about(checkpoint: Checkpoint, layers: int, dtype: str) -> str:
    """What an export is equal to, and when."""
    clear = "1e-12" if dtype == "float64" else "1e-5"
    lines = [
        f"{layers} layer{'' if layers == 1 else 's'} of the spec `{checkpoint.program.name}`, in {dtype}.",
        f"Equal to the spec up to rounding wherever every decision is clear: `margin` above about {clear}, the least",
        "lead of a chosen key relative to the scores it was chosen by. Ties are not settled exactly, as Weft does.",
    ]
    if checkpoint.program.tempered:
        lines[1:] = ["Near the spec where every choice is as clear as the conditions say: choices are softmax weights."]
    lines += [f"Condition: {condition.text}." for condition in checkpoint.program.conditions]
    if checkpoint.program.dot_scores:
        lines.append("Scores are inner products (`--scores dot`): distances lose digits far from the origin.")
    return "\n".join(lines)


def loaded(written: Written, dtype: torch.dtype | None = None) -> nn.Module:
    """The module itself, without files that stay."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "exported.py"
        _save_module(written, path, path.with_suffix(".safetensors"))
        return module_of(path, written.class_name, dtype)


def module_of(path: Path, class_name: str | None = None, dtype: torch.dtype | None = None) -> nn.Module:
    """The model in a file that `export` wrote."""
    import torch

    spec = importlib.util.spec_from_file_location(f"weftc_export_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[spec.name]
    kinds = [value for value in vars(module).values() if isinstance(value, type) and value.__module__ == spec.name]
    kind = next(kind for kind in kinds if class_name in (None, kind.__name__))
    model: nn.Module = kind(path.with_suffix(".safetensors"), dtype or torch.float64)
    return model


def _checkpoint(
    target: SpecLike | Checkpoint,
    dims: Mapping[str, int] | None,
    params: Mapping[str, float] | None,
    layers: int | None,
    styles: Mapping[str, Any],
) -> Checkpoint:
    from weftc_runtime.format.checkpoint import Checkpoint

    if isinstance(target, Checkpoint):
        return target
    if isinstance(target, str | Path) and str(target).endswith(".safetensors"):
        return Checkpoint.load(Path(target))
    from weftc.compiling import compile

    return compile(target, dims=dims, params=params, layers=layers, **styles)


def _save_module(written: Written, path: Path, stored: Path) -> None:
    import numpy as np
    from safetensors.numpy import save

    with whole_file(stored) as part:
        part.write_bytes(save({name: np.array(array, np.float64) for name, array in written.tensors.items()}))
    with whole_file(path) as part:
        part.write_text(written.text, encoding="utf-8")


def _save_traced(
    kind: Kind, checkpoint: Checkpoint, written: Written, path: Path, dtype: str, batch: bool, layers: int
) -> None:
    import torch

    number = torch.float64 if dtype == "float64" else torch.float32
    model = loaded(written, number).eval()
    arguments, shapes = _traced(checkpoint, written, number, batch, layers)
    with _quiet(), whole_file(path) as part:
        if kind == "pt2":
            archive = io.BytesIO()
            torch.export.save(torch.export.export(model, (), kwargs=arguments, dynamic_shapes=shapes), archive)
            part.write_bytes(archive.getvalue())
        else:
            _need_onnx()
            onnx = torch.onnx.export(
                model,
                (),
                kwargs=arguments,
                dynamic_shapes=shapes,
                input_names=list(arguments),
                output_names=list(written.outputs),
                dynamo=True,
                optimize=False,  # its optimiser takes small constants for zero
                verbose=False,
            )
            assert onnx is not None
            onnx.save(str(part))


@contextmanager
def _quiet() -> Iterator[None]:
    """Keeps to itself what torch says about libraries that an export does not need."""
    before = logging.root.manager.disable
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(before)


def _need_onnx() -> None:
    missing = [name for name in ("onnx", "onnxscript") if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(f"ONNX files need {' and '.join(missing)}: pip install 'weftc[onnx]'")


def _traced(
    checkpoint: Checkpoint, written: Written, dtype: torch.dtype, batch: bool, layers: int
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Inputs to trace a model with, and which of their axes may have any length."""
    import torch

    program = checkpoint.program
    lengths = {s.name: torch.export.Dim(f"n_{at}", min=1) for at, s in enumerate(program.streams) if s.size is None}
    problems = torch.export.Dim("problems", min=1)
    arguments, shapes = {}, {}
    generator = torch.Generator().manual_seed(0)
    for name, (one, noise) in zip(
        written.inputs, [*((o, False) for o in program.inputs), *((o, True) for o in program.noises)], strict=True
    ):
        stream = program.stream(one.stream)
        width = stream.slot(one.slot).width
        flat = one.kind == "number" or (one.kind in ("gumbel", "normal", "uniform") and width == 1)
        axes: list[tuple[int, Any]] = [(layers, None)] if noise else []
        axes += [(PROBLEMS, problems)] if batch else []
        axes += [(FEW if stream.size is None else stream.size, lengths.get(one.stream))]
        axes += [] if flat else [(width, None)]
        sizes = [size for size, _ in axes]
        arguments[name] = (0.5 + torch.rand(sizes, generator=generator, dtype=torch.float64)).to(dtype)
        shapes[name] = {at: free for at, (_, free) in enumerate(axes) if free is not None} or None
    for stream_name, name in written.masks.items() if batch else ():
        arguments[name] = torch.ones((PROBLEMS, FEW), dtype=torch.bool)
        shapes[name] = {0: problems, 1: lengths[stream_name]}
    return arguments, shapes
