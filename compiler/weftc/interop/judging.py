"""An exported file, run by its own runtime, against the meaning of its spec: cases -> what agreed and what did not."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from weftc.core.errors import InputError, WeftError
from weftc.core.types import Checked
from weftc.interop.exporting import SUFFIXES, module_of
from weftc.interop.writer import write
from weftc.interpreter.interpreter import Interpreter
from weftc.verification.cases.inputs import cases

if TYPE_CHECKING:
    from weftc_runtime.format.checkpoint import Checkpoint

Array = npt.NDArray[Any]
Runner = Callable[[Mapping[str, Array]], Mapping[str, Array]]
CLEAR = {"float64": 1e-9, "float32": 1e-3}  # decisions with a smaller margin may differ
NEAR = {"float64": 1e-7, "float32": 2e-3}  # values, relative to the largest; errors may grow from layer to layer
DRAWS, ROUNDINGS = 4, 16  # perturbations of a case that show how many digits the spec itself loses


@dataclass
class ExportVerdict:
    """How many cases agreed, how many were too close to call or have no value, and the first that differs."""

    file: str
    agreed: int = 0
    unclear: int = 0
    without_value: int = 0
    failures: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.failures and self.agreed > 0

    def text(self) -> str:
        """For people."""
        told = f"{self.agreed} cases agree with the spec, {self.unclear} have decisions or digits too close to call, "
        told += f"{self.without_value} have no value"
        word = "tested" if self.ok else "not shown"
        return "\n".join([f"{word}: {self.file}: {told}", *(f"  differs: {one}" for one in self.failures[:5])])

    def json(self) -> dict[str, Any]:
        """As plain data."""
        counts = {"agreed": self.agreed, "unclear": self.unclear, "without_value": self.without_value}
        return {"file": self.file, "ok": self.ok, **counts, "failures": self.failures}


def judge_export(checkpoint: Checkpoint, checked: Checked, path: Path, count: int = 40, seed: int = 0) -> ExportVerdict:
    """Runs an exported file on random and adversarial cases, beside the interpreter."""
    if path.suffix not in SUFFIXES:
        raise InputError(f"{path.name}: the ending of an export is .py, .pt2 or .onnx")
    if not path.exists():
        raise InputError(f"there is no file {path}")
    written = write(checkpoint)
    run, dtype, depth, batch = RUNNERS[path.suffix](path, checkpoint.program.layers)
    names = dict(zip(written.inputs, [*checkpoint.program.inputs, *checkpoint.program.noises], strict=True))
    meaning = Interpreter(checked, checkpoint.dims, checkpoint.params)
    verdict = ExportVerdict(path.name)
    noises = {one.name for one in checkpoint.program.noises}
    for number, case in enumerate(cases(checked, checkpoint.dims, count, seed, np.dtype(dtype))):
        rng = np.random.default_rng((seed, number))
        tokens = {checked.fields[name].home: len(values) for name, values in case.inputs.items()}
        noise = {
            one.name: rng.uniform(0.25, 0.75, (depth, *_noise_shape(checkpoint, one, tokens))).astype(dtype)
            for one in checkpoint.program.noises
        }
        try:
            want = meaning.run(case.inputs, depth, noise=noise)
        except WeftError:
            verdict.without_value += 1
            continue
        given = {n: np.asarray(noise[o.name] if o.name in noises else case.inputs[o.name]) for n, o in names.items()}
        given = {name: values.astype(dtype) for name, values in given.items()}
        if batch:
            given = {n: v[:, None] if names[n].name in noises else v[None] for n, v in given.items()}
            given |= {word: np.ones((1, tokens[stream]), dtype=bool) for stream, word in written.masks.items()}
        got = run(given)
        if not float(got["margin"]) > CLEAR[dtype]:
            verdict.unclear += 1
            continue
        told = _difference({k: v[0] if batch and k != "margin" else v for k, v in got.items()}, want, dtype)
        if told is None:
            verdict.agreed += 1
        elif _loses_digits(meaning, case.inputs, noise, depth, want, dtype):
            verdict.unclear += 1
        else:
            verdict.failures.append(f"case {number} ({case.family}, seed {seed}): {told}")
    return verdict


def _loses_digits(
    meaning: Interpreter,
    inputs: Mapping[str, Array],
    noise: Mapping[str, Array],
    depth: int,
    want: Mapping[str, Any],
    dtype: str,
) -> bool:
    """Whether the spec itself moves too far to judge by, when its inputs move by a few roundings."""
    rng = np.random.default_rng(0)
    for _ in range(DRAWS):
        moved = {
            name: values * (1 + ROUNDINGS * np.finfo(dtype).eps * rng.choice((-1.0, 1.0), np.shape(values)))
            if np.asarray(values).dtype.kind == "f"
            else values
            for name, values in inputs.items()
        }
        try:
            other = meaning.run(moved, depth, noise=noise)
        except WeftError:
            continue
        if _difference({name: np.asarray(value) for name, value in other.items()}, want, dtype, 0.1) is not None:
            return True
    return False


def _noise_shape(checkpoint: Checkpoint, one: Any, tokens: Mapping[str, int]) -> tuple[int, ...]:
    stream = checkpoint.program.stream(one.stream)
    size = tokens[one.stream] if stream.size is None else stream.size
    width = stream.slot(one.slot).width
    return (size,) if width == 1 else (size, width)


def _difference(got: Mapping[str, Array], want: Mapping[str, Any], dtype: str, share: float = 1.0) -> str | None:
    for name, value in want.items():
        mine, theirs = np.asarray(got[name]), np.asarray(value, dtype=float)
        if mine.dtype.kind == "i" and theirs.ndim == mine.ndim + 1:
            theirs = theirs.argmax(-1)
        theirs = theirs.reshape(mine.shape)
        if not np.isfinite(mine).all():
            return f"{name} is not finite"
        off = np.abs(mine - theirs).max(initial=0.0)
        if off > share * NEAR[dtype] * max(1.0, np.abs(theirs).max(initial=0.0)):
            return f"{name} is off by {off:.3g}"
    return None


# ---- the runtimes of exported files: path, layers -> a runner, its dtype, its depth, whether it takes batches --------


def _module(path: Path, layers: int) -> tuple[Runner, str, int, bool]:
    import torch

    model = module_of(path)
    parameter = inspect.signature(model.forward).parameters.get("layers")
    depth = layers if parameter is None else int(parameter.default)

    def run(given: Mapping[str, Array]) -> Mapping[str, Array]:
        return {k: v.numpy() for k, v in model(**{n: torch.as_tensor(a) for n, a in given.items()}).items()}

    return run, "float64", depth, False


def _pt2(path: Path, layers: int) -> tuple[Runner, str, int, bool]:
    import torch

    model = torch.export.load(path).module()
    dtypes = {buffer.dtype for buffer in model.buffers()}
    dtype = "float32" if torch.float32 in dtypes else "float64"
    batch = any(name.endswith("_mask") for name in inspect.signature(model.forward).parameters)

    def run(given: Mapping[str, Array]) -> Mapping[str, Array]:
        return {k: v.numpy() for k, v in model(**{n: torch.as_tensor(a) for n, a in given.items()}).items()}

    return run, dtype, layers, batch


def _onnx(path: Path, layers: int) -> tuple[Runner, str, int, bool]:
    try:
        import onnxruntime
    except ImportError:
        raise InputError("running ONNX files needs onnxruntime: pip install 'weftc[onnx]'") from None
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    kinds = {one.name: one.type for one in session.get_inputs()}
    dtype = "float32" if "tensor(float)" in kinds.values() else "float64"

    def run(given: Mapping[str, Array]) -> Mapping[str, Array]:
        found = session.run(None, {name: values for name, values in given.items() if name in kinds})
        return {one.name: value for one, value in zip(session.get_outputs(), found, strict=True)}

    return run, dtype, layers, "tensor(bool)" in kinds.values()


RUNNERS: Mapping[str, Callable[[Path, int], tuple[Runner, str, int, bool]]] = {
    ".py": _module,
    ".pt2": _pt2,
    ".onnx": _onnx,
}
