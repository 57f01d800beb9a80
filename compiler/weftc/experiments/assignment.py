"""AS Figures 2 and 3 and its bounds: compiled gradient steps on the dual of entropy-regularised assignment.

The data are the paper's: y is the grid 1/n, 2/n, ..., 1, x a permutation of it, lambda = 0.005.
"""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from weftc.api import load
from weftc.compiling import compile
from weftc.experiments.drawing import key, level, line, logarithmic, panels, squares
from weftc.experiments.study import Experiment, Judgement, Measured, Study, sci
from weftc.files.locate import builtin

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from weftc_runtime import Model

LAMBDA = 0.005


STEPS = {"0.5 lambda (n + 1)": None, "0.02": 0.02}


@cache
def dual(gamma: float | None = None) -> Model:
    """The (n+1)-token transformer; without a step size, 0.5 lambda (n + 1), which it reads from the prompt."""
    text = builtin("sinkhorn_dual").text.replace("0.9 * lambda", "0.5 * lambda")
    params = {"lambda": LAMBDA} | ({"gamma": gamma} if gamma else {})
    return load(compile(text, {"d": 1}, params, scores="dot", centre="off", null="token"))


@cache
def log_domain() -> Model:
    return load(compile("sinkhorn_log", {"d": 1}, {"lambda": LAMBDA}))


@cache
def sorter() -> Model:
    return load(compile("sort"))


def task(n: int, seed: int) -> tuple[Any, Any]:
    """A permutation of the grid, and the grid."""
    grid = np.arange(1, n + 1)[:, None] / n
    return grid[np.random.default_rng(seed).permutation(n)], grid


def optimum(x: Any, y: Any) -> Any:
    """The regularised plan times n, by another library, in the log domain."""
    import ot

    even = np.full(len(x), 1 / len(x))
    plan = ot.bregman.sinkhorn_log(even, even, (x - y.T) ** 2, LAMBDA, numItermax=2000, stopThr=0, warn=False)
    return len(x) * plan


def rows(plan: Any) -> Any:
    """The attention matrix of equation 10: every row divided by its sum."""
    return plan / plan.sum(axis=1, keepdims=True)


# ---- by depth --------------------------------------------------------------------------------------------------------


def by_depth(n: int, gamma: float | None, depths: tuple[int, ...]) -> Measured:
    """After each number of layers: the largest entry of |n M - P*|, the rank of A, and A itself if it is small."""
    x, y = task(n, n)
    target = optimum(x, y)
    found = []
    for depth in depths:
        plan = np.asarray(dual(gamma)(x=x, y=y, layers=depth)["plan"])
        weights = rows(plan)
        keep = weights.round(6).tolist() if n == 8 and gamma is None else []
        rank = int(np.linalg.matrix_rank(weights, tol=1e-6))
        found.append({"depth": depth, "error": float(np.abs(plan - target).max()), "rank": rank, "weights": keep})
    rank = int(np.linalg.matrix_rank(target, tol=1e-6))
    return {"depths": found, "rank": rank, "optimum": target.round(6).tolist() if n == 8 else []}


def measure_converge(study: Study, size: dict[str, Any]) -> Measured:
    parts = {
        f"n = {n}, gamma = {told}": partial(by_depth, n, gamma, size["depths"])
        for n in size["n"]
        for told, gamma in STEPS.items()
    }
    return study.run(parts)


def judge_converge(measured: Measured) -> list[Judgement]:
    def at(n: int, depth: int) -> Measured:
        found = measured[f"n = {n}, gamma = 0.5 lambda (n + 1)"]["depths"]
        return next(one for one in found if one["depth"] == depth)

    sizes = sorted({int(label.split()[2].rstrip(",")) for label in measured})
    deep = max(one["depth"] for one in measured[f"n = 8, gamma = {next(iter(STEPS))}"]["depths"])
    told = ", ".join(f"n = {n}: {sci(at(n, deep)['error'])}" for n in sizes)
    ranks = {n: (at(n, deep)["rank"], measured[f"n = {n}, gamma = {next(iter(STEPS))}"]["rank"]) for n in sizes}
    by_depth = ", ".join(f"{sci(at(8, depth)['error'])} after {depth}" for depth in (1, 10, 50))
    return [
        Judgement("converge", f"largest error at n = 8: {by_depth} layers", at(8, 50)["error"] < 1e-9),
        Judgement("any-n", f"after {deep} layers, {told}", all(at(n, deep)["error"] < 1e-9 for n in sizes)),
        Judgement(
            "rank",
            ", ".join(f"n = {n}: {rank} (P*: {best})" for n, (rank, best) in ranks.items()),
            all(rank == best for rank, best in ranks.values()),
        ),
    ]


def draw_converge(figure: Figure, measured: Measured) -> None:
    left, right = cast(Any, figure.subfigures(1, 2, width_ratios=[1, 1.25]))
    axes = panels(left, 1, 1)[0]
    for index, (label, one) in enumerate(measured.items()):
        depths, dashed = [row["depth"] for row in one["depths"]], index % 2 == 1
        told = "_" if dashed else label.partition(",")[0]
        line(axes, depths, [max(row["error"], 1e-16) for row in one["depths"]], told, index // 2, dashed)
    axes.set(xlabel="layers", title="largest entry of |n M - P*| (dashed: gamma = 0.02)")
    logarithmic(axes)
    key(left, axes, 3)
    shown = measured["n = 8, gamma = 0.5 lambda (n + 1)"]
    picked = [row for row in shown["depths"] if row["depth"] in (1, 10, 50)]
    places = panels(right, 2, 2)
    for place, row in zip(places, picked, strict=False):
        squares(place, row["weights"], f"A, layer {row['depth']}")
    squares(places[len(picked)], shown["optimum"], "P*, n = 8")


# ---- sorting ---------------------------------------------------------------------------------------------------------


def sorting(n: int, lists: int, law: str) -> Measured:
    """One model for every n: uniform numbers, or the paper's grid, sorted by 200 layers."""
    rng, errors, increasing = np.random.default_rng(n), [], 0
    for _ in range(lists):
        numbers = rng.random(n) if law == "uniform" else (rng.permutation(n) + 1) / n
        found = np.asarray(sorter()(x=numbers)["sorted"]).ravel()
        errors.append(float(np.abs(found - np.sort(numbers)).max()))
        increasing += bool((np.diff(found) > 0).all())
    return {"n": n, "error": float(np.mean(errors)), "increasing": increasing, "lists": lists}


def measure_sort(study: Study, size: dict[str, Any]) -> Measured:
    parts = {f"{law} n={n}": partial(sorting, n, size["lists"], law) for law in ("grid", "uniform") for n in size["n"]}
    return study.run(parts)


def judge_sort(measured: Measured) -> list[Judgement]:
    grid = [one for label, one in measured.items() if label.startswith("grid")]
    free = [one for label, one in measured.items() if label.startswith("uniform")]
    ordered = sum(one["increasing"] for one in grid + free), sum(one["lists"] for one in grid + free)
    told = ", ".join(f"n = {one['n']}: {sci(one['error'])}" for one in grid)
    return [
        Judgement("sorts", f"{ordered[0]} of {ordered[1]} lists come out increasing", ordered[0] == ordered[1]),
        Judgement("blur", f"mean largest error on the grid, {told}", all(one["error"] < LAMBDA**0.5 for one in grid)),
    ]


def draw_sort(figure: Figure, measured: Measured) -> None:
    (axes,) = panels(figure, 1, 1)
    for index, law in enumerate(("grid", "uniform")):
        found = [one for label, one in measured.items() if label.startswith(law)]
        line(
            axes,
            [one["n"] for one in found],
            [one["error"] for one in found],
            f"{law}: mean of the largest error",
            index,
        )
    sizes = [one["n"] for one in found]
    line(axes, sizes, [1 / n for n in sizes], "1/n, the distance of neighbours", 6, dashed=True)
    level(axes, LAMBDA**0.5, "root of lambda")
    axes.set(xlabel="n", title="sorting by one transformer of 200 layers")
    logarithmic(axes)
    key(figure, axes)


# ---- bounds ----------------------------------------------------------------------------------------------------------


def spread(p: Any, q: Any) -> float:
    """The paper's metric (12) of positive vectors: log of the largest ratio of ratios."""
    ratio = np.log(p) - np.log(q)
    return float(ratio.max() - ratio.min())


def lemmas(n: int, trials: int) -> Measured:
    """Propositions E.1 and E.2 on almost doubly stochastic matrices: the largest share of each bound reached."""
    rng, one, two = np.random.default_rng(n), 0.0, 0.0
    for _ in range(trials):
        plan = np.full((n, n), 1 / n**2) * np.exp(rng.normal(scale=0.3, size=(n, n)))
        for _ in range(200):  # doubly stochastic, marginals 1/n
            plan /= n * plan.sum(axis=1, keepdims=True)
            plan /= n * plan.sum(axis=0, keepdims=True)
        plan = plan * np.exp(rng.normal(scale=10 ** rng.uniform(-3, -0.5) / n, size=(n, 1)))
        plan = plan * np.exp(rng.normal(scale=10 ** rng.uniform(-3, -0.5) / n, size=(1, n)))
        eps = defect(plan)
        if not eps < 1 / (3 * n):
            continue
        scale = 1 / (n * plan.sum(axis=0))  # f of the paper: columns normalised
        one = max(one, defect(plan * scale) / (3 * eps))
        two = max(two, spread(np.ones(n), scale) / (4 * n * eps))
    return {"E1": one, "E2": two}


def defect(plan: Any) -> float:
    """The smallest eps for which a matrix is in the paper's S_eps; the norm is the largest entry, as in its proof."""
    n = len(plan)
    return float(max(np.abs(plan.sum(axis=1) - 1 / n).max(), np.abs(plan.sum(axis=0) - 1 / n).max()))


def depth_law(n: int, depths: tuple[int, ...]) -> Measured:
    """Theorem 5.1 beside what is measured: distance in the paper's metric by depth, and the log-domain sweep's."""
    x, y = task(n, n)
    even = np.full(n, 1 / n)
    solved = log_domain()(x=x, y=y, a=even, b=even, layers=4000)
    best = {"u": np.asarray(solved["f"]) / LAMBDA, "v": np.asarray(solved["g"]) / LAMBDA}
    reach = 2 * LAMBDA * float(np.linalg.norm(np.concatenate([best["u"], best["v"]])))
    found = []
    for depth in depths:
        step, sweep = dual()(x=x, y=y, layers=depth), log_domain()(x=x, y=y, a=even, b=even, layers=depth)
        far = [
            max(_apart(np.asarray(out[one]) / LAMBDA, best[two]) for one, two in zip(names, "uv", strict=True))
            for out, names in ((step, "uv"), (sweep, "fg"))
        ]
        plans = [np.asarray(step["plan"]), n * np.asarray(sweep["plan"])]
        off = [float(np.abs(plan - n * np.asarray(solved["plan"])).max()) for plan in plans]
        row = {"depth": depth, "dual": far[0], "log": far[1], "dual plan": off[0], "log plan": off[1]}
        found.append({**row, "defect": defect(plans[0] / n)})
    # log10 of the depth that Theorem 5.1 asks for, 64 n^3 exp(3 r / lambda) r, and of Lemma E.3's bound at each depth
    needed = np.log10(64 * n**3 * reach) + 3 * reach / LAMBDA / np.log(10)
    bounds = [0.5 * (np.log10(2 / depth) + np.log10(3 * n) + 4 * reach / LAMBDA / np.log(10)) for depth in depths]
    return {"n": n, "depths": found, "reach": reach, "needed": float(needed), "bounds": [float(b) for b in bounds]}


def _apart(p: Any, q: Any) -> float:
    difference = p - q
    return float(difference.max() - difference.min())


def measure_bounds(study: Study, size: dict[str, Any]) -> Measured:
    parts: dict[str, Any] = {f"depth n={n}": partial(depth_law, n, size["depths"]) for n in size["n"]}
    parts |= {f"lemmas n={n}": partial(lemmas, n, size["trials"]) for n in size["n"]}
    return study.run(parts)


def judge_bounds(measured: Measured) -> list[Judgement]:
    laws = [one for label, one in measured.items() if label.startswith("depth")]
    lemma = [one for label, one in measured.items() if label.startswith("lemmas")]
    below = all(
        np.log10(max(row["defect"], 1e-300)) <= bound
        for one in laws
        for row, bound in zip(one["depths"], one["bounds"], strict=True)
    )
    reached = {kind: _first(laws, kind) for kind in ("dual", "dual plan", "log plan")}
    needed = ", ".join(f"n = {one['n']}: 10^{one['needed']:.0f}" for one in laws)
    return [
        Judgement(
            "E1", f"at most {max(one['E1'] for one in lemma):.2f} of the bound", max(one["E1"] for one in lemma) <= 1
        ),
        Judgement(
            "E2", f"at most {max(one['E2'] for one in lemma):.2f} of the bound", max(one["E2"] for one in lemma) <= 1
        ),
        Judgement("E3", "the measured defect is below the bound at every depth", below),
        Judgement(
            "depth",
            f"layers to 1e-6 in the plan: {_depths(reached['dual plan'])}; in metric (12): {_depths(reached['dual'])}; "
            f"the theorem asks for {needed}",
            all(np.log10(reached["dual plan"][one["n"]] or np.inf) <= one["needed"] for one in laws),
        ),
        Judgement(
            "log-domain",
            f"sweeps to 1e-6 in the plan: {_depths(reached['log plan'])}",
            _sooner(reached["log plan"], reached["dual plan"]),
        ),
    ]


def _first(laws: list[Measured], kind: str) -> dict[int, int | None]:
    """By n, the first depth at which a distance is below 1e-6."""
    return {one["n"]: next((row["depth"] for row in one["depths"] if row[kind] < 1e-6), None) for one in laws}


def _depths(found: dict[int, int | None]) -> str:
    return ", ".join(f"n = {n}: {depth or 'not reached'}" for n, depth in found.items())


def _sooner(one: dict[int, int | None], two: dict[int, int | None]) -> bool:
    return all((one[n] or 10**9) <= (two[n] or 10**9) for n in one)


def draw_bounds(figure: Figure, measured: Measured) -> None:
    laws = [one for label, one in measured.items() if label.startswith("depth")]
    for axes, one in zip(panels(figure, 1, len(laws)), laws, strict=True):
        depths = [row["depth"] for row in one["depths"]]
        for index, (kind, told) in enumerate((("dual", "dual steps"), ("log", "log-domain sweeps"))):
            line(axes, depths, [max(row[kind], 1e-16) for row in one["depths"]], f"{told}: metric (12)", index)
            line(axes, depths, [max(row[f"{kind} plan"], 1e-16) for row in one["depths"]], f"{told}: plan", index, True)
        axes.set(xlabel="layers", title=f"n = {one['n']}; the theorem asks for 10^{one['needed']:.0f}")
        logarithmic(axes)
    key(figure, axes)
    figure.axes[0].set_ylabel("distance to the optimum")


DEPTHS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
EXPERIMENTS = (
    Experiment(
        "as-converge",
        "Figures 2 and 3: attention of one compiled transformer against the regularised optimum, by depth and n",
        {
            "tiny": {"n": (4, 8, 16), "depths": (1, 10, 50)},
            "small": {"n": (4, 8, 16, 32, 80), "depths": (*DEPTHS[:8], 1000)},
            "full": {"n": (4, 8, 16, 32, 80), "depths": DEPTHS},
        },
        measure_converge,
        judge_converge,
        draw_converge,
        (6.9, 3.4),
    ),
    Experiment(
        "as-sort",
        "One transformer sorts lists of any length",
        {
            "tiny": {"n": (5, 10), "lists": 3},
            "small": {"n": (5, 10, 20, 40, 80), "lists": 20},
            "full": {"n": (5, 10, 20, 40, 80, 160, 320), "lists": 100},
        },
        measure_sort,
        judge_sort,
        draw_sort,
    ),
    Experiment(
        "as-bounds",
        "Lemma E.3, Propositions E.1 and E.2 and Theorem 5.1 beside what is measured",
        {
            "tiny": {"n": (4, 8), "depths": (1, 2, 10, 50), "trials": 100},
            "small": {"n": (4, 8, 16), "depths": DEPTHS, "trials": 3000},
            "full": {"n": (4, 8, 16, 32), "depths": DEPTHS, "trials": 30_000},
        },
        measure_bounds,
        judge_bounds,
        draw_bounds,
    ),
)
