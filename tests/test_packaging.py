"""The wheel holds everything a user needs, and runs from a fresh environment."""

from __future__ import annotations

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    for name in filter(None, tracked):  # a copy: building must not litter the project
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(source)]
    subprocess.run(command, capture_output=True, text=True, check=True)
    return next(folder.glob("*.whl"))


def test_wheel_holds_grammar_specs_and_types(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    specs = {f"weft/specs/{path.name}" for path in (ROOT / "specs").glob("*.weft")}
    grammar = {"weft/language/grammar.lark", "weft/language/grammar.json"}
    assert specs | grammar | {"weft/py.typed", "weft_runtime/py.typed"} <= names
    assert not any(name.startswith(("tests/", "examples/")) for name in names)


def test_wheel_runs_in_a_fresh_environment(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=True, system_site_packages=False)
    python = tmp_path / "env" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel], check=True)
    # Dependencies come from this environment; Weft itself from the wheel.
    here = next(path for path in sys.path if path.endswith("site-packages"))
    code = f"import site; site.addsitedir({here!r}); import sys; from weft.cli import main; sys.exit(main(['list']))"
    found = subprocess.run([python, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "lloyd" in found.stdout


def test_module_runs_as_a_command() -> None:
    found = subprocess.run([sys.executable, "-m", "weft", "--version"], capture_output=True, text=True, check=True)
    assert found.stdout.startswith("weft ")
