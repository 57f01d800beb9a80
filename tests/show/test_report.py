"""Reports of every spec: well-formed, complete, small, offline, and without holes for what a spec does not have."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

import numpy as np
import pytest

import weftc
from report_pages import Page, check_page, ordinary_cases
from spec_texts import GOOD, SHIPPED
from weftc.core.errors import WeftError
from weftc_runtime import WeftRuntimeError

POINTS = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [8.0, 8.0], [9.0, 8.0], [8.0, 9.0], [20.0, 0.0]])


@pytest.fixture(scope="module")
def plain() -> str:
    return weftc.report("lloyd", {"x": POINTS, "c": [[1.0, 1.0], [7.0, 7.0]]}, verify=False)


@pytest.mark.parametrize("at", range(len(SHIPPED)), ids=[path.stem for path in SHIPPED])
def test_every_spec_has_a_page_without_holes(at: int) -> None:
    check_spec(SHIPPED[at], (1, 2, 5)[at % 3])


@pytest.mark.slow
@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
@pytest.mark.parametrize("width", [1, 2, 5])
def test_every_spec_and_invention_at_every_width(path: Path, width: int) -> None:
    check_spec(path, width)


def check_spec(path: Path, width: int) -> None:
    """A page of one spec, on a case that it accepts."""
    checked = weftc.check(path)
    fixed = {size for size in checked.sets.values() if isinstance(size, str)}
    dims = {name: 3 if name in fixed else width for name in checked.dims}
    for case in ordinary_cases(checked, dims):
        try:
            html = weftc.report(checked, dict(case.inputs), dims=dims, layers=2, verify=False)
            break
        except (WeftError, WeftRuntimeError):  # an input that the spec refuses
            continue
    else:
        pytest.fail("no case runs")
    page = check_page(html)
    data = page.data
    assert data["layers"] == [0, 1, 2]
    assert bool(data["objective"]) == (checked.spec.objective is not None)
    equations = [one.attributes["data-lines"] for one in page.of_class("eq")]
    assert len(equations) >= sum(len(step.equations) for step in checked.spec.steps)
    shown = {key for one in page.of_class("part") for key in one.attributes.get("data-lines", "").split()}
    assert shown <= set(equations)
    # figures for what is there, and none for what is not
    assert any(one.attributes.get("id") == "plane" for one in page.elements) == (data["plane"] is not None)
    assert ("Attention, head by head" in page.text) == bool(data["patterns"])
    for part in page.of_class("part"):
        assert part.text.strip()
    if width >= 3 and data["plane"]:
        assert "principal components" in page.text


def test_page_says_what_it_shows(plain: str) -> None:
    page = check_page(plain)
    assert page.named("h1")[0].text == "lloyd"
    assert "y[i,j] = argmin[j] |x[i] - c[j]|^2" in page.text
    assert "−|x − c|²" in page.text
    assert "⟨id(), y⟩ − 0.5 > 0" in page.text
    assert "the two coordinates, as they are" in page.text
    assert "without verification" in page.text
    svgs = [one for one in page.of_class("blocks")]
    assert len(svgs) >= 6
    assert all(one.attributes["role"] == "img" and one.attributes["aria-label"] for one in svgs)


def test_pictures_carry_slot_names_and_blocks(plain: str) -> None:
    page = check_page(plain)
    texts = [one.text for one in page.of_class("slot") if one.name == "text"]
    assert {"x", "y", "1", "c", "id()"} <= set(texts)
    cells = [one.text for one in page.of_class("cell")]
    assert "I" in cells
    assert "−0.5" in cells


def test_policy_names_the_style_and_the_script(plain: str) -> None:
    page = Page(plain)
    policy = next(m.attributes["content"] for m in page.named("meta") if "http-equiv" in m.attributes)
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    for rule, text in (("style-src", page.named("style")[0].text), ("script-src", page.named("script")[1].text)):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"
    assert plain.index("Content-Security-Policy") < plain.index("<style>")
    assert "innerHTML" not in plain
    assert not re.search(r"\beval\(|new Function|document\.write", plain)


def test_the_same_input_gives_the_same_bytes(plain: str) -> None:
    again = weftc.report("lloyd", {"x": POINTS, "c": [[1.0, 1.0], [7.0, 7.0]]}, verify=False)
    assert plain == again


def test_evidence_and_its_table() -> None:
    page = check_page(weftc.report("lloyd", POINTS, dims={"k": 2}, cases=2))
    evidence = page.by_id("evidence")
    assert "proved" in evidence.text
    assert "for all inputs" in evidence.text
    assert "your data" in evidence.text
    assert page.of_class("verdict")[0].attributes["class"] == "verdict good"


def test_a_model_that_does_not_compute_its_spec_is_told_so() -> None:
    made = weftc.compile("lloyd", dims={"d": 2, "k": 2})
    name = next(name for name in made.tensors if name.endswith("y.l2.0.c"))
    wrong = weftc.Checkpoint(
        made.program,
        {**made.tensors, name: np.array(1.0)},  # the farthest center instead of the nearest
        made.spec_name,
        made.spec_text,
        made.dims,
        made.params,
    )
    page = check_page(weftc.report(wrong, POINTS, layers=1, cases=2))
    assert page.of_class("verdict")[0].attributes["class"] == "verdict bad"
    assert "refuted" in page.by_id("evidence").text


def test_conditions_are_stated() -> None:
    page = check_page(weftc.report("lloyd", POINTS, dims={"k": 2}, layers=1, erase="attention", verify=False))
    assert "on condition that" in page.by_id("evidence").text
    assert "--erase attention" in page.text


def test_styles_unrolled_rotated_and_tempered_models() -> None:
    from weftc.variants.bases import rotated

    for options in (
        {"scores": "dot"},
        {"weights": "unrolled"},
        {"hardmax": "softmax"},
        {"null": "token", "scores": "dot"},
    ):
        check_page(weftc.report("trimmed_kmeans", POINTS, dims={"k": 2}, layers=2, verify=False, **options))
    turned = rotated(weftc.compile("lloyd", dims={"d": 2, "k": 2}))
    page = check_page(weftc.report(turned, POINTS, layers=2, verify=False))
    assert "basis of its own" in page.text
    assert "−|x − c|²" in page.text  # read through the basis


def test_zero_layers_and_a_single_point() -> None:
    page = check_page(weftc.report("lloyd", [[1.0, 2.0]], dims={"k": 1}, layers=1, verify=False))
    assert page.data["layers"] == [0, 1]
    page = check_page(weftc.report("sinkhorn_dual", {"x": POINTS, "y": POINTS}, layers=0, verify=False))
    assert page.data["layers"] == [0]
    assert "ran no layer" in page.text


def test_python_api(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    assert weftc.report("lloyd", POINTS, path, dims={"k": 2}, layers=1, verify=False) == path
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
    with pytest.raises(weftc.InputError, match="force"):
        weftc.report("lloyd", POINTS, path, dims={"k": 2}, verify=False)
    weftc.report("lloyd", POINTS, path, dims={"k": 2}, layers=1, verify=False, force=True)
    assert [one.name for one in tmp_path.iterdir()] == ["page.html"]
    with pytest.raises(weftc.InputError, match="no input z"):
        weftc.report("lloyd", {"z": POINTS}, dims={"k": 2}, verify=False)
    with pytest.raises(weftc.InputError, match="not both"):
        weftc.report("lloyd", POINTS, dims={"k": 2}, layers=1, until_stable=True, verify=False)
    with pytest.raises(weftc.InputError, match="not an array of numbers"):
        weftc.report("lloyd", [["a", "b"]], dims={"k": 2}, verify=False)
    told: list[str] = []
    weftc.report(
        "lloyd", POINTS, dims={"k": 2}, layers=1, verify=False, progress=lambda what, done, total: told.append(what)
    )
    assert told[:2] == ["layer", "layer"]
