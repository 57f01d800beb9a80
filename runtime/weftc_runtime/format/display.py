"""What notebooks show of programs, checkpoints, models and answers: small tables, everything escaped.

Styles are inline and take the colours of the page, so they suit light and dark ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from weftc_runtime.errors import shown
from weftc_runtime.format.program import Attend, Program, ProgramStep
from weftc_runtime.format.structure import numbers

if TYPE_CHECKING:
    from weftc_runtime.format.checkpoint import Checkpoint
    from weftc_runtime.model import Model

FRAME = "font-family:ui-monospace,Menlo,Consolas,monospace;font-size:0.9em;line-height:1.45;max-width:60em"
TABLE = "border-collapse:collapse;margin:0.3em 0;font-size:inherit;color:inherit"
CELL = "text-align:left;padding:0.1em 1em 0.1em 0;border:0;vertical-align:top;background:none"
RULE = "border-bottom:1px solid rgba(128,128,128,0.4)"
MOST = 40  # rows of a table
LONGEST = 200  # letters of a cell
PREVIEW = 4  # rows and columns of an array that are shown


def text(value: object) -> str:
    """A value as HTML: cut, control characters made visible, escaped."""
    return escape(shown(value, LONGEST), quote=True)


def frame(title: object, note: object, *parts: str) -> str:
    """A heading and what belongs to it."""
    head = f"<div><strong>{text(title)}</strong> <span style='opacity:0.7'>{text(note)}</span></div>"
    return f"<div style='{FRAME}'>{head}{''.join(parts)}</div>"


def table(head: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """A table; of a long one, its beginning."""
    every = list(rows)
    lines = [f"<tr>{''.join(_cell('th', cell, RULE + ';opacity:0.7') for cell in head)}</tr>"]
    lines += [f"<tr>{''.join(_cell('td', cell) for cell in row)}</tr>" for row in every[:MOST]]
    if len(every) > MOST:
        lines.append(f"<tr>{_cell('td', f'... {len(every) - MOST} more')}</tr>")
    return f"<table style='{TABLE}'>{''.join(lines)}</table>"


def _cell(tag: str, value: object, more: str = "") -> str:
    return f"<{tag} style='{CELL};{more}'>{text(value)}</{tag}>"


# ---- programs --------------------------------------------------------------------------------------------------------


def heads_of(steps: Iterable[ProgramStep]) -> Iterator[tuple[int, Any]]:
    """Every head with the number of its step."""
    for number, step in enumerate(steps, start=1):
        for sublayer in step.sublayers:
            for head in sublayer.heads if isinstance(sublayer, Attend) else ():
                yield number, head


def sizes(numbers: Mapping[str, float]) -> str:
    """`d = 2, k = 3`."""
    return ", ".join(f"{shown(name)} = {value:g}" for name, value in numbers.items())


def calls(program: Program) -> str:
    """`x, c -> centers, labels`."""
    inputs = ", ".join(shown(item.name) for item in program.inputs)
    return f"{inputs} -> {', '.join(shown(output.name) for output in program.outputs)}"


def program_line(program: Program) -> str:
    """A program in one line."""
    streams = ", ".join(f"{shown(stream.name)} (width {stream.width})" for stream in program.streams)
    layer = program.steps_of(0)
    heads = sum(1 for _ in heads_of(layer))
    return f"{shown(program.name)}: {calls(program)}; {streams}; {_many(heads, 'head')} in {_many(len(layer), 'step')}"


def _many(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def program_tables(program: Program) -> tuple[str, str]:
    """The slots of the streams, and the heads of the layer."""
    slots = [
        (stream.name, slot.name, f"{slot.offset}:{slot.offset + slot.width}", slot.role)
        for stream in program.streams
        for slot in stream.slots
    ]
    heads = [
        (number, head.name, f"{head.query} <- {head.keys}", head.weighting.kind, ", ".join(head.writes))
        for number, head in heads_of(program.steps_of(0))
    ]
    return (
        table(("stream", "slot", "columns", "role"), slots),
        table(("step", "head", "tokens", "weighting", "writes"), heads),
    )


def program_html(program: Program) -> str:
    """A program: its slots and heads."""
    return frame(program.name, calls(program), *program_tables(program))


def checkpoint_line(made: Checkpoint) -> str:
    """A checkpoint in one line."""
    known = sizes({**made.dims, **made.params})
    settings = f"{known}; " if known else ""
    depth = _many(made.program.layers, "layer")
    tensors = _many(len(made.tensors), "tensor")
    return f"{shown(made.program.name)}: {settings}{depth}, {tensors}, {numbers(made.tensors)} numbers"


def checkpoint_html(made: Checkpoint) -> str:
    """A checkpoint: what it was compiled for, its slots and heads, and when it equals its spec."""
    conditions = [f"<div>equals the spec when {text(one.text)}</div>" for one in made.program.conditions]
    known = f"<div>{text(sizes({**made.dims, **made.params}))}; {text(_many(made.program.layers, 'layer'))}</div>"
    return frame(made.program.name, calls(made.program), known, *program_tables(made.program), *conditions)


def model_line(model: Model) -> str:
    """A model in one line."""
    dtype = str(model.dtype).removeprefix("torch.")
    known = sizes({**model.dims, **model.params})
    settings = f"{known}; " if known else ""
    return f"{shown(model.program.name)}: {calls(model.program)}; {settings}{dtype} on {model.device}"


def model_html(model: Model) -> str:
    """A model: how to call it, and what it is made of."""
    inputs = []
    for item in model.program.inputs:
        start = "" if item.init is None else f"optional: starts by {item.init[0]}"
        inputs.append((item.name, item.kind, f"one for each of {item.stream}", start))
    note = model_line(model).partition(": ")[2]
    called = table(("input", "is", "given", ""), inputs)
    return frame(model.program.name, note, called, *program_tables(model.program))


# ---- answers ---------------------------------------------------------------------------------------------------------


def named_html(kind: str, values: Mapping[str, Any]) -> str:
    """Arrays by name: shape, type, and how each begins. What is made on request only stays unmade."""
    rows = [(name, *_described(value)) for name, value in values.items()]
    return frame(
        kind, _many(len(rows), "entry").replace("entrys", "entries"), table(("", "shape", "type", "begins"), rows)
    )


def _described(value: Any) -> tuple[str, str, str]:
    if not hasattr(value, "shape"):
        return "", "", "on request"
    shape = " x ".join(map(str, value.shape)) or "one number"
    if hasattr(value, "columns"):
        return shape, f"one-hot, {value.columns} columns", f"indices {preview(value.indices)}"
    return shape, str(getattr(value, "dtype", "")).removeprefix("torch."), preview(value)


def preview(value: Any) -> str:
    """The first numbers of an array, on one line."""
    array = value.detach() if hasattr(value, "detach") else value
    if array.ndim == 0:
        return f"{array.item():.6g}"
    more = ", ..." if len(array) > PREVIEW else ""
    if array.ndim == 1:
        return f"[{', '.join(f'{number:.6g}' for number in array[:PREVIEW].tolist())}{more}]"
    return f"[{', '.join(preview(row) for row in array[: PREVIEW - 1])}{', ...' if len(array) > PREVIEW - 1 else ''}]"
