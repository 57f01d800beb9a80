"""`weftc run`: a spec or model and data -> a folder of results and a summary."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weftc.commands.options import (
    Settings,
    UsageError,
    add_backend,
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
from weftc.commands.processes import shares, together
from weftc.commands.progress import progress
from weftc.commands.target import Target, compile_target, open_target, refuse_changes
from weftc.commands.telling import tell
from weftc.core.source import printable
from weftc.core.types import Checked
from weftc.core.vocabulary import DRAWN
from weftc.files.feeds import Feeds, gather, require_dims, require_inputs, told_by_file
from weftc.files.folder import refuse_existing_folder, whole_folder

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weftc.files.results import Joining, ResultTable
    from weftc_runtime.data.results import Outputs, Report
    from weftc_runtime.format.checkpoint import Checkpoint
    from weftc_runtime.format.program import Program
    from weftc_runtime.kernels.collective import Collective
    from weftc_runtime.model import Model

SUMMARY = "run a spec or model on data"
EXAMPLE = """example:
  weftc run mine.weft points.csv -D k=5 -o out/
  weftc run mine.weft points.csv.gz -D k=5 --id name --missing drop --standardize --join --n-init 10
  weftc run model.safetensors --data points.csv --init centers.csv --layers 10 -o out/

Dimensions that follow from the data need not be given. The folder gets one file per output, named as in the spec; a
one-hot output is a column of indices counted from 0. Without --layers, the spec's `repeat` says how long to run; if it
has none, the run goes on until nothing changes. Outputs over two open sets are large, and are written only on request
(--outputs). --join also writes the rows of the data with the outputs of each beside them. With --standardize, results
are in standardized units, and data-scaling.csv says how to get back. More: weftc help data.
--json prints {ok, name, dims, params, layers, stable, settled, backend, because, where, seed, starts, warnings,
objective, folder, outputs: [{name, file, rows, columns, meaning, sizes}]}."""
LIMIT = 300  # layers that --until-stable runs at most
FORMATS = ("csv", "tsv", "npy", "parquet")
SCALING = "data-scaling.csv"  # no output has a - in its name
SHOWN_SIZES = 20  # sizes of clusters in the summary


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
        "--n-init",
        type=positive,
        default=1,
        metavar="N",
        help="run from N starts (seeds SEED, SEED + 1, ...) and keep the lowest objective (default 1)",
    )
    parser.add_argument(
        "--dtype", choices=("float32", "float64"), default="float64", help="precision (default float64)"
    )
    parser.add_argument("--device", default="cpu", help="where to run, as torch names it (default cpu)")
    add_backend(parser)
    parser.add_argument(
        "--deterministic",
        action="store_true",
        help="give soft sums the same bits whatever the threads and batches (slower; hard sums always have them)",
    )
    add_styles(parser)
    parser.add_argument(
        "--resume",
        metavar="FOLDER",
        help="keep the state between layers in FOLDER; the same command goes on from there if the run is ended",
    )
    parser.add_argument("-o", dest="output", metavar="FOLDER", help="folder to write (default NAME-out)")
    add_force(parser, "folder of results")
    parser.add_argument("--outputs", metavar="A,B", help="outputs to write (default: all but those over two open sets)")
    parser.add_argument(
        "--join", action="store_true", help="also write the rows of the data with the outputs of each row beside them"
    )
    parser.add_argument("--format", choices=FORMATS, default="csv", help="format of the files (default csv)")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Feeds, runs, writes, and prints a summary; in as many processes as torchrun has started."""
    _refuse_contradictions(options)
    return together(lambda others: _run(options, others))


def _run(options: argparse.Namespace, others: Collective) -> int:
    target = open_target(options.target)
    chosen = _settings(options, target)
    folder = Path(options.output or f"{target.name}-out")
    refuse_existing_folder(folder, None, options.force)
    origin, part = "-D" if target.checkpoint is None else "the model", (others.rank, others.size)
    feeds = gather(options, target.checked, chosen.dims, origin, part)
    require_inputs(target.checked, feeds)
    require_dims(target.checked, feeds)
    checkpoint = compile_target(target, Settings(feeds.dims, chosen.params, chosen.layers, chosen.styles))
    _require_objective(options, target, checkpoint.program)
    feeds = shares(feeds, checkpoint.program, others)
    from weftc.files.results import OBJECTIVE, chosen_outputs, join_rows, only, to_results
    from weftc_runtime.machines.saved_run import forget

    names = chosen_outputs(checkpoint.program.outputs, options.outputs)
    joined = join_rows(names, target.checked, feeds) if options.join else None
    files = [f"{name}.{options.format}" for name in names]
    extra = [f"{joined.name}.{options.format}"] if joined else []
    refuse_existing_folder(folder, _results_of(target.checked), options.force)
    depth = _depth(options, target, checkpoint.program)
    best = _best(options, only(checkpoint, names), feeds, depth, others)
    if others.rank:
        return 0
    results = to_results(best.values, names, target.checked, feeds)
    _write(folder, results, target.checked, options, feeds, joined)
    if options.resume:
        forget(options.resume)
    summary = {
        "ok": True,
        "name": target.name,
        "dims": dict(checkpoint.dims),
        "params": dict(checkpoint.params),
        **_course(best.report, depth),
        "seed": best.seed,
        "starts": best.starts,
        "objective": float(best.values[OBJECTIVE]) if OBJECTIVE in best.values else None,
        "folder": str(folder),
        "outputs": [_listing(result, file) for result, file in zip(results, files, strict=True)],
    }
    summary["warnings"] = [*feeds.notes, *summary["warnings"]]
    if joined:
        summary["joined"] = extra[0]
    tell(options, summary, describe(summary, feeds))
    return 0


def _results_of(checked: Checked) -> list[str]:
    """The files that a run of this spec may have written, whatever it was asked for."""
    names = [*(one.target.name for one in checked.spec.outputs), *(f"{home}-joined" for home in checked.sets)]
    return [*(f"{name}.{form}" for name in names for form in FORMATS), SCALING]


def _refuse_contradictions(options: argparse.Namespace) -> None:
    if options.limit is not None and options.layers is not None:
        raise UsageError("--limit is for runs until stable; with --layers the number is fixed")
    if options.resume and options.n_init > 1:
        raise UsageError(
            "--resume keeps the state of one run; run every start by itself, with --seed and a folder each"
        )
    if options.join and options.format == "parquet":
        raise UsageError("--join writes rows as they are in their file, which is text; use --format csv or tsv")
    if options.format == "npy" and (options.join or options.id):
        asked = "--join" if options.join else "--id"
        raise UsageError(f"{asked} writes text beside the numbers, which .npy cannot hold; use --format csv or tsv")
    if options.format == "parquet":
        from weftc.files.datafiles import require_arrow

        require_arrow("--format parquet")  # before the run, not after it


def _require_objective(options: argparse.Namespace, target: Target, program: Program) -> None:
    """Several starts are compared by the objective, and differ only where something is drawn."""
    if options.n_init == 1:
        return
    drawn = program.noises or any(item.init and item.init[0] in DRAWN for item in program.inputs)
    if program.objective is None:
        raise UsageError(f"--n-init keeps the run with the lowest objective, and {target.name} states none")
    if not drawn or options.init:
        raise UsageError("--n-init compares starts that are drawn; here every start is the same")


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
    asked = target.checkpoint is not None and program.depth_asked  # by whoever compiled it
    if asked or program.unrolled:
        written = program.layers
    if written is not None and not options.until_stable and options.limit is None:
        return {"layers": written}
    return {"until_stable": True, "limit": options.limit or LIMIT}


@dataclass(frozen=True, slots=True)
class Best:
    """The run that is kept, and the objective of every start where there were several."""

    seed: int
    report: Report
    values: Outputs
    starts: list[dict[str, Any]]


def _best(
    options: argparse.Namespace, checkpoint: Checkpoint, feeds: Feeds, depth: Mapping[str, Any], others: Collective
) -> Best:
    """Runs the model from each start; the first of the lowest objectives is kept, whole in the first process."""
    from weftc.files.results import OBJECTIVE
    from weftc_runtime.data.shared import outputs_of_all

    model = _loaded(options, checkpoint, others)
    starts: list[dict[str, Any]] = []
    best: Best | None = None
    for seed in range(options.seed, options.seed + options.n_init):
        report, values = _compute(options, model, feeds, seed, depth)
        if options.n_init > 1:
            starts.append({"seed": seed, "objective": float(values[OBJECTIVE])})
        if best is None or float(values[OBJECTIVE]) < float(best.values[OBJECTIVE]):
            best = Best(seed, report, values, starts)
    assert best is not None
    if others.size > 1:
        whole = outputs_of_all(best.values, model.program, model.collective)
        best = best if whole is None else replace(best, values=whole)
    return best


def _loaded(options: argparse.Namespace, checkpoint: Checkpoint, others: Collective) -> Model:
    from weftc_runtime.model import load

    group = None
    if others.size > 1:
        from torch.distributed import group as groups

        group = groups.WORLD
    try:
        return load(
            checkpoint,
            dtype=options.dtype,
            device=options.device,
            backend=options.backend,
            deterministic=options.deterministic,
            group=group,
        )
    except (RuntimeError, AssertionError) as error:  # torch on devices it does not know or have
        reason = str(error).splitlines()[0]
        raise UsageError(f"--device {printable(options.device)} cannot be used: {printable(reason)}") from None


def _in_precision(name: str, array: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Large data in the precision of the run, on disk if it is not that of their file; the model converts others."""
    from weftc_runtime.data.blocks import LARGE, in_type

    return in_type(name, array, dtype) if array.ndim == 2 and array.nbytes >= LARGE else array


def _compute(
    options: argparse.Namespace, model: Model, feeds: Feeds, seed: int, depth: Mapping[str, Any]
) -> tuple[Report, Outputs]:
    """Runs the model; what it reports, and its outputs."""
    rows = max((table.count for table in feeds.tables.values()), default=0)
    with progress(f"running {model.program.name}", rows=rows) as line, told_by_file(feeds):
        arrays = {name: _in_precision(name, array, options.dtype) for name, array in feeds.arrays.items()}
        values = model.final(arrays, seed=seed, progress=line, resume=options.resume, **depth)
    return model.report, values


def _write(
    folder: Path,
    results: Sequence[ResultTable],
    checked: Checked,
    options: argparse.Namespace,
    feeds: Feeds,
    joined: Joining | None,
) -> None:
    from weftc.files.datafiles import write_table, write_text
    from weftc.files.results import joined_columns, scaling_columns

    names = [f"{result.name}.{options.format}" for result in results]
    extra = {}
    if joined is not None:
        extra[f"{joined.name}.{options.format}"] = joined_columns(joined, results)
    if feeds.scalings:
        extra[SCALING] = scaling_columns(feeds.scalings)
    with progress(f"writing {folder.name}"), whole_folder(folder, _results_of(checked), options.force) as partial:
        for name, result in zip(names, results, strict=True):
            shape = (result.rows, len(result.columns))
            write_table(partial / name, result.blocks(), shape, result.columns, options.format, result.labels)
        for name, columns in extra.items():
            write_text(partial / name, columns, "csv" if name == SCALING else options.format)


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


def _listing(result: ResultTable, file: str) -> dict[str, Any]:
    rows, columns = result.rows, list(result.columns)
    columns = [*(result.labels.names if result.labels else ()), *columns]
    sizes = None if result.sizes is None else list(result.sizes)
    listing = {"name": result.name, "file": file, "rows": rows, "columns": columns, "meaning": result.meaning}
    return listing if sizes is None else {**listing, "sizes": sizes}


def describe(summary: Mapping[str, Any], feeds: Feeds) -> str:
    """What happened, for people."""
    fed = ", ".join(f"{name}: {table.count} rows of {table.path}" for name, table in feeds.tables.items())
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
        among = f", the lowest of {len(summary['starts'])} (seed {summary['seed']})" if summary["starts"] else ""
        lines.append(f"  objective  {summary['objective']:.17g}{among}")
    if any(summary["settled"].values()):
        settled = summary["settled"]
        fast = f"{settled['float32']} rows in float32, {settled['float64']}" if settled["float32"] else ""
        rest = f", {settled['undecided']} undecided" if settled["undecided"] else ""
        counts = fast or f"{settled['float64']} rows"
        lines.append(f"  decisions  {counts} in float64, {settled['exact']} exactly{rest}")
    lines += [f"  warning    {warning}" for warning in summary["warnings"]]
    listed = {output["file"]: _line(output) for output in summary["outputs"]}
    if "joined" in summary:
        listed[summary["joined"]] = "the rows of the data with their outputs beside them"
    if feeds.scalings:
        listed[SCALING] = "results are in standardized units: value = mean + scale * result"
    widest = max(map(len, listed), default=0)
    lines += [f"  {summary['folder']}/"]
    lines += [f"    {file:<{widest}}  {told}" for file, told in listed.items()]
    return "\n".join(printable(line) for line in lines)


def _line(output: Mapping[str, Any]) -> str:
    width = len(output["columns"])
    size = f"{output['rows']} rows" if width == 1 else f"{output['rows']} rows x {width}"
    sizes = output.get("sizes")
    if sizes:
        more = ", ..." if len(sizes) > SHOWN_SIZES else ""
        return f"{size}: {output['meaning']} (sizes {', '.join(map(str, sizes[:SHOWN_SIZES]))}{more})"
    return f"{size}: {output['meaning']}" if output["meaning"] else size
