"""The sequence programs of specs/sequences, written as anybody would write them in Python: name -> outputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Outputs = Mapping[str, list[Any]]


def reverse(t: Sequence[str]) -> Outputs:
    return {"r": list(t)[::-1]}


def histogram(t: Sequence[str]) -> Outputs:
    return {"h": [Counter(t)[one] for one in t]}


def double_histogram(t: Sequence[str]) -> Outputs:
    times = Counter(t)
    of_times = Counter(times.values())
    return {"d": [of_times[times[one]] for one in t]}


def first_occurrence(t: Sequence[str]) -> Outputs:
    places = [list(t).index(one) + 1 for one in t]
    return {"p": places, "first": [int(place == at) for at, place in enumerate(places, 1)]}


def fraction_previous(t: Sequence[str]) -> Outputs:
    return {"s": [list(t[: at + 1]).count("a") / (at + 1) for at in range(len(t))]}


def shift(t: Sequence[str]) -> Outputs:
    return {"right": [t[0], *t[:-1]], "left": [*t[1:], t[-1]]}


def sort_unique(x: Sequence[float]) -> Outputs:
    return {"s": sorted(x)}


def sort_stable(x: Sequence[float]) -> Outputs:
    order = sorted(range(len(x)), key=lambda at: x[at])
    ranks = [0] * len(x)
    for rank, at in enumerate(order, 1):
        ranks[at] = rank
    return {"s": sorted(x), "rank": ranks}


def sort_by_key(t: Sequence[str], k: Sequence[float]) -> Outputs:
    order = sorted(range(len(k)), key=lambda at: k[at])
    return {"s": [t[at] for at in order], "keys": [k[at] for at in order]}


def most_frequent(t: Sequence[str]) -> Outputs:
    ranked = [symbol for symbol, _ in Counter(t).most_common()]  # equal ones in the order they first occur
    return {"s": ranked + [ranked[0]] * (len(t) - len(ranked)), "top": [ranked[0]] * len(t)}


def dyck1(t: Sequence[str]) -> Outputs:
    depths, broken, states = [], False, []
    for one in t:
        depths.append((depths[-1] if depths else 0) + {"(": 1, ")": -1}.get(one, 0))
        broken = broken or depths[-1] < 0
        states.append("F" if broken else "P" if depths[-1] else "T")
    found: dict[str, list[Any]] = {state: [int(one == state) for one in states] for state in "TPF"}
    return {**found, "depth": depths, "balanced": [found["T"][-1]] * len(t)}


def dyck2(t: Sequence[str]) -> Outputs:
    stack: list[str] = []
    good, balanced, depths = True, [], []
    for one in t:
        depths.append((depths[-1] if depths else 0) + (1 if one in "([" else -1))
        if one in "([":
            stack.append(one)
        else:
            good = good and bool(stack) and stack.pop() + one in ("()", "[]")
        balanced.append(int(good and not stack))
    return {"T": balanced, "depth": depths}


def pairing(t: Sequence[str]) -> Outputs:
    return induction_of(t, 1, "r")


def induction(t: Sequence[str]) -> Outputs:
    return {**induction_of(t, 1, "n"), "previous": ["none", *t[:-1]]}


def ngram_copy(t: Sequence[str]) -> Outputs:
    return induction_of(t, 2, "n")


def induction_of(t: Sequence[str], length: int, name: str) -> Outputs:
    """What stood behind the last earlier occurrence of the last `length` symbols."""
    padded = ["none"] * length + list(t)  # a symbol before the first is `none`
    found = []
    for at in range(len(t)):
        now = padded[at + 1 : at + 1 + length]
        ends = [k for k in range(at + 1) if padded[k : k + length] == now and (length == 1 or k >= length)]
        found.append(t[ends[-1]] if ends else "none")
    return {name: found}


def selector_width(t: Sequence[str]) -> Outputs:
    return {"w": [sum(one != t[at] for one in t[:at]) for at in range(len(t))]}


def parity(t: Sequence[str]) -> Outputs:
    ones = [list(t[: at + 1]).count("1") for at in range(len(t))]
    return {"odd": [one % 2 for one in ones], "ones": ones}


JUDGES: Mapping[str, Callable[..., Outputs]] = {
    judge.__name__: judge
    for judge in (
        reverse,
        histogram,
        double_histogram,
        first_occurrence,
        fraction_previous,
        shift,
        sort_unique,
        sort_stable,
        sort_by_key,
        most_frequent,
        dyck1,
        dyck2,
        pairing,
        induction,
        ngram_copy,
        selector_width,
        parity,
    )
}
