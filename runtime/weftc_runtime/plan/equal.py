"""Heads whose keys count where a number of theirs equals one of the query: `where to[e] = i`, `x[from[e]]`, `x[i-1]`.

Two masks say a >= b and a <= b, a of the query and b of the key. Such a head needs no array of queries x keys: keys and
queries are sorted by their numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from weftc_runtime.format.program import Head, Score
from weftc_runtime.plan.structure import table

KINDS = frozenset({"sum", "normalize", "exp", "softmax", "max", "lse", "argmax"})


@dataclass(frozen=True, slots=True)
class Sides:
    """A score that is a function of the query plus one of the key: both as rows over what is read there."""

    query: Tensor
    key: Tensor


Constant = Callable[[Tensor], Tensor | None]  # rows of a matrix -> their values, if they are the same for all tokens


def sides(
    score: Score, q: Mapping[str, Tensor], k: Mapping[str, Tensor], same: tuple[Constant, Constant]
) -> Sides | None:
    """A score as such a sum, if it is one; `same` tells what is one number for all tokens, of queries and of keys."""
    query: Tensor | None = None
    key: Tensor | None = None
    for part in score.parts:
        if part.kind != "dot" or part.scale is not None or part.factors:
            return None
        for one, other in zip(table(q[part.q]), table(k[part.k]), strict=True):
            if (number := same[1](other)) is not None:
                query, key = _plus(query, number * one), _plus(key, 0 * other)
            elif (number := same[0](one)) is not None:
                query, key = _plus(query, 0 * one), _plus(key, number * other)
            else:
                return None
    return None if query is None or key is None else Sides(query, key)


def _plus(total: Tensor | None, more: Tensor) -> Tensor:
    return more if total is None else total + more


def equal_masks(
    head: Head, q: Mapping[str, Tensor], k: Mapping[str, Tensor], same: tuple[Constant, Constant]
) -> tuple[int, int, Sides] | None:
    """The two masks of a head that ask for equal numbers, and what is to be equal to minus what."""
    found = [
        (number, mask.op, sides(mask.score, q, k, same))
        for number, mask in enumerate(head.masks)
        if mask.op in (">=", "<=")
    ]
    for at, (first, op, one) in enumerate(found):
        for second, other_op, other in found[at + 1 :]:
            if one is None or other is None or op != other_op or not bool(one.key.any()):
                continue
            if torch.equal(one.query, -other.query) and torch.equal(one.key, -other.key):
                return first, second, one
    return None


def numbers(row: Tensor, columns: Tensor) -> Tensor | None:
    """What a row makes of every token, if float64 holds it exactly."""
    used = row.nonzero()[:, 0].tolist()
    if not used:
        return torch.zeros(len(columns), dtype=torch.float64, device=columns.device)
    picked, factors = columns[:, used].to(torch.float64), row[used].to(torch.float64)
    exponents = torch.frexp(factors)[0].abs()
    if len(used) == 1 and bool((exponents == 0.5).all()):
        return picked[:, 0] * factors + 0.0
    whole = bool((factors == factors.round()).all()) and bool((picked == picked.round()).all())
    if not whole or float((picked.abs() * factors.abs()).sum(1).amax()) >= 2.0**52:
        return None
    return (picked * factors).sum(1) + 0.0


def all_in(names: Iterable[str], forms: Mapping[tuple[str, str], str], stream: str) -> bool:
    """Whether the slots of a stream are the same for all tokens."""
    return all(forms[stream, name] in ("uniform", "zero") for name in names)
