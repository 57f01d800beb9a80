"""Points to centers and back: hard, soft, with a read-out of what it costs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from programs.builder import Array, Builder
from weftc_runtime.format.checkpoint import Checkpoint
from weftc_runtime.format.program import (
    FFN,
    Attend,
    Embed,
    Head,
    Input,
    Mask,
    Part,
    Program,
    ProgramOutput,
    ProgramStep,
    Score,
    SelfKey,
    Slot,
    Stream,
    Weighting,
)
from weftc_runtime.format.writes import stated


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
        ProgramStep((Attend({"points": build.carry("assign.carry", "points", ["y"])}, (assign,)),), (("points", "y"),)),
        ProgramStep(
            (Attend({"centers": build.carry("update.carry", "centers", ["c"])}, (move,)),), (("centers", "c"),)
        ),
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
            ProgramOutput("centers", "vector", "centers", "c"),
            ProgramOutput("labels", kind, "points", "y", again=0),  # type: ignore[arg-type]
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
    step = ProgramStep((Attend({"points": "cost.carry"}, (head,)),), (("points", "cost"),))
    total = ProgramOutput("objective", "total", "points", "cost")
    streams = tuple(wide if stream.name == "points" else stream for stream in program.streams)
    outputs = (*program.outputs, ProgramOutput("cost", "number", "points", "cost"))
    changed = replace(program, streams=streams, readout=(step,), objective=total, outputs=outputs)
    return replace(checkpoint, program=stated(changed, tensors), tensors=tensors)


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
    return replace(base, program=stated(program, tensors), tensors=tensors)
