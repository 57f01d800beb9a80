"""How long a layer of Lloyd's algorithm takes in 1, 2, 4 processes of this machine, beside what the model says.

python examples/cluster/scaling.py --processes 1 2 4 --rows 20000 200000 2000000

The model of docs/scale.md is a n / P + c s(P) + b. Its numbers come from measurements of their own: a and b from one
process with many rows and with few, c and s(P) from what a layer sends and from all-reduces of as many bytes. Where
there are more processes than cores, a n / P is taken as often as a core has processes.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from statistics import median

CENTERS, COLUMNS, TIMES = 64, 16, 300
FIRST, LAYERS, REPEATS = 4, 12, 5  # layers that find out what lasts, those that are timed, and how often
FEW = 256  # rows whose work does not count


def work(rows: list[int], alone: bool) -> None:
    """What each process does: times layers and all-reduces, and the first one tells."""
    import numpy as np
    import torch
    import torch.distributed as dist

    import weftc

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    model = weftc.load(
        weftc.compile("lloyd", {"d": COLUMNS, "k": CENTERS}),
        dtype="float32",
        group=None if alone else dist.group.WORLD,
    )
    found: dict[str, float] = {}
    for many in rows:
        drawn = np.random.default_rng(rank).normal(size=(many // size, COLUMNS)).astype(np.float32)
        start = np.random.default_rng(9).normal(size=(CENTERS, COLUMNS)).astype(np.float32)
        runs: dict[int, list[float]] = {FIRST: [], FIRST + LAYERS: []}
        for layers in [*runs] * REPEATS:
            begun = time.perf_counter()
            model(x=drawn, c=start, layers=layers)
            runs[layers].append(time.perf_counter() - begun)
        found[str(many)] = (min(runs[FIRST + LAYERS]) - min(runs[FIRST])) / LAYERS
    sent = torch.zeros(CENTERS * (2 * COLUMNS + 1) + 1, dtype=torch.int64)  # two pieces a sum, and the counts
    taken = []
    for _ in range(TIMES):
        begun = time.perf_counter()
        for part in (torch.zeros(3, dtype=torch.int64), sent):  # the word before an operation, and the operation
            dist.all_reduce(part)
        taken.append(time.perf_counter() - begun)
    found["operation"] = median(taken)
    if rank == 0:
        print(json.dumps(found))
    dist.destroy_process_group()


def measured(size: int, rows: list[int], alone: bool = False) -> dict[str, float]:
    """The times of so many processes, each with one thread; `alone`: of one that has no group."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    told = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--work", *(["--alone"] if alone else []), "--rows", *map(str, rows)]
    running = [
        subprocess.Popen(command, env={**os.environ, **told, "RANK": str(rank)}, stdout=subprocess.PIPE, text=True)
        for rank in range(size)
    ]
    answers = [process.communicate()[0] for process in running]
    if any(process.returncode for process in running):
        raise SystemExit("a process has failed")
    return json.loads(answers[0].splitlines()[-1])


def main() -> None:
    """Measures and compares."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    options.add_argument("--rows", type=int, nargs="+", default=[20_000, 200_000, 2_000_000])
    for hidden in ("--work", "--alone"):
        options.add_argument(hidden, action="store_true", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.work:
        return work(given.rows, given.alone)
    cores, rows, operations = len(os.sched_getaffinity(0)), given.rows, 1
    plain, one = measured(1, rows, alone=True), measured(1, [FEW, *rows])
    base = one[str(FEW)] - operations * one["operation"]
    each = (one[str(rows[-1])] - one[str(FEW)]) / rows[-1]
    print(f"{cores} cores; a = {each * 1e9:.1f} ns a row, b = {base * 1e3:.2f} ms in a group; without one, a layer of")
    print(f"{rows[-1]:,} rows takes {plain[str(rows[-1])] * 1e3:.2f} ms")
    print(f"{'processes':>9} {'rows':>9} {'measured ms':>12} {'model ms':>9} {'speed-up':>9}")
    for size in given.processes:
        found = one if size == 1 else measured(size, rows)
        turn, send = max(1.0, size / cores), found["operation"]
        for many in rows:
            model = each * many / size * turn + operations * send + base
            times = found[str(many)]
            speed = plain[str(many)] / times
            print(f"{size:9} {many:9,} {times * 1e3:12.2f} {model * 1e3:9.2f} {speed:9.2f}")
        if size > 1:
            even = operations * send / (each * (1 - turn / size)) if size > turn else float("inf")
            print(f"{size:9} an operation takes {send * 1e3:.2f} ms; the model says it pays from {even:,.0f} rows")
    return None


if __name__ == "__main__":
    main()
