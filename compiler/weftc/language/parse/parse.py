"""Text -> `Spec`: tokens, brackets, grammar; all mistakes of form in one go."""

from __future__ import annotations

from bisect import bisect_right, insort
from os import PathLike
from pathlib import Path

from weftc.core.errors import InputError
from weftc.core.source import Source, Span, printable
from weftc.core.syntax import Spec
from weftc.language.check.problems import Problems
from weftc.language.explain.context import VALUE, Trouble
from weftc.language.explain.unexpected import explain
from weftc.language.explain.words import meant_as_section
from weftc.language.parse.globals import with_globals
from weftc.language.parse.grammar import load
from weftc.language.parse.lexer import END, SECTIONS, Token, section_before, tokenize
from weftc.language.parse.own_indices import with_own_indices
from weftc.language.parse.parser import Tables, Unexpected, allowed, run
from weftc.language.parse.phases import with_phases
from weftc.language.parse.positions import with_positions
from weftc.language.parse.regions import brackets, region_of, regions
from weftc.language.parse.tree import Builder
from weftc.language.parse.vocabularies import with_symbols

LARGEST = 1_000_000  # bytes of a spec; the longest real one has a few thousand
MOST_MISTAKES = 20  # syntax errors reported in one go
DANGLING = (
    "+",
    "-",
    "*",
    "/",
    "=",
    "+=",
    "-=",
    "else",
    "where",
    "and",
    "weighted",
    "by",
    "among",
)  # a value must follow these


def read_spec(path: str | PathLike[str]) -> Source:
    """The text of a spec file, named by its path; an `InputError` when it is no text of sensible size."""
    return Source(str(path), spec_text(read_bytes(path), str(path)))


def read_bytes(path: str | PathLike[str]) -> bytes:
    """The bytes of a spec file, or one more than a spec may have."""
    shown = printable(str(path))
    try:
        with Path(path).open("rb") as file:
            return file.read(LARGEST + 1)
    except IsADirectoryError:
        raise InputError(f"{shown} is a folder, not a spec file") from None
    except FileNotFoundError:
        raise InputError(f"there is no file {shown}") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "not a usable file name"
        raise InputError(f"cannot read {shown}: {reason}") from None


def spec_text(data: bytes, name: str) -> str:
    """The text in the bytes of a spec, its lines ended by line feeds alone."""
    shown = printable(name)
    if len(data) > LARGEST:
        raise InputError(f"{shown} is too large for a spec: more than {LARGEST // 1_000_000} MB; is it a data file?")
    if b"\0" in data:
        at = data.index(b"\0")
        raise InputError(f"{shown} is not a text file: byte {at} is zero; a spec is plain text in UTF-8")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{shown} is not UTF-8 text: byte 0x{data[error.start]:02x} in line {line} has no meaning; save it as UTF-8"
        ) from None
    return text.replace("\r\n", "\n")


def parse(source: Source | str) -> Spec:
    """The syntax tree of a spec, or a `SpecError` with everything that is wrong with its form."""
    if isinstance(source, str):
        source = Source("spec", source)
    problems = Problems(source)
    if len(source.text) > LARGEST:
        problems.add("P114", Span(0, 1), f"this text is too long for a spec: more than {LARGEST} characters")
        problems.stop()
    grammar = load()
    tokens = tokenize(source.text, grammar.terminals, problems)
    if not tokens and not problems.found:
        only = "holds only comments" if source.text.strip() else "is empty"
        problems.add("P101", Span(0, 1), f"the file {only}", "", "a spec starts with: algorithm NAME")
    if not tokens:
        problems.stop()
    starts = regions(tokens, source.text)
    broken = {region_of(starts, _token_at(tokens, problem.span.start)) for problem in problems.found}
    broken |= brackets(tokens, starts, problems)
    spec = _parse(grammar, tokens, starts, broken, problems)
    problems.stop()
    assert spec is not None
    return with_positions(with_own_indices(with_symbols(with_globals(with_phases(spec, problems)))))


def _token_at(tokens: list[Token], offset: int) -> int:
    """The last token that starts at or before an offset."""
    return max(0, bisect_right([token.start for token in tokens], offset) - 1)


def _parse(
    grammar: Tables, tokens: list[Token], starts: list[int], broken: set[int], problems: Problems
) -> Spec | None:
    """The spec, or None after reporting; after a mistake it goes on at the next region, as if that came first."""
    region = 0
    while region < len(starts) and len(problems.found) < MOST_MISTAKES:
        begin = starts[region]
        ahead = _lead_in(tokens, begin) if begin else []
        skipped = 1 if begin and tokens[begin].text == "then" else 0
        rest = [*ahead, *tokens[begin + skipped :]]
        try:
            spec: Spec = run(grammar, rest, Builder(problems).build)
            return spec
        except Unexpected as unexpected:
            at = unexpected.at + begin + skipped - len(ahead)
            expected = frozenset(allowed(grammar, unexpected.stack))
        here = region_of(starts, at)
        if here > region and _continues(tokens, starts[here], at):
            at, expected = starts[here], VALUE
        # A token that starts a region is not to blame when the region before it is unfinished.
        early = at == len(tokens) or (here > region and starts[here] == at and not _astray(tokens, at))
        blamed = (len(starts) if at == len(tokens) else here) - early
        token = tokens[at] if at < len(tokens) else Token(END, "", tokens[-1].end, tokens[-1].end)
        if blamed not in broken:
            broken.add(blamed)
            trouble = Trouble(tokens, at, token, expected, starts[blamed], grammar.terminals, problems)
            explain(trouble)
            meant = meant_as_section(trouble)
            if meant is not None:  # read on as if the section word had been spelt right
                at, word = meant
                tokens[at] = tokens[at]._replace(type=grammar.terminals[word], text=word)
                broken.discard(blamed)
                if at not in starts:
                    insort(starts, at)
                    broken = {number + (starts[number] >= at) for number in broken}
                region = region_of(starts, at)
                continue
        region = blamed + 1
    return None


def _continues(tokens: list[Token], start: int, at: int) -> bool:
    """Whether the parser took `NAME[...]` at the start of a region for the value that an operator before it lacks."""
    assigned = at < len(tokens) and tokens[at].text in ("=", "+=", "-=", ":")
    return assigned and at > start and tokens[start - 1].text in DANGLING


def _astray(tokens: list[Token], at: int) -> bool:
    """Whether a `then` stands outside a layer."""
    section = section_before(tokens[:at])
    return tokens[at].text == "then" and (section is None or section.text not in ("layer", "phase"))


def _lead_in(tokens: list[Token], begin: int) -> list[Token]:
    """Tokens that make the rest of a spec look like a whole one: its head, and the section it is in the middle of."""
    at = tokens[begin].start
    lead = [Token("ALGORITHM", "algorithm", at, at), Token("NAME", "_", at, at)]
    if tokens[begin].text in SECTIONS:
        return lead if tokens[begin].text != "algorithm" else []
    word = section_before(tokens[:begin])
    if (
        word is None
        or word.text in ("algorithm", "phase", "repeat", "objective", "example")
        or tokens[begin].text == "then"
    ):
        word = Token("LAYER", "layer", at, at)
    return [*lead, Token(word.type, word.text, at, at)]
