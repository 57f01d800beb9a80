"""`weftc benchmark`: models with known circuits, for methods that look for them."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from weftc.commands.options import UsageError, add_json, natural, positive
from weftc.commands.progress import progress
from weftc.core.source import printable
from weftc.files.folder import whole_folder

SUMMARY = "make models with known circuits, or score the circuits that a method has found in them"
EXAMPLE = """example:
  weftc benchmark make -n 100 -o circuits/
  weftc benchmark score circuits/ found.json

A folder holds models of shipped and random specs, of varied size and depth, in varied disguises, with inputs. Half
are public, with spec and circuit; half are hidden, without a name; their answers lie apart. The same seed gives the
same bytes. found.json maps the name of a model to a list of edges, or to a number for every edge, larger for edges
that matter more."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """What to do, with which folder."""
    parser.add_argument("action", choices=("make", "score"), help="make a folder, or score what was found in one")
    parser.add_argument("files", nargs="*", metavar="FILE", help="for score: the folder, and what was found (JSON)")
    parser.add_argument("-n", type=positive, default=100, metavar="N", dest="count", help="models (default 100)")
    parser.add_argument("-o", "--output", metavar="FOLDER", help="for make: the folder to write")
    parser.add_argument("--seed", type=natural, default=0, metavar="N", help="of everything drawn (default 0)")
    parser.add_argument("--part", choices=("public", "hidden"), default="public", help="for score (default public)")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Makes or scores."""
    return _make(options) if options.action == "make" else _score(options)


def _make(options: argparse.Namespace) -> int:
    if options.output is None or options.files:
        raise UsageError("a benchmark is made into a folder: weftc benchmark make -n 100 -o circuits/")
    target = Path(options.output)
    if target.exists():
        raise UsageError(f"{printable(str(target))} exists; remove it, or choose another folder with -o")
    with whole_folder(target, (), False) as folder, progress(f"making {options.count} models") as line:
        from weftc.circuits.benchmark import make

        index = make(options.count, folder, options.seed, lambda done, of: line("making models", done, of))
    public = sum(model["part"] == "public" for model in index["models"])
    if options.json:
        print(json.dumps(index))
    else:
        edges = sum(model["edges"] for model in index["models"])
        print(f"wrote {target}: {public} public and {options.count - public} hidden models, {edges} edges in all")
    return 0


def _score(options: argparse.Namespace) -> int:
    if len(options.files) != 2:
        raise UsageError("give the folder and what was found: weftc benchmark score circuits/ found.json")
    folder, found = (Path(text) for text in options.files)
    if not (folder / "index.json").is_file():
        raise UsageError(f"{printable(str(folder))} is no benchmark: there is no index.json in it")
    from weftc.circuits.benchmark import judged

    scores = judged(folder, _read(found), options.part)
    print(
        json.dumps(scores) if options.json else "\n".join(f"{word:>18}  {value:.4g}" for word, value in scores.items())
    )
    return 0


def _read(path: Path) -> Any:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{printable(str(path))}: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"{printable(str(path))} is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise UsageError(f"{printable(str(path))} must map names of models to what was found in them")
    return found
