"""Heads that take the best key of every query: found in blocks with a certificate; the doubtful rows settled exactly.

Whatever a fast path cannot prove is settled by `decide`, in float64 with its bound and then in exact arithmetic, so
the decisions are the reference's.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any, cast

import torch
from torch import Tensor

from weftc_runtime.data.results import Tiers
from weftc_runtime.errors import Uncovered
from weftc_runtime.exact.decide import decide
from weftc_runtime.exact.rational import Choice
from weftc_runtime.exact.rows import Rows, all_finite, blocks
from weftc_runtime.exact.sums import exact_sum
from weftc_runtime.kernels.minima import block_rows, even
from weftc_runtime.kernels.native.library import library
from weftc_runtime.kernels.nearest import ROOM, Found, Queries, as_stored, nearest, ready
from weftc_runtime.machines.head_task import HeadOutput, HeadTask, RenamedExact
from weftc_runtime.machines.joined import ProblemOffsets
from weftc_runtime.machines.search import Search
from weftc_runtime.machines.search_groups import GroupSearch
from weftc_runtime.machines.stored import Stored, stored
from weftc_runtime.plan.slots import DenseSlot, IndexSlot
from weftc_runtime.plan.structure import table
from weftc_runtime.reference.scores import FEW, SAFE, Scorer, in_order
from weftc_runtime.threads import cores, each

SETTLED = 1 << 20  # scores settled at a time
NATIVE = 1 << 20  # products of a head from which compiling the native kernels pays


def nearest_head(call: HeadTask, pair: bool) -> HeadOutput:
    """The value of the best key; with `pair` that value is the key's name and the result an index."""
    index, entries, tiers = _best_keys(call)
    if pair:
        return HeadOutput(held=_as_sparse(call, index, entries), choice=_chosen(call, index, entries), tiers=tiers)
    values = call.narrow.values(call.keys)
    rows = index.to(torch.int64)
    out = values[rows if call.groups is None else _counted_on(call, call.groups, rows)]
    for row, keys in (entries or {}).items():
        out[row] = exact_sum(values[keys], 0) / len(keys)
    return HeadOutput(out, choice=_chosen(call, index, entries), tiers=tiers)


def _counted_on(call: HeadTask, groups: ProblemOffsets, index: Tensor) -> Tensor:
    """Keys of every query's own problem, counted on from problem to problem."""
    owner = groups.owner(call.query.stream.name, torch.arange(len(index), device=call.device))
    return index + groups.places(call.keys.stream.name).to(call.device)[owner]


def _as_sparse(call: HeadTask, index: Tensor, entries: dict[int, Tensor] | None) -> IndexSlot:
    width = len(call.keys) // (1 if call.groups is None else call.groups.count)
    if not entries:
        return IndexSlot(call.queries, width, index)
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
    return IndexSlot(call.queries, width, torch.cat(columns), torch.cat(places), torch.cat(numbers))


class _Chosen:
    """The chosen keys of every query as rows of booleans, made when asked for."""

    def __init__(self, call: HeadTask, index: Tensor, entries: dict[int, Tensor] | None) -> None:
        self._once, self._keys = call.plan.uniform_query, len(call.keys)
        self._index, self._entries = index, entries or {}
        self._groups, self._streams = call.groups, (call.query.stream.name, call.keys.stream.name)

    def __getitem__(self, query: int) -> Tensor:
        query = 0 if self._once else query
        row = torch.zeros(self._keys, dtype=torch.bool, device=self._index.device)
        first = 0 if self._groups is None else self._groups.starts[self._streams[1]][self._own(query)]
        row[self._entries.get(query, first + self._index[query].to(torch.int64))] = True
        return row

    def _own(self, query: int) -> int:
        assert self._groups is not None
        return self._groups.of(self._streams[0], query)


def _chosen(call: HeadTask, index: Tensor, entries: dict[int, Tensor] | None) -> Choice:
    return Choice(cast(Any, _Chosen(call, index, entries)), None)


def _best_keys(call: HeadTask) -> tuple[Tensor, dict[int, Tensor] | None, Tiers]:
    """The best key of every query, the rows where several share (ties split), and the tiers."""
    groups, epsilon = call.groups, float(call.plan.head.weighting.epsilon)
    found = _search(call, epsilon) if groups is None else _found_in_groups(call, groups)
    entries, settled = settle(call, found)
    settled.fast = call.queries - settled.bound - settled.exact - settled.undecided
    return found.index, entries or None, settled.times(len(call.query) if call.plan.uniform_query else 1)


def settle(call: HeadTask, found: Found) -> tuple[dict[int, Tensor], Tiers]:
    """Settles the rows in doubt, in place: those where several keys share, and the tiers."""
    entries: dict[int, Tensor] = {}
    settled = Tiers(bound=found.settled_f64)
    if call.groups is not None:  # ties are not split there
        for part, rows, own in _open_in_groups(call, call.groups, found):
            chosen, tiers = _settle(part, own)
            settled.add(tiers)
            found.index[rows] = chosen.to(torch.int8).argmax(1).to(torch.int32)
        return entries, settled
    for rows in _open(call, found):
        chosen, tiers = _settle(call, rows)
        settled.add(tiers)
        found.index[rows] = chosen.to(torch.int8).argmax(1).to(torch.int32)
        for at in (chosen.sum(1) > 1).nonzero()[:, 0].tolist():
            entries[int(rows[at])] = chosen[at].nonzero()[:, 0]
    return entries, settled


def settle_rows(call: HeadTask, rows: Tensor) -> tuple[Tensor, Tiers]:
    """The best keys of some queries, and the tiers that settled them."""
    found, settled = [], Tiers()
    for some in torch.split(rows, max(1, SETTLED // len(call.keys))):
        chosen, tiers = _settle(call, some)
        settled.add(tiers)
        found.append(chosen.to(torch.int8).argmax(1))
    return torch.cat(found), settled


def _open_in_groups(call: HeadTask, groups: ProblemOffsets, found: Found) -> Iterator[tuple[HeadTask, Tensor, Tensor]]:
    """The rows that are not certain, problem by problem: the head on it, rows of all, and rows of its own."""
    if found.doubt is None or not len(found.doubt):
        return
    stream, doubt = call.query.stream.name, found.doubt
    owner = groups.owner(stream, doubt)
    for number in sorted(set(owner.tolist())):
        rows = doubt[owner == number]
        yield call.part(number), rows, rows - groups.starts[stream][number]


def search_in_groups(call: HeadTask, groups: ProblemOffsets) -> GroupSearch:
    """The native search over the queries of joined problems."""
    kernels, narrow = library(), call.narrow

    def make() -> GroupSearch | None:
        queries = stored(call.query, narrow.query, narrow.weights, [part.q for part in narrow.head.score.parts])
        if kernels is None or queries is None or not queries.plain:
            return None
        starts, peak = groups.places(call.query.stream.name), call.peak(kernels, queries.data)
        return GroupSearch(kernels, queries.data, narrow.head.score.parts[0].kind == "l2", starts, peak)

    found = call.static(("groups", *_queried(call)), call.sources("query"), make)
    if found is None or narrow.head.weighting.epsilon:
        raise Uncovered("the problems of the batch cannot run as one")
    return found


def _found_in_groups(call: HeadTask, groups: ProblemOffsets) -> Found:
    if call.keys.stream.size is None:  # every problem has a number of keys of its own
        raise Uncovered("the problems of the batch cannot run as one")
    keys, radius = _features(call, "key", slice(0, len(call.keys)))
    if radius is not None:
        raise Uncovered("the problems of the batch cannot run as one")
    return search_in_groups(call, groups).find(keys)


def _open(call: HeadTask, found: Found) -> Iterator[Tensor]:
    """The rows that are not certain, some at a time."""
    if found.doubt is not None:
        yield from torch.split(found.doubt, max(1, SETTLED // len(call.keys)))


def _settle(call: HeadTask, rows: Tensor) -> tuple[Tensor, Tensor]:
    """The chosen keys of some queries as the reference chooses them."""
    narrow, head = call.narrow, call.narrow.head
    asked = RenamedExact(call.exact, call.plan.head, head, rows, None)
    scores, radius = _scorer(call, rows, ordered=False).bounded_values(slice(0, len(rows)))

    def oracle(row: int, key: int) -> Fraction:
        return asked.candidate(head, 0, row, key)

    eligible = torch.ones_like(scores, dtype=torch.bool)
    return decide(narrow.head.weighting, scores, radius, eligible, oracle, asked.key_twins(head, 0))


def _scorer(call: HeadTask, rows: Rows, ordered: bool) -> Scorer:
    narrow = call.narrow
    query, keys = narrow.query.read(call.query, rows), narrow.keys.read(call.keys)
    radii = None
    if not ordered:
        radii = narrow.query.radius(call.query, rows), narrow.keys.radius(call.keys)
    return Scorer(narrow.head.score, narrow.weights, query, keys, radii, ordered)


def _features(call: HeadTask, side: str, rows: Rows) -> tuple[Tensor, Tensor | None]:
    """The features of all parts of the score side by side, and their radii where they are not data."""
    narrow = call.narrow
    residual, own = (call.query, narrow.query) if side == "query" else (call.keys, narrow.keys)
    direct = direct_slot(call, side)
    held = residual.slot(direct) if direct else None
    if isinstance(held, DenseSlot):
        return held.rows(rows), None
    names = [part.q if side == "query" else part.k for part in narrow.head.score.parts]
    z = own.read(residual, rows)
    made = [narrow.weights.linear(z, name) for name in names]
    features = made[0] if len(made) == 1 else torch.cat(made, 1)
    if not call.uncertain(side) and all(narrow.weights.copies(name) for name in names):
        return features, None
    error = own.radius(residual, rows)
    return features, torch.cat([narrow.weights.radius(z, error, name) for name in names], 1)


def direct_slot(call: HeadTask, side: str) -> str:
    """The slot whose numbers are the features as they are, where there is one."""
    narrow, key = call.narrow, ("direct", side)
    if key not in narrow.kept:
        residual, own = (call.query, narrow.query) if side == "query" else (call.keys, narrow.keys)
        names = [part.q if side == "query" else part.k for part in narrow.head.score.parts]
        slots = [slot for slot in residual.stream.slots if slot.role != "derived"]
        whole = [s.name for s in slots if tuple(range(s.offset, s.offset + s.width)) == own.columns]
        matrix = own.matrices[names[0]]
        plain = len(names) == 1 and torch.equal(matrix, torch.eye(len(own.columns)).to(matrix))
        narrow.kept[key] = whole[0] if whole and plain else ""
    return cast(str, narrow.kept[key])


def _search(call: HeadTask, epsilon: float) -> Found:
    """Best keys with a certificate."""
    part = call.narrow.head.score.parts[0]
    kind = part.kind
    if kind == "l2" and part.coefficient is not None and epsilon:
        epsilon /= abs(float(call.narrow.weights[part.coefficient]))
    keys, radius = _features(call, "key", slice(0, len(call.keys)))
    search = search_of(call) if call.scan.type == "cpu" else None
    if search is not None:
        return search.find(keys, radius, epsilon, call.plan.head.weighting.ties == "first")
    size = block_rows(len(call.keys))
    name = ("queries", size, *_queried(call))
    queries = call.static(name, call.sources("query"), lambda: _ready(call, kind, size))
    found = nearest(queries, keys, radius, epsilon)
    return found if epsilon or radius is not None else _again(call, found, keys)


def search_of(call: HeadTask) -> Search | None:
    """The native search over the queries of a head; None where there are no kernels."""
    name, kind = _queried(call), call.narrow.head.score.parts[0].kind
    return call.static(("search", *name), call.sources("query"), lambda: _prepared(call, kind))


def _queried(call: HeadTask) -> tuple[object, ...]:
    """What tells queries apart: heads with the same share what is made of them."""
    return call.narrow.head.score.parts[0].kind, call.plan.uniform_query, call.query.stream.name, _matrices(call)


def _again(call: HeadTask, found: Found, keys: Tensor) -> Found:
    """The rows in doubt once more in float64, where features are data. Errors as in `nearest`, with u = 2^-53."""
    left = []
    for rows in _open(call, found):
        features, radius = _features(call, "query", rows)
        if radius is not None:
            return found
        distance = call.narrow.head.score.parts[0].kind == "l2"
        centre = keys.mean(0) if distance else torch.zeros_like(keys[0])
        query, other = features - centre, keys - centre
        sizes = torch.linalg.vector_norm(query, dim=1) + (
            torch.linalg.vector_norm(other, dim=1).max() if distance else 0
        )
        scores = other.square().sum(1) - 2 * query @ other.T if distance else -(query @ other.T)
        best, at = scores.topk(min(2, len(keys)), largest=False)
        reach = sizes if distance else torch.linalg.vector_norm(other, dim=1).max()
        error = (keys.shape[1] + 12) * 2.0**-53 * ROOM * sizes * reach + 2.0**-1000
        certain = best[:, -1] - best[:, 0] > 2 * error if len(keys) > 1 else torch.isfinite(best[:, 0])
        found.index[rows] = at[:, 0].to(torch.int32)
        left.append(rows[~certain])
    if not left:
        return found
    rest = torch.cat(left)
    return Found(found.index, rest if len(rest) else None, len(cast(Tensor, found.doubt)) - len(rest))


def _matrices(call: HeadTask) -> tuple[bytes, ...]:
    """The numbers of the matrices that make queries."""
    known = call.narrow.kept
    if "matrices" not in known:
        parts = call.plan.head.score.parts
        known["matrices"] = tuple(table(call.tensors[part.q]).cpu().numpy().tobytes() for part in parts)
    return cast(tuple[bytes, ...], known["matrices"])


def _prepared(call: HeadTask, kind: str) -> Search | None:
    """The queries as the native kernel reads them: as they are stored, or computed once."""
    kernels = library(build=call.queries * len(call.keys) * len(call.narrow.keys.columns) >= NATIVE)
    if kernels is None:
        return None
    narrow, distance = call.narrow, kind == "l2"
    names = [part.q for part in narrow.head.score.parts]
    found = None if call.plan.uniform_query else stored(call.query, narrow.query, narrow.weights, names)
    slack = 0.0
    if found is None or (distance and not bool((found.factor == 1).all())):
        whole: Tensor | None = None
        for rows in blocks(call.queries, max(1, len(narrow.query.columns))):
            features, radius = _features(call, "query", rows)
            whole = features.new_empty(call.queries, features.shape[1]) if whole is None else whole
            whole[rows] = features
            if radius is not None:
                slack = max(slack, float(torch.linalg.vector_norm(radius, dim=1).max()) * (1 + 2.0**-40))
        assert whole is not None
        every = torch.arange(whole.shape[1])
        found = Stored(whole, every, torch.ones(len(every), dtype=torch.float64), whole.new_zeros(len(every)))
    return Search(kernels, found, distance, call.peak(kernels, found.data), slack)


def _ready(call: HeadTask, kind: str, size: int) -> Queries:
    every = even(call.queries, size, cores())
    direct = "" if call.plan.uniform_query else direct_slot(call, "query")
    held = call.query.slot(direct) if direct else None
    if isinstance(held, DenseSlot) and held.value.dtype == torch.float32 and held.value.device == call.scan:
        found = as_stored(kind, held.value, every)
        if found is not None:
            return found

    def measure(rows: slice) -> tuple[Tensor, Tensor, Tensor]:
        block = _features(call, "query", rows)[0]
        return block.sum(0), block.amin(0), block.amax(0)

    ranges = each(measure, every, call.device)
    low = torch.stack([low for _, low, _ in ranges]).amin(0)
    high = torch.stack([high for _, _, high in ranges]).amax(0)
    centre = torch.zeros_like(low)
    if kind == "l2":
        centre = torch.stack([total for total, _, _ in ranges]).sum(0) / call.queries
        centre = torch.where(torch.isfinite(centre), centre, 0.0)
    peak = float(torch.maximum((low - centre).abs(), (high - centre).abs()).max()) if len(low) else 0.0
    if not peak < 2.0**SAFE:
        raise Uncovered("squares of the data may overflow")
    return ready(kind, lambda rows: _features(call, "query", rows), every, centre, peak, call.scan)


def best_head(call: HeadTask) -> HeadOutput:
    """The best score of every query: the reference's own number for the best key."""
    narrow = call.narrow
    if call.groups is None and call.queries * len(call.keys) * len(narrow.keys.columns) <= FEW:
        scores = _scorer(call, call.rows, ordered=True).values(slice(0, call.queries))
        return _valued(call, scores.amax(1))
    found = _search(call, 0.0) if call.groups is None else _found_in_groups(call, call.groups)
    index = found.index
    if call.groups is not None:
        index = _counted_on(call, call.groups, index.to(torch.int64))
    number = torch.empty(call.queries, dtype=torch.float64, device=call.device)

    def score(rows: slice) -> None:
        number[rows] = _paired(call, rows, index[rows].to(torch.int64))

    each(score, blocks(call.queries, max(1, len(narrow.query.columns))), call.device)
    if call.groups is not None:
        for part, rows, own in _open_in_groups(call, call.groups, found):
            number[rows] = _scorer(part, own, ordered=True).values(slice(0, len(own))).amax(1)
    else:
        for rows in _open(call, found):
            number[rows] = _scorer(call, rows, ordered=True).values(slice(0, len(rows))).amax(1)
    return _valued(call, number)


def _valued(call: HeadTask, number: Tensor) -> HeadOutput:
    """What a head adds that gives a number to every query."""
    if not all_finite(number):
        raise Uncovered("a score overflows")
    out, weights = number[:, None], call.narrow.weights
    if len(call.narrow.writes) != 1:
        return HeadOutput(weights.linear(out, "value"))
    for block in blocks(len(number), 1):  # what is made of some numbers takes their place
        out[block] = weights.linear(out[block], "value")
    return HeadOutput(out)


def _paired(call: HeadTask, rows: slice, index: Tensor) -> Tensor:
    """Scores of queries with one key each, added up in the order of the reference."""
    narrow = call.narrow
    query, keys = narrow.query.read(call.query, rows), narrow.keys.read(call.keys)
    total = torch.zeros(len(query), dtype=torch.float64, device=call.device)
    for part in narrow.head.score.parts:
        q, k = narrow.weights.linear(query, part.q), narrow.weights.linear(keys, part.k)[index]
        raw = in_order(q, k, part.kind == "l2") if q.shape[1] else torch.zeros_like(total)
        if part.coefficient is not None:
            raw = raw * narrow.weights[part.coefficient]
        total = total + raw
    return total
