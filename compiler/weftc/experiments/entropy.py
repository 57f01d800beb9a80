"""FL Theorem 2.1 and Figure 1: what compiled flows do to the entropy of their tokens."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from weftc.api import load
from weftc.compiling import compile
from weftc.experiments.drawing import line, panels
from weftc.experiments.study import Experiment, Judgement, Measured, Study, falls

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def nearest_entropy(z: Any, neighbour: int = 3) -> float:
    """Differential entropy up to a constant, from distances to a near neighbour (Kozachenko and Leonenko)."""
    from scipy.spatial import cKDTree

    near = cKDTree(z).query(z, neighbour + 1)[0][:, neighbour]
    return float(z.shape[1] * np.log(near + 1e-12).mean())


def on_the_circle(beta: float, points: int, layers: int, t: float) -> Measured:
    """The compiled un-normalised flow from the density (1 + cos(a)/2) / 2 pi: entropy, energy, and both bounds.

    Tokens are quantiles of the density, so that the logarithms of their gaps give the entropy itself.
    """
    places = (np.arange(points) + 0.5) / points * 2 * np.pi
    angles = places.copy()
    for _ in range(60):  # a + sin(a)/2 = place
        angles -= (angles + np.sin(angles) / 2 - places) / (1 + np.cos(angles) / 2)
    x = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    model = load(compile("energy_flow", {"d": 2}, {"beta": beta, "t": t}))
    uniform = float(np.i0(beta)) / (2 * beta)
    entropy, energy = [], []
    for layer in range(layers + 1):
        entropy.append(_gap_entropy(x))
        energy.append(-float(model.objective(x=x, layers=0)))
        if layer < layers:
            x = np.asarray(model(x=x, layers=1)["points"])
    rate = [(after - before) / t for before, after in pairwise(entropy)]
    # over a step the energy grows, so the corrected law bounds the mean rate by the energy before it
    law = [-2 * (value - uniform) for value in energy[:-1]]
    return {"entropy": entropy, "energy": energy, "rate": rate, "corrected": law, "printed": [-one / 2 for one in law]}


def _gap_entropy(x: Any) -> float:
    angles = np.sort(np.arctan2(x[:, 1], x[:, 0]))
    gaps = np.diff(np.concatenate([angles, angles[:1] + 2 * np.pi]))
    return float(np.log(np.maximum(gaps, 1e-300) * len(x)).mean())


def by_layer(spec: str, params: dict[str, float], sets: int, layers: int) -> Measured:
    """Entropy of the tokens by layer, over several sets of points, and the tokens of the first."""
    model, found, tokens = load(compile(spec, {"d": 2}, params)), [], []
    for seed in range(sets):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(300, 2)) + 4 * rng.normal(size=(4, 2))[rng.integers(4, size=300)]
        x = x / np.linalg.norm(x, axis=1, keepdims=True) if spec != "blurring_mean_shift" else x
        course = []
        for layer in range(layers + 1):
            course.append(nearest_entropy(x) if spec == "blurring_mean_shift" else _gap_entropy(x))
            if seed == 0:
                tokens.append(x[:80].round(4).tolist())
            if layer < layers:
                x = np.asarray(model(x=x, layers=1)["points"])
        found.append(course)
    return {"entropy": np.mean(found, axis=0).tolist(), "tokens": tokens}


FLOWS = {"sphere_flow": {"t": 0.1}, "energy_flow": {"t": 0.05}, "blurring_mean_shift": {"t": 0.25}}


def measure(study: Study, size: dict[str, int]) -> Measured:
    parts: dict[str, Any] = {
        f"circle beta={b:g}": partial(on_the_circle, b, size["points"], 10, 0.02) for b in (0.5, 1.5, 3.0)
    }
    parts |= {name: partial(by_layer, name, params, size["sets"], size["layers"]) for name, params in FLOWS.items()}
    return study.run(parts)


def judge(measured: Measured) -> list[Judgement]:
    circles = [one for label, one in measured.items() if label.startswith("circle")]
    rates = ", ".join(f"{one['rate'][0]:.4f}" for one in circles)
    printed = ", ".join(f"{one['printed'][0]:.4f}" for one in circles)
    law = ", ".join(f"{one['corrected'][0]:.4f}" for one in circles)
    below = all(
        rate <= bound + 1e-3 for one in circles for rate, bound in zip(one["rate"], one["corrected"], strict=True)
    )
    falling = {name: falls(measured[name]["entropy"], 0.02) for name in FLOWS}
    rising = all(falls([-value for value in one["energy"]], 1e-12) for one in circles)
    return [
        Judgement(
            "printed",
            f"d Ent/dt = {rates} at beta = 0.5, 1.5, 3; the bound asks for at least {printed}",
            False if below else None,
        ),
        Judgement("corrected", f"d Ent/dt = {rates}, at most {law}", below),
        Judgement(
            "figure",
            ", ".join(f"{name}: {'falls' if yes else 'does not fall'}" for name, yes in falling.items()),
            all(falling.values()),
        ),
        Judgement("energy", "grows in every step" if rising else "does not always grow", rising),
    ]


def draw(figure: Figure, measured: Measured) -> None:
    one, two, three = panels(figure, 1, 3)
    for index, (label, found) in enumerate((a, b) for a, b in measured.items() if a.startswith("circle")):
        line(one, range(len(found["rate"])), found["rate"], label, index)
        one.plot(range(len(found["rate"])), found["corrected"], color="#6b6b6b", linestyle=":")
    one.set(title="d Ent/dt; dotted: the corrected bound", xlabel="layer")
    one.legend()
    for index, name in enumerate(FLOWS):
        course = np.array(measured[name]["entropy"])
        line(two, range(len(course)), course - course[0], name, index)
    two.set(title="entropy of the tokens since the start", xlabel="layer")
    two.legend()
    tokens = np.array(measured["blurring_mean_shift"]["tokens"])
    for token in range(tokens.shape[1]):
        three.plot(tokens[:, token, 0], tokens[:, token, 1], color="#8fbbdc", linewidth=0.5)
    three.plot(tokens[-1, :, 0], tokens[-1, :, 1], "o", color="#0b4a86", markersize=2)
    three.set_title("the way of 80 tokens")


EXPERIMENTS = (
    Experiment(
        "fl-entropy",
        "Theorem 2.1 and Figure 1: entropy of the tokens by layer, with the corrected sign",
        {
            "tiny": {"points": 400, "sets": 2, "layers": 6},
            "small": {"points": 2000, "sets": 20, "layers": 16},
            "full": {"points": 10_000, "sets": 100, "layers": 16},
        },
        measure,
        judge,
        draw,
    ),
)
