"""Runs that end when a layer changes little: every problem by itself, on every machine after the same layer."""

from __future__ import annotations

import numpy as np
import pytest

import weftc
from weftc_runtime.data.stopping import Limit, SmallChange
from weftc_runtime.errors import RunError

X = np.random.default_rng(3).normal(size=(4, 60, 2))
SPECS = {"lloyd": {}, "soft_kmeans": {"gamma": 1.5}}


def _layers(spec: str, rule: SmallChange, backend: str) -> list[int]:
    """How many layers a run takes, problem by problem: the loop that a user would write."""
    model = weftc.load(weftc.compile(spec, {"d": 2, "k": 3}, SPECS[spec]), backend=backend)
    found = []
    for x in X:
        before, ran = {"c": x[:3]}, 0
        while ran < 300:
            after = {"c": model(x=x, c=before["c"], layers=1)["centers"].numpy()}
            ran += 1
            change = float(np.square(after["c"] - before["c"]).sum())
            limit = rule.limits["c"]
            if change <= limit.most + limit.share * float(np.square(after["c"]).sum()):
                break
            before = after
        found.append(ran)
    return found


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("limit", [Limit(most=1e-3), Limit(share=1e-4)], ids=["most", "share"])
def test_a_run_ends_with_the_first_layer_that_changes_little(spec: str, limit: Limit) -> None:
    rule = SmallChange({"c": limit})
    wanted = _layers(spec, rule, "auto")
    assert len(set(wanted)) > 1
    made = weftc.compile(spec, {"d": 2, "k": 3}, SPECS[spec])
    for backend in ("auto", "planned", "reference"):
        model = weftc.load(made, backend=backend)
        model(x=X, c=X[:, :3], until=rule, until_stable=True)
        assert list(model.report.layers) == wanted, backend
        assert all(model.report.stable)
        alone = []
        for x in X:
            model(x=x, c=x[:3], until=rule, until_stable=True)
            alone += model.report.layers
        assert alone == wanted, backend


def test_without_kernels_joined_problems_end_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = SmallChange({"c": Limit(most=1e-3)})
    model = weftc.load(weftc.compile("soft_kmeans", {"d": 2, "k": 3}, SPECS["soft_kmeans"]))
    model(x=X, c=X[:, :3], until=rule, until_stable=True)
    wanted = model.report.layers
    monkeypatch.setattr("weftc_runtime.kernels.native.library._known", lambda: None)
    monkeypatch.setattr("weftc_runtime.machines.planned.library", lambda: None)
    monkeypatch.setattr("weftc_runtime.machines.native_machine.library", lambda: None)
    model(x=X, c=X[:, :3], until=rule, until_stable=True)
    assert model.report.layers == wanted


def test_a_field_that_is_none_is_named() -> None:
    model = weftc.load(weftc.compile("lloyd", {"d": 2, "k": 3}))
    with pytest.raises(RunError, match="until: centres is no stored field"):
        model(x=X[0], c=X[0, :3], until=SmallChange({"centres": Limit()}))
    with pytest.raises(RunError, match="name one"):
        model(x=X[0], c=X[0, :3], until=SmallChange({}))


def test_a_limit_of_nothing_is_a_run_until_stable() -> None:
    model = weftc.load(weftc.compile("lloyd", {"d": 2, "k": 3}))
    exact = model(x=X, c=X[:, :3], until_stable=True), model.report.layers
    small = model(x=X, c=X[:, :3], until=SmallChange({"c": Limit()}), until_stable=True), model.report.layers
    assert exact[0]["centers"].equal(small[0]["centers"])
    assert all(0 <= one - other <= 1 for one, other in zip(exact[1], small[1], strict=True))  # labels may still move
