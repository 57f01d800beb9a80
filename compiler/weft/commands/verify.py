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

Exit code 1 means that equivalence was not shown."""


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
            progress=lambda text: line.say(f"verifying {target.name}: {text}"),
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
