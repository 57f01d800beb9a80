"""`weftc plot`: a spec or model, and perhaps data -> a picture for a paper."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from weftc.commands.options import (
    Settings,
    UsageError,
    add_data,
    add_definitions,
    add_force,
    add_json,
    add_styles,
    natural,
    positive,
    settings,
    styles,
)
from weftc.commands.progress import progress
from weftc.commands.target import Target, compile_target, open_target, refuse_changes
from weftc.commands.telling import tell
from weftc.core.errors import InputError
from weftc.core.source import printable
from weftc.core.words import did_you_mean
from weftc.files.feeds import Feeds, gather, require_dims, require_inputs, told_by_file
from weftc.files.folder import refuse_file
from weftc.show.figures.pictures import PICTURES, PictureOptions, available, picture, require_matplotlib, usual
from weftc.show.figures.saving import format_of, save

SUMMARY = "draw a picture for a paper"
EXAMPLE = """example:
  weftc plot mine.weft --what graph -o graph.pdf
  weftc plot model.safetensors --what weights -o weights.svg
  weftc plot mine.weft points.csv -D k=5 -o tokens.png

The pictures:
{pictures}
Pictures of a run need data. Without --layers the spec's `repeat` counts, else it runs until nothing visible changes
(at most 100 layers; --until-stable waits for the last bit). The format follows from the file's name: .png, .svg or
.pdf. Text stays text in SVG and PDF, and the same command always writes the same bytes.
--json prints {{ok, name, what, file, inches: [width, height], warnings}}."""
EXAMPLE = EXAMPLE.format(pictures="".join(f"  {name:<10} {one.about}\n" for name, one in PICTURES.items()))
LIMIT = 300  # layers that --until-stable runs at most
WIDTHS = {"column": 3.35, "page": 6.9}  # inches


def arguments(parser: argparse.ArgumentParser) -> None:
    """A target, what to draw of it, on which data, and where to write."""
    parser.add_argument("target", metavar="SPEC|MODEL", help="a built-in spec, a .weft file or a .safetensors model")
    parser.add_argument(
        "--what",
        metavar="PICTURE",
        help=f"one of {', '.join(PICTURES)} (default: tokens if there are data, else graph)",
    )
    add_definitions(parser)
    add_data(parser)
    depth = parser.add_mutually_exclusive_group()
    depth.add_argument("--layers", type=natural, metavar="N", help="how many layers to run")
    depth.add_argument("--until-stable", action="store_true", help="run until a layer changes nothing (see --limit)")
    parser.add_argument("--limit", type=positive, metavar="N", help="most layers of --until-stable (default 300)")
    parser.add_argument("--seed", type=natural, default=0, metavar="N", help="seed of starts and noise (default 0)")
    parser.add_argument("--head", action="append", default=[], metavar="NAME", help="only this head; may be repeated")
    parser.add_argument(
        "--plane",
        choices=("auto", "first", "pca"),
        default="auto",
        help="vectors by their first two dimensions or by principal components (default auto: those of more than 2)",
    )
    parser.add_argument(
        "--width", type=_width, metavar="W", help="column (3.35 inches), page (6.9), or inches (default: what suits)"
    )
    add_styles(parser)
    parser.add_argument("-o", dest="output", metavar="FILE", help="picture to write (default NAME-WHAT.png)")
    add_force(parser, "picture")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Draws and writes one picture."""
    options.what = options.what or usual(options.data)
    if options.what not in PICTURES:
        hint = did_you_mean(options.what, PICTURES) or f"there are {', '.join(PICTURES)}"
        raise UsageError(f"--what {printable(options.what)}: there is no such picture; {hint}")
    if options.limit is not None and options.layers is not None:
        raise UsageError("--limit is for runs until stable; with --layers the number is fixed")
    require_matplotlib()
    target = open_target(options.target)
    path = _output(options, target)
    with progress(f"drawing {target.name}") as line:
        subject, feeds = _subject(options, target, line)
        try:
            with told_by_file(feeds):
                figure = picture(
                    subject, options.what, PictureOptions(options.width, tuple(options.head), options.plane)
                )
        except InputError as error:
            raise UsageError(str(error)) from None
        save(figure, path)
    inches = [round(float(side), 3) for side in figure.get_size_inches()]
    made = {"ok": True, "name": target.name, "what": options.what, "file": str(path), "inches": inches}
    lines = [f"warning: {note}" for note in feeds.notes]
    lines += [f"wrote {printable(str(path))} ({inches[0]:g} x {inches[1]:g} inches)"]
    tell(options, {**made, "warnings": list(feeds.notes)}, "\n".join(lines))
    return 0


def _subject(options: argparse.Namespace, target: Target, line: Any) -> tuple[Any, Feeds]:
    from weftc.show.figures.subject import Subject

    chosen = _settings(options, target)
    feeds = gather(options, target.checked, chosen.dims, "-D" if target.checkpoint is None else "the model")
    needs = PICTURES[options.what].needs
    if feeds.tables:
        require_inputs(target.checked, feeds)

    def made() -> Any:
        require_dims(target.checked, feeds)
        return compile_target(target, Settings(feeds.dims, chosen.params, chosen.layers, chosen.styles))

    depth: dict[str, Any] | None = None
    if options.layers is not None:
        depth = {"layers": options.layers}
    elif options.until_stable or options.limit is not None:
        depth = {"until_stable": True, "limit": options.limit or LIMIT}
    names = {name: table.names for name, table in feeds.tables.items() if table.names is not None and all(table.names)}
    subject = Subject(target.checked, made, feeds.arrays, depth, options.seed, names, line)
    if needs == "data" and not feeds.tables:
        _ask_for_data(subject, options.what)
    return subject, feeds


def _ask_for_data(subject: Any, what: str) -> None:
    """Says that a picture needs a run; but not of a spec that has no such picture."""
    missing = [dim for dim in subject.checked.dims]
    try:
        reason = PICTURES[what].lacks(subject)
    except InputError:  # whether it has one shows only when its dimensions are known
        reason = ""
    if reason:
        raise UsageError(f"{subject.name} has no picture of {what}: {reason}; it has {', '.join(available(subject))}")
    rest = f" (and -D for what the data do not determine of {', '.join(missing)})" if missing else ""
    raise UsageError(f"a picture of {what} shows a run; give --data FILE{rest}")


def _settings(options: argparse.Namespace, target: Target) -> Settings:
    if target.checkpoint is None:
        return settings(options, target.checked)
    refuse_changes(target, options.definitions, styles(options))
    return Settings(target.checkpoint.dims, target.checkpoint.params)


def _output(options: argparse.Namespace, target: Target) -> Path:
    path = Path(options.output or f"{target.name}-{options.what}.png")
    if not path.is_dir():
        try:
            format_of(path)
        except InputError as error:
            raise UsageError(f"-o {error}") from None
    refuse_file(path, options.force, f"{target.name}-{options.what}.pdf")
    return path


def _width(text: str) -> float:
    """`column`, `page`, or a number of inches."""
    try:
        value = WIDTHS.get(text) or float(text)
    except ValueError:
        value = 0.0
    if not 1.0 <= value <= 40.0:
        raise argparse.ArgumentTypeError(f"'{printable(text)}' is not column, page, or a number of inches from 1 to 40")
    return value
