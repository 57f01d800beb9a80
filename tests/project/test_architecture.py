"""Who may import whom, and which folders the package is made of."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from setuptools import find_packages

ROOT = Path(__file__).parents[2]
COMPILER = ROOT / "compiler" / "weftc"
RUNTIME = ROOT / "runtime" / "weftc_runtime"


def imports(path: Path) -> Iterator[str]:
    """Every module a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_runtime_knows_nothing_of_the_compiler() -> None:
    for path in RUNTIME.rglob("*.py"):
        roots = {name.split(".")[0] for name in imports(path)}
        assert not roots & {"weftc", "lark", "networkx", "sklearn", "ot", "scipy"}, path


ARROWS = {  # what each package of the runtime may import, beside itself: format <- exact <- kernels <- plan <- machines
    "errors": (),
    "threads": (),
    "format": ("errors",),
    "kernels.native": ("errors", "threads"),
    "exact": ("errors", "threads", "format", "kernels.native"),
    "kernels": ("errors", "threads", "exact", "kernels.native"),
    "data": ("errors", "threads", "format", "exact", "kernels"),
    "plan": ("errors", "threads", "format", "exact", "kernels"),
    "reference": ("errors", "threads", "format", "exact", "kernels", "data"),
    "machines": ("errors", "threads", "format", "exact", "kernels", "data", "plan", "reference"),
}


def test_the_packages_of_the_runtime_import_downwards_alone() -> None:
    """Lazy imports included; imports for the type checker only say how a thing is called."""
    for path in RUNTIME.rglob("*.py"):
        place = ".".join(path.relative_to(RUNTIME).with_suffix("").parts)
        home = next((one for one in sorted(ARROWS, key=len, reverse=True) if f"{place}.".startswith(f"{one}.")), None)
        if home is None:  # the model, and what stands around it
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        typed = [n for n in ast.walk(tree) if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.unparse(n.test)]
        apart = {id(inner) for node in typed for inner in ast.walk(node)}
        for node in ast.walk(tree):
            if not isinstance(node, ast.ImportFrom) or id(node) in apart or node.module is None:
                continue
            for alias in node.names:
                name = f"{node.module}.{alias.name}."
                if name.startswith("weftc_runtime."):
                    allowed = (home, *ARROWS[home])
                    assert any(name.startswith(f"weftc_runtime.{one}.") for one in allowed), f"{place} imports {name}"


def test_no_public_class_of_the_runtime_is_defined_twice() -> None:
    found: dict[str, Path] = {}
    for path in sorted(RUNTIME.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                assert node.name not in found, f"{node.name}: {found[node.name]} and {path}"
                found[node.name] = path


SYNTAX = tuple(f"weftc.core.{name}" for name in ("source", "errors", "syntax", "types", "vocabulary", "words"))
FILE = ("weftc_runtime.format.program", "weftc_runtime.format.checkpoint", "weftc_runtime.errors")


def ours(path: Path) -> Iterator[str]:
    """Every module of Weft a file imports; `from package import name` counts as package.name."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("weftc"))
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("weftc"):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def reaches_only(folder: Path, allowed: tuple[str, ...], foreign: set[str]) -> None:
    paths = list(folder.rglob("*.py"))
    assert paths
    for path in paths:
        for name in ours(path):
            assert any(name == one or name.startswith(f"{one}.") for one in allowed), f"{path} imports {name}"
        assert not {name.split(".")[0] for name in imports(path)} & foreign, path


def test_interpreter_shares_nothing_with_lowering_or_runtime() -> None:
    reaches_only(COMPILER / "interpreter", (*SYNTAX, "weftc.interpreter"), {"torch", "networkx", "lark"})


def test_proof_shares_nothing_with_lowering_or_meaning() -> None:
    data = (*FILE, "weftc_runtime.format.tensors", "weftc_runtime.format.tensor_checks")
    reaches_only(COMPILER / "prover", (*SYNTAX, "weftc.language", "weftc.prover", *data), {"torch", "networkx", "lark"})


def test_the_exact_executor_shares_nothing_with_what_it_judges() -> None:
    reaches_only(COMPILER / "exact", ("weftc.exact", *FILE), {"torch", "numpy", "networkx", "lark"})


def test_what_every_stage_shares_imports_nothing_above_it() -> None:
    reaches_only(COMPILER / "core", ("weftc.core",), {"torch", "networkx", "lark", "numpy"})


def test_compiler_uses_only_the_contract_of_the_runtime() -> None:
    contract = (*FILE, "weftc_runtime.format.structure")
    parts = [COMPILER / name for name in ("graph", "passes", "normal", "emit")]
    for path in (path for part in parts for path in part.rglob("*.py")):
        for name in ours(path):
            assert not name.startswith("weftc_runtime.") or name.startswith(contract), f"{path} imports {name}"


def test_only_its_command_knows_the_experiments() -> None:
    for path in (path for path in COMPILER.rglob("*.py") if path.parent.name != "experiments"):
        if path != COMPILER / "commands" / "reproduce.py":
            assert not any(name.startswith("weftc.experiments") for name in ours(path)), path


def test_one_doorway_per_library() -> None:
    doorways = {"lark": {"build_parse_tables.py"}, "networkx": {"graph.py"}}
    for library, files in doorways.items():
        users = {p.name for p in COMPILER.rglob("*.py") if any(n.split(".")[0] == library for n in imports(p))}
        assert users == files, library


def test_every_package_is_in_the_wheel() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["packages"]
    found = set(find_packages(str(ROOT / "compiler"))) | set(find_packages(str(ROOT / "runtime"))) | {"weftc.specs"}
    assert set(listed) == found


def test_the_page_about_the_architecture_names_every_package() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = {word for words in re.findall(r"`([\w/]+)`", page) for word in words.split("/")}
    found = {path.parent.name for root in (COMPILER, RUNTIME) for path in root.glob("*/**/__init__.py")}
    assert found - {"peers"} <= named, "each package has a line in docs/architecture.md"


def test_no_public_class_name_is_defined_twice() -> None:
    seen: dict[str, Path] = {}
    for root in (COMPILER, RUNTIME):
        for path in sorted(root.rglob("*.py")):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    assert node.name not in seen, f"{node.name} is in {seen[node.name]} and in {path}"
                    seen[node.name] = path
