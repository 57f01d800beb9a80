"""AS Figures 1 and 4: the transformer of equation 9 trained to sort seven numbers, then shown eight and nine."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from weftc.experiments.drawing import bars, key, logarithmic, panels, squares
from weftc.experiments.study import Experiment, Judgement, Measured, Study, sci
from weftc.experiments.trained_models import AssignmentTransformer, single

if TYPE_CHECKING:
    from matplotlib.figure import Figure

N = 7
RUNS = {  # label -> the law of x, the prompt, the start
    "printed law, engineered prompt": ("grid", "engineered", "random"),
    "printed law, bare prompt": ("grid", "bare", "random"),
    "uniform x, engineered prompt": ("uniform", "engineered", "random"),
    "uniform x, bare prompt": ("uniform", "bare", "random"),
    "uniform x, compiled start": ("uniform", "engineered", "compiled"),
}


def problems(rng: np.random.Generator, many: int, n: int, law: str) -> tuple[Any, Any, Any, Any]:
    """x, y, the answer (x in the order of y), and which x each y gets."""
    grid = np.arange(1, n + 1) / n
    x = np.stack([rng.permutation(grid) for _ in range(many)]) if law == "grid" else rng.random((many, n))
    order = x.argsort(axis=1)
    return x, np.tile(grid, (many, 1)), np.take_along_axis(x, order, axis=1), np.eye(n)[order]


def prompt(x: Any, y: Any, kind: str) -> Tensor:
    """Equation 8 with its extra token, or equation 14: x and y alone."""
    many, n = x.shape
    z = np.zeros((many, n + (kind == "engineered"), 11))
    z[:, :n, 0], z[:, :n, 1] = x, y
    if kind == "engineered":
        z[:, :n, 2], z[:, :n, 3], z[:, :n, 4:8], z[:, n, 7] = x**2, y**2, 1.0, -1 / n
    return single(z)


def train(law: str, kind: str, start: str, steps: int, looks: tuple[int, ...]) -> Measured:
    """Adam on 1,000 lists of seven numbers; what the model does on new lists after each number of steps in `looks`."""
    rng = np.random.default_rng(0)
    model = AssignmentTransformer.compiled(N, 0.02) if start == "compiled" else AssignmentTransformer()
    data = problems(rng, 1000, N, law)
    optimiser = torch.optim.Adam(model.parameters(), 1e-3)
    found = {}
    for step in range(steps + 1):
        if step in looks or step == steps:
            found[str(step)] = {str(n): look(model, n, law, kind) for n in (7, 8, 9)}
        if step < steps:
            some = rng.integers(1000, size=100)
            x, y, answer, _ = (one[some] for one in data)
            loss = ((model(prompt(x, y, kind), N)[0] - single(answer)) ** 2).mean()
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
    return {"steps": steps, "found": found}


def look(model: AssignmentTransformer, n: int, law: str, kind: str) -> Measured:
    """Error of the answer, and how far the last attention is from the assignment and from the identity (rows, l1)."""
    x, y, answer, chosen = problems(np.random.default_rng(99), 200, n, law)
    with torch.no_grad():
        told, seen = model(prompt(x, y, kind), n)
    last = np.asarray(seen[-1])
    return {
        "error": float(((np.asarray(told) - answer) ** 2).mean()),
        "copying y": float(((y - answer) ** 2).mean()),
        "to assignment": float(np.abs(last - chosen).sum((1, 2)).mean() / n),
        "to identity": float(np.abs(last - np.eye(n)).sum((1, 2)).mean() / n),
        "attention": last[0].round(4).tolist() if n == 8 else [],
        "assignment": chosen[0].tolist() if n == 8 else [],
    }


def measure(study: Study, size: dict[str, Any]) -> Measured:
    return study.run(
        {
            label: partial(train, *how, size["compiled" if how[2] == "compiled" else "random"], size["looks"])
            for label, how in RUNS.items()
            if size["all"] or how[:2] == ("uniform", "engineered")
        }
    )


def judge(measured: Measured) -> list[Judgement]:
    end = {label: one["found"][str(one["steps"])] for label, one in measured.items()}
    made = []
    if "printed law, engineered prompt" in end:
        full, bare = end["printed law, engineered prompt"], end["printed law, bare prompt"]
        near = ", ".join(f"n = {n}: {full[n]['to assignment']:.2f}" for n in ("7", "8", "9"))
        made.append(Judgement("ten-steps", *_ten(measured["printed law, engineered prompt"])))
        made.append(
            Judgement(
                "attention",
                f"rows of the last attention off by (of at most 2) {near}",
                max(full[n]["to assignment"] for n in ("8", "9")) < 0.5,
            )
        )
        told = f"error {sci(full['8']['error'])} with it, {sci(bare['8']['error'])} without (n = 8)"
        made.append(Judgement("prompt", told, full["8"]["error"] < 0.5 * bare["8"]["error"]))
        copied = max(full[n]["copying y"] for n in full)
        made.append(
            Judgement("task", f"copying y, without looking at x, has error {copied:.1g} for every n", copied > 1e-12)
        )
        free, plain = end["uniform x, engineered prompt"], end["uniform x, bare prompt"]
        told = f"error {sci(free['8']['error'])} with it, {sci(plain['8']['error'])} without (uniform x, n = 8)"
        made.append(Judgement("prompt-uniform", told, free["8"]["error"] < 0.9 * plain["8"]["error"]))
    best, learned = end["uniform x, compiled start"], end["uniform x, engineered prompt"]
    steps = [measured[f"uniform x, {which}"]["steps"] for which in ("compiled start", "engineered prompt")]
    told = ", ".join(f"n = {n}: {sci(best[n]['error'])} and {sci(learned[n]['error'])}" for n in best)
    better = all(best[n]["error"] < learned[n]["error"] for n in best)
    made.append(
        Judgement("start", f"{steps[0]} steps from the compiled weights, {steps[1]} from random ones: {told}", better)
    )
    return made


def _ten(run: Measured) -> tuple[str, bool]:
    ten, last = run["found"].get("10"), run["found"][str(run["steps"])]
    if ten is None:
        return "not looked at", False
    told = f"error {sci(ten['8']['error'])} after 10 steps, {sci(last['8']['error'])} after {run['steps']} (n = 8)"
    return told, ten["8"]["error"] < 2 * last["8"]["error"]


def draw(figure: Figure, measured: Measured) -> None:
    upper, lower = figure.subfigures(2, 1)  # type: ignore[misc]
    end = {label: one["found"][str(one["steps"])] for label, one in measured.items()}
    (axes,) = panels(upper, 1, 1)
    bars(
        axes,
        [f"n = {n}" for n in (7, 8, 9)],
        {label: [one[str(n)]["error"] for n in (7, 8, 9)] for label, one in end.items()},
    )
    axes.set_title("mean squared error of the sorted list")
    logarithmic(axes, "y")
    key(upper, axes, 3)
    places = panels(lower, 1, len(end) + 1)
    for place, (label, one) in zip(places, end.items(), strict=False):
        squares(place, one["8"]["attention"], label.replace(", ", ",\n"))
    squares(places[-1], next(reversed(end.values()))["8"]["assignment"], "the assignment,\nuniform x")


EXPERIMENTS = (
    Experiment(
        "as-train",
        "Figures 1 and 4: trained on seven numbers, shown eight and nine; engineered and bare prompts, compiled start",
        {
            "tiny": {"random": 30, "compiled": 3, "looks": (), "all": False},
            "small": {"random": 2000, "compiled": 100, "looks": (10, 100), "all": True},
            "full": {"random": 20_000, "compiled": 1000, "looks": (10, 100, 1000), "all": True},
        },
        measure,
        judge,
        draw,
        (6.9, 4.6),
    ),
)
