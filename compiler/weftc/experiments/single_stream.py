"""EM Theorems 3.1 and 3.2: Lloyd's algorithm in one stream of N tokens, by heads with softmax and without."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from weftc.api import load
from weftc.compiling import compile
from weftc.experiments.drawing import line, logarithmic, panels
from weftc.experiments.study import Experiment, Judgement, Measured, Study, sci

if TYPE_CHECKING:
    from matplotlib.figure import Figure

D, K = 2, 3
MEANS = np.array([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0]]) + 2
CS = (1, 2, 3)


def squared(x: Any, c: Any) -> Any:
    return ((x[:, None] - c[None]) ** 2).sum(-1)


def lloyd(x: Any, c: Any, layers: int) -> tuple[Any, Any]:
    """Centers and labels, the centers first: the paper's order of steps."""
    labels = squared(x, c).argmin(1)
    for _ in range(layers):
        c = np.stack([x[labels == j].mean(0) if (labels == j).any() else c[j] for j in range(K)])
        labels = squared(x, c).argmin(1)
    return c, labels


def prompt(x: Any, c: Any) -> dict[str, Any]:
    """The paper's input: data, tags and centers on the first k tokens, one-hot labels."""
    tags, means = np.zeros((len(x), K)), np.zeros((len(x), D))
    tags[:K], means[:K] = np.eye(K), c
    return {"x": x, "p2": tags, "mu": means, "p1": np.eye(K)[squared(x, c).argmin(1)]}


def problem(n: int, seed: int, noise: float) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    return MEANS[rng.integers(K, size=n)] + rng.normal(size=(n, D)), MEANS + noise * rng.normal(size=(K, D))


def center_error(n: int, sets: int) -> Measured:
    """The largest distance of a center to Lloyd's after one layer: softmax heads with C log N, and exact counts."""
    far, made = 1e5, {}
    for c in CS:
        params = {"sharp": c * np.log(n), "beta": 4 * np.log(n), "far": far}
        made[f"C = {c}"] = load(compile("em_single_stream", {"d": D, "k": K}, params))
    made["no activation"] = load(compile("em_plus_stream", {"d": D, "k": K}, {"beta": 4 * np.log(n), "far": far}))
    worst = dict.fromkeys(made, 0.0)
    for seed in range(sets):
        x, start = problem(n, seed, 0.3)
        meant, _ = lloyd(x, start, 1)
        for name, model in made.items():
            found = np.asarray(model(**prompt(x, start))["centers"])[:K]
            worst[name] = max(worst[name], float(np.abs(found - meant).max()))
    return {"n": n, **worst}


def label_error(beta: float, sets: int) -> Measured:
    """Five iterations on 60 points: labels that are wrong, and how far the shares are from one-hot."""
    n, wrong, off = 60, 0, 0.0
    params = {"sharp": 3 * np.log(n), "beta": beta * np.log(n), "far": 1e5}
    model = load(compile("em_single_stream", {"d": D, "k": K}, params))
    for seed in range(sets):
        x, start = problem(n, seed, 1.0)
        _, labels = lloyd(x, start, 5)
        shares = np.asarray(model(**prompt(x, start), layers=5)["labels"])
        wrong += int((shares.argmax(1) != labels).sum())
        off = max(off, float(np.abs(shares - np.eye(K)[labels]).max()))
    return {"wrong": wrong, "points": sets * n, "off": off}


def fitted_square(heads: int) -> float:
    """sup |sum_m a_m sigmoid(v_m t + b_m) - t^2| on [-12, 12] by least squares: what M softmax heads can write."""
    reach, rng = 12.0, np.random.default_rng(heads)
    t, places = np.linspace(-reach, reach, 801), np.linspace(-1.2 * reach, 1.2 * reach, heads)
    units = 1 / (1 + np.exp(-np.clip((t[:, None] - places) * rng.uniform(1, 6, heads) / reach, -60, 60)))
    units = np.concatenate([units, np.ones((len(t), 1))], axis=1)
    ridge = np.concatenate([units, 1e-5 * np.eye(heads + 1)])
    fitted = np.linalg.lstsq(ridge, np.concatenate([t**2, np.zeros(heads + 1)]), rcond=None)[0]
    return float(np.abs(units @ fitted - t**2).max())


def sampled_square(heads: int, repeats: int = 20) -> float:
    """The same with units drawn at random, as in the proof: steps at uniform places; the mean over several draws."""
    rng, reach = np.random.default_rng(heads), 12.0
    t, found = np.linspace(-reach, reach, 801), []
    for _ in range(repeats):
        places = rng.uniform(-reach, reach, heads)
        steps = t[:, None] > places
        found.append(np.abs(reach**2 + steps @ (4 * reach * places / heads) - t**2).max())
    return float(np.mean(found))


def depth() -> Measured:
    """Attention levels of one compiled iteration, beside the paper's count of layers for k classes."""
    counted = {}
    for name, paper in (("em_single_stream", 3 + 3 * K), ("em_plus_stream", 7 + 3 * K)):
        program = compile(name, {"d": D, "k": K}).program
        levels = sum(any(getattr(s, "heads", ()) for s in step.sublayers) for step in program.layer)
        counted[name] = {"ours": levels, "paper": paper}
    return counted


def measure(study: Study, size: dict[str, Any]) -> Measured:
    parts: dict[str, Any] = {f"N={n}": partial(center_error, n, size["sets"]) for n in size["n"]}
    parts |= {f"beta={c:g} log N": partial(label_error, c, size["sets"]) for c in (0.5, 1, 2, 4, 8)}
    parts |= {f"sampled M={m}": partial(sampled_square, m) for m in size["heads"]}
    parts |= {f"fitted M={m}": partial(fitted_square, m) for m in size["heads"]}
    parts["depth"] = depth
    return study.run(parts)


def _slope(x: list[float], y: list[float]) -> float:
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def judge(measured: Measured) -> list[Judgement]:
    rows = [one for label, one in measured.items() if label.startswith("N=")]
    sizes = [one["n"] for one in rows]
    slopes = {c: _slope(sizes, [one[f"C = {c}"] for one in rows]) for c in CS}
    plus = max(one["no activation"] for one in rows)
    heads = [int(label.partition("=")[2]) for label in measured if label.startswith("sampled")]
    sampled = [measured[f"sampled M={m}"] for m in heads]
    half = _slope([float(m) for m in heads], sampled)
    labels = {label: one for label, one in measured.items() if label.startswith("beta")}
    sharp = labels["beta=8 log N"]
    counted = measured["depth"]
    levels = counted["em_single_stream"]["ours"], counted["em_plus_stream"]["ours"]
    products = ", ".join(f"{one['n'] * one['C = 1']:.3g}" for one in rows[-4:])
    return [
        Judgement("1/N", f"C = 1: N times the error is {products} (slope {slopes[1]:.2f})", abs(slopes[1] + 1) < 0.25),
        Judgement(
            "N^-C",
            f"slopes {slopes[2]:.2f} and {slopes[3]:.2f} for C = 2 and 3",
            abs(slopes[2] + 2) < 0.35 and abs(slopes[3] + 3) < 0.5,
        ),
        Judgement("plus", f"largest error {sci(plus)}", plus < 1e-12),
        Judgement(
            "labels",
            f"{sharp['wrong']} of {sharp['points']} labels differ, shares off by {sci(sharp['off'])}",
            sharp["wrong"] <= 1,
        ),
        Judgement("heads", f"sampled heads: slope {half:.2f} in M", abs(half + 0.5) < 0.2),
        Judgement(
            "layers",
            f"{levels[0]} and {levels[1]} levels of attention for one iteration, k = {K}",
            levels[0] <= 3 + 3 * K and levels[1] <= 7 + 3 * K,
        ),
    ]


def draw(figure: Figure, measured: Measured) -> None:
    one, two, three = panels(figure, 1, 3)
    rows = [found for label, found in measured.items() if label.startswith("N=")]
    for index, name in enumerate([*(f"C = {c}" for c in CS), "no activation"]):
        line(one, [row["n"] for row in rows], [max(row[name], 1e-16) for row in rows], name, index)
    one.set(xlabel="N", title="error of a center, one layer")
    logarithmic(one)
    one.legend()
    labels = {float(name[5:].split()[0]): found for name, found in measured.items() if name.startswith("beta")}
    line(two, list(labels), [max(found["off"], 1e-16) for found in labels.values()], "shares off by", 0)
    two.set(xlabel="beta / log N", title="labels after five iterations, N = 60")
    logarithmic(two)
    heads = [int(name.partition("=")[2]) for name in measured if name.startswith("sampled")]
    for index, recipe in enumerate(("sampled", "fitted")):
        line(three, heads, [measured[f"{recipe} M={m}"] for m in heads], recipe, index)
    three.set(xlabel="heads M", title="error of t^2 by M heads, |t| < 12")
    logarithmic(three)
    three.legend()


EXPERIMENTS = (
    Experiment(
        "em-laws",
        "Theorems 3.1 and 3.2: how errors of the single-stream transformer fall with N, C and M",
        {
            "tiny": {"n": (60, 120, 240), "sets": 2, "heads": (32, 128, 512)},
            "small": {"n": (30, 60, 120, 240, 480, 960), "sets": 5, "heads": (8, 16, 32, 64, 128, 256, 512, 1024)},
            "full": {"n": (30, 60, 120, 240, 480, 960, 1920), "sets": 20, "heads": (8, 32, 128, 512, 2048)},
        },
        measure,
        judge,
        draw,
    ),
)
