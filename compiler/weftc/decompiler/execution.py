"""A program carried out on features: every sub-layer turns what a residual is known to hold into what it holds then."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from weftc.decompiler.linear import (
    Array,
    BlockReader,
    Feature,
    about_key,
    combined,
    joined,
    magnitude,
    nice,
    noise,
    ratio,
    scaled,
    settled,
    sum_over,
)
from weftc.decompiler.terms import (
    KEY,
    LITERAL,
    ONE,
    PAIR,
    SELF,
    Atom,
    Frozen,
    Poly,
    Vec,
    add,
    add_vec,
    atom,
    close,
    free,
    freeze,
    freeze_vec,
    function,
    function_vec,
    holds,
    inner,
    moved,
    moved_vec,
    multiply,
    number,
    opened,
    order,
    rolled,
    scale,
    scale_vec,
    times_vec,
    total,
)
from weftc_runtime.format.program import FFN, SHIFT_FREE, Attend, Head, Part, Program, Score, Sublayer, Weighting
from weftc_runtime.format.tensors import NUMBER_HEADS

Residuals = dict[str, list[Feature]]  # by stream
NOTHING = np.zeros((0, 0))


class FeatureExecution(BlockReader):
    """Carries out the sub-layers of one program. Names of slots and what they hold are never looked at."""

    def __init__(self, program: Program, tensors: Mapping[str, Array]) -> None:
        given = (len(one.symbols) for one in program.inputs if one.symbols)
        super().__init__({stream.name: stream.size for stream in program.streams}, given)
        self.program = program
        self.tensors = {name: np.asarray(array, np.float64) for name, array in tensors.items()}

    def carried_out(self, sublayers: Iterable[Sublayer], state: Residuals, where: str = "") -> Residuals:
        for at, sublayer in enumerate(sublayers):
            self.where = f"{where}.{at}"
            state = self.ffn(sublayer, state) if isinstance(sublayer, FFN) else self.attend(sublayer, state)
        return state

    def refreshed(self, state: Residuals) -> Residuals:
        """The residuals after the feed-forwards that keep derived numbers up to date."""
        for stream in self.program.streams:
            for at, ffn in enumerate(stream.derived):
                self.where = f"derived.{at}"
                state = self.ffn(ffn, state)
        return state

    # ---- attention ---------------------------------------------------------------------------------------------------

    def attend(self, sublayer: Attend, state: Residuals) -> Residuals:
        after = dict(state)
        for stream, name in sublayer.carry.items():
            after[stream] = self._carried(name, state[stream])
        where = self.where
        alike: dict[object, tuple[Head, Poly, list[Poly], list[Array]]] = {}
        for at, head in enumerate(sublayer.heads):
            self.where = f"{where} head {at + 1}"
            score, masks = self.score(head.score, head, state), self.masks(head, state)
            own = head.self_key
            row = None if own is None or own.row is None else tuple(self.tensors[own.row].ravel())
            key = (head.query, head.keys, head.weighting, freeze(score), _closed(masks), own is None, row)
            values = [self.tensors[head.value]] + ([self.tensors[own.value]] if own is not None and own.value else [])
            known = alike.get(key)
            if known is not None and len(known[3]) == len(values):  # what two add, one adds
                alike[key] = (*known[:3], [a + b for a, b in zip(known[3], values, strict=True)])
            else:
                alike[key if known is None else (*key, at)] = (head, score, masks, values)
        for head, score, masks, values in alike.values():
            after[head.query] = after[head.query] + self.head(head, score, masks, values, state)
        return {stream: joined(features) for stream, features in after.items()}

    def _carried(self, name: str, features: list[Feature]) -> list[Feature]:
        matrix = self.tensors[name]
        return joined(replace(one, directions=matrix @ one.directions) for one in features)

    def head(self, head: Head, score: Poly, masks: list[Poly], values: list[Array], state: Residuals) -> list[Feature]:
        """What a head adds to the residual of its queries. `values`: V, and V0 where there is one."""
        value, mine = values[0], self._brought(values[1:], state[head.query])
        if not all(masks) or (head.weighting.kind == "normalize" and not score):
            return mine  # there is never a key
        if head.weighting.kind in NUMBER_HEADS:
            frozen = freeze(close(score, KEY)), _closed(masks)
            found = atom("extreme", head.weighting.kind, head.keys, *frozen)
            body = [Feature(value, "number", found)]
        elif finds_itself(head, score, self.sizes):
            return [replace(one, directions=value @ one.directions) for one in state[head.query]]
        else:
            weights, own_weight = self.weights(head, score, masks, state)
            keys = [replace(about_key(one), directions=value @ one.directions) for one in state[head.keys]]
            body = [sum_over(one, weights, head.keys, self.sizes[head.keys]) for one in joined(keys)]
            if head.self_key is not None and head.self_key.row is not None:
                return body + [_times(one, own_weight) for one in mine]
        return self._or_own(head.query, body, mine, self._there(head, score, masks, state)) if values[1:] else body

    def _brought(self, values: list[Array], features: list[Feature]) -> list[Feature]:
        """What a head brings from its query, where that is one more key."""
        return joined(replace(one, directions=value @ one.directions) for value in values for one in features)

    def _there(self, head: Head, score: Poly, masks: list[Poly], state: Residuals) -> Poly:
        """1 where a head has a key, else without value."""
        if head.weighting.kind in ("sum", "exp", *NUMBER_HEADS):
            head, score = replace(head, weighting=Weighting("normalize")), ONE
        return total(head.keys, self.sizes[head.keys], self.weights(head, score, masks, state)[0], KEY)

    def _or_own(self, own: str, body: list[Feature], mine: list[Feature], there: Poly) -> list[Feature]:
        """What a head brings from its keys, or, where it has none, from its query; matched by their directions."""
        if there == ONE:
            return body
        classes: list[tuple[Feature, tuple[list[Feature], list[Feature]]]] = []
        both = [(0, one) for one in body] + [(1, one) for one in mine]
        for side, one in sorted(both, key=lambda pair: -pair[1].directions.shape[1]):
            parts, rest = self._parts(one, [first for first, _ in classes], own)
            for part, (_, sides) in zip(parts, classes, strict=True):
                sides[side].append(part)
            if rest is not None:
                classes.append((rest, ([], [])))
                classes[-1][1][side].append(rest)
        missing = add(ONE, scale(atom("else", freeze(there), ()), -1))
        found = []
        for first, sides in classes:
            directions, kind = first.directions, first.kind
            a, b = (combined(directions, kind, side) for side in sides)
            if a.is_nothing:
                found.append(_times(b, missing))
            elif kind == "vector":
                pair = ("velse", freeze_vec(a.vector), freeze_vec(b.vector))
                found.append(Feature(directions, kind, {}, {pair: ONE}))
            else:
                found.append(Feature(directions, kind, atom("else", freeze(a.number), freeze(b.number))))
        return found

    def _parts(self, one: Feature, known: list[Feature], own: str) -> tuple[list[Feature], Feature | None]:
        """What a feature is in known directions, by their kinds, and what is left of it in others."""
        nothing = [Feature(first.directions, first.kind) for first in known]
        for at, first in enumerate(known):
            c = ratio(one.directions, first.directions) if one.kind == first.kind else None
            if c is not None:
                return [*nothing[:at], scaled(one, nice(c)), *nothing[at + 1 :]], None
        if not known:
            return nothing, one
        every = np.concatenate([first.directions for first in known], axis=1)
        shares = np.asarray(np.linalg.lstsq(every, one.directions, rcond=None)[0], np.float64)
        rest, size, at, parts = one.directions - every @ shares, magnitude(shares), 0, []
        for first in known:
            rows = shares[at : at + first.directions.shape[1]]
            at += len(rows)
            parts.append(self.image(rows, one, first.kind, own, size))
        found = [part for part in parts if part is not None]
        if len(found) < len(parts):
            return nothing, one
        is_left = magnitude(rest) > noise() * magnitude(one.directions)
        return found, replace(one, directions=rest) if is_left else None

    def weights(self, head: Head, score: Poly, masks: list[Poly], state: Residuals) -> tuple[Poly, Poly]:
        """The weight of the token KEY, and of the query itself where it is one more key with a score of its own."""
        kind, row = head.weighting.kind, None if head.self_key is None else head.self_key.row
        if row is not None:
            score = add(score, scale(self.row(row, state[head.query], head.query), -1))
            if kind != "softmax":
                return self.opaque(self.tensors[row], SELF, KEY), self.opaque(self.tensors[row], SELF)
        eligible = multiply(ONE, *masks)
        if kind == "sum":
            return multiply(score, eligible), {}
        if kind == "exp" or row is not None:
            weight = multiply(function("exp", score), eligible)
            if kind == "exp":
                return weight, {}
            mass = function("reciprocal", add(ONE, total(head.keys, self.sizes[head.keys], weight, KEY)))
            return multiply(weight, mass), mass
        if kind in SHIFT_FREE and not LITERAL.get():
            score = {mono: c for mono, c in score.items() if KEY in free({mono: c})}
        rule = replace(head.weighting, sharpness=None)
        return atom("weight", head.keys, rule, freeze(close(score, KEY)), _closed(masks), KEY), {}

    def masks(self, head: Head, state: Residuals) -> list[Poly]:
        """What has to be 1 for a key to take part."""
        found: list[Poly] = []
        for mask in head.masks:
            score = self.score(mask.score, head, state)
            if mask.op == "other":
                found.append(atom("differ", SELF, KEY) if self.sizes[head.keys] != 1 else {})
            elif mask.weighting is not None:
                best = atom("weight", head.keys, mask.weighting, freeze(close(score, KEY)), _closed(found), KEY)
                found.append(atom("holds", ">", freeze(best)))
            else:
                found.append(holds(mask.op, score))
        return [mask for mask in found if mask != ONE]

    # ---- scores ------------------------------------------------------------------------------------------------------

    def score(self, score: Score, head: Head, state: Residuals) -> Poly:
        """The score of the query SELF against the key KEY."""
        parts = add(*(self._part(part, head, state) for part in score.parts))
        return rolled(settled(parts), self.bases, self.sizes)

    def _part(self, part: Part, head: Head, state: Residuals) -> Poly:
        q, k = self.tensors[part.q], self.tensors[part.k]
        streams = head.query, head.keys
        mine, theirs = state[head.query], [about_key(one) for one in state[head.keys]]
        found = self._products(q, k, mine, theirs, streams)
        if part.kind == "l2":
            same = [about_key(one) for one in mine]
            own = moved(self._products(q, q, mine, same, (head.query, head.query)), {KEY: SELF})
            other = moved(self._products(k, k, state[head.keys], theirs, (head.keys, head.keys)), {SELF: KEY})
            found = add(own, scale(found, -2), other)
            if part.coefficient is not None:
                found = scale(found, nice(float(self.tensors[part.coefficient])))
        if part.scale is not None:
            side, name = part.scale
            factor = self.row(name, state[head.query if side == "query" else head.keys], streams[side == "key"])
            found = multiply(found, factor if side == "query" else moved(factor, {SELF: KEY}))
        for one in part.factors:
            found = multiply(found, function(one.function, self.score(one.score, head, state)))
        return found

    def _products(
        self, q: Array, k: Array, mine: list[Feature], theirs: list[Feature], streams: tuple[str, str]
    ) -> Poly:
        left, right = [q @ f.directions for f in mine], [k @ g.directions for g in theirs]
        blocks = [(a.T @ b, f, g) for a, f in zip(left, mine, strict=True) for b, g in zip(right, theirs, strict=True)]
        size = max((magnitude(block) for block, _, _ in blocks), default=0.0)
        return add(*(self.bilinear(block, f, g, streams, size) for block, f, g in blocks))

    def row(self, name: str, features: list[Feature], own: str) -> Poly:
        """A row of weights on a residual."""
        rows = [(self.tensors[name].reshape(-1) @ one.directions, one) for one in features]
        size = max((magnitude(row) for row, _ in rows), default=0.0)
        return add(*(self.functional(row, one, own, size) for row, one in rows))

    # ---- feed-forwards -----------------------------------------------------------------------------------------------

    def ffn(self, ffn: FFN, state: Residuals) -> Residuals:
        features = state[ffn.stream]
        a = [(self.tensors[ffn.a] @ one.directions, one) for one in features]
        b = [] if ffn.b is None else [(self.tensors[ffn.b] @ one.directions, one) for one in features]
        a, b = _filled(a), _filled(b)
        out = self.tensors[ffn.out]
        match ffn.function:
            case "copy":
                made = [replace(one, directions=out @ rows) for rows, one in a]
            case "product":
                made = self._quadratic(out, a, b, ffn.stream)
            case "unit" | "layer":
                made = self._unit(out, a, b)
            case "select":
                made = self._select(out, a, b, ffn.stream)
            case "relu2" if (weights := _squares(self.tensors[ffn.a], out)) is not None:
                made = self._quadratic(weights, a, a, ffn.stream)
            case _:
                made = self._elementwise(ffn.function, out, a, ffn.stream)
        after = dict(state)
        after[ffn.stream] = joined([*self._carried(ffn.carry, features), *made])
        return after

    def _quadratic(
        self, out: Array, left: list[tuple[Array, Feature]], right: list[tuple[Array, Feature]], own: str
    ) -> list[Feature]:
        """Sums of products of rows: one block for each output and each pair of features."""
        found = []
        for a, f in left:
            for b, g in right:
                block = np.einsum("or,rm,rn->omn", out, a, b)
                if magnitude(block) > noise() * max(magnitude(out) * magnitude(a) * magnitude(b), 1e-300):
                    found += self._product(block, f, g)
        return found

    def _product(self, block: Array, f: Feature, g: Feature) -> list[Feature]:
        size = noise() * magnitude(block)
        if f.kind not in ("number", "vector") and np.ptp(block, axis=1).max() <= size:
            block, f = block[:, :1], Feature(NOTHING, "number", total(f.kind, self.sizes[f.kind], f.number, PAIR))
        if g.kind not in ("number", "vector") and np.ptp(block, axis=2).max() <= size:
            block, g = block[:, :, :1], Feature(NOTHING, "number", total(g.kind, self.sizes[g.kind], g.number, PAIR))
        if f.kind == "number":
            return [replace(_times(g, f.number), directions=block[:, 0])]
        if g.kind == "number":
            return [replace(_times(f, g.number), directions=block[:, :, 0])]
        f, g = self.alike(f, g)
        diagonal = np.einsum("omm->om", block) if f.kind == g.kind else np.zeros((len(block), 0))
        outside = block - np.einsum("om,mn->omn", diagonal, np.eye(block.shape[1])) if diagonal.size else block
        if magnitude(outside) <= size:
            if np.ptp(diagonal, axis=1).max() <= size:
                if f.kind == "vector":
                    return [Feature(diagonal[:, :1], "number", inner(f.vector, g.vector))]
                summed = total(f.kind, self.sizes[f.kind], multiply(f.number, g.number), PAIR)
                return [Feature(diagonal[:, :1], "number", summed)]
            if f.kind == "vector":
                return [Feature(diagonal, "vector", {}, times_vec(f.vector, g.vector))]
            return [Feature(diagonal, f.kind, multiply(f.number, g.number))]
        if {f.kind, g.kind} <= set(self.bases):
            pairs = [(block[:, [m], n], m, n) for m, n in np.ndindex(block.shape[1:])]
            return [
                Feature(one, "number", multiply(self._entry(f, m), self._entry(g, n)))
                for one, m, n in pairs
                if magnitude(one) > size
            ]
        shape = block.shape[1:]
        u, s, v = np.linalg.svd(block.reshape(len(block), -1), full_matrices=False)
        return [
            Feature(u[:, [at]] * s[at], "number", self.opaque(v[at].reshape(shape), SELF))
            for at in range(len(s))
            if s[at] > size
        ]

    def _entry(self, row: Feature, n: int) -> Poly:
        return moved(row.number, {PAIR: self.bases[row.kind] + n})

    def _unit(self, out: Array, a: list[tuple[Array, Feature]], b: list[tuple[Array, Feature]]) -> list[Feature]:
        """A vector by its length. Its rows may be rotated or repeated: they are an isometry times the vector."""
        if not a:  # what is always the zero vector has no direction
            return [replace(one, directions=out @ rows) for rows, one in b]
        reference = max((rows for rows, one in a), key=magnitude)
        square = reference.T @ reference
        length = float(square[0, 0]) ** 0.5
        sides = []
        for side in (a, b):
            shares = [(ratio(rows, reference), one) for rows, one in side]
            if any(c is None or one.kind != "vector" for c, one in shares):
                return [Feature(out, "vector", {}, self.opaque_vec(reference, SELF))]
            factor = length if side is b else 1.0
            sides.append(add_vec(*(scale_vec(one.vector, number(nice((c or 0) * factor))) for c, one in shares)))
        if magnitude(square - square[0, 0] * np.eye(len(square))) > noise() * magnitude(square):
            return [Feature(out, "vector", {}, self.opaque_vec(reference, SELF))]
        atom_ = ("unit", freeze_vec(sides[0]), freeze_vec(sides[1]) if b else None)
        return [Feature(out @ reference / length, "vector", {}, {atom_: ONE})]

    def _select(
        self, out: Array, a: list[tuple[Array, Feature]], b: list[tuple[Array, Feature]], own: str
    ) -> list[Feature]:
        size = max((magnitude(rows[-1]) for rows, _ in b), default=0.0)
        flag = add(*(self.functional(rows[-1], one, own, size) for rows, one in b))
        there, missing = flag, add(ONE, scale(flag, -1))
        found = [_times(replace(one, directions=out @ rows), there) for rows, one in a]
        return found + [_times(replace(one, directions=out @ rows[:-1]), missing) for rows, one in b]

    def _elementwise(self, name: str, out: Array, a: list[tuple[Array, Feature]], own: str) -> list[Feature]:
        """A function of every row; rows that differ in nothing but the token they are about are one row of a pair."""
        size = max((magnitude(rows) for rows, _ in a), default=0.0)
        groups: dict[tuple[str, int, object], dict[int, int]] = {}
        single = []
        for row in range(out.shape[1]):
            said = self._signature([(rows[row], one) for rows, one in a], own, size)
            if said is None or said[1] in groups.get(said[0], {}):
                single.append(row)
            else:
                groups.setdefault(said[0], {})[said[1]] = row
        found = []
        for (kind, width, _), rows_of in groups.items():
            if len(rows_of) != width:
                single += list(rows_of.values())
                continue
            places = [rows_of[place] for place in range(width)]
            argument: Poly = {}
            vector: Vec = {}
            for rows, one in a:
                weights = rows[places[0]]
                if one.kind == kind:
                    factor = nice(weights[0], size)
                    argument = add(argument, scale(one.number, factor))
                    vector = add_vec(vector, scale_vec(one.vector, number(factor)))
                elif magnitude(weights) > noise() * size:
                    argument = add(argument, self.functional(weights, one, own, size))
            made = ({}, function_vec(name, vector)) if kind == "vector" else (function(name, argument), {})
            found.append(Feature(out[:, places], kind, *made))
        for row in single:
            argument = add(*(self.functional(rows[row], one, own, size) for rows, one in a))
            found.append(Feature(out[:, [row]], "number", function(name, argument)))
        return found

    def _signature(
        self, row: list[tuple[Array, Feature]], own: str, size: float
    ) -> tuple[tuple[str, int, object], int] | None:
        """What a row has in common with those about other tokens or coordinates, and which one; None without one."""
        about, place, said = None, -1, []
        for at, (weights, one) in enumerate(row):
            filled = np.flatnonzero(np.abs(weights) > noise() * size)
            if not len(filled):
                continue
            if one.kind == "number":
                said.append((at, tuple(nice(w, size) for w in weights)))
            elif len(filled) == 1 and about in (None, (one.kind, len(weights))) and place in (-1, filled[0]):
                about, place = (one.kind, len(weights)), int(filled[0])
                said.append((at, (nice(weights[place], size),)))
            else:
                return None
        if about is None or (about[0] == "vector" and any(row[at][1].kind == "number" for at, _ in said)):
            return None  # of no token or coordinate; or a number is added to a vector
        return (*about, tuple(said)), place


def finds_itself(head: Head, score: Poly, sizes: Mapping[str, int | None]) -> bool:
    """Whether a head can only choose the query itself: among other tokens of its set, none equal to it.

    That no two are equal is a condition of the file, without which there is no proof.
    """
    if head.query != head.keys or head.weighting.kind != "argmax" or head.masks or head.self_key is not None:
        return False
    return is_distance(add(moved(score, {KEY: SELF}), scale(score, -1)), head.keys, sizes)


def is_distance(p: Poly, home: str, sizes: Mapping[str, int | None]) -> bool:
    """Whether a number is a sum of squares of what SELF and KEY differ in, and 1 where they are two tokens."""
    left, found = p, False
    for mono, c in p.items():
        if c <= 0 or KEY in free({mono: ONE[()]}):
            continue
        match mono:
            case ():
                square = add(ONE, scale(atom("same", home, SELF, KEY), -1))
            case ((("inner", u, v), 1),) if u == v:
                apart = add_vec({u: ONE}, scale_vec(moved_vec({u: ONE}, {SELF: KEY}), number(-1)))
                square = inner(apart, apart)
            case ((("sum", other, inside), 1),):
                (each,) = opened(inside, PAIR)
                if len(each) != 1 or each[0][1] != 2:
                    continue
                square = total(other, sizes[other], _apart(each[0][0]), PAIR)
            case ((one, 2),):
                square = _apart(one)
            case _:
                continue
        left, found = add(left, scale(square, -c)), True
    return found and not left


def _apart(one: Atom) -> Poly:
    """The square of what SELF and KEY differ in."""
    apart = add(atom(*one), scale(moved(atom(*one), {SELF: KEY}), -1))
    return multiply(apart, apart)


def _closed(masks: Iterable[Poly]) -> tuple[Frozen, ...]:
    """Conditions on the token KEY, as a choice among such tokens has them."""
    return tuple(sorted((freeze(close(mask, KEY)) for mask in masks), key=order))


def _filled(sides: list[tuple[Array, Feature]]) -> list[tuple[Array, Feature]]:
    """Without features that the matrix does not read."""
    size = max((magnitude(rows) for rows, _ in sides), default=0.0)
    return [(rows, one) for rows, one in sides if magnitude(rows) > noise() * size]


def _times(feature: Feature, factor: Poly) -> Feature:
    return replace(feature, number=multiply(feature.number, factor), vector=scale_vec(feature.vector, factor))


def _squares(a: Array, out: Array) -> Array | None:
    """Weights w with sum w (a z)^2 = sum out relu(a z)^2: every row has a partner of the other sign."""
    left, weights = set(range(len(a))), np.zeros_like(out)
    while left:
        row = left.pop()
        for other in sorted(left):
            c = ratio(a[other], a[row])
            if c is not None and c < 0 and np.allclose(out[:, other] * c * c, out[:, row], rtol=0, atol=noise()):
                weights[:, row] = out[:, row]
                left.discard(other)
                break
        else:
            if magnitude(out[:, row]):
                return None
    return weights
