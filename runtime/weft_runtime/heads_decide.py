"""Heads that decide, under a plan: certified in blocks where that is fast, else as the reference does, on less.

Whatever a fast path cannot prove is settled by `decide`, in float64 with its bound and then in exact arithmetic, so
the decisions are the reference's.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any, cast

import torch
from torch import Tensor

from weft_runtime.attention import HeadRun, Result
from weft_runtime.calls import Asked, Call, Given, ListedRows, classes, without_masks
from weft_runtime.decide import decide
from weft_runtime.exact import Choice, Exact
from weft_runtime.held import Rows, Sparse, blocks
from weft_runtime.ir import HARD, Head, Part, Score
from weft_runtime.lens import HeadLens
from weft_runtime.nearest import Found, Queries, block_rows, nearest, ready
from weft_runtime.plan import Uncovered
from weft_runtime.scores import SAFE, Scorer
from weft_runtime.structure import table
from weft_runtime.sums import exact_sum
from weft_runtime.workers import each

SETTLED = 1 << 20  # scores settled at a time


# ---------------------------------------------------------------------- best keys
def nearest_head(call: Call, pair: bool) -> Given:
    """The value of the best key; with `pair` that value is the key's name and the result an index."""
    index, entries, tiers = _best_keys(call)
    if pair:
        return Given(held=_as_sparse(call, index, entries), choice=_chosen(call, index, entries), tiers=tiers)
    values = call.lens.values(call.keys)
    out = values[index.to(torch.int64)]
    for row, keys in (entries or {}).items():
        out[row] = exact_sum(values[keys], 0) / len(keys)
    return Given(out, choice=_chosen(call, index, entries), tiers=tiers)


def _as_sparse(call: Call, index: Tensor, entries: dict[int, Tensor] | None) -> Sparse:
    width = len(call.keys)
    if not entries:
        return Sparse(call.queries, width, index)
    place = torch.arange(call.queries, device=call.device)
    split = torch.tensor(sorted(entries), device=call.device)
    single = torch.ones(call.queries, dtype=torch.bool, device=call.device)
    single[split] = False
    places, columns = [place[single]], [index[single].to(torch.int64)]
    numbers = [torch.ones(int(single.sum()), dtype=torch.float64, device=call.device)]
    for row in sorted(entries):
        keys = entries[row]
        places.append(torch.full_like(keys, row))
        columns.append(keys)
        numbers.append(torch.full((len(keys),), 1.0, dtype=torch.float64, device=call.device) / len(keys))
    return Sparse(call.queries, width, torch.cat(columns), torch.cat(places), torch.cat(numbers))


def _chosen(call: Call, index: Tensor, entries: dict[int, Tensor] | None) -> Choice:
    class Chosen:
        def __getitem__(self, query: int) -> Tensor:
            query = 0 if call.plan.once else query
            row = torch.zeros(len(call.keys), dtype=torch.bool, device=call.device)
            row[index[query].to(torch.int64) if not entries or query not in entries else entries[query]] = True
            return row

    return Choice(cast(Any, Chosen()), None)


def _best_keys(call: Call) -> tuple[Tensor, dict[int, Tensor] | None, Tensor]:
    """The best key of every query, the rows where several share (ties split), and the tier of every row."""
    weighting = call.plan.head.weighting
    found = _search(call, float(weighting.epsilon))
    tiers = torch.zeros(call.queries, dtype=torch.int8, device=call.device)
    entries: dict[int, Tensor] = {}
    open_rows = (~found.certain).nonzero()[:, 0]
    size = max(1, SETTLED // len(call.keys))
    for start in range(0, len(open_rows), size):
        rows = open_rows[start : start + size]
        chosen, tiers[rows] = _settle(call, rows)
        found.index[rows] = chosen.to(torch.int8).argmax(1).to(torch.int32)
        for at in (chosen.sum(1) > 1).nonzero()[:, 0].tolist():
            entries[int(rows[at])] = chosen[at].nonzero()[:, 0]
    return found.index, entries or None, tiers


def _settle(call: Call, rows: Tensor) -> tuple[Tensor, Tensor]:
    """The chosen keys of some queries as the reference chooses them."""
    lens, head = call.lens, call.lens.head
    asked = Asked(call.exact, call.plan.head, head, rows, None)
    scores, radius = _scorer(call, rows, ordered=False).bounded_values(slice(0, len(rows)))

    def oracle(row: int, key: int) -> Fraction:
        return asked.candidate(head, 0, row, key)

    eligible = torch.ones_like(scores, dtype=torch.bool)
    return decide(lens.head.weighting, scores, radius, eligible, oracle, asked.key_twins(head, 0))


def _scorer(call: Call, rows: Rows, ordered: bool) -> Scorer:
    lens = call.lens
    query, keys = lens.query.read(call.query, rows), lens.keys.read(call.keys)
    radii = None
    if not ordered:
        radii = lens.query.radius(call.query, rows), lens.keys.radius(call.keys)
    return Scorer(lens.head.score, lens.weights, query, keys, radii, ordered)


def _features(call: Call, side: str, rows: Rows) -> tuple[Tensor, Tensor | None]:
    """The features of all parts of the score side by side, and their radii where they are not data."""
    lens = call.lens
    residual, narrow = (call.query, lens.query) if side == "query" else (call.keys, lens.keys)
    names = [part.q if side == "query" else part.k for part in lens.head.score.parts]
    z = narrow.read(residual, rows)
    features = torch.cat([lens.weights.linear(z, name) for name in names], 1)
    if not call.uncertain(side) and all(lens.weights.copies(name) for name in names):
        return features, None
    error = narrow.radius(residual, rows)
    return features, torch.cat([lens.weights.radius(z, error, name) for name in names], 1)


def _search(call: Call, epsilon: float) -> Found:
    """Best keys with a certificate."""
    part = call.lens.head.score.parts[0]
    kind = part.kind
    if kind == "l2" and part.coefficient is not None and epsilon:
        epsilon /= abs(float(call.lens.weights[part.coefficient]))
    matrices = tuple(table(call.tensors[p.q]).cpu().numpy().tobytes() for p in call.plan.head.score.parts)
    size = block_rows(len(call.keys))
    key = ("queries", kind, matrices, size, call.plan.once, call.query.stream.name)
    queries = cast(Queries, call.static(key, call.sources("query"), lambda: _ready(call, kind, size)))
    keys, radius = _features(call, "key", slice(0, len(call.keys)))
    return nearest(queries, keys, radius, epsilon)


def _ready(call: Call, kind: str, size: int) -> Queries:
    parts = [slice(start, min(call.queries, start + size)) for start in range(0, call.queries, size)]

    def measure(rows: slice) -> tuple[Tensor, Tensor, Tensor]:
        block = _features(call, "query", rows)[0]
        return block.sum(0), block.amin(0), block.amax(0)

    found = each(measure, parts, call.device)
    low = torch.stack([low for _, low, _ in found]).amin(0)
    high = torch.stack([high for _, _, high in found]).amax(0)
    centre = torch.zeros_like(low)
    if kind == "l2":
        centre = torch.stack([total for total, _, _ in found]).sum(0) / call.queries
        centre = torch.where(torch.isfinite(centre), centre, 0.0)
    peak = float(torch.maximum((low - centre).abs(), (high - centre).abs()).max()) if len(low) else 0.0
    if not peak < 2.0**SAFE:
        raise Uncovered("squares of the data may overflow")
    return ready(kind, lambda rows: _features(call, "query", rows), parts, centre, peak)


def best_head(call: Call) -> Given:
    """The best score of every query: the reference's own number for the best key."""
    found = _search(call, 0.0)
    lens = call.lens
    number = torch.empty(call.queries, dtype=torch.float64, device=call.device)

    def score(rows: slice) -> None:
        number[rows] = _paired(call, rows, found.index[rows].to(torch.int64))

    each(score, blocks(call.queries, max(1, len(lens.query.columns))), call.device)
    open_rows = (~found.certain).nonzero()[:, 0]
    size = max(1, SETTLED // len(call.keys))
    for start in range(0, len(open_rows), size):
        rows = open_rows[start : start + size]
        number[rows] = _scorer(call, rows, ordered=True).values(slice(0, len(rows))).amax(1)
    if not bool(torch.isfinite(number).all()):
        raise Uncovered("a score overflows")
    return Given(lens.weights.linear(number[:, None], "value"))


def _paired(call: Call, rows: slice, index: Tensor) -> Tensor:
    """Scores of queries with one key each, added up in the order of the reference."""
    lens = call.lens
    query, keys = lens.query.read(call.query, rows), lens.keys.read(call.keys)
    total = torch.zeros(len(query), dtype=torch.float64, device=call.device)
    for part in lens.head.score.parts:
        q, k = lens.weights.linear(query, part.q), lens.weights.linear(keys, part.k)[index]
        raw = torch.zeros_like(total)
        for a, b in zip(q.T, k.T, strict=True):
            raw += (a - b).square() if part.kind == "l2" else a * b
        if part.coefficient is not None:
            raw = raw * lens.weights[part.coefficient]
        total = total + raw
    return total


# ---------------------------------------------------------------------- one query after the other
def query_head(call: Call, noted: bool) -> Given:
    """As the reference does it, one query at a time, over the keys and columns that this query reads."""
    found = classes(call, scored=False) if call.plan.strategy == "members" else None
    head = call.plan.head if found is None else without_masks(call.plan.head)
    outs, chosen, tiers = [], [], []
    for number in range(call.queries):
        members = None if found is None else _members(call, found, number)
        if members is not None and len(members) == 0:
            outs.append(_alone(call, number))
            chosen.append(members)
            tiers.append(torch.zeros(1, dtype=torch.int8, device=call.device))
            continue
        result = _one_query(call, head, number, members, noted)
        outs.append(result.out)
        none = torch.zeros(1, dtype=torch.int8, device=call.device)  # masks were settled by the index
        tiers.append(none if result.tiers is None else result.tiers)
        picked = result.choice.chosen if result.choice.chosen is not None else result.choice.eligible
        if noted and picked is not None:
            keys = picked[0].nonzero()[:, 0]
            chosen.append(keys if members is None else members[keys[keys < len(members)]])
    choice = Choice(None, None)
    if noted and chosen:
        listed = cast(Any, ListedRows(chosen, len(call.keys)))
        choice = Choice(listed, None) if call.plan.head.weighting.kind in HARD else Choice(None, listed)
    decides = call.plan.head.masks or call.plan.head.weighting.kind in HARD
    decided = torch.cat(tiers) if tiers and decides else None
    return Given(torch.cat(outs), choice=choice, tiers=decided)


def _members(call: Call, found: Any, number: int) -> Tensor:
    """The keys that are eligible for a query, in order."""
    held = found.index
    wanted = found.eligible[number]
    if bool(wanted[-1]):
        raise Uncovered("keys without an index are eligible")
    if held.place is None:
        hit = wanted[torch.where(held.index < 0, held.width, held.index).to(torch.int64)]
        return cast(Tensor, hit.nonzero()[:, 0])
    return cast(Tensor, held.place[wanted[held.index.to(torch.int64)]])


def _alone(call: Call, number: int) -> Tensor:
    """What a query gets that has no eligible key."""
    own = call.lens.head.self_key
    if own is None:
        raise Uncovered("a query has no eligible key and no `else`")
    z = call.lens.query.read(call.query, slice(number, number + 1))
    if own.row is None and call.plan.head.weighting.kind in ("sum", "exp"):
        return z.new_zeros(1, len(call.lens.writes))
    return call.lens.weights.linear(z, own.value) if own.value else z.new_zeros(1, len(call.lens.writes))


def _one_query(call: Call, head: Head, number: int, members: Tensor | None, noted: bool) -> Result:
    row = slice(number, number + 1)
    z = call.lens.query.read(call.query, row)
    tensors = dict(call.tensors)
    narrowed = replace(head, score=_features_used(call, head.score, "score", z, tensors))
    key = ("lens", id(call.plan.head), number, tuple(len(tensors[part.k]) for part in narrowed.score.parts))
    lens = HeadLens.of(narrowed, tensors, joined=True) if call.cache.get(key) is None else call.cache[key]
    call.cache[key] = lens
    query, keys = (
        lens.query.read(call.query, row),
        lens.keys.read(call.keys, slice(None) if members is None else members),
    )
    radii = {
        "query": lens.query.radius(call.query, row),
        "keys": lens.keys.radius(call.keys, slice(None) if members is None else members),
    }
    asked = Asked(call.exact, head, lens.head, torch.tensor([number]), members)
    run = HeadRun(lens.head, lens.weights, {"query": query, "keys": keys}, radii, cast(Exact, asked), False, noted)
    result = _finished(run)
    return result


def _features_used(call: Call, score: Score, prefix: str, z: Tensor, tensors: dict[str, Tensor]) -> Score:
    """The score without the features that are zero for a query: they add nothing to an inner product."""
    parts = []
    for index, part in enumerate(score.parts):
        if part.kind == "l2" or call.uncertain("query"):
            parts.append(part)
            continue
        used = call.lens.weights.linear(z, f"{prefix}{index}q")[0] != 0
        names = f"used.{prefix}{index}q", f"used.{prefix}{index}k"
        if not bool(used.any()):
            used[0] = True
        tensors[names[0]] = table(tensors[part.q])[used]
        tensors[names[1]] = table(tensors[part.k])[used]
        parts.append(Part(part.kind, *names, part.coefficient, part.scale))
    return Score(tuple(parts))


def _finished(run: HeadRun) -> Result:
    """The result of a head that nobody watches."""
    pieces = run.run(False)
    try:
        next(pieces)
    except StopIteration as stop:
        return cast(Result, stop.value)
    raise AssertionError("a head waits for a hook that nobody set")


# ---------------------------------------------------------------------- as the reference does it
def literal_head(call: Call, noted: bool) -> Given:
    """The reference's own head, over the columns it reads."""
    key = ("literal", id(call.plan.head))
    if key not in call.cache:
        call.cache[key] = HeadLens.of(call.plan.head, call.tensors, joined=True)
    lens = cast(HeadLens, call.cache[key])
    z = {"query": lens.query.read(call.query, call.rows), "keys": lens.keys.read(call.keys)}
    radii = {"query": lens.query.radius(call.query, call.rows), "keys": lens.keys.radius(call.keys)}
    asked = Asked(call.exact, call.plan.head, lens.head, None, None)
    run = HeadRun(lens.head, lens.weights, z, radii, cast(Exact, asked), False, noted)
    result = _finished(run)
    choice = result.choice
    if call.plan.once:  # what one query chose, all chose
        rows = [
            None if rows is None else ListedRows([rows[0].nonzero()[:, 0]], rows.shape[1])
            for rows in (choice.chosen, choice.eligible)
        ]
        choice = Choice(*cast(Any, rows))
    return Given(result.out, choice=choice, tiers=result.tiers)
