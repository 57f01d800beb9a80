"""The pictures there are, by name: `plot(target, what, data)` -> a matplotlib figure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from weftc.core.errors import InputError
from weftc.core.source import printable
from weftc.core.words import did_you_mean

if TYPE_CHECKING:
    from weftc.compiling import SpecLike
    from weftc.show.figures.canvas import PaperFigure
    from weftc.show.figures.subject import Subject
    from weftc_runtime import Checkpoint
    from weftc_runtime.data.progress import Progress

INSTALL = "pictures need matplotlib; install it with: pip install weftc[plot]"


@dataclass(frozen=True, slots=True)
class PictureOptions:
    """How a picture is to be drawn. `width` is in inches; None is what suits the picture."""

    width: float | None = None
    heads: tuple[str, ...] = ()  # only these; empty is all
    plane: Literal["auto", "first", "pca"] = "auto"


@dataclass(frozen=True, slots=True)
class Picture:
    """One kind of picture: where it is drawn (`draw(subject, look)` of a module), and what it needs."""

    about: str
    module: str
    needs: Literal["", "dims", "data"]  # "data": a run
    lacks: Callable[[Subject], str]  # why a spec has no such picture; empty if it has


def _always(subject: Subject) -> str:
    return ""


def _objective(subject: Subject) -> str:
    return "" if subject.checked.spec.objective is not None else "it states no objective"


def _vectors(subject: Subject) -> str:
    fields = subject.checked.fields.values()
    return "" if any(one.width is not None and one.role != "random" for one in fields) else "its tokens hold no vectors"


def _choices(subject: Subject) -> str:
    from weftc.show.figures.choosing import choosing_heads

    return "" if choosing_heads(subject.checkpoint.program) else "no head of its layer chooses by score alone"


def _attention(subject: Subject) -> str:
    from weftc.show.figures.choosing import pattern_heads

    return (
        ""
        if pattern_heads(subject.checkpoint.program)
        else "the heads of its layer give numbers, no weights over tokens"
    )


PICTURES: Mapping[str, Picture] = {
    "graph": Picture("the equations and what each reads", "weftc.show.figures.graph_figure", "", _always),
    "stream": Picture("the residual streams as named slots", "weftc.show.figures.streams", "dims", _always),
    "weights": Picture("every head's matrices as blocks with slot names", "weftc.show.figures.blocks", "dims", _always),
    "attention": Picture("who attends to whom, layer by layer", "weftc.show.figures.attention", "data", _attention),
    "tokens": Picture("tokens in the plane, and the way they go", "weftc.show.figures.plane", "data", _vectors),
    "objective": Picture("the objective by layer", "weftc.show.figures.objective", "data", _objective),
    "margin": Picture("how clear the choices are, by layer", "weftc.show.figures.margin", "data", _choices),
}


def plot(
    target: SpecLike | Checkpoint,
    what: str | None = None,
    data: Any = None,
    path: str | Path | None = None,
    *,
    dims: Mapping[str, int] | None = None,
    params: Mapping[str, float] | None = None,
    layers: int | None = None,
    seed: int = 0,
    width: float | None = None,
    heads: tuple[str, ...] | list[str] = (),
    plane: Literal["auto", "first", "pca"] = "auto",
    force: bool = False,
    progress: Progress | None = None,
    **styles: Any,
) -> PaperFigure:
    """A picture of a spec or model, ready for a paper: a matplotlib figure, which notebooks show by themselves.

    `what` is one of graph, stream, weights, attention, tokens, objective, margin. The last four show a run on `data`:
    an array for the first open input, or input -> array. Without `what`: tokens if there are data, else graph. `path`
    also writes it, as PNG, SVG or PDF by its ending; an existing file is replaced only with `force`. `layers`: how
    many; without it as the spec says, else until nothing visible changes, at most 100. `width` is in inches, `heads`
    are the names of the heads to show, `plane` says how vectors of more than two dimensions are shown. Other keywords
    are lowering styles, as of `weftc.compile`.

    >>> import weftc
    >>> figure = weftc.plot("lloyd", "weights", dims={"d": 2, "k": 3})
    >>> figure.get_size_inches().tolist()[0]
    6.9
    """
    from weftc.show.figures.subject import subject_of

    if path is not None:
        from weftc.show.figures.saving import format_of
        from weftc.show.page.writing import refuse_existing_file

        format_of(path)
        refuse_existing_file(Path(path), force)
    one = subject_of(target, data, dims=dims, params=params, layers=layers, seed=seed, progress=progress, **styles)
    drawn = picture(one, what or usual(one.inputs), PictureOptions(width, tuple(heads), plane))
    if path is not None:
        from weftc.show.figures.saving import save

        save(drawn, path)
    return drawn


def usual(inputs: object) -> str:
    """The picture that is drawn when nobody says which."""
    return "tokens" if inputs else "graph"


def picture(subject: Subject, what: str, look: PictureOptions | None = None) -> PaperFigure:
    """One picture of a subject."""
    require_matplotlib()
    kind = PICTURES.get(what)
    if kind is None:
        hint = did_you_mean(what, PICTURES) or f"there are {', '.join(PICTURES)}"
        raise InputError(f"there is no picture {printable(what)}; {hint}")
    reason = kind.lacks(subject)
    if reason:
        raise InputError(f"{subject.name} has no picture of {what}: {reason}; it has {', '.join(available(subject))}")
    if kind.needs == "data" and not subject.inputs:
        raise InputError(f"a picture of {what} shows a run; give data")
    import matplotlib

    from weftc.show.figures.style import settings

    with matplotlib.rc_context(settings()):
        drawn: PaperFigure = import_module(kind.module).draw(subject, look or PictureOptions())
    return drawn


def available(subject: Subject) -> Iterator[str]:
    """The pictures a spec has."""
    return (name for name, kind in PICTURES.items() if not kind.lacks(subject))


def require_matplotlib() -> None:
    """Says how to get matplotlib where it is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise InputError(INSTALL) from None
