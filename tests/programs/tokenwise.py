"""Programs without attention: functions of one token at a time."""

from __future__ import annotations

from programs.builder import Builder
from weftc_runtime.format.checkpoint import Checkpoint
from weftc_runtime.format.program import (
    Attend,
    Embed,
    Input,
    Program,
    ProgramOutput,
    ProgramStep,
    Stream,
)


def countdown(function: str = "reciprocal") -> Checkpoint:
    """y := f(x), then x := x - 1: the derived f(x) may lose its value after the last layer that reads it."""
    build = Builder(tokens=[("x", 1, "field"), ("y", 1, "field"), ("one", 1, "constant"), ("r", 1, "derived")])
    made = build.ffn("r", "tokens", function, "r", {"x": 1}, origin=f"{function} of x[t]")
    note = build.carry("note", "tokens", ["y"], {"y": {"r": 1}})
    less = build.carry("less", "tokens", [], {"x": {"one": -1}})
    steps = (
        ProgramStep((Attend({"tokens": note}),), (("tokens", "y"),)),
        ProgramStep((Attend({"tokens": less}),), (("tokens", "x"),)),
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
        (ProgramOutput("x", "number", "tokens", "x"), ProgramOutput("y", "number", "tokens", "y", again=0)),
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
        (ProgramStep((ffn,), (("tokens", "y"),)),),
        (),
        (ProgramOutput("y", "vector", "tokens", "y"),),
    )
    return build.checkpoint(program)
