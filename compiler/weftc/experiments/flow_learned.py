"""FL Tables 1, 2, 4, 8 and 10, Figures 1, 7 and 8: mixing measures by k-means, EM, compiled flows and a trained one."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from weftc.api import load
from weftc.compiling import compile
from weftc.experiments.drawing import bars, key, line, logarithmic, panels
from weftc.experiments.entropy import nearest_entropy
from weftc.experiments.study import Experiment, Judgement, Measured, Study, falls
from weftc.experiments.trained_models import FlowTransformer, parameters, single
from weftc.training.losses import transport
from weftc.training.trainable import trainable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from weftc_runtime import Model

LEVELS = (15, 10, 5)  # decibels
LAYERS = 6


def mixture(rng: np.random.Generator, n: int, decibels: float | None = None) -> tuple[Any, Any, Any, float]:
    """Points, centers, their empirical shares, SNR-dB; without a level, a problem to train on."""
    training = decibels is None
    level = float(rng.uniform(3, 15)) if decibels is None else float(decibels)
    if training:
        classes = int(rng.integers(2, 9))
    else:
        classes = 0
        while not 3 <= classes <= 7:
            classes = int(rng.poisson(5.0))
    centers, shares = rng.normal(size=(classes, 2)), rng.dirichlet(np.ones(classes))
    between = shares @ ((centers - shares @ centers) ** 2).sum(1) / 2
    labels = rng.choice(classes, n, p=shares)
    x = centers[labels] + np.sqrt(between / 10 ** (level / 10)) * rng.normal(size=(n, 2))
    return x, centers, np.bincount(labels, minlength=classes) / n, level


def test_sets(n: int, sets: int, level: int) -> list[Any]:
    rng = np.random.default_rng(level)
    return [mixture(rng, n, level) for _ in range(sets)]


def distance(found: Any, weights: Any, centers: Any, shares: Any) -> float:
    """Squared 2-Wasserstein distance between two discrete measures, by network simplex."""
    import ot

    kept = shares > 0
    cost = ((found[:, None] - centers[kept][None]) ** 2).sum(-1)
    return float(ot.emd2(weights / weights.sum(), shares[kept] / shares[kept].sum(), cost))


def in_noise_units(x: Any, level: float) -> tuple[Any, Any, float]:
    """Points in units of the noise, which SNR and spread tell; how to get back."""
    center = x.mean(0)
    noise = float(np.sqrt(((x - center) ** 2).mean() / (1 + 10 ** (level / 10))))
    return (x - center) / noise, center, noise


# ---- baselines -------------------------------------------------------------------------------------------------------


def k_means(x: Any, k: int, seed: int, init: str, starts: int) -> tuple[Any, Any]:
    from sklearn.cluster import KMeans

    fitted = KMeans(k, init=init, n_init=starts, random_state=seed).fit(x)
    return fitted.cluster_centers_, np.bincount(fitted.labels_, minlength=k).astype(float)


def mixture_em(x: Any, k: int, models: dict[int, Any], starts: int) -> tuple[Any, Any]:
    """The best of several starts of compiled EM, by its own objective."""
    if k not in models:
        models[k] = load(compile("gmm_em", {"d": 2, "k": k}, layers=40))
    scale, best = float(x.std()), (np.inf, None)
    for seed in range(starts):
        objective = float(models[k].objective(x=x / scale, seed=seed))
        if objective < best[0]:
            best = (objective, models[k](x=x / scale, seed=seed))
    assert best[1] is not None
    return np.asarray(best[1]["means"]) * scale, np.asarray(best[1]["weights"])


FLOW = """algorithm noise_flow "blurring mean shift, a bandwidth and a speed for each layer"
tokens  i, l in points
inputs  x[i] : R^d
learn   h = 1 > 0 per layer,  t = 1/3 in (0, 1) per layer
layer
  x[i] = x[i] + t * ((sum[l] softmax[l](-|x[i] - x[l]|^2 / (2*h^2)) * x[l]) - x[i])
outputs points = x
"""


def flowed(x: Any, level: float, model: Model) -> Any:
    z, center, noise = in_noise_units(x, level)
    return np.asarray(model(x=z)["points"]) * noise + center


def learn_numbers(steps: int, n: int = 128, batch: int = 16) -> Measured:
    """A bandwidth and a speed for each layer of the flow, learnt by the distance to the mixing measure: 12 numbers."""
    model = trainable(FLOW, {"d": 2}, layers=LAYERS, dtype="float32", scores="dot")
    optimiser = torch.optim.Adam(model.parameters(), 3e-2)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    rng = np.random.default_rng(1)
    for _ in range(steps):
        made = [mixture(rng, n) for _ in range(batch)]
        units = [in_noise_units(one[0], one[3]) for one in made]
        moved = model(x=np.stack([one[0] for one in units]))["points"]
        loss = torch.stack(
            [
                10 ** (level / 10) * transport(z * noise + single(center), single(centers), shares)
                for z, (_, center, noise), (_, centers, shares, level) in zip(moved, units, made, strict=True)
            ]
        ).mean()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        decay.step()
    return {**model.values(), "spec": model.spec()}


METHODS = (
    "k-means, random start",
    "k-means++",
    "k-means++, 10 starts",
    "compiled EM, 4 starts",
    "compiled flow, T = 2",
    "compiled flow, 12 learned numbers",
)


def baseline(level: int, n: int, sets: int, learned: Measured) -> dict[str, float]:
    """The mean squared distance of every method at one level."""
    fixed, tuned = load(compile(FLOW, {"d": 2}, layers=LAYERS)), load(compile(learned["spec"], {"d": 2}))
    models: dict[int, Any] = {}
    found: dict[str, list[float]] = {name: [] for name in METHODS}
    for seed, (x, centers, shares, _) in enumerate(test_sets(n, sets, level)):
        k, even = len(centers), np.ones(n)
        answers = (
            k_means(x, k, seed, "random", 1),
            k_means(x, k, seed, "k-means++", 1),
            k_means(x, k, seed, "k-means++", 10),
            mixture_em(x, k, models, 4),
            (flowed(x, level, fixed), even),
            (flowed(x, level, tuned), even),
        )
        for name, (points, weights) in zip(METHODS, answers, strict=True):
            found[name].append(distance(points, weights, centers, shares))
    return {name: float(np.mean(values)) for name, values in found.items()}


def measure_baselines(study: Study, size: dict[str, int]) -> Measured:
    learned = study.run({"learning": partial(learn_numbers, size["steps"])})["learning"]
    levels = {f"{level} dB": partial(baseline, level, size["n"], size["sets"], learned) for level in LEVELS}
    return {"learned": learned, "n": size["n"], "levels": study.run(levels)}


def _at(measured: Measured, name: str) -> list[float]:
    return [measured["levels"][f"{level} dB"][name] for level in LEVELS]


def _told(values: list[float]) -> str:
    return " / ".join(f"{value:.4f}" for value in values)


def judge_baselines(measured: Measured) -> list[Judgement]:
    at = {name: _at(measured, name) for name in METHODS}
    random, ten = at["k-means, random start"], at["k-means++, 10 starts"]
    printed = (0.0441, 0.0558, 0.1597)
    near = all(0.5 < ours / theirs < 2 for ours, theirs in zip(random, printed, strict=True))
    high = [at[name][0] for name in ("compiled EM, 4 starts", "compiled flow, T = 2", "k-means, random start")]
    better = [flow < other for flow, other in zip(at["compiled flow, 12 learned numbers"], ten, strict=True)]
    return [
        Judgement("k-means", f"one random start: {_told(random)}; ten k-means++ starts: {_told(ten)}", near),
        Judgement(
            "order",
            f"at 15 dB: EM {high[0]:.4f}, compiled flow {high[1]:.4f}, k-means {high[2]:.4f}",
            high == sorted(high),
        ),
        Judgement(
            "outperform",
            f"flow with 12 learned numbers {_told(at['compiled flow, 12 learned numbers'])}; best k-means {_told(ten)}",
            all(better),
        ),
    ]


def draw_baselines(figure: Figure, measured: Measured) -> None:
    one, two = panels(figure, 1, 2)
    groups = [f"{level} dB" for level in LEVELS]
    bars(one, groups, {name: _at(measured, name) for name in METHODS} | {"k-means, printed": (0.0441, 0.0558, 0.1597)})
    logarithmic(one, "y")
    one.set_title(f"squared Wasserstein distance, n = {measured['n']}")
    layers = range(1, LAYERS + 1)
    line(two, layers, measured["learned"]["h"], "bandwidth h / noise", 0)
    line(two, layers, measured["learned"]["t"], "speed t", 1)
    two.set(title="the 12 learned numbers", xlabel="layer")
    two.legend()
    key(figure, one)


# ---- the trained transformer -----------------------------------------------------------------------------------------


def train(schedule: str, steps: int, batch: int, n: int) -> FlowTransformer:
    """AdamW on new mixtures in every step, loss SNR * W2^2."""
    torch.manual_seed(0)
    rng, model = np.random.default_rng(1), FlowTransformer(layers=LAYERS)
    optimiser = torch.optim.AdamW(model.parameters(), 2e-3)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        made = [mixture(rng, n) for _ in range(batch)]
        found = model(single(np.stack([one[0] for one in made])), single([one[3] for one in made]), schedule)
        losses = [
            10 ** (level / 10) * transport(one, single(c), p) for one, (_, c, p, level) in zip(found, made, strict=True)
        ]
        optimiser.zero_grad()
        torch.stack(losses).mean().backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        decay.step()
    return model.eval()


def trained_weights(schedule: str, size: dict[str, int]) -> dict[str, Any]:
    """A trained model as plain data."""
    model = train(schedule, size["steps"], size["batch"], size["points"])
    return {name: value.tolist() for name, value in model.state_dict().items()}


def restored(weights: dict[str, Any]) -> FlowTransformer:
    model = FlowTransformer(layers=LAYERS)
    model.load_state_dict({name: single(value) for name, value in weights.items()})
    return model.eval()


def estimate(model: FlowTransformer, x: Any, level: float, schedule: str) -> Any:
    with torch.no_grad():
        return model(single(x[None]), single([level]), schedule)[0].double().numpy()


def scores(weights: dict[str, Any], schedule: str, n: int, sets: int) -> list[float]:
    """The mean squared distance at 15, 10 and 5 dB under a schedule."""
    model, even = restored(weights), np.ones(n)
    return [
        float(
            np.mean(
                [distance(estimate(model, x, level, schedule), even, c, p) for x, c, p, _ in test_sets(n, sets, level)]
            )
        )
        for level in LEVELS
    ]


def trained_details(weights: dict[str, Any], sizes: tuple[int, ...], sets: int) -> Measured:
    """By sample size: the transformer, k-means, and k-means on its outputs; total time by SNR; entropy by layer."""
    model, by_size = restored(weights), {}
    for n in sizes:
        found: dict[str, list[list[float]]] = {"transformer": [], "k-means": [], "k-means on outputs": []}
        for level in LEVELS:
            rows: list[tuple[float, float, float]] = []
            for seed, (x, c, p, _) in enumerate(test_sets(n, sets, level)):
                moved = estimate(model, x, level, "uniform")
                plain, after = (k_means(points, len(c), seed, "random", 1) for points in (x, moved))
                rows.append((distance(moved, np.ones(n), c, p), distance(*plain, c, p), distance(*after, c, p)))
            for name, values in zip(found, zip(*rows, strict=True), strict=True):
                found[name].append(float(np.mean(values)))  # type: ignore[arg-type]
        by_size[str(n)] = found
    decibels = [3.0, 6.0, 9.0, 12.0, 15.0]
    with torch.no_grad():
        total = model.flow(single(decibels)).tolist()
        trace: list[torch.Tensor] = []
        many = [mixture(np.random.default_rng(seed), 300, 10.0)[0] for seed in range(20)]
        model(single(np.stack(many)), single([10.0] * len(many)), "uniform", trace)
    entropy = [float(np.mean([nearest_entropy(np.asarray(z) / float(z.std())) for z in layer])) for layer in trace]
    return {"sizes": by_size, "decibels": decibels, "total": total, "entropy": entropy, "parameters": parameters(model)}


def measure_train(study: Study, size: dict[str, Any]) -> Measured:
    weights = study.run({"training uniform": partial(trained_weights, "uniform", size)})["training uniform"]
    found: Measured = study.run({"looking": partial(trained_details, weights, size["sizes"], size["sets"])})["looking"]
    return found


def judge_train(measured: Measured) -> list[Judgement]:
    sizes = measured["sizes"]
    last = list(sizes)[-1]
    ours, plain, after = (sizes[last][name] for name in ("transformer", "k-means", "k-means on outputs"))
    by_n = [float(np.mean(sizes[n]["transformer"])) for n in sizes]
    return [
        Judgement("low", f"{ours[2]:.4f} and {plain[2]:.4f} (k-means), n = {last}, 5 dB", ours[2] < plain[2]),
        Judgement(
            "across",
            f"{_told(ours)} and {_told(plain)} (k-means)",
            all(a < b for a, b in zip(ours, plain, strict=True)),
        ),
        Judgement("values", _told(ours), all(a < 1.5 * b for a, b in zip(ours, (0.0016, 0.0080, 0.0380), strict=True))),
        Judgement(
            "total", ", ".join(f"{t:.2f}" for t in measured["total"]) + " at 3, 6, ..., 15 dB", falls(measured["total"])
        ),
        Judgement("samples", ", ".join(f"{value:.4f}" for value in by_n), falls(by_n)),
        Judgement("outputs", f"{_told(after)} on outputs, {_told(plain)} on the data", after[2] < plain[2]),
    ]


def draw_train(figure: Figure, measured: Measured) -> None:
    one, two, three = panels(figure, 1, 3)
    sizes = [int(n) for n in measured["sizes"]]
    for index, level in enumerate(LEVELS):
        for name, dashed in (("transformer", False), ("k-means", True)):
            values = [found[name][index] for found in measured["sizes"].values()]
            line(one, sizes, values, f"{name}, {level} dB", index, dashed)
    logarithmic(one)
    one.set(title="squared Wasserstein distance", xlabel="points")
    key(figure, one, 3)
    line(two, measured["decibels"], measured["total"], "T", 0)
    two.set(title="learned total time T", xlabel="SNR in dB")
    line(three, range(len(measured["entropy"])), measured["entropy"], "entropy", 0)
    three.set(title="entropy of the tokens (10 dB)", xlabel="layer")


SCHEDULES = ("uniform", "unit", "none")
PRINTED = {
    "uniform → uniform": (0.0016, 0.0080, 0.0380),
    "uniform → unit": (0.0867, 0.0894, 0.1095),
    "unit → uniform": (0.0039, 0.0103, 0.0511),
    "unit → unit": (0.0029, 0.0120, 0.0605),
    "none → none": (0.0022, 0.0096, 0.0462),
}


def measure_schedules(study: Study, size: dict[str, Any]) -> Measured:
    trained = study.run({f"training {one}": partial(trained_weights, one, size) for one in SCHEDULES})
    parts = {}
    for pair in PRINTED:
        learnt, used = pair.split(" → ")
        parts[pair] = partial(scores, trained[f"training {learnt}"], used, size["points"], size["sets"])
    return study.run(parts)


def judge_schedules(measured: Measured) -> list[Judgement]:
    pairs = list(measured)
    worst = [pairs[int(np.argmax([measured[pair][at] for pair in pairs]))] for at in range(3)]
    best = measured["uniform → uniform"]
    wins = [all(best[at] <= values[at] for values in measured.values()) for at in range(3)]
    flow = [a < b for a, b in zip(best, measured["none → none"], strict=True)]
    unit = [a < b for a, b in zip(measured["unit → unit"], measured["none → none"], strict=True)]
    return [
        Judgement("uniform", f"{_told(best)}; best at {sum(wins)} of 3 levels", all(wins)),
        Judgement(
            "mixed",
            f"{_told(measured['uniform → unit'])}; the worst are {', '.join(worst)}",
            set(worst) == {"uniform → unit"},
        ),
        Judgement("flow-uniform", f"none: {_told(measured['none → none'])}", all(flow)),
        Judgement(
            "flow-unit", f"unit: {_told(measured['unit → unit'])}, none: {_told(measured['none → none'])}", all(unit)
        ),
    ]


def draw_schedules(figure: Figure, measured: Measured) -> None:
    one, two = panels(figure, 1, 2)
    groups = [f"{level} dB" for level in LEVELS]
    bars(one, groups, dict(measured))
    one.set_title("ours: squared Wasserstein distance")
    bars(two, groups, {pair: list(values) for pair, values in PRINTED.items()})
    two.set_title("printed (Tables 2 and 4)")
    for axes in (one, two):
        logarithmic(axes, "y")
    key(figure, one, 5)


TRAINED = {"steps": 1500, "batch": 16, "points": 128, "sets": 60}
EXPERIMENTS = (
    Experiment(
        "fl-baselines",
        "Tables 1 to 5, the K-means column, beside compiled EM, a compiled flow, and the same with 12 learned numbers",
        {
            "tiny": {"n": 200, "sets": 4, "steps": 8},
            "small": {"n": 1000, "sets": 40, "steps": 300},
            "full": {"n": 1000, "sets": 1000, "steps": 3000},
        },
        measure_baselines,
        judge_baselines,
        draw_baselines,
        (6.9, 3.2),
    ),
    Experiment(
        "fl-train",
        "Tables 2, 8 and 10, Figures 1 and 8: the trained flow transformer by SNR and sample size",
        {
            "tiny": {**TRAINED, "steps": 25, "batch": 4, "sets": 3, "sizes": (100, 200)},
            "small": {**TRAINED, "sizes": (100, 500, 1000)},
            "full": {
                "steps": 2_621_440 // 16,
                "batch": 16,
                "points": 1000,
                "sets": 1000,
                "sizes": (100, 500, 1000, 2000),
            },
        },
        measure_train,
        judge_train,
        draw_train,
    ),
    Experiment(
        "fl-schedules",
        "Tables 1 and 4: uniform, unit and no flow, in training and in use",
        {
            "tiny": {**TRAINED, "steps": 12, "batch": 4, "sets": 3},
            "small": dict(TRAINED),
            "full": {"steps": 2_621_440 // 16, "batch": 16, "points": 1000, "sets": 1000},
        },
        measure_schedules,
        judge_schedules,
        draw_schedules,
        (6.9, 3.0),
    ),
)
