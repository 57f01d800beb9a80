"""The built-in specs -> a page each: its text, a picture of a run and of its graph, what is known of its weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import weftc
from weftc.editor import playground
from weftc.emit.cost import ProgramCost, program_cost
from weftc.files.locate import Entry

LAYERS = 8
CASES = 1  # of every kind, for the verdict; `weftc verify` draws more


def gallery(folder: Path) -> None:
    """One page per spec and one that shows them all."""
    folder.mkdir(parents=True, exist_ok=True)
    cards: dict[str, str] = {}
    for entry in weftc.catalogue():
        shown = _pictures(entry.name, entry.source.text, folder)
        verdict, cost = _judged(entry.name)
        page = _page(entry, shown, verdict, cost)
        (folder / f"{entry.name}.md").write_text(page, encoding="utf-8")
        cards[entry.name] = _card(entry.name, entry.doc, shown[0], cost)
        print(f"gallery: {entry.name}: {verdict.splitlines()[0]}", flush=True)
    lead = "Every spec that ships with Weft: its text, a picture, its cost, its verdict, and a way into the playground."
    parts = ["# Gallery", "", lead, ""]
    for subject, entries in weftc.catalogue().groups().items():
        group = (cards[entry.name] for entry in entries)
        title = subject[0].upper() + subject[1:]
        parts += [f"## {title}", "", "<div class='grid cards' markdown>", "", *group, "", "</div>", ""]
    (folder / "index.md").write_text("\n".join(parts), encoding="utf-8")


def _card(name: str, doc: str, picture: str, cost: ProgramCost) -> str:
    size = f"{_counted(cost.heads, 'head')}, {_counted(cost.levels, 'level')}"
    return f"-   [![{name}: a run]({picture})]({name}.md)\n\n    **[{name}]({name}.md)** ({size})\n\n    {doc}\n"


def _counted(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def _page(entry: Entry, pictures: list[str], verdict: str, cost: ProgramCost) -> str:
    """The page of one spec."""
    name, doc, text = entry.name, entry.doc, entry.source.text
    heads, levels = _counted(cost.heads, "head"), _counted(cost.levels, "level")
    forwards, columns = _counted(cost.feed_forwards, "feed-forward"), _counted(cost.width, "column")
    streams = ", ".join(f"{width} for {stream}" for stream, width in cost.widths.items())
    shown = "\n\n".join(f"![{name}: {Path(picture).stem.split('.')[-1]}]({picture})" for picture in pictures)
    return f"""# {name}

{doc}

[Open in the playground](../playground/index.html#{name}){{ .md-button }}

```weft
{text.rstrip()}
```

{shown}

A layer takes {levels} of attention, {heads} and {forwards}; its residual streams have {columns} ({streams}).
All matrices together hold {_counted(cost.parameters, "number")}.

`weftc verify {name}` says of its weights:

```text
{verdict.rstrip()}
```

Run it: `weftc run {name} --data points.csv -o out/`. Its matrices: `weftc inspect {name} --stage weights`.
"""


def _pictures(name: str, text: str, folder: Path) -> list[str]:
    """A run on points in the plane, or who attends to whom where there is nothing to place there, then the graph."""
    from weftc.graph.build import build_graph
    from weftc.show.figures.graph_layout import layout
    from weftc.show.figures.graph_svg import svg

    checked = weftc.check(name)
    found = []
    given, sizes = _data(text)
    vectors = [one for one in checked.fields.values() if one.width is not None and not one.symbols]
    placed = any(one.role in ("input", "state") for one in vectors)
    if placed or given:
        what = "tokens" if placed else "attention"
        figure = weftc.plot(name, what, data=given, dims=sizes, layers=LAYERS if placed else 1)
        figure.savefig(folder / f"{name}.run.svg", metadata={"Date": None})
        found.append(f"{name}.run.svg")
    (folder / f"{name}.graph.svg").write_text(svg(layout(build_graph(checked))), encoding="utf-8")
    return [*found, f"{name}.graph.svg"]


def _data(text: str) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """Three clouds of points for every input that is drawn, as in the playground."""
    checked = weftc.check(text)
    draw = np.random.default_rng(0)
    middles = np.array([[-1.1, -0.4], [0.8, 0.7], [0.5, -0.9]])
    brushes = playground.checked_text(text)["asks"]["brushes"]
    drawn = {one["field"]: np.repeat(middles, 12, axis=0) + 0.25 * draw.normal(size=(36, 2)) for one in brushes}
    sizes, _ = playground.settings(checked, {}, {})
    return playground.inputs(checked, {name: points.tolist() for name, points in drawn.items()}, sizes), sizes


def _judged(name: str) -> tuple[str, ProgramCost]:
    """The verdict on a spec's weights, as the command line prints it, and what they cost."""
    checked = weftc.check(name)
    sizes, params = playground.settings(checked, {}, {})
    made = weftc.compile(name, sizes, params)
    return str(weftc.verify(made, cases=CASES)), program_cost(made.program, made.tensors)
