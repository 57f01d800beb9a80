"""Reports in a real browser: quiet, offline, usable by pointer and keyboard, on a phone, in the dark and on paper."""

from __future__ import annotations

import base64
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.browser

SPECS = ("lloyd", "soft_kmeans", "trimmed_kmeans", "sinkhorn_dual", "sort", "hopfield", "mean_shift", "sinkhorn_log")
Reports = Callable[[str], Path]
LIT = "return [...document.querySelectorAll('.lit')].map((e) => e.id || e.className)"


@pytest.mark.parametrize("spec", SPECS)
def test_quiet_offline_and_never_wider_than_the_window(browser: Any, report: Reports, spec: str) -> None:
    path = report(spec)
    for width in (1280, 768, 390, 320):
        browser.open(path, width)
        assert browser.overflow() <= 0, width
        assert browser.complaints() == []
        assert browser.requests() == ([path.as_uri()], [])
    assert browser.ask("return document.querySelectorAll('canvas, #plane svg, .chart svg').length") > 0


def test_the_policy_stops_foreign_script_and_requests(browser: Any, report: Reports) -> None:
    browser.open(report("lloyd"))
    browser.ask(
        "const s = document.createElement('img'); s.src = 'http://127.0.0.1:9/x.png'; document.body.append(s);"
        "const t = document.createElement('style'); t.textContent = 'body { display: none }'; document.body.append(t);"
    )
    assert browser.ask("return getComputedStyle(document.body).display") == "block"
    assert any("Content Security Policy" in text for text in browser.complaints())
    assert browser.requests()[1] == ["csp"]


def test_hostile_text_does_nothing(browser: Any, tmp_path: Path) -> None:
    import weftc
    from weftc.core.source import Source

    text = (Path(weftc.__file__).parents[2] / "specs" / "lloyd.weft").read_text(encoding="utf-8")
    evil = "# </script></style><img src=x onerror='document.title=1'><script>document.title=1</script>\n"
    path = tmp_path / "hostile.html"
    weftc.report(Source("evil", evil + text), [[0.0, 0.0], [1.0, 1.0], [5.0, 5.0]], path, dims={"k": 2}, verify=False)
    browser.open(path)
    assert browser.ask("return document.title") == "lloyd as a transformer"
    assert browser.ask("return document.images.length") == 0
    assert browser.complaints() == []


def test_slider_moves_everything(browser: Any, report: Reports) -> None:
    browser.open(report("lloyd"))
    state = (
        "return [document.getElementById('where').textContent,"
        " [...document.querySelectorAll('#plane .moved')].map((e) => e.style.transform).join(),"
        " [...document.querySelectorAll('#patterns canvas')].map((e) => e.toDataURL()).join(),"
        " [...document.querySelectorAll('#residuals canvas')].map((e) => e.toDataURL()).join(),"
        " [...document.querySelectorAll('.chart .now')].map((e) => e.getAttribute('x1')).join()]"
    )
    end = browser.ask(state)
    assert end[0] == "after layer 6 of 6"
    browser.ask("document.getElementById('slider').focus()")
    browser.keys("HOME")
    start = browser.ask(state)
    assert start[0] == "before the first layer"
    assert start[1] != end[1]
    browser.keys("ARROW_RIGHT")
    first = browser.ask(state)
    assert first[0] == "after layer 1 of 6"
    assert all(now != then for now, then in zip(first, end, strict=True))
    assert browser.ask("return document.getElementById('slider').getAttribute('aria-valuetext')") == first[0]
    assert browser.complaints() == []


def test_play_and_pause(browser: Any, report: Reports) -> None:
    browser.open(report("lloyd"))
    browser.ask("document.getElementById('play').focus()")
    browser.keys("ENTER")
    assert browser.ask("return document.getElementById('play').getAttribute('aria-label')") == "Pause"
    assert browser.ask("return document.getElementById('where').textContent") == "before the first layer"
    browser.driver.set_script_timeout(15)
    arrived = browser.driver.execute_async_script(
        "const done = arguments[0]; const watch = setInterval(() => {"
        " if (!document.getElementById('where').textContent.startsWith('after layer 2')) return;"
        " clearInterval(watch); done(true);"
        "}, 20);"
    )
    assert arrived
    browser.keys("ENTER")
    assert browser.ask("return document.getElementById('play').getAttribute('aria-label')") == "Play all layers"


def test_equations_light_up_their_heads_and_back(browser: Any, report: Reports) -> None:
    browser.open(report("lloyd"))
    browser.point_at(".eq")
    lit = browser.ask(LIT)
    assert "e0" in lit
    assert "part-0" in lit
    assert "part-1" not in lit
    assert any(name.startswith("pattern") for name in lit)
    browser.point_at("#part-1 h5")
    lit = browser.ask(LIT)
    assert {"e1", "part-1"} <= set(lit)
    assert "e0" not in lit
    browser.point_at("h1")
    assert browser.ask(LIT) == []


def test_equations_by_keyboard(browser: Any, report: Reports) -> None:
    browser.open(report("lloyd"))
    reached = []
    for _ in range(14):
        browser.keys("TAB")
        reached.append(browser.ask("return document.activeElement.id || document.activeElement.className"))
        if reached[-1] == "e0":
            break
    assert reached[0] == "skip"
    assert "theme" in reached
    assert reached[-1] == "e0"
    assert "part-0" in browser.ask(LIT)
    browser.keys("ENTER")
    assert browser.ask("return location.hash") == "#part-0"


def test_weights_can_be_read_by_pointer_and_keyboard(browser: Any, report: Reports) -> None:
    browser.open(report("lloyd"))
    browser.point_at("#patterns canvas")
    read = "return document.querySelector('#patterns .read').textContent"
    assert " looks at centers " in browser.ask(read)
    browser.ask("document.querySelector('#patterns canvas').focus()")
    before = browser.ask(read)
    browser.keys("ARROW_DOWN", "ARROW_RIGHT")
    assert browser.ask(read) != before


def test_theme_follows_the_system_and_the_button(browser: Any, report: Reports) -> None:
    paper = "return getComputedStyle(document.body).backgroundColor"
    browser.open(report("lloyd"))
    light = browser.ask(paper)
    browser.open(report("lloyd"), dark=True)
    dark = browser.ask(paper)
    assert light != dark
    browser.find("#theme").click()
    assert browser.ask(paper) == light
    assert browser.find("#theme").text == "Dark"
    browser.find("#theme").click()
    assert browser.ask(paper) == dark
    assert browser.complaints() == []


def test_text_has_contrast(browser: Any, report: Reports) -> None:
    """Every colour of text is at least 4.5 : 1 on paper and on sheets."""
    measure = """
      const parse = (text) => text.match(/[\\d.]+/g).slice(0, 3).map(Number);
      const light = (c) => { const [r, g, b] = c.map((v) => { v /= 255; return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; }); return .2126 * r + .7152 * g + .0722 * b; };
      const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((m, n) => n - m); return (x + .05) / (y + .05); };
      const probe = document.createElement('i'); document.body.append(probe);
      const value = (name) => { probe.style.color = `var(${name})`; return parse(getComputedStyle(probe).color); };
      const out = {};
      for (const ink of ['--ink', '--soft', '--accent', '--warm', '--good', '--bad'])
        for (const paper of ['--paper', '--sheet', '--wash', '--mark']) out[ink + paper] = ratio(value(ink), value(paper));
      return out;"""  # noqa: E501
    for dark in (False, True):
        browser.open(report("lloyd"), dark=dark)
        found = browser.ask(measure)
        assert min(found.values()) >= 4.5, sorted(found.items(), key=lambda one: one[1])[:4]


def test_named_things_for_those_who_do_not_see(browser: Any, report: Reports) -> None:
    browser.open(report("lloyd"))
    nameless = browser.ask(
        "return [...document.querySelectorAll('canvas, [role=img], button, input')].filter((e) =>"
        " !(e.getAttribute('aria-label') || e.textContent.trim() || (e.labels && e.labels.length))).length"
    )
    assert nameless == 0
    levels = browser.ask("return [...document.querySelectorAll('h1, h2, h3, h4, h5')].map((e) => Number(e.tagName[1]))")
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    small = browser.ask(
        "return [...document.querySelectorAll('button')].filter((e) => e.getBoundingClientRect().height < 24).length"
    )
    assert small == 0


def test_paper(browser: Any, report: Reports, tmp_path: Path) -> None:
    browser.open(report("lloyd"), width=700, dark=True)
    browser.command("Emulation.setEmulatedMedia", media="print", features=[])
    assert browser.overflow() <= 0
    assert browser.ask("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.ask("return getComputedStyle(document.querySelector('nav')).display") == "none"
    assert browser.ask("return getComputedStyle(document.getElementById('layers')).position") == "static"
    made = browser.command("Page.printToPDF", printBackground=True)
    pdf = base64.b64decode(made["data"])
    assert pdf.startswith(b"%PDF")
    assert pdf.count(b"/Type /Page\n") + pdf.count(b"/Type /Page ") >= 3
