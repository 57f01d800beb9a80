"""Mutants of every spec in every style, judged: seed and count -> how many are refused, rejected, accepted, and wrong.

    python tests/campaign.py --seed 1 --count 20000 --judge 0.2 --verify 0.05

A mutant changes the function when, on some case, it answers something else than the interpreter says of the spec
inside the file, or stops where that has a value, or has a value where that has none. The exact executor runs the
mutant, so that no rounding hides a difference. One that changes the function must not be accepted: neither proved, nor
`tested`. A proof up to eps is judged where it says something: numbers of ordinary size, and no choice between equals.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from mutants import Mutant, file, mutant
from weftc.compiling import at_temperature, checked_spec, compile
from weftc.core.errors import WeftError
from weftc.core.source import Source
from weftc.core.styles import Styles
from weftc.core.types import Checked
from weftc.exact import Execution, Executor, NoValue, Undecided, execute
from weftc.files.locate import names
from weftc.interpreter.interpreter import EvaluationError, Interpreter
from weftc.language.bind import bind
from weftc.language.check.check import check
from weftc.language.parse.parse import parse
from weftc.prover import prove
from weftc.show.style_effects import choices, chosen, same
from weftc.verification.cases.inputs import Case, cases
from weftc.verification.verification import verify
from weftc_runtime import Checkpoint
from weftc_runtime.format.program import Head

LAYERS = 2
SMALL = 7  # tokens of a case
FAMILIES = ("random", "exact ties on a grid", "duplicates", "all rows equal", "positive", "abandoned rows", "collinear")
CASES = 8
NEAR = 1e-6  # relative to the largest number: rounding of the interpreter stays below, on these cases
ORDINARY = 16.0
CLOSE = 1e-6  # scores nearer than that are as good as tied, for a proof up to eps
Answers = Mapping[str, np.ndarray] | None  # None: no value


@cache
def originals(size: int) -> tuple[tuple[str, Checkpoint], ...]:
    """Every spec in every style that is another program."""
    found = []
    for name in names(""):
        checked = checked_spec(name)
        counts = {one for one in checked.sets.values() if isinstance(one, str)}
        dims = {dim: 2 if dim in counts else size for dim in checked.dims}
        plain = compile(checked, dims)
        found.append((name, plain))
        for style, value in choices():
            try:
                made = compile(checked, dims, **chosen(style, value))
            except WeftError:
                continue
            if not same(made, plain):
                found.append((f"{name} {style}={value}", made))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Truth:
    """What the interpreter says of a spec on some cases: those in which rounding between steps decides nothing."""

    cases: tuple[Case, ...]
    noises: tuple[Mapping[str, Any], ...]
    answers: tuple[Answers, ...]
    tied: tuple[bool, ...]  # whether some choice is close, in exact arithmetic

    @classmethod
    def of(cls, checked: Checked, dims: Mapping[str, int], params: Mapping[str, float], layers: int) -> Truth:
        """The truth, on cases that are small."""
        meaning = Interpreter(checked, dims, params)
        drawn = (one for one in cases(checked, dims, 4 * CASES, 7, families=FAMILIES) if one.tokens <= SMALL)
        kept = tuple(one for one, _ in zip(drawn, range(CASES), strict=False))
        told = [(case, noise, answer) for case in kept for answer, noise in [_meant(meaning, case, layers)]]
        try:
            made = compile(checked, dims, params)
        except WeftError:
            pass
        else:
            told = [one for one in told if not _differ(_found(made, *one[:2], layers), one[2])]
            return cls.joined([(*one, _is_tied(made, *one[:2], layers)) for one in told])
        return cls.joined([(*one, True) for one in told])

    @classmethod
    def joined(cls, told: list[tuple[Case, Mapping[str, Any], Answers, bool]]) -> Truth:
        """Case by case -> part by part."""
        return cls(*map(tuple, zip(*told, strict=True))) if told else cls((), (), (), ())  # type: ignore[arg-type]


def _meant(meaning: Interpreter, case: Case, layers: int) -> tuple[Answers, Mapping[str, Any]]:
    noise: dict[str, Any] = {}
    try:
        fields = meaning.start(case.inputs, seed=case.seed)
        sizes = meaning.surroundings.world(fields).sizes
        drawn = [meaning.surroundings.noise(sizes, at, case.seed, case.noise or None) for at in range(layers)]
        noise = {name: [one[name] for one in drawn] for name in drawn[0]}
        for layer in range(layers):
            fields = meaning.advance(fields, layer, seed=case.seed, noise=case.noise or None).fields
        found = dict(meaning.final(fields, layer=layers - 1, seed=case.seed, noise=case.noise or None))
        if meaning.checked.spec.objective is not None:
            found["the objective"] = np.asarray(meaning.objective(fields))
    except (EvaluationError, WeftError):
        return None, noise
    return {name: np.asarray(values, float) for name, values in found.items()}, noise


@dataclass(slots=True)
class Judge:
    """Whether files compute their specs; remembers what it has been told about each spec."""

    known: dict[Any, Truth | None] = field(default_factory=dict)

    def truth(self, made: Checkpoint) -> Truth | None:
        """What the spec in a file means; None where it is no spec."""
        styles = Styles.read(made.program.options)
        key = (made.spec_text, tuple(made.dims.items()), tuple(made.params.items()), str(styles), _depth(made))
        if key not in self.known:
            if len(self.known) > 400:
                self.known.clear()
            try:
                checked = at_temperature(check(parse(Source("spec", made.spec_text))), styles)
                self.known[key] = Truth.of(checked, made.dims, made.params, _depth(made))
            except (WeftError, KeyError):
                self.known[key] = None
        return self.known[key]

    def difference(self, made: Checkpoint, near: bool = False) -> str | None:
        """The first difference between a file and its spec; `near`: where a proof up to eps speaks of it."""
        truth = self.truth(made)
        if truth is None:
            return "the text is no spec for these sizes"
        every = zip(truth.cases, truth.noises, truth.answers, truth.tied, strict=True)
        for case, noise, wanted, tied in every:
            numbers = [*case.inputs.values(), *(wanted or {}).values()]
            large = any(np.max(np.abs(values), initial=0.0) > ORDINARY for values in numbers)
            if near and (large or tied):
                continue
            found = _found(made, case, noise, _depth(made))
            text = _differ(found, wanted)
            if text:
                return f"{case.family}, {case.tokens} tokens: {text}"
        return None


SKIPPED: Any = object()


def _depth(made: Checkpoint) -> int:
    """How many layers to run: as many as there are, of those that each have weights of their own."""
    return min(max(made.program.layers, 1), 3) if made.program.unrolled else LAYERS


def _found(made: Checkpoint, case: Case, noise: Mapping[str, Any], layers: int) -> Any:
    """What a file answers; `SKIPPED` outside its conditions, and where no enclosure tells."""
    widths = {one.name: made.program.stream(one.stream).slot(one.slot).width for one in made.program.inputs}
    given = {name: np.size(values) // max(len(values), 1) for name, values in case.inputs.items()}
    sizes = {one.name: made.program.stream(one.stream).size for one in made.program.inputs}
    if widths != given or any(size not in (None, len(case.inputs[name])) for name, size in sizes.items()):
        return {}
    try:
        run = execute(made, case.inputs, layers, noise or None)
        found: dict[str, Any] = dict(run.final())
        if made.program.objective is not None:
            found["the objective"] = run.objective()
    except NoValue as error:
        return SKIPPED if str(error) in {one.text for one in made.program.conditions} else None
    except Undecided:
        return SKIPPED
    return {name: np.vectorize(float, otypes=[float])(np.array(value, object)) for name, value in found.items()}


class Ranking(Executor):
    """Runs a file, and notes whether some choice is between scores that are close."""

    close = False

    def _candidates(self, head: Head, query: int, run: Execution) -> dict[int, Any]:
        scores = super()._candidates(head, query, run)
        if head.weighting.kind in ("argmax", "top", "normmax", "max"):
            known = sorted(float(one) for one in scores.values())
            self.close |= any(above - below <= CLOSE * (1 + abs(above)) for below, above in pairwise(known))
        return scores


def _is_tied(made: Checkpoint, case: Case, noise: Mapping[str, Any], layers: int) -> bool:
    """Whether a choice of a right file is close: of its layers, or of what it answers."""
    ranking = Ranking(made)
    try:
        run = ranking.run(case.inputs, layers, noise or None)
        run.final()
        if made.program.objective is not None:
            run.objective()
    except (NoValue, Undecided):
        return True
    return ranking.close


def _differ(found: Any, wanted: Answers) -> str:
    if found is SKIPPED:
        return ""
    if found is None or wanted is None:
        return "" if found is wanted else f"the file {'stops' if found is None else 'has a value'}, the spec does not"
    if set(found) != set(wanted):
        return f"answers {sorted(found)}, not {sorted(wanted)}"
    for name, values in wanted.items():
        if np.size(values) != np.size(found[name]):
            return f"{name} has {np.size(found[name])} numbers, not {np.size(values)}"
        gap = np.max(np.abs(np.ravel(found[name]) - np.ravel(values)), initial=0.0)
        if not gap <= NEAR * (1 + np.max(np.abs(values), initial=0.0)):
            return f"{name} is off by {gap:.2g}"
    return ""


@dataclass(slots=True)
class Tally:
    """What became of the mutants."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)  # changes the function and is accepted, or ends in a traceback
    harmless: Counter[str] = field(default_factory=Counter)  # rejected though they change nothing, by kind of place

    def __str__(self) -> str:
        return json.dumps({"counts": dict(sorted(self.counts.items())), "wrong": self.wrong}, indent=1)


@dataclass(slots=True)
class Campaign:
    """Mutants from a seed, judged one after the other."""

    seed: int
    judged: float = 1.0  # the share of mutants beyond the proof that are run; those that are accepted all are
    verified: float = 0.0  # the share of those which change the function that `verify` is asked about
    kind: str | None = None  # of change
    judge: Judge = field(default_factory=Judge)
    tally: Tally = field(default_factory=Tally)

    def run(self, numbers: Sequence[int]) -> Tally:
        """Mutants by their numbers."""
        for number in numbers:
            self.one(number)
        return self.tally

    def one(self, number: int) -> None:
        """One mutant; what it was is named in the tally if something is wrong."""
        rng = random.Random(f"{self.seed} {number}")
        models = originals(rng.choice((1, 1, 2)))
        changed = None
        while changed is None:  # not every model can be changed in every way: some have no sizes
            name, made = models[rng.randrange(len(models))]
            changed = next(
                (one for one in (mutant(made, rng, self.kind) for _ in range(1000)) if one is not None), None
            )
        where = f"{self.seed}:{number} {name}: {changed.change}"
        try:
            self.tally.counts["mutants"] += 1
            self._judge(changed, rng, where)
        except Exception as error:  # every traceback is a finding
            last = traceback.extract_tb(error.__traceback__)[-1]
            self.tally.wrong.append(f"{where}: {type(error).__name__}: {error} ({last.filename}:{last.lineno})")
            self.tally.counts["traceback"] += 1

    def _judge(self, changed: Mutant, rng: random.Random, where: str) -> None:
        counts = self.tally.counts
        made = file(changed.model, says=rng.random() < 0.7)
        if made is None:
            counts["refused by the reader"] += 1
            return
        try:
            checked = at_temperature(check(parse(Source("spec", made.spec_text))), Styles.read(made.program.options))
            bind(checked, made.dims, made.params)
        except WeftError:
            counts["no spec, or a style that there is not"] += 1
            return
        proof = prove(made, checked)
        if not proof.verdict.startswith("proved") and rng.random() >= self.judged:
            counts["not judged, not shown"] += 1
            return
        difference = self.judge.difference(made, proof.verdict == "proved up to eps")
        side = "same" if difference is None else "changed"
        counts[f"{changed.kind}: {side}, {proof.verdict}"] += 1
        counts[f"{side}, {proof.verdict}"] += 1
        if difference is None:
            if not proof.verdict.startswith("proved"):
                self.tally.harmless[changed.kind] += 1
            return
        if proof.verdict.startswith("proved"):
            self.tally.wrong.append(f"{where}: {proof.verdict}, but {difference}")
        elif rng.random() < self.verified:
            verdict = verify(made, cases=20)
            counts[f"changed, verify says {verdict.verdict}"] += 1
            if verdict.ok:
                self.tally.wrong.append(f"{where}: verify says {verdict.verdict}, but {difference}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--judge", type=float, default=1.0)
    parser.add_argument("--verify", type=float, default=0.0)
    given = parser.parse_args()
    campaign = Campaign(given.seed, given.judge, given.verify)
    began = time.monotonic()
    for number in range(given.first, given.first + given.count):
        before = len(campaign.tally.wrong)
        campaign.one(number)
        for text in campaign.tally.wrong[before:]:
            print("WRONG", text, flush=True)
        if number % 500 == 499:
            print(
                number + 1, f"{time.monotonic() - began:.0f} s", dict(sorted(campaign.tally.counts.items())), flush=True
            )
    print(campaign.tally)
    sys.exit(bool(campaign.tally.wrong))


if __name__ == "__main__":
    main()
