"""Names and paths -> specs and models. The folder of built-in specs is the registry; nothing else lists them."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from weftc.core import display
from weftc.core.errors import InputError
from weftc.core.source import Source, printable
from weftc.core.words import did_you_mean
from weftc.language.parse.files import LARGEST, read_spec, spec_text
from weftc.language.parse.library import SPEC_SUFFIX, folders, shipped
from weftc.language.parse.parse import parse

MODEL_SUFFIX = ".safetensors"
STANDARD_INPUT = "-"
OTHER = "other"
MOST_MEANT = 3  # specs that a word may stand for before they are better looked up
KEYWORDS = re.compile(r"^# keywords: *(.*)$", re.M)  # a comment of the spec: other names of it, and words to find it by


@dataclass(frozen=True, slots=True)
class Entry:
    """A built-in spec: its name, what its docstring says, its text, other words for it, and what it is about.

    `subject` is the keyword that it shares with most others; `other` where it shares none.
    """

    name: str
    doc: str
    source: Source = field(repr=False)
    keywords: tuple[str, ...] = ()
    subject: str = OTHER

    def fits(self, word: str) -> bool:
        """Whether a word is in the name, the docstring, the subject or the keywords."""
        return any(_plain(word) in _plain(text) for text in (self.name, self.doc, self.subject, *self.keywords))


class Catalogue(tuple[Entry, ...]):
    """The built-in specs; printed, a list by subject."""

    __slots__ = ()

    def groups(self) -> dict[str, list[Entry]]:
        """The specs by subject, large groups first."""
        found: dict[str, list[Entry]] = {}
        for entry in self:
            found.setdefault(entry.subject, []).append(entry)
        return dict(sorted(found.items(), key=lambda group: (group[0] == OTHER, -len(group[1]), group[0])))

    def __repr__(self) -> str:
        widest = max((len(entry.name) for entry in self), default=0)
        groups = self.groups()
        indent = "  " if len(groups) > 1 else ""
        blocks = []
        for subject, entries in groups.items():
            lines = (f"{indent}{printable(e.name):<{widest}}  {printable(e.doc)}".rstrip() for e in entries)
            blocks.append("\n".join([*([printable(subject)] if indent else []), *lines]))
        return "\n\n".join(blocks)

    def _repr_html_(self) -> str | None:
        return display.html("catalogue", self)


def names(folder: str | None = None) -> tuple[str, ...]:
    """The names of the built-in specs, sorted: all, or those of one folder ("": those that lie in none)."""
    return tuple(name for name, home in folders().items() if folder in (None, home))


def builtin(name: str) -> Source:
    """The text of a built-in spec."""
    if name not in folders():
        meant = _meant(name)
        near = f"; did you mean '{meant[0]}'?" if meant else _suggest(name, names())
        raise InputError(f"there is no built-in spec {printable(name)}{near}; see: weftc list")
    return shipped(name)


def catalogue() -> Catalogue:
    """Every built-in spec with its docstring; printed, a list by subject: its folder, else a common keyword."""
    sources = {name: builtin(name) for name in names()}
    shared = Counter(word for name in names("") for word in keywords(sources[name]))

    def subject(name: str) -> str:
        common = max(keywords(sources[name]), key=lambda word: shared[word], default="")
        return folders()[name] or (common if shared[common] > 1 else OTHER)

    return Catalogue(_entry(source, subject(name)) for name, source in sources.items())


def _entry(source: Source, subject: str) -> Entry:
    return Entry(source.name, parse(source).doc, source, keywords(source), subject)


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
    near = _suggest(target, (*names(), *_siblings(path, SPEC_SUFFIX)))
    return f"neither a built-in spec nor a file{near or '; weftc list names the built-in ones'}"


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
