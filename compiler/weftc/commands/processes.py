"""`torchrun ... -m weftc run`: the processes of one run. The first one speaks and writes for all."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from weftc.commands.options import UsageError
from weftc.files.feeds import Feeds

if TYPE_CHECKING:
    from weftc_runtime.format.program import Program
    from weftc_runtime.kernels.collective import Collective

PATIENCE = timedelta(minutes=30)  # with a process that is there and says nothing


def together(work: Callable[[Collective], int]) -> int:
    """Does the work in this process, or in all that torchrun has started; an error in one ends all."""
    from weftc_runtime.kernels.collective import ALONE, Lost, ProcessGroup

    if int(os.environ.get("WORLD_SIZE", "1")) < 2 or "RANK" not in os.environ:
        return work(ALONE)
    import torch.distributed as dist

    try:
        dist.init_process_group("gloo", timeout=PATIENCE)
    except (RuntimeError, ValueError) as error:
        raise UsageError(f"the processes of torchrun do not find each other: {str(error).splitlines()[0]}") from None
    group = ProcessGroup(dist.group.WORLD)
    try:
        with ExitStack() as quiet:
            if group.rank:
                nowhere = quiet.enter_context(open(os.devnull, "w", encoding="utf-8"))
                quiet.enter_context(redirect_stdout(nowhere))
                quiet.enter_context(redirect_stderr(nowhere))
            with group.as_one():
                code = work(group)
                group.wait()
        return code
    except Lost:
        raise
    except Exception:
        if group.rank == 0:
            raise
        return 1
    finally:
        dist.destroy_process_group()


def shares(feeds: Feeds, program: Program, others: Collective) -> Feeds:
    """What this process feeds: its part of the rows of every open set, all rows of every other."""
    if others.size == 1:
        return feeds
    open_sets = {stream.name for stream in program.streams if stream.size is None}
    homes = {item.name: item.stream for item in program.inputs}
    arrays, tables = dict(feeds.arrays), dict(feeds.tables)
    for name, table in feeds.tables.items():
        if homes[name] not in open_sets:
            continue
        if table.part:
            counts = others.gather(len(table.values))
            first, total = sum(counts[: others.rank]), sum(counts)
        else:
            total = len(table.values)
            first, last = (total * rank // others.size for rank in (others.rank, others.rank + 1))
            arrays[name] = arrays[name][first:last]
        tables[name] = replace(table, first=first, total=total)
    return replace(feeds, arrays=arrays, tables=tables)
