"""A text that uses algorithms of other files -> one text with all of them, which needs no second file.

    algorithm two_stages                      algorithm two_stages
    layer                                     layer
      use assign from "parts.weft"    ->        use assign from "parts.weft"
                                              # assign of parts.weft
                                              algorithm assign ...

Only `.weft` files are read, each once; of a file only the algorithms that are used are taken. `standalone` leaves the
names of the files out, so that the text is looked up nowhere again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from weftc.core.errors import InputError
from weftc.core.source import Excerpt, Source, Span, printable
from weftc.core.words import did_you_mean, listed
from weftc.language.check.problems import Problems
from weftc.language.parse.files import read_spec
from weftc.language.parse.grammar import load
from weftc.language.parse.lexer import Token, tokenize
from weftc.language.parse.library import SPEC_SUFFIX, folders, shipped

MOST_ALGORITHMS = 100  # in one text


def algorithms(tokens: Sequence[Token]) -> list[list[Token]]:
    """The tokens of each algorithm of a text."""
    heads = [at for at, token in enumerate(tokens) if at and token.type == "ALGORITHM"]
    return [list(tokens[a:b]) for a, b in zip([0, *heads], [*heads, len(tokens)], strict=True)]


def linked(source: Source, tokens: Sequence[Token]) -> Source:
    """The source with everything that it uses; a `SpecError` names what is missing."""
    if source.pieces or not any(token.type == "USE" for token in tokens):
        return source
    return _Linking(source).whole(tokens)


def standalone(source: Source) -> str:
    """The text of a linked source without the names of files."""
    tokens = tokenize(source.text, load().terminals, Problems(source))
    text, at = "", 0
    for word, file in pairwise(tokens):
        if word.type == "FROM" and file.type == "STRING":
            text, at = text + source.text[at : word.start].rstrip(" "), file.end
    return text + source.text[at:]


@dataclass(frozen=True, slots=True)
class _Wanted:
    """`use NAME from "FILE"` in a file."""

    name: Token
    file: Token | None
    home: Source
    shift: int  # from places in that file to places in the whole text

    def at(self, token: Token) -> Span:
        return Span(token.start + self.shift, token.end + self.shift)


class _Linking:
    def __init__(self, source: Source) -> None:
        self.first, self.text, self.pieces = source, source.text, list(source.pieces)
        self.homes: dict[str, str] = {}  # algorithm -> the file it is from
        self.read: dict[str, list[list[Token]]] = {}

    def whole(self, tokens: Sequence[Token]) -> Source:
        found = algorithms(tokens)
        self.homes = {name.text: _identity(self.first) for name in map(_name, found) if name is not None}
        waiting = [one for tokens in found for one in _uses(tokens, self.first, 0)]
        while waiting:
            waiting += self._take(waiting.pop(0))
        return Source(self.first.name, self.text, tuple(self.pieces))

    def _take(self, wanted: _Wanted) -> list[_Wanted]:
        """Adds an algorithm to the text; what that one uses."""
        name = wanted.name.text
        source = self._source(wanted)
        if source is None:
            return []  # the parser says that there is none
        home = _identity(source)
        if name in self.homes:
            if self.homes[name] != home:
                label = f"one is of {self.homes[name]}, this one of {home}"
                message = f"two algorithms are called {name}"
                self.add("P147", wanted.at(wanted.name), message, label, "rename one of them")
            return []
        found = next((tokens for tokens in self._file_of(source) if _called(tokens) == name), None)
        if found is None:
            held = [one for one in map(_called, self._file_of(source)) if one]
            near = did_you_mean(name, held) or f"it has: {listed(held)}"
            self.add("P145", wanted.at(wanted.name), f"{source.name} has no algorithm {name}", near)
        assert found is not None
        self.homes[name] = home
        if len(self.homes) > MOST_ALGORITHMS:
            message = f"more than {MOST_ALGORITHMS} algorithms are used"
            self.add("P145", wanted.at(wanted.name), message, "the limit is here")
        begin, end = found[0].start, found[-1].end
        self.text += ("" if self.text.endswith("\n") else "\n") + f"\n# {name} of {printable(source.name)}\n"
        shift = len(self.text) - begin
        self.pieces.append(Excerpt(len(self.text), source.name, source.position(begin)[0]))
        self.text += source.text[begin:end] + "\n"
        return list(_uses(found, source, shift))

    def _source(self, wanted: _Wanted) -> Source | None:
        """Where an algorithm is: in the file that is named, in the one that uses it, or among the built-in ones."""
        if wanted.file is not None:
            return self._beside(wanted, wanted.file)
        if any(_called(tokens) == wanted.name.text for tokens in self._file_of(wanted.home)):
            return wanted.home
        return shipped(wanted.name.text) if wanted.name.text in folders() else None

    def _beside(self, wanted: _Wanted, file: Token) -> Source:
        """The file that is named beside the one that names it."""
        word = file.text[1:-1]
        if not word.endswith(SPEC_SUFFIX):
            self.add(
                "P145", wanted.at(file), f"{word} is no {SPEC_SUFFIX} file", "algorithms are in files of that kind"
            )
        path = folder(wanted.home) / word
        try:
            return read_spec(path)
        except InputError as error:
            label = "a file is looked for beside the one that uses it"
            self.add("P145", wanted.at(file), f"this cannot be used: {error}", label)
            raise

    def _file_of(self, source: Source) -> list[list[Token]]:
        """The algorithms of a file."""
        key = _identity(source)
        if key not in self.read:
            problems = Problems(source)
            tokens = tokenize(source.text, load().terminals, problems)
            problems.stop()
            self.read[key] = algorithms(tokens)
        return self.read[key]

    def add(self, code: str, span: Span, message: str, label: str, *notes: str) -> None:
        """Raises what is wrong."""
        problems = Problems(Source(self.first.name, self.text, tuple(self.pieces)))
        problems.add(code, span, message, label, *notes)
        problems.stop()


def folder(source: Source) -> Path:
    """Where the files that a source names are looked for: beside it, or here if it is no file."""
    return Path(source.name).parent if source.name.endswith(SPEC_SUFFIX) else Path()


def _identity(source: Source) -> str:
    """The same text under any path."""
    return str(Path(source.name).resolve()) if source.name.endswith(SPEC_SUFFIX) else source.name


def _name(tokens: Sequence[Token]) -> Token | None:
    return tokens[1] if len(tokens) > 1 and tokens[0].type == "ALGORITHM" and tokens[1].type == "NAME" else None


def _called(tokens: Sequence[Token]) -> str | None:
    name = _name(tokens)
    return None if name is None else name.text


def _uses(tokens: Sequence[Token], home: Source, shift: int) -> Iterator[_Wanted]:
    for at, token in enumerate(tokens[:-1]):
        if token.type == "USE" and tokens[at + 1].type == "NAME":
            named = at + 3 < len(tokens) and tokens[at + 2].type == "FROM" and tokens[at + 3].type == "STRING"
            yield _Wanted(tokens[at + 1], tokens[at + 3] if named else None, home, shift)
