"""`weftc reproduce`: the experiments of the papers, run again -> a folder with a page."""

from __future__ import annotations

import argparse
from pathlib import Path

from weftc.commands.options import UsageError, add_json
from weftc.commands.progress import progress
from weftc.commands.telling import tell
from weftc.core.source import printable

SUMMARY = "run the papers' experiments again, compiled and learned"
EXAMPLE = """example:
  weftc reproduce --list
  weftc reproduce kt-fig3 -o papers/
  weftc reproduce all --budget small --resume -o papers/

Writes, for every experiment, result.json, table.md (what the paper says, what was found, whether it holds) and
figure.png, and index.html about all of them. Budgets: tiny takes seconds and shows that it runs, small takes minutes,
full is the papers' own size and takes hours to days. --resume keeps what an interrupted run has measured."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which experiments, how large, and where to."""
    parser.add_argument("names", metavar="NAME", nargs="*", help="experiments, or all; see --list")
    parser.add_argument("--list", action="store_true", help="name the experiments")
    parser.add_argument(
        "--budget", choices=("tiny", "small", "full"), default="small", help="how large (default small)"
    )
    parser.add_argument("--resume", action="store_true", help="keep what the folder has already")
    parser.add_argument("-o", dest="output", metavar="DIR", help="folder to write (default papers)")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Runs what is asked for; 0 also where a claim of a paper does not hold."""
    from weftc.experiments.catalogue import NAMES, find
    from weftc.experiments.reproduce import Reproduced, reproduce, unknown

    for name in options.names:
        if name not in NAMES and name != "all":
            raise UsageError(unknown(name))
    if options.list:
        listed = [{"name": name, "title": find(name).title} for name in NAMES]
        widest = max(map(len, NAMES))
        text = "\n".join(f"{name:<{widest}}  {find(name).title}" for name in NAMES)
        tell(options, {"ok": True, "experiments": listed}, text)
        return 0
    if not options.names:
        raise UsageError("which experiment? weftc reproduce --list names them; all runs every one")
    names = NAMES if "all" in options.names else tuple(dict.fromkeys(options.names))
    folder = Path(options.output or "papers")
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{printable(str(folder))} is not a folder; choose another place with -o")
    clash = [name for name in names if (folder / name / "result.json").exists()]
    if clash and not options.resume:
        raise UsageError(
            f"{printable(str(folder))} has a result of {clash[0]}; --resume keeps it, -o names another folder"
        )

    def show(made: Reproduced) -> None:
        if not options.json:
            print(
                f"{made.name}: {made.held} of {len(made.findings)} claims hold ({made.cpu_seconds:.0f} s of CPU)",
                flush=True,
            )

    with progress("reproducing") as line:
        made = reproduce(names, folder, options.budget, options.resume, line, show)
    summary = {
        "ok": True,
        "folder": str(folder),
        "experiments": [{"name": one.name, "held": one.held, "claims": len(one.findings)} for one in made],
    }
    tell(options, summary, f"wrote {printable(str(folder / 'index.html'))}")
    return 0
