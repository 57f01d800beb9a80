"""Every experiment by name; the module of each is loaded when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weftc.experiments.study import Experiment

MODULES = {
    "kt-fig3": "temperature",
    "kt-fig4": "temperature",
    "kt-table1": "table1",
    "as-converge": "assignment",
    "as-sort": "assignment",
    "as-bounds": "assignment",
    "as-train": "assignment_learned",
    "em-laws": "single_stream",
    "em-train": "clustering_learned",
    "fl-baselines": "flow_learned",
    "fl-train": "flow_learned",
    "fl-schedules": "flow_learned",
    "fl-entropy": "entropy",
}
NAMES = tuple(MODULES)


def find(name: str) -> Experiment:
    """The experiment of a name."""
    found: tuple[Experiment, ...] = import_module(f"weftc.experiments.{MODULES[name]}").EXPERIMENTS
    return next(one for one in found if one.name == name)
