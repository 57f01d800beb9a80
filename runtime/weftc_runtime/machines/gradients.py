"""Gradients through soft weights without the n x k arrays of attention, and without exact arithmetic.

The reference records every product and every exact sum. Where nothing is decided that is not needed: here a head is
one function of queries, keys and values that keeps its inputs and one number per query, and makes its scores again,
block by block, when gradients are asked for. Values agree with the reference's up to rounding. Problems of one size
run as one. A step that needs more (decisions, sparsemax, values that do not exist) is the reference's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from weftc_runtime.data.batch import Batch
from weftc_runtime.data.hooks import HookBlock, anyone_listens
from weftc_runtime.errors import Uncovered
from weftc_runtime.format.program import FFN, Attend, Head, Part, Program, ProgramStep
from weftc_runtime.reference.backend import Reference
from weftc_runtime.reference.feed_forward import NEAR_ZERO, TOKENWISE
from weftc_runtime.reference.state import Problem

SOFT = ("softmax", "exp", "sum", "normalize", "lse")
BLOCK = 1 << 20  # scores made at a time
KEPT = 1 << 16  # weights that are kept for the way back; more are made again

Zeros = dict[tuple[str, ...], Tensor]  # by stream and slots


def wanted(program: Program, tensors: Mapping[str, Tensor], batch: Batch, sites: Iterable[nn.Module]) -> bool:
    """Whether a run needs gradients and this machine may give them."""
    if any(tensor.is_meta for tensor in tensors.values()) or anyone_listens(sites):
        return False
    trained = any(tensor.requires_grad for tensor in tensors.values())
    if not trained and not any(rows.value.requires_grad for rows in batch.values.values()):
        return False
    steps = program.layer
    return not any(
        _why_not(head) for step in steps for sub in step.sublayers if isinstance(sub, Attend) for head in sub.heads
    )


def _why_not(head: Head) -> str:
    """Why a head is the reference's, or nothing."""
    how, own = head.weighting, head.self_key
    if how.kind not in SOFT or how.sharpness is not None or any(mask.op != "other" for mask in head.masks):
        return "a head that decides"
    if own is not None and own.row is not None and how.kind != "softmax":
        return "a self key of this weighting"
    if head.score.functions:
        return "functions of scores"
    return ""


class SoftGradients(Reference):
    """The reference's run, with heads and feed-forwards that are made for gradients."""

    def step(
        self, step: ProgramStep, problems: list[Problem], blocks: Iterable[HookBlock], path: str, first: int
    ) -> None:
        """Runs one step on all problems, or has the reference run it."""
        ready = set(self.derived_slots.ready)
        try:
            self.derived_slots.ready.update(step.writes)
            made = [self._stepped(step, group) for group in _alike(problems)]
        except Uncovered:
            self.derived_slots.ready = ready
            super().step(step, problems, blocks, path, first)
            return
        for group, z, zeros in made:
            parted = {name: rows.unbind(0) for name, rows in z.items()}
            for at, problem in enumerate(group):
                problem.residuals = {name: rows[at] for name, rows in parted.items()}
                problem.zeros.update({key: rows[at] for key, rows in zeros.items()})

    def _stepped(self, step: ProgramStep, group: list[Problem]) -> tuple[list[Problem], dict[str, Tensor], Zeros]:
        """The residuals of problems of one size after a step, and where norms were zero."""
        z = {name: torch.stack([problem.residuals[name] for problem in group]) for name in group[0].residuals}
        zeros: Zeros = {}
        for sublayer in step.sublayers:
            if isinstance(sublayer, FFN):
                z[sublayer.stream], _ = self._made(sublayer, z[sublayer.stream])
            else:
                self._heads(sublayer, z, group[0].nulls)
        for name in z:
            z[name] = self.rounded(name, z[name])
            if not bool(torch.isfinite(z[name].detach()).all()):
                raise Uncovered("a value that is not finite")
        for name, ffns in self.derived_slots.active().items():
            for ffn in ffns:
                z[name], zeros[name, *ffn.writes] = self._made(ffn, z[name])
        return group, z, zeros

    # ---- feed-forwards -----------------------------------------------------------------------------------------------

    def _made(self, ffn: FFN, z: Tensor) -> tuple[Tensor, Tensor]:
        """The residual after a feed-forward, and where a norm was zero."""
        read = _Products(z, self.weights)
        read.names = dict.fromkeys(name for name in (ffn.a, ffn.b, ffn.carry) if name is not None)
        a, b = read.linear(ffn.a), None if ffn.b is None else read.linear(ffn.b)
        zero = torch.zeros(z.shape[:-1], dtype=torch.bool, device=z.device)
        match ffn.function:
            case "product":
                assert b is not None
                hidden = a * b
            case "select":
                assert b is not None
                hidden = torch.where(b[..., -1:] > 0.5, a, b[..., :-1])
            case "unit" | "layer":
                a = a if ffn.function == "unit" else a - a.mean(-1, keepdim=True)
                hidden, zero = self._unit(ffn, z, a, b)
            case function:
                hidden = TOKENWISE[function](a)
        if not bool(torch.isfinite(hidden.detach()).all()):
            raise Uncovered("a value that does not exist")
        return read.linear(ffn.carry) + hidden @ self.weights[ffn.out].T, zero

    def _unit(self, ffn: FFN, z: Tensor, a: Tensor, b: Tensor | None) -> tuple[Tensor, Tensor]:
        size = a.detach().abs().amax(-1)
        terms = (z.detach().abs() @ self.weights[ffn.a].detach().abs().T).amax(-1)
        zero = size == 0
        if bool(((size <= NEAR_ZERO * terms) & (terms > 0)).any()):
            raise Uncovered("a vector that may be zero")
        safe = torch.where(zero[..., None], torch.ones_like(a), a)
        scale = safe.detach().abs().amax(-1, keepdim=True)
        hidden = safe / scale
        hidden = hidden / hidden.square().sum(-1, keepdim=True).sqrt()
        return torch.where(zero[..., None], torch.full_like(a, torch.nan) if b is None else b, hidden), zero

    # ---- heads -------------------------------------------------------------------------------------------------------

    def _heads(self, attend: Attend, z: dict[str, Tensor], nulls: Mapping[str, Tensor]) -> None:
        read = {name: _Products(value, self.weights) for name, value in z.items()}
        keys = dict(read)
        for name in {head.keys for head in attend.heads} & set(nulls):
            keys[name] = _Products(torch.cat([z[name], nulls[name].expand(len(z[name]), -1, -1)], 1), self.weights)
        for head in attend.heads:
            if why := _why_not(head):
                raise Uncovered(why)
            for products, names in zip((read[head.query], keys[head.keys]), _matrices(head), strict=True):
                products.names |= dict.fromkeys(names)
        for stream, carry in attend.carry.items():
            read[stream].names[carry] = None
        added = [(head.query, self._head_added(head, read[head.query], keys[head.keys])) for head in attend.heads]
        for stream, carry in attend.carry.items():
            z[stream] = read[stream].linear(carry)
        for stream, value in added:
            z[stream] = z[stream] + value

    def _head_added(self, head: Head, q: _Products, k: _Products) -> Tensor:
        kind, own = head.weighting.kind, head.self_key
        values = k.linear(head.value) if head.value and kind != "lse" else k.z.new_zeros(*k.z.shape[:2], 0)
        if kind == "normalize":
            values = torch.cat([values, torch.ones_like(k.z[..., :1])], -1)
        read, mass = _attention(kind, bool(head.masks), values, *self._scores(head, q, k))
        if kind == "lse":
            return mass * self.weights[head.value].reshape(-1)
        if kind == "normalize":
            total = read[..., -1:]
            if bool((total.detach() == 0).any()):
                raise Uncovered("a sum of weights that is zero")
            read = read[..., :-1] / total
        if not head.value:
            read = torch.zeros_like(q.z)
        if own is not None and own.row is not None:
            share = torch.sigmoid(q.linear(own.row) - mass)
            mine = q.linear(own.value) if own.value else torch.zeros_like(q.z)
            read = (1 - share) * read + share * mine
        return read

    def _scores(self, head: Head, q: _Products, k: _Products) -> tuple[Tensor, ...]:
        """Queries and keys of all inner products side by side; then a, b and factor of every distance."""
        products: list[tuple[Tensor, Tensor]] = []
        distances: list[Tensor] = []
        for part in head.score.parts:
            a, b = q.linear(part.q), k.linear(part.k)
            factor = self._factor(part, q, k)
            if part.kind == "l2":
                distances += [a, b, q.z.new_ones(1, 1, 1) if factor is None else factor]
            elif factor is None:
                products.append((a, b))
            else:
                assert part.scale is not None
                ours = part.scale[0] == "query"
                products.append((a * factor, b) if ours else (a, b * factor.transpose(1, 2)))
        if not products:
            return q.z[..., :0], k.z[..., :0], *distances
        return torch.cat([a for a, _ in products], -1), torch.cat([b for _, b in products], -1), *distances

    def _factor(self, part: Part, q: _Products, k: _Products) -> Tensor | None:
        """What a part is multiplied by: (b, n, 1), (b, 1, k) or (1, 1, 1)."""
        found = None if part.coefficient is None else self.weights[part.coefficient].reshape(1, 1, 1)
        if part.scale is None:
            return found
        side, name = part.scale
        scale = q.linear(name) if side == "query" else k.linear(name).transpose(1, 2)
        return scale if found is None else found * scale


class _Products:
    """What the matrices of a sub-layer make of a residual: one product for all of them."""

    def __init__(self, z: Tensor, weights: Mapping[str, Tensor]) -> None:
        self.z, self.weights = z, weights
        self.names: dict[str, None] = {}
        self.made: dict[str, Tensor] = {}

    def linear(self, name: str) -> Tensor:
        if not self.made:
            rows = [
                self.weights[one] if self.weights[one].dim() == 2 else self.weights[one][None] for one in self.names
            ]
            parts = torch.split(self.z @ torch.cat(rows).T, [len(one) for one in rows], -1)
            self.made = dict(zip(self.names, parts, strict=True))
        return self.made[name]


def _matrices(head: Head) -> tuple[list[str], list[str]]:
    """The matrices of a head that read its query, and those that read its keys."""
    ours, theirs = [part.q for part in head.score.parts], [part.k for part in head.score.parts]
    for part in head.score.parts:
        if part.scale is not None:
            (ours if part.scale[0] == "query" else theirs).append(part.scale[1])
    if head.value and head.weighting.kind != "lse":
        theirs.append(head.value)
    if head.self_key is not None and head.self_key.row is not None:
        ours += [name for name in (head.self_key.row, head.self_key.value) if name]
    return ours, theirs


def _alike(problems: list[Problem]) -> Iterator[list[Problem]]:
    """Problems of the same sizes together; nothing about them is lost."""
    groups: dict[tuple[int, ...], list[Problem]] = {}
    for problem in problems:
        if problem.faults:
            raise Uncovered("a value that does not exist")
        problem.exact = problem.radii = None
        groups.setdefault(tuple(len(z) for z in problem.residuals.values()), []).append(problem)
    yield from groups.values()


# ---- one head --------------------------------------------------------------------------------------------------------


def _attention(kind: str, other: bool, v: Tensor, q: Tensor, k: Tensor, *distances: Tensor) -> tuple[Tensor, Tensor]:
    """Weighted values, and the logarithm of the mass of exponentials; all tensors have the problems in front."""
    found: tuple[Tensor, Tensor] = _Attention.apply(kind, other, v, q, k, *distances)  # type: ignore[no-untyped-call]
    return found


def _squared(a: Tensor, b: Tensor) -> Tensor:
    """|a - b|^2 of every pair, from differences."""
    return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist").square_()


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, kind: str, other: bool, v: Tensor, q: Tensor, k: Tensor, *distances: Tensor) -> Any:
        ctx.kind, ctx.other = kind, other
        out, mass = q.new_empty(*q.shape[:2], v.shape[-1]), q.new_zeros(*q.shape[:2], 1)
        ctx.kept = None
        for rows in _blocks(q, k):
            weights, apart = _Attention.scores(other, rows, q, k, distances)
            if kind in ("softmax", "lse"):
                peak = weights.amax(-1, keepdim=True)
                weights.sub_(peak).exp_()
                total = weights.sum(-1, keepdim=True)
                mass[:, rows] = peak + total.log()
                weights /= total
            elif kind == "exp":
                weights.exp_()
            out[:, rows] = weights @ v
            if weights.numel() <= KEPT and weights.shape[1] == q.shape[1]:
                ctx.kept = weights, apart
        ctx.save_for_backward(v, q, k, out, mass, *distances)
        if kind not in ("softmax", "lse"):
            ctx.mark_non_differentiable(mass)
        return out, mass

    @staticmethod
    def scores(
        other: bool, rows: slice, q: Tensor, k: Tensor, distances: tuple[Tensor, ...]
    ) -> tuple[Tensor, list[Tensor]]:
        """Scores of some queries, and the distances in them."""
        total = q[:, rows] @ k.transpose(1, 2)
        apart = []
        for at in range(0, len(distances), 3):
            a, b, factor = distances[at : at + 3]
            apart.append(_squared(a[:, rows], b))
            total += apart[-1] * (factor[:, rows] if factor.shape[1] > 1 else factor)
        if other:
            total[:, torch.arange(total.shape[1]), torch.arange(total.shape[2])[rows]] = -torch.inf
        return total, apart

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor, d_mass: Tensor) -> Any:
        v, q, k, out, mass, *distances = ctx.saved_tensors
        needs = ctx.needs_input_grad[5:]
        d_v, d_q, d_k = torch.zeros_like(v), torch.zeros_like(q), torch.zeros_like(k)
        found = [torch.zeros_like(one) for one in distances]
        for rows in _blocks(q, k):
            weights, apart = ctx.kept or _Attention.scores(ctx.other, rows, q, k, tuple(distances))
            ours = d_out[:, rows]
            d_scores = ours @ v.transpose(1, 2)
            if ctx.kind in ("softmax", "lse"):
                weights = weights if ctx.kept else weights.sub_(mass[:, rows]).exp_()
                d_scores -= (ours * out[:, rows]).sum(-1, keepdim=True) - d_mass[:, rows]
                d_scores *= weights
            elif ctx.kind == "exp":
                weights = weights if ctx.kept else weights.exp_()
                d_scores *= weights
            d_v += weights.transpose(1, 2) @ ours
            d_q[:, rows] = d_scores @ k
            d_k += d_scores.transpose(1, 2) @ q[:, rows]
            for at in range(0, len(distances), 3):
                a, b, factor = distances[at : at + 3]
                part = factor[:, rows] if factor.shape[1] > 1 else factor
                if needs[at] or needs[at + 1]:
                    slopes = d_scores * part
                    found[at][:, rows] = 2 * (a[:, rows] * slopes.sum(-1, keepdim=True) - slopes @ b)
                    back = b * slopes.sum(1)[..., None] - slopes.transpose(1, 2) @ a[:, rows]
                    found[at + 1] += 2 * back
                if needs[at + 2]:
                    change = (d_scores * apart[at // 3]).sum_to_size(part.shape)
                    if factor.shape[1] > 1:
                        found[at + 2][:, rows] = change
                    else:
                        found[at + 2] += change
        return (None, None, d_v, d_q, d_k, *found)


def _blocks(q: Tensor, k: Tensor) -> Iterator[slice]:
    """Queries in blocks, so that scores stay small."""
    size = max(1, BLOCK // max(1, len(q) * k.shape[1]))
    return (slice(start, min(start + size, q.shape[1])) for start in range(0, q.shape[1], size))
