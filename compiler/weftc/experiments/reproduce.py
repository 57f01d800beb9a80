"""Names of experiments -> a folder: numbers, a table and a picture of each, and one page about all."""

from __future__ import annotations

import base64
import json
import platform
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any

from weftc.core.errors import InputError
from weftc.core.source import printable
from weftc.experiments.catalogue import NAMES, find
from weftc.experiments.papers import stated
from weftc.experiments.study import Experiment, Judgement, Study
from weftc.version import VERSION
from weftc_runtime.data.progress import Progress
from weftc_runtime.format.whole_file import whole_file

CODE = re.compile("`([^`]+)`")
PARTS = "parts"  # what a run that was stopped had measured
CLASSES = {True: "yes", False: "no", None: "open"}
VERDICTS = {True: "yes", False: "no", None: "cannot tell at this size"}


@dataclass(frozen=True, slots=True)
class Reproduced:
    """One experiment as it came out, plain data all through: what `result.json` holds."""

    name: str
    title: str
    budget: str
    command: str
    versions: Mapping[str, str]
    cpu_seconds: float
    findings: tuple[Judgement, ...]
    measured: Mapping[str, Any]

    @property
    def held(self) -> int:
        return sum(one.holds is True for one in self.findings)


def reproduce(
    names: Sequence[str],
    folder: Path,
    budget: str = "small",
    resume: bool = False,
    progress: Progress | None = None,
    tell: Callable[[Reproduced], None] = lambda made: None,
) -> list[Reproduced]:
    """Runs experiments one after the other; with `resume`, what the folder has of this budget is kept."""
    _require_matplotlib()
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for name in names:
        experiment = find(name)
        place = folder / name
        found = _kept(experiment, budget, place) if resume else None
        if found is None:
            if not resume:
                shutil.rmtree(place / PARTS, ignore_errors=True)
            found = _run(experiment, budget, place, progress)
        made.append(found)
        tell(found)
        _write_page(folder)
    return made


def _run(experiment: Experiment, budget: str, place: Path, progress: Progress | None) -> Reproduced:
    import numpy
    import torch

    start, threads = time.process_time(), torch.get_num_threads()
    torch.set_num_threads(1)  # sums of other thread counts have other last bits
    try:
        measured = experiment.measure(Study(place / PARTS / budget, progress), experiment.sizes[budget])
    finally:
        torch.set_num_threads(threads)
    versions = {
        "weftc": VERSION,
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "python": platform.python_version(),
    }
    measured = json.loads(json.dumps(measured))  # what a reader of the file would have
    found = Reproduced(
        experiment.name,
        experiment.title,
        budget,
        f"weftc reproduce {experiment.name} --budget {budget}",
        versions,
        round(time.process_time() - start, 1),
        tuple(experiment.judge(measured)),
        measured,
    )
    _write(place, experiment, found)
    shutil.rmtree(place / PARTS, ignore_errors=True)
    return found


def _kept(experiment: Experiment, budget: str, place: Path) -> Reproduced | None:
    """The result in a folder, if it is of this budget and this version."""
    try:
        found = json.loads((place / "result.json").read_text(encoding="utf-8"))
        findings = tuple(Judgement(**one) for one in found.pop("findings"))
        kept = Reproduced(**found, findings=findings)
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return kept if kept.budget == budget and kept.versions.get("weftc") == VERSION else None


# ---- files -----------------------------------------------------------------------------------------------------------


def _write(place: Path, experiment: Experiment, found: Reproduced) -> None:
    place.mkdir(parents=True, exist_ok=True)
    _write_text(place / "result.json", json.dumps(asdict(found), indent=1) + "\n")
    _write_text(place / "table.md", table(found))
    _draw(place / "figure.png", experiment, found)


def _write_text(path: Path, text: str) -> None:
    with whole_file(path) as part:
        part.write_text(text, encoding="utf-8")


def _draw(path: Path, experiment: Experiment, found: Reproduced) -> None:
    import matplotlib
    from matplotlib.figure import Figure

    from weftc.show.figures.saving import save
    from weftc.show.figures.style import settings

    with matplotlib.rc_context(settings()):
        figure = Figure(figsize=experiment.inches, layout="constrained")
        experiment.draw(figure, dict(found.measured))
    save(figure, path)


def _require_matplotlib() -> None:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        from weftc.show.figures.pictures import INSTALL

        raise InputError(INSTALL) from None


def table(found: Reproduced) -> str:
    """The findings as a table in Markdown: what the paper says, what we found, whether it holds."""
    said = stated(found.name)
    lines = [
        f"# {found.name}",
        "",
        f"{found.title} ({said.title}, {said.where}).",
        "",
        "| the paper | ours | holds? |",
        "|---|---|---|",
        *(f"| {said.claims[one.claim].says} | {one.ours} | {VERDICTS[one.holds]} |" for one in found.findings),
        "",
        "What the paper leaves unstated, and was chosen here:",
        "",
        *(f"- {one}" for one in said.unstated),
        "",
        f"`{found.command}`: {found.cpu_seconds:.0f} s of CPU, weftc {found.versions['weftc']}, "
        f"torch {found.versions['torch']}. Seeds are counted from 0; one thread.",
        "",
    ]
    return "\n".join(lines)


def _write_page(folder: Path) -> None:
    """index.html: every experiment that the folder has, with its table and its picture in it."""
    parts, rows = [], []
    for name in NAMES:
        try:
            raw = json.loads((folder / name / "result.json").read_text(encoding="utf-8"))
            picture = base64.b64encode((folder / name / "figure.png").read_bytes()).decode("ascii")
            found = Reproduced(**{**raw, "findings": tuple(Judgement(**one) for one in raw["findings"])})
        except (OSError, ValueError, TypeError, KeyError):
            continue
        rows.append(_summary(found))
        parts.append(_section(found, picture))
    _write_text(folder / "index.html", PAGE_START + TABLE_START + "".join(rows) + "</table>" + "".join(parts))


def _summary(found: Reproduced) -> str:
    link = f'<a href="#{found.name}">{found.name}</a>'
    open_ones = sum(one.holds is None for one in found.findings)
    told = f"{found.held} of {len(found.findings) - open_ones}" + (f", {open_ones} open" if open_ones else "")
    return f"<tr><td>{link}</td><td>{escape(found.title)}</td><td>{told}</td><td>{found.cpu_seconds:.0f} s</td></tr>"


def _section(found: Reproduced, picture: str) -> str:
    said = stated(found.name)
    rows = "".join(
        f'<tr class="{CLASSES[one.holds]}">'
        f"<td>{escape(said.claims[one.claim].says)}<blockquote>{escape(said.claims[one.claim].quote)}</blockquote></td>"
        f"<td>{escape(one.ours)}</td><td>{VERDICTS[one.holds]}</td></tr>"
        for one in found.findings
    )
    left = "".join("<li>" + CODE.sub(r"<code>\1</code>", escape(one)) + "</li>" for one in said.unstated)
    return (
        f'<section id="{found.name}"><h2>{found.name}</h2><p>{escape(found.title)}. '
        f"<cite>{escape(said.title)}</cite>, {escape(said.where)}.</p>"
        f'<img alt="{escape(found.title)}" src="data:image/png;base64,{picture}">'
        f"<table><tr><th>the paper</th><th>ours</th><th>holds?</th></tr>{rows}</table>"
        f"<p>Unstated in the paper, and chosen here:</p><ul>{left}</ul>"
        f"<p><code>{escape(found.command)}</code>, {found.cpu_seconds:.0f} s of CPU on one thread; seeds are counted "
        f'from 0. <a href="{found.name}/result.json">All numbers</a>, <a href="{found.name}/table.md">table</a>.</p>'
        "</section>\n"
    )


PAGE_START = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>The papers, reproduced</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a }
table { border-collapse: collapse; width: 100%; margin: 1rem 0; font-size: .92rem }
th, td { text-align: left; vertical-align: top; padding: .35rem .6rem; border-bottom: 1px solid #ddd }
td:last-child { min-width: 4rem }
tr.no td:last-child { background: #f6cfa8 }
tr.yes td:last-child { background: #c6dcef }
blockquote { margin: .2rem 0 0; color: #6b6b6b; font-size: .85rem }
img { max-width: 100% }
</style>
<h1>The papers, reproduced</h1>
<p>What four papers about algorithms in transformers state, beside what Weft measures. Compiled models are Weft's;
trained ones are plain torch modules. A row that says no is a claim that does not hold as printed, or not at this size;
why is told in Weft's page of corrections.</p>
"""
TABLE_START = "<table><tr><th>experiment</th><th>what</th><th>claims that hold</th><th>CPU</th></tr>"


def unknown(name: str) -> str:
    """What to say about a name that is no experiment."""
    from weftc.core.words import did_you_mean

    hint = did_you_mean(name, NAMES) or f"there are {', '.join(NAMES)}, and all"
    return f"there is no experiment {printable(name)}; {hint}"
