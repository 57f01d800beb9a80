"""Transformer programs built by hand, for tests of the runtime that need no compiler.

Each function returns a `Checkpoint` with weights as docs/papers.md has them, corrected: dense matrices over the
residual of each stream, built from named slots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from weft_runtime.checkpoint import Checkpoint
from weft_runtime.ir import (
    FFN,
    Attend,
    Embed,
    Head,
    Input,
    Mask,
    Output,
    Part,
    Program,
    Score,
    SelfKey,
    Slot,
    Step,
    Stream,
    Weighting,
)

Array = npt.NDArray[np.float64]
Form = Mapping[str, Any]  # slot -> number, or a matrix from that slot


class Builder:
    """Slots by name -> dense matrices, collected under tensor names."""

    def __init__(self, **streams: Sequence[tuple[str, int, str]]) -> None:
        self.slots: dict[str, tuple[Slot, ...]] = {}
        self.tensors: dict[str, Array] = {}
        for stream, slots in streams.items():
            at, made = 0, []
            for name, width, role in slots:
                made.append(Slot(name, at, width, role))  # type: ignore[arg-type]
                at += width
            self.slots[stream] = tuple(made)

    def width(self, stream: str) -> int:
        return sum(slot.width for slot in self.slots[stream])

    def slot(self, stream: str, name: str) -> Slot:
        return next(slot for slot in self.slots[stream] if slot.name == name)

    def put(self, name: str, array: Any) -> str:
        self.tensors[name] = np.asarray(array, dtype=np.float64)
        return name

    def rows(self, name: str, stream: str, *forms: tuple[int, Form]) -> str:
        """Linear forms stacked: (rows, {slot: coefficient or matrix})."""
        out = np.zeros((sum(count for count, _ in forms), self.width(stream)))
        at = 0
        for count, form in forms:
            for slot, value in form.items():
                place = self.slot(stream, slot)
                block = np.asarray(value, dtype=np.float64)
                if block.ndim == 0:
                    block = block * (np.eye(count) if place.width == count else np.ones((count, place.width)))
                out[at : at + count, place.columns] += block
            at += count
        return self.put(name, out)

    def into(self, name: str, query: str, keys: str, writes: Mapping[str, Form]) -> str:
        """A value matrix: slot of the query stream <- form over the key stream."""
        out = np.zeros((self.width(query), self.width(keys)))
        for slot, form in writes.items():
            place = self.slot(query, slot)
            for source, value in form.items():
                block = np.asarray(value, dtype=np.float64)
                if block.ndim == 0:
                    block = block * np.eye(place.width, self.slot(keys, source).width)
                out[place.columns, self.slot(keys, source).columns] += block
        return self.put(name, out)

    def carry(self, name: str, stream: str, erase: Sequence[str] = (), keep: Mapping[str, Form] | None = None) -> str:
        out = np.eye(self.width(stream))
        for slot in erase:
            out[self.slot(stream, slot).columns] = 0
        for slot, form in (keep or {}).items():
            for source, value in form.items():
                place, origin = self.slot(stream, slot), self.slot(stream, source)
                out[place.columns, origin.columns] += value * np.eye(place.width, origin.width)
        return self.put(name, out)

    def column(self, name: str, stream: str, slot: str, value: float = 1.0) -> str:
        out = np.zeros((self.width(stream), 1))
        out[self.slot(stream, slot).columns] = value
        return self.put(name, out)

    def ffn(self, name: str, stream: str, function: str, slot: str, a: Form, b: Form | None = None, **more: Any) -> FFN:
        """slot := f(a z, b z), the hidden rows summed up when the slot is narrower than they are."""
        rows = more.pop("rows", self.slot(stream, slot).width)
        place = self.slot(stream, slot)
        out = np.zeros((self.width(stream), rows))
        out[place.columns] = np.eye(place.width, rows) if rows == place.width else 1.0
        return FFN(
            stream,
            function,  # type: ignore[arg-type]
            self.carry(f"{name}.carry", stream, [slot]),
            self.rows(f"{name}.a", stream, (rows, a)),
            None if b is None else self.rows(f"{name}.b", stream, (rows, b)),
            self.put(f"{name}.out", out),
            (slot,),
            **more,
        )

    def checkpoint(self, program: Program) -> Checkpoint:
        return Checkpoint(
            program, dict(self.tensors), program.name, f"algorithm {program.name}\n", {"d": 2}, {}, "test"
        )


def member_mask(build: Builder, name: str) -> Mask:
    """y_ij - 1/2 > 0, for queries with names and keys with memberships."""
    width = build.slot("centers", "id").width
    q = build.rows(f"{name}.q", "centers", (width, {"id": 1}), (1, {"one": 1}))
    k = build.rows(f"{name}.k", "points", (width, {"y": 1}), (1, {"one": -0.5}))
    return Mask(">", Score((Part("dot", q, k),)))


def hard_clustering(
    d: int,
    k: int,
    *,
    style: str = "l2",
    weighting: Weighting | None = None,
    update: Weighting | None = None,
    masked: bool = True,
    layers: int = 1,
) -> Checkpoint:
    """Two streams, two steps: y := nearest center, then c := mean of the members, else the old one.

    `style` dot lifts the score: -|x - c|^2 without its query-only part is 2<x, c> - |c|^2, |c|^2 a derived slot;
    `style` inner takes <x, c> itself.
    """
    dot = style == "dot"
    centers = [("c", d, "field"), ("one", 1, "constant"), ("id", k, "constant")] + (
        [("c2", 1, "derived")] if dot else []
    )
    build = Builder(points=[("x", d, "field"), ("y", k, "field"), ("one", 1, "constant")], centers=centers)
    derived: tuple[FFN, ...] = ()
    if dot:
        derived = (build.ffn("centers.c2", "centers", "product", "c2", {"c": 1}, {"c": 1}, rows=d, origin="|c|^2"),)
        q = build.rows("assign.q", "points", (d, {"x": 2}), (1, {"one": 1}))
        key = build.rows("assign.k", "centers", (d, {"c": 1}), (1, {"c2": -1}))
        score = Score((Part("dot", q, key),))
    else:
        q, key = build.rows("assign.q", "points", (d, {"x": 1})), build.rows("assign.k", "centers", (d, {"c": 1}))
        score = Score((Part("dot", q, key),))
        if style == "l2":
            score = Score((Part("l2", q, key, build.put("assign.coefficient", -1.0)),))
    assign = Head(
        "assign",
        "points",
        "centers",
        score,
        weighting or Weighting("argmax"),
        build.into("assign.value", "points", "centers", {"y": {"id": 1}}),
        writes=("y",),
        origin="y[i,j] = argmin[j] |x[i] - c[j]|^2",
    )
    ones = Score(
        (
            Part(
                "dot",
                build.rows("update.q", "centers", (1, {"one": 1})),
                build.rows("update.k", "points", (1, {"one": 1})),
            ),
        )
    )
    distance = Score(
        (
            Part(
                "l2",
                build.rows("update.q2", "centers", (d, {"c": 1})),
                build.rows("update.k2", "points", (d, {"x": 1})),
                build.put("update.coefficient", -1.0),
            ),
        )
    )
    unused = ("update.q2", "update.k2", "update.coefficient") if update is None else ("update.q", "update.k")
    for name in unused:
        del build.tensors[name]
    move = Head(
        "update",
        "centers",
        "points",
        ones if update is None else distance,
        update or Weighting("normalize"),
        build.into("update.value", "centers", "points", {"c": {"x": 1}}),
        masks=(member_mask(build, "update.mask"),) if masked else (),
        self_key=SelfKey(build.into("update.own", "centers", "centers", {"c": {"c": 1}})),
        writes=("c",),
        origin="c[j] = mean[i] x[i] where y[i,j] else c[j]",
    )
    steps = (
        Step((Attend({"points": build.carry("assign.carry", "points", ["y"])}, (assign,)),), (("points", "y"),)),
        Step((Attend({"centers": build.carry("update.carry", "centers", ["c"])}, (move,)),), (("centers", "c"),)),
    )
    kind = "onehot" if (weighting or Weighting("argmax")).ties != "split" else "pair"
    program = Program(
        "hard_clustering",
        (Stream("points", None, build.slots["points"]), Stream("centers", k, build.slots["centers"], derived)),
        (
            Input("x", "points", "x", "vector"),
            Input("c", "centers", "c", "vector", init=("spread", "x")),
        ),
        (),
        (
            Embed("input", "points", "x", "x"),
            Embed("one", "points", "one"),
            Embed("input", "centers", "c", "c"),
            Embed("one", "centers", "one"),
            Embed("identity", "centers", "id"),
        ),
        (),
        steps,
        (),
        (
            Output("centers", "vector", "centers", "c"),
            Output("labels", kind, "points", "y", again=0),  # type: ignore[arg-type]
        ),
        layers=layers,
    )
    return build.checkpoint(program)


def with_objective(checkpoint: Checkpoint) -> Checkpoint:
    """Adds a read-out step: cost[i] = min_j |x_i - c_j|^2, its total as the objective, and the cost as an output."""
    program = checkpoint.program
    points = program.stream("points")
    width = points.width
    slot = Slot("cost", width, 1, "field")
    wide = replace(points, slots=(*points.slots, slot))
    tensors = {}
    for name, array in checkpoint.tensors.items():
        tensors[name] = _widened(program, name, array, "points")
    column = np.zeros((width + 1, 1))
    column[width] = -1.0
    tensors["cost.value"] = column
    carry = np.eye(width + 1)
    carry[width] = 0
    tensors["cost.carry"] = carry
    head = Head(
        "cost",
        "points",
        "centers",
        program.layer[0].sublayers[0].heads[0].score,  # type: ignore[union-attr]
        Weighting("max"),
        "cost.value",
        writes=("cost",),
        origin="sum[i] min[j] |x[i] - c[j]|^2",
    )
    step = Step((Attend({"points": "cost.carry"}, (head,)),), (("points", "cost"),))
    total = Output("objective", "total", "points", "cost")
    streams = tuple(wide if stream.name == "points" else stream for stream in program.streams)
    outputs = (*program.outputs, Output("cost", "number", "points", "cost"))
    changed = replace(program, streams=streams, readout=(step,), objective=total, outputs=outputs)
    return replace(checkpoint, program=changed, tensors=tensors)


def _widened(program: Program, name: str, array: Array, stream: str) -> Array:
    """A tensor with one more column (or row) wherever it touches the stream that grew."""
    width = program.stream(stream).width
    uses = program.tensors()[name]
    touching = {"assign.q": (1,), "assign.value": (0,), "assign.carry": (0, 1), "update.k": (1,), "update.k2": (1,)}
    touching |= {"update.value": (1,), "update.mask.k": (1,)}
    for axis in touching.get(name, ()):
        assert array.shape[axis] == width, uses
        array = np.concatenate([array, np.zeros_like(np.take(array, [0], axis))], axis)
    if name == "assign.carry":
        array[width, width] = 1.0
    return array


def dual_ascent(d: int, smoothing: float = 1.0, step: float = 1.0) -> Checkpoint:
    """One stream, one step, two softmax heads with a null key.

    u_s += step * (1/n - sum_t M_st) / (1 + sum_t M_st), M_st = exp((u_s + v_t - |x_s - y_t|^2) / smoothing - 1); and v.
    """
    build = Builder(
        pairs=[
            ("x", d, "field"),
            ("y", d, "field"),
            ("u", 1, "field"),
            ("v", 1, "field"),
            ("one", 1, "constant"),
            ("count", 1, "constant"),
            ("share", 1, "derived"),
        ]
    )
    share = build.ffn("share", "pairs", "reciprocal", "share", {"count": 1}, origin="1 / count(pairs)")
    heads, scores = [], []
    for name, mine, other, own, theirs in (("rows", "x", "y", "u", "v"), ("columns", "y", "x", "v", "u")):
        q = build.rows(f"{name}.q", "pairs", (1, {own: 1}), (1, {"one": 1}))
        k = build.rows(f"{name}.k", "pairs", (1, {"one": 1 / smoothing}), (1, {theirs: 1 / smoothing, "one": -1}))
        near = build.rows(f"{name}.q2", "pairs", (d, {mine: 1})), build.rows(f"{name}.k2", "pairs", (d, {other: 1}))
        score = Score((Part("l2", *near, build.put(f"{name}.coefficient", -1 / smoothing)), Part("dot", q, k)))
        scores.append(score)
        row = np.zeros(build.width("pairs"))
        heads.append(
            Head(
                name,
                "pairs",
                "pairs",
                score,
                Weighting("softmax"),
                build.into(f"{name}.value", "pairs", "pairs", {own: {"one": -step}}),
                self_key=SelfKey(
                    build.into(f"{name}.own", "pairs", "pairs", {own: {"share": step}}), build.put(f"{name}.row", row)
                ),
                writes=(own,),
                origin=f"{own} += ...",
            )
        )
    scale = np.zeros(build.width("pairs"))
    scale[build.slot("pairs", "count").columns] = 1
    plan = Head("plan", "pairs", "pairs", scores[0], Weighting("exp"), "", origin="plan[s,t] = count(pairs) * M[s,t]")
    program = Program(
        "dual_ascent",
        (Stream("pairs", None, build.slots["pairs"], (share,)),),
        (Input("x", "pairs", "x", "vector"), Input("y", "pairs", "y", "vector")),
        (),
        (
            Embed("input", "pairs", "x", "x"),
            Embed("input", "pairs", "y", "y"),
            Embed("one", "pairs", "one"),
            Embed("count", "pairs", "count", "pairs"),
        ),
        (Step((), (("pairs", "u"), ("pairs", "v")), ("u[t] = 0", "v[t] = 0")),),
        (Step((Attend({}, tuple(heads)),), (("pairs", "u"), ("pairs", "v"))),),
        (),
        (
            Output("u", "number", "pairs", "u"),
            Output("v", "number", "pairs", "v"),
            Output("plan", "pattern", "pairs", head=plan, scale=build.put("plan.scale", scale)),
        ),
    )
    return build.checkpoint(program)


def soft_clustering(d: int, k: int, gamma: float) -> Checkpoint:
    """y := softmax_j -gamma |x - c|^2, then c := mean of x weighted by y."""
    base = hard_clustering(d, k, weighting=Weighting("softmax"))
    assign, update = base.program.layer
    move: Head = update.sublayers[0].heads[0]  # type: ignore[union-attr]
    build = Builder(
        points=[("x", d, "field"), ("y", k, "field"), ("one", 1, "constant")],
        centers=[("c", d, "field"), ("one", 1, "constant"), ("id", k, "constant")],
    )
    tensors = {
        name: array for name, array in base.tensors.items() if not name.startswith(("update.mask", "update.own"))
    }
    q, key = build.rows("update.q", "centers", (k, {"id": 1})), build.rows("update.k", "points", (k, {"y": 1}))
    tensors |= build.tensors | {"assign.coefficient": np.asarray(-gamma)}
    move = replace(move, score=Score((Part("dot", q, key),)), masks=(), self_key=None)
    changed = replace(update, sublayers=(replace(update.sublayers[0], heads=(move,)),))  # type: ignore[arg-type]
    outputs = (base.program.outputs[0], replace(base.program.outputs[1], kind="pair", again=None))
    program = replace(base.program, name="soft_clustering", layer=(assign, changed), outputs=outputs)
    return replace(base, program=program, tensors=tensors)


PERCENT = Weighting("top", percent=Fraction(70))


def nearest_to_mean(d: int) -> Checkpoint:
    """One step of two sub-layers: scratch m := mean of all points, then pick := the point nearest to m."""
    build = Builder(points=[("x", d, "field"), ("pick", d, "field"), ("one", 1, "constant"), ("m", d, "scratch")])
    ones = Part("dot", build.rows("mean.q", "points", (1, {"one": 1})), build.rows("mean.k", "points", (1, {"one": 1})))
    mean = Head(
        "mean",
        "points",
        "points",
        Score((ones,)),
        Weighting("normalize"),
        build.into("mean.value", "points", "points", {"m": {"x": 1}}),
    )
    near = Part(
        "l2",
        build.rows("near.q", "points", (d, {"m": 1})),
        build.rows("near.k", "points", (d, {"x": 1})),
        build.put("near.coefficient", -1.0),
    )
    pick = Head(
        "near",
        "points",
        "points",
        Score((near,)),
        Weighting("argmax"),
        build.into("near.value", "points", "points", {"pick": {"x": 1}}),
    )
    step = Step(
        (Attend({}, (mean,)), Attend({"points": build.carry("near.carry", "points", ["m", "pick"])}, (pick,))),
        (("points", "pick"),),
    )
    program = Program(
        "nearest_to_mean",
        (Stream("points", None, build.slots["points"]),),
        (Input("x", "points", "x", "vector"),),
        (),
        (Embed("input", "points", "x", "x"), Embed("one", "points", "one")),
        (),
        (step,),
        (),
        (Output("pick", "vector", "points", "pick"),),
    )
    return build.checkpoint(program)


def largest(function: str, k: int, weighting: Weighting | None = None, noisy: bool = False) -> Checkpoint:
    """y[i,j] = argmax[j] f(a[j]) (+ g[i,j]): decides on a derived slot, rational or not."""
    noise = [("g", k, "field")] if noisy else []
    build = Builder(
        points=[("x", 1, "field"), ("y", k, "field"), ("one", 1, "constant"), *noise],
        centers=[("a", 1, "field"), ("one", 1, "constant"), ("id", k, "constant"), ("f", 1, "derived")],
    )
    other = {"a": 1} if function == "product" else None
    made = build.ffn("centers.f", "centers", function, "f", {"a": 1}, other, origin=f"{function} of a[j]")
    parts = [Part("dot", build.rows("q", "points", (1, {"one": 1})), build.rows("k", "centers", (1, {"f": 1})))]
    if noisy:
        parts.append(
            Part("dot", build.rows("gq", "points", (k, {"g": 1})), build.rows("gk", "centers", (k, {"id": 1})))
        )
    head = Head(
        "choose",
        "points",
        "centers",
        Score(tuple(parts)),
        weighting or Weighting("argmax"),
        build.into("value", "points", "centers", {"y": {"id": 1}}),
        origin="y[i,j] = argmax[j] f(a[j])",
    )
    step = Step((Attend({"points": build.carry("carry", "points", ["y"])}, (head,)),), (("points", "y"),))
    embed = [Embed("input", "points", "x", "x"), Embed("one", "points", "one"), Embed("input", "centers", "a", "a")]
    embed += [Embed("one", "centers", "one"), Embed("identity", "centers", "id")]
    program = Program(
        "largest",
        (Stream("points", None, build.slots["points"]), Stream("centers", k, build.slots["centers"], (made,))),
        (Input("x", "points", "x", "number"), Input("a", "centers", "a", "number")),
        (Input("g", "points", "g", "gumbel"),) if noisy else (),
        (*embed, Embed("noise", "points", "g", "g")) if noisy else tuple(embed),
        (),
        (step,),
        (),
        (Output("y", "onehot", "points", "y"),),
    )
    return build.checkpoint(program)


def neighbours(op: str = "<=", self_out: bool = False, kind: str = "normalize", radius: float = 1.0) -> Checkpoint:
    """m[i] := weighting over the points within a squared radius (a mask by comparison), else x; one dimension."""
    build = Builder(points=[("x", 1, "field"), ("m", 1, "field"), ("one", 1, "constant")])
    near = Part(
        "l2",
        build.rows("mask.q", "points", (1, {"x": 1})),
        build.rows("mask.k", "points", (1, {"x": 1})),
        build.put("mask.coefficient", 1.0),
    )
    shift = Part(
        "dot", build.rows("shift.q", "points", (1, {"one": 1})), build.rows("shift.k", "points", (1, {"one": -radius}))
    )
    masks = [Mask(op, Score((near, shift)))]  # type: ignore[arg-type]
    if self_out:
        masks.append(Mask("other"))
    number = kind in ("lse", "max")
    score = Part(
        "dot",
        build.rows("score.q", "points", (1, {"one": 1})),
        build.rows("score.k", "points", (1, {"x": 1} if number or kind == "sparsemax" else {"one": 1})),
    )
    head = Head(
        "mean",
        "points",
        "points",
        Score((score,)),
        Weighting(kind),  # type: ignore[arg-type]
        build.column("value", "points", "m") if number else build.into("value", "points", "points", {"m": {"x": 1}}),
        masks=tuple(masks),
        self_key=SelfKey(build.into("own", "points", "points", {"m": {"x": 1}})) if self_out else None,
        origin="m[i] = mean[l] x[l] where |x[i] - x[l]|^2 <= r",
    )
    step = Step((Attend({"points": build.carry("carry", "points", ["m"])}, (head,)),), (("points", "m"),))
    program = Program(
        "neighbours",
        (Stream("points", None, build.slots["points"]),),
        (Input("x", "points", "x", "number"),),
        (),
        (Embed("input", "points", "x", "x"), Embed("one", "points", "one")),
        (),
        (step,),
        (),
        (Output("m", "number", "points", "m"),),
    )
    return build.checkpoint(program)


def laboratory(seed: int) -> Checkpoint:
    """One step that uses every kind of head and feed-forward before it decides: for tests of error bounds."""
    rng = np.random.default_rng(seed)
    scratch = {"norm": 2, "sum": 1, "soft": 2, "dot": 1, "part": 1, "root": 1, "loga": 1, "expo": 1, "tan": 1, "dir": 2}
    scratch |= {"pos": 2, "size": 2, "pick": 2, "lse": 1, "top": 1, "sparse": 2, "few": 2, "raw": 1, "sq": 2, "lay": 2}
    build = Builder(
        points=[("x", 2, "field"), ("w", 1, "field"), ("win", 2, "field"), ("one", 1, "constant"), ("x2", 1, "derived")]
        + [(name, width, "scratch") for name, width in scratch.items()]
    )
    stream = "points"
    derived = build.ffn("x2", stream, "product", "x2", {"x": 1}, {"x": 1}, rows=2)

    def dot(name: str, q: Form, k: Form, rows: int) -> Part:
        return Part("dot", build.rows(f"{name}.q", stream, (rows, q)), build.rows(f"{name}.k", stream, (rows, k)))

    def l2(name: str, c: float, scale: Any = None) -> Part:
        q, k = (build.rows(f"{name}.{side}", stream, (2, {"x": rng.normal(size=(2, 2))})) for side in ("q2", "k2"))
        return Part("l2", q, k, build.put(f"{name}.c", c), scale)

    def head(name: str, kind: str, score: tuple[Part, ...], into: str, source: str = "x", **more: Any) -> Head:
        number = kind in ("lse", "max")
        value = (
            build.column(f"{name}.v", stream, into, 0.7)
            if number
            else build.into(f"{name}.v", stream, stream, {into: {source: rng.normal(size=(scratch[into], 2))}})
        )
        options = more.pop("options", {})
        return Head(name, stream, stream, Score(score), Weighting(kind, **options), value, **more)  # type: ignore[arg-type]

    row = build.put("soft.row", rng.normal(size=build.width(stream)) * (np.arange(build.width(stream)) < 3))
    own = build.into("soft.own", stream, stream, {"soft": {"x": rng.normal(size=(2, 2))}})
    first = (
        head("norm", "normalize", (dot("norm", {"w": 1}, {"w": 0.3}, 1),), "norm"),
        head("sum", "sum", (l2("sum", 0.3, ("key", _slot_row(build, stream, "w", "sum.scale"))),), "sum"),
        head(
            "soft",
            "softmax",
            (l2("soft", -0.7), dot("soft", {"x": 1}, {"x": 1}, 2)),
            "soft",
            self_key=SelfKey(own, row),
        ),
        head("raw", "exp", (l2("raw", -0.2),), "raw"),
    )
    middle = [
        build.ffn("dot", stream, "product", "dot", {"norm": 0.3, "x": 1}, {"soft": 1, "x": -0.1}, rows=2),
        build.ffn("part", stream, "reciprocal", "part", {"raw": 0.1, "one": 3.3}),
        build.ffn("root", stream, "sqrt", "root", {"x2": 0.1, "one": 0.3}),
        build.ffn("loga", stream, "log", "loga", {"x2": 0.7, "one": 0.2}),
        build.ffn("expo", stream, "exp", "expo", {"dot": 0.3}),
        build.ffn("tan", stream, "tanh", "tan", {"sum": 0.1, "one": 0.3}),
        build.ffn("dir", stream, "unit", "dir", {"norm": 0.9}, {"x": 1}),
        build.ffn("pos", stream, "relu", "pos", {"soft": 1.1}),
        build.ffn("sq", stream, "relu2", "sq", {"soft": 1.3, "x": 0.1}),
        build.ffn("lay", stream, "layer", "lay", {"norm": 0.9, "sq": 0.3}, {"x": 1}),
        build.ffn("size", stream, "absolute", "size", {"dir": 0.3, "soft": 0.1, "lay": 0.01}),
    ]
    flag = build.ffn("pick", stream, "copy", "pick", {"pos": 1.5})
    b = np.concatenate([build.tensors["pick.a"] * 0.5, build.tensors["pick.a"][:1] * 0])
    b[2, build.slot(stream, "tan").columns] = 1.0
    middle.append(replace(flag, function="select", b=build.put("pick.b", b)))
    mask = Mask(">", Score((dot("mask", {"size": 1}, {"pos": 0.3}, 2), dot("mask1", {"one": 1}, {"one": 0.01}, 1))))
    second = (
        head("lse", "lse", (dot("lse", {"dot": 0.1, "root": 1}, {"expo": 1}, 1),), "lse"),
        head("top", "max", (dot("top", {"loga": 1}, {"part": 1, "tan": 0.3}, 1),), "top", masks=(mask,)),
        head("sparse", "sparsemax", (dot("sparse", {"dir": 0.1}, {"pick": 1}, 2),), "sparse", "soft"),
        head("few", "top", (dot("few", {"size": 1}, {"pos": 0.3}, 2),), "few", "soft", options={"count": 3}),
    )
    last = Head(
        "win",
        stream,
        stream,
        Score(
            (dot("win", {"few": 1, "sparse": 0.3}, {"few": 0.1, "soft": 1}, 2), dot("win1", {"lse": 1}, {"top": 1}, 1))
        ),
        Weighting("argmax"),
        build.into("win.v", stream, stream, {"win": {"x": 1}}),
    )
    clear = build.carry("clear", stream, [*scratch, "win"])
    step = Step((Attend({}, first), *middle, Attend({}, second), Attend({stream: clear}, (last,))), ((stream, "win"),))
    program = Program(
        "laboratory",
        (Stream(stream, None, build.slots[stream], (derived,)),),
        (Input("x", stream, "x", "vector"), Input("w", stream, "w", "number")),
        (),
        (Embed("input", stream, "x", "x"), Embed("input", stream, "w", "w"), Embed("one", stream, "one")),
        (),
        (step,),
        (),
        (Output("win", "vector", stream, "win"),),
    )
    return build.checkpoint(program)


def _slot_row(build: Builder, stream: str, slot: str, name: str) -> str:
    row = np.zeros(build.width(stream))
    row[build.slot(stream, slot).columns] = 1.0
    return build.put(name, row)


def countdown(function: str = "reciprocal") -> Checkpoint:
    """y := f(x), then x := x - 1: the derived f(x) may lose its value after the last layer that reads it."""
    build = Builder(tokens=[("x", 1, "field"), ("y", 1, "field"), ("one", 1, "constant"), ("r", 1, "derived")])
    made = build.ffn("r", "tokens", function, "r", {"x": 1}, origin=f"{function} of x[t]")
    note = build.carry("note", "tokens", ["y"], {"y": {"r": 1}})
    less = build.carry("less", "tokens", [], {"x": {"one": -1}})
    steps = (
        Step((Attend({"tokens": note}),), (("tokens", "y"),)),
        Step((Attend({"tokens": less}),), (("tokens", "x"),)),
    )
    program = Program(
        "countdown",
        (Stream("tokens", None, build.slots["tokens"], (made,)),),
        (Input("x", "tokens", "x", "number"),),
        (),
        (Embed("input", "tokens", "x", "x"), Embed("one", "tokens", "one")),
        (),
        steps,
        (),
        (Output("x", "number", "tokens", "x"), Output("y", "number", "tokens", "y", again=0)),
    )
    return build.checkpoint(program)


def normed(function: str, width: int = 3) -> Checkpoint:
    """y := norm(x), else f: a feed-forward with a fallback, inside the step."""
    build = Builder(tokens=[("x", width, "field"), ("f", width, "field"), ("y", width, "field")])
    ffn = build.ffn("norm", "tokens", function, "y", {"x": 1}, {"f": 1}, origin="y[t] = unit(x[t]) else f[t]")
    program = Program(
        "normed",
        (Stream("tokens", None, build.slots["tokens"]),),
        (Input("x", "tokens", "x", "vector"), Input("f", "tokens", "f", "vector")),
        (),
        (Embed("input", "tokens", "x", "x"), Embed("input", "tokens", "f", "f")),
        (),
        (Step((ffn,), (("tokens", "y"),)),),
        (),
        (Output("y", "vector", "tokens", "y"),),
    )
    return build.checkpoint(program)
