"""KT Figures 3 and 4: a k-means transformer of finite temperature beside Lloyd's algorithm.

Variant A clears slots exactly and tempers the choices (`--hardmax softmax`). Variant B is the printed wiring as it was
run: one softmax of gamma in all four heads, the self-attentions that erase included.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from weftc.api import load
from weftc.compiling import compile
from weftc.experiments.drawing import heat, key, line, logarithmic, panels
from weftc.experiments.study import Experiment, Judgement, Measured, Study, falls, sci

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from weftc_runtime import Model

LAYERS = 10
GAMMAS = (1.0, 10.0, 100.0, 1e3, 1e4)
BASE = {"d": 2, "n": 1000, "k": 5, "scale": 1.0}
VARIANTS = {"A": "exact erase", "B": "all heads softmax, as printed"}


@cache
def model(variant: str, d: int, k: int, gamma: float = 0.0) -> Model:
    """Lloyd's algorithm ("exact"), or one of its two tempered transformers."""
    if variant == "exact":
        return load(compile("lloyd", {"d": d, "k": k}, layers=LAYERS))
    if variant == "A":
        return load(compile("lloyd", {"d": d, "k": k}, layers=LAYERS, hardmax="softmax", sharpness=gamma))
    return load(compile("kt_all_softmax", {"d": d, "k": k}, {"gamma": gamma}, layers=LAYERS))


def inputs(variant: str, x: Any, k: int) -> dict[str, Any]:
    """The points, the first k of them as centers, and the names of the centers where they are an input."""
    return {"x": x, "c": x[:k].copy()} | ({"e": np.eye(k)} if variant == "B" else {})


def points(d: int, n: int, k: int, scale: float, seed: int) -> Any:
    """Standard normal points; the paper does not state its law."""
    return scale * np.random.default_rng(seed).normal(size=(n, d))


def divergence(variant: str, d: int, n: int, k: int, scale: float, gamma: float, seed: int) -> float:
    """| log objective of the transformer - log objective of Lloyd's algorithm | after ten layers."""
    x = points(d, n, k, scale, seed)
    meant = model("exact", d, k).objective(**inputs("exact", x, k))
    found = model(variant, d, k, gamma).objective(**inputs(variant, x, k))
    return float(abs(np.log(float(found)) - np.log(float(meant))))


def mean_divergence(seeds: int, **setting: Any) -> float:
    return float(np.mean([divergence(**setting, seed=seed) for seed in range(seeds)]))


# ---- Figure 3 --------------------------------------------------------------------------------------------------------


def match(variant: str, n: int) -> Measured:
    """Layer by layer: how far centers, labels and objective are from Lloyd's, gamma = 1e4."""
    k, rows = 5, []
    x = points(2, n, k, 1.0, 0)
    runs = [(model("exact", 2, k), inputs("exact", x, k)), (model(variant, 2, k, 1e4), inputs(variant, x, k))]
    for layers in range(1, LAYERS + 1):
        meant, found = (one(**given, layers=layers) for one, given in runs)
        labels = [np.asarray(out["labels" if "labels" in out else "shares"]).argmax(1) for out in (meant, found)]
        objectives = [float(one.objective(**given, layers=layers)) for one, given in runs]
        rows.append(
            {
                "centers": float((meant["centers"] - found["centers"]).abs().max()),
                "labels": int((labels[0] != labels[1]).sum()),
                "ratio": objectives[1] / objectives[0],
            }
        )
    return {"n": n, "rows": rows}


def measure_match(study: Study, size: dict[str, int]) -> Measured:
    """Variant B attends from every point to every point, so it is run on `few` points too."""
    return study.run({f"{v}, n = {size[v]}": partial(match, v, size[v]) for v in VARIANTS})


def judge_match(measured: Measured) -> list[Judgement]:
    ends = {label: one["rows"][-1] for label, one in measured.items()}
    told = [f"{v}: centers off by {sci(r['centers'])}, {r['labels']} labels differ" for v, r in ends.items()]
    a, b = ends.values()
    return [
        Judgement("exact", "; ".join(told), all(r["centers"] == 0 and r["labels"] == 0 for r in ends.values())),
        Judgement("near-exact-erase", f"centers off by {sci(a['centers'])}", a["centers"] < 0.02),
        Judgement("near-as-printed", f"centers off by {sci(b['centers'])}", b["centers"] < 0.02),
    ]


def draw_match(figure: Figure, measured: Measured) -> None:
    one, two, three = panels(figure, 1, 3)
    for index, (label, found) in enumerate(measured.items()):
        layers = range(1, LAYERS + 1)
        line(one, layers, [r["ratio"] for r in found["rows"]], label, index)
        line(two, layers, [max(r["centers"], 1e-16) for r in found["rows"]], label, index)
        line(three, layers, [r["labels"] / found["n"] for r in found["rows"]], label, index)
    one.set(title="objective over Lloyd's", xlabel="layer")
    two.set(title="largest distance of a center to Lloyd's", xlabel="layer")
    logarithmic(two, "y")
    three.set(title="share of labels that differ", xlabel="layer")
    key(figure, one)


# ---- Figure 4 --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SweepSize:
    """Which values each quantity takes, how many data sets a point of the curves has, and the pairs of the maps."""

    values: Mapping[str, tuple[float, ...]]
    gammas: tuple[float, ...]
    seeds: int
    maps: bool


PAIRS = (("scale", "gamma"), ("d", "gamma"), ("d", "k"), ("n", "k"))


def measure_sweep(study: Study, size: SweepSize) -> Measured:
    parts: dict[str, Any] = {}
    for variant in VARIANTS:
        for name, values in size.values.items():
            for value in values:
                setting: dict[str, Any] = {**BASE, name: value, "variant": variant}
                seeds = size.seeds if setting["n"] <= 1000 else min(size.seeds, 2)
                parts[f"{variant} {name}={value:g}"] = partial(_curve, seeds, setting, size.gammas)
        for pair in PAIRS if size.maps else ():
            parts[f"{variant} map {pair[0]} {pair[1]}"] = partial(_map, variant, pair, size)
    return {"found": study.run(parts), "gammas": size.gammas, "values": size.values, "maps": size.maps}


def _curve(seeds: int, setting: dict[str, Any], gammas: tuple[float, ...]) -> list[float]:
    return [mean_divergence(seeds, **_whole(setting), gamma=gamma) for gamma in gammas]


def _map(variant: str, pair: tuple[str, str], size: SweepSize) -> list[list[float]]:
    choices = {**size.values, "gamma": size.gammas}
    made = []
    for one in choices[pair[0]]:
        settings = [
            {**BASE, "gamma": 100.0, pair[0]: one, pair[1]: two, "variant": variant} for two in choices[pair[1]]
        ]
        made.append([mean_divergence(1, **_whole(setting)) for setting in settings])
    return made


def _whole(setting: dict[str, Any]) -> dict[str, Any]:
    return {name: int(value) if name in "dnk" else value for name, value in setting.items()}


def judge_sweep(measured: Measured) -> list[Judgement]:
    """A trend is the ratio of means over all gammas, from the first value of a quantity to the last."""
    found, ratio = measured["found"], {}
    for variant in VARIANTS:
        for name, values in measured["values"].items():
            first, last = (np.mean(found[f"{variant} {name}={values[at]:g}"]) for at in (0, -1))
            ratio[variant, name] = float(last / first)
    findings = []
    for name, sign in (("d", -1), ("k", 1), ("scale", -1)):
        told = ", ".join(f"{v}: times {ratio[v, name]:.2g}" for v in VARIANTS)
        findings.append(Judgement(f"trend-{name}", told, all(ratio[v, name] ** sign > 1 for v in VARIANTS)))
    for variant in VARIANTS:
        findings.append(Judgement(f"trend-n-{variant}", f"times {ratio[variant, 'n']:.2g}", ratio[variant, "n"] > 1.25))
        base = found[f"{variant} d=2"]
        findings.append(Judgement(f"trend-gamma-{variant}", ", ".join(map(sci, base)), falls(base)))
    return findings


def draw_sweep(figure: Figure, measured: Measured) -> None:
    rows = 4 if measured["maps"] else 2
    all_panels = panels(figure, rows, 4)
    for row, variant in enumerate(VARIANTS):
        for column, (name, values) in enumerate(measured["values"].items()):
            axes = all_panels[4 * row + column]
            for index, value in enumerate(values):
                line(
                    axes,
                    measured["gammas"],
                    measured["found"][f"{variant} {name}={value:g}"],
                    f"{name} = {value:g}",
                    index,
                )
            axes.set(xlabel="gamma", title=f"{variant}: {name}")
            logarithmic(axes)
            axes.legend()
        for column, pair in enumerate(PAIRS if measured["maps"] else ()):
            axes = all_panels[8 + 4 * row + column]
            choices = {**measured["values"], "gamma": measured["gammas"]}
            image = heat(axes, np.log10(np.maximum(measured["found"][f"{variant} map {pair[0]} {pair[1]}"], 1e-16)))
            axes.set(title=f"{variant}: log10 of the same", xlabel=pair[1], ylabel=pair[0])
            axes.set_xticks(range(len(choices[pair[1]])), [f"{v:g}" for v in choices[pair[1]]])
            axes.set_yticks(range(len(choices[pair[0]])), [f"{v:g}" for v in choices[pair[0]]])
            figure.colorbar(image, ax=axes)
    all_panels[0].set_ylabel("|log objective - log Lloyd's|")


SMALL = {"d": (2, 4, 8, 16, 32), "n": (100, 300, 1000, 3000), "k": (2, 5, 10, 20), "scale": (0.1, 0.3, 1.0, 3.0, 10.0)}
TINY = {"d": (2, 16), "n": (100, 1000), "k": (2, 20), "scale": (0.1, 10.0)}
EXPERIMENTS = (
    Experiment(
        "kt-fig3",
        "Figure 3: ten layers at gamma = 10,000 beside ten iterations of Lloyd's algorithm",
        {"tiny": {"A": 1000, "B": 1000}, "small": {"A": 10_000, "B": 3000}, "full": {"A": 10_000, "B": 10_000}},
        measure_match,
        judge_match,
        draw_match,
    ),
    Experiment(
        "kt-fig4",
        "Figure 4: how finite temperature departs from Lloyd's algorithm, over gamma, d, n, k and scale",
        {
            "tiny": SweepSize(TINY, (1.0, 1e4), 3, False),
            "small": SweepSize(SMALL, GAMMAS, 5, True),
            "full": SweepSize({**SMALL, "n": (100, 300, 1000, 3000, 10_000)}, GAMMAS, 10, True),
        },
        measure_sweep,
        judge_sweep,
        draw_sweep,
        (11.0, 9.5),
    ),
)
