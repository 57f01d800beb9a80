"""Text -> `Spec`: tokens, brackets, grammar; all mistakes of form in one go."""

from __future__ import annotations

from bisect import bisect_right, insort

from weftc.core.source import Source, Span
from weftc.core.syntax import Spec
from weftc.language.check.problems import Problems
from weftc.language.explain.context import VALUE, Trouble
from weftc.language.explain.unexpected import explain
from weftc.language.explain.words import meant_as_section
from weftc.language.parse.files import LARGEST
from weftc.language.parse.globals import with_globals
from weftc.language.parse.grammar import load
from weftc.language.parse.lexer import END, SECTIONS, Token, section_before, tokenize
from weftc.language.parse.linking import algorithms, linked
from weftc.language.parse.matrices import with_matrices
from weftc.language.parse.own_indices import with_own_indices
from weftc.language.parse.pairs import with_pairs
from weftc.language.parse.parser import Tables, Unexpected, allowed, run
from weftc.language.parse.phases import with_phases
from weftc.language.parse.positions import with_positions
from weftc.language.parse.regions import brackets, region_of, regions
from weftc.language.parse.tree import Builder
from weftc.language.parse.uses import with_uses
from weftc.language.parse.vocabularies import with_symbols

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


def parse(source: Source | str) -> Spec:
    """The syntax tree of a spec with all that it uses, or a `SpecError` with everything that is wrong with its form."""
    if isinstance(source, str):
        source = Source("spec", source)
    found, problems = _linked_trees(source)
    return _plain(found, found[0], problems)


def parts(source: Source) -> tuple[Spec, ...]:
    """The other algorithms of a file, each like the first with all that it uses."""
    found, problems = _linked_trees(source)
    own = (spec for spec in found[1:] if spec.span.start < len(source.text))
    return tuple(_plain(found, spec, problems) for spec in own)


def _linked_trees(source: Source) -> tuple[tuple[Spec, ...], Problems]:
    problems = Problems(source)
    tokens = _tokens(problems)
    if not problems.found:
        whole = linked(source, tokens)
        if whole is not source:
            problems = Problems(whole)
            tokens = _tokens(problems)
    return _trees(tokens, problems), problems


def _plain(found: tuple[Spec, ...], spec: Spec, problems: Problems) -> Spec:
    """A spec without what only the text knows."""
    spec = with_uses(found, spec, problems)
    spec = with_matrices(with_phases(spec, problems), problems)
    problems.stop()
    return with_positions(with_pairs(with_own_indices(with_symbols(with_globals(spec))), problems))


def trees(source: Source) -> tuple[Spec, ...]:
    """The algorithms of a file as they are written."""
    problems = Problems(source)
    return _trees(_tokens(problems), problems)


def _tokens(problems: Problems) -> list[Token]:
    text = problems.source.text
    if len(text) > LARGEST:
        problems.add("P114", Span(0, 1), f"this text is too long for a spec: more than {LARGEST} characters")
        problems.stop()
    tokens = tokenize(text, load().terminals, problems)
    if not tokens and not problems.found:
        only = "holds only comments" if text.strip() else "is empty"
        problems.add("P101", Span(0, 1), f"the file {only}", "", "a spec starts with: algorithm NAME")
    if not tokens:
        problems.stop()
    return tokens


def _trees(tokens: list[Token], problems: Problems) -> tuple[Spec, ...]:
    """The tree of each algorithm of a text."""
    strange, found, files = tuple(problems.found), [], algorithms(tokens)
    for number, own in enumerate(files):
        starts = regions(own, problems.source.text)
        begin = own[0].start if number else 0
        end = files[number + 1][0].start if number + 1 < len(files) else len(problems.source.text) + 1
        here = [problem.span.start for problem in strange if begin <= problem.span.start < end]
        broken = {region_of(starts, _token_at(own, offset)) for offset in here}
        broken |= brackets(own, starts, problems)
        found.append(_parse(load(), own, starts, broken, problems))
    problems.stop()
    return tuple(spec for spec in found if spec is not None)


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
