"""Pages and golden files are rewritten safely: whole or not at all, in one process, and only where they are quoted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pages import ROOT, Block, misquoted, requote, requoted, rewrite, sessions


def pytest_in(folder: Path, *arguments: str, worker: str | None = None) -> subprocess.CompletedProcess[str]:
    """pytest with our conftest on a test of nothing."""
    (folder / "test_nothing.py").write_text("def test_nothing(): pass\n", encoding="utf-8")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "COV_"))}
    environment |= {"PYTHONPATH": str(ROOT / "tests")} | ({"PYTEST_XDIST_WORKER": worker} if worker else {})
    call = [sys.executable, "-m", "pytest", "-q", "-p", "conftest", "--rootdir", ".", *arguments, "test_nothing.py"]
    return subprocess.run(call, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("arguments", "worker"), [(("-n", "2"), None), (("-p", "no:xdist"), "gw0")])
def test_several_workers_may_not_write(tmp_path: Path, arguments: tuple[str, ...], worker: str | None) -> None:
    refused = pytest_in(tmp_path, "--update-golden", *arguments, worker=worker)
    assert refused.returncode == pytest.ExitCode.USAGE_ERROR
    assert "run it in one process" in refused.stderr


@pytest.mark.parametrize("arguments", [("-p", "no:xdist"), ("-n", "0")])
def test_one_process_may(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    assert pytest_in(tmp_path, "--update-golden", *arguments).returncode == 0


def test_a_page_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    rewrite(page, "old")
    page.chmod(0o640)
    rewrite(page, "new")
    assert (page.read_text(encoding="utf-8"), page.stat().st_mode & 0o777) == ("new", 0o640)

    def fail(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="no space"):
        rewrite(page, "newer")
    assert page.read_text(encoding="utf-8") == "new"
    assert list(tmp_path.iterdir()) == [page]


def test_a_wrong_quotation_is_found() -> None:
    printed = "a\nb\nc\nd"
    assert misquoted(["a", "b", "..."], printed) == ""
    assert misquoted(["...", "b", "...", "d"], printed) == ""
    assert misquoted(["a", "c"], printed) == "a\nc"
    assert misquoted(["b", "...", "a"], printed) == "a"
    assert misquoted(["a 3.1e-16"], "a 2e-17") == "a 3.1e-16"
    assert misquoted(["a  3.1e-16"], "a    2e-17", rounding=True) == ""
    assert misquoted(["a 3.1e-11"], "a 2e-11", rounding=True) == "a 3.1e-11"
    assert requoted(["...", "b", "x", "...", "d"], printed) == ["...", "b", "c", "...", "d"]
    assert requoted(["x"], printed) == ["a", "b", "c", "d"]


def test_a_quotation_is_written_at_its_place(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    block = "$ weftc list\n...\nb\n$ weftc list -v\n...\nb\n"
    rewrite(page, f"b\n```console\n{block}```\nb\n")
    first, second = sessions([Block("console", block)])
    assert (str(second), second.before) == ("list -v", ("$ weftc list",))
    assert first.before == ()
    requote(page, second, "a\nb\nc")  # as it was
    assert page.read_text(encoding="utf-8") == f"b\n```console\n{block}```\nb\n"
    (whole,) = sessions([Block("console", "$ weftc run\nold\n")])
    rewrite(page, "old\n$ weftc run\nold\n")
    requote(page, whole, "new\nlines\n")
    assert page.read_text(encoding="utf-8") == "old\n$ weftc run\nnew\nlines\n"
    with pytest.raises(AssertionError, match="does not quote"):
        requote(page, whole, "newer")
