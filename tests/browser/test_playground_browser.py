"""The playground in a real browser: Weft, NumPy and Python run in the page, and say what they say elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weftc
from weftc.editor import playground

pytestmark = pytest.mark.site

ROOT = Path(weftc.__file__).parents[2]
CHECKED = "return /problem/.test(document.getElementById('status').textContent)"
RAN = "return !!state.run && document.getElementById('failed').hidden"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory, serve: Callable[[Path], str]) -> str:
    """The playground, bundled from the sources as they are and served from this machine."""
    sys.path.insert(0, str(ROOT / "website"))
    from bundle import bundle

    folder = tmp_path_factory.mktemp("site")
    bundle(folder / "playground", ROOT / "out" / "npm")
    return serve(folder) + "playground/"


@pytest.fixture
def page(browser: Any, address: str) -> Any:
    browser.open(address)
    browser.driver.set_script_timeout(120)
    browser.until(RAN)
    return browser


def text_of(spec: str) -> str:
    return (ROOT / "specs" / f"{spec}.weft").read_text(encoding="utf-8")


def write(page: Any, text: str) -> None:
    """Puts a text into the editor, as pasting does."""
    page.ask(
        "const t = document.getElementById('text'); t.value = arguments[0];"
        "document.getElementById('status').textContent = ''; t.dispatchEvent(new Event('input'))",
        text,
    )
    page.until(CHECKED)


def test_it_starts_offline_and_quiet(page: Any, address: str) -> None:
    assert page.complaints() == []
    asked, failed = page.requests()
    assert all(url.startswith((address, "data:", "blob:")) for url in asked), asked
    assert failed == []
    assert page.ask("return document.getElementById('text').value") == text_of("lloyd")
    assert page.ask("return document.getElementById('specs').options.length") == len(weftc.catalogue())
    assert page.ask("return document.querySelectorAll('#patterns canvas').length") == 2


@pytest.mark.parametrize("spec", ["lloyd", "sinkhorn_log", "trimmed_kmeans"])
def test_the_browser_computes_what_python_computes(page: Any, spec: str) -> None:
    asks = playground.checked_text(text_of(spec))["asks"]
    draw = np.random.default_rng(1)
    points = {brush["field"]: draw.normal(size=(20, 2)).tolist() for brush in asks["brushes"]}
    found = page.await_("ask('ran', arguments[0], arguments[1], {}, {}, 4, 7)", text_of(spec), points)
    here = playground.ran(text_of(spec), points, {}, {}, 4, 7)
    for theirs, ours in zip(found["frames"], here["frames"], strict=True):
        assert theirs["fields"].keys() == ours["fields"].keys()
        for name, value in ours["fields"].items():
            assert np.allclose(theirs["fields"][name], value, rtol=1e-12, atol=1e-13), name  # exp is the platform's own
    if spec == "lloyd":
        assert found["frames"][-1]["fields"] == here["frames"][-1]["fields"]  # nothing but exact sums: the same bits


def test_every_spec_of_the_menu_runs(page: Any) -> None:
    for entry in weftc.catalogue():
        page.ask("state.run = null; location.hash = arguments[0]", entry.name)
        page.until(f"return /^algorithm {entry.name}\\b/m.test(document.getElementById('text').value)")
        page.until(RAN)
        assert page.ask("return document.getElementById('problems').children.length") == 0, entry.name
    assert page.complaints() == []


def test_mistakes_are_shown_as_they_are_typed(page: Any) -> None:
    write(page, text_of("lloyd").replace("argmin", "argmn"))
    assert "did you mean 'argmin'?" in page.ask("return document.getElementById('problems').textContent")
    assert page.ask("return document.querySelector('#colours .wrong').textContent") == "argmn"
    assert page.ask("return document.getElementById('status').textContent") == "1 problem"
    write(page, text_of("lloyd"))
    assert page.ask("return document.getElementById('problems').children.length") == 0
    write(page, (ROOT / "tests" / "refusals" / "decision_not_exact.weft").read_text(encoding="utf-8"))
    page.until("return /error\\[L/.test(document.getElementById('problems').textContent)")


def test_words_are_offered_and_taken(page: Any) -> None:
    write(page, text_of("lloyd").replace("argmin[j] |x[i] - c[j]|^2    #", "#"))
    page.ask(
        "const t = document.getElementById('text'); t.focus();"
        "const at = t.value.indexOf('y[i,j] = ') + 9; t.setSelectionRange(at, at)"
    )
    page.driver.switch_to.active_element.send_keys("argmi")
    page.until("return !document.getElementById('offers').hidden")
    assert page.ask("return document.querySelector('#offers li').firstChild.textContent") == "argmin"
    page.keys("TAB")
    assert "y[i,j] = argmin#" in page.ask("return document.getElementById('text').value").replace(" #", "#")


def test_points_are_drawn_removed_and_cleared(page: Any) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    count = "return state.drawn.x.length"
    page.find("#erase").click()
    assert page.ask(count) == 0
    page.until("return !document.getElementById('failed').hidden")  # no points: said, not shown as a stack
    plane = page.find("#plane")
    for dx, dy in ((-120, -60), (80, 40), (100, -80)):
        ActionChains(page.driver).move_to_element_with_offset(plane, dx, dy).click().perform()
    assert page.ask(count) == 3
    page.until(RAN)
    assert page.ask("return state.run.frames.at(-1).fields.x.length") == 3
    ActionChains(page.driver).move_to_element_with_offset(plane, 80, 40).click().perform()
    assert page.ask(count) == 2
    drag = ActionChains(page.driver).move_to_element_with_offset(plane, -150, 0).click_and_hold()
    drag.move_by_offset(100, 30).move_by_offset(100, 30).release().perform()
    assert page.ask(count) >= 4


def test_the_slider_shows_each_layer(page: Any) -> None:
    seen = []
    for layer in (0, 1, 8):
        page.ask(
            "const s = document.getElementById('layer'); s.value = arguments[0]; s.dispatchEvent(new Event('input'))",
            layer,
        )
        seen.append(
            page.ask("return [where.textContent, objective.textContent, document.getElementById('plane').toDataURL()]")
        )
    assert [words for words, _, _ in seen] == ["layer 0", "layer 1", "layer 8"]
    assert len({objective for _, objective, _ in seen}) >= 2
    assert len({picture for _, _, picture in seen}) >= 2
    page.find("#play").click()
    page.until("return document.getElementById('where').textContent === 'layer 2'")


def test_matrices_are_those_of_the_compiler(page: Any) -> None:
    page.find("#tab-matrices").click()
    shown = page.until("return document.querySelector('#matrices pre')?.textContent")
    assert shown == playground.matrices(text_of("lloyd"), {}, {})["text"]


@pytest.mark.parametrize("width", [390, 320])
def test_on_a_phone_nothing_is_wider_than_the_screen(page: Any, address: str, width: int) -> None:
    page.open(address + "#gmm_em", width)
    page.until(RAN)
    assert page.overflow() <= 0
    page.find("#tab-matrices").click()
    page.until("return document.querySelector('#matrices pre')?.textContent")
    assert page.overflow() <= 0
    sizes = page.ask("return [...document.querySelectorAll('button')].map((b) => b.getBoundingClientRect().height)")
    assert min(sizes) >= 32  # a thumb hits it


def test_a_link_carries_the_text(page: Any, address: str) -> None:
    own = text_of("lloyd").replace("algorithm lloyd", "algorithm mine")
    write(page, own)
    page.find("#link").click()
    page.until("return location.hash.startsWith('#=')")
    link = page.ask("return location.href")
    page.open(link)
    page.until(RAN)
    assert page.ask("return document.getElementById('text').value") == own
    assert page.complaints() == []
