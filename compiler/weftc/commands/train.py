"""`weftc train`: the numbers that a spec declares with `learn`, learned from data -> a spec with numbers in it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weftc.commands.options import (
    UsageError,
    add_definitions,
    add_force,
    add_json,
    natural,
    positive,
    settings,
    sharpness,
)
from weftc.commands.progress import progress
from weftc.commands.target import open_spec
from weftc.commands.telling import tell
from weftc.core.errors import InputError
from weftc.core.source import printable

SUMMARY = "learn the numbers of a spec from data"
EXAMPLE = """example:
  weftc train flow.weft --layers 6 --data x=noisy.npy --target points=clean.npy --loss mse -o learned.weft
  weftc train flow.weft --layers 6 --data x=noisy.npy --target points=centers.npy --loss wasserstein -o learned.weft
  weftc train mine.weft --data points.csv --target c=centers.csv --sharpness 20 -o learned.weft
  weftc verify learned.weft -D d=2

What may change is declared in the spec: learn h = 1 > 0 per layer, t in [0, 1]. What is written is a spec like any
other, with numbers. A .npy file of data or targets may hold many problems, on its first axis; other files hold one.
Losses: mse, mae, cross-entropy (a share of each class against classes 0, 1, ... or shares), wasserstein (points against
points), objective (the spec's own). With --sharpness, choices are softmaxes while training and hard again after it:
what that changed is told, with a certificate."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """A spec, data, what is wanted, and how to learn."""
    parser.add_argument("spec", metavar="SPEC", help="a spec with `learn`")
    add_definitions(parser)
    parser.add_argument(
        "--layers", type=positive, metavar="N", help="how many layers (default: as the spec repeats, or 1)"
    )
    parser.add_argument(
        "--data", action="append", default=[], metavar="[NAME=]FILE", help="data for an input; may be repeated"
    )
    parser.add_argument(
        "--target", action="append", default=[], metavar="[NAME=]FILE", help="what an output should be; may be repeated"
    )
    parser.add_argument("--loss", default="mse", metavar="NAME", help="how far outputs are from targets (default mse)")
    parser.add_argument("--steps", type=positive, default=300, metavar="N", help="steps of training (default 300)")
    parser.add_argument("--rate", type=float, default=0.03, metavar="R", help="learning rate of Adam (default 0.03)")
    parser.add_argument("--batch", type=positive, default=16, metavar="N", help="problems in a step (default 16)")
    parser.add_argument("--seed", type=natural, default=0, metavar="N", help="of batches and starts (default 0)")
    parser.add_argument(
        "--dtype", choices=("float32", "float64"), default="float64", help="precision (default float64)"
    )
    parser.add_argument(
        "--sharpness", type=sharpness, metavar="G", help="train choices as softmaxes of G times their scores"
    )
    parser.add_argument(
        "--straight-through",
        action="store_true",
        help="make choices as they are, and give them the gradient of a softmax",
    )
    parser.add_argument("-o", dest="output", metavar="FILE", help="the spec to write (default NAME-learned.weft)")
    add_force(parser, "file")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Learns, writes the spec, and says what was learned."""
    checked = open_spec(options.spec)
    chosen = settings(options, checked)
    if options.sharpness == "auto":
        raise UsageError("--sharpness of training is a number, such as 20")
    path = Path(options.output or f"{checked.spec.name}-learned.weft")
    if path.exists() and not options.force:
        raise UsageError(f"{printable(str(path))} exists; --force replaces it, -o names another file")
    if not options.data:
        raise UsageError("training needs data: --data [NAME=]FILE")
    inputs = [field.target.name for field in checked.spec.inputs]
    data = _read(options.data, inputs, "--data")
    targets = _read(options.target, [output.target.name for output in checked.spec.outputs], "--target")
    from weftc.training.training import train
    from weftc_runtime.format.whole_file import whole_file

    with progress(f"training {checked.spec.name}") as line:
        found = train(
            checked,
            data,
            targets,
            options.loss,
            dims=chosen.dims,
            params=chosen.params,
            layers=chosen.layers,
            steps=options.steps,
            rate=options.rate,
            batch=options.batch,
            seed=options.seed,
            dtype=options.dtype,
            sharpness=options.sharpness,
            choices="straight-through" if options.straight_through else "exact",
            progress=line,
        )
    with whole_file(path) as place:
        Path(place).write_text(found.spec, encoding="utf-8")
    summary: dict[str, Any] = {
        "ok": True,
        "name": checked.spec.name,
        "loss": {"name": options.loss, "before": found.before, "after": found.after},
        "steps": found.steps,
        "learned": found.values,
        "spec": str(path),
    }
    lines = [
        f"{checked.spec.name}: {options.loss} {found.before:.6g} before, {found.after:.6g} after {found.steps} steps"
    ]
    lines += [f"  {name:<10} {', '.join(f'{v:.6g}' for v in several)}" for name, several in found.values.items()]
    if (hard := found.hardened) is not None:
        certain = [bound for bound in hard.certified if bound < float("inf")]
        summary["hardened"] = {
            "sharpness": hard.sharpness,
            "soft": hard.soft,
            "exact": hard.exact,
            "certified": [bound if bound < float("inf") else None for bound in hard.certified],
            "margin": hard.margin,
        }
        lines.append(
            f"hard choices: {options.loss} {hard.exact:.6g}; softmaxes of sharpness {hard.sharpness:g}: {hard.soft:.6g}"
        )
        told = f"certified on {len(certain)} of {len(hard.certified)} problems"
        lines.append(f"  {told}{f', where no field moves by more than {max(certain):.2g}' if certain else ''}")
        lines.append(f"  the best score of a choice leads by {hard.margin:.3g} at least")
    tell(options, summary, "\n".join([*lines, f"wrote {printable(str(path))}"]))
    return 0


def _read(words: Sequence[str], names: Sequence[str], option: str) -> dict[str, Any]:
    """`NAME=FILE` words as arrays; without a name, the first one."""
    found: dict[str, Any] = {}
    for word in words:
        name, equals, file = word.partition("=")
        if not equals or name not in names:
            if equals and not Path(word).exists():
                raise UsageError(
                    f"{option} {printable(word)}: there is no {printable(name)}; there is {', '.join(names)}"
                )
            name, file = names[0], word
        if name in found:
            raise UsageError(f"{option} is given twice for {name}")
        found[name] = _array(Path(file))
    return found


def _array(path: Path) -> Any:
    import numpy as np

    from weftc.files.datafiles import read_table

    if path.suffix == ".npy" and path.is_file():
        try:
            return np.load(path, allow_pickle=False)
        except ValueError as error:
            raise InputError(f"cannot read {printable(str(path))}: {error}") from None
    values = np.asarray(read_table(path).values)
    return values
