"""One head on one problem: scores, masks, weights, values -> what it adds to every query token.

Queries are taken in blocks so that memory stays bounded. A head is a generator: it hands out
what it makes at every site and takes back what the listener makes of it, or None where that is nothing else.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import inf

import torch
from torch import Tensor

from weftc_runtime.errors import RunError
from weftc_runtime.exact.bounds import U, quotient_radius, sum_radius, widen
from weftc_runtime.exact.decide import Oracle, compare, decide
from weftc_runtime.exact.rational import Choice, NotRational, RationalScores
from weftc_runtime.exact.sums import weighted_sum
from weftc_runtime.exact.weights import Weights
from weftc_runtime.format.program import HARD, Head, Score, Weighting
from weftc_runtime.format.tensors import NUMBER_HEADS
from weftc_runtime.reference import soft as weigh
from weftc_runtime.reference.derived import DerivedSlots
from weftc_runtime.reference.faults import Fault, Unreadable
from weftc_runtime.reference.feed_forward import NEAR_ZERO, REASONS, Stages
from weftc_runtime.reference.scores import Scorer
from weftc_runtime.reference.state import Problem

LEAST = 2.0**-960  # below this a sum of products may have underflowed
TWINS = 1 << 12  # keys among which equal ones are looked for before they are compared exactly
BLOCK = 1 << 20  # scores computed at a time: 8 MB each for scores, radius, masks and weights


@dataclass(slots=True)
class Weighed:
    """Weights of a block of queries: numerators (q, k) over mass (q,); the self key's numerator is apart."""

    numerators: Tensor
    mass: Tensor | None
    own: Tensor | None = None
    spread: Tensor | None = None  # radius of the numerators, the self key last
    chosen: Tensor | None = None  # (q, candidates), for hard weightings
    eligible: Tensor | None = None
    number: Tensor | None = None  # lse and max: the number itself
    number_radius: Tensor | None = None

    def pattern(self) -> Tensor:
        """The weights of the keys."""
        return self.numerators if self.mass is None else self.numerators / self.mass[:, None]


@dataclass(slots=True)
class HeadResult:
    """What a head adds (q, width), its radius where asked for, what it decided, and the tier of every row.

    `lead`: of a softmax that stands for an argmax, by how much the best score leads at least.
    """

    out: Tensor
    radius: Tensor | None
    choice: Choice
    tiers: Tensor | None
    patterns: list[Tensor] = field(default_factory=list)
    lead: float | None = None
    lost: Fault | None = None  # queries that need a value that does not exist


class HeadRun:
    """One head, bound to the residual it reads."""

    def __init__(
        self,
        head: Head,
        weights: Weights,
        z: Mapping[str, Tensor],
        radii: Mapping[str, Tensor] | None,
        exact: RationalScores,
        need_radius: bool = False,
        remember: bool = False,
        null: Tensor | None = None,
    ) -> None:
        self.head, self.weights, self.exact, self.level = head, weights, exact, exact.level
        self.query, self.keys = z[head.query], z[head.keys] if null is None else torch.cat([z[head.keys], null])
        self.valued, self.own = self.keys, self.query  # what values read, of keys and of a self key
        self.foreign = False  # whether somebody has replaced what scores are made of
        self.hard = head.weighting.kind in HARD
        self.need_radius = need_radius and radii is not None
        self.remember = remember  # whether a later sub-layer of the step may ask what was decided
        self.lead: float | None = None if head.weighting.sharpness is None else inf
        pair = None if radii is None else (radii[head.query], radii[head.keys])
        if pair is not None and null is not None:  # the embedding alone fills it
            pair = (pair[0], torch.cat([pair[1], torch.zeros_like(null)]))
        self.pair = pair
        self.doubtful = exact.blurred and head.weighting.kind == "normalize"  # a mass of roundings is no mass
        self.unreadable, self.unreadable_values = Unreadable(), Unreadable()
        self.unreadable_masks = [Unreadable() for _ in head.masks]

    def _score(self) -> None:
        """Prepares the scores of the head and its masks."""
        pair, needed = self.pair, self.hard or self.need_radius or self.doubtful
        detached = self.query.detach(), self.keys.detach()
        read = detached if self.hard else (self.query, self.keys)
        self.scorer = Scorer(self.head.score, self.weights, *read, pair if needed else None, ordered=not self.hard)
        self.masks = [Scorer(mask.score, self.weights, *detached, pair, ordered=False) for mask in self.head.masks]

    def watch(self, problem: Problem, derived_slots: DerivedSlots) -> None:
        """Looks out for entries without a value."""
        head = self.head
        self.unreadable = derived_slots.unreadable(problem, head, head.score)
        self.unreadable_masks = [derived_slots.unreadable(problem, head, mask.score) for mask in head.masks]
        self.unreadable_values = derived_slots.unreadable_values(problem, head)

    # ------------------------------------------------------------------ driving
    def run(self, listens: Container[str]) -> Stages[HeadResult]:
        """The head's result; shows what it makes at these sites to a listener, who sends what replaces it."""
        yield from self._inputs(listens)
        self._score()
        yield from self._features(listens)
        values, own_values = self._values()
        if "hook_v" in listens:
            given = yield "hook_v", values
            values = values if given is None else given
        rows = len(self.query)
        inside = "hook_attn_scores" in listens or "hook_pattern" in listens
        size = rows if inside else self._at_once()
        outs, radii, chosen, eligible, tiers, lost = [], [], [], [], [], []
        patterns: list[Tensor] = []
        for start in range(0, max(1, rows), size):
            block = slice(start, min(rows, start + size))
            scores = self.scorer.values(block) if self.foreign else None
            if "hook_attn_scores" in listens:
                given = yield "hook_attn_scores", self.scorer.values(block)
                scores = scores if given is None else given
            weighed, tier = self._weigh(block, scores)
            replaced = None
            if "hook_pattern" in listens and weighed.number is None:
                pattern = weighed.pattern()
                replaced = yield "hook_pattern", pattern
                patterns.append(pattern if replaced is None else replaced)
            if self.unreadable_values:
                lost.append(self._lost(weighed, block))
            out = self._output(weighed, replaced, values, own_values, block)
            outs.append(out)
            if self.need_radius:
                radii.append(self._radius(weighed, out.detach(), values, own_values, block))
            if self.remember and weighed.chosen is not None:
                chosen.append(weighed.chosen)
            if self.remember and weighed.eligible is not None:
                eligible.append(weighed.eligible)
            if tier is not None:
                tiers.append(tier)
        result = torch.cat(outs)
        for name in ("hook_z", "hook_result"):
            if name in listens:
                given = yield name, result
                result = result if given is None else given
        return HeadResult(
            result,
            torch.cat(radii) if radii else None,
            Choice(torch.cat(chosen) if chosen else None, torch.cat(eligible) if eligible else None),
            torch.cat(tiers) if tiers else None,
            patterns,
            self.lead,
            self._fault(torch.cat(lost)) if lost else None,
        )

    def _inputs(self, listens: Container[str]) -> Stages[None]:
        """Shows the tokens that the head reads."""
        found = {}
        for name, z in {
            "hook_q_input": self.query,
            "hook_k_input": self.keys,
            "hook_v_input": self.valued,
            "hook_self_input": self.own,
        }.items():
            found[name] = (yield name, z) if name in listens else None
        query, keys, valued, own = found.values()
        self.foreign = query is not None or keys is not None
        self.query, self.keys = self.query if query is None else query, self.keys if keys is None else keys
        self.valued, self.own = self.valued if valued is None else valued, self.own if own is None else own

    def _features(self, listens: Container[str]) -> Stages[None]:
        """Shows queries and keys."""
        if "hook_q" not in listens and "hook_k" not in listens:
            return
        made = self.scorer.features()
        q = (yield "hook_q", made["hook_q"]) if "hook_q" in listens else None
        k = (yield "hook_k", made["hook_k"]) if "hook_k" in listens else None
        if q is not None or k is not None:
            self.foreign = True
            self.scorer.replace(q, k)

    def _lost(self, weighed: Weighed, block: slice) -> Tensor:
        """Which queries give weight to a value that does not exist."""
        found = torch.zeros(block.stop - block.start, dtype=torch.bool, device=self.query.device)
        own, keys = self.unreadable_values.query, self.unreadable_values.keys
        if keys is not None:
            found |= (weighed.numerators[:, : len(keys.rows)].detach() != 0)[:, keys.rows].any(1)
        if own is not None and weighed.own is not None:
            found |= (weighed.own.detach() != 0) & own.rows[block]
        return found

    def _fault(self, rows: Tensor) -> Fault | None:
        both = [one for one in (self.unreadable_values.keys, self.unreadable_values.query) if one is not None]
        return replace(both[0], origin=self.head.origin.rstrip(": "), rows=rows) if bool(rows.any()) else None

    def _values(self) -> tuple[Tensor, Tensor | None]:
        head = self.head
        own = head.self_key
        values = self.keys[:, :0]
        if head.value and head.weighting.kind not in NUMBER_HEADS:
            values = self.weights.linear(self.valued, head.value)
        return values, self.weights.linear(self.own, own.value) if own is not None and own.value else None

    # ------------------------------------------------------------------ what looks at all keys
    def _at_once(self) -> int:
        """Queries of a block."""
        return max(1, BLOCK // max(1, len(self.keys)))

    def _soft(self, kind: str, scores: Tensor, eligible: Tensor) -> weigh.Soft:
        return weigh.soften(kind, scores, eligible)

    def _measured(self, kind: str, scores: Tensor, eligible: Tensor) -> tuple[Tensor, Tensor]:
        return (weigh.log_sum_exp if kind == "lse" else weigh.best_score)(scores, eligible)

    def _decided(
        self,
        weighting: Weighting,
        scores: Tensor,
        radius: Tensor,
        eligible: Tensor,
        oracle: Oracle,
        twins: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        return decide(weighting, scores, radius, eligible, oracle, twins)

    def _counted(self, chosen: Tensor) -> Tensor:
        return chosen.sum(1)

    def _summed(self, numerators: Tensor, values: Tensor, own: Tensor | None) -> Tensor:
        return weighted_sum(numerators, values, own)

    # ------------------------------------------------------------------ weights
    def _weigh(self, block: slice, scores: Tensor | None) -> tuple[Weighed, Tensor | None]:
        kind = self.head.weighting.kind
        eligible, tiers = self._eligible(block)
        needed = self.unreadable and self.unreadable.needed(block, eligible, self.hard)
        if needed:
            raise needed[0].told(self.head.origin, needed[1])
        radius = None
        replaced = scores is not None
        if scores is None:
            if self.scorer.parts and self.hard:
                scores, radius = self.scorer.bounded_values(block)
            else:
                scores = self.scorer.values(block)
                radius = self.scorer.bounded_values(block)[1] if self.need_radius or self.doubtful else None
        own = self.head.self_key
        if own is not None and own.row is not None:
            scores, eligible, radius = self._compete(own.row, block, scores, eligible, radius)
        if self.hard:
            radius = torch.zeros_like(scores) if radius is None else radius
            return self._decide(block, scores.detach(), radius, eligible, tiers, replaced)
        self._check_scores(scores, eligible, block)
        if kind in NUMBER_HEADS:
            number, empty = self._measured(kind, scores, eligible)
            weighed = Weighed(scores, None, self._last(empty, block), number=number, eligible=eligible)
            if radius is not None:
                weighed.number_radius = weigh.number_spread(scores.detach(), radius, eligible, number.detach())
            return weighed, tiers
        if self.lead is not None and not scores.is_meta:
            self.lead = min(self.lead, weigh.lead(scores.detach(), eligible, self.head.weighting.ties == "split"))
        if self.doubtful and radius is not None:
            scores = torch.where(scores.abs() <= radius, 0.0, scores)
        if kind == "normalize" and not replaced and not scores.is_meta:
            scores, radius = self._settle_mass(block, scores, eligible, radius)
        soft = self._soft(kind, scores, eligible)
        if kind == "exp":
            self._check_exp(scores, soft.numerators, block)
        last = self._last(soft.empty, block)
        keys = len(self.keys)
        weighed = Weighed(soft.numerators[:, :keys], soft.mass, last, eligible=eligible[:, :keys])
        if soft.numerators.shape[1] > keys:  # the self key competes, in this process
            weighed.own = soft.numerators[:, keys]
        if radius is not None:
            weighed.spread = weigh.spread(kind, scores.detach(), radius, eligible, soft.numerators.detach())
        return weighed, tiers

    def _settle_mass(
        self, block: slice, scores: Tensor, eligible: Tensor, radius: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """The scores, exactly in rows where rounding may hide that their sum is zero, or make it so.

        Only ratios of scores count, so such a row is given relative to its largest score.
        """
        found = torch.where(eligible, scores.detach(), 0.0)
        mass = found.sum(1)
        terms = torch.where(eligible[:, : len(self.keys)], self.scorer.sizes(block), 0.0).sum(1)
        terms = terms + found[:, len(self.keys) :].abs().sum(1)
        doubtful = (mass.abs() <= NEAR_ZERO * terms) & (terms > 0)
        if self.scorer.parts:
            doubtful |= (terms < LEAST) & eligible.any(1)
        for row in doubtful.nonzero()[:, 0].tolist():
            keys = eligible[row].nonzero()[:, 0].tolist()
            try:
                exact = [self.exact.candidate(self.head, self.level, block.start + row, key) for key in keys]
            except NotRational:
                continue
            largest = max(map(abs, exact)) if sum(exact, Fraction(0)) else Fraction(0)
            settled = torch.zeros_like(scores[row])
            if largest:
                settled[keys] = torch.tensor([float(one / largest) for one in exact], dtype=scores.dtype)
            here = (torch.arange(len(scores), device=scores.device) == row)[:, None]
            scores = torch.where(here, settled, scores)
            radius = None if radius is None else torch.where(here, U * settled.abs(), radius)
        return scores, radius

    def _eligible(self, block: slice) -> tuple[Tensor, Tensor | None]:
        rows = block.stop - block.start
        eligible = torch.ones(rows, len(self.keys), dtype=torch.bool, device=self.query.device)
        tiers = None
        for mask, scorer, unreadable in zip(self.head.masks, self.masks, self.unreadable_masks, strict=True):
            needed = unreadable and unreadable.needed(block, eligible, True)
            if needed:
                raise needed[0].told(self.head.origin, needed[1])
            if mask.op == "other":
                place = torch.arange(block.start, block.stop, device=eligible.device)
                eligible &= place[:, None] != torch.arange(len(self.keys), device=eligible.device)[None]
                continue
            with torch.no_grad():
                scores, radius = scorer.bounded_values(block)
            radius = torch.zeros_like(radius) if self.foreign else radius

            def oracle(row: int, key: int, score: Score = mask.score) -> Fraction:
                return self.exact.score(score, self.level, self.head, block.start + row, key)

            if mask.weighting is not None and not scores.is_meta:
                truth, tier = self._decided(mask.weighting, scores, radius, eligible, oracle, None)
            elif scores.is_meta:
                truth, tier = scores > 0, torch.zeros(rows, dtype=torch.int8, device=scores.device)
            else:
                truth, tier = compare(mask.op, scores, radius, oracle)
            eligible &= truth
            tiers = tier if tiers is None else torch.maximum(tiers, tier)
        return eligible, tiers

    def _compete(
        self, row: str, block: slice, scores: Tensor, eligible: Tensor, radius: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """The self key as one more candidate, after the keys."""
        own = self.weights.linear(self.query[block], row)
        scores = torch.cat([scores, own], 1)
        eligible = torch.cat([eligible, torch.ones_like(eligible[:, :1])], 1)
        if radius is not None and self.pair is not None:
            radius = torch.cat([radius, self.weights.radius(self.query[block].detach(), self.pair[0][block], row)], 1)
        return scores, eligible, radius

    def _decide(
        self, block: slice, scores: Tensor, radius: Tensor, eligible: Tensor, tiers: Tensor | None, replaced: bool
    ) -> tuple[Weighed, Tensor]:
        def oracle(row: int, key: int) -> Fraction:
            if replaced:  # somebody else's numbers: they are compared as they are
                return Fraction(float(scores[row, key]))
            return self.exact.candidate(self.head, self.level, block.start + row, key)

        if replaced:
            radius = torch.zeros_like(scores)
        if scores.is_meta:
            chosen, tier = eligible, torch.zeros(len(scores), dtype=torch.int8, device=scores.device)
        else:
            same = len(self.keys) <= TWINS and not replaced
            twins = self.exact.key_twins(self.head, self.level) if same else None
            chosen, tier = self._decided(self.head.weighting, scores, radius, eligible, oracle, twins)
        keys = len(self.keys)
        count = self._counted(chosen)
        empty = count == 0
        numbers = chosen.to(torch.float64)
        weighed = Weighed(
            numbers[:, :keys], count.clamp_min(1).to(torch.float64), self._last(empty, block), chosen=chosen
        )
        if chosen.shape[1] > keys:
            weighed.own = numbers[:, keys]
        return weighed, tier if tiers is None else torch.maximum(tiers, tier)

    def _last(self, empty: Tensor, block: slice) -> Tensor | None:
        """The numerator of a self key that is used only when nothing else is; an error where there is none."""
        own = self.head.self_key
        if own is not None and own.row is None:
            return empty.to(torch.float64)
        if not empty.is_meta and bool(empty.any()):
            token = block.start + int(empty.nonzero()[0])
            what = "the total weight is zero" if self.head.weighting.kind == "normalize" else "no key is eligible"
            place = self._place(token)
            raise RunError(f"{place}: {what}, and the equation has no `else`", place=place)
        return None

    # ------------------------------------------------------------------ output
    def _output(
        self, weighed: Weighed, replaced: Tensor | None, values: Tensor, own_values: Tensor | None, block: slice
    ) -> Tensor:
        if weighed.number is not None:
            out = self.weights.linear(weighed.number[:, None], self.head.value)
            if weighed.own is not None and own_values is not None:
                out = torch.where(weighed.own[:, None] > 0, own_values[block], out)
            return out
        if not self.head.value:
            return values.new_zeros(block.stop - block.start, 0)
        own, mass = None, weighed.mass
        if weighed.own is not None and own_values is not None:
            own = weighed.own[:, None] * own_values[block]
            if replaced is not None and mass is not None:
                own = own / mass[:, None]
        if replaced is not None:
            return weighted_sum(replaced, values, own)
        total = self._summed(weighed.numerators, values, own)
        return total if mass is None else total / mass[:, None]

    def _radius(self, weighed: Weighed, out: Tensor, values: Tensor, own_values: Tensor | None, block: slice) -> Tensor:
        """Radius of the output; decisions that were taken count as given."""
        assert self.pair is not None
        own_radius = None
        if own_values is not None and self.head.self_key is not None:
            query, error = self.query[block].detach(), self.pair[0][block]
            own_radius = self.weights.radius(query, error, self.head.self_key.value)
        if weighed.number is not None and weighed.number_radius is not None:
            number, error = weighed.number.detach()[:, None], weighed.number_radius[:, None]
            radius = self.weights.radius(number, error, self.head.value)
            if weighed.own is not None and own_radius is not None:
                radius = torch.where(weighed.own[:, None] > 0, own_radius, radius)
            return radius
        keys = self.weights.radius(self.keys.detach(), self.pair[1], self.head.value)
        numerators, count = weighed.numerators.detach(), len(self.keys)
        if self.hard:
            above = numerators @ keys
            spread = own_spread = None
        else:
            assert weighed.spread is not None
            spread, own_spread = weighed.spread[:, :count], weighed.spread[:, count:]
            above = sum_radius(numerators, spread, values.detach(), keys)
        if weighed.own is not None and own_radius is not None and own_values is not None:
            own, size = weighed.own.detach()[:, None], own_values[block].detach().abs()
            above = above + own * own_radius
            if own_spread is not None and own_spread.shape[1]:
                above = above + own_spread * (size + own_radius) + 3 * U * own * size
        mass = None if weighed.mass is None else weighed.mass.detach()[:, None]
        if self.hard and mass is not None:  # the count is exact, and copying a single row rounds nothing
            return widen(above / mass + torch.where(mass == 1, 0.0, 2 * U * out.abs()))
        if mass is None:
            radius = widen(above)
        else:
            assert weighed.spread is not None
            radius = quotient_radius(out, above, mass, weighed.spread.sum(1, keepdim=True) + 3 * U * mass.abs())
        if self.head.weighting.kind not in ("softmax", "sparsemax"):
            return radius
        furthest = (values.detach().abs() + keys).amax(0)  # whatever the weights are, a mean lies among its values
        if own_values is not None and own_radius is not None:
            furthest = torch.maximum(furthest, own_values[block].detach().abs() + own_radius)
        return torch.where(radius < 2 * furthest, radius, widen(2 * furthest))

    # ------------------------------------------------------------------ what can go wrong
    def _place(self, token: int) -> str:
        name = self.head.origin.rstrip(": ") or f"head {self.head.name}"
        return f"{name}: token {token} of {self.head.query} (counted from 0)"

    def _check_scores(self, scores: Tensor, eligible: Tensor, block: slice) -> None:
        if scores.is_meta:
            return
        wrong = (~torch.isfinite(scores.detach()) & eligible).any(1)
        if bool(wrong.any()):
            token = block.start + int(wrong.nonzero()[0])
            place = self._place(token)
            lost = [name for name in self.head.score.functions if name in REASONS]
            nan = lost and bool(torch.isnan(scores.detach()[wrong]).any())
            what = REASONS[lost[0]] if nan else "a score overflows float64; scale the inputs down"
            raise RunError(f"{place}: {what}", place=place)

    def _check_exp(self, scores: Tensor, numbers: Tensor, block: slice) -> None:
        if scores.is_meta:
            return
        wrong = (~torch.isfinite(numbers.detach())).any(1)
        if bool(wrong.any()):
            row = int(wrong.nonzero()[0])
            top = float(scores[row].detach().max())
            place = self._place(block.start + row)
            raise RunError(f"{place}: exp({top:g}) overflows; exponents up to 709 fit", place=place)
