"""The built-in specs -> a page each: its text, a picture of a run and of its graph, what is known of its weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import weftc
from weftc.editor import playground
from weftc.files.locate import builtin

LAYERS = 8
CASES = 1  # of every kind, for the verdict; `weftc verify` draws more


def gallery(folder: Path) -> None:
    """One page per spec and one that shows them all."""
    folder.mkdir(parents=True, exist_ok=True)
    cards: dict[str, str] = {}
    for entry in weftc.catalogue():
        text = builtin(entry.name).text
        shown = _pictures(entry.name, text, folder)
        verdict = _verdict(entry.name)
        (folder / f"{entry.name}.md").write_text(_page(entry.name, entry.doc, text, shown, verdict), encoding="utf-8")
        cards[entry.name] = _card(entry.name, entry.doc, shown[0])
        print(f"gallery: {entry.name}: {verdict.splitlines()[0]}", flush=True)
    lead = "Every spec that ships with Weft: its text, a picture, its verdict, and a way into the playground."
    parts = ["# Gallery", "", lead, ""]
    for subject, entries in weftc.catalogue().groups().items():
        group = (cards[entry.name] for entry in entries)
        title = subject[0].upper() + subject[1:]
        parts += [f"## {title}", "", "<div class='grid cards' markdown>", "", *group, "", "</div>", ""]
    (folder / "index.md").write_text("\n".join(parts), encoding="utf-8")


def _card(name: str, doc: str, picture: str) -> str:
    return f"-   [![{name}: a run]({picture})]({name}.md)\n\n    **[{name}]({name}.md)**\n\n    {doc}\n"


def _page(name: str, doc: str, text: str, pictures: list[str], verdict: str) -> str:
    """The page of one spec."""
    shown = "\n\n".join(f"![{name}: {Path(picture).stem.split('.')[-1]}]({picture})" for picture in pictures)
    return f"""# {name}

{doc}

[Open in the playground](../playground/index.html#{name}){{ .md-button }}

```weft
{text.rstrip()}
```

{shown}

`weftc verify {name}` says of its weights:

```text
{verdict.rstrip()}
```

Run it: `weftc run {name} --data points.csv -o out/`. Its matrices: `weftc inspect {name} --stage weights`.
"""


def _pictures(name: str, text: str, folder: Path) -> list[str]:
    """A run on points in the plane, where there is one to draw, then the graph."""
    from weftc.graph.build import build_graph
    from weftc.show.figures.graph_layout import layout
    from weftc.show.figures.graph_svg import svg

    checked = weftc.check(name)
    found = []
    given, sizes = _data(text)
    vectors = [one for one in checked.fields.values() if one.width is not None and one.role in ("input", "state")]
    if vectors:
        figure = weftc.plot(name, "tokens", data=given, dims=sizes, layers=LAYERS)
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


def _verdict(name: str) -> str:
    """The verdict on a spec's weights, as the command line prints it."""
    checked = weftc.check(name)
    sizes, params = playground.settings(checked, {}, {})
    return str(weftc.verify(weftc.compile(name, sizes, params), cases=CASES))
