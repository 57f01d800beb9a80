"""Options and fixtures that all tests share: golden files, compared exactly and rewritten by `--update-golden`."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import settings

from pages import rewrite

Golden = Callable[[Path, str], None]

# The same examples in every run: what CI shows is what the change did. `--hypothesis-profile explore` looks further.
settings.register_profile("same", derandomize=True)
settings.register_profile("explore", derandomize=False, max_examples=200)
settings.load_profile("same")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden files anew instead of comparing")


os.environ.setdefault("WEFTC_FUZZ_SEED", f"{datetime.now(UTC):%Y%m%d}")  # workers inherit it, so midnight is no matter


def pytest_report_header() -> str:
    seed = os.environ["WEFTC_FUZZ_SEED"]
    return f"random specs: seed {seed}, of the day; replay with WEFTC_FUZZ_SEED={seed} or weftc fuzz --seed {seed}"


def pytest_configure(config: pytest.Config) -> None:
    """Pages are read, changed and written back test by test, so two workers would undo each other's work."""
    workers = getattr(config.option, "numprocesses", None) or getattr(config.option, "tx", None)
    if config.getoption("--update-golden") and (workers or "PYTEST_XDIST_WORKER" in os.environ):
        raise pytest.UsageError(
            "--update-golden writes files that several tests share; run it in one process, without -n (or with -n 0)"
        )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compares a text with a file, which must exist; with `--update-golden` writes the file."""
    update: bool = request.config.getoption("--update-golden")

    def compare(path: Path, text: str) -> None:
        if update:
            rewrite(path, text + "\n")
            return
        assert path.exists(), f"no golden file {path}; run pytest with --update-golden and read what it wrote"
        assert text + "\n" == path.read_text(encoding="utf-8")

    return compare
