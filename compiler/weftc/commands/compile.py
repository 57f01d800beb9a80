"""`weftc compile`: a spec -> a model file, and an account of what was made."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weftc.commands.options import (
    Settings,
    UsageError,
    add_data,
    add_definitions,
    add_force,
    add_json,
    add_styles,
    natural,
    settings,
)
from weftc.commands.target import Target, compile_target, open_spec
from weftc.commands.telling import tell
from weftc.core.source import printable
from weftc.core.types import Checked
from weftc.files.feeds import gather
from weftc.files.folder import refuse_file
from weftc.files.locate import MODEL_SUFFIX

if TYPE_CHECKING:
    from weftc_runtime.format.checkpoint import Checkpoint

SUMMARY = "compile a spec into a model file"
EXAMPLE = """example:
  weftc compile mine.weft -D d=2 -D k=5 -o model.safetensors

Every dimension of the spec needs a value; parameters have defaults. --layers is how many layers the model runs unless
a run asks for another number (default: the spec's `repeat`, else 1). With --hardmax softmax, --sharpness auto chooses
the sharpness from a run on --data.
--json prints {ok, file, bytes, name, dims, params, layers, options, conditions, idle,
streams: [{name, size, width, slots: [{name, offset, width, role}]}], heads, ffns, steps,
kernels: {head: [function of its scores]},
cost: {levels, heads, feed_forwards, widths: {stream: width}, parameters}, warnings}."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """A spec, its dimensions and parameters, styles, and the file to write."""
    parser.add_argument("spec", metavar="SPEC", help="name of a built-in spec, or path of a .weft file")
    add_definitions(parser)
    parser.add_argument("--layers", type=natural, metavar="N", help="number of layers (default: `repeat`, else 1)")
    add_styles(parser)
    parser.add_argument("--heads", choices=("any", "softmax"), help="refuse what needs a head that is no softmax")
    add_data(parser)
    parser.add_argument("-o", dest="output", metavar="FILE", help=f"model file to write (default NAME{MODEL_SUFFIX})")
    add_force(parser, "model file")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Compiles and writes."""
    checked = open_spec(options.spec)
    chosen = settings(options, checked)
    path = _output(options.output, checked, options.force)
    notes: tuple[str, ...] = ()
    if options.data:
        feeds = gather(options, checked, chosen.dims, "-D")
        notes = feeds.notes
        measured = {**chosen.styles, "data": feeds.arrays}
        chosen = Settings(feeds.dims, chosen.params, chosen.layers, measured)
    checkpoint = compile_target(Target(checked), chosen, options.heads or "any")
    idle = _idle(checked, chosen, checkpoint)
    checkpoint.save(path)
    made = {**account(checkpoint, path), "idle": idle, "warnings": list(notes)}
    tell(options, made, describe(made))
    return 0


def _output(wanted: str | None, checked: Checked, force: bool) -> Path:
    path = Path(wanted or checked.spec.name + MODEL_SUFFIX)
    if path.suffix != MODEL_SUFFIX and not path.is_dir():
        raise UsageError(f"-o {printable(str(path))}: the name of a model file ends in {MODEL_SUFFIX}")
    refuse_file(path, force, checked.spec.name + MODEL_SUFFIX)
    return path


def _idle(checked: Checked, chosen: Settings, made: Checkpoint) -> list[str]:
    """The styles that were asked for and make no difference to this spec."""
    from weftc.core.styles import CHOICES, Styles
    from weftc.show.style_effects import same

    idle = []
    for name, value in chosen.styles.items():
        if name not in CHOICES or value == getattr(Styles(), name) or (name == "scores" and "null" in chosen.styles):
            continue
        kept = {n: v for n, v in chosen.styles.items() if n not in (name, "data", "sharpness")}
        if kept.get("hardmax") == "softmax":
            kept["sharpness"] = Styles.read(made.program.options).sharpness
        plain = compile_target(Target(checked), Settings(chosen.dims, chosen.params, chosen.layers, kept))
        if same(made, plain):
            idle.append(f"{name}={value}")
    return idle


def account(checkpoint: Checkpoint, path: Path) -> dict[str, Any]:
    """What was made, as plain data."""
    from weftc.emit.cost import program_cost

    program = checkpoint.program
    cost = program_cost(program, checkpoint.tensors)
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
        "heads": cost.heads,
        "ffns": cost.feed_forwards,
        "steps": len(program.steps_of(0)),
        "kernels": {
            head.name: list(head.score.functions)
            for _, step in program.places()
            for sublayer in step.sublayers
            for head in getattr(sublayer, "heads", ())
            if head.score.functions
        },
        "cost": cost.as_data,
    }


def _stream(stream: Any) -> dict[str, Any]:
    slots = [{"name": s.name, "offset": s.offset, "width": s.width, "role": s.role} for s in stream.slots]
    return {"name": stream.name, "size": stream.size, "width": stream.width, "slots": slots}


def describe(made: dict[str, Any]) -> str:
    """What was made, for people."""
    sizes = ", ".join(f"{name} = {value}" for name, value in {**made["dims"], **made["params"]}.items())
    lines = [f"{made['name']}{' with ' + sizes if sizes else ''}"]
    for stream in made["streams"]:
        count = "any number of tokens" if stream["size"] is None else f"{stream['size']} tokens"
        slots = " ".join(f"{slot['name']}:{slot['width']}" for slot in stream["slots"])
        lines.append(f"  stream {stream['name']}: {count}, width {stream['width']} ({slots})")
    cost = made["cost"]
    work = ", ".join((_count(made["heads"], "head"), _count(made["ffns"], "feed-forward")))
    levels = f"{_count(cost['levels'], 'level')} of attention"
    lines.append(f"  each layer: {levels}, {work} in {_count(made['steps'], 'step')}")
    for name, functions in made["kernels"].items():
        lines.append(f"  head {name} weighs by a function of its scores ({', '.join(functions)}): a kernel, no softmax")
    lines.append(f"  {_count(cost['parameters'], 'parameter')} in all matrices")
    lines.append(f"  runs {_count(made['layers'], 'layer')} unless told otherwise")
    lines += [f"  equals the spec when {condition}" for condition in made["conditions"]]
    lines += [f"  {style} makes no difference to this spec" for style in made["idle"]]
    lines += [f"  warning: {note}" for note in made["warnings"]]
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
