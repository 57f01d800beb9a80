"""Runs in several threads: none waits for another for ever, none changes what others compute or how torch is set."""

from __future__ import annotations

import ast
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import weftc
from weftc_runtime import threads as workers

ROOT = Path(__file__).parents[2]
X = np.random.default_rng(0).normal(size=(2000, 2))


def all_at_once(tasks: list[Callable[[], None]], seconds: float = 60.0) -> None:
    """Runs tasks in a thread each; fails when one does not end, or raises."""
    faults: list[BaseException] = []

    def watched(task: Callable[[], None]) -> None:
        try:
            task()
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=watched, args=(task,), daemon=True) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds)
    assert not any(thread.is_alive() for thread in threads), "a thread waits for ever"
    assert not faults, faults


def cores_of_a_new_thread() -> int:
    found: list[int] = []
    all_at_once([lambda: found.append(torch.get_num_threads())])
    return found[0]


@pytest.mark.parametrize(
    ("spec", "dims"), [("lloyd", "dk"), ("soft_kmeans", "dk"), ("gmm_em_spherical", "dk"), ("mean_shift", "d")]
)
def test_models_in_threads_of_their_own_end_and_agree(spec: str, dims: str) -> None:
    made = weftc.compile(spec, {name: {"d": 2, "k": 3}[name] for name in dims}, layers=5)
    given = {item.name: X for item in made.program.inputs if item.init is None}
    models = [weftc.load(made, backend="planned") for _ in range(3)]
    before = {name: np.asarray(value) for name, value in models[0](given).items()}

    def work(model: weftc.Model) -> None:
        for _ in range(20):
            found = model(given)
            assert all(np.array_equal(np.asarray(found[name]), before[name]) for name in before)

    all_at_once([lambda model=model: work(model) for model in models])


def test_specs_compile_in_several_threads() -> None:
    all_at_once(
        [lambda spec=spec: weftc.compile(spec, {"d": 2, "k": 3}) for spec in ("lloyd", "gmm_em", "soft_kmeans")]
    )


def test_no_property_of_the_runtime_holds_a_lock_while_it_is_made() -> None:
    for path in (ROOT / "runtime" / "weftc_runtime").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            assert "cached_property" not in names, f"{path.name}: use weftc_runtime.kernels.reuse.once"


def test_runs_leave_the_number_of_cores_of_torch_as_it_was() -> None:
    before = cores_of_a_new_thread(), torch.get_num_threads()
    models = [weftc.load(weftc.compile("lloyd", {"d": 2, "k": 20}, layers=3), backend="planned") for _ in range(6)]
    inside = []

    def work(model: weftc.Model) -> None:
        for _ in range(3):
            model(x=np.repeat(X, 5, 0), c=X[:20], progress=lambda *_: inside.append(cores_of_a_new_thread()))

    all_at_once([lambda model=model: work(model) for model in models])
    assert (cores_of_a_new_thread(), torch.get_num_threads()) == before
    assert set(inside) == {before[0]}  # nor does a thread that starts during a run notice


def test_blocks_of_work_run_on_one_core_each_and_leave_no_trace() -> None:
    before = torch.get_num_threads()
    with workers.alone():
        assert torch.get_num_threads() == 1
        assert workers.cores() == before
        assert cores_of_a_new_thread() == before
    assert torch.get_num_threads() == before
