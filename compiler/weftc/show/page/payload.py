"""A recording -> the data a page draws from, as plain values; and their JSON, safe inside a script block.

Weights and residuals are bytes in base64: a weight is its share of the largest one of its head, 255 is all of it (what
keys leave over is a share of 1); a number of the residual is its share of the largest of its slot, 128 is 0. Positions
are whole numbers from 0 to 9999.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weftc.core.source import printable
from weftc.core.types import Checked
from weftc.show.page.plane import Plane
from weftc.show.page.recording import Recording, has_rest, head_sites
from weftc.show.page.thinning import CURVES, SHOWN, evenly
from weftc.show.weights_text import weighting_text
from weftc_runtime.format.program import Head, Program

Array = NDArray[Any]
GRID = 9999
NAMED, PATHS = 30, 80  # moving tokens of a set up to which each has a number, and a path
WIDEST = 160  # columns of a residual that are still drawn


def payload(recording: Recording, program: Program, checked: Checked, shown: Plane | None) -> dict[str, Any]:
    """Everything the page draws by layers; what a spec does not have is absent."""
    found: dict[str, Any] = {"layers": [frame.layer for frame in recording.frames], "ran": recording.ran}
    groups = _groups(recording, checked)
    found["plane"] = None if shown is None else _plane(shown, recording, groups)
    found["curves"] = [curve for curve in _curves(recording, checked, program) if curve]
    values = [_number(frame.objective) for frame in recording.frames]
    found["objective"] = values if any(value is not None for value in values) else None
    found["margins"] = _margins(recording, program)
    found["patterns"] = list(_patterns(recording, program, groups))
    found["residual"] = list(_residuals(recording, program))
    return found


def script_json(value: Any) -> str:
    """JSON that can stand in a script element: nothing in it can end the element or start a comment."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _number(value: float | None, digits: int = 7) -> float | None:
    """A number with so many digits; what JSON cannot hold is absent."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.{digits}g}")


# ---- tokens ----------------------------------------------------------------------------------------------------------


def _groups(recording: Recording, checked: Checked) -> dict[str, list[Array | None]]:
    """For a stream whose tokens hold a choice or shares over a fixed set: the largest, in every frame."""
    out: dict[str, list[Array | None]] = {}
    for one in checked.fields.values():
        if one.kind in ("onehot", "simplex") and one.home not in out and one.name in recording.frames[-1].fields:
            frames = [frame.fields.get(one.name) for frame in recording.frames]
            out[one.home] = [None if f is None else np.asarray(f).argmax(1) for f in frames]
    return out


def _order(recording: Recording, groups: Mapping[str, list[Array | None]], stream: str) -> Array:
    """The rows for pictures, sorted by the group they end in."""
    places = np.searchsorted(recording.tokens[stream], recording.rows[stream])
    last = groups[stream][-1] if stream in groups else None
    return np.arange(len(places)) if last is None else np.argsort(last[places], kind="stable")


# ---- the plane -------------------------------------------------------------------------------------------------------


def _plane(shown: Plane, recording: Recording, groups: Mapping[str, list[Array | None]]) -> dict[str, Any]:
    low, high = np.array(shown.low), np.array(shown.high)
    fields = []
    for trail in shown.trails:
        frames = [(GRID * (frame - low) / (high - low)).round().astype(int).ravel().tolist() for frame in trail.frames]
        fields.append(
            {
                "name": printable(trail.name),
                "stream": printable(trail.stream),
                "tokens": recording.tokens[trail.stream].tolist(),
                "moves": trail.moves,
                "given": trail.given,
                "named": trail.moves and recording.sizes[trail.stream] <= NAMED,
                "paths": trail.moves and recording.sizes[trail.stream] <= PATHS,
                "frames": frames,
            }
        )
    return {
        "axes": [printable(axis) for axis in shown.axes],
        "low": list(shown.low),
        "high": list(shown.high),
        "equal": shown.equal,
        "fields": fields,
        "groups": {
            printable(stream): [None if frame is None else frame.tolist() for frame in frames]
            for stream, frames in groups.items()
        },
    }


# ---- numbers ---------------------------------------------------------------------------------------------------------


def _curves(recording: Recording, checked: Checked, program: Program) -> Iterator[dict[str, Any]]:
    """Fields that are one number per token and that layers write."""
    written = {slot for step in program.layer for _, slot in step.writes}
    for one in checked.fields.values():
        last = recording.frames[-1].fields.get(one.name)
        if last is None or one.is_pair or last.shape[-1] != 1 or one.role == "random":
            continue
        if one.name not in written and one.width is None:
            continue
        places = evenly(len(last), CURVES)
        frames = [frame.fields.get(one.name) for frame in recording.frames]
        yield {
            "name": printable(one.name),
            "stream": printable(one.home),
            "tokens": recording.tokens[one.home][places].tolist(),
            "moves": one.name in written,
            "frames": [None if f is None else [_number(float(v), 6) for v in f[places, 0]] for f in frames],
        }


def _margins(recording: Recording, program: Program) -> list[dict[str, Any]]:
    out = []
    for (_, key), head in head_sites(program):
        seen = [frame.leads.get(key) for frame in recording.frames]
        if any(seen):
            smallest = [None if one is None else _number(one[0]) for one in seen]
            middle = [None if one is None else _number(one[1]) for one in seen]
            out.append({"head": printable(head.name), "smallest": smallest, "middle": middle})
    return out


# ---- attention and residuals -----------------------------------------------------------------------------------------


def _patterns(
    recording: Recording, program: Program, groups: Mapping[str, list[Array | None]]
) -> Iterator[dict[str, Any]]:
    for (_, key), head in head_sites(program):
        frames = [frame.patterns.get(key) for frame in recording.frames]
        seen = [frame for frame in frames if frame is not None]
        if not seen:
            continue
        rows, columns = _order(recording, groups, head.query), _order(recording, groups, head.keys)
        if has_rest(head):
            columns = np.append(columns, len(columns))
        keys = len(recording.rows[head.keys])
        top = max(float(np.abs(frame[:, :keys]).max(initial=0.0)) for frame in seen) or 1.0
        scale = np.append(np.full(keys, top), np.ones(len(columns) - keys))  # what is left over: a share of 1
        yield {
            "key": key,
            "head": printable(head.name),
            "query": printable(head.query),
            "keys": printable(head.keys),
            "weighting": _told(head, any(bool((frame < 0).any()) for frame in seen)),
            "rows": recording.rows[head.query][rows].tolist(),
            "columns": recording.rows[head.keys][columns[:keys]].tolist(),
            "rest": _rest(head) if has_rest(head) else "",
            "sorted": [head.query in groups, head.keys in groups],
            "top": _number(top, 4),
            "frames": [None if f is None else _bytes(255 * np.abs(f[np.ix_(rows, columns)]) / scale) for f in frames],
        }


def _told(head: Head, negative: bool) -> str:
    """The weighting, and what is drawn where that is not the plain weights."""
    told = {"lse": "log sum exp; drawn is each key's share of the sum", "max": "max; drawn is where it is reached"}
    text = told.get(head.weighting.kind, weighting_text(head.weighting))
    return f"{text}, without signs" if negative else text


def _rest(head: Head) -> str:
    assert head.self_key is not None
    return "the token itself" if head.self_key.row is None else "null key"


def _residuals(recording: Recording, program: Program) -> Iterator[dict[str, Any]]:
    for stream in program.streams:
        frames = [frame.residual.get(stream.name) for frame in recording.frames]
        seen = [frame for frame in frames if frame is not None]
        if not seen or stream.width > WIDEST:
            continue
        rows = recording.rows[stream.name]
        largest = np.maximum.reduce([np.abs(frame).max(0) for frame in seen])
        tops = [max(float(largest[s.columns].max(initial=0.0)), 1e-300) for s in stream.slots]
        scale = np.concatenate([np.full(s.width, top) for s, top in zip(stream.slots, tops, strict=True)])
        yield {
            "stream": printable(stream.name),
            "tokens": rows[evenly(len(rows), SHOWN)].tolist(),
            "slots": [
                {"name": printable(s.name), "width": s.width, "role": s.role, "top": _number(top, 4)}
                for s, top in zip(stream.slots, tops, strict=True)
            ],
            "frames": [None if f is None else _bytes(128 + 127 * f / scale) for f in frames],
        }


def _bytes(values: Array) -> str:
    return base64.b64encode(np.clip(values.round(), 0, 255).astype(np.uint8).tobytes()).decode("ascii")


def sentence(parts: Sequence[str]) -> str:
    """Words joined as in a sentence."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else ""
