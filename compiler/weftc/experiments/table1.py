"""KT Table 1: every row, starred ones included, compiled and verified."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from weftc.api import verify
from weftc.compiling import compile
from weftc.experiments.drawing import panels
from weftc.experiments.study import Experiment, Judgement, Measured, Study
from weftc.files.locate import builtin
from weftc.show.figures.style import NEGATIVE, POSITIVE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SPHERE = {  # starred rows on the sphere: what takes the place of the update of spherical_kmeans
    "trimmed": "c[j] = unit(sum[i] normmax[i](2*<x[i], c[j]> where y[i,j], gamma) * x[i] else c[j]) else c[j]",
    "percentile": "c[j] = unit(mean[i] x[i] by highest[i](<x[i], c[j]> where y[i,j], tau%) else c[j]) else c[j]",
    "robust": "c[j] = unit(sum[i] sparsemax[i](2*gamma*<x[i], c[j]> where y[i,j]) * x[i] else c[j]) else c[j]",
    "medoids": "c[j] = sum[i] sample[i](2*<x[i], c[j]> - 2*delta*(1 - y[i,j]) noise g[i,j]) * x[i]",
}
PARAMETERS = "param gamma = 1 > 0, tau = 90 in [0, 100), delta = 10 >= 0\nrandom g[i,j] : gumbel\n"
ROWS: dict[str, list[tuple[str, dict[str, Any]]]] = {  # row of the table -> what stands for it
    "1 Lloyd, l2": [("lloyd", {}), ("lloyd", {"erase": "attention"}), ("lloyd_printed", {"erase": "attention"})],
    "2 Lloyd, dot products": [("lloyd", {"scores": "dot", "square": "relu2"})],
    "3 spherical": [("spherical_kmeans", {"norm": "layer"}), ("spherical_kmeans", {"norm": "rms"})],
    "4 soft": [("soft_kmeans", {}), ("soft_linear_attention", {})],
    "4* soft, starred": [("soft_kmeans", {"scores": "dot"}), ("soft_spherical_kmeans", {})],
    "5 trimmed": [("trimmed_normmax", {"members": "offset"}), ("trimmed_kmeans", {})],
    "5* trimmed, starred": [("trimmed_kmeans", {"scores": "dot"}), ("sphere trimmed", {}), ("sphere percentile", {})],
    "6 robust": [("robust_kmeans", {}), ("robust_softmax", {}), ("topk_softmax", {}), ("robust_two_stage", {})],
    "6* robust, starred": [
        ("robust_kmeans", {"scores": "dot"}),
        ("topk_softmax", {"scores": "dot"}),
        ("sphere robust", {}),
    ],
    "7 medoids": [("kmedoids", {}), ("gumbel_softmax", {})],
    "7* medoids, starred": [("kmedoids", {"scores": "dot"}), ("sphere medoids", {})],
}


def spec(name: str) -> str:
    """The text of a row's spec."""
    kind, _, variant = name.partition(" ")
    if kind != "sphere":
        return builtin(name).text
    base = builtin("spherical_kmeans").text.partition("example")[0]
    update = next(line for line in base.splitlines() if line.lstrip().startswith("c[j]   ="))
    return base.replace(update, "  " + SPHERE[variant]) + PARAMETERS


def judged(name: str, styles: dict[str, Any], cases: int) -> Measured:
    """What verification says about one spec in one style."""
    made = compile(spec(name), {"d": 2, "k": 3}, **styles)
    verdict = verify(made, cases=cases)
    told = [str(condition) for condition in made.program.conditions]
    return {"verdict": verdict.verdict, "ok": bool(verdict.ok), "conditions": told}


def told(name: str, styles: dict[str, Any]) -> str:
    return " ".join([name, *(f"--{key} {value}" for key, value in styles.items())])


def measure(study: Study, size: dict[str, Any]) -> Measured:
    rows = {
        row: kinds[: size["each"]] for row, kinds in ROWS.items() if row[:2].strip() in size["rows"] or not size["rows"]
    }
    parts = {
        f"{row}: {told(*kind)}": partial(judged, *kind, size["cases"]) for row, kinds in rows.items() for kind in kinds
    }
    return study.run(parts)


def judge(measured: Measured) -> list[Judgement]:
    findings = []
    for row in ROWS:
        found = {label.partition(": ")[2]: one for label, one in measured.items() if label.startswith(f"{row}:")}
        if found:
            text = "; ".join(f"{name}: {one['verdict']}" for name, one in found.items())
            findings.append(Judgement(f"row {row.partition(' ')[0]}", text, all(one["ok"] for one in found.values())))
    return findings


def draw(figure: Figure, measured: Measured) -> None:
    (axes,) = panels(figure, 1, 1)
    for number, (label, one) in enumerate(measured.items()):
        axes.barh(number, 1, color=POSITIVE if one["ok"] else NEGATIVE, height=0.9)
        axes.text(0.01, number, label, va="center")
        axes.text(
            0.99, number, one["verdict"] + (", on a condition" if one["conditions"] else ""), va="center", ha="right"
        )
    axes.set(xlim=(0, 1), ylim=(len(measured) - 0.5, -0.5))
    axes.axis("off")


EXPERIMENTS = (
    Experiment(
        "kt-table1",
        "Table 1: every configuration as a compiled and verified transformer",
        {
            "tiny": {"cases": 1, "each": 1, "rows": "1 4 7"},
            "small": {"cases": 10, "each": 9, "rows": ""},
            "full": {"cases": 100, "each": 9, "rows": ""},
        },
        measure,
        judge,
        draw,
        (6.9, 4.4),
    ),
)
