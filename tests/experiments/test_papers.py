"""docs/papers.md tells the truth: its commands run, its quotations are what they print, its map is what compiles.

And what the papers print, as algorithms written directly in NumPy, against the specs that stand for it.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pages import ROOT, Session, fenced, files, misquoted, requote, sessions, words
from weftc.api import check, interpret, load
from weftc.cli import main
from weftc.compiling import compile
from weftc.emit.matrices import Array
from weftc.files.locate import names
from weftc_runtime.data.results import OneHot

PATH = ROOT / "docs" / "papers.md"
PAGE = PATH.read_text(encoding="utf-8")
BLOCKS = fenced("docs/papers.md")
SESSIONS = sessions(BLOCKS)
NAMES = {*names(""), *names("papers")}
CONDITIONS = {"pairwise distinct": "distinct", "below a bound": "bounded", "margins": "margin"}


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files the page writes down, and the examples."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for name, text in files(BLOCKS).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


# ---- the page --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("session", SESSIONS, ids=str)
def test_commands_print_what_is_quoted(
    session: Session, workplace: Path, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    for line in session.before:
        assert main(words(line)) == 0
    capsys.readouterr()
    assert main(words(session.line)) == 0
    printed = capsys.readouterr().out
    if request.config.getoption("--update-golden"):
        requote(PATH, session, printed)
        return
    assert misquoted(session.quoted, printed) == "", "run `make docs` and read what changed"


def test_there_is_something_to_quote() -> None:
    assert len(SESSIONS) >= 15
    assert all(session.quoted for session in SESSIONS)


def rows() -> list[tuple[str, str]]:
    """The map: the cells about specs and about exactness."""
    table = PAGE[PAGE.index("## The map") : PAGE.index("The self-attention of `--erase")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line[:1] == "|"]
    return [(row[1], row[2]) for row in cells[2:]]


def commands(cell: str) -> list[list[str]]:
    """The specs of a cell with their styles; an option on its own belongs to the spec before it."""
    found: list[list[str]] = []
    for said in (shlex.split(quoted) for quoted in re.findall(r"`([^`]+)`", cell)):
        if said[0] in NAMES:
            found.append(said)
        elif found and said[0].startswith("--"):
            found.append([*found[-1], *said])
    return found


@pytest.mark.parametrize(("cell", "exact"), rows())
def test_the_map_states_the_conditions(cell: str, exact: str) -> None:
    """Every command of a row compiles, and its checkpoint keeps the conditions that the row names, and no others."""
    stated = {kind for phrase, kind in CONDITIONS.items() if phrase in exact}
    kept = set()
    for name, *options in commands(cell):
        styles: dict[str, Any] = dict(zip((o[2:] for o in options[::2]), options[1::2], strict=True))
        if "sharpness" in styles:
            styles["sharpness"] = float(styles["sharpness"])
        dims = {dim: size for dim, size in {"d": 2, "k": 3}.items() if dim in check(name).dims}
        kept |= {condition.kind for condition in compile(name, dims, **styles).program.conditions}
    assert kept == stated


def test_the_map_covers_every_row_of_the_table() -> None:
    named = {command[0] for cell, _ in rows() for command in commands(cell)}
    wanted = "lloyd lloyd_printed spherical_kmeans soft_kmeans soft_spherical_kmeans trimmed_normmax trimmed_kmeans"
    assert named >= {*wanted.split(), "robust_kmeans", "robust_softmax", "kmedoids", "sinkhorn_dual", "sphere_flow"}


# ---- the starred variants --------------------------------------------------------------------------------------------


def variants() -> dict[str, str]:
    """The spherical specs that the page describes by their update."""
    base = (ROOT / "specs" / "spherical_kmeans.weft").read_text(encoding="utf-8").partition("example")[0]
    update = next(line for line in base.splitlines() if line.lstrip().startswith("c[j]   ="))
    more = "param gamma = 1 > 0, tau = 90 in [0, 100), delta = 10 >= 0\nrandom g[i,j] : gumbel\n"
    table = re.findall(r"^\| ([\w -]+) \| `(c\[j\] = .*)` \|$", PAGE, re.M)
    return {name: base.replace(update, "  " + line) + more for name, line in table}


@pytest.mark.parametrize("scores", ["l2", "dot"])
@pytest.mark.parametrize("name", ["trimmed by norm-max", "trimmed by percentile", "robust", "medoids"])
def test_spherical_variants(name: str, scores: Any) -> None:
    text = variants()[name]
    points = np.random.default_rng(7).normal(size=(12, 3))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    start = points[:3]
    model = load(compile(text, {"d": 3, "k": 3}, layers=2, scores=scores))
    found, meant = model(x=points, c=start, seed=5), interpret(text, {"x": points, "c": start}, 2, seed=5)
    np.testing.assert_allclose(found["centers"].numpy(), meant["centers"], rtol=0, atol=1e-14)
    np.testing.assert_allclose(np.linalg.norm(found["centers"].numpy(), axis=1), 1, atol=1e-14)


# ---- what the papers print -------------------------------------------------------------------------------------------


def limit(scores: Array) -> Array:
    """The limit of softmax: even weights on the maximisers of every row."""
    best = scores == scores.max(axis=1, keepdims=True)
    weights: Array = best / best.sum(axis=1, keepdims=True)
    return weights


def printed_layer(x: Array, y: Array, c: Array) -> tuple[Array, Array]:
    """Equations 7 and 8 as they stand, tokens in rows."""
    k = len(c)
    nearest = limit(-np.sum((x[:, None] - c[None]) ** 2, axis=-1))
    itself = limit(-np.sum((x[:, None] - x[None]) ** 2, axis=-1))
    y = y + nearest @ np.eye(k) - itself @ y
    return y, c + limit(y.T) @ x - limit(np.eye(k)) @ c


def grid(rng: np.random.Generator) -> tuple[Array, Array]:
    """Distinct points of a small grid, with many ties, and centers some of which win none."""
    places = np.array([[a, b] for a in range(4) for b in range(4)], dtype=float)
    points = places[rng.permutation(16)[:9]]
    centers = np.concatenate([places[rng.permutation(16)[:3]], [[40.0, 40.0]]])
    return points, centers


@pytest.mark.parametrize("styles", [{}, {"erase": "attention"}, {"scores": "dot", "erase": "attention"}], ids=str)
def test_lloyd_printed_is_the_printed_layer(styles: dict[str, Any]) -> None:
    model = load(compile("lloyd_printed", {"d": 2, "k": 4}, **styles))
    rng = np.random.default_rng(11)
    shared = 0
    for _ in range(8):
        x, c = grid(rng)
        y, moved = printed_layer(x, np.zeros((len(x), 4)), c)
        found = model(x=x, c=c)
        np.testing.assert_array_equal(found["shares"].numpy(), y)
        np.testing.assert_allclose(found["centers"].numpy(), moved, rtol=0, atol=1e-14)
        np.testing.assert_allclose(moved[3], x.mean(axis=0), atol=1e-14)  # the empty cluster jumps to the mean
        shared += int((np.count_nonzero(y, axis=1) > 1).sum())
    assert shared > 5


@pytest.mark.parametrize("scores", ["l2", "dot"])
def test_the_erase_by_attention_equals_the_linear_one_on_distinct_points(scores: Any) -> None:
    x, c = grid(np.random.default_rng(2))
    one = load(compile("lloyd", {"d": 2, "k": 4}, layers=3, scores=scores, erase="linear"))(x=x, c=c)
    two = load(compile("lloyd", {"d": 2, "k": 4}, layers=3, scores=scores, erase="attention"))(x=x, c=c)
    assert np.array_equal(one["centers"].numpy(), two["centers"].numpy())
    assert isinstance(one["labels"], OneHot)
    assert one["labels"].indices.tolist() == two["labels"].indices.tolist()


# ---- flows -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("normalised", [True, False])
def test_flows_on_the_sphere(normalised: bool) -> None:
    """x <- norm(x + t P_x a), a the softmax mean or (1/N) sum_j e^{beta <x, x_j>} x_j."""
    x = np.random.default_rng(4).normal(size=(7, 3))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    beta, t = 1.5, 0.125
    kernel = np.exp(beta * x @ x.T)
    a = kernel @ x / (kernel.sum(axis=1, keepdims=True) if normalised else len(x))
    moved = x + t * (a - np.sum(a * x, axis=1, keepdims=True) * x)
    moved /= np.linalg.norm(moved, axis=1, keepdims=True)
    spec = "sphere_flow" if normalised else "energy_flow"
    found = load(compile(spec, {"d": 3}, {"beta": beta, "t": t}))(x=x)["points"].numpy()
    np.testing.assert_allclose(found, moved, rtol=0, atol=1e-14)


def test_the_flow_in_space_contracts() -> None:
    x = np.random.default_rng(4).normal(size=(7, 3))
    gamma, t = 0.5, 0.25
    kernel = np.exp(-gamma * np.sum((x[:, None] - x[None]) ** 2, axis=-1))
    moved = x + t * (kernel @ x / kernel.sum(axis=1, keepdims=True) - x)
    found = load(compile("blurring_mean_shift", {"d": 3}, {"t": t}))(x=x)["points"].numpy()
    np.testing.assert_allclose(found, moved, rtol=0, atol=1e-14)
    assert np.std(found) < np.std(x)
