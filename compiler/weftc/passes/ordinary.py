"""Whether a normal form needs no head but softmax attention, and where it does."""

from __future__ import annotations

from weftc.core.errors import Diagnostic, SpecError
from weftc.normal.form import NormalForm
from weftc.normal.slots import Attended, NormalHead
from weftc.passes.context import NoAttentionForm

CHOICES = ("argmax", "top", "normmax")
SUMS = ("sum", "exp")


def softmax_alone(normal: NormalForm) -> None:
    """Raises where something needs a head that is no softmax of inner products and distances."""
    found: dict[NormalHead, None] = {}
    for step in normal.steps:
        found |= {s.content.head: None for s in step.local if isinstance(s.content, Attended)}
        found |= {pattern.head: None for pattern in step.patterns}
    wrong = [(head, why) for head in found if (why := _why_not(head)) is not None]
    if wrong:
        problems = [Diagnostic(why.code, head.span, why.message, notes=why.notes) for head, why in wrong]
        raise SpecError(normal.checked.spec.source, list(dict.fromkeys(problems)))


def _why_not(head: NormalHead) -> NoAttentionForm | None:
    """What a head is instead of a softmax, and what would be one."""
    functions = ", ".join(dict.fromkeys(factor.function for factor in head.score.factors))
    if not functions and head.how.kind == "softmax":
        return None
    what, *notes = f"its weights are {head.how.kind} of scores", ""
    if functions:
        what = f"it weighs by a function of its scores ({functions})"
        notes = ["exp of a sum of products and squared distances is a softmax: a Gaussian kernel in place of this one"]
    elif head.how.kind in CHOICES:
        what = f"it chooses ({head.how.kind})"
        notes = ["with --hardmax softmax a choice is a softmax of finite temperature"]
    elif head.how.kind in SUMS:
        what = "its weights do not add up to 1"
        notes = ["a mean weighted by exp(...) or by a softmax field is a softmax"]
    return NoAttentionForm(f"this needs a head that is no softmax: {what}", *filter(None, notes), code="L306")
