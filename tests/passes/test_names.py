"""Every name that a spec may use works everywhere, also where torch or our own classes have something of that name."""

from __future__ import annotations

import copy
import importlib
import inspect
import pkgutil
import re

import numpy as np
import pytest
from torch import nn

import weftc
import weftc_runtime
from weftc.sklearn import WeftClusterer
from weftc_runtime import RunError
from weftc_runtime.data.hooks import HookSite, Named

SPEC = """algorithm {0}
tokens  i in {1}
        g in {2} : {3}
inputs  {4}[i] : R,  {5}[g] : R
param   {6} = 0.5
state   {7}[g] : R = 0
layer
  {7}[g] = mean[i] {4}[i]
  {8}[g] = {6} * {5}[g]
outputs {7}, {9}[g] = {8}[g]
"""
CLUSTERING = """algorithm {0}
tokens  i in {1}
        j in {2} : {3}
inputs  {4}[i] : R^{5},  {6}[j] : R^{5} init spread({4})
param   {7} = 1 > 0
layer
  {8}[i,j] = argmin[j] {7} * |{4}[i] - {6}[j]|^2
  then
  {6}[j] = mean[i] {4}[i] where {8}[i,j] else {6}[j]
outputs {9}[i,j] = {8}[i,j], {6}
objective mean[i] min[j] |{4}[i] - {6}[j]|^2
"""
ROLES = 10
TELLING = ["head", "attn", "streams", "at", "forward", "training", "self", "keys", "seed"]
POINTS = np.random.default_rng(0).normal(size=(12, 2))


def classes() -> list[type]:
    """All classes of the runtime."""
    found = []
    for module in pkgutil.walk_packages(weftc_runtime.__path__, "weftc_runtime."):
        members = vars(importlib.import_module(module.name)).values()
        found += [one for one in members if inspect.isclass(one) and one.__module__.startswith("weftc")]
    return found


def is_legal(name: str) -> bool:
    try:
        weftc.compile(SPEC.format(name, *(f"n{role}" for role in range(1, ROLES))), {"n3": 2})
    except weftc.WeftError:
        return False
    return True


def legal_names() -> list[str]:
    """What torch's modules and our classes call their own, as far as a spec may call something so."""
    found = {name for thing in (nn.Module(), *classes()) for name in (*dir(thing), *getattr(thing, "__slots__", ()))}
    model = weftc.load(weftc.compile("lloyd", {"d": 1, "k": 2}))
    found |= {name for module in model.modules() for name in (*dir(module), *vars(module))}
    assert {"forward", "training", "head", "attn", "streams", "_modules"} <= found
    return sorted(name for name in found if re.fullmatch("[A-Za-z][A-Za-z0-9_]*", name) and is_legal(name))


def test_every_name_of_torch_and_of_the_runtime_may_be_used_for_everything() -> None:
    names = legal_names()
    assert len(names) > 400
    for first in range(len(names)):
        used = [names[(first + role) % len(names)] for role in range(ROLES)]
        made = weftc.compile(SPEC.format(*used), {used[3]: 2})
        for backend in ("reference", "planned"):
            found = weftc.load(made, backend=backend)({used[4]: [1.0, 2.0], used[5]: [3.0, 4.0]})
            assert found[used[7]].tolist() == [1.5, 1.5], (used, backend)
            assert found[used[9]].tolist() == [1.5, 2.0], (used, backend)


@pytest.mark.parametrize("name", TELLING)
def test_a_name_works_in_hooks_traces_files_and_estimators(name: str) -> None:
    plain = [f"n{role}" for role in range(ROLES)]
    for role in range(ROLES):
        used = [*plain[:role], name, *plain[role + 1 :]]
        text = CLUSTERING.format(*used)
        model = weftc.load(weftc.compile(text, {used[3]: 3, used[5]: 2}))
        given, seen = {used[4]: POINTS}, []
        expected = model(given)[used[6]]
        sites = {path: site for path, site in model.named_modules() if isinstance(site, HookSite)}
        for path, site in sites.items():
            assert model.get_submodule(path) is site
            site.register_forward_hook(lambda _site, _given, _out, path=path, seen=seen: seen.append(path))
        assert bool((model(given)[used[6]] == expected).all())
        assert set(seen) >= {path for path in sites if path.startswith("blocks") and path.endswith("resid_pre")}
        assert model.trace(given, patterns=True).outputs[used[6]].equal(expected)
        assert set(model.advance(model.start(given), 0)) >= {used[4], used[6]}
        assert float(model.objective(given)) >= 0
        copied = copy.deepcopy(model)
        copied.load_state_dict(model.state_dict())
        assert copied(given)[used[6]].equal(expected)
        assert weftc.load(model.checkpoint())(given)[used[6]].equal(expected)
        estimator = WeftClusterer(text, n_clusters=3).fit(POINTS)
        assert set(estimator.predict(POINTS)) == {0, 1, 2}


def test_an_input_with_the_name_of_a_setting_is_given_in_a_mapping() -> None:
    text = "algorithm t\ntokens i in points\ninputs seed[i] : R\nlayer\n  y[i] = 2 * seed[i]\noutputs y\n"
    model = weftc.load(weftc.compile(text))
    assert model({"seed": [1.0, 2.0]}, seed=3)["y"].tolist() == [2.0, 4.0]
    with pytest.raises(RunError, match=r"input seed is missing; give model\({'seed': \.\.\.}\)"):
        model(seed=4)
    for name in ("progress", "until"):
        with pytest.raises(RunError, match=f"{name} is a list; it must be a function"):
            model({"seed": [1.0]}, **{name: [1.0]})


def test_an_input_may_be_called_self() -> None:
    text = "algorithm t\ntokens i in points\ninputs self[i] : R\nlayer\n  y[i] = 2 * self[i]\noutputs y\n"
    model = weftc.load(weftc.compile(text))
    assert model(**{"self": [1.0]})["y"].tolist() == [2.0]
    assert model.final(**{"self": [1.0]})["y"].tolist() == [2.0]


def test_names_that_look_alike_as_attributes_stay_apart() -> None:
    box = Named()
    names = ("forward", "_forward", "a.b", "a_b", "", "_", "_keys", "place")
    for name in names:
        box.place(name, HookSite())
    assert len({id(box.at(name)) for name in names}) == len(names)
    box.place("forward", nn.Parameter())
    assert len(box.state_dict()) == 1
    assert isinstance(box.at("forward"), HookSite)
