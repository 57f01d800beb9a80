"""docs/scikit-learn.md: what it shows is what happens, and what it lists is all there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from clusterings import CLUSTERINGS, EXPECTED
from pages import ROOT, rewrite
from playing import Play

PAGE = ROOT / "docs" / "scikit-learn.md"
TEXT = PAGE.read_text(encoding="utf-8")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_page_plays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.chdir(tmp_path)
    play = Play(TEXT)
    play.run()
    if request.config.getoption("--update-golden"):
        rewrite(PAGE, play.text)
        return
    assert not play.faults, "\n\n".join(play.faults)


def test_every_clustering_is_listed() -> None:
    (listed,) = re.findall(r"^Built-in: (.*?)\. And your own", TEXT, re.S | re.M)
    assert re.findall(r"`(\w+)`", listed) == CLUSTERINGS


def test_every_exception_has_its_line() -> None:
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| `(check_\w+)` \|", TEXT, re.M)
    shown = {(spec, check) for specs, check in rows for spec in re.findall(r"`(\w+)`", specs)}
    assert shown == {(spec, check) for spec, checks in EXPECTED.items() for check in checks}
