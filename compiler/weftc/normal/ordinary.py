"""Whether a normal form needs no head but softmax attention, and where it does."""

from __future__ import annotations

from weftc.core.errors import Diagnostic, SpecError
from weftc.normal.form import NormalForm
from weftc.normal.slots import Attended, NormalHead

CHOICES = ("argmax", "top", "normmax")
SUMS = ("sum", "exp")


def softmax_alone(normal: NormalForm) -> None:
    """Raises where something needs a head that is no softmax of inner products and distances."""
    found: dict[NormalHead, None] = {}
    for step in normal.steps:
        found |= {s.content.head: None for s in step.local if isinstance(s.content, Attended)}
        found |= {pattern.head: None for pattern in step.patterns}
    wrong = [(head, what) for head in found if (what := _why_not(head)) is not None]
    if wrong:
        problems = [
            Diagnostic("L306", head.span, f"this needs a head that is no softmax: {what[0]}", notes=what[1:])
            for head, what in wrong
        ]
        raise SpecError(normal.checked.spec.source, list(dict.fromkeys(problems)))


def _why_not(head: NormalHead) -> tuple[str, ...] | None:
    """What a head is instead of a softmax, and what would be one."""
    functions = tuple(dict.fromkeys(factor.function for factor in head.score.factors))
    if functions:
        said = ", ".join(functions)
        note = "exp of a sum of products and squared distances is a softmax: a Gaussian kernel in place of this one"
        return f"it weighs by a function of its scores ({said})", note
    if head.how.kind in CHOICES:
        return f"it chooses ({head.how.kind})", "with --hardmax softmax a choice is a softmax of finite temperature"
    if head.how.kind in SUMS:
        return "its weights do not add up to 1", "a mean weighted by exp(...) or by a softmax field is a softmax"
    return None if head.how.kind == "softmax" else (f"its weights are {head.how.kind} of scores",)
