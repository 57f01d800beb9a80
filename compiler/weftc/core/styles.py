"""Lowering styles: several transformers of one spec, chosen when it compiles and recorded in the checkpoint.

scores   l2       distance attention, |Q z - K z'|^2 in difference form
         dot      dot products on lifted embeddings; squared norms are kept in slots by feed-forwards
centre   auto     on wherever distances are expanded into dot products
         on, off  whether both sides of a distance are shifted by a value of the data before expanding it
hardmax  exact    a choice of one is an argmax
         softmax  a softmax of `sharpness` times the score: a transformer of finite temperature, near the spec where the
                  best score leads by enough (measured when it runs)
erase    linear   a slot that is set anew is cleared by the carry matrix
         attention by a self-attention head that subtracts what it held, as the papers print it; the tokens of an open
                  set must be pairwise distinct then (checked when it runs)
members  mask     `where y[i,j]` is a mask on the keys
         offset   weights keep foreign tokens out: distances between memberships, far below every score of a member; the
                  numbers must stay within a bound (checked when it runs)
null     key      what stands beside a normalised sum is a null key of the query's own
         token    a token of the key stream that nothing changes, as in the (n+1)-token prompt; needs scores=dot
square   square   feed-forwards that square do so by a product
         relu2    by squared ReLU: t^2 = relu(t)^2 + relu(-t)^2
norm     rms      unit(v) as RMSNorm on the slot range, gain 1/sqrt(d), eps 0
         layer    as LayerNorm of a zero-sum lift of v
weights  shared   one set of weights for every layer; the model runs any number of layers
         unrolled each layer has weights of its own; the number of layers is fixed
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Literal

from weftc.core.errors import InputError

CHOICES: dict[str, tuple[str, ...]] = {
    "scores": ("l2", "dot"),
    "centre": ("auto", "on", "off"),
    "hardmax": ("exact", "softmax"),
    "erase": ("linear", "attention"),
    "members": ("mask", "offset"),
    "null": ("key", "token"),
    "square": ("square", "relu2"),
    "norm": ("rms", "layer"),
    "weights": ("shared", "unrolled"),
}


@dataclass(frozen=True, slots=True)
class Styles:
    """One choice per style. `sharpness` belongs to hardmax=softmax; None: not settled yet."""

    scores: Literal["l2", "dot"] = "l2"
    centre: Literal["auto", "on", "off"] = "auto"
    hardmax: Literal["exact", "softmax"] = "exact"
    erase: Literal["linear", "attention"] = "linear"
    members: Literal["mask", "offset"] = "mask"
    null: Literal["key", "token"] = "key"
    square: Literal["square", "relu2"] = "square"
    norm: Literal["rms", "layer"] = "rms"
    weights: Literal["shared", "unrolled"] = "shared"
    sharpness: float | None = None

    def __post_init__(self) -> None:
        for name, allowed in CHOICES.items():
            value = getattr(self, name)
            if value not in allowed:
                raise InputError(f"{name} must be one of {', '.join(allowed)}, not {value!r}")
        if self.sharpness is not None and not (math.isfinite(self.sharpness) and self.sharpness > 0):
            raise InputError(f"sharpness must be a number above 0, or auto, not {self.sharpness!r}")
        if self.sharpness is not None and self.hardmax == "exact":
            raise InputError("sharpness belongs to hardmax=softmax; without it choices are exact")
        if self.null == "token" and self.scores != "dot":
            raise InputError("null=token needs scores=dot: a token at the origin has score 0 only by dot products")

    @property
    def recorded(self) -> dict[str, str]:
        """The choices as the checkpoint keeps them."""
        return {f.name: str(getattr(self, f.name)) for f in fields(self) if getattr(self, f.name) is not None}

    @classmethod
    def read(cls, options: Mapping[str, str]) -> Styles:
        """The choices of a checkpoint."""
        chosen: dict[str, object] = {name: options[name] for name in CHOICES if name in options}
        if options.get("sharpness", "auto") != "auto":
            try:
                chosen["sharpness"] = float(options["sharpness"])
            except ValueError:
                raise InputError(f"sharpness must be a number, not {options['sharpness']!r}") from None
        return cls(**chosen)  # type: ignore[arg-type]
