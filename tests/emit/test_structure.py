"""Matrices held by their structure: their dense forms are what NumPy makes, and nothing large is made early."""

from __future__ import annotations

import json
import tracemalloc
from decimal import Decimal, getcontext
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save as save_arrays

import weftc
from programs import hard_clustering
from weftc.compiling import compile
from weftc.emit.cost import program_cost
from weftc.emit.matrices import lifted
from weftc_runtime.format.checkpoint import Checkpoint
from weftc_runtime.format.structure import ConstantRun, Structured, shapes

NUMBERS = st.sampled_from([1.0, -1.0, 0.5, 3.0, 2.0**-40])


@st.composite
def structures(draw: st.DrawFn) -> Structured:
    """Some runs that lie within a matrix, across each other or not."""
    rows, columns = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    runs = []
    for _ in range(draw(st.integers(0, 4))):
        row, column = draw(st.integers(0, rows - 1)), draw(st.integers(0, columns - 1))
        down, right = draw(st.sampled_from([(0, 1), (1, 0), (1, 1), (2, 1)]))
        room = [(rows - 1 - row) // down if down else 9, (columns - 1 - column) // right if right else 9]
        runs.append(ConstantRun(row, column, draw(st.integers(1, 1 + min(room))), down, right, draw(NUMBERS)))
    return Structured(rows, columns, tuple(runs))


@given(structures(), st.integers(1, 6))
@settings(max_examples=100, deadline=None)
def test_every_operation_is_that_of_dense_matrices(one: Structured, times: int) -> None:
    dense = one.dense()
    entry_by_entry = np.zeros(one.shape)
    for run in one.runs:
        for entry in run.entries():
            entry_by_entry[entry.row, entry.column] += entry.value
    assert (dense == entry_by_entry).all()
    assert (one.transposed.dense() == dense.T).all()
    assert (one.negated.dense() == -dense).all()
    assert (one.repeated(times).dense() == np.repeat(dense, times, 0)).all()
    assert (one.tiled(times).dense() == np.tile(dense, (times, 1))).all()
    assert (Structured.stacked([one, one.negated]).dense() == np.concatenate([dense, -dense])).all()
    assert (one.placed(2, one.rows + 3).dense() == np.pad(dense, ((2, 1), (0, 0)))).all()
    assert len(one.tiled(times).runs) <= len(one.runs) * times


@given(structures())
@settings(max_examples=60, deadline=None)
def test_a_lift_is_an_isometry_into_the_vectors_that_sum_to_zero_with_entries_rounded_once(one: Structured) -> None:
    getcontext().prec = 60
    dense, d = one.dense(), one.rows
    exact = [[Decimal(0)] * one.columns for _ in range(d + 1)]
    for (j, column), value in np.ndenumerate(dense):
        part = Decimal(float(value)) / Decimal((j + 1) * (j + 2)).sqrt()
        for row in range(j + 1):
            exact[row][column] += part
        exact[j + 1][column] -= part * (j + 1)
    found = lifted(one).dense()
    assert (found == np.array([[float(entry) for entry in row] for row in exact])).all()
    assert np.allclose(found.T @ found, dense.T @ dense, rtol=1e-12, atol=1e-12)
    assert np.allclose(found.sum(0), 0, atol=1e-12)


@pytest.mark.parametrize("styles", [{}, {"scores": "dot"}, {"norm": "layer"}, {"erase": "attention"}])
@pytest.mark.parametrize("name", ["gmm_em", "spherical_kmeans"])
def test_compiling_for_thousands_of_columns_makes_no_matrix(name: str, styles: dict[str, str]) -> None:
    checked = weftc.check(name)
    compile(checked, {"d": 2, "k": 2}, **styles)  # type: ignore[arg-type]
    tracemalloc.start()
    made = compile(checked, {"d": 4096, "k": 4096}, **styles)  # type: ignore[arg-type]
    numbers = program_cost(made.program, made.tensors).parameters
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert numbers > 2e8  # 1.6 GB
    assert most < 1.5e7, f"{most / 1e6:.1f} MB"


def test_a_file_is_what_safetensors_writes_and_loading_and_saving_keep_nothing(tmp_path: Path) -> None:
    made = compile("gmm_em", {"d": 2, "k": 3}, scores="dot")
    made.save(tmp_path / "m.safetensors")
    model = weftc.load(made)
    assert all(isinstance(one, Structured) for one in made.tensors._held.values())  # type: ignore[attr-defined]
    data = (tmp_path / "m.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    assert data == save_arrays(dict(made.tensors), metadata=header["__metadata__"])
    assert data == made.to_bytes() == model.checkpoint().to_bytes()


def test_an_array_that_was_asked_for_stays_the_same_one() -> None:
    made = compile("lloyd", {"d": 2, "k": 3})
    for name, shape in shapes(made.tensors).items():
        assert made.tensors[name] is made.tensors[name]
        assert made.tensors[name].shape == shape


def test_arrays_of_other_hands_are_written_as_they_are() -> None:
    made = hard_clustering(2, 3, style="dot", layers=4)
    turned = {name: np.asfortranarray(array) for name, array in made.tensors.items()}
    copy = Checkpoint(made.program, turned, made.spec_name, made.spec_text, made.dims, made.params, made.compiler)
    assert copy.to_bytes() == made.to_bytes()
