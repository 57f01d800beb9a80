"""Pages as tests read them: elements, texts, links and the data block, by the standard library's parser."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

import numpy as np

from weftc.core.types import Checked
from weftc.show.page.page import LARGEST
from weftc.verification.cases.inputs import Case, cases

SECTIONS = ("algorithm", "run", "answers", "transformer", "evidence")
VOID = {"meta", "input", "br", "link", "img"}


@dataclass
class Element:
    """One element: its name, attributes and all text below it."""

    name: str
    attributes: dict[str, str]
    text: str = ""
    path: tuple[str, ...] = ()


@dataclass
class Page(HTMLParser):
    """A parsed page; it complains about elements that are not closed in order."""

    elements: list[Element] = field(default_factory=list)
    open: list[Element] = field(default_factory=list)

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements, self.open = [], []
        self.feed(html)
        self.close()
        assert not self.open, [one.name for one in self.open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), (tag, names)
        one = Element(tag, {name: value or "" for name, value in attrs}, path=tuple(o.name for o in self.open))
        self.elements.append(one)
        if tag not in VOID:
            self.open.append(one)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open[-1].name == tag, f"</{tag}> closes {self.open[-1].name}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        inside_script = self.open and self.open[-1].name in ("script", "style")
        for one in self.open[-1:] if inside_script else self.open:
            one.text += data

    def named(self, name: str) -> list[Element]:
        return [one for one in self.elements if one.name == name]

    def of_class(self, name: str) -> list[Element]:
        return [one for one in self.elements if name in one.attributes.get("class", "").split()]

    def by_id(self, name: str) -> Element:
        (found,) = [one for one in self.elements if one.attributes.get("id") == name]
        return found

    @property
    def text(self) -> str:
        return self.named("body")[0].text

    @property
    def data(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.by_id("data").text)
        return found


def weights(pattern: dict[str, Any], frame: int) -> Any:
    """The attention weights that a page draws, queries x keys (and what is left over)."""
    rows, columns = len(pattern["rows"]), len(pattern["columns"])
    raw = np.frombuffer(base64.b64decode(pattern["frames"][frame]), np.uint8).reshape(rows, -1) / 255
    return np.concatenate([raw[:, :columns] * pattern["top"], raw[:, columns:]], axis=1)


def ordinary(checked: Checked, dims: dict[str, int], tokens: int = 8) -> Case:
    """A plain case with several tokens in every open set."""
    return next(case for case in ordinary_cases(checked, dims) if case.tokens >= min(tokens, 4))


def ordinary_cases(checked: Checked, dims: dict[str, int]) -> Iterator[Case]:
    yield from cases(checked, dims, 60, seed=3)


def check_page(html: str) -> Page:
    """What holds for every page."""
    page = Page(html)
    ids = [one.attributes["id"] for one in page.elements if "id" in one.attributes]
    assert len(ids) == len(set(ids))
    for one in page.elements:
        target = one.attributes.get("href", "")
        assert not target or (target.startswith("#") and target[1:] in ids), target
        assert not {"src", "style", "srcset", "action", "background"} & set(one.attributes), one
        assert not [name for name in one.attributes if name.startswith("on")], one
    assert set(SECTIONS) <= set(ids)
    assert [one.attributes.get("type", "") for one in page.named("script")] == ["application/json", ""]
    assert len(html.encode()) < LARGEST
    for name in ("http:", "https:", "//www"):  # nothing to load; the name of SVG is no address that anybody asks
        assert name not in html.replace("http://www.w3.org/2000/svg", ""), name
    assert "undefined" not in page.text
    assert "None" not in page.text.split()
    return page
