"""A file says what its matrices change: one that changes more, or less, than its `writes` is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from weftc.compiling import checked_spec, compile
from weftc.core.source import Source
from weftc.exact import execute
from weftc.language.check.check import check
from weftc.language.parse.parse import parse
from weftc.variants.bases import rotated
from weftc_runtime import Checkpoint, ModelError, load
from weftc_runtime.format.program import Attend, Program, ProgramOutput, ProgramStep, Slot
from weftc_runtime.format.writes import stated

LLOYD = compile("lloyd", {"d": 2, "k": 3})


def with_entry(model: Checkpoint, name: str, at: tuple[int, int], value: float) -> Checkpoint:
    array = np.array(model.tensors[name])
    array[at] = value
    return replace(model, tensors={**model.tensors, name: array})


def with_step(program: Program, part: str, change: Callable[[ProgramStep], ProgramStep]) -> Program:
    first, *rest = getattr(program, part)
    changed: Any = {part: (change(first), *rest)}
    return replace(program, **changed)


def with_attend(program: Program, part: str, **fields: Any) -> Program:
    return with_step(
        program, part, lambda step: replace(step, sublayers=(replace(step.sublayers[0], **fields), *step.sublayers[1:]))
    )


@pytest.mark.parametrize("value", [0.0, 2.0, float(np.nextafter(1, 2))])
@pytest.mark.parametrize("column", [4, 5])
def test_a_carry_that_changes_a_slot_in_silence_is_refused(column: int, value: float) -> None:
    wrong = with_entry(LLOYD, "layer.1.0.carry.centers", (column, column), value)
    match = rf"layer\.1\.0 changes slot .* of stream centers .*carry\.centers has .* at \[{column}, {column}\]"
    with pytest.raises(ModelError, match=match):
        wrong.to_bytes()
    with pytest.raises(ModelError, match=match):
        load(wrong)


def test_every_entry_that_a_matrix_gains_in_another_row_is_refused() -> None:
    for name, uses in LLOYD.program.tensors().items():
        if uses[0].rows is None:
            continue
        array = LLOYD.tensors[name]
        own = np.eye(len(array)) if "carry" in name else np.zeros_like(array)
        for row in np.flatnonzero((array == own).all(1)):
            slot = next(s for s in LLOYD.program.stream(uses[0].rows).slots if s.offset <= row < s.offset + s.width)
            if (array[slot.columns] == own[slot.columns]).all():
                with pytest.raises(ModelError):
                    with_entry(LLOYD, name, (int(row), 0), 0.5).to_bytes()


def test_a_matrix_that_changes_less_than_it_says_is_refused() -> None:
    for part in ("layer", "readout"):
        name = getattr(LLOYD.program, part)[0].sublayers[0].heads[0].value
        silent = replace(LLOYD, tensors={**LLOYD.tensors, name: 0 * LLOYD.tensors[name]})
        with pytest.raises(ModelError, match="but none of its tensors changes it"):
            silent.to_bytes()


def test_a_readout_that_names_another_slot_is_refused() -> None:
    """Whoever believes it leaves the step out, and the objective is 0."""
    head = LLOYD.program.readout[0].sublayers[0].heads[0]  # type: ignore[union-attr]
    program = with_attend(LLOYD.program, "readout", writes=(("points", "x"),), heads=(replace(head, writes=("x",)),))
    with pytest.raises(ModelError, match=r"readout\.0\.0.* without saying so in its writes"):
        replace(LLOYD, program=program).to_bytes()


def test_a_step_that_sets_a_field_in_silence_is_refused() -> None:
    program = with_step(LLOYD.program, "layer", lambda step: replace(step, writes=()))
    with pytest.raises(ModelError, match=r"layer\.0 changes slot"):
        replace(LLOYD, program=program).to_bytes()


def test_a_field_may_be_set_to_itself_but_not_be_named_where_nothing_ever_sets_it() -> None:
    text = "algorithm kept\ntokens  j in centers : k\ninputs  c[j] : R\nlayer\n  c[j] = c[j]\noutputs shown[j] = c[j]\n"
    made = compile(check(parse(Source("kept", text))), {"k": 2})
    assert Checkpoint.from_bytes(made.to_bytes()).program == made.program
    (stream,) = made.program.streams
    wide = replace(stream, slots=(*stream.slots, Slot("more", stream.width, 1, "field")))
    step = ProgramStep((), (("centers", "more"),))
    program = replace(made.program, streams=(wide,), layer=(*made.program.layer, step))
    pads = {2: ((0, 1), (0, 1)), 1: ((0, 1),), 0: ()}
    tensors = {name: np.pad(array, pads[array.ndim]) for name, array in made.tensors.items()}
    for name in tensors:
        tensors[name][-1, -1] = 1.0  # all of them are carries
    with pytest.raises(ModelError, match=r"says that it writes slot more of stream centers, but none"):
        replace(made, program=program, tensors=tensors).to_bytes()


def test_a_feed_forward_that_writes_what_it_does_not_say_is_refused() -> None:
    made = compile("lloyd", {"d": 1, "k": 2}, scores="dot")
    stream = next(stream for stream in made.program.streams if stream.derived)
    ffn = stream.derived[0]
    row = next(slot.offset for slot in stream.slots if slot.role == "field")
    with pytest.raises(ModelError, match=r"derived\.0 changes slot"):
        with_entry(made, ffn.out, (row, 0), 1.0).to_bytes()


@pytest.mark.parametrize("kind", ["signed", "orthogonal"])
def test_what_a_rotated_file_says_is_true_of_its_slots(kind: Any) -> None:
    turned = rotated(LLOYD, 3, kind)
    assert stated(turned.program, turned.tensors) == turned.program
    Checkpoint.from_bytes(turned.to_bytes())
    name = "layer.1.0.carry.centers"
    with pytest.raises(ModelError, match="without saying so"):
        replace(turned, tensors={**turned.tensors, name: turned.tensors[name] * 1.001}).to_bytes()


@pytest.mark.parametrize("styles", [{}, {"erase": "attention"}, {"scores": "dot"}, {"square": "relu2"}], ids=str)
@pytest.mark.parametrize("name", ["lloyd", "gmm_em", "trimmed_kmeans", "sinkhorn_dual", "kmedoids"])
def test_compiled_programs_say_what_their_matrices_change(name: str, styles: dict[str, Any]) -> None:
    checked = checked_spec(name)
    made = compile(checked, {dim: 3 if dim == "k" else 2 for dim in checked.dims}, **styles)
    assert stated(made.program, made.tensors) == made.program


def test_edited_weights_are_stated_in_the_file_and_obeyed_by_both_backends() -> None:
    model = load(LLOYD)
    model.tensor("layer.1.0.carry.centers").data[4, 4] = 0.0
    saved = Checkpoint.from_bytes(model.checkpoint().to_bytes())
    assert saved.program != LLOYD.program
    x = np.random.default_rng(0).normal(size=(40, 2))
    answers = [
        load(saved, backend=backend)(x=x, seed=0, layers=3)["labels"].dense() for backend in ("reference", "planned")
    ]
    assert (answers[0] == answers[1]).all()


def with_chained_readout(model: Checkpoint) -> Checkpoint:
    """The objective of lloyd, doubled by a further step that reads it."""
    points, objective = model.program.stream("points"), model.program.objective
    assert objective is not None
    width = points.width
    tensors = {}
    for name, (use, *_) in model.program.tensors().items():
        array = np.array(model.tensors[name])
        pads = [(0, int(side == "points")) for side in (use.rows, use.columns)][: array.ndim]
        pads = [(0, int(use.columns == "points"))] if array.ndim == 1 else pads
        array = np.pad(array, pads) if array.ndim else array
        if use.rows == use.columns == "points" and "carry" in name:
            array[width, width] = 1.0
        tensors[name] = array
    tensors["twice"] = np.eye(width + 1)
    tensors["twice"][width, width], tensors["twice"][width, points.slot(objective.slot).offset] = 0.0, 2.0
    wide = replace(points, slots=(*points.slots, Slot("twice", width, 1, "field")))
    step = ProgramStep((Attend({"points": "twice"}, (), (("points", "twice"),)),), (("points", "twice"),))
    program = replace(
        model.program,
        streams=tuple(wide if stream.name == "points" else stream for stream in model.program.streams),
        readout=(*model.program.readout, step),
        objective=ProgramOutput("objective", "total", "points", "twice"),
    )
    return Checkpoint.from_bytes(replace(model, program=stated(program, tensors), tensors=tensors).to_bytes())


@pytest.mark.parametrize("backend", ["reference", "planned"])
def test_a_step_of_the_readout_that_a_later_one_reads_is_run(backend: str) -> None:
    made, inputs = compile("lloyd", {"d": 1, "k": 2}), {"x": [[0.0], [3.0], [7.0]], "c": [[0.0], [5.0]]}
    twice = with_chained_readout(made)
    wanted = 2 * float(load(made, backend="reference").objective(inputs, layers=1))
    assert wanted > 0
    assert float(load(twice, backend=backend).objective(inputs, layers=1)) == wanted
    found = execute(twice, inputs, 1).objective()
    assert found.low == found.high == wanted
