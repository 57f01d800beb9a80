"""What a release and a contributor rely on: one version everywhere, citations, templates, the nav of the site."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import weftc

ROOT = Path(__file__).parents[2]


def test_one_version_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    cited = re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    extension = json.loads((ROOT / "editors" / "package.json").read_text(encoding="utf-8"))["version"]
    assert cited is not None
    assert {project["version"], weftc.__version__, cited[1], extension} == {project["version"]}


def test_the_versions_of_python_are_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {word.rpartition(" ")[2] for word in project["classifiers"] if re.search(r":: 3\.\d+$", word)}
    assert declared == {"3.11", "3.12", "3.13", "3.14"}
    assert project["requires-python"] == ">=3.11"


def test_every_paper_of_the_page_is_cited() -> None:
    papers = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    authors = re.findall(r"^\| (?:KT|AS|FL|EM) \| (\w+)", papers, re.MULTILINE)
    assert len(authors) == 4
    for author in authors:
        assert f"family-names: {author}," in cited


def test_every_page_of_the_nav_is_there_and_every_page_of_docs_is_in_it() -> None:
    nav = (ROOT / "website" / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    pages = set(re.findall(r"[\w./-]+\.md", nav))
    generated = {page for page in pages if page.startswith(("gallery/", "api/", "examples/notebooks/"))}
    assert {page for page in pages - generated if not (ROOT / page).is_file()} == set()
    assert {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")} <= pages


def test_failures_that_are_explained_are_those_of_tests_there_are() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for name in set(re.findall(r"`(test_\w+)`", text)):
        assert list((ROOT / "tests").glob(f"*/{name}.py")), name
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for line in re.findall(r"`make ([\w -]+)`", text):
        assert set(line.split()) <= targets, line
