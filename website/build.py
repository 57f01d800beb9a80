"""Pages of the project, the built-in specs and the docstrings -> the site, as a folder of static files.

    python website/build.py          everything into out/site; with --pages only what is written by hand, anew
    python -m http.server -d out/site

Pages keep the places they have in the project, so that their links lead where they lead there.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from bundle import bundle
from gallery import gallery

import weftc

HERE = Path(__file__).parent
ROOT = HERE.parent
OUT = ROOT / "out"
SOURCE = OUT / "site-source"
PAGES = ("*.md", "docs/**/*.md", "specs/*.md", "examples/*.md", "editors/*.md")
OBJECTS = (
    "weftc.core.types.Checked",
    "weftc.interpreter.interpreter.Interpreter",
    "weftc.verification.verdict.Verdict",
    "weftc_runtime.model.Model",
    "weftc_runtime.format.checkpoint.Checkpoint",
    "weftc.core.errors",
)
ESTIMATORS = ("weftc.sklearn.WeftClusterer", "weftc.estimators.matching.match")
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)|src=\"([^\"]+)\"")


def build(only_pages: bool = False) -> None:
    """The whole site; it stops when a link leads nowhere. `only_pages` leaves gallery and playground as they are."""
    if not only_pages:
        shutil.rmtree(SOURCE, ignore_errors=True)
    SOURCE.mkdir(parents=True, exist_ok=True)
    for pattern in PAGES:
        for page in sorted(ROOT.glob(pattern)):
            _stage(page)
    _notebooks(SOURCE / "examples" / "notebooks")
    (SOURCE / "assets").mkdir(exist_ok=True)
    shutil.copy(HERE / "extra.css", SOURCE / "assets" / "extra.css")
    _api(SOURCE / "api")
    if not only_pages:
        gallery(SOURCE / "gallery")
        bundle(SOURCE / "playground", OUT / "npm")
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--config-file",
        str(HERE / "mkdocs.yml"),
    ]
    done = subprocess.run(command, cwd=HERE, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
    if done.returncode:
        raise SystemExit("the site was not built; mkdocs says why above")
    print("the site is in out/site; to look at it: python -m http.server -d out/site")


def _stage(page: Path) -> None:
    """A page and the files of the project that it shows or links to."""
    text = page.read_text(encoding="utf-8")
    for path in _linked(page, text):
        target = SOURCE / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    target = SOURCE / page.relative_to(ROOT)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(_adapted(page, text), encoding="utf-8")


def _adapted(page: Path, text: str) -> str:
    """A page as mkdocs reads it: fences that name a file get a title, links to folders become their text."""
    text = text.replace(".ipynb)", ".md)")
    text = re.sub(r"^```(\w+) (\S+)$", r'```\1 title="\2"', text, flags=re.MULTILINE)

    def without(match: re.Match[str]) -> str:
        return match[1] if (page.parent / match[2]).is_dir() else match[0]

    return re.sub(r"\[([^\]\n]*)\]\(([^)#\s]+)\)", without, text)


def _notebooks(folder: Path) -> None:
    """A page for every notebook, and one that lists them."""
    folder.mkdir(parents=True, exist_ok=True)
    listed = []
    for notebook in sorted(ROOT.glob("examples/notebooks/*.ipynb")):
        text = _as_page(notebook)
        (folder / f"{notebook.stem}.md").write_text(text, encoding="utf-8")
        listed.append(f"- [{text.partition(chr(10))[0].removeprefix('# ')}]({notebook.stem}.md)")
    lead = "They lie in `examples/notebooks` and are run by the tests. Open them with Jupyter to change them."
    (folder / "index.md").write_text("\n".join(["# Notebooks", "", lead, "", *listed, ""]), encoding="utf-8")


def _as_page(notebook: Path) -> str:
    """A notebook with what is stored in it as a page: text, code, tables and pictures."""
    parts = []
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = {kind: "".join(text) for kind, text in output.get("data", {}).items()}
            if "image/png" in data:
                size = output["metadata"].get("image/png", {}).get("width", 600)
                encoded = data["image/png"].replace("\n", "")
                parts.append(f'<img alt="a picture" width="{size}" src="data:image/png;base64,{encoded}">')
            elif "text/html" in data:
                parts.append(f"<div>{data['text/html']}</div>")
            else:
                parts.append(f"```text\n{''.join(output.get('text', data.get('text/plain', ''))).rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def _linked(page: Path, text: str) -> Iterator[Path]:
    outside = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    for match in LINK.finditer(outside):
        path = (page.parent / (match[1] or match[2])).resolve()
        if path.is_file() and ROOT in path.parents and path.suffix != ".md":
            yield path


def _api(folder: Path) -> None:
    """One page for what `import weftc` offers, and one for each family beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    homes = {name: weftc._HOMES[name] for name in weftc.__all__ if name in weftc._HOMES}
    functions = _entries(f"{home}.{name}" for name, home in homes.items() if name[0].islower())
    lead = (
        "What `import weftc` offers. [Objects](objects.md) are what these return; [Python](../docs/python.md) shows "
        "each in use. [Estimators](estimators.md) follow scikit-learn."
    )
    sections = {
        "index": ("Functions", lead, functions),
        "objects": ("Objects", "What the functions return, and the errors they raise.", _entries(OBJECTS)),
        "estimators": ("Estimators", "Specs as scikit-learn estimators, and matchings.", _entries(ESTIMATORS)),
    }
    for name, (title, lead, entries) in sections.items():
        (folder / f"{name}.md").write_text("\n\n".join([f"# {title}", lead, *entries]) + "\n", encoding="utf-8")


def _entries(names: Iterable[str]) -> list[str]:
    return [f"::: {name}" for name in names]


if __name__ == "__main__":
    build("--pages" in sys.argv)
