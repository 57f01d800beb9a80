"""The papers' printed constructions in specs/papers/: each is proved, and its examples hold."""

from __future__ import annotations

import numpy as np
import pytest

import weftc
from weftc.files.locate import builtin, names

SIZES = {"d": 1, "k": 2}


@pytest.mark.parametrize("name", names("papers"))
def test_every_construction_is_proved(name: str) -> None:
    checked = weftc.check(name)
    assert checked.spec.examples
    made = weftc.compile(name, {dim: SIZES[dim] for dim in checked.dims})
    verdict = weftc.verify(made, cases=1, dtypes=("float64",))
    assert verdict.verdict == "proved", str(verdict)


def test_they_are_found_by_name_and_listed_apart() -> None:
    assert {entry.name for entry in weftc.catalogue() if entry.subject == "papers"} == set(names("papers"))
    assert weftc.format(builtin("energy_flow").text) == builtin("energy_flow").text


def test_the_single_stream_does_what_two_streams_do() -> None:
    rng = np.random.default_rng(3)
    x = np.concatenate([rng.normal(size=(20, 2)), rng.normal(size=(20, 2)) + 9])[rng.permutation(40)]
    start = np.array([[1.0, 1.0], [8.0, 8.0]])
    tags, means = np.zeros((40, 2)), np.zeros((40, 2))
    tags[:2], means[:2] = np.eye(2), start
    labels = np.eye(2)[((x[:, None] - start) ** 2).sum(-1).argmin(1)]
    given = {"x": x, "p2": tags, "mu": means, "p1": labels}
    meant = weftc.load(weftc.compile("lloyd", {"d": 2, "k": 2}))(x=x, c=start, layers=1)["centers"].numpy()
    for name, tolerance in (("em_single_stream", 1e-5), ("em_plus_stream", 1e-13)):
        found = weftc.load(weftc.compile(name, {"d": 2, "k": 2}))(**given, layers=1)["centers"].numpy()
        np.testing.assert_allclose(found[:2], meant, atol=tolerance)
        assert not found[2:].any()


def test_the_spectral_start_finds_the_leading_directions() -> None:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(60, 4)) * [5.0, 3.0, 1.0, 0.5]
    start = np.linalg.qr(rng.normal(size=(4, 2)))[0].T
    found = weftc.load(weftc.compile("spectral_init", {"d": 4, "k": 2}))(x=x, w=start, layers=80)["directions"].numpy()
    meant = np.linalg.eigh(x.T @ x)[1][:, ::-1][:, :2].T
    np.testing.assert_allclose(np.abs(np.sum(found * meant, axis=1)), 1, atol=1e-9)
