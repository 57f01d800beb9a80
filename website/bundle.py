"""Sources, Pyodide and NumPy -> the playground as a folder of static files. No server, nothing from elsewhere.

Pyodide and a NumPy for it come from the npm registry, in the versions of package.json, and are checked by their hashes.
"""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

import weftc

HERE = Path(__file__).parent
ROOT = HERE.parent
PYODIDE = ("pyodide.js", "pyodide.asm.js", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json")
NUMPY = "@emscripten-forge/numpy/pkg/numpy-2.0.1-py312h4e66579_0.tar.gz"
HASHES = {
    "pyodide/pyodide.asm.wasm": "a50dd1843f805a0b7c45b61037ee0d7b26dfe85efe0e18ef95a34ad24e401f5f",
    "pyodide/pyodide.asm.js": "6b4c90de5b7172873f04f21884d0e9d2274e305fe32116558fe3e4fbe3618d51",
    "pyodide/pyodide.js": "b4cb23a53aba19c221659b9fb40a2f18281d685691dc06647fb0afd0681baf98",
    "pyodide/python_stdlib.zip": "16611534726e5d8ac2bd8f926410b2dcb8d6f49aa24913463533b457a2115c16",
    NUMPY: "608a8525a002505e620f9264738a9f95710de52d577276b37ccb881d662be6d6",
}
LEFT_OUT = ("tests", "testing", "f2py", "distutils", "include", "__pycache__", "_pyinstaller")  # of NumPy
NOT_NEEDED = ("weftc/tools/bench", "weftc/fuzz", "weftc_runtime/kernels/native", "networkx/drawing/tests")
MOMENT = (2026, 1, 1, 0, 0, 0)  # of every file in an archive: the same sources give the same bytes


def bundle(target: Path, cache: Path) -> None:
    """Writes the playground to a folder; `cache` keeps what npm fetched."""
    modules = _fetched(cache)
    target.mkdir(parents=True, exist_ok=True)
    for path in sorted((HERE / "playground").iterdir()):
        shutil.copy(path, target / path.name)
    specs = [[e.name, e.doc, e.source.text, e.subject] for e in weftc.catalogue()]
    (target / "specs.json").write_text(json.dumps(specs), encoding="utf-8")
    (target / "pyodide").mkdir(exist_ok=True)
    for name in PYODIDE:
        shutil.copy(modules / "pyodide" / name, target / "pyodide" / name)
    _zipped(target / "numpy.zip", _numpy(modules))
    _zipped(target / "python.zip", _python())


def _fetched(cache: Path) -> Path:
    """The folder of npm's packages, every file of them that is used checked."""
    modules = cache / "node_modules"
    if not all((modules / name).is_file() for name in HASHES):
        cache.mkdir(parents=True, exist_ok=True)
        shutil.copy(HERE / "package.json", cache / "package.json")
        command = [
            "npm",
            "install",
            "--no-package-lock",
            "--no-audit",
            "--no-fund",
            "--ignore-scripts",
            "--loglevel=error",
        ]
        try:
            subprocess.run(command, cwd=cache, check=True)
        except FileNotFoundError:
            raise SystemExit(
                "the playground needs npm, which comes with Node.js; install it, then: make site"
            ) from None
        except subprocess.CalledProcessError:
            raise SystemExit("npm could not fetch Pyodide and NumPy; see its message above") from None
    for name, expected in HASHES.items():
        found = sha256((modules / name).read_bytes()).hexdigest()
        if found != expected:
            raise SystemExit(f"{name} is not the file that was tested: its sha256 is {found}")
    return modules


def _numpy(modules: Path) -> Iterator[tuple[str, bytes]]:
    """NumPy without what only its own developers need."""
    with tarfile.open(modules / NUMPY) as archive:
        for member in archive.getmembers():
            _, inside, name = member.name.partition("site-packages/")
            wanted = name.startswith("numpy/") and not any(part in LEFT_OUT for part in name.split("/")[:-1])
            if member.isfile() and inside and wanted and not name.endswith((".pyi", ".a", ".pyc")):
                file = archive.extractfile(member)
                assert file is not None
                yield name, file.read()


def _python() -> Iterator[tuple[str, bytes]]:
    """Weft, the file format of its runtime, and networkx."""
    found = find_spec("networkx")
    assert found is not None
    assert found.origin is not None
    folders = {
        "weftc": ROOT / "compiler" / "weftc",
        "weftc/specs": ROOT / "specs",
        "weftc_runtime": ROOT / "runtime" / "weftc_runtime",
        "networkx": Path(found.origin).parent,
    }
    for name, folder in folders.items():
        for path in sorted(folder.rglob("*")):
            inside = f"{name}/{path.relative_to(folder).as_posix()}"
            skipped = any(part in ("__pycache__", "tests") for part in path.parts[-4:]) or inside.startswith(NOT_NEEDED)
            if path.suffix in (".py", ".json", ".lark", ".weft") and not skipped:
                yield inside, path.read_bytes()


def _zipped(path: Path, files: Iterator[tuple[str, bytes]]) -> None:
    """An archive whose bytes depend on its files alone."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in sorted(files):
            archive.writestr(zipfile.ZipInfo(name, MOMENT), data, zipfile.ZIP_DEFLATED)
    path.write_bytes(out.getvalue())
