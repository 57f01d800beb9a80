"""EM Figures 1 to 3: a small transformer trained to label Gaussian mixtures, beside Lloyd and the true means."""

from __future__ import annotations

from functools import partial
from itertools import permutations
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from weftc.experiments.drawing import key, line, panels
from weftc.experiments.study import Experiment, Judgement, Measured, Study
from weftc.experiments.trained_models import ClusteringTransformer, single

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BASE: dict[str, Any] = {"k": 4, "d": 10, "apart": 5.0, "variance": (10.0, 20.0), "each": 50, "layers": 3}
SWEEPS: dict[str, tuple[str, dict[str, Any]]] = {  # sweep -> what changes, and what else differs from BASE
    "separation": ("apart", {"variance": (10.0, 40.0)}),
    "dimension": ("d", {}),
    "points": ("each", {"variance": (0.5, 5.0)}),
    "classes": ("k", {}),
    "layers": ("layers", {"k": 6, "apart": 1.0, "variance": (20.0, 30.0)}),
}


def problem(rng: np.random.Generator, k: int, d: int, apart: float, variance: tuple[float, float], each: int) -> Any:
    """Points in random order, their labels, and the means; the nearest two means are `apart` from each other."""
    means = rng.normal(size=(k, d))
    far = np.sqrt(((means[:, None] - means[None]) ** 2).sum(-1)) + np.diag(np.full(k, np.inf))
    means = means * apart / far.min()
    labels = rng.permutation(np.repeat(np.arange(k), each))
    return means[labels] + np.sqrt(rng.uniform(*variance)) * rng.normal(size=(k * each, d)), labels, means


def best_permutation(scores: torch.Tensor, labels: torch.Tensor, orders: torch.Tensor) -> torch.Tensor:
    """Cross-entropy, minimised over the names of the classes."""
    k = scores.shape[-1]
    chosen = torch.nn.functional.one_hot(labels, k).to(scores.dtype)
    likely = torch.einsum("bnk,bnj->bkj", scores.log_softmax(-1), chosen) / labels.shape[1]
    return (-likely[:, orders, torch.arange(k)].sum(-1)).min(1).values.mean()


def train(setting: dict[str, Any], steps: int, batch: int, tests: int, seed: int) -> Measured:
    """One model, trained on new mixtures in every step; its ARI and NMI on others, and Lloyd's and the true means'."""
    from sklearn.cluster import KMeans
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

    layers, law = setting["layers"], {name: value for name, value in setting.items() if name != "layers"}
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    model = ClusteringTransformer(law["d"], law["k"], layers)
    optimiser = torch.optim.Adam(model.parameters(), 5e-4)
    decay = torch.optim.lr_scheduler.ExponentialLR(optimiser, 0.995)
    orders = torch.tensor(list(permutations(range(law["k"]))))
    for _ in range(steps):
        made = [problem(rng, **law) for _ in range(batch)]
        scores = model(single(np.stack([one[0] for one in made])))
        loss = best_permutation(scores, torch.as_tensor(np.stack([one[1] for one in made])), orders)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        decay.step()
    model.eval()
    new = np.random.default_rng(10_000 + seed)
    found: dict[str, list[float]] = {"ARI": [], "NMI": [], "Lloyd": [], "true means": []}
    for number in range(tests):
        x, labels, means = problem(new, **law)
        with torch.no_grad():
            told = np.asarray(model(single(x[None]))[0].argmax(-1))
        found["ARI"].append(adjusted_rand_score(labels, told))
        found["NMI"].append(normalized_mutual_info_score(labels, told))
        lloyd = KMeans(law["k"], n_init=1, max_iter=100, random_state=number).fit_predict(x)
        found["Lloyd"].append(adjusted_rand_score(labels, lloyd))
        nearest = ((x[:, None] - means[None]) ** 2).sum(-1).argmin(1)
        found["true means"].append(adjusted_rand_score(labels, nearest))
    return {name: float(np.mean(values)) for name, values in found.items()} | {"loss": float(loss.detach())}


def measure(study: Study, size: dict[str, Any]) -> Measured:
    parts = {}
    for sweep, values in size["values"].items():
        name, other = SWEEPS[sweep]
        for value in values:
            setting = {**BASE, **other, name: value}
            run = partial(train, setting, size["steps"], size["batch"], size["tests"], 0)
            parts[f"{sweep} {value:g}"] = run
    return study.run(parts)


def curve(measured: Measured, sweep: str, what: str) -> list[float]:
    return [one[what] for label, one in measured.items() if label.startswith(f"{sweep} ")]


def judge(measured: Measured) -> list[Judgement]:
    made = []
    for sweep, rising in (("separation", True), ("dimension", True), ("points", True), ("classes", False)):
        found = curve(measured, sweep, "ARI")
        if len(found) > 1:
            change = found[-1] - found[0] if rising else found[0] - found[-1]
            made.append(Judgement(sweep, ", ".join(f"{value:.2f}" for value in found), change > 0))
    gap = [one["Lloyd"] - one["ARI"] for one in measured.values()]
    made.append(
        Judgement("alternative", f"ARI below Lloyd's by {min(gap):z.2f} to {max(gap):z.2f}", float(np.mean(gap)) < 0.05)
    )
    below = all(one["ARI"] <= one["true means"] + 0.02 for one in measured.values())
    made.append(
        Judgement("limit", "below assignment to the true means everywhere" if below else "above it somewhere", below)
    )
    deep = curve(measured, "layers", "ARI")
    if len(deep) > 1:
        best = max(curve(measured, "layers", "true means"))
        seen, told = best > 0.05, ", ".join(f"{value:.3f}" for value in deep)
        told += "" if seen else f"; this law cannot tell: even the true means reach {best:.3f} only"
        made.append(Judgement("layers", told, deep[-1] > deep[0] if seen else None))
    return made


def draw(figure: Figure, measured: Measured) -> None:
    sweeps = [sweep for sweep in SWEEPS if curve(measured, sweep, "ARI")]
    places = panels(figure, 1, len(sweeps))
    for axes, sweep in zip(places, sweeps, strict=True):
        values = [float(label.partition(" ")[2]) for label in measured if label.startswith(f"{sweep} ")]
        for index, (what, told) in enumerate((("ARI", "trained"), ("Lloyd", "Lloyd"), ("true means", "true means"))):
            line(axes, values, curve(measured, sweep, what), told, index)
        top = 1.0 if max(curve(measured, sweep, "true means")) > 0.05 else 0.05
        axes.set(title=sweep, ylim=(-0.02 * top, 1.02 * top))
    places[0].set_ylabel("adjusted Rand index")
    key(figure, places[0])


EXPERIMENTS = (
    Experiment(
        "em-train",
        "Figures 1 to 3: a trained transformer by separation, dimension, points, classes and layers",
        {
            "tiny": {"values": {"separation": (5.0, 40.0)}, "steps": 30, "batch": 8, "tests": 8},
            "small": {
                "values": {
                    "separation": (5.0, 10.0, 20.0, 40.0),
                    "dimension": (2, 5, 10, 20),
                    "points": (10, 25, 50),
                    "classes": (2, 3, 4, 5),
                    "layers": (3, 6),
                },
                "steps": 300,
                "batch": 16,
                "tests": 128,
            },
            "full": {
                "values": {
                    "separation": (5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0),
                    "dimension": (2, 5, 10, 20, 50),
                    "points": (10, 25, 50, 100),
                    "classes": (2, 3, 4, 5, 6),
                    "layers": (3, 6, 10, 15, 20),
                },
                "steps": 3000,
                "batch": 64,
                "tests": 512,
            },
        },
        measure,
        judge,
        draw,
    ),
)
