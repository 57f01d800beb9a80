"""Lowering styles: several transformers of one spec, chosen when it compiles and recorded in the checkpoint.

scores   l2       distance attention, |Q z - K z'|^2 in difference form
         dot      dot products on lifted embeddings; squared norms are kept in slots by feed-forwards
centre   auto     on wherever distances are expanded into dot products
         on, off  whether both sides of a distance are shifted by the mean of the data before expanding it
erase    linear   a slot that is set anew is cleared by the carry matrix
         attention by a self-attention head that subtracts what it held, as the papers print it; the tokens of an open
                  set must be pairwise distinct then (checked when it runs)
square   square   feed-forwards that square do so by a product
         relu2    by squared ReLU: t^2 = relu(t)^2 + relu(-t)^2
norm     rms      unit(v) as RMSNorm on the slot range, gain 1/sqrt(d), eps 0
         layer    as LayerNorm of a zero-sum lift of v
weights  shared   one set of weights for every layer; the model runs any number of layers
         unrolled each layer has weights of its own; the number of layers is fixed
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from weft.errors import InputError

CHOICES: dict[str, tuple[str, ...]] = {
    "scores": ("l2", "dot"),
    "centre": ("auto", "on", "off"),
    "erase": ("linear", "attention"),
    "square": ("square", "relu2"),
    "norm": ("rms", "layer"),
    "weights": ("shared", "unrolled"),
}


@dataclass(frozen=True, slots=True)
class Styles:
    """One choice per style."""

    scores: Literal["l2", "dot"] = "l2"
    centre: Literal["auto", "on", "off"] = "auto"
    erase: Literal["linear", "attention"] = "linear"
    square: Literal["square", "relu2"] = "square"
    norm: Literal["rms", "layer"] = "rms"
    weights: Literal["shared", "unrolled"] = "shared"

    def __post_init__(self) -> None:
        for f in fields(self):
            value, allowed = getattr(self, f.name), CHOICES[f.name]
            if value not in allowed:
                raise InputError(f"{f.name} must be one of {', '.join(allowed)}, not {value!r}")

    @property
    def recorded(self) -> dict[str, str]:
        """The choices as the checkpoint keeps them."""
        return {f.name: getattr(self, f.name) for f in fields(self)}
