"""Tokens in the plane: where the vectors of a run are, and the way those go that move.

All fields of one width share a space, so they share a picture. Two dimensions are drawn as they are; one is drawn over
the layers; of more, the first two or the two principal components of everything drawn, and the axes say which.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from weftc.show.figures.canvas import PaperFigure
from weftc.show.figures.pictures import PictureOptions
from weftc.show.figures.style import COLUMN, FAINT, HAIR, INK, colour, marker
from weftc.show.figures.subject import Subject
from weftc.show.figures.watching import Array

FEW = 24  # tokens that are drawn one by one, each with its own colour
WAYS = 80  # tokens whose way is drawn, of those that move


@dataclass(frozen=True, slots=True)
class Track:
    """One vector field of a run: (times, tokens, width), which of its tokens are drawn, and their groups."""

    name: str
    stream: str
    values: Array
    total: int
    groups: Array | None  # token -> the token of another set it belongs to in the end
    unit: bool

    @property
    def moves(self) -> bool:
        return not np.array_equal(self.values[0], self.values[-1])

    @property
    def single(self) -> bool:
        """Whether each token is a series of its own."""
        return self.moves and self.values.shape[1] <= FEW


def draw(subject: Subject, look: PictureOptions) -> PaperFigure:
    """One panel of the space that the first vector input lives in."""
    tracks = list(_tracks(subject))
    space = tracks[0].values.shape[2]
    width = look.width or COLUMN
    figure = PaperFigure(figsize=(width, width * (0.66 if space == 1 else 0.98)), layout="constrained")
    axes = figure.subplots()
    if space == 1:
        _over_layers(axes, tracks)
    else:
        project, labels = _projection(subject, tracks, look.plane)
        _in_the_plane(axes, tracks, project, space)
        axes.set_xlabel(labels[0])
        axes.set_ylabel(labels[1])
    _legend(figure, tracks, subject.course.layers)
    return figure


# ---- what is drawn ---------------------------------------------------------------------------------------------------


def _tracks(subject: Subject) -> list[Track]:
    """The vector fields of the first input's width, in the order of the spec; those that never move come first."""
    checked, course = subject.checked, subject.course
    vectors = [one for one in checked.fields.values() if one.width is not None and one.role != "random"]
    home = next((one for one in vectors if one.role == "input" and checked.is_open(one.home)), vectors[0])
    found = []
    for one in vectors:
        if one.width != home.width or one.role == "computed" or not _held(subject, one.name):
            continue
        stream, _ = course.field(one.name)
        groups = _groups(subject, stream)
        found.append(
            Track(one.name, stream, course.over_time(one.name), course.sizes[stream], groups, one.kind == "unit")
        )
    return sorted(found, key=lambda track: track.moves)


def _held(subject: Subject, name: str) -> bool:
    return any(slot.name == name for stream in subject.course.program.streams for slot in stream.slots)


def _groups(subject: Subject, stream: str) -> Array | None:
    """To which token of a fixed set each token belongs in the end, by a field of weights."""
    checked, course = subject.checked, subject.course
    for one in checked.fields.values():
        if one.kind in ("onehot", "simplex") and one.role != "input" and _held(subject, one.name):
            where, slot = course.field(one.name)
            if where == stream:
                return np.asarray(course.states[-1][where, slot].argmax(1))
    return None


# ---- two dimensions --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Projection:
    """A linear map to the plane."""

    centre: Array
    axes: Array  # (2, width)

    def __call__(self, values: Array) -> Array:
        return np.asarray((values - self.centre) @ self.axes.T)


def _projection(subject: Subject, tracks: Sequence[Track], plane: str) -> tuple[Projection, tuple[str, str]]:
    space = tracks[0].values.shape[2]
    if space == 2 or plane == "first":
        names = next((subject.coordinates[t.name] for t in tracks if t.name in subject.coordinates), ())
        labels = (names[0], names[1]) if len(names) >= 2 else ("first dimension", "second dimension")
        rest = f" of {space}" if space > 2 else ""
        return Projection(np.zeros(space), np.eye(2, space)), (labels[0] + rest, labels[1] + rest)
    cloud = np.concatenate([track.values[[0, -1]].reshape(-1, space) for track in tracks])
    centre = cloud.mean(0)
    _, sizes, directions = np.linalg.svd(cloud - centre, full_matrices=False)
    axes = directions[:2] * np.sign(directions[:2][np.arange(2), np.abs(directions[:2]).argmax(1)])[:, None]
    shares = sizes[:2] ** 2 / max(float((sizes**2).sum()), np.finfo(float).tiny)
    first, second = (
        f"{which} principal component ({share:.0%} of variance)"
        for which, share in zip(("first", "second"), shares, strict=True)
    )
    return Projection(centre, axes), (first, second)


def _in_the_plane(axes: Axes, tracks: Sequence[Track], project: Projection, space: int) -> None:
    if space == 2 and any(track.unit for track in tracks):
        turn = np.linspace(0, 2 * np.pi, 200)
        axes.plot(np.cos(turn), np.sin(turn), color=HAIR, linewidth=0.6, zorder=0)
    for number, track in enumerate(tracks):
        places = project(track.values)
        if track.single:
            _single(axes, places)
        elif track.moves:
            _flock(axes, places, number)
        else:
            _cloud(axes, places[-1], track, number)
    axes.set_aspect("equal", adjustable="datalim")
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.yaxis.set_major_locator(MaxNLocator(6))


def _cloud(axes: Axes, places: Array, track: Track, number: int) -> None:
    """Tokens that stay where they are."""
    size = 5.0 if len(places) > 100 else 9.0
    look: dict[str, Any] = {"s": size, "linewidths": 0.35, "alpha": 0.75, "zorder": 1}
    if track.groups is None:
        axes.scatter(
            places[:, 0], places[:, 1], color=FAINT if number == 0 else colour(number), marker=marker(number), **look
        )
        return
    for group in np.unique(track.groups):
        mine = track.groups == group
        axes.scatter(places[mine, 0], places[mine, 1], color=colour(int(group)), marker=marker(int(group)), **look)


def _single(axes: Axes, places: Array) -> None:
    """A few tokens, each with its way, its start hollow and its end full."""
    for token in range(places.shape[1]):
        way = places[:, token]
        axes.plot(*way.T, color=INK, linewidth=0.9, zorder=3, solid_capstyle="round")
        axes.plot(
            *way[:1].T, marker="o", markersize=4, color=INK, markerfacecolor="white", markeredgewidth=0.8, zorder=4
        )
        axes.plot(
            *way[-1:].T,
            marker=marker(token),
            markersize=7,
            color=colour(token),
            markeredgecolor=INK,
            markeredgewidth=0.8,
            zorder=5,
        )


def _flock(axes: Axes, places: Array, number: int) -> None:
    """Many tokens that move: thin ways of some of them, ends of all."""
    step = max(1, places.shape[1] // WAYS)
    for token in range(0, places.shape[1], step):
        axes.plot(*places[:, token].T, color=HAIR, linewidth=0.5, zorder=1)
    axes.scatter(places[0, :, 0], places[0, :, 1], s=3, color=FAINT, alpha=0.6, linewidths=0, zorder=2)
    axes.scatter(
        places[-1, :, 0],
        places[-1, :, 1],
        s=14,
        color=colour(number),
        marker=marker(number),
        edgecolors=INK,
        linewidths=0.5,
        zorder=4,
    )


# ---- one dimension ---------------------------------------------------------------------------------------------------


def _over_layers(axes: Axes, tracks: Sequence[Track]) -> None:
    for number, track in enumerate(tracks):
        times = np.arange(len(track.values))
        if not track.moves:
            values = track.values[-1][:, 0]
            groups = np.zeros(len(values), int) if track.groups is None else track.groups
            shades = [FAINT if track.groups is None else colour(int(group)) for group in groups]
            axes.scatter(
                np.full(len(values), times[-1] * 1.03 + 0.05), values, s=16, color=shades, marker="_", linewidths=0.8
            )
            continue
        chosen = range(0, track.values.shape[1], max(1, track.values.shape[1] // WAYS))
        for token in chosen:
            shade = colour(token) if track.single else colour(number)
            dots = marker(token) if track.single and len(times) <= 40 else ""
            axes.plot(
                times, track.values[:, token, 0], color=shade, marker=dots, linewidth=1.0 if track.single else 0.5
            )
    axes.set_xlabel("layers done")
    axes.set_ylabel(", ".join(track.name for track in tracks))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


# ---- words -----------------------------------------------------------------------------------------------------------


def _legend(figure: PaperFigure, tracks: Sequence[Track], layers: int) -> None:
    handles: list[Line2D] = []
    for number, track in enumerate(tracks):
        shown = track.values.shape[1]
        some = f"{shown} of {track.total} {track.stream}" if shown < track.total else track.stream
        after = f"{track.name} after {layers} layer{'s' if layers > 1 else ''}"
        if track.moves and track.values.shape[2] == 1:
            handles.append(_sample(f"{track.name} ({some})", INK, "o", 3, line=True))
        elif track.single:
            handles.append(_sample(f"{track.name} ({some}), start", INK, "o", 4, fill="white", line=True))
            handles.append(_sample(after, HAIR, "o", 6, edge=INK))
        elif track.moves:
            handles.append(_sample(f"{track.name} ({some}), start", HAIR, "o", 2, fill=FAINT, line=True))
            handles.append(_sample(after, colour(number), marker(number), 4, edge=INK))
        elif track.groups is not None:
            handles.append(_sample(f"{track.name} ({some}), by choice", FAINT, "o", 3))
        else:
            shade = FAINT if number == 0 else colour(number)
            handles.append(_sample(f"{track.name} ({some})", shade, marker(number), 3.5))
    columns = 2 if len(handles) > 2 else len(handles)
    figure.legend(handles=handles, loc="outside upper left", ncols=columns, handletextpad=0.4, columnspacing=1.2)


def _sample(
    label: str,
    shade: str,
    shape: str,
    size: float,
    fill: str | None = None,
    edge: str | None = None,
    line: bool = False,
) -> Line2D:
    """An entry of the legend."""
    return Line2D(
        [],
        [],
        color=shade,
        marker=shape,
        markersize=size,
        markerfacecolor=fill or shade,
        markeredgecolor=edge or shade,
        markeredgewidth=0.7,
        linestyle="-" if line else "none",
        linewidth=0.9,
        label=label,
    )
