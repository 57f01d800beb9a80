"""`weft run`: a spec or model and data -> a folder of results and a summary."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.commands.feeds import Feeds, gather, require_dims, require_inputs
from weft.commands.folder import refuse_existing, whole_folder
from weft.commands.options import (
    Settings,
    UsageError,
    add_backend,
    add_data,
    add_definitions,
    add_json,
    add_styles,
    natural,
    positive,
    settings,
    styles,
)
from weft.commands.progress import progress
from weft.commands.target import Target, compile_target, open_target, refuse_changes
from weft.source import printable

if TYPE_CHECKING:
    from weft.commands.results import Result
    from weft_runtime.checkpoint import Checkpoint
    from weft_runtime.ir import Program
    from weft_runtime.results import Report

SUMMARY = "run a spec or model on data"
EXAMPLE = """example:
  weft run mine.weft --data points.csv -D k=5 -o out/
  weft run model.safetensors --data points.csv --init centers.csv --layers 10 -o out/

Dimensions that the data determine need not be given. One file per output appears in the folder, named as the spec
names it; a one-hot output is a column of indices counted from 0. Without --layers the spec's `repeat` counts, else it
runs until nothing changes. Outputs over two open sets are written only when asked for (--outputs).
--json prints {ok, name, dims, params, layers, stable, settled, backend, because, where, warnings, objective, folder,
outputs: [{name, file, rows, columns, meaning}]}."""
LIMIT = 300  # layers that --until-stable runs at most


def arguments(parser: argparse.ArgumentParser) -> None:
    """A target, its data, how long to run, and where to write."""
    parser.add_argument("target", metavar="SPEC|MODEL", help="a built-in spec, a .weft file or a .safetensors model")
    add_definitions(parser)
    add_data(parser)
    depth = parser.add_mutually_exclusive_group()
    depth.add_argument("--layers", type=natural, metavar="N", help="how many layers to run")
    depth.add_argument("--until-stable", action="store_true", help="run until a layer changes nothing (see --limit)")
    parser.add_argument("--limit", type=positive, metavar="N", help=f"most layers of --until-stable (default {LIMIT})")
    parser.add_argument("--seed", type=natural, default=0, metavar="N", help="seed of starts and noise (default 0)")
    parser.add_argument(
        "--dtype", choices=("float32", "float64"), default="float64", help="precision (default float64)"
    )
    parser.add_argument("--device", default="cpu", help="where to run, as torch names it (default cpu)")
    add_backend(parser)
    parser.add_argument(
        "--deterministic",
        action="store_true",
        help="soft sums, too, have the same bits for any blocks, threads and batches (slower; hard ones always have)",
    )
    add_styles(parser)
    parser.add_argument("-o", dest="output", metavar="FOLDER", help="folder to write (default NAME-out)")
    parser.add_argument("--force", action="store_true", help="replace an existing folder of results")
    parser.add_argument("--outputs", metavar="A,B", help="outputs to write (default: all but those over two open sets)")
    parser.add_argument(
        "--format", choices=("csv", "tsv", "npy"), default="csv", help="format of the files (default csv)"
    )
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Feeds, runs, writes, and prints a summary."""
    _refuse_contradictions(options)
    target = open_target(options.target)
    chosen = _settings(options, target)
    folder = Path(options.output or f"{target.name}-out")
    feeds = gather(options, target.checked, chosen.dims, "-D" if target.checkpoint is None else "the model")
    require_inputs(target.checked, feeds)
    require_dims(target.checked, feeds)
    checkpoint = compile_target(target, Settings(feeds.dims, chosen.params, chosen.layers, chosen.styles))
    from weft.commands.results import OBJECTIVE, chosen_outputs, only, to_results

    names = chosen_outputs(checkpoint.program.outputs, options.outputs)
    files = [f"{name}.{options.format}" for name in names]
    refuse_existing(folder, files, options.force)
    depth = _depth(options, target, checkpoint.program)
    report, values = _compute(options, only(checkpoint, names), feeds, depth)
    results = to_results(values, names, target.checked, feeds)
    _write(folder, results, options)
    summary = {
        "ok": True,
        "name": target.name,
        "dims": dict(checkpoint.dims),
        "params": dict(checkpoint.params),
        **_course(report, depth),
        "objective": float(values[OBJECTIVE]) if OBJECTIVE in values else None,
        "folder": str(folder),
        "outputs": [_listing(result, file) for result, file in zip(results, files, strict=True)],
    }
    print(json.dumps(summary) if options.json else describe(summary, feeds))
    return 0


def _refuse_contradictions(options: argparse.Namespace) -> None:
    if options.limit is not None and options.layers is not None:
        raise UsageError("--limit is for runs until stable; with --layers the number is fixed")


def _settings(options: argparse.Namespace, target: Target) -> Settings:
    if target.checkpoint is None:
        return settings(options, target.checked)
    refuse_changes(target, options.definitions, styles(options))
    return Settings(target.checkpoint.dims, target.checkpoint.params, options.layers)


def _depth(options: argparse.Namespace, target: Target, program: Program) -> dict[str, Any]:
    """How long to run: as asked, else as spec or model say, else until nothing changes."""
    if options.layers is not None:
        return {"layers": options.layers}
    written = target.checked.spec.repeat
    asked = target.checkpoint is not None and program.options.get("layers") == "asked"  # by whoever compiled it
    if asked or program.options.get("weights") == "unrolled":
        written = program.layers
    if written is not None and not options.until_stable and options.limit is None:
        return {"layers": written}
    return {"until_stable": True, "limit": options.limit or LIMIT}


def _compute(
    options: argparse.Namespace, checkpoint: Checkpoint, feeds: Feeds, depth: Mapping[str, Any]
) -> tuple[Report, Mapping[str, Any]]:
    """Runs the model; what it reports, and its outputs."""
    with progress(f"running {checkpoint.program.name}") as line:
        from weft_runtime.model import DTYPES, load

        dtype = next(d for d in DTYPES if str(d) == f"torch.{options.dtype}")
        try:
            model = load(
                checkpoint,
                dtype=dtype,
                device=options.device,
                backend=options.backend,
                deterministic=options.deterministic,
            )
        except (RuntimeError, AssertionError) as error:  # torch on devices it does not know or have
            reason = str(error).splitlines()[0]
            raise UsageError(f"--device {printable(options.device)} cannot be used: {printable(reason)}") from None
        values = model.final(dict(feeds.arrays), seed=options.seed, progress=line, **depth)
    return model.report, values


def _write(folder: Path, results: Sequence[Result], options: argparse.Namespace) -> None:
    from weft.commands.datafiles import write_table

    names = [f"{result.name}.{options.format}" for result in results]
    with progress(f"writing {folder.name}"), whole_folder(folder, names, options.force) as partial:
        for name, result in zip(names, results, strict=True):
            write_table(partial / name, result.values, result.columns, options.format)


# ---- the summary -----------------------------------------------------------------------------------------------------


def _course(report: Report, depth: Mapping[str, Any]) -> dict[str, Any]:
    """How the run went: layers, whether it came to rest (None: nobody asked), and who settled its decisions."""
    tiers = report.total
    return {
        "layers": report.layers[0],
        "stable": report.stable[0] if "until_stable" in depth else None,
        "settled": {
            "float32": tiers.fast,
            "float64": tiers.bound,
            "exact": tiers.exact,
            "undecided": tiers.undecided,
        },
        "backend": report.backend,
        "because": report.why,
        "where": report.where,
        "warnings": list(report.warnings),
    }


def _listing(result: Result, file: str) -> dict[str, Any]:
    rows, columns = result.values.shape[0], list(result.columns)
    return {"name": result.name, "file": file, "rows": rows, "columns": columns, "meaning": result.meaning}


def describe(summary: Mapping[str, Any], feeds: Feeds) -> str:
    """What happened, for people."""
    fed = ", ".join(f"{name}: {len(table.values)} rows of {table.path}" for name, table in feeds.tables.items())
    sizes = ", ".join(f"{name} = {value}" for name, value in {**summary["dims"], **summary["params"]}.items())
    ending = {True: ", nothing changes any more", False: ", still changing", None: ""}[summary["stable"]]
    lines = [
        f"{summary['name']}: {sizes}" if sizes else summary["name"],
        f"  data       {fed}",
        f"  layers     {summary['layers']}{ending}",
    ]
    because = f" ({summary['because']})" if summary["because"] else ""
    lines.append(f"  backend    {summary['backend']}{because}")
    if summary["where"]:
        lines.append(f"  device     {summary['where']}")
    if summary["objective"] is not None:
        lines.append(f"  objective  {summary['objective']:.17g}")
    if any(summary["settled"].values()):
        settled = summary["settled"]
        fast = f"{settled['float32']} rows in float32, {settled['float64']}" if settled["float32"] else ""
        rest = f", {settled['undecided']} undecided" if settled["undecided"] else ""
        counts = fast or f"{settled['float64']} rows"
        lines.append(f"  decisions  {counts} in float64, {settled['exact']} exactly{rest}")
    lines += [f"  warning    {warning}" for warning in summary["warnings"]]
    widest = max((len(output["file"]) for output in summary["outputs"]), default=0)
    lines += [f"  {summary['folder']}/"]
    lines += [f"    {output['file']:<{widest}}  {_line(output)}" for output in summary["outputs"]]
    return "\n".join(printable(line) for line in lines)


def _line(output: Mapping[str, Any]) -> str:
    width = len(output["columns"])
    size = f"{output['rows']} rows" if width == 1 else f"{output['rows']} rows x {width}"
    return f"{size}: {output['meaning']}" if output["meaning"] else size
