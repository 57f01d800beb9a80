"""Scores of the eligible candidates -> their weights, as `weftc_runtime.format.program.Weighting` defines them.

A candidate is named by its position; `scores` holds the eligible ones only, in order of position.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from weftc.exact.numbers import ONE, ZERO, Number, exact, total
from weftc_runtime.format.program import Weighting

Scores = Mapping[int, Number]
Weights = dict[int, Number]


def weights(rule: Weighting, scores: Scores) -> Weights | None:
    """The weights of the eligible candidates; None where there is none, or where they have no mass."""
    if rule.kind == "sum":
        return dict(scores)
    if rule.kind == "exp":
        return {key: score.exp() for key, score in scores.items()}
    if not scores:
        return None
    match rule.kind:
        case "argmax":
            return _even(_best(rule, scores))
        case "top":
            return _even(_top(rule, scores))
        case "normmax":
            assert rule.gamma is not None
            return _even(_budget(scores, rule.gamma))
        case "softmax":
            return _shares(_powers(scores)[1])
        case "normalize":
            return _shares(dict(scores))
        case "sparsemax":
            return _sparsemax(scores)
        case "entmax15":
            return _entmax15(scores)
    raise AssertionError(f"{rule.kind} has no weights")


def number(kind: str, scores: Scores) -> Number | None:
    """What `lse` and `max` make of the eligible scores."""
    if not scores:
        return None
    shift, powers = _powers(scores)
    return _peak(scores) if kind == "max" else shift + total(list(powers.values())).log()


def _even(kept: list[int]) -> Weights:
    return {key: exact(Fraction(1, len(kept))) for key in kept}


def _shares(parts: Weights) -> Weights | None:
    mass = total(list(parts.values()))
    return None if mass.sign() == 0 else {key: part / mass for key, part in parts.items()}


def _powers(scores: Scores) -> tuple[Number, Weights]:
    """A shift, and e to each score less that shift, which keeps numbers small."""
    shift = exact(max(score.high for score in scores.values()))
    return shift, {key: (score - shift).exp() for key, score in scores.items()}


def _ranked(scores: Scores) -> list[int]:
    """The candidates from best to worst, the lower position first among equals."""
    done: list[int] = []
    for key in scores:  # by insertion: every comparison is one of two numbers, exact or undecided
        at = len(done)
        while at and scores[done[at - 1]] < scores[key]:
            at -= 1
        done.insert(at, key)
    return done


def _peak(scores: Scores) -> Number:
    """The best score; which candidate has it need not be decided."""
    return Number(max(score.low for score in scores.values()), max(score.high for score in scores.values()))


def _best(rule: Weighting, scores: Scores) -> list[int]:
    best = _peak(scores)
    if rule.ties == "split":
        return [key for key, score in scores.items() if best <= score]
    return [next(key for key, score in scores.items() if best <= score + exact(rule.epsilon))]


def _top(rule: Weighting, scores: Scores) -> list[int]:
    if rule.count is not None:
        return _ranked(scores)[: rule.count]
    assert rule.percent is not None
    better = {key: sum(scores[key] < other for other in scores.values()) for key in scores}
    return [key for key, count in better.items() if 100 * count <= rule.percent * (len(scores) - 1)]


def _budget(scores: Scores, gamma: Fraction) -> list[int]:
    """The fewest best candidates whose gaps to the next one add up to at least 1 / gamma; all if none do."""
    ranked = _ranked(scores)
    for many in range(1, len(ranked)):
        following = scores[ranked[many]]
        if exact(gamma) * total([scores[key] - following for key in ranked[:many]]) >= ONE:
            return ranked[:many]
    return ranked


def _sparsemax(scores: Scores) -> Weights:
    """The nearest point of the simplex: max(0, s - t), where t makes the weights add up to 1."""
    ranked = _ranked(scores)
    many = next(m for m in range(len(ranked), 0, -1) if _inside(scores, ranked, m))
    threshold = (total([scores[key] for key in ranked[:many]]) - ONE) / exact(many)
    inside = set(ranked[:many])
    return {key: score - threshold if key in inside else ZERO for key, score in scores.items()}


def _inside(scores: Scores, ranked: list[int], many: int) -> bool:
    """Whether the last of the best `many` candidates has a weight above 0 among them."""
    last = scores[ranked[many - 1]]
    return total([scores[key] - last for key in ranked[:many]]) < ONE


def _entmax15(scores: Scores) -> Weights:
    """max(0, s/2 - t)^2: the best m have weight if the squares of their leads over the m-th add up to less than 1."""
    half = {key: score / exact(2) for key, score in scores.items()}
    ranked = _ranked(half)
    many = 1
    while many < len(ranked):
        leads = [half[key] - half[ranked[many]] for key in ranked[:many]]
        if total([lead.square() for lead in leads]) >= ONE:
            break
        many += 1
    inside = ranked[:many]
    mean = total([half[key] for key in inside]) / exact(many)
    left = ONE - total([(half[key] - mean).square() for key in inside])
    threshold = mean - (left / exact(many)).sqrt()
    return {key: (half[key] - threshold).clipped().square() if key in inside else ZERO for key in scores}
