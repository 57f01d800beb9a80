"""What the processes of a test do: each runs a model on its rows."""

from __future__ import annotations

import os
import signal
from fractions import Fraction
from typing import Any

import numpy as np

from weftc_runtime.data.results import OneHot


def plain(outputs: Any) -> dict[str, Any]:
    """Outputs as NumPy arrays, one-hot ones as indices."""
    found = {}
    for name in outputs:
        value = outputs[name]
        found[name] = (value.indices if isinstance(value, OneHot) else value).detach().numpy()
    return found


def run_share(
    compiled: Any, inputs: dict[str, Any], options: dict[str, Any], loading: dict[str, Any], skip: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The outputs of one process, the objective, and what it sent."""
    import torch.distributed as dist

    import weftc_runtime

    model = weftc_runtime.load(compiled, group=dist.group.WORLD, **loading)
    outputs = model.final(inputs, **options)
    wanted = plain({name: outputs[name] for name in outputs if name not in skip})
    report = model.report
    return {"outputs": wanted, "report": report, "sent": model.collective.sent}


def run_ring_share(*given: Any) -> dict[str, Any]:
    """The same where keys of soft heads go round a ring; and the most rows that came in at once."""
    from unittest.mock import patch

    from weftc_runtime.kernels.collective import ProcessGroup
    from weftc_runtime.machines import sharded

    came = [0]
    passed = ProcessGroup.passed

    def noted(self: Any, rows: Any, many: int) -> Any:
        came[0] = max(came[0], many)
        return passed(self, rows, many)

    def never(*_: Any) -> Any:
        raise AssertionError("the keys of all processes are brought to one")

    with (
        patch.object(sharded, "RESIDENT", 0),
        patch.object(ProcessGroup, "passed", noted),
        patch.object(ProcessGroup, "joined", never),
    ):
        return {**run_share(*given), "came": came[0]}


def run_turns_share(*given: Any) -> dict[str, Any]:
    """The same where no process ever holds the keys of all; and the most queries that were shown at once."""
    from unittest.mock import patch

    from weftc_runtime.kernels.collective import ProcessGroup
    from weftc_runtime.machines import sharded

    seen = [0]
    shown = ProcessGroup.shown

    def noted(self: Any, mine: Any, shape: tuple[int, ...], *rest: Any) -> Any:
        seen[0] = max(seen[0], shape[0])
        return shown(self, mine, shape, *rest)

    def never(*_: Any) -> Any:
        raise AssertionError("the keys of all processes are brought to one")

    with (
        patch.object(sharded, "RESIDENT", 0),
        patch.object(sharded, "SHOWN", 7),
        patch.object(ProcessGroup, "shown", noted),
        patch.object(ProcessGroup, "joined", never),
    ):
        found = run_share(*given)
        assert 0 < seen[0] <= 7
        return found


def run_native_share(*given: Any) -> dict[str, Any]:
    """The same; and the layers that native calls ran."""
    from unittest.mock import patch

    from weftc_runtime.machines.native_machine import NativeMachine

    ran: list[int] = []
    run = NativeMachine.run

    def noted(self: Any, *how: Any) -> Any:
        found = run(self, *how)
        ran.append(found[0][0])
        return found

    with patch.object(NativeMachine, "run", noted):
        return {**run_share(*given), "ran": ran}


def _group() -> Any:
    import torch.distributed as dist

    from weftc_runtime.kernels.collective import ProcessGroup

    return ProcessGroup(dist.group.WORLD)


def decide_share(weighting: Any, scores: Any, radius: Any, eligible: Any, exact: Any) -> Any:
    """What one process decides about its keys."""
    import torch

    from weftc_runtime.machines.sharded_choice import decide_together

    def oracle(row: int, key: int) -> Fraction:
        return Fraction(float(exact[row, key]))

    given = [torch.as_tensor(np.ascontiguousarray(array)) for array in (scores, radius, eligible)]
    chosen, tiers = decide_together(weighting, *given, oracle, _group())
    return chosen.numpy(), tiers.numpy()


def sum_share(numbers: Any, bins: Any, many: int) -> Any:
    """Exact sums of all processes."""
    import torch

    from weftc_runtime.exact.sums import binned_sum

    blocks = [(torch.tensor(numbers), torch.tensor(bins))]
    return binned_sum(blocks if len(numbers) else [], many, _group()).numpy()


class Stopped(Exception):
    """Somebody ended this."""


def run_until(
    compiled: Any, inputs: dict[str, Any], options: dict[str, Any], at: int, how: str, mine: bool
) -> dict[str, Any]:
    """A run that one process ends at a layer: by an error, by a signal, or not at all."""
    import torch.distributed as dist

    import weftc_runtime
    from weftc_runtime.machines.saved_run import SavedRun

    SavedRun.due = lambda _: True  # type: ignore[method-assign]

    def watch(what: str, done: int, _: int | None) -> None:
        if mine and what == "layer" and done == at:
            if how == "signal":
                os.kill(os.getpid(), signal.SIGKILL)
            raise Stopped("ended on purpose")

    model = weftc_runtime.load(compiled, group=dist.group.WORLD)
    return plain(model.final(inputs, progress=watch, **options))


def sent_share(compiled: Any, inputs: dict[str, Any]) -> int:
    """Bytes that one process sends in its fourth layer."""
    import torch.distributed as dist

    import weftc_runtime
    from weftc.tools.doc_tables.traffic import Meter

    ends: list[int] = []
    for layers in (3, 4):
        model = weftc_runtime.load(compiled, dtype="float32", group=dist.group.WORLD)
        meter = Meter(model.collective)
        model(inputs, layers=layers, progress=meter)
        ends.append(meter.sent)
    return ends[1] - ends[0]
