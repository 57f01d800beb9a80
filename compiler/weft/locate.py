"""Names and paths -> specs and models. The folder of built-in specs is the registry; nothing else lists them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from weft.errors import InputError
from weft.language.parse import parse, read_spec
from weft.language.words import did_you_mean
from weft.source import Source, printable

SPEC_SUFFIX = ".weft"
MODEL_SUFFIX = ".safetensors"


@dataclass(frozen=True, slots=True)
class Entry:
    """A built-in spec: its name, what its docstring says, and its text."""

    name: str
    doc: str
    source: Source


def names() -> tuple[str, ...]:
    """The names of the built-in specs, sorted."""
    found = (item.name for item in files("weft.specs").iterdir())
    return tuple(sorted(name.removesuffix(SPEC_SUFFIX) for name in found if name.endswith(SPEC_SUFFIX)))


def builtin(name: str) -> Source:
    """The text of a built-in spec."""
    if name not in names():
        raise InputError(f"there is no built-in spec {printable(name)}{_suggest(name, names())}; see: weft list")
    text = files("weft.specs").joinpath(name + SPEC_SUFFIX).read_text(encoding="utf-8")
    return Source(name, text)


def catalogue() -> tuple[Entry, ...]:
    """Every built-in spec with its docstring."""
    sources = (builtin(name) for name in names())
    return tuple(Entry(source.name, parse(source).doc, source) for source in sources)


def is_model(target: str) -> bool:
    """Whether a target names a model file, by the ending of its name."""
    return target.lower().endswith(MODEL_SUFFIX)


def find_spec(target: str) -> Source:
    """The spec a user means: a built-in name, or else the path of a file."""
    if is_model(target):
        raise InputError(f"{printable(target)} is a model; a spec is wanted here (a built-in name or a .weft file)")
    if target in names():
        return builtin(target)
    path = Path(target)
    if path.is_dir():
        raise InputError(f"{printable(target)} is a folder, not a spec")
    if not path.exists():
        raise InputError(f"there is no spec {printable(target)}: {_missing(path, target)}")
    return read_spec(path)


def find_model(target: str) -> Path:
    """The path of a model file that exists."""
    path = Path(target)
    if not path.is_file():
        near = _suggest(path.name, _siblings(path, MODEL_SUFFIX))
        raise InputError(
            f"there is no model file {printable(target)}{near}; make one with: weft compile SPEC -o {path}"
        )
    return path


def _missing(path: Path, target: str) -> str:
    """Why a target is neither a built-in nor a file, with what may have been meant."""
    if path.suffix or len(path.parts) > 1:
        return f"no such file{_suggest(path.name, _siblings(path, SPEC_SUFFIX) + names())}"
    suffixed = path.with_suffix(SPEC_SUFFIX)
    if suffixed.exists():
        return f"did you mean the file {printable(str(suffixed))}?"
    near = _suggest(target, names() + _siblings(path, SPEC_SUFFIX))
    return f"neither a built-in spec nor a file{near or '; built-in are ' + ', '.join(names())}"


def _siblings(path: Path, suffix: str) -> tuple[str, ...]:
    try:
        return tuple(p.name for p in path.parent.iterdir() if p.suffix == suffix)
    except OSError:
        return ()


def _suggest(word: str, candidates: Sequence[str]) -> str:
    hint = did_you_mean(word, candidates)
    return f"; {printable(hint)}" if hint else ""
