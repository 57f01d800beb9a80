"""Progress: the callback of the API, and the line of the terminal that takes it."""

from __future__ import annotations

import io

import numpy as np
import pytest

import weftc
from weftc.commands.progress import CELLS, ProgressLine, Silence, bar, progress
from weftc.fuzz.campaign import Campaign
from weftc_runtime import Progress

POINTS = np.array([[0.0], [1.0], [5.0], [6.0]])
Told = list[tuple[str, int, int | None]]


def teller(told: Told) -> Progress:
    """A callback that takes notes."""

    def tell(what: str, done: int, total: int | None, /) -> None:
        told.append((what, done, total))

    return tell


@pytest.mark.parametrize("backend", ["reference", "planned"])
def test_a_run_tells_every_layer(backend: str) -> None:
    model = weftc.load(weftc.compile("lloyd", {"d": 1, "k": 2}), backend=backend)
    told: Told = []
    model(x=POINTS, c=[[0.0], [6.0]], layers=3, progress=teller(told))
    assert told == [("layer", done, 3) for done in range(4)]


def test_nobody_knows_how_long_a_run_until_stable_is() -> None:
    model = weftc.load(weftc.compile("lloyd", {"d": 1, "k": 2}))
    told: Told = []
    model.final(x=POINTS, c=[[0.0], [6.0]], until_stable=True, progress=teller(told))
    assert told == [("layer", done, None) for done in range(model.report.layers[0] + 1)]
    assert len(told) > 2


def test_every_way_to_run_takes_it() -> None:
    model = weftc.load(weftc.compile("lloyd", {"d": 1, "k": 2}, layers=1))
    for call in (model, model.final, model.objective, model.trace):
        told: Told = []
        call(x=POINTS, c=[[0.0], [6.0]], progress=teller(told))
        assert told == [("layer", 0, 1), ("layer", 1, 1)]


def test_what_it_raises_stops_the_run() -> None:
    model = weftc.load(weftc.compile("lloyd", {"d": 1, "k": 2}, layers=9))

    def impatient(what: str, done: int, total: int | None, /) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model(x=POINTS, c=[[0.0], [6.0]], progress=impatient)


def test_fuzzing_tells_its_specs() -> None:
    told: Told = []
    list(Campaign(seed=0, limit=2).run(teller(told)))
    assert [done for _, done, _ in told] == [0, 1]
    assert {total for _, _, total in told} == {2}


# ---- the line --------------------------------------------------------------------------------------------------------


def shown(*state: tuple[str, int, int | None], columns: int = 200, encoding: str = "utf-8") -> str:
    """What a line shows after it was told some things."""
    line = ProgressLine("running", io.TextIOWrapper(io.BytesIO(), encoding=encoding), patience=1000)
    for one in state:
        line(*one)
    text = line.text(columns)
    line.close()
    return text


def test_a_line_shows_a_bar_where_the_end_is_known() -> None:
    assert shown() == "running ... 0 s"
    assert shown(("layer", 5, 20)) == f"running {'█' * 5}{'░' * 15} 5/20 layer 0 s"
    assert shown(("layer", 5, 20), encoding="ascii") == f"running {'#' * 5}{'-' * 15} 5/20 layer 0 s"


def test_a_line_counts_where_it_is_not() -> None:
    assert shown(("layer", 0, None)) == "running layer ... 0 s"
    assert shown(("layer", 7, None)) == "running layer 7 ... 0 s"


def test_a_line_stays_on_one_line_and_escapes_what_it_is_told() -> None:
    text = shown(("proof \x1b[2J" + "x" * 500, 1, 2), columns=40)
    assert len(text) < 40
    assert text.endswith("...")
    assert "\\x1b" in shown(("\x1b", 1, 2))


@pytest.mark.parametrize("done", [-1, 0, 1, 5, 6, 99])
def test_a_bar_has_always_the_same_width(done: int) -> None:
    assert len(bar(done, 5)) == CELLS
    assert len(bar(done, 0)) == CELLS


def test_bars_grow() -> None:
    assert [bar(done, 4).count("█") for done in range(5)] == [0, 5, 10, 15, 20]


def test_nothing_is_shown_when_piped() -> None:
    pipe = io.StringIO()
    with progress("running", pipe) as line:
        assert isinstance(line, Silence)
        line("layer", 1, 2)
    assert pipe.getvalue() == ""
