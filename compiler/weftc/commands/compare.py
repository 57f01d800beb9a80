"""`weftc compare`: the attention of two models on the same data, head by head."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from weftc.commands.options import Settings, UsageError, add_data, add_force, add_json, natural, told
from weftc.commands.progress import progress
from weftc.commands.target import open_target
from weftc.commands.telling import tell
from weftc.core.errors import InputError
from weftc.core.source import printable
from weftc.files.feeds import gather, require_inputs
from weftc.files.locate import find_model

SUMMARY = "compare what two models attend to, head by head"
EXAMPLE = """example:
  weftc compare compiled.safetensors trained.safetensors --data points.csv
  weftc compare compiled.safetensors learned.npy --data points.csv --optimum plan.npy -o compared.png

Matches the heads of the two so that all together are as close as they can be, and tells for each pair and layer the
share of the weight that differs: 0 for equal attention, 1 for attention to other keys; null and self keys do not
count.
The second may also be attention that another program has recorded on the same data: a .npy of the shape
(layers, heads, queries, keys). --optimum is the attention wanted, (queries, keys), a row for each query."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Two models, data, and where the picture goes."""
    parser.add_argument("first", metavar="MODEL", help="a .safetensors model")
    parser.add_argument("second", metavar="CHECKPOINT", help="another, or a .npy of recorded attention")
    add_data(parser)
    parser.add_argument("--optimum", metavar="FILE", help="a .npy with the attention wanted")
    parser.add_argument("--layers", type=natural, metavar="N", help="how many layers to run (default: as compiled)")
    parser.add_argument("--seed", type=natural, default=0, metavar="N", help="seed of starts and noise (default 0)")
    parser.add_argument("-o", dest="output", metavar="FILE", help="picture to write, .png, .svg or .pdf (default none)")
    add_force(parser, "picture")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Runs both, prints the matches, and draws them."""
    target = open_target(options.first)
    if target.checkpoint is None:
        raise UsageError(f"{printable(options.first)} is a spec; compile it first, or name a .safetensors model")
    is_recorded = options.second.endswith(".npy")
    try:
        second = options.second if is_recorded else find_model(options.second)
    except InputError as error:
        raise UsageError(told(error)) from None
    path = Path(options.output) if options.output else None
    if path is not None:
        from weftc.show.figures.pictures import require_matplotlib
        from weftc.show.figures.saving import format_of

        require_matplotlib()
        format_of(path)
        if path.exists() and not options.force:
            raise UsageError(f"{printable(str(path))} exists; --force replaces it, -o names another file")
    settings = Settings(target.checkpoint.dims, target.checkpoint.params)
    feeds = gather(options, target.checked, settings.dims, "the model")
    require_inputs(target.checked, feeds)
    from weftc.variants.attention import compare

    with progress("comparing attention"):
        found = compare(
            target.checkpoint, second, feeds.arrays, optimum=options.optimum, layers=options.layers, seed=options.seed
        )
    names = (Path(options.first).stem, Path(options.second).stem)
    lines = [found.text(names)]
    summary: dict[str, Any] = {"ok": True, **found.json()}
    if path is not None:
        from weftc.show.figures.compared import draw
        from weftc.show.figures.saving import save

        save(draw(found, names), path)
        summary["file"] = str(path)
        lines.append(f"wrote {printable(str(path))}")
    tell(options, summary, "\n".join(lines))
    return 0
