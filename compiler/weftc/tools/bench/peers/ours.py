"""Compiled models, called as users call them: `weftc.compile`, `weftc.load`, `model(...)`, `model.final(...)`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np

import weftc
from weftc.tools.bench.peers.contestant import Arrays, Contestant, PeerOutcome
from weftc.tools.bench.samples import REGULARISATION, SHARPNESS, STEP
from weftc.tools.bench.workloads import Workload

TRUSTING = "-DWEFTC_TRUSTING"  # compiles the search without a second best
DEVICE = os.environ.get("WEFTC_BENCH_DEVICE", "cpu")  # where our side runs
RAGGED = 0.5  # sizes of a ragged batch: the mean, and up to this share more or less


def waited_for(answer: Any) -> Any:
    """An answer that is there: a GPU is asked, and says so before it has one."""
    if DEVICE.startswith("cuda"):
        import torch

        torch.cuda.synchronize()
    return answer


class _Ours(Contestant):
    """A compiled spec."""

    spec, backend = "lloyd", "auto"
    styles: Mapping[str, Any] = {}

    def prepare(self, workload: Workload, threads: int) -> dict[str, Any]:
        super().prepare(workload, threads)
        import torch

        torch.set_num_threads(threads)
        begun = time.perf_counter()
        checkpoint = weftc.compile(self.spec, dims=self.dims(), params=self.params(), **self.styles)
        compiled = time.perf_counter()
        self.model = weftc.load(checkpoint, dtype=getattr(torch, workload.dtype), backend=self.backend, device=DEVICE)
        loaded = time.perf_counter()
        return {"compile seconds": compiled - begun, "load seconds": loaded - compiled}

    def dims(self) -> dict[str, int]:
        return {"d": self.workload.d, "k": self.workload.k}

    def params(self) -> dict[str, float]:
        return {}

    def hold(self, inputs: Arrays) -> Any:
        import torch

        return {name: torch.from_numpy(array).to(DEVICE) for name, array in inputs.items()}

    def run(self, held: Any, iterations: int) -> Any:
        return waited_for(self.model(held, layers=iterations))

    def outcome(self, answer: Any, iterations: int) -> PeerOutcome:
        arrays = {name: array.cpu().numpy() for name, array in self.read(answer).items()}
        return PeerOutcome(iterations, arrays, self.facts())

    def read(self, answer: Any) -> dict[str, Any]:
        return {"centers": answer["centers"], "labels": answer["labels"].indices}

    def facts(self) -> dict[str, Any]:
        """What the model tells about its last run."""
        report = self.model.report
        told: dict[str, Any] = {"backend": report.backend, "tiers": asdict(report.total)}
        if report.why:
            told["why"] = report.why
        if report.backend != "reference":
            told["plan"] = str(self.model.plan())
        return told


class ClusteringPeer(_Ours):
    """Centers, and the labels that belong to them; without `again`, the labels the last layer held."""

    def __init__(
        self, backend: str = "auto", styles: Mapping[str, Any] | None = None, again: bool = True, spec: str = "lloyd"
    ) -> None:
        self.backend, self.styles, self.again, self.spec = backend, styles or {}, again, spec

    def run(self, held: Any, iterations: int) -> Any:
        if self.again:
            return waited_for(self.model.final(held, layers=iterations))
        return waited_for(self.model(held, layers=iterations))

    def settles(self, held: Any, limit: int) -> int:
        self.model(held, until_stable=True, limit=limit)
        return int(self.model.report.layers[0])

    def outcome(self, answer: Any, iterations: int) -> PeerOutcome:
        made = super().outcome(answer, iterations)
        return PeerOutcome(iterations, made.arrays, {**made.facts, "labels": "final" if self.again else "held"})


@contextmanager
def without_kernels() -> Iterator[None]:
    """As on a machine without a C++ compiler."""
    from weftc_runtime.kernels.native import library

    def nothing() -> None:
        return None

    with patch.object(library, "_known", nothing), patch.object(library, "_made", cache(nothing)):
        yield


class TorchAlone(ClusteringPeer):
    """As on a machine without a C++ compiler: no native kernels while this class runs, torch does the work."""

    def run(self, held: Any, iterations: int) -> Any:
        with without_kernels():
            return super().run(held, iterations)


class SpecPeer(_Ours):
    """Any spec, one problem or a batch; `alone`: as on a machine without a C++ compiler."""

    def __init__(self, alone: bool = False) -> None:
        self.alone = alone

    def prepare(self, workload: Workload, threads: int) -> dict[str, Any]:
        self.spec = workload.spec
        return super().prepare(workload, threads)

    def dims(self) -> dict[str, int]:
        sizes = {"d": self.workload.d, "k": self.workload.k, "m": 4}
        wanted = weftc.check(weftc.parse(self.spec)).dims
        return {name: sizes[name] for name in wanted}

    def run(self, held: Any, iterations: int) -> Any:
        if not self.alone:
            return super().run(held, iterations)
        with without_kernels():
            return super().run(held, iterations)

    def read(self, answer: Any) -> dict[str, Any]:
        names = ("centers", "medoids", "means", "modes", "answers")
        return {"found": next(answer[name] for name in names if name in answer)}


class InFloat32(ClusteringPeer):
    """One layer without the first look in 16 bits; `trusted`: answers are taken as they come, no second best, no
    lead, no float64.

    For the measure of what a certificate costs and for nothing else: kernels compiled with a macro that only this
    class defines, kept in a file of their own, in use while this class runs. One layer: bounds need a second best.
    """

    def __init__(self, trusted: bool) -> None:
        super().__init__(again=False)
        self.trusted = trusted

    def prepare(self, workload: Workload, threads: int) -> dict[str, Any]:
        if workload.iterations != 1:
            raise ValueError("this is for one layer")
        facts = super().prepare(workload, threads)
        from weftc_runtime.kernels.native import building, library

        flags = (*building.FLAGS, TRUSTING) if self.trusted else building.FLAGS
        with patch.object(building, "FLAGS", flags):
            self.kernels = library.Library(str(building.built()))
        return facts

    def run(self, held: Any, iterations: int) -> Any:
        from weftc_runtime.machines import heads_nearest, search

        kernels = patch.object(heads_nearest, "library", lambda build=True: self.kernels)
        with kernels, patch.object(search, "NARROW", sys.maxsize):
            return super().run(held, iterations)


class Transport(_Ours):
    """Dual potentials of entropy-regularised assignment."""

    def __init__(self, spec: str, backend: str = "auto") -> None:
        self.spec, self.backend = spec, backend

    def dims(self) -> dict[str, int]:
        return {"d": self.workload.d}

    def params(self) -> dict[str, float]:
        return {"lambda": REGULARISATION} | ({"gamma": STEP} if self.spec == "sinkhorn_dual" else {})

    def hold(self, inputs: Arrays) -> Any:
        import torch

        held = super().hold(inputs)
        if self.spec == "sinkhorn_log":
            mass = torch.full((len(inputs["x"]),), 1 / len(inputs["x"]), dtype=held["x"].dtype)
            held |= {"a": mass, "b": mass.clone()}
        return held

    def read(self, answer: Any) -> dict[str, Any]:
        first, second = ("u", "v") if "u" in answer else ("f", "g")
        return {"f": answer[first], "g": answer[second]}


class BatchPeer(_Ours):
    """Many small problems in one call, or their points as one large problem."""

    def __init__(self, form: str, spec: str = "lloyd") -> None:
        self.form, self.spec = form, spec

    def params(self) -> dict[str, float]:
        return {"gamma": SHARPNESS} if self.spec == "soft_kmeans" else {}

    def hold(self, inputs: Arrays) -> Any:
        import torch

        x, c = inputs["x"], inputs["c"]
        self._sizes = [len(x) * x.shape[1]] if self.form == "large" else [x.shape[1]] * len(x)
        if self.form == "large":
            return {"x": torch.from_numpy(x.reshape(-1, x.shape[-1])), "c": torch.from_numpy(c[0])}
        if self.form == "batch":
            return {"x": torch.from_numpy(x), "c": torch.from_numpy(c)}
        self._sizes = ragged_sizes(len(x), x.shape[1])
        flat, ends = x.reshape(-1, x.shape[-1]), np.cumsum(self._sizes)[:-1]
        return {"x": [torch.from_numpy(part) for part in np.split(flat, ends)], "c": torch.from_numpy(c)}

    def run(self, held: Any, iterations: int) -> Any:
        return waited_for(self.model.final(held, layers=iterations))

    def read(self, answer: Any) -> dict[str, Any]:
        import torch

        centers = answer["centers"][None] if self.form == "large" else answer["centers"]
        told = {"centers": centers, "sizes": torch.tensor(self._sizes)}
        if "labels" in answer:
            labels = answer["labels"].indices
            told["labels"] = labels[labels >= 0]
        return told


def ragged_sizes(problems: int, points: int) -> list[int]:
    """Sizes around `points`, with the same sum as if all were equal."""
    spread = int(points * RAGGED)
    sizes = [points + (spread * (2 * at - problems + 1)) // problems for at in range(problems)]
    sizes[-1] += problems * points - sum(sizes)
    return sizes
