"""`explain`: a checkpoint -> the spec that its weights carry out, and a proof that they do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, product

from weftc.core.errors import SpecError
from weftc.core.source import Source
from weftc.core.types import Checked
from weftc.decompiler.labels import Unplaced, labelled
from weftc.decompiler.linear import COARSE, FINE, ROUNDING, Unread
from weftc.decompiler.loop import Loop
from weftc.decompiler.terms import LITERAL, WORK, TooLong
from weftc.decompiler.text import SpecWriter, Unspeakable
from weftc.language.check.check import check
from weftc.language.parse.parse import parse
from weftc.prover import Proof, prove
from weftc_runtime.format.checkpoint import Checkpoint
from weftc_runtime.format.program import Program

LONGEST = 160  # letters of an equation, or of why it is not shown
MOST_READINGS = 8  # ways to say which sets the rows of inputs are about


@dataclass(frozen=True, slots=True, eq=False)
class Explanation:
    """What was read from weights, and what is known about it."""

    text: str  # a spec, or as much of one as could be read
    model: Checkpoint | None = None  # the same weights under the names of the spec
    proof: Proof | None = None
    unread: tuple[tuple[int, Unread], ...] = ()  # matrices that the text names M1, M2, ...
    reason: str = ""  # why this is no spec, or why there is no proof

    @property
    def verdict(self) -> str:
        """proved, proved up to eps, not shown, or not read."""
        return "not read" if self.proof is None else self.proof.verdict

    @property
    def is_proved(self) -> bool:
        return self.verdict in ("proved", "proved up to eps")

    def __str__(self) -> str:
        said = f"{self.verdict}: {self.reason}" if self.reason else self.verdict
        lines = [self.text.rstrip(), "", *(f"# {line}".rstrip() for line in said.splitlines())]
        if self.proof is not None:
            lines += [f"# {line}" for line in ([self.proof.error] if self.proof.error else [])]
            lines += [f"# {step.place}: {_short(step.equation)}: {_short(step.reason)}" for step in self.proof.failures]
        for number, one in self.unread:
            lines += [
                f"# M{number}: {line}" if not at else f"# {line}" for at, line in enumerate(str(one).splitlines())
            ]
        return "\n".join(lines) + "\n"


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def explain(checkpoint: Checkpoint) -> Explanation:
    """Reads the algorithm of a model from its weights alone, writes it as a spec, and proves that the two are equal.

    Nothing is read of the spec in the file, of names, of what slots are called or of what they are for. What is read:
    streams with their sizes and widths, which sub-layers there are and in which step, the kinds of weightings and
    functions, all matrices, what the user gives (shapes and contracts), where the embedding puts it and where answers
    are read. The proof is about the same weights under the names of the new spec.
    """
    best: Explanation | None = None
    WORK.set([0])
    for rounding, literal in ((FINE, False), (FINE, True), (COARSE, False)):
        tokens = ROUNDING.set(rounding), LITERAL.set(literal)
        try:
            for pairs in islice(_readings(checkpoint.program), MOST_READINGS):
                found = _explained(checkpoint, pairs)
                if best is None or _rank(found) > _rank(best):
                    best = found
                if best.is_proved:
                    return best
        finally:
            ROUNDING.reset(tokens[0])
            LITERAL.reset(tokens[1])
    assert best is not None
    return best


def _rank(one: Explanation) -> int:
    return 3 if one.is_proved else 2 if one.proof is not None else 1 if one.model is not None else 0


def _readings(program: Program) -> Iterator[dict[str, str]]:
    """Which set the second index of an input runs over: one of as many tokens as its rows have columns."""
    names, choices = [], []
    for given in (*program.inputs, *program.noises):
        width = program.stream(given.stream).slot(given.slot).width
        sets = [stream.name for stream in program.streams if stream.size == width]
        if given.kind not in ("number", "vector", "unit") and not given.symbols and (sets or width > 1):
            names.append(given.name)
            choices.append(sets)
    for chosen in product(*choices):
        yield dict(zip(names, chosen, strict=True))


def _explained(
    checkpoint: Checkpoint,
    pairs: dict[str, str],
    apart: frozenset[tuple[str, str]] = frozenset(),
    again: frozenset[tuple[int, tuple[str, str]]] = frozenset(),
) -> Explanation:
    """One reading. `apart`: slots that hold the same, each of which has to be a field of its own. `again`: inputs that
    a step sets to what they are.
    """
    loop = Loop(checkpoint, pairs, apart, again)
    try:
        algorithm = loop.algorithm()
        writer = SpecWriter(checkpoint.program, algorithm, pairs=pairs)
        text = writer.text()
    except (Unspeakable, KeyError) as reason:
        said = reason if isinstance(reason, Unspeakable) else "a token that no index of the equation names"
        every = tuple(enumerate(loop.unread, 1))
        return Explanation("", unread=every, reason=f"it computes what the language has no words for: {said}")
    except TooLong:
        return Explanation("", reason=f"its equations are too long to be read: {loop.where}")
    unread = tuple((number, loop.unread[at - 1]) for at, number in writer.matrices.items())
    if unread:
        return Explanation(text, unread=unread, reason="some matrices mean nothing in terms of whole vectors")
    try:
        checked = _checked(text)
    except SpecError as error:
        return Explanation(text, reason=f"this is no spec: {error}")
    try:
        model = labelled(checkpoint, algorithm, writer, checked)
    except Unplaced as reason:
        if reason.several - apart or reason.again - again:
            return _explained(checkpoint, pairs, apart | reason.several, again | reason.again)
        return Explanation(text, reason=str(reason))
    return Explanation(text, model, prove(model, checked))


def _checked(text: str) -> Checked:
    return check(parse(Source("explained", text)))
