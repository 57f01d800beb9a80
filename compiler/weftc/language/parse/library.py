"""The built-in specs: the folder of them is the registry; nothing else lists them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from weftc.core.source import Source

SPEC_SUFFIX = ".weft"


@cache
def folders() -> Mapping[str, str]:
    """The built-in specs, sorted: name -> folder, "" for those that lie in none."""
    top = [item for item in files("weftc.specs").iterdir()]
    found = [(item.name, "") for item in top if item.is_file()]
    found += ((item.name, folder.name) for folder in top if folder.is_dir() for item in folder.iterdir())
    return dict(sorted((name.removesuffix(SPEC_SUFFIX), home) for name, home in found if name.endswith(SPEC_SUFFIX)))


def shipped(name: str) -> Source:
    """The text of a built-in spec that exists."""
    return Source(name, files("weftc.specs").joinpath(folders()[name], name + SPEC_SUFFIX).read_text(encoding="utf-8"))
