"""What is asked about a spec or a model -> the parts of its judgement, each of which any process can do by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal

from weftc.core.styles import CHOICES
from weftc.core.types import Checked
from weftc.verification.judged import JudgedGroup
from weftc.verification.verdict import Check
from weftc_runtime.format.checkpoint import Checkpoint

if TYPE_CHECKING:
    from weftc.prover import Proof
    from weftc.verification.runs.backends import Runners
    from weftc.verification.runs.trajectories import Trajectories
    from weftc.verification.transport.by_depth import Assignment

Dtype = Literal["float64", "float32"]
DTYPES: tuple[Dtype, ...] = ("float64", "float32")
Say = Callable[[str], None]  # of the part that is under way, how far it is
Kind = Literal[
    "examples", "proof", "layers", "your data", "whole runs", "temperature", "draws", "distance to an optimum"
]


@dataclass(frozen=True, slots=True)
class Findings:
    """What one part shows."""

    checks: tuple[Check, ...] = ()
    proofs: tuple[Proof, ...] = ()
    assignment: Assignment | None = None


@dataclass(frozen=True, slots=True)
class VerificationPart:
    """One part of a judgement, of the models of one style or (style "") of all."""

    kind: Kind
    style: str
    judge: Callable[[Say], Findings]
    dtype: str = ""

    def __str__(self) -> str:
        return ", ".join(word for word in (self.kind, self.style, self.dtype) if word)


@dataclass(frozen=True)
class Verification:
    """What is judged, and on what. What its parts have in common is made once in every process."""

    checked: Checked
    model: Checkpoint | None  # the target, where it is a model
    groups: tuple[JudgedGroup, ...]
    data: Mapping[str, Any]
    seed: int
    cases: int
    dtypes: tuple[Dtype, ...]
    backend: str

    def work(self) -> list[list[VerificationPart]]:
        """All parts; what stands in one list has much in common, and is best done by one process."""
        groups = [list(self._group(group)) for group in self.groups]
        if len(groups) == 1:
            groups = [[part] for part in groups[0]]
            self._rounded(self.groups[0])  # what most parts need to know, before there are several processes
        examples = [[VerificationPart("examples", "", self._examples)]] if self.checked.spec.examples else []
        return [*examples, *groups, [VerificationPart("distance to an optimum", "", self._distance)]]

    @cached_property
    def _runners(self) -> Runners:
        from weftc.verification.runs.backends import Runners

        return Runners()

    @cached_property
    def _trajectories(self) -> Trajectories:
        from weftc.verification.runs.trajectories import Trajectories

        return Trajectories(self.groups[0].meant, self.groups[0].first, self.seed, self._runners)

    @cached_property
    def _proofs(self) -> dict[str, tuple[Check, tuple[Proof, ...]]]:
        return {}

    @cached_property
    def _wrong(self) -> set[tuple[str, str]]:
        """Styles and backends of which a layer was wrong, as far as this process knows."""
        return set()

    # ---- of all models -----------------------------------------------------------------------------------------------

    def _examples(self, say: Say) -> Findings:
        from weftc.verification.runs.runs import examples

        found = examples(self.checked, self.model, CHOICES["scores"], self.backend)
        if self._rounded(self.groups[0]):  # what an example states is exact, ties and all
            found = [one for one in found if one.name != "examples, transformer"]
        return Findings(tuple(found))

    def _distance(self, say: Say) -> Findings:
        from weftc.verification.transport.assignment import assignment, assignment_check

        found = assignment(self.groups[0].meant, self.groups[0].first, self.data or None, seed=self.seed)
        return Findings() if found is None else Findings((assignment_check(found),), assignment=found)

    # ---- of one style ------------------------------------------------------------------------------------------------

    def _group(self, group: JudgedGroup) -> Iterator[VerificationPart]:
        yield VerificationPart("proof", group.style, partial(self._proof, group))
        for dtype in self.dtypes:
            yield VerificationPart("layers", group.style, partial(self._layers, group, dtype), dtype)
        if self.data and group.whole:
            yield VerificationPart("your data", group.style, partial(self._on_data, group))
        if group.whole:
            yield VerificationPart("whole runs", group.style, partial(self._whole_runs, group))
        if group.meant is not self.checked:
            yield VerificationPart("temperature", group.style, partial(self._temperature, group))
        elif group is self.groups[0] and self.checked.spec.random:
            yield VerificationPart("draws", group.style, partial(self._draws, group))

    def _proved(self, group: JudgedGroup) -> tuple[Check, tuple[Proof, ...]]:
        from weftc.verification.proofs import proofs

        if group.style not in self._proofs:
            models = [subject.checkpoint for subject in group.subjects]
            self._proofs[group.style] = proofs(self.checked, models, group.style)
        return self._proofs[group.style]

    def _rounded(self, group: JudgedGroup) -> bool:
        """Whether the target is a model whose weights are only near those that are proved."""
        from weftc.verification.steps.rounded import is_rounded

        return self.model is not None and is_rounded(self._proved(group)[1][0], self.model)

    def _proof(self, group: JudgedGroup, say: Say) -> Findings:
        from weftc.verification.steps.program_rounding import program_rounding

        check, proofs = self._proved(group)
        lossy = program_rounding(group.meant, group.first, group.style, self.seed)
        said = [lossy] if lossy is not None and not lossy.passed else []  # only where there is something to say
        return Findings((check, *said), proofs)

    def _layers(self, group: JudgedGroup, dtype: str, say: Say) -> Findings:
        from weftc.verification.runs.runs import layers
        from weftc.verification.steps.rounded import rounded_layers

        style, count = group.style, max(1, round(self.cases * group.share))
        if self._rounded(group):
            proof = self._proved(group)[1][0]
            return Findings(
                (rounded_layers(group.meant, group.first, proof, style, dtype, count, self.seed, self.data),)
            )
        found = []
        for runner in self._runners.backends(group.first, self.backend):
            judged = layers(self.checked, group.subjects, style, dtype, count, self.seed, runner, say, self._runners)
            found.append(judged)
            if not judged.passed:
                self._wrong.add((style, runner))
        if self.backend == "auto" and len(found) == 1 and dtype == self.dtypes[-1]:
            reason = f"the planned backend does not run this: {self._runners.uncovered(group.first)}"
            found[-1] = replace(found[-1], detail="; ".join(part for part in (found[-1].detail, reason) if part))
        return Findings(tuple(found))

    def _on_data(self, group: JudgedGroup, say: Say) -> Findings:
        from weftc.verification.runs.runs import on_data

        if self._rounded(group):
            return Findings()
        runs = [(dtype, one) for dtype in self.dtypes for one in self._runners.backends(group.first, self.backend)]
        return Findings(
            tuple(
                on_data(self.checked, group.first, group.style, dtype, self.data, self.seed, runner, self._runners)
                for dtype, runner in runs
            )
        )

    def _whole_runs(self, group: JudgedGroup, say: Say) -> Findings:
        from weftc.verification.runs.large import large_runs

        if self._rounded(group):
            return Findings()
        style, backends = group.style, self._runners.backends(group.first, self.backend)
        sound = [one for one in backends if (style, one) not in self._wrong]
        found = [self._trajectories.against(group.first, style, one) for one in sound]
        for dtype in self.dtypes if "planned" in sound else ():
            tiles = group is self.groups[0] and dtype == "float64"
            models = [group.first, *group.wide]
            found.append(large_runs(self.checked, models, style, dtype, self.seed, self._runners, tiles))
        return Findings(tuple(one for one in found if one is not None))

    def _temperature(self, group: JudgedGroup, say: Say) -> Findings:
        from weftc.verification.temperature.temperature import temperature

        if self._rounded(group):
            return Findings()
        return Findings((temperature(self.checked, group.first, self.cases, self.seed, self.data or None),))

    def _draws(self, group: JudgedGroup, say: Say) -> Findings:
        from weftc.verification.runs.sampling import sampling

        found = None if self._rounded(group) else sampling(self.checked, group.first, group.style, self.seed)
        return Findings() if found is None else Findings((found,))


def gathered(parts: Sequence[VerificationPart], found: Sequence[Findings]) -> list[Findings]:
    """What all parts show, proofs first; without whole runs where a layer is wrong: they only say so less clearly."""
    every = sorted(zip(parts, found, strict=True), key=lambda one: one[0].kind not in ("examples", "proof"))
    wrong = {part.style for part, one in every if part.kind == "layers" and not all(c.passed for c in one.checks)}
    return [one for part, one in every if part.kind != "whole runs" or part.style not in wrong]
