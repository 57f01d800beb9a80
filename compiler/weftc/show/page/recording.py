"""A model and its inputs -> what a report shows of a run: fields, attention weights and margins, layer by layer.

The run goes layer by layer through `Model.start` and `Model.advance`, on all tokens. Fields are kept for tokens that
are drawn. Attention weights come from the hook sites of the reference backend; where all of them together would be too
much work, they are those of one layer of the drawn tokens alone from the same fields, and the recording says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from weftc.core.errors import WeftError
from weftc.core.types import Checked
from weftc.show.page.equations import head_key, shown_steps
from weftc.show.page.thinning import ROWS, SHOWN, TOKENS, Frames, evenly
from weftc_runtime.data.hooks import HookBlock
from weftc_runtime.data.progress import Progress, silence
from weftc_runtime.errors import WeftRuntimeError
from weftc_runtime.format.basis import bases_of
from weftc_runtime.format.program import SHIFT_FREE, Attend, Head, Program
from weftc_runtime.format.tensors import NUMBER_HEADS
from weftc_runtime.model import Model

Array = NDArray[Any]
WORK = 2_000_000  # pairs of tokens times the columns of a token that the heads of a layer may go through
SHARES = SHIFT_FREE | {"normalize"}  # weights that sum to one


@dataclass(slots=True)
class RecordedLayer:
    """The state after some layers. `patterns`, `leads` and `residual` are of the last of them; the start has none."""

    layer: int
    fields: dict[str, Array]
    patterns: dict[str, Array] = field(default_factory=dict)  # head -> drawn queries x drawn keys (and what is left)
    leads: dict[str, tuple[float, float]] = field(default_factory=dict)  # head -> smallest and middle lead
    residual: dict[str, Array] = field(default_factory=dict)  # stream -> some tokens x width
    objective: float | None = None


@dataclass(frozen=True, slots=True)
class Recording:
    """A run. `tokens` are the drawn ones of each stream, `rows` those of them that stand for it in pictures."""

    frames: tuple[RecordedLayer, ...]
    ran: int
    stable: bool | None
    sizes: Mapping[str, int]
    tokens: Mapping[str, Array]
    rows: Mapping[str, Array]
    alone: bool  # whether attention was computed among the drawn tokens alone

    @property
    def all_layers(self) -> bool:
        return len(self.frames) == self.ran + 1


@dataclass(frozen=True, slots=True)
class Depth:
    """How long to run: so many layers, or at most `limit` until nothing changes.

    `near`: a field that moves by less than this share of its range counts as standing still; 0: not one bit moves.
    """

    layers: int | None = None
    limit: int = 300
    near: float = 0.0

    @property
    def most(self) -> int:
        return self.limit if self.layers is None else self.layers


def record(
    model: Model,
    checked: Checked,
    inputs: Mapping[str, Any],
    depth: Depth,
    seed: int,
    objective: Callable[[Mapping[str, Array]], float] | None = None,
    progress: Progress | None = None,
) -> Recording:
    """Runs a model and keeps what is drawn."""
    tell = progress or silence
    fields = dict(model.start(dict(inputs), seed=seed))
    recorder = _Recorder(model, checked, fields, seed, objective)
    tell("layer", 0, depth.layers)
    stable, ran = False, 0
    before = fields
    while ran < depth.most and not stable:
        before = fields
        fields = recorder.layer(before, ran)
        ran += 1
        stable = depth.layers is None and _same(before, fields, recorder.written, depth.near)
        tell("layer", ran, depth.layers)
    if ran:
        recorder.last(before, fields, ran)
    frames = [recorder.frames[layer] for layer in sorted(recorder.frames)]
    return Recording(
        tuple(frames),
        ran,
        stable if depth.layers is None else None,
        recorder.sizes,
        recorder.tokens,
        recorder.rows,
        recorder.alone,
    )


def _same(before: Mapping[str, Tensor], after: Mapping[str, Tensor], written: set[str], near: float) -> bool:
    for name in written:
        if name not in before or not torch.equal(before[name], after[name]):
            if name not in before or not near:
                return False
            moved = float((before[name] - after[name]).abs().max())
            if moved > near * float(after[name].max() - after[name].min()):
                return False
    return True


class _Recorder:
    """Keeps frames while a run goes on."""

    def __init__(
        self,
        model: Model,
        checked: Checked,
        fields: Mapping[str, Tensor],
        seed: int,
        objective: Callable[[Mapping[str, Array]], float] | None,
    ) -> None:
        self.model, self.checked, self.seed, self.objective = model, checked, seed, objective
        program = model.program
        self.homes = {s.name: stream.name for stream in program.streams for s in stream.slots if s.role == "field"}
        self.sizes = {stream.name: stream.size or 1 for stream in program.streams}
        self.sizes |= {self.homes[name]: len(value) for name, value in fields.items()}
        self.tokens = {name: evenly(size, TOKENS) for name, size in self.sizes.items()}
        self.rows = {name: tokens[evenly(len(tokens), ROWS)] for name, tokens in self.tokens.items()}
        self.written = {slot for step in program.layer for _, slot in step.writes}
        self.random = {item.slot for item in program.noises}
        self.heads = dict(head_sites(program))
        wide = {stream.name: stream.width for stream in program.streams}
        work = (self.sizes[h.query] * self.sizes[h.keys] * wide[h.keys] for h in self.heads.values())
        self.open = {stream.name for stream in program.streams if stream.size is None}
        self.alone = sum(work) > WORK and any(self.sizes[name] > len(self.rows[name]) for name in self.open)
        self.kept = Frames()
        tensors = {name: plain(model.tensor(name)) for name in program.basis.values()}
        self.bases = {name: basis.inverse for name, basis in bases_of(program, tensors).items()}
        self.frames = {0: RecordedLayer(0, self._drawn(fields), objective=self._value(fields))}

    def layer(self, fields: Mapping[str, Tensor], number: int) -> dict[str, Tensor]:
        """One layer; its frame is kept if it is wanted."""
        wanted = self.kept.wants(number + 1)
        if wanted and not self.alone:
            frame = RecordedLayer(number + 1, {})
            with self._watched(frame, self.tokens_of):
                after = self._advance(self.model, fields, number)
        else:
            after = self._advance(self.model, fields, number)
            frame = self._among_drawn(fields, after, number) if wanted else RecordedLayer(0, {})
        if wanted:
            self._keep(frame, after)
        return after

    def last(self, before: Mapping[str, Tensor], after: Mapping[str, Tensor], ran: int) -> None:
        """Keeps the last layer, wanted or not."""
        if ran in self.frames:
            return
        frame = RecordedLayer(ran, {})
        if self.alone:
            frame = self._among_drawn(before, after, ran - 1)
        else:
            with self._watched(frame, self.tokens_of):
                self._advance(self.model, before, ran - 1)
        self._keep(frame, after)

    def _keep(self, frame: RecordedLayer, fields: Mapping[str, Tensor]) -> None:
        frame.fields, frame.objective = self._drawn(fields), self._value(fields)
        self.frames[frame.layer] = frame
        stay = self.kept.thin(sorted(self.frames))
        self.frames = {layer: one for layer, one in self.frames.items() if layer in stay or layer == frame.layer}

    def _advance(
        self, model: Model, fields: Mapping[str, Tensor], number: int, noise: Mapping[str, Any] | None = None
    ) -> dict[str, Tensor]:
        return dict(model.advance(dict(fields), number, seed=self.seed, noise=noise))

    def _drawn(self, fields: Mapping[str, Tensor]) -> dict[str, Array]:
        return {
            name: plain(value)[self.tokens[self.homes[name]]]
            for name, value in fields.items()
            if name not in self.random
        }

    def _value(self, fields: Mapping[str, Tensor]) -> float | None:
        """The objective, where the fields it reads have values."""
        if self.objective is None:
            return None
        shaped = {n: shaped_field(self.checked, n, plain(v)) for n, v in fields.items() if n not in self.random}
        try:
            return self.objective(shaped)
        except (WeftError, WeftRuntimeError):  # not defined on these fields: the chart has a gap there
            return None

    # ---- attention

    def tokens_of(self, stream: str) -> Array:
        """Where the rows for pictures stand among the tokens that run."""
        found: Array = self.rows[stream]
        return found

    def _among_drawn(self, fields: Mapping[str, Tensor], after: Mapping[str, Tensor], number: int) -> RecordedLayer:
        """A frame whose attention is that of the rows for pictures alone; fixed sets stay whole."""
        frame = RecordedLayer(number + 1, {})
        index = {
            name: torch.as_tensor(self.rows[name] if name in self.open else np.arange(size))
            for name, size in self.sizes.items()
        }
        few = {name: value[index[self.homes[name]]] for name, value in fields.items() if name not in self.random}
        drawn = {name: after[name][index[self.homes[name]]] for name in self.random if name in after}
        noise = {name: values.expand(number + 1, -1, -1) for name, values in drawn.items()}
        places = {name: np.arange(len(rows)) if name in self.open else rows for name, rows in self.rows.items()}
        with self._watched(frame, lambda stream: places[stream]):
            self._advance(self.model, few, number, noise or None)
        return frame

    @contextmanager
    def _watched(self, frame: RecordedLayer, rows: Callable[[str], Array]) -> Iterator[None]:
        """Listens to attention and residuals while a layer runs, and puts what is drawn into a frame."""
        per = len(self.model.blocks) // max(1, self.model.program.own_layers)
        with ExitStack() as stack:
            for (block, name), head in self.heads.items():
                for site_block in range(block, len(self.model.blocks), per):
                    sites = cast(HookBlock, self.model.blocks[site_block]).head(head.name)
                    taken = _Taken(frame, name, head, rows(head.query), rows(head.keys))
                    stack.callback(sites.hook_attn_scores.register_forward_hook(taken.scores).remove)
                    if head.weighting.kind not in NUMBER_HEADS:  # a number has no pattern
                        stack.callback(sites.hook_pattern.register_forward_hook(taken.pattern).remove)
            for stream in self.model.program.streams:
                tokens = rows(stream.name)[evenly(len(rows(stream.name)), SHOWN)]
                for site_block in range(per - 1, len(self.model.blocks), per):
                    site = cast(HookBlock, self.model.blocks[site_block]).resid(stream.name).hook_resid_post
                    stack.callback(site.register_forward_hook(self._residual(frame, stream.name, tokens)).remove)
            yield

    def _residual(self, frame: RecordedLayer, stream: str, tokens: Array) -> Callable[..., None]:
        """Notes the slots of some tokens."""

        def note(_module: Any, _args: Any, seen: Tensor) -> None:
            rows = plain(seen)[tokens]
            frame.residual[stream] = rows @ self.bases[stream].T if stream in self.bases else rows

        return note


def head_sites(program: Program) -> Iterator[tuple[tuple[int, str], Head]]:
    """Every head of a layer with the number of its block and its key."""
    at = 0
    for place, step in shown_steps(program):
        if not place.startswith("layer."):
            continue
        for n, sublayer in enumerate(step.sublayers):
            if isinstance(sublayer, Attend):
                for m, head in enumerate(sublayer.heads):
                    yield (at, head_key(place, n, m)), head
            at += 1


@dataclass(slots=True)
class _Taken:
    """What is taken from the sites of one head."""

    frame: RecordedLayer
    key: str
    head: Head
    queries: Array
    keys: Array

    def scores(self, _module: Any, _args: Any, scores: Tensor) -> None:
        """Notes by how much the best score of every query leads the next; the shares of a head that gives a number."""
        weighting, own = self.head.weighting, self.head.self_key
        if weighting.kind in ("lse", "max") and not self.head.masks and own is None:
            chosen = scores.detach()[torch.as_tensor(self.queries)]
            shares = chosen.softmax(1) if weighting.kind == "lse" else (chosen == chosen.amax(1, keepdim=True)).double()
            self.frame.patterns[self.key] = plain(shares)[:, self.keys]
        chooses = weighting.kind == "argmax" or weighting.sharpness is not None
        if not chooses or self.head.masks or (own is not None and own.row is not None) or scores.shape[1] < 2:
            return
        best = torch.topk(scores.detach(), 2, dim=1).values
        lead = plain(best[:, 0] - best[:, 1]) / float(weighting.sharpness or 1)
        self.frame.leads[self.key] = float(lead.min()), float(np.median(lead))

    def pattern(self, _module: Any, _args: Any, weights: Tensor) -> None:
        """Notes the weights of the drawn queries and keys, and what a self key or null token has of a query."""
        chosen = weights.detach()[torch.as_tensor(self.queries)]
        drawn = plain(chosen)[:, self.keys]
        if self.head.weighting.kind in SHARES and self.head.self_key is not None:
            left = 1.0 - plain(chosen.sum(1))
            drawn = np.concatenate([drawn, np.clip(left, 0.0, 1.0)[:, np.newaxis]], axis=1)
        self.frame.patterns[self.key] = drawn


def has_rest(head: Head) -> bool:
    """Whether the last column of a pattern is what the keys leave over: the share of the query token itself."""
    return head.weighting.kind in SHARES and head.self_key is not None


def plain(value: Tensor) -> Array:
    """A tensor as an array."""
    return np.asarray(value.detach().cpu().numpy())


def shaped_field(checked: Checked, name: str, value: Array) -> Array:
    """A stored field as the interpreter holds it: numbers without a last axis."""
    one = checked.fields[name]
    return value[..., 0] if one.width is None and not one.is_pair and value.ndim == 2 else value
