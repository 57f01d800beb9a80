"""What `weftc inspect` draws: blocks by name, and nothing of the file left out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from agreement import default_dims
from weftc.commands.options import Settings
from weftc.compiling import checked_spec, compile
from weftc.files.locate import names
from weftc.show.block_text import draw, projection, row_groups, shortened
from weftc.show.stages import program, weights
from weftc_runtime.format.program import Slot

SLOTS = (Slot("x", 0, 2, "field"), Slot("u", 2, 1, "field"))


@pytest.mark.parametrize("styles", [{}, {"scores": "dot", "null": "token"}, {"erase": "attention"}], ids=str)
@pytest.mark.parametrize("name", names(""))
def test_every_tensor_is_drawn(name: str, styles: dict[str, Any]) -> None:
    """By its name, but for the coefficients of distances, which stand beside Q as numbers."""
    checked = checked_spec(name)
    made = compile(checked, default_dims(checked), **styles)
    text = weights(made, Settings())
    missing = {tensor for tensor in made.tensors if f"({tensor})" not in text and made.tensors[tensor].ndim > 0}
    assert not missing


def test_the_program_names_its_conditions_and_its_null_token() -> None:
    made = compile("sinkhorn_dual", {"d": 2}, scores="dot", null="token", erase="attention")
    text = program(made, Settings())
    assert "stream pairs (open and a null token, width" in text
    assert "embed  pairs.null 1/#pairs <- 0, on the null token 1 / #pairs" in text
    assert all(f"equals the spec when {condition.text}" in text for condition in made.program.conditions)
    assert made.program.conditions


def test_stacked_blocks_are_told_apart() -> None:
    stacked = np.concatenate([np.eye(2, 3), -2 * np.eye(2, 3)])
    assert draw(stacked, None, SLOTS) == ["          x  u", "  0:2     I  ·", "  2:4  -2 I  ·"]
    columns = np.array([[0.0, 0.0, 4.0], [0.0, 0.0, 5.0]])
    assert draw(columns, None, SLOTS) == ["     x  u", "  0  ·  4", "  1  ·  5"]


def test_equal_rows_stay_together() -> None:
    assert [name for name, _ in row_groups(np.eye(3), SLOTS)] == ["0:2", "2"]


def test_a_block_without_a_name_is_spelled_out_unless_it_is_large() -> None:
    block = np.array([[1.0, 2.0, 0.0], [3.0, 4.5, 0.0], [5.0, 7.0, 0.0]])
    lines = draw(block, None, SLOTS)
    assert lines[:2] == ["         x  u", "  0:3  3x2  ·"]
    assert lines[2:] == ["  block 0:3, x:", "      1    2", "      3  4.5", "      5    7"]
    wide = np.arange(100.0).reshape(10, 10)
    assert len(draw(wide, None, [Slot("x", 0, 10, "field")])) == 2


def test_projections_are_formulas() -> None:
    assert projection(np.eye(3), SLOTS) == "I"
    assert projection(np.diag([1.0, 1.0, 0.0]), SLOTS) == "I - P[u]"
    assert projection(np.diag([1.0, 0.0, 1.0]), SLOTS) == ""  # half a slot
    assert projection(np.diag([1.0, 1.0, 2.0]), SLOTS) == ""


def test_long_slot_names_are_shortened_and_stay_different() -> None:
    long = "unit(1 x + 1/3 reciprocal(#points)*y"
    slots = [Slot("x", 0, 1, "field"), Slot(f"{long} a)", 1, 1, "scratch"), Slot(f"{long} b)", 2, 1, "scratch")]
    assert [s.name for s in shortened(slots)] == ["x", "unit(..1)", "unit(..2)"]
