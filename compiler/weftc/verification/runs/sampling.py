"""Draws of a model over many seeds -> whether their frequencies are those of the spec: a chi-square test.

Noise decides a draw, and for equal noise the draw is compared bit for bit like any other choice (`layers`). Over noise,
a draw with Gumbel noise has the probabilities softmax(scores). The scores are the interpreter's, at the fields that the
model had stored; the draws are read from the attention of the heads that read the noise. Cells with few expected draws
are put together. Probabilities may differ from run to run, which only makes the statistic smaller.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from weftc.core.errors import WeftError
from weftc.core.syntax import Weigh, walk
from weftc.core.types import Checked
from weftc.interpreter.decisions import Tally
from weftc.interpreter.environment import World, free
from weftc.interpreter.expressions import Evaluator
from weftc.interpreter.rationals import ExactEvaluator
from weftc.interpreter.sums import candidates
from weftc.verification.cases.inputs import Case, Shape, draw
from weftc.verification.steps.models import Watched, plain
from weftc.verification.steps.stepwise import Stepwise
from weftc.verification.verdict import Check
from weftc_runtime import Checkpoint, WeftRuntimeError, load
from weftc_runtime.format.program import Attend, Head, Program

Floats = NDArray[np.float64]

SEEDS = 64
FAMILIES = ("random", "positive")  # of inputs: some make a few keys likely, some make all keys much alike
LAYERS = 2
TOKENS = 10
FEW = 5.0  # expected draws below which cells are put together
UNLIKELY = 1e-5  # a statistic less likely than this is a failure


@dataclass(frozen=True, slots=True)
class Draw:
    """A draw of the spec: its step of the layer, the index of whoever draws, and the place of its heads in a trace."""

    node: Weigh
    step: int
    query: str
    sites: tuple[str, ...]


def sampling(checked: Checked, model: Checkpoint, style: str, seed: int, seeds: int = SEEDS) -> Check | None:
    """The frequencies of all draws of a spec; None where it draws nothing, or nothing whose chances are known."""
    found = list(draws(checked, model))
    if not found or model.program.unrolled:
        return None
    name, compared, drawn = f"draws ({style})", "chances", 0
    statistic, freedom = 0.0, 0
    try:
        for one, observed, expected in frequencies(checked, model, found, seed, seeds):
            drawn += round(observed.sum())
            for seen, wanted in zip(observed, expected, strict=True):
                if seen[wanted == 0].any():
                    detail = f"{one.node.kind}[{one.node.index}] drew what has no chance in the spec"
                    return Check(name, compared, drawn, False, np.inf, detail=detail)
                cells = merged(seen, wanted)
                statistic += sum((o - e) ** 2 / e for o, e in cells)
                freedom += max(0, len(cells) - 1)
    except (WeftError, WeftRuntimeError) as error:
        return Check(name, compared, drawn, False, np.inf, detail=str(error))
    if not freedom:
        return None
    chance = likelihood(statistic, freedom)
    compared = f"chances, chi-square ({freedom})"
    detail = (
        f"frequencies like these have a chance of {chance:.1g} under the spec: these draws do not follow its scores"
    )
    fits = chance >= UNLIKELY
    return Check(name, compared, drawn, fits, statistic, critical(freedom), detail="" if fits else detail)


# ---- what draws ------------------------------------------------------------------------------------------------------


def draws(checked: Checked, model: Checkpoint) -> Iterator[Draw]:
    """The draws with Gumbel noise of one number per query, and the heads of the layer that read that noise."""
    heads = list(_noisy(model.program, model.tensors))
    for number, step in enumerate(checked.spec.steps):
        for equation in step.equations:
            for node in walk(equation.body):
                if not isinstance(node, Weigh) or node.noise is None:
                    continue
                queries = free(node) - {node.index}
                if checked.fields[node.noise.name].kind != "gumbel" or len(queries) != 1:
                    continue
                homes = checked.index[next(iter(queries))], checked.index[node.index]
                sites = [site for site, head, noises in heads if node.noise.name in noises]
                sites = [site for site, head, _ in heads if site in sites and (head.query, head.keys) == homes]
                if sites:
                    yield Draw(node, number, next(iter(queries)), tuple(sites))


def _noisy(program: Program, tensors: Mapping[str, Any]) -> Iterator[tuple[str, Head, set[str]]]:
    """Heads that choose, where they are in a trace, and the random fields that their scores read."""
    block = 0
    for step in program.layer:
        for sublayer in step.sublayers:
            for head in sublayer.heads if isinstance(sublayer, Attend) else ():
                noises = set()
                for noise in program.noises:
                    at = program.stream(noise.stream).slot(noise.slot).columns
                    for part in head.score.nested():
                        sides = ((head.query, part.q), (head.keys, part.k))
                        if any(s == noise.stream and np.any(np.asarray(tensors[t])[:, at]) for s, t in sides):
                            noises.add(noise.name)
                if noises and head.weighting.kind == "argmax":
                    yield f"blocks.{block}.{head.name}.pattern", head, noises
            block += 1


# ---- how often -------------------------------------------------------------------------------------------------------


def frequencies(
    checked: Checked, model: Checkpoint, found: list[Draw], seed: int, seeds: int
) -> Iterator[tuple[Draw, Floats, Floats]]:
    """For each draw: how often each query drew each key, over seeds and layers, and how often it should have."""
    for number, family in enumerate(FAMILIES):
        case = _case(checked, model, family, seed)
        yield from _counted(checked, model, found, case, seeds // len(FAMILIES) + number % 2)


def _counted(
    checked: Checked, model: Checkpoint, found: list[Draw], case: Case, seeds: int
) -> Iterator[tuple[Draw, Floats, Floats]]:
    network, meaning = load(model, backend="reference"), Stepwise(checked, model.dims, model.params)
    watched = Watched(checked, network)
    inputs = {name: np.broadcast_to(v, (seeds, *v.shape)).copy() for name, v in case.inputs.items()}
    numbers = [case.seed + one for one in range(seeds)]
    trace = network.trace(inputs, layers=LAYERS, seed=numbers, patterns=True)
    counts: dict[int, list[Floats]] = {}
    for problem in range(seeds):
        one = replace(case, seed=numbers[problem])
        for layer, steps in enumerate(watched.before_steps(trace, LAYERS, problem)):
            for at, draw_ in enumerate(found):
                world = meaning.world(steps[draw_.step])
                world = replace(world, noise=watched.noise(one, world.sizes, layer))
                wanted = chances(world, draw_)
                seen = np.sum([plain(trace[f"layers.{layer}.{site}"])[problem] for site in draw_.sites], axis=0)
                totals = counts.setdefault(at, [np.zeros_like(wanted), np.zeros_like(wanted)])
                totals[0] += seen[:, : wanted.shape[1]]
                totals[1] += wanted
    for at, (observed, expected) in counts.items():
        yield found[at], observed, expected


def _case(checked: Checked, model: Checkpoint, family: str, seed: int) -> Case:
    """Small inputs of moderate size, so that several keys have a fair chance."""
    sizes = {name: model.dims[size] if isinstance(size, str) else size or TOKENS for name, size in checked.sets.items()}
    return draw(checked, Shape(model.dims, sizes), family, np.random.default_rng((seed, 31)))


def chances(world: World, one: Draw) -> Floats:
    """softmax of the scores over the candidates, (queries, keys)."""
    evaluator = Evaluator(world, ExactEvaluator(world), Tally())
    table, counted = evaluator.table(one.node.score), evaluator.conditions(one.node.where)
    data, _, keep, _ = candidates(table, one.node.index, world.size(one.node.index), counted, (one.query,))
    data = np.broadcast_to(data, (world.size(one.query), data.shape[-1]))
    weights = np.where(keep, np.exp(data - np.max(np.where(keep, data, -np.inf), axis=1, keepdims=True)), 0.0)
    return np.asarray(weights / np.maximum(weights.sum(axis=1, keepdims=True), np.finfo(float).tiny))


# ---- the test --------------------------------------------------------------------------------------------------------


def merged(observed: Floats, expected: Floats) -> list[tuple[float, float]]:
    """Cells of (observed, expected), the rarest put together until each expects enough; none if one is all there is."""
    cells: list[tuple[float, float]] = []
    rest = (0.0, 0.0)
    for at in np.argsort(expected):
        rest = rest[0] + float(observed[at]), rest[1] + float(expected[at])
        if rest[1] >= FEW:
            cells.append(rest)
            rest = (0.0, 0.0)
    if rest[1] and cells:
        cells[-1] = cells[-1][0] + rest[0], cells[-1][1] + rest[1]
    return cells if len(cells) > 1 else []


def likelihood(statistic: float, freedom: int) -> float:
    """The chance of a chi-square as large as this or larger."""
    half = torch.tensor([freedom / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))


def critical(freedom: int) -> float:
    """The smallest chi-square that is a failure."""
    low, high = 0.0, 100.0 + 4.0 * freedom
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if likelihood(middle, freedom) >= UNLIKELY else (low, middle)
    return low
