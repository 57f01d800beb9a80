"""How far a plan is from the masses it should move, and a rule that ends a run when it is near enough."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from weftc.estimators.pairing import Matching

if TYPE_CHECKING:
    from weftc_runtime import Model
    from weftc_runtime.data.results import Fields

Floats = NDArray[np.float64]
EVERY = 10  # layers between two looks: one costs as much as a layer


def imbalance(plan: Floats, masses: tuple[Floats, Floats]) -> float:
    """How far the sums of rows or columns are from the masses: the larger of the two distances, in L1."""
    sides = (plan.sum(1), plan.sum(0))
    return max(float(np.abs(side - mass).sum()) for side, mass in zip(sides, masses, strict=True))


def scale(roles: Matching, plan: Floats) -> float:
    """What a plan is to be divided by: the spec may count 1 for every row instead of 1 in all."""
    total = float(plan.sum())
    if roles.masses != (None, None) or total <= 0:
        return 1.0
    return float(len(plan)) if abs(np.log(total / len(plan))) < abs(np.log(total)) else 1.0


class Balance:
    """Asked after every layer, it looks at the plan now and then; `model` tells the plan of stored fields."""

    def __init__(self, roles: Matching, model: Model, masses: tuple[Floats, Floats], tol: float) -> None:
        self.roles, self.model, self.masses, self.tol = roles, model, masses, tol
        self.asked = 0

    def __call__(self, before: Fields, after: Fields) -> bool:
        """Whether the plan is balanced."""
        self.asked += 1
        if self.asked % EVERY:
            return False
        answer = self.model({item.name: self._given(item, after) for item in self.model.program.inputs}, layers=0)
        plan = answer[self.roles.plan].detach().cpu().numpy().astype(np.float64)
        return imbalance(plan / scale(self.roles, plan), self.masses) <= self.tol

    def _given(self, item: Any, fields: Fields) -> Any:
        return fields[item.name][:, 0] if item.kind == "number" else fields[item.name]
