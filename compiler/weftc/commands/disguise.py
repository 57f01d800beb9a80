"""`weftc disguise`: a model -> a file that computes the same and does not look like it."""

from __future__ import annotations

import argparse
from pathlib import Path

from weftc.commands.options import UsageError, add_json, natural, told
from weftc.commands.progress import progress
from weftc.commands.target import open_target
from weftc.commands.telling import tell
from weftc.core.errors import InputError
from weftc.core.source import printable
from weftc.files.folder import refuse_file
from weftc.files.locate import MODEL_SUFFIX

SUMMARY = "write the same function in other weights: rotated, split, with distractors"
EXAMPLE = """example:
  weftc disguise lloyd.safetensors -o puzzle.safetensors --rotate --gauge --distract 3 --seed 7
  weftc verify puzzle.safetensors       # equal to its spec, or within a bound that it states
  weftc explain puzzle.safetensors      # the spec again, from the weights alone

The changes are made in the order of the options, whatever their order here. --superpose, --distract, --merge, --split,
--permute and --scale round nothing; nor do --gauge and --rotate, for weights that are short binary fractions. What
they, --dense and --noise do round is bounded by the proof. The same seed gives the same file. --json prints
{ok, model, changes, warnings}."""
FLAGS = {
    "superpose": "leave out slots that other columns say already",
    "merge": "join heads that weigh alike",
    "gauge": "mix queries and keys of every score",
    "permute": "permute heads, and columns of the residual, with signs",
    "scale": "give every column of a residual a unit of its own",
    "rotate": "write every residual in a random basis",
    "dense": "with --gauge and --rotate: mix all columns, not four at a time (rounds)",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    """A model, a file, and the changes."""
    parser.add_argument("target", metavar="MODEL", help="a .safetensors model")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="the file to write")
    parser.add_argument("--superpose", action="store_true", help=FLAGS["superpose"])
    parser.add_argument("--distract", type=natural, default=0, metavar="N", help="add N slots and N heads nobody reads")
    parser.add_argument("--merge", action="store_true", help=FLAGS["merge"])
    parser.add_argument("--split", type=natural, default=1, metavar="N", help="write every head as N heads")
    for name in ("gauge", "permute", "scale", "rotate", "dense"):
        parser.add_argument(f"--{name}", action="store_true", help=FLAGS[name])
    parser.add_argument("--noise", type=float, default=0.0, metavar="E", help="relative error of weights, up to 1e-10")
    parser.add_argument("--seed", type=natural, default=0, metavar="S", help="what is drawn (default 0)")
    parser.add_argument("--force", action="store_true", help="replace an existing file")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Writes the file and says what was changed."""
    target = open_target(options.target)
    if target.checkpoint is None:
        raise UsageError(
            f"{printable(options.target)} is a spec; compile it first: weftc compile ... -o m{MODEL_SUFFIX}"
        )
    path = Path(options.output)
    if path.suffix != MODEL_SUFFIX:
        raise UsageError(f"-o {printable(options.output)}: the name of a model file ends in {MODEL_SUFFIX}")
    refuse_file(path, options.force, f"puzzle{MODEL_SUFFIX}")
    asked = {name: getattr(options, name) for name in (*FLAGS, "distract", "split", "noise")}
    changes = [
        name for name, value in asked.items() if value and name != "dense" and not (name == "split" and value == 1)
    ]
    if not changes:
        raise UsageError("no change is asked for; give --rotate, --gauge, --permute, --scale, --split N, ...")
    from weftc.variants.disguising import disguise

    try:
        with progress(f"disguising {target.name}"):
            made = disguise(target.checkpoint, **asked, seed=options.seed)
    except InputError as error:
        raise UsageError(told(error)) from None
    made.save(path)
    text = f"wrote {path}: {target.name}, {', '.join(changes)}, seed {options.seed}"
    tell(options, {"ok": True, "model": str(path), "changes": changes}, text)
    return 0
