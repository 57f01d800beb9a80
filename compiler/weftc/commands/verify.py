"""`weftc verify`: evidence that a model computes its spec."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from weftc.commands.options import (
    Settings,
    add_backend,
    add_data,
    add_definitions,
    add_json,
    natural,
    positive,
    settings,
)
from weftc.commands.progress import progress
from weftc.commands.target import Target, compile_target, open_target, refuse_changes
from weftc.commands.telling import tell
from weftc.core.source import printable
from weftc.files.feeds import gather, require_inputs, sampled, told_by_file

if TYPE_CHECKING:
    from weftc.verification.verdict import Verdict

SAMPLE, PAIRED = 10_000, 100  # rows of --data that take seconds: alone, and where every row meets every other
MOST_PROCESSES = 4  # each has its own copy of torch
SUMMARY = "show that a model computes its spec, or where it does not"
EXAMPLE = """example:
  weftc verify mine.weft -D d=2 -D k=3
  weftc verify model.safetensors --data points.csv --json
  weftc verify model.safetensors --export model.onnx

Exit code 1 means that equivalence was refuted or not shown. In the table, "worst" is the error nearest to what is
allowed. With --backend auto every backend that can run a model is judged; another choice judges that one alone.
--json prints {name, verdict, line, ok, eps, rounding: {kind, bound}, seed, claim, conditions, checks, proofs,
assignments, warnings}, numbers finite or null; `line` is the first line of the text:
  checks       [{name, backend, compared, cases, passed, worst, allowed, kappa, relative, eps, detail, shows, proof,
               certificate,
               verdict, settled: [{layer, float64, exact, undecided, fast}]: rows of decisions that each tier settled,
               leads: [{layer, margin, enough, bound, measured, certified, cases}]: at finite temperature,
               failure: null or {place, field, token, got, want, layers, seed, inputs, noise}: where, on what input}]
  proofs       one for each model: its equations, with the reason where one is not proved
  assignments  [{place, size, marginals, confirmed, diameter, residual, judge, indicative_depth_log10, note, holds,
               depths: [{depth, measured, bound: {projective, entries, variation}, because, row_error,
               column_error}]}], for specs whose layers rescale a coupling"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """A target and what to compare on."""
    parser.add_argument("target", metavar="SPEC|MODEL", help="a built-in spec, a .weft file or a .safetensors model")
    add_definitions(parser)
    add_data(parser)
    parser.add_argument("--seed", type=natural, default=0, metavar="N", help="seed of the random cases (default 0)")
    parser.add_argument("--cases", type=positive, metavar="N", help="how many random cases to compare on")
    parser.add_argument(
        "--sample",
        type=positive,
        metavar="N",
        help=f"compare on at most N rows of --data, drawn with the seed (default {SAMPLE}, or {PAIRED} where every row "
        "meets every other)",
    )
    parser.add_argument(
        "--processes",
        type=positive,
        metavar="N",
        help=f"share the work among N processes (default: the number of cores, {MOST_PROCESSES} at most)",
    )
    parser.add_argument("--export", metavar="FILE", help="judge this exported file of the model instead")
    add_backend(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Prints the verdict; 0 only when equivalence was shown."""
    target = open_target(options.target)
    chosen = _settings(options, target)
    if options.export is not None:
        return _judge_export(options, target, chosen)
    feeds = gather(options, target.checked, chosen.dims, "-D" if target.checkpoint is None else "the model")
    if feeds.tables:
        require_inputs(target.checked, feeds)
        feeds = sampled(feeds, options.sample or (PAIRED if compares_open_sets(target) else SAMPLE), options.seed)
    cases = {} if options.cases is None else {"cases": options.cases}
    with progress(f"verifying {target.name}") as line, told_by_file(feeds):
        from weftc.verification.runs.processes import cores
        from weftc.verification.verification import verify

        verdict = verify(
            target.checkpoint or target.checked,
            dims=feeds.dims,
            params=chosen.params,
            data=feeds.arrays or None,
            seed=options.seed,
            backend=options.backend,
            progress=line,
            processes=options.processes or min(cores(), MOST_PROCESSES),
            **cases,
        )
    tell(options, {**verdict.json(), "warnings": list(feeds.notes)}, _text(verdict, feeds.notes))
    return 0 if verdict.ok else 1


def compares_open_sets(target: Target) -> bool:
    """Whether two indices run over open sets: then the work is that of all pairs of rows."""
    return sum(target.checked.is_open(name) for name in target.checked.index.values()) > 1


def _judge_export(options: argparse.Namespace, target: Target, chosen: Settings) -> int:
    checkpoint = compile_target(target, chosen)
    with progress(f"running {options.export}"):
        from weftc.interop.judging import judge_export

        verdict = judge_export(checkpoint, target.checked, Path(options.export), options.cases or 40, options.seed)
    tell(options, verdict.json(), verdict.text())
    return 0 if verdict.ok else 1


def _settings(options: argparse.Namespace, target: Target) -> Settings:
    if target.checkpoint is None:
        return settings(options, target.checked)
    refuse_changes(target, options.definitions, {})
    return Settings(target.checkpoint.dims, target.checkpoint.params)


def _text(verdict: Verdict, notes: Sequence[str]) -> str:
    """The verdict, and below it what the user should know about the data."""
    return "\n".join([verdict.text(), *(printable(f"warning: {note}") for note in notes)])
