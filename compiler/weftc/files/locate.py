"""Names and paths -> specs and models. The folder of built-in specs is the registry; nothing else lists them."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from weftc.core.errors import InputError
from weftc.core.source import Source, printable
from weftc.core.words import did_you_mean
from weftc.language.parse.parse import LARGEST, parse, read_spec, spec_text

SPEC_SUFFIX = ".weft"
MODEL_SUFFIX = ".safetensors"
STANDARD_INPUT = "-"
MOST_MEANT = 3  # specs that a word may stand for before they are better looked up
KEYWORDS = re.compile(r"^# keywords: *(.*)$", re.M)  # a comment of the spec: other names of it, and words to find it by


@dataclass(frozen=True, slots=True)
class Entry:
    """A built-in spec: its name, what its docstring says, its text, and other words for it."""

    name: str
    doc: str
    source: Source
    keywords: tuple[str, ...] = ()

    def fits(self, word: str) -> bool:
        """Whether a word is in the name, the docstring or the keywords."""
        return any(_plain(word) in _plain(text) for text in (self.name, self.doc, *self.keywords))


def names() -> tuple[str, ...]:
    """The names of the built-in specs, sorted."""
    found = (item.name for item in files("weftc.specs").iterdir())
    return tuple(sorted(name.removesuffix(SPEC_SUFFIX) for name in found if name.endswith(SPEC_SUFFIX)))


def builtin(name: str) -> Source:
    """The text of a built-in spec."""
    if name not in names():
        meant = _meant(name)
        near = f"; did you mean '{meant[0]}'?" if meant else _suggest(name, names())
        raise InputError(f"there is no built-in spec {printable(name)}{near}; see: weftc list")
    text = files("weftc.specs").joinpath(name + SPEC_SUFFIX).read_text(encoding="utf-8")
    return Source(name, text)


def catalogue() -> tuple[Entry, ...]:
    """Every built-in spec with its docstring."""
    sources = (builtin(name) for name in names())
    return tuple(Entry(source.name, parse(source).doc, source, keywords(source)) for source in sources)


def keywords(source: Source) -> tuple[str, ...]:
    """Other words for a spec, as its comment `# keywords: ...` lists them."""
    return tuple(word.strip() for line in KEYWORDS.findall(source.text) for word in line.split(",") if word.strip())


def _plain(text: str) -> str:
    """A word without what people write differently: k-means, kmeans, K_Means."""
    return re.sub(r"[\W_]+", "", text.lower())


def is_model(target: str) -> bool:
    """Whether a target names a model file, by the ending of its name."""
    return target.lower().endswith(MODEL_SUFFIX)


def find_spec(target: str) -> Source:
    """The spec a user means: a built-in name, or else the path of a file."""
    if is_model(target):
        raise InputError(f"{printable(target)} is a model; a spec is wanted here (a built-in name or a .weft file)")
    if target in names():
        return builtin(target)
    if target == STANDARD_INPUT:
        return read_standard_input()
    path = Path(target)
    if path.is_dir():
        raise InputError(f"{printable(target)} is a folder, not a spec")
    if not path.exists():
        raise InputError(f"there is no spec {printable(target)}: {_missing(path, target)}")
    return read_spec(path)


def read_standard_input() -> Source:
    """The spec that comes through standard input."""
    if sys.stdin is None:
        raise InputError("standard input is closed; name a file instead of -")
    return Source("standard input", spec_text(sys.stdin.buffer.read(LARGEST + 1), "standard input"))


def find_model(target: str) -> Path:
    """The path of a model file that exists."""
    path = Path(target)
    if not path.is_file():
        near = _suggest(path.name, _siblings(path, MODEL_SUFFIX))
        raise InputError(
            f"there is no model file {printable(target)}{near}; make one with: weftc compile SPEC -o {path}"
        )
    return path


def _missing(path: Path, target: str) -> str:
    """Why a target is neither a built-in nor a file, with what may have been meant."""
    if path.suffix or len(path.parts) > 1:
        return f"no such file{_suggest(path.name, _siblings(path, SPEC_SUFFIX) + names())}"
    suffixed = path.with_suffix(SPEC_SUFFIX)
    if suffixed.exists():
        return f"did you mean the file {printable(str(suffixed))}?"
    meant = _meant(target)
    if len(meant) > MOST_MEANT:
        return f"neither a built-in spec nor a file; weftc list {printable(target)} shows {len(meant)} that fit"
    if meant:
        return f"neither a built-in spec nor a file; did you mean {' or '.join(repr(name) for name in meant)}?"
    near = _suggest(target, names() + _siblings(path, SPEC_SUFFIX))
    return f"neither a built-in spec nor a file{near or '; built-in are ' + ', '.join(names())}"


def _meant(word: str) -> list[str]:
    """The built-in specs that have a word among their keywords."""
    return [name for name in names() if _plain(word) in map(_plain, keywords(builtin(name)))]


def _siblings(path: Path, suffix: str) -> tuple[str, ...]:
    try:
        return tuple(p.name for p in path.parent.iterdir() if p.suffix == suffix)
    except OSError:
        return ()


def _suggest(word: str, candidates: Sequence[str]) -> str:
    hint = did_you_mean(word, candidates)
    return f"; {printable(hint)}" if hint else ""
