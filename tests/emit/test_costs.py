"""What every program costs, in every style: as recorded, and never more than in the first edition.

`pytest tests/emit/test_costs.py --update-golden` records anew; a number that grew is to be explained in docs/costs.md.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import weftc
from agreement import INVENTIONS, default_dims, invention
from weftc.core.errors import InputError, SpecError
from weftc.core.types import Checked
from weftc.emit.cost import program_cost
from weftc.files.locate import names
from weftc.tools.doc_tables.costs import STYLES
from weftc_runtime.format.program import Attend

GOLDEN = Path(__file__).parents[1] / "golden"
FIRST = json.loads((GOLDEN / "costs_first_edition.json").read_text(encoding="utf-8"))
RECORD = GOLDEN / "costs.json"
SPECS = names()
NAMES = [*SPECS, *(path.stem for path in sorted(INVENTIONS.glob("*.weft")))]


def measured(checked: Checked, style: str) -> list[int] | None:
    """Levels, heads and feed-forwards of a layer, columns, parameters; heads and feed-forwards of everything."""
    choices: dict[str, Any] = dict(choice.split("=") for choice in style.split())
    try:
        made = weftc.compile(checked, default_dims(checked), **choices)
    except (SpecError, InputError):
        return None
    parts = [part for step in made.program.steps() for part in step.sublayers]
    heads = [len(part.heads) for part in parts if isinstance(part, Attend)]
    cost = program_cost(made.program, made.tensors)
    layer = [cost.levels, cost.heads, cost.feed_forwards, cost.width, cost.parameters]
    return [*layer, sum(heads), len(parts) - len(heads)]


@pytest.mark.parametrize("name", NAMES)
def test_no_program_is_larger_than_before(name: str, request: pytest.FixtureRequest) -> None:
    """In levels, heads, feed-forwards, columns: than recorded, and than in the first edition.

    `hmm_filter` had one level less there, and was wrong where the largest exponential belongs to a key that does not
    count.
    """
    checked = weftc.check(name) if name in SPECS else invention(name)
    found = {style: measured(checked, style) for style in STYLES}
    for style, now in found.items():
        before = FIRST.get(f"{name} {style}".strip())
        if before is not None:
            assert now is not None
            levels, _, _, width, _, heads, maps = now
            assert all(a <= b for a, b in zip((levels, heads, maps, width), before, strict=True)), (style, before, now)
    record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    if request.config.getoption("--update-golden"):
        lines = (f"{json.dumps(key)}: {json.dumps(value)}" for key, value in sorted({**record, name: found}.items()))
        RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
        return
    assert record.get(name, found) == found  # a new one is recorded by `make docs`


def test_the_record_names_every_program_and_style() -> None:
    assert sorted(json.loads(RECORD.read_text(encoding="utf-8"))) == sorted(NAMES)
    assert {key.split()[0] for key in FIRST} <= set(NAMES)
    assert {" ".join(key.split()[1:]) for key in FIRST} == set(STYLES)
