"""Programs that decide among the tokens of one set: by rank, by a function of the score, by a radius."""

from __future__ import annotations

from fractions import Fraction

from programs.builder import Builder
from weftc_runtime.format.checkpoint import Checkpoint
from weftc_runtime.format.program import (
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
    Stream,
    Weighting,
)

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
    step = ProgramStep(
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
        (ProgramOutput("pick", "vector", "points", "pick"),),
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
    step = ProgramStep((Attend({"points": build.carry("carry", "points", ["y"])}, (head,)),), (("points", "y"),))
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
        (ProgramOutput("y", "onehot", "points", "y"),),
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
    step = ProgramStep((Attend({"points": build.carry("carry", "points", ["m"])}, (head,)),), (("points", "m"),))
    program = Program(
        "neighbours",
        (Stream("points", None, build.slots["points"]),),
        (Input("x", "points", "x", "number"),),
        (),
        (Embed("input", "points", "x", "x"), Embed("one", "points", "one")),
        (),
        (step,),
        (),
        (ProgramOutput("m", "number", "points", "m"),),
    )
    return build.checkpoint(program)
