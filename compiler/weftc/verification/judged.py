"""What a verification judges: a spec in every style that equals it, or a model as it is -> groups of models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from weftc.compiling import at_temperature, compile, sizes_from
from weftc.core.errors import WeftError
from weftc.core.styles import CHOICES, Styles
from weftc.core.types import Checked
from weftc_runtime.format.checkpoint import Checkpoint

OTHERS = 0.15  # of the cases, for styles beside those of scores

# Widths of vectors and sizes of fixed sets where the user leaves them open; the first is the ordinary one.
SIZES = ((2, 3), (1, 2), (3, 1), (1, 1), (2, 5))
WIDE = (24, 24)  # the same of models for large runs: searches carry bounds at these


@dataclass(frozen=True, slots=True)
class JudgedModel:
    """One compiled model under judgement. `share` is its part of the cases."""

    checkpoint: Checkpoint
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class JudgedGroup:
    """Models of one style. `meant` is the spec they compute: at finite temperature, not the one that was written."""

    style: str
    subjects: list[JudgedModel]
    meant: Checked
    share: float = 1.0  # of the cases
    whole: bool = True  # whether whole runs and the user's data are compared too
    wide: tuple[Checkpoint, ...] = ()  # larger ones, for large runs

    @property
    def first(self) -> Checkpoint:
        """The model of ordinary size."""
        return self.subjects[0].checkpoint


def as_it_is(checked: Checked, model: Checkpoint) -> JudgedGroup:
    """A model that somebody has compiled, or made."""
    meant = at_temperature(checked, Styles.read(model.program.options))
    return JudgedGroup(model.program.options.get("scores", "as it is"), [JudgedModel(model)], meant)


def compiled(
    checked: Checked, dims: Mapping[str, int], params: Mapping[str, float], data: Mapping[str, Any]
) -> list[JudgedGroup]:
    """The spec in both styles of scores at every size to be judged, and in every other style that equals it."""
    from weftc.show.style_effects import choices, chosen, same

    sizes = list(dimensions(checked, dims, data))
    shares = [1.0] if len(sizes) == 1 else [0.4] + [0.6 / (len(sizes) - 1)] * (len(sizes) - 1)
    groups, plain = [], {}
    for style in CHOICES["scores"]:
        made = [compile(checked, one, params, scores=style) for one in sizes]  # type: ignore[arg-type]
        plain[style] = made[0]
        subjects = [JudgedModel(model, share) for model, share in zip(made, shares, strict=True)]
        large = next(dimensions(checked, dims, data, (WIDE,)))
        wide = () if len(sizes) == 1 else (compile(checked, large, params, scores=style),)  # type: ignore[arg-type]
        groups.append(JudgedGroup(style, subjects, checked, wide=wide))
    for style, value in choices():
        if style in ("scores", "hardmax"):  # a finite temperature is another algorithm, near this one
            continue
        keywords = chosen(style, value)
        try:
            model = compile(checked, sizes[0], params, **keywords)
        except WeftError:  # a style that says it does not apply
            continue
        if not same(model, plain[keywords.get("scores", "l2")]):
            groups.append(JudgedGroup(f"{style}={value}", [JudgedModel(model)], checked, OTHERS, whole=False))
    return groups


def dimensions(
    checked: Checked, given: Mapping[str, int], data: Mapping[str, Any], sizes: Sequence[tuple[int, int]] = SIZES
) -> Iterator[dict[str, int]]:
    """Dimensions to compile for: what is given or follows from the data, and several sizes for the rest."""
    known = {**sizes_from(checked, data), **given}
    counts = {size for size in checked.sets.values() if isinstance(size, str)}
    seen = []
    for width, count in sizes:
        dims = {name: known.get(name, count if name in counts else width) for name in checked.dims}
        if dims not in seen:
            seen.append(dims)
            yield dims
