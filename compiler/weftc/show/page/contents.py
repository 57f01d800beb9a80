"""A checkpoint, its recording and its verdict -> the words of a report, ready for the template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from weftc.core.source import printable
from weftc.core.types import Checked
from weftc.emit.cost import program_cost
from weftc.graph.build import build_graph
from weftc.show.page.answers import AnswerTable
from weftc.show.page.equations import Correspondence, EquationLine, shown_steps
from weftc.show.page.evidence import MARKS, evidence
from weftc.show.page.plane import Plane
from weftc.show.page.recording import Recording
from weftc.show.page.slotwise import slotwise
from weftc.show.page.spectext import passages
from weftc.show.page.transformer import Stage, SublayerView, Wiring, stream_views
from weftc.verification.verdict import Verdict
from weftc.version import VERSION
from weftc_runtime.data.results import Report
from weftc_runtime.format import program as ir
from weftc_runtime.format.checkpoint import Checkpoint

THIN = "\N{NARROW NO-BREAK SPACE}"


@dataclass(frozen=True, slots=True)
class Material:
    """All that a report is made of."""

    checked: Checked
    checkpoint: Checkpoint
    recording: Recording
    plane: Plane | None
    answers: Sequence[AnswerTable]
    run: Report
    verdict: Verdict | None = None
    sources: Mapping[str, str] = field(default_factory=dict)  # input -> where its data came from
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    near: float = 0.0
    command: str = ""


def context(material: Material, found: Correspondence, data: Mapping[str, Any]) -> dict[str, Any]:
    """What the template needs."""
    checked, checkpoint = material.checked, material.checkpoint
    wiring = Wiring(slotwise(checkpoint), found)
    stages = wiring.stages()
    parts = {part.key: part for stage in stages for part in stage.parts}
    first = {line.key: parts[found.parts_of(line)[0]].anchor for line in found.lines if found.parts_of(line)}
    sizes = material.recording.sizes
    return {
        "name": printable(checked.spec.name),
        "doc": printable(checked.spec.doc),
        "facts": _facts(material),
        "warnings": [printable(one) for one in material.run.warnings],
        "passages": passages(checked.spec.source.text, found.lines),
        "spec_caption": _spec_caption(checkpoint),
        "first_part": first,
        "became": [_became(line, found, parts) for line in found.lines if line.section != "let"],
        "line_names": {line.key: line_name(line, checked) for line in found.lines},
        "pipeline": _pipeline(checked, checkpoint),
        "run_lead": _run_lead(material),
        "run_notes": _run_notes(material),
        "plane": _plane(material),
        "has_patterns": bool(data["patterns"]),
        "has_residual": bool(data["residual"]),
        "pattern_caption": _pattern_caption(),
        "residual_caption": (
            "What the tokens hold after the layer: one row per token, one column per number. Blue is positive, orange "
            "negative, and the strongest colour is the largest number that the slot ever holds."
        ),
        "answers": list(material.answers),
        "answers_lead": "The outputs as the spec names them, made on the final state. Tokens are counted from 0.",
        "streams": stream_views(checkpoint.program, sizes),
        "stages": stages,
        "transformer_lead": _transformer_lead(checkpoint, stages),
        "evidence": None if material.verdict is None else evidence(material.verdict),
        "conditions": [printable(one.text) for one in checkpoint.program.conditions],
        "not_verified": "This report was made without verification. weftc verify judges the same model.",
        "command": printable(material.command),
        "made_by": f"weftc {VERSION}",
    }


def line_name(line: EquationLine, checked: Checked) -> str:
    """A line of the spec, by its number."""
    return f"line {checked.spec.source.position(line.span.start)[0]}"


def count(number: int) -> str:
    """A number with its thousands apart."""
    return f"{number:,}".replace(",", THIN)


def several(number: int, one: str, many: str = "") -> str:
    """A number and its noun."""
    return f"{count(number)} {one if number == 1 else many or one + 's'}"


# ---- the head of the page --------------------------------------------------------------------------------------------


def _facts(material: Material) -> list[dict[str, str]]:
    recording, checkpoint = material.recording, material.checkpoint
    out: list[dict[str, str]] = []
    for name, shape in material.shapes.items():
        size = f" {chr(0xD7)} ".join(count(n) for n in shape)
        out.append(
            {"what": f"data of {printable(name)}", "value": size, "more": printable(material.sources.get(name, ""))}
        )
    numbers = {**checkpoint.dims, **checkpoint.params}
    if numbers:
        told = ", ".join(f"{printable(name)} = {value:g}" for name, value in numbers.items())
        out.append({"what": "sizes and parameters", "value": told})
    ending = {True: "nothing changes any more", False: "still changing", None: ""}[recording.stable]
    if recording.stable and material.near:
        ending = "nothing visible changes any more"
    out.append({"what": "layers", "value": count(recording.ran), "more": ending})
    objective = recording.frames[-1].objective
    if objective is not None:
        out.append({"what": "objective", "value": f"{objective:.6g}", "more": "at the end"})
    tiers = material.run.total
    if tiers.bound + tiers.exact + tiers.undecided:
        rest = f", {several(tiers.undecided, 'undecided', 'undecided')}" if tiers.undecided else ""
        out.append(
            {
                "what": "decisions",
                "value": count(tiers.bound + tiers.exact + tiers.undecided),
                "more": f"{count(tiers.exact)} settled in exact arithmetic{rest}",
            }
        )
    if material.verdict is not None:
        out.append(
            {"what": "equal to the spec", "value": material.verdict.verdict, "mark": MARKS[material.verdict.verdict]}
        )
    return [{"more": "", "mark": "", **fact} for fact in out]


def _spec_caption(checkpoint: Checkpoint) -> str:
    from weftc.core.styles import CHOICES, Styles

    usual = Styles()
    options = checkpoint.program.options
    chosen = [
        f"--{name} {options[name]}" for name in CHOICES if name in options and options[name] != getattr(usual, name)
    ]
    made = f"Compiled by {printable(checkpoint.compiler)}" if checkpoint.compiler else "Compiled"
    return f"{made}, {'in the usual style' if not chosen else 'with ' + ' '.join(printable(c) for c in chosen)}."


def _became(line: EquationLine, found: Correspondence, parts: Mapping[str, SublayerView]) -> dict[str, Any]:
    told = {"start": "at the start", "layer": f"each layer, step {line.step + 1}", "readout": "at the end"}[
        line.section
    ]
    text = f"objective {line.text}" if line.target == "objective" and line.section == "readout" else line.text
    return {
        "line": line.key,
        "when": told,
        "text": printable(text),
        "parts": [parts[key] for key in found.parts_of(line)],
        "without": "no head of its own: the residual is carried into place by a matrix",
    }


def _pipeline(checked: Checked, checkpoint: Checkpoint) -> list[dict[str, str]]:
    program, text = checkpoint.program, checked.spec.source.text
    steps = list(shown_steps(program))
    attends = [sub for _, step in steps for sub in step.sublayers if isinstance(sub, ir.Attend)]
    heads = sum(len(sub.heads) for sub in attends) + sum(o.head is not None for o in program.outputs)
    maps = sum(isinstance(sub, ir.FFN) for _, step in steps for sub in step.sublayers)
    equations = sum(len(step.equations) for step in checked.spec.steps)
    nodes = len(build_graph(checked).nodes)
    cost = program_cost(program, checkpoint.tensors)
    lines = sum(1 for line in text.splitlines() if line.strip())
    rows = [
        (lines, "lines", "spec"),
        (equations, "equations" if equations != 1 else "equation", "checked, per layer"),
        (nodes, "operations", "algorithm graph"),
        (cost.levels, "levels" if cost.levels != 1 else "level", "of attention, per layer"),
        (heads, "heads" if heads != 1 else "head", "in normal form"),
        (maps, "maps" if maps != 1 else "map", "token by token"),
        (cost.width, "columns", f"in {several(len(program.streams), 'stream')}"),
        (cost.parameters, "weights", several(len(checkpoint.tensors), "tensor")),
    ]
    return [{"number": count(number), "unit": unit, "name": name} for number, unit, name in rows if number]


# ---- the run ---------------------------------------------------------------------------------------------------------


def _run_lead(material: Material) -> str:
    recording = material.recording
    if recording.ran == 0:
        return "The model ran no layer: what follows is the state before the first."
    told = f"The model ran {several(recording.ran, 'layer')}"
    if recording.stable:
        moved = "by more than a millionth of its range" if material.near else "by a single bit"
        told += f", until no field changed {moved}"
    elif recording.stable is False:
        told += ", the most it was allowed; the fields were still changing"
    if len(recording.frames) > 1:
        told += ". The slider, or the arrow keys on it, goes through the layers for everything in this section"
    return told + "."


def _run_notes(material: Material) -> list[str]:
    """What was left out of the pictures."""
    recording, out = material.recording, []
    for stream, size in recording.sizes.items():
        drawn, rows = len(recording.tokens[stream]), len(recording.rows[stream])
        if drawn < size:
            out.append(
                f"Of {count(size)} {printable(stream)}, {drawn} evenly spaced ones are drawn, and {rows} of them in "
                "pictures of attention. The run itself, the objective and the answers are of all."
            )
        elif rows < size:
            out.append(f"Of {count(size)} {printable(stream)}, {rows} evenly spaced ones are in pictures of attention.")
    if not recording.all_layers:
        out.append(
            f"Of {count(recording.ran)} layers, {len(recording.frames) - 1} are drawn, evenly spaced, with the last."
        )
    if recording.alone:
        out.append(
            "There are too many pairs to make all attention weights: those shown, and the margins, are of the drawn "
            "tokens alone, one layer from the fields of the whole run."
        )
    return out


def _plane(material: Material) -> dict[str, str] | None:
    if material.plane is None:
        return None
    moving = [printable(trail.name) for trail in material.plane.trails if trail.moves and trail.given]
    coloured = any(
        one.kind in ("onehot", "simplex") and one.name in material.recording.frames[-1].fields
        for one in material.checked.fields.values()
    )
    caption = f"Axes: {printable(material.plane.how)}."
    if moving:
        caption += f" Lines are the paths of {', '.join(moving)}."
    if coloured:
        caption += " Colours say which token of the fixed set has the largest weight."
    fields = ", ".join(printable(trail.name) for trail in material.plane.trails)
    return {"caption": caption, "label": f"Positions of {fields} in the plane"}


def _pattern_caption() -> str:
    return (
        "Attention weights of the layer that the slider is at: stronger colour is more weight. Point at a cell, or use "
        "the arrow keys on a picture, to read its weight. Before the first layer the pictures show, faintly, what the "
        "first layer will do."
    )


# ---- the transformer -------------------------------------------------------------------------------------------------


def _transformer_lead(checkpoint: Checkpoint, stages: Sequence[Stage]) -> str:
    program = checkpoint.program
    streams = several(len(program.streams), "residual stream")
    shared = "the same weights in every layer"
    if program.unrolled:
        shared = f"weights of its own in each of {several(program.layers, 'layer')}, of which the first is shown"
    told = f"{streams}, {shared}. These are the matrices in the file, drawn as blocks: nothing that changes the result "
    told += "is hidden outside of them."
    if program.basis:
        turned = ", ".join(printable(name) for name in program.basis)
        told += f" The residual of {turned} has a basis of its own: its matrices are drawn as they act on slots."
    return told
