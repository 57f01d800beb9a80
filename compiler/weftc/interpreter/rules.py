"""The rules of hard weightings and of sparsemax on exact scores, as the language defines them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import accumulate


def best(scores: Mapping[int, Fraction], ties: str, epsilon: Fraction = Fraction(0)) -> set[int]:
    """The keys a choice keeps: the best one, the first of several; all of them for `split` and `average`."""
    top = max(scores.values())
    if ties in ("split", "average"):
        return {key for key, score in scores.items() if score == top}
    return {min(key for key, score in scores.items() if score >= top - epsilon)}


def nearest_count(scores: Mapping[int, Fraction], count: int) -> set[int]:
    """Exactly `count` best keys (all if there are fewer); equal scores by index, the lower first."""
    return set(sorted(scores, key=lambda key: (-scores[key], key))[:count])


def nearest_share(scores: Mapping[int, Fraction], percent: Fraction) -> set[int]:
    """The keys with 100 * #{better} <= percent * (m - 1): ties at the boundary all stay."""
    ranked = sorted(scores.values(), reverse=True)
    last = ranked[int(percent * (len(ranked) - 1) // 100)]
    return {key for key, score in scores.items() if score >= last}


def budget(scores: Mapping[int, Fraction], gamma: Fraction) -> set[int]:
    """The fewest best keys whose gaps to the next one add up to at least 1/gamma; all if none do."""
    ranked = sorted(scores, key=lambda key: (-scores[key], key))
    total = Fraction(0)
    for m, following in enumerate(ranked[1:], 1):
        total += scores[ranked[m - 1]]
        if gamma * (total - m * scores[following]) >= 1:
            return set(ranked[:m])
    return set(ranked)


def sparsemax(scores: Sequence[Fraction]) -> list[Fraction]:
    """The point of the probability simplex nearest to the scores."""
    ranked = sorted(scores, reverse=True)
    sums = list(accumulate(ranked))
    support = max(m for m in range(1, len(ranked) + 1) if 1 + m * ranked[m - 1] > sums[m - 1])
    threshold = (sums[support - 1] - 1) / support
    return [max(s - threshold, Fraction(0)) for s in scores]
