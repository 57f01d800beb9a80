"""What each lowering style makes of a spec: another transformer, the same one, or a refusal; and on what conditions.

`python -m weftc.show.style_effects` prints the table of all built-in specs, as docs/styles.md has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from weftc.compiling import checked_spec, compile
from weftc.core.errors import InputError, SpecError
from weftc.core.styles import CHOICES, Styles
from weftc.core.types import Checked
from weftc.files.locate import catalogue
from weftc_runtime.format.checkpoint import Checkpoint

BESIDE = {style: {"scores": "dot"} for style in ("centre", "null", "square")}  # styles that show only beside another


@dataclass(frozen=True, slots=True)
class Effect:
    """One choice on one spec. `refusal` says why there is no such transformer; `differs`: it is not the default one."""

    style: str
    value: str
    differs: bool
    refusal: str = ""
    conditions: tuple[str, ...] = ()


def choices() -> Iterator[tuple[str, str]]:
    """Every choice that is not a default."""
    for style, values in CHOICES.items():
        yield from ((style, value) for value in values if value != getattr(Styles(), style))


def chosen(style: str, value: str) -> dict[str, Any]:
    """The keywords of `compile` for one choice, with the style it needs beside it."""
    depth = {"layers": 2} if style == "weights" else {}
    return {**BESIDE.get(style, {}), style: value, **depth}


def effect(checked: Checked, dims: Mapping[str, int], style: str, value: str) -> Effect:
    """What one choice makes of a spec."""
    keywords = chosen(style, value)
    try:
        made = compile(checked, dims, **keywords)
    except SpecError as error:
        return Effect(style, value, True, error.diagnostics[0].message)
    except InputError as error:
        return Effect(style, value, True, str(error))
    plain = compile(checked, dims, **{**keywords, style: getattr(Styles(), style)})
    conditions = tuple(dict.fromkeys(c.text for c in made.program.conditions))
    return Effect(style, value, not same(made, plain), "", conditions)


def same(one: Checkpoint, other: Checkpoint) -> bool:
    """Whether two checkpoints are the same transformer, whatever they were asked for."""
    plain = [replace(c.program, options={}, conditions=()) for c in (one, other)]
    names = [set(c.tensors) for c in (one, other)]
    if plain[0] != plain[1] or names[0] != names[1]:
        return False
    return all(np.array_equal(one.tensors[name], other.tensors[name]) for name in one.tensors)


def sizes(checked: Checked) -> dict[str, int]:
    """Small sizes for the dimensions of a spec."""
    counts = {size for size in checked.sets.values() if isinstance(size, str)}
    return {name: 3 if name in counts else 2 for name in checked.dims}


def table() -> str:
    """Every built-in spec against every choice, in Markdown."""
    every = list(choices())
    marks: dict[str, int] = {}  # footnotes, in order of appearance
    lines = ["| spec | " + " | ".join(f"{style} {value}" for style, value in every) + " |"]
    lines.append("|---|" + ":-:|" * len(every))
    for entry in catalogue():
        checked = checked_spec(entry.name)
        cells = [_cell(effect(checked, sizes(checked), style, value), marks) for style, value in every]
        lines.append(f"| {entry.name} | " + " | ".join(cells) + " |")
    notes = [f"{number}. {text}" for text, number in marks.items()]
    return "\n".join([*lines, "", *notes])


def _cell(found: Effect, marks: dict[str, int]) -> str:
    if found.refusal:
        return f"refused ({_mark(found.refusal, marks)})"
    if not found.differs:
        return ""
    general = dict.fromkeys(map(_general, found.conditions))
    return "yes" + "".join(f" ({_mark(text, marks)})" for text in general)


def _general(condition: str) -> str:
    """A condition without the numbers and names of one spec: the style it belongs to says which."""
    for style, text in (
        ("erase=attention", "the tokens of open sets are pairwise distinct; checked before every step, refused if not"),
        ("members=offset", "no number that a score reads exceeds a bound of about 2^28; checked before every step"),
        (
            "hardmax=softmax",
            "the best score of every choice leads by the margin in the checkpoint; measured in every run",
        ),
    ):
        if style in condition:
            return f"{style}: {text}"
    return condition


def _mark(text: str, marks: dict[str, int]) -> int:
    return marks.setdefault(text, len(marks) + 1)


if __name__ == "__main__":
    print(table())
