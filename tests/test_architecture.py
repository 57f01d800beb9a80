"""Who may import whom, and which folders the package is made of."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

from setuptools import find_packages

ROOT = Path(__file__).parent.parent
COMPILER = ROOT / "compiler" / "weft"
RUNTIME = ROOT / "runtime" / "weft_runtime"


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
        assert not roots & {"weft", "lark", "networkx", "sklearn", "ot", "scipy"}, path


def test_interpreter_shares_nothing_with_lowering_or_runtime() -> None:
    allowed = ("weft.source", "weft.errors", "weft.syntax", "weft.types", "weft.language.words", "weft.meaning")
    for path in (COMPILER / "meaning").glob("*.py"):
        for name in imports(path):
            if name.split(".")[0] in ("weft", "weft_runtime") and name not in ("weft", "weft_runtime"):
                assert name.startswith(allowed), f"{path.name} imports {name}"
            assert name.split(".")[0] != "weft_runtime", f"{path.name} imports {name}"


def test_proof_shares_nothing_with_lowering_or_meaning() -> None:
    shared = ("weft.source", "weft.errors", "weft.syntax", "weft.types", "weft.language", "weft.proof")
    data = ("weft_runtime.ir", "weft_runtime.checkpoint", "weft_runtime.errors", "weft_runtime.tensors")
    data += ("weft_runtime.tensor_checks",)
    paths = list((COMPILER / "proof").glob("*.py"))
    assert paths
    for path in paths:
        for name in imports(path):
            root = name.split(".")[0]
            if root in ("weft", "weft_runtime") and name not in ("weft", "weft_runtime"):
                assert name.startswith(shared + data), f"{path.name} imports {name}"
            assert root not in ("torch", "networkx", "lark"), f"{path.name} imports {name}"


def test_the_exact_executor_shares_nothing_with_what_it_judges() -> None:
    data = ("weft.exact", "weft_runtime.ir", "weft_runtime.checkpoint")
    paths = list((COMPILER / "exact").glob("*.py"))
    assert paths
    for path in paths:
        for name in imports(path):
            root = name.split(".")[0]
            if root in ("weft", "weft_runtime"):
                assert name.startswith(data), f"{path.name} imports {name}"
            assert root not in ("torch", "numpy", "networkx", "lark"), f"{path.name} imports {name}"


def test_compiler_uses_only_the_contract_of_the_runtime() -> None:
    contract = ("weft_runtime.ir", "weft_runtime.checkpoint", "weft_runtime.errors")
    for path in (COMPILER / "lowering").glob("*.py"):
        for name in imports(path):
            if name.startswith("weft_runtime."):
                assert name.startswith(contract), f"{path.name} imports {name}"


def test_one_doorway_per_library() -> None:
    doorways = {"lark": {"tables.py"}, "networkx": {"graph.py"}}
    for library, files in doorways.items():
        users = {p.name for p in COMPILER.rglob("*.py") if any(n.split(".")[0] == library for n in imports(p))}
        assert users == files, library


def test_every_package_is_in_the_wheel() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["packages"]
    found = set(find_packages(str(ROOT / "compiler"))) | set(find_packages(str(ROOT / "runtime"))) | {"weft.specs"}
    assert set(listed) == found
