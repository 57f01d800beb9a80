"""How far the weights of a file are from those that were proved: per sub-layer, in scores and in what is written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from weftc.prover.near.score_arrays import ScoreArrays
from weftc.prover.report.report import Deviation
from weftc_runtime.format.program import FFN, Head, Program, Sublayer


def deviations(program: Program, forms: ScoreArrays) -> tuple[Deviation, ...]:
    """Every head and feed-forward whose weights are not exactly those that were proved."""
    found = [one for one in _all(program, forms) if one.inside or one.outside]
    return tuple(dict.fromkeys(found))


def _all(program: Program, forms: ScoreArrays) -> Iterator[Deviation]:
    for stream in program.streams:
        for ffn in stream.derived:
            yield _feed_forward(ffn, f"{stream.name}, renewed after every step", forms)
    for path, step in program.places():
        for index, sublayer in enumerate(step.sublayers):
            yield from _sublayer(sublayer, f"{path}.{index}", forms)
    for answer in program.answers():
        if answer.head is not None:
            scale = [answer.scale] if answer.scale is not None else []
            yield _head(answer.head, f"output {answer.name}", forms, scale)


def _sublayer(sublayer: Sublayer, place: str, forms: ScoreArrays) -> Iterator[Deviation]:
    if isinstance(sublayer, FFN):
        yield _feed_forward(sublayer, place, forms)
        return
    for stream, name in sublayer.carry.items():
        yield Deviation(f"{place}, {stream} carried", "", 0.0, _rows(forms, (name,)))
    for head in sublayer.heads:
        yield _head(head, f"{place}, head {head.name}", forms)


def _head(head: Head, place: str, forms: ScoreArrays, more: Iterable[str] = ()) -> Deviation:
    own = head.self_key
    values = [name for name in (head.value, own.value if own is not None else "") if name]
    inside = forms.error((head.score, *(mask.score for mask in head.masks)))
    rivals = [own.row] if own is not None and own.row is not None else []
    return Deviation(place, "scores", max(inside, _rows(forms, rivals)), _rows(forms, (*values, *more)))


def _feed_forward(ffn: FFN, place: str, forms: ScoreArrays) -> Deviation:
    read = [ffn.a] if ffn.b is None else [ffn.a, ffn.b]
    where = f"{place}, {ffn.function} of {', '.join(ffn.writes)}" if ffn.writes else f"{place}, {ffn.function}"
    return Deviation(where, "arguments", _rows(forms, read), _rows(forms, (ffn.out, ffn.carry)))


def _rows(forms: ScoreArrays, names: Iterable[str]) -> float:
    """The largest error of a row times a vector without a coordinate above 1."""
    worst = 0.0
    for name in names:
        forms.matrices[name]
        worst = max(worst, float(forms.matrices.deviations[name].sum(1).max()) * (1 + 2.0**-30))
    return worst
