"""Options and fixtures that all tests share: golden files, compared exactly and rewritten by `--update-golden`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Golden = Callable[[Path, str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden files anew instead of comparing")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compares a text with a file, which must exist; with `--update-golden` writes the file."""
    update: bool = request.config.getoption("--update-golden")

    def compare(path: Path, text: str) -> None:
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n", encoding="utf-8")
            return
        assert path.exists(), f"no golden file {path}; run pytest with --update-golden and read what it wrote"
        assert text + "\n" == path.read_text(encoding="utf-8")

    return compare
