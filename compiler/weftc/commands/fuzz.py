"""`weftc fuzz`: random well-typed specs against the interpreter, in every style."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weftc.commands.options import UsageError, add_json, natural, positive
from weftc.commands.progress import progress
from weftc.commands.telling import json_text
from weftc.core.source import printable

if TYPE_CHECKING:
    from weftc.fuzz.campaign import Campaign, Finding

SUMMARY = "compile random specs and hold them against the interpreter"
EXAMPLE = """example:
  weftc fuzz --minutes 5 --seed 3
  weftc fuzz --cases 100 --keep found/
  weftc fuzz --replay found/differs-1f2e3d4c5b.json

Every failure is made small and printed with its spec and its numbers; --keep writes it to a file that --replay takes.
Exit code 1 means that something failed. A spec that the lowering refuses is no failure; the share of them is told."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """How long, from which seed, and where to put what is found."""
    parser.add_argument("--minutes", type=_minutes, metavar="N", help="how long to go on (default 1, without --cases)")
    parser.add_argument("--cases", type=positive, metavar="M", help="how many specs to draw")
    parser.add_argument("--seed", type=natural, default=0, metavar="S", help="seed of the specs and inputs (default 0)")
    parser.add_argument("--keep", metavar="FOLDER", help="write every failure into this folder")
    parser.add_argument("--replay", metavar="FILE", action="append", help="compare a saved failure again")
    add_json(parser)


def _minutes(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"must be a number of minutes above 0, not {text!r}")
    return value


def run(options: argparse.Namespace) -> int:
    """Prints what fails, then what was done; 0 only if nothing failed."""
    if options.replay:
        if options.minutes or options.cases or options.keep:
            raise UsageError("--replay compares saved failures; it goes with --json only")
        return _replay(options)
    folder = None if options.keep is None else Path(options.keep)
    if folder is not None and folder.exists() and not folder.is_dir():
        raise UsageError(f"--keep {printable(options.keep)} is not a folder")
    minutes = options.minutes if options.minutes or options.cases else 1.0
    with progress("drawing specs") as line:
        from weftc.fuzz.campaign import Campaign
        from weftc.fuzz.corpus import report, saved

        campaign = Campaign(options.seed, options.cases, minutes)
        found = []
        for one in campaign.run(line):
            found.append(one)
            if folder is not None:
                saved(one.trial, one.failure, folder)
            if not options.json:
                print(f"== spec {one.number} of seed {options.seed}: {report(one.trial, one.failure)}\n", flush=True)
    print(json_text(options, _account(campaign, found)) if options.json else _summary(campaign, found))
    return 1 if found else 0


def _summary(campaign: Campaign, found: list[Finding]) -> str:
    many = {0: "nothing failed", 1: "1 failure"}.get(len(found), f"{len(found)} failures")
    return f"seed {campaign.seed}: {many}\n{campaign.tally}"


def _account(campaign: Campaign, found: list[Finding]) -> dict[str, Any]:
    tally = campaign.tally
    return {
        "ok": not found,
        "seed": campaign.seed,
        "specs": tally.specs,
        "refused": tally.refused,
        "models": tally.styles,
        "planned": tally.fast,
        "inapplicable": tally.inapplicable,
        "cases": tally.cases,
        "steps": tally.steps,
        "no_value": tally.no_value,
        "undecided": tally.undecided,
        "failures": [
            {
                "spec": one.number,
                "kind": one.failure.kind,
                "where": one.failure.where,
                "told": one.failure.told,
                "text": one.trial.text,
            }
            for one in found
        ],
    }


def _replay(options: argparse.Namespace) -> int:
    from weftc.fuzz.corpus import loaded, report
    from weftc.fuzz.trials import again

    failed = []
    for name in options.replay:
        trial = loaded(Path(name))
        failure = again(trial)
        if failure is not None:
            failed.append(name)
        if not options.json:
            print(f"{printable(name)}: {'agrees' if failure is None else report(trial, failure)}")
    if options.json:
        print(json_text(options, {"ok": not failed, "replayed": len(options.replay), "failed": failed}))
    return 1 if failed else 0
