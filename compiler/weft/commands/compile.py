"""`weft compile`: a spec -> a model file, and an account of what was made."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.commands.feeds import gather
from weft.commands.options import (
    Settings,
    UsageError,
    add_data,
    add_definitions,
    add_json,
    add_styles,
    natural,
    settings,
)
from weft.commands.target import Target, compile_target, open_spec
from weft.locate import MODEL_SUFFIX
from weft.source import printable
from weft.types import Checked

if TYPE_CHECKING:
    from weft_runtime.checkpoint import Checkpoint
    from weft_runtime.ir import Step

SUMMARY = "compile a spec into a model file"
EXAMPLE = """example:
  weft compile mine.weft -D d=2 -D k=5 -o model.safetensors

Every dimension of the spec needs a value; parameters have defaults. --layers is how many layers the model runs when
nobody says otherwise (default: the spec's `repeat`, else 1). With --hardmax softmax, --data are what --sharpness auto
measures the leads of scores on.
--json prints {ok, file, bytes, name, dims, params, layers, options, conditions, idle,
streams: [{name, size, width, slots: [{name, offset, width, role}]}], heads, ffns, steps}."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """A spec, its dimensions and parameters, styles, and the file to write."""
    parser.add_argument("spec", metavar="SPEC", help="name of a built-in spec, or path of a .weft file")
    add_definitions(parser)
    parser.add_argument("--layers", type=natural, metavar="N", help="number of layers (default: `repeat`, else 1)")
    add_styles(parser)
    add_data(parser)
    parser.add_argument("-o", dest="output", metavar="FILE", help=f"model file to write (default NAME{MODEL_SUFFIX})")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Compiles and writes."""
    checked = open_spec(options.spec)
    chosen = settings(options, checked)
    path = _output(options.output, checked)
    if options.data:
        feeds = gather(options, checked, chosen.dims, "-D")
        measured = {**chosen.styles, "data": feeds.arrays}
        chosen = Settings(feeds.dims, chosen.params, chosen.layers, measured)
    checkpoint = compile_target(Target(checked), chosen)
    idle = _idle(checked, chosen, checkpoint)
    checkpoint.save(path)
    made = {**account(checkpoint, path), "idle": idle}
    print(json.dumps(made) if options.json else describe(made))
    return 0


def _output(wanted: str | None, checked: Checked) -> Path:
    path = Path(wanted or checked.spec.name + MODEL_SUFFIX)
    shown = printable(str(path))
    if path.is_dir():
        raise UsageError(
            f"-o {shown} is a folder; name the file: -o {printable(str(path / checked.spec.name))}{MODEL_SUFFIX}"
        )
    if path.suffix != MODEL_SUFFIX:
        raise UsageError(f"-o {shown}: the name of a model file ends in {MODEL_SUFFIX}")
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder {printable(str(path.parent))} to put {printable(path.name)} into")
    return path


def _idle(checked: Checked, chosen: Settings, made: Checkpoint) -> list[str]:
    """The styles that were asked for and make no difference to this spec."""
    from weft.effects import same
    from weft.lowering.styles import CHOICES, Styles

    idle = []
    for name, value in chosen.styles.items():
        if name not in CHOICES or value == getattr(Styles(), name) or (name == "scores" and "null" in chosen.styles):
            continue
        kept = {n: v for n, v in chosen.styles.items() if n not in (name, "data", "sharpness")}
        if kept.get("hardmax") == "softmax":
            kept["sharpness"] = float(made.program.options["sharpness"])
        plain = compile_target(Target(checked), Settings(chosen.dims, chosen.params, chosen.layers, kept))
        if same(made, plain):
            idle.append(f"{name}={value}")
    return idle


def account(checkpoint: Checkpoint, path: Path) -> dict[str, Any]:
    """What was made, as plain data."""
    program = checkpoint.program
    unrolled = program.options.get("weights") == "unrolled"
    layer = program.layer[: len(program.layer) // program.layers] if unrolled and program.layers else program.layer
    return {
        "ok": True,
        "file": str(path),
        "bytes": path.stat().st_size,
        "name": program.name,
        "dims": dict(checkpoint.dims),
        "params": {name: float(value) for name, value in checkpoint.params.items()},
        "layers": program.layers,
        "options": dict(program.options),
        "conditions": [condition.text for condition in program.conditions],
        "streams": [_stream(stream) for stream in program.streams],
        "heads": sum(1 for _ in _heads(layer)),
        "ffns": sum(1 for step in layer for part in step.sublayers if not hasattr(part, "heads")),
        "steps": len(layer),
    }


def _stream(stream: Any) -> dict[str, Any]:
    slots = [{"name": s.name, "offset": s.offset, "width": s.width, "role": s.role} for s in stream.slots]
    return {"name": stream.name, "size": stream.size, "width": stream.width, "slots": slots}


def _heads(steps: Iterable[Step]) -> Iterator[Any]:
    for step in steps:
        for part in step.sublayers:
            yield from getattr(part, "heads", ())


def describe(made: dict[str, Any]) -> str:
    """What was made, for people."""
    sizes = ", ".join(f"{name} = {value}" for name, value in {**made["dims"], **made["params"]}.items())
    lines = [f"{made['name']}{' with ' + sizes if sizes else ''}"]
    for stream in made["streams"]:
        count = "any number of tokens" if stream["size"] is None else f"{stream['size']} tokens"
        slots = " ".join(f"{slot['name']}:{slot['width']}" for slot in stream["slots"])
        lines.append(f"  stream {stream['name']}: {count}, width {stream['width']} ({slots})")
    work = ", ".join((_count(made["heads"], "head"), _count(made["ffns"], "feed-forward")))
    lines.append(f"  each layer: {work} in {_count(made['steps'], 'step')}")
    lines.append(f"  runs {_count(made['layers'], 'layer')} unless told otherwise")
    lines += [f"  equals the spec when {condition}" for condition in made["conditions"]]
    lines += [f"  {style} makes no difference to this spec" for style in made["idle"]]
    lines.append(f"wrote {made['file']} ({file_size(made['bytes'])})")
    return "\n".join(printable(line) for line in lines)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def file_size(count: int) -> str:
    """`812 bytes`, `12.3 kB`, `4.5 MB`."""
    size = float(count)
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{count} bytes" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
