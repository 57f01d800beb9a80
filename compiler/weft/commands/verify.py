"""`weft verify`: evidence that a model computes its spec."""

from __future__ import annotations

import argparse
import json
from typing import Any

from weft.commands.feeds import gather, require_inputs
from weft.commands.options import (
    Settings,
    add_backend,
    add_data,
    add_definitions,
    add_json,
    natural,
    positive,
    settings,
)
from weft.commands.progress import progress
from weft.commands.target import Target, open_target, refuse_changes

SUMMARY = "show that a model computes its spec, or where it does not"
EXAMPLE = """example:
  weft verify mine.weft -D d=2 -D k=3
  weft verify model.safetensors --data points.csv --json

Exit code 1 means that equivalence was refuted or not shown. In the table, "worst" is the error nearest to what is
allowed. With --backend auto every backend that can run a model is judged; another choice judges that one alone.
--json prints {name, verdict, line, ok, eps, rounding: {kind, bound}, seed, claim, conditions, checks, proofs,
assignments}, numbers finite or null; `line` is the first line of the text:
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
    add_backend(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Prints the verdict; 0 only when equivalence was shown."""
    target = open_target(options.target)
    chosen = _settings(options, target)
    feeds = gather(options, target.checked, chosen.dims, "-D" if target.checkpoint is None else "the model")
    if feeds.tables:
        require_inputs(target.checked, feeds)
    cases = {} if options.cases is None else {"cases": options.cases}
    with progress(f"verifying {target.name}") as line:
        from weft.evidence.verification import verify

        verdict = verify(
            target.checkpoint or target.checked,
            dims=feeds.dims,
            params=chosen.params,
            data=feeds.arrays or None,
            seed=options.seed,
            backend=options.backend,
            progress=line,
            **cases,
        )
    print(_json(verdict) if options.json else verdict.text())
    return 0 if verdict.ok else 1


def _settings(options: argparse.Namespace, target: Target) -> Settings:
    if target.checkpoint is None:
        return settings(options, target.checked)
    refuse_changes(target, options.definitions, {})
    return Settings(target.checkpoint.dims, target.checkpoint.params)


def _json(verdict: Any) -> str:
    value = verdict.json()
    return value if isinstance(value, str) else json.dumps(value)
