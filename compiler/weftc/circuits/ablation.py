"""Is it the circuit? Every edge is cut on inputs of all kinds: nothing may change outside, something must inside.

An edge is cut in four ways (one outside in two of them on each input): its target reads nothing there, or what was sent
by other tokens, or what was sent in a run on other inputs of the same sizes, or something random that its source could
have sent. "Nothing" means equal bits; in a basis that rounds, as near as rounding leaves. Some edges count in rare
cases only (`else c`); for those that have changed nothing so far there are more inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from weftc.circuits.circuit import Circuit, CircuitEdge
from weftc.circuits.routed import Change, Key, RoutedModel, key_of
from weftc.core.source import Source
from weftc.core.types import Checked
from weftc_runtime.format.program import Input

if TYPE_CHECKING:
    from weftc.verification.cases.inputs import Case
    from weftc_runtime import Model

WAYS = ("zero", "other tokens", "other inputs", "random values")
RARE = 30  # times as many inputs, for edges inside that have changed nothing so far
OPPOSITE = "rows in opposite pairs"
PAIRS = ("onehot", "simplex", "real")
CHUNK = 128  # edges that are cut side by side
NEAR = 1e-9  # of the largest: outputs of a model and of its circuit that are the same


@dataclass
class AblationVerdict:
    """What cutting edges has shown: `leaks` are outside and change something, `idle` are inside and do not."""

    inside: int
    outside: int
    cases: int = 0
    unclear: int = 0  # cases that the model decides otherwise than floating point does, or that have no value
    leaks: dict[str, str] = field(default_factory=dict)  # edge -> how it was cut and what changed
    idle: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.leaks and not self.idle and self.cases > 0

    def text(self) -> str:
        """For people."""
        word = "holds" if self.ok else "does not hold"
        lines = [
            f"the circuit {word} on {self.cases} inputs ({self.unclear} more were too close to call or have no value):",
            f"  of {self.inside} edges inside, {self.inside - len(self.idle)} change an output when they are cut",
            f"  of {self.outside} edges outside, {self.outside - len(self.leaks)} change nothing",
        ]
        lines += [f"  changes nothing: {name}" for name in self.idle[:9]]
        lines += [f"  changes something: {name} ({how})" for name, how in list(self.leaks.items())[:9]]
        return "\n".join(lines)

    def json(self) -> dict[str, Any]:
        """As plain data."""
        counts = {"inside": self.inside, "outside": self.outside, "cases": self.cases, "unclear": self.unclear}
        return {"ok": self.ok, **counts, "idle": self.idle, "leaks": self.leaks}


def check(circuit: Circuit, count: int = 12, seed: int = 0, rare: int = RARE) -> AblationVerdict:
    """Cuts every edge of a circuit, and every edge that it does not have, on `count` inputs."""
    from weftc_runtime import load

    model, outside, whole = RoutedModel(circuit), circuit.outside, load(circuit.checkpoint, backend="reference")
    verdict = AblationVerdict(len(circuit.edges), len(outside))
    silent = list(circuit.edges)  # inside, and nothing has changed yet
    for number, (case, other) in enumerate(_cases(circuit, rare * count, seed)):
        if number >= count:
            outside = ()
            if not silent:
                break
        if not _agrees(model, whole, case):
            verdict.unclear += number < count
            continue
        verdict.cases += number < count
        cut = _Cuts(model, case, other, seed)
        for at, way in enumerate(WAYS):
            for edge, what in cut.changes(outside if at in (0, 1 + number % 3) else (), way):
                verdict.leaks.setdefault(edge.name, f"{way}: {what}")
            found = {edge for edge, _ in cut.changes(silent, way)}
            silent = [edge for edge in silent if edge not in found]
    verdict.idle = [edge.name for edge in silent]
    return verdict


class _Cuts:
    """One input, with edges cut one by one."""

    def __init__(self, model: RoutedModel, case: Case, other: Case, seed: int) -> None:
        self.model, self.case = model, case
        self.values = model.run(case.inputs, noise=case.noise, record=True).sent
        self.others = model.run(other.inputs, noise=other.noise, record=True).sent
        self.random = torch.Generator().manual_seed(seed)
        self.exact = all(basis.exact for basis in model.bases.values())
        self._bases: dict[int, Mapping[str, Tensor]] = {}

    def changes(self, edges: Sequence[CircuitEdge], way: str) -> Iterator[tuple[CircuitEdge, str]]:
        """The edges that change an output when they are cut, and which output."""
        for start in range(0, len(edges), CHUNK):
            some = edges[start : start + CHUNK]
            want = self._uncut(len(some))
            shares = torch.eye(len(some), dtype=torch.float64)
            cut = {key_of(edge): Change(shares[at], self._instead(key_of(edge), way)) for at, edge in enumerate(some)}
            got = self.model.run(self.case.inputs, cut, runs=len(some), noise=self.case.noise).outputs
            for at, edge in enumerate(some):
                what = next((name for name in want if self._differs(want[name][at], got[name][at])), None)
                if what is not None:
                    yield edge, what

    def _uncut(self, runs: int) -> Mapping[str, Tensor]:
        if runs not in self._bases:
            self._bases[runs] = self.model.run(self.case.inputs, runs=runs, noise=self.case.noise).outputs
        return self._bases[runs]

    def _instead(self, key: Key, way: str) -> Tensor | None:
        if way == "zero":
            return None
        if way == "other inputs":
            return self.others[key]
        value = self.values[key]
        if way == "random values":
            sent = torch.from_numpy(self.model.circuit.sent[key])
            drawn = torch.randn(1, value.shape[1], sent.shape[1], generator=self.random, dtype=value.dtype)
            return value * torch.randn(1, value.shape[1], 1, generator=self.random, dtype=value.dtype) + drawn @ sent.T
        return value[:, torch.randperm(value.shape[1], generator=self.random)]

    def _differs(self, want: Tensor, got: Tensor) -> bool:
        if self.exact:
            return not torch.equal(torch.nan_to_num(want), torch.nan_to_num(got))
        return not torch.allclose(got, want, rtol=NEAR, atol=NEAR * float(want.abs().max()), equal_nan=True)


def _cases(circuit: Circuit, count: int, seed: int) -> Iterator[tuple[Case, Case]]:
    """Inputs of all kinds, each with others of the same sizes."""
    from weftc.language.check.check import check as checked
    from weftc.language.parse.parse import parse
    from weftc.verification.cases.families import FAMILIES
    from weftc.verification.cases.inputs import Case, Shape, draw, open_sizes

    checkpoint, families = circuit.checkpoint, (*FAMILIES, OPPOSITE)
    spec = checked(parse(Source(checkpoint.spec_name, checkpoint.spec_text)))
    for number in range(count):
        rng = np.random.default_rng((seed, number))
        pair: list[Case] = []
        shape = Shape(checkpoint.dims, open_sizes(spec, checkpoint.dims, number, rng))
        family = families[number % len(families)]
        if family == OPPOSITE:
            shape = Shape(
                shape.dims, {name: size + size % 2 * spec.is_open(name) for name, size in shape.sizes.items()}
            )
        for one in (family, "random"):
            case = draw(spec, shape, "random" if one == OPPOSITE else one, rng)
            inputs = _opposite(spec, case.inputs, rng) if one == OPPOSITE else case.inputs
            noise = {
                drawn.name: rng.uniform(0.1, 0.9, (circuit.layers, shape.sizes[drawn.stream], _width(circuit, drawn)))
                for drawn in checkpoint.program.noises
            }
            pair.append(Case(one, inputs, circuit.layers, seed, noise))
        yield pair[0], pair[1]


def _opposite(spec: Checked, inputs: Mapping[str, Any], rng: np.random.Generator) -> Mapping[str, Any]:
    """Rows of one input in pairs that add up to zero, rows of every other one equal: sums that vanish exactly."""
    free = [name for name in inputs if spec.fields[name].bound is None and spec.fields[name].kind not in PAIRS]
    if not free:
        return inputs
    chosen = free[int(rng.integers(len(free)))]
    found = {name: np.repeat(rows[:1], len(rows), 0) if name in free else rows for name, rows in inputs.items()}
    found[chosen] = np.array(inputs[chosen])
    half = len(found[chosen]) // 2
    found[chosen][half : 2 * half] = -found[chosen][:half]
    return found


def _width(circuit: Circuit, one: Input) -> int:
    return circuit.checkpoint.program.stream(one.stream).slot(one.slot).width


def _agrees(model: RoutedModel, whole: Model, case: Case) -> bool:
    """Whether the circuit with all its edges gives what the model gives."""
    from weftc_runtime import OneHot, RunError

    circuit = model.circuit
    noise = {one.name: case.noise[one.name] for one in circuit.checkpoint.program.noises}
    try:
        want = whole(case.inputs, layers=circuit.layers, noise=noise)
    except RunError:
        return False
    got = model.run(case.inputs, noise=case.noise).outputs
    for name, value in want.items():
        dense = torch.as_tensor(np.asarray(value.dense()) if isinstance(value, OneHot) else value)
        mine = got[name][0].reshape(dense.shape)
        if not torch.allclose(mine, dense.to(mine), rtol=NEAR, atol=NEAR * float(dense.abs().max())):
            return False
    return True
