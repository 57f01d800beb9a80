"""docs/styles.md is up to date: its table is what the compiler does now, and every style and choice is described.

`make docs` writes the table anew.
"""

from __future__ import annotations

import re

import pytest

from pages import ROOT, rewrite
from weft.effects import table
from weft.lowering.styles import CHOICES, Styles

PAGE = ROOT / "docs" / "styles.md"
MARKED = re.compile(r"(?<=<!-- effects: written by `make docs` -->\n).*?(?=<!-- /effects -->)", re.S)


def test_the_table_of_effects_is_what_compiles(request: pytest.FixtureRequest) -> None:
    text = PAGE.read_text(encoding="utf-8")
    fresh = f"\n{table()}\n\n"
    if request.config.getoption("--update-golden"):
        rewrite(PAGE, MARKED.sub(lambda _: fresh, text))
        return
    (shown,) = MARKED.findall(text)
    assert shown == fresh, "docs/styles.md is out of date; run `make docs` and read what changed"


@pytest.mark.parametrize("style", CHOICES)
def test_every_style_is_described(style: str) -> None:
    (paragraph,) = re.findall(rf"^\*\*{style}\*\* (.*?)\n\n", PAGE.read_text(encoding="utf-8"), re.S | re.M)
    opening = paragraph.partition(".")[0]
    assert re.findall(r"`(\w+)`", opening) == list(CHOICES[style])
    assert f"`{getattr(Styles(), style)}` (default)" in opening


def test_pages_link_to_what_exists() -> None:
    for page in (ROOT / "docs").glob("*.md"):
        text = page.read_text(encoding="utf-8")
        titles = re.findall(r"^#+ (.*)$", text, re.M)
        anchors = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
        prose = re.sub(r"`[^`]*`", "code", re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M))
        for target in re.findall(r"\]\(([^)]+)\)", prose):
            path, _, anchor = target.partition("#")
            assert not path or (page.parent / path).exists(), target
            assert path or anchor in anchors, target
