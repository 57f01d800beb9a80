"""`weftc bench`: compiled models beside other libraries, in one run, and the targets they are held against."""

from __future__ import annotations

import argparse
import shlex
import sys
from datetime import datetime
from math import isfinite
from pathlib import Path

from weftc.commands.options import UsageError, add_json, positive
from weftc.commands.progress import progress
from weftc.commands.telling import json_text
from weftc.core.source import printable
from weftc.core.words import did_you_mean

SUMMARY = "measure compiled models beside other libraries"
EXAMPLE = """example:
  weftc bench --list
  weftc bench lloyd-16-64 --quick
  weftc bench --quick --threads 2
  weftc bench --markdown docs/bench.md
  weftc bench --profile clustered-16-64 --quick

Without a name everything runs, at the sizes of the targets (about 20 minutes on two cores; --quick: under two).
Each implementation runs in its own process, all take turns. A ratio is the time of another implementation over ours.
Before anything is timed, answers are compared with exact ones. Exit code 1: an answer of ours is not exact, or somebody
did something else than was asked. A target that is missed is reported, and changes nothing about the exit code."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """What to measure, at which size, how often, and where the result goes."""
    parser.add_argument("names", metavar="NAME", nargs="*", help="workloads (default: all); see --list")
    parser.add_argument("--list", action="store_true", help="name the workloads and who takes part")
    parser.add_argument("--quick", action="store_true", help="small sizes and few repetitions")
    parser.add_argument("--scale", type=_factor, default=1.0, metavar="S", help="multiply the number of points")
    parser.add_argument("--threads", type=positive, metavar="N", help="threads of everyone (default: all cores)")
    parser.add_argument("--repeat", type=positive, metavar="N", help="rounds (default 5; --quick 3)")
    parser.add_argument("--device", default="cpu", help="where our side runs, as torch names it (default cpu)")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="time that targets are judged by")
    parser.add_argument("--markdown", metavar="FILE", help="write the result into the marked block of a page")
    parser.add_argument("--profile", metavar="NAME", help="show where the time of our side goes on a workload")
    add_json(parser)


def _factor(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not (isfinite(value) and 0 < value <= 1000):
        raise argparse.ArgumentTypeError(f"must be a number above 0, at most 1000, not {printable(text)!r}")
    return value


def run(options: argparse.Namespace) -> int:
    """Measures, or lists, or profiles."""
    from weftc.tools.bench.running import START
    from weftc.tools.bench.specs import GROUPS, NAMED

    for name in [*options.names, *([options.profile] if options.profile else [])]:
        if name not in NAMED and (name not in (START, *GROUPS) or name == options.profile):
            hint = did_you_mean(name, [*NAMED, *GROUPS, START]) or "weftc bench --list names them"
            raise UsageError(f"there is no workload {printable(name)}; {hint}")
    if options.list:
        return _list(options)
    if options.device != "cpu":
        _take_device(options.device)
    if options.profile:
        return _profile(options)
    return _measure(options)


def _take_device(name: str) -> None:
    """Lets our side run there, if it is there: its processes are told by their environment."""
    import os

    from weftc_runtime.machines.devices import Placement

    try:
        Placement.of(name)
    except (RuntimeError, AssertionError) as error:
        raise UsageError(
            f"--device {printable(name)} cannot be used: {printable(str(error).splitlines()[0])}"
        ) from None
    os.environ["WEFTC_BENCH_DEVICE"] = name


def _list(options: argparse.Namespace) -> int:
    from weftc.tools.bench.peers import PEERS
    from weftc.tools.bench.running import START
    from weftc.tools.bench.specs import GROUPS
    from weftc.tools.bench.workloads import WORKLOADS, scaled

    works = [scaled(workload, options.scale, options.quick) for workload in WORKLOADS]
    if options.json:
        listed = [{"name": w.name, "sizes": w.sizes, "entries": list(w.entries)} for w in works]
        for name, group in GROUPS.items():
            listed.append({"name": name, "sizes": "", "entries": [], "workloads": [w.name for w in group]})
        listed.append({"name": START, "sizes": "", "entries": []})
        missing = sorted(name for name, peer in PEERS.items() if not peer.is_installed)
        print(json_text(options, {"ok": True, "workloads": listed, "not_installed": missing}))
        return 0
    widest = max(len(w.name) for w in works)
    for w in works:
        print(f"{w.name:<{widest}}  {w.sizes}\n{'':<{widest}}  {', '.join(w.entries)}")
    for name, group in GROUPS.items():
        print(f"{name:<{widest}}  {len(group)} workloads, {group[0].name} to {group[-1].name}")
    print(f"{START:<{widest}}  import, compilation, first call, in fresh processes")
    for package in sorted({peer.package for peer in PEERS.values() if not peer.is_installed}):
        print(f"not installed: {package} (pip install 'weftc[bench]')")
    return 0


def _profile(options: argparse.Namespace) -> int:
    from weftc.tools.bench.running import profiled
    from weftc.tools.bench.specs import NAMED
    from weftc.tools.bench.workloads import scaled
    from weftc.verification.runs.processes import cores

    text = profiled(scaled(NAMED[options.profile], options.scale, options.quick), options.threads or cores())
    print(json_text(options, {"ok": True, "name": options.profile, "text": text}) if options.json else text)
    return 0


def _measure(options: argparse.Namespace) -> int:
    from weftc.tools.bench import page
    from weftc.tools.bench.account import account
    from weftc.tools.bench.contest import Effort
    from weftc.tools.bench.running import START, bench
    from weftc.tools.bench.specs import GROUPS, named
    from weftc.tools.bench.tables import closing_text, contest_text, heading, markdown
    from weftc.tools.bench.workloads import NAMES, scaled
    from weftc.verification.runs.processes import cores

    if options.markdown:
        page.check(Path(options.markdown))
    names = list(dict.fromkeys(options.names)) or [*NAMES, *GROUPS, START]
    effort = Effort(rounds=options.repeat or 5)
    if options.quick:
        effort = Effort(rounds=options.repeat or 3, patience=1.0, least=1)
    with progress("bench") as line:
        results = bench(
            [scaled(work, options.scale, options.quick) for name in names if name != START for work in named(name)],
            effort,
            options.threads or cores(),
            with_start=START in names,
            keep_processes=options.quick,
            exact_sizes=not options.quick and options.scale == 1,
            command=_command(options),
            say=line.say if sys.stderr.isatty() else _say,
            tell=_nothing if options.json else lambda contest: print(f"{contest_text(contest)}\n", flush=True),
        )
    if options.markdown:
        page.write(Path(options.markdown), markdown(results, options.clock))
    if options.json:
        print(json_text(options, account(results, options.clock)))
    else:
        print(f"{closing_text(results, options.clock)}\n\n{heading(results)}")
    for trouble in results.troubles:
        print(f"error: {trouble}", file=sys.stderr)
    return 1 if results.troubles else 0


def _nothing(contest: object) -> None:
    """With --json everything is told at the end."""


def _say(what: str) -> None:
    """Progress for a log: a benchmark takes long, so a line per stage goes there too."""
    if ": round" not in what:
        print(f"{datetime.now():%H:%M:%S} {what}", file=sys.stderr, flush=True)


def _command(options: argparse.Namespace) -> str:
    words = ["weftc", "bench", *options.names]
    words += ["--quick"] if options.quick else []
    words += ["--scale", f"{options.scale:g}"] if options.scale != 1 else []
    words += ["--threads", str(options.threads)] if options.threads else []
    words += ["--repeat", str(options.repeat)] if options.repeat else []
    words += ["--device", options.device] if options.device != "cpu" else []
    words += ["--clock", options.clock] if options.clock != "wall" else []
    return shlex.join(words + (["--markdown", options.markdown] if options.markdown else []))
