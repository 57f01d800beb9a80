"""The papers' trained transformers as plain torch modules: small, and on one thread the same for the same seed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class AssignmentTransformer(nn.Module):
    """AS, equation 9: layers of two softmax heads, Z + (head 1 + head 2) / 20, and an attention layer as read-out.

    `q` and `v` hold Q and W of every head, the read-out in the last place. The null token is the last row of the
    prompt; `frozen` leaves it as it is, which the paper does not, and its construction needs.
    """

    def __init__(self, layers: int = 20, width: int = 11, seed: int = 0, frozen: bool = False) -> None:
        super().__init__()
        source = torch.Generator().manual_seed(seed)
        self.layers, self.frozen = layers, frozen
        shape = (layers + 1, 2, width, width)
        self.q = nn.Parameter(torch.randn(shape, generator=source) / width**0.5)
        self.v = nn.Parameter(torch.randn(shape, generator=source) / width**0.5)

    @classmethod
    def compiled(cls, n: int, strength: float, layers: int = 20) -> AssignmentTransformer:
        """The weights of the construction (equation 15 with the signs corrected), strength is lambda; d = 1."""
        made = cls(layers, frozen=True)
        score = torch.zeros(2, 11, 11)  # columns: x, y, x^2, y^2, four ones, u, v, 0
        score[0, 0, 1] = score[1, 1, 0] = 2.0
        for head, own, other, dual, opposite in ((0, 2, 3, 8, 9), (1, 3, 2, 9, 8)):
            score[head, 4, other] = score[head, own, 4] = -1.0
            score[head, dual, 5] = score[head, 4, opposite] = 1.0
            score[head, 6, 6] = -strength
        value = torch.zeros(2, 11, 11)
        value[0, 7, 8] = value[1, 7, 9] = -20 * 0.5 * strength * (n + 1)
        with torch.no_grad():
            made.q[:] = score / strength
            made.v[:] = value
            made.q[-1, 0] = score[1] / strength  # read-out: y looks for its x
            made.v[-1] = 0.0
            made.v[-1, 0, 0, 0] = 1.0
        return made

    def forward(self, z: Tensor, n: int) -> tuple[Tensor, list[Tensor]]:
        """What is read off for each of the n tokens, and the attention matrices (10) of every layer."""
        seen = []
        for layer in range(self.layers):
            weights = torch.softmax(torch.einsum("bid,hde,bje->bhij", z, self.q[layer], z), dim=-1)
            seen.append(weights[:, 0, :n, :n])
            change = torch.einsum("bhij,bje,hef->bif", weights, z, self.v[layer]) / 20
            if self.frozen:
                change = torch.cat([change[:, :n], torch.zeros_like(change[:, n:])], dim=1)
            z = z + change
        z = z[:, :n]
        weights = torch.softmax(z @ self.q[-1, 0] @ z.transpose(1, 2), dim=-1)
        return (weights @ z @ self.v[-1, 0])[:, :, 0], [*seen, weights]


class ClusteringTransformer(nn.Module):
    """EM, Section 4: points -> class scores, by a small encoder (3 layers, 2 heads, width 64)."""

    def __init__(self, d: int, k: int, layers: int = 3, heads: int = 2, width: int = 64) -> None:
        super().__init__()
        self.embed = nn.Linear(d, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
            for _ in range(layers)
        )
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, k)

    def forward(self, x: Tensor) -> Tensor:
        z = self.embed((x - x.mean(1, keepdim=True)) / x.std((1, 2), keepdim=True))
        for block in self.blocks:
            z = block(z)
        scores: Tensor = self.out(self.norm(z))
        return scores


class FlowPredictor(nn.Module):
    """FL, C.4: total time T from SNR-dB in [3, 15], decreasing, at most the number of layers."""

    def __init__(self, layers: int, steps: int = 20) -> None:
        super().__init__()
        self.layers, self.steps = layers, steps
        self.weights, self.places = nn.Parameter(torch.zeros(steps)), nn.Parameter(torch.linspace(-2, 2, steps))

    def forward(self, decibels: Tensor) -> Tensor:
        x = (decibels - 3) / 12
        places = (1 + 10 / self.steps) * torch.sigmoid(self.places) - 5 / self.steps
        rising = (self.weights.softmax(0) * torch.sigmoid(self.steps * (x[:, None] - places))).sum(1)
        return self.layers * (1 - rising)


class FlowTransformer(nn.Module):
    """FL, Appendix C: one block repeated, x + t block(x), between an orthonormal embedding and its decoder."""

    def __init__(self, d: int = 2, width: int = 32, heads: int = 2, layers: int = 6) -> None:
        super().__init__()
        self.layers, self.heads = layers, heads
        self.frame: Tensor
        self.register_buffer("frame", torch.linalg.qr(torch.randn(width, d))[0].T)
        self.rest = nn.Linear(width, d, bias=False)
        self.norm_one, self.norm_two = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.flow = FlowPredictor(layers)

    def block(self, z: Tensor) -> Tensor:
        many, n, width = z.shape
        parts = self.qkv(self.norm_one(z)).reshape(many, n, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(*parts).transpose(1, 2).reshape(many, n, width)
        moved = self.out(mixed)
        change: Tensor = moved + self.feed(self.norm_two(z + moved))
        return change

    def speed(self, schedule: str, total: Tensor, layer: int) -> Tensor:
        """t of one layer: T/L everywhere, 1 in the first floor(T) layers (while training: what is left of T), or 1."""
        if schedule == "uniform":
            return total / self.layers
        if schedule == "unit":
            return torch.clamp(total - layer, 0, 1) if self.training else (layer < total.floor()).to(total.dtype)
        return torch.ones_like(total)

    def forward(self, x: Tensor, decibels: Tensor, schedule: str, trace: list[Tensor] | None = None) -> Tensor:
        """Points of several problems -> an estimate of each point's center; `trace` receives the tokens, decoded."""
        center = x.mean(1, keepdim=True)
        spread = ((x - center) ** 2).mean((1, 2), keepdim=True).sqrt()
        z, total = (x - center) / spread @ self.frame, self.flow(decibels)
        for layer in range(self.layers):
            if trace is not None:
                trace.append(z @ self.frame.T)
            z = z + self.speed(schedule, total, layer)[:, None, None] * self.block(z)
        z = z - z.mean(1, keepdim=True)
        z = z / (z**2).sum(-1).mean(1).div(x.shape[-1]).sqrt()[:, None, None]
        main = z @ self.frame.T
        if trace is not None:
            trace.append(main)
        estimate: Tensor = (main + self.rest(z - main @ self.frame)) * spread + center
        return estimate


def parameters(model: nn.Module) -> int:
    return sum(one.numel() for one in model.parameters())


def single(array: Any) -> Tensor:
    """An array as float32."""
    return torch.as_tensor(array, dtype=torch.float32)
