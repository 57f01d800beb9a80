"""One set of pairs with two fields on each token: heads with a null key, and a pattern as an output."""

from __future__ import annotations

import numpy as np

from programs.builder import Builder
from weftc_runtime.format.checkpoint import Checkpoint
from weftc_runtime.format.program import (
    Attend,
    Embed,
    Head,
    Input,
    Part,
    Program,
    ProgramOutput,
    ProgramStep,
    Score,
    SelfKey,
    Stream,
    Weighting,
)


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
        (ProgramStep((), (("pairs", "u"), ("pairs", "v")), ("u[t] = 0", "v[t] = 0")),),
        (ProgramStep((Attend({}, tuple(heads)),), (("pairs", "u"), ("pairs", "v"))),),
        (),
        (
            ProgramOutput("u", "number", "pairs", "u"),
            ProgramOutput("v", "number", "pairs", "v"),
            ProgramOutput("plan", "pattern", "pairs", head=plan, scale=build.put("plan.scale", scale)),
        ),
    )
    return build.checkpoint(program)
