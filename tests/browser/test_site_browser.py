"""The built site (`make site`) in a real browser: quiet, offline, searchable, readable in the dark and on a phone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import weftc

pytestmark = pytest.mark.site

SITE = Path(weftc.__file__).parents[2] / "out" / "site"
PAGES = ("", "gallery/", "gallery/lloyd/", "docs/tutorial/", "docs/language/", "docs/papers/", "api/", "api/objects/",
         "docs/for/teaching/", "docs/glossary/", "CONTRIBUTING/", "specs/")  # fmt: skip
LUMINANCE = "return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number).reduce((a, b) => a + b)"


@pytest.fixture(scope="module")
def address(serve: Callable[[Path], str]) -> str:
    assert (SITE / "index.html").is_file(), "there is no site; make site builds it"
    return serve(SITE)


@pytest.mark.parametrize("page", PAGES)
def test_pages_are_quiet_and_load_nothing_from_elsewhere(browser: Any, address: str, page: str) -> None:
    for width in (1280, 390):
        browser.open(address + page, width)
        browser.until("return document.readyState === 'complete'")
        assert browser.complaints() == []
        asked, failed = browser.requests()
        assert all(url.startswith((address, "data:", "blob:")) for url in asked), asked
        assert failed == []
        assert browser.overflow() <= 0, width
        assert browser.ask("return [...document.images].every((i) => !i.complete || i.naturalWidth > 0)")


@pytest.mark.parametrize(
    ("word", "found"), [("sparsemax", "robust_kmeans"), ("certificate", "Glossary"), ("WeftClusterer", "Estimators")]
)
def test_search_finds(browser: Any, address: str, word: str, found: str) -> None:
    browser.open(address)
    browser.ask("document.querySelector('.md-search__input').focus()")
    browser.find(".md-search__input").send_keys(word)
    titles = "return [...document.querySelectorAll('.md-search-result__item h1')].map((e) => e.textContent)"
    browser.until(f"{titles}.length")
    seen = browser.ask(titles)
    assert any(found.lower() in title.lower() for title in seen), seen


def test_the_dark_is_dark_and_can_be_left(browser: Any, address: str) -> None:
    forget(browser, address)
    browser.open(address, dark=True)
    assert browser.ask(LUMINANCE) < 200
    browser.ask("document.querySelector('label.md-header__button[title*=\"light\"]').click()")
    browser.until(f"{LUMINANCE} > 600")
    forget(browser, address)


def forget(browser: Any, address: str) -> None:
    """Clears what the site keeps of a visit, from a page that keeps nothing itself."""
    browser.open(address + "assets/extra.css")
    browser.ask("localStorage.clear()")


def test_every_spec_has_its_page_and_opens_in_the_playground(browser: Any, address: str) -> None:
    browser.open(address + "gallery/")
    cards = browser.ask("return [...document.querySelectorAll('.grid.cards strong a')].map((a) => a.textContent)")
    assert cards == [entry.name for group in weftc.catalogue().groups().values() for entry in group]
    browser.open(address + "gallery/trimmed_kmeans/")
    assert "trimmed_kmeans: proved" in browser.ask("return document.body.textContent")
    browser.find("a.md-button").click()
    browser.until("return document.getElementById('text')?.value.includes('algorithm trimmed_kmeans')")
    browser.until("return !!state.run")
    assert browser.complaints() == []


def test_the_reference_shows_signatures_and_examples(browser: Any, address: str) -> None:
    browser.open(address + "api/")
    text = browser.ask("return document.querySelector('article').textContent")
    for name in ("compile", "interpret", "verify", "load", "match", "plot", "report"):
        assert f"{name}(" in text
    assert browser.ask("return document.querySelectorAll('article .language-pycon').length") >= 3
    assert browser.ask("return document.querySelectorAll('article blockquote').length") == 0
