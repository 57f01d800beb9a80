"""The wheel holds everything a user needs, compiled kernels too, and runs from a fresh environment."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from weftc_runtime.kernels.native import building

ROOT = Path(__file__).parents[2]
NATIVE = "weftc_runtime/kernels/native"
RUNS = """
import sys, numpy, torch, weftc
from weftc_runtime.kernels.native.library import library
points = numpy.random.default_rng(0).normal(size=(40_000, 6)).astype(numpy.float32)
model = weftc.load(weftc.compile("lloyd", dims={"d": 6, "k": 7}), dtype=torch.float32)
found = model(x=points, seed=3, layers=12)
print(library().path)
print(found["centers"].numpy().tobytes().hex(), hash(tuple(found["labels"].indices.tolist())))
"""


def source_tree(folder: Path) -> Path:
    """A copy of what is tracked: building must not litter the project."""
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, tracked.split("\n")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes((ROOT / name).read_bytes())
    return folder


def built_wheel(folder: Path, **settings: str) -> Path:
    source = source_tree(folder / "source")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(source)]
    run = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A command that runs a text in an environment with this wheel; its dependencies come from ours."""
    folder = tmp_path_factory.mktemp("env")
    venv.create(folder, with_pip=True, system_site_packages=False)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel], check=True)
    own = next(folder.glob("lib/*/site-packages"))
    others = [path for path in sys.path if path.endswith("site-packages")]
    start = f"import sys; sys.path += {others!r}; exec(sys.stdin.read())"  # no .pth file is read: Weft is the wheel's
    assert (own / "weftc").is_dir()
    return [str(python), "-c", start]


def run_installed(installed: list[str], text: str, folder: Path, **settings: str) -> list[str]:
    """What a text prints, with no compiler to be found and a home that cannot be written."""
    empty = folder / "nothing"
    empty.mkdir(exist_ok=True)
    environment = {"PATH": str(empty), "HOME": "/dev/null", "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", **settings}
    run = subprocess.run(
        installed, input=text, env=environment, cwd=folder, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    return run.stdout.splitlines()


def test_wheel_holds_grammar_specs_and_types(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    specs = {f"weftc/specs/{path.name}" for path in (ROOT / "specs").glob("*.weft")}
    grammar = {"weftc/language/parse/grammar.lark", "weftc/language/parse/grammar.json"}
    assert specs | grammar | {"weftc/py.typed", "weftc_runtime/py.typed"} <= names
    assert not any(name.startswith(("tests/", "examples/")) for name in names)


def test_wheel_holds_kernels_for_every_instruction_set(wheel: Path) -> None:
    import platform

    names = [name for name in zipfile.ZipFile(wheel).namelist() if name.startswith(f"{NATIVE}/shipped/")]
    sets = [name.rpartition("/")[2].split("-")[1] for name in names]
    assert sorted(sets) == sorted(one.name for one in building.INSTRUCTION_SETS[platform.machine()])
    assert "-py3-none-" in wheel.name
    assert not wheel.name.endswith("-any.whl")


def test_no_link_of_the_description_leads_nowhere(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    metadata = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    text = archive.read(metadata).decode()
    assert "Description-Content-Type: text/markdown" in text
    assert "## Sixty seconds" in text
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert all(link.startswith("https://") for link in links), links


def test_wheel_runs_without_a_compiler_and_without_a_home(installed: list[str], tmp_path: Path) -> None:
    path, answer = run_installed(installed, RUNS, tmp_path)
    best = building.usable()[0].name
    assert Path(path).parent.name == "shipped"
    assert Path(path).name.startswith(f"kernels-{best}-")
    for one in building.usable()[1:]:
        path, same = run_installed(installed, RUNS, tmp_path, WEFTC_NATIVE=one.name)
        assert Path(path).name.startswith(f"kernels-{one.name}-")
        assert same == answer, one.name
    without = RUNS.replace("print(library().path)", "print(library())")
    assert run_installed(installed, without, tmp_path, WEFTC_NATIVE="off") == ["None", answer]


def test_wheel_has_the_commands(installed: list[str], tmp_path: Path) -> None:
    text = "import sys; from weftc.cli import main; sys.exit(main(['list']))"
    assert any("lloyd" in line for line in run_installed(installed, text, tmp_path))


def test_without_a_compiler_the_wheel_is_for_any_machine(tmp_path: Path) -> None:
    wheel = built_wheel(tmp_path, CXX="no-such-compiler")
    assert wheel.name.endswith("-py3-none-any.whl")
    assert not any("/shipped/" in name for name in zipfile.ZipFile(wheel).namelist())


def test_module_runs_as_a_command() -> None:
    found = subprocess.run([sys.executable, "-m", "weftc", "--version"], capture_output=True, text=True, check=True)
    assert found.stdout.startswith("weftc ")


def test_nothing_is_left_of_the_old_name() -> None:
    """The language is Weft and its files end in .weft; distribution, import and command are weftc."""
    commands = "compile|run|verify|check|inspect|report|plot|list|new|fmt|fuzz|bench|export|show|info"
    old = re.compile(rf"\bimport weft\b|\bfrom weft\b|\bweft_runtime|WEFT_|(?<![\w.`])weft (?:{commands})\b|\bweft\[")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    for name in listed:
        if Path(name).suffix in {".py", ".md", ".toml", ".cpp", ".h", ".yml", ".json", ".js"} or name == "Makefile":
            text = (ROOT / name).read_text(encoding="utf-8")
            found = old.search(text)
            assert found is None or name == "tests/project/test_packaging.py", f"{name}: {found}"
