"""Every kind of head and feed-forward in one step, for tests of error bounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from programs.builder import Builder, Form
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
        build.ffn("size", stream, "abs", "size", {"dir": 0.3, "soft": 0.1, "lay": 0.01}),
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
    step = ProgramStep(
        (Attend({}, first), *middle, Attend({}, second), Attend({stream: clear}, (last,))), ((stream, "win"),)
    )
    program = Program(
        "laboratory",
        (Stream(stream, None, build.slots[stream], (derived,)),),
        (Input("x", stream, "x", "vector"), Input("w", stream, "w", "number")),
        (),
        (Embed("input", stream, "x", "x"), Embed("input", stream, "w", "w"), Embed("one", stream, "one")),
        (),
        (step,),
        (),
        (ProgramOutput("win", "vector", stream, "win"),),
    )
    return build.checkpoint(program)


def _slot_row(build: Builder, stream: str, slot: str, name: str) -> str:
    row = np.zeros(build.width(stream))
    row[build.slot(stream, slot).columns] = 1.0
    return build.put(name, row)
