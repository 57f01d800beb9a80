"""Feed-forwards: z' = E z + W f(A z, B z), token by token, with their error bounds."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import TypeAlias, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from weftc_runtime.errors import RunError
from weftc_runtime.exact.bounds import U, added, function_radius, product_radius, unit_radius, widen
from weftc_runtime.exact.sums import exact_sum, scale_by_power
from weftc_runtime.exact.weights import Weights
from weftc_runtime.format.program import FFN

Result = TypeVar("Result")
Stages: TypeAlias = Generator[tuple[str, Tensor], Tensor | None, Result]
"""Something that is made site by site: hands out what it has made, takes back what replaces it, or None."""

NEAR_ZERO = 2.0**-20  # a vector this short beside the terms it is the sum of may be exactly zero

NORMS = frozenset({"unit", "layer"})

Direction = Callable[[int], "list[float] | None"]
"""The exact vector that `unit` reads for this token, times a positive number; None where it is the zero vector."""

TOKENWISE: Mapping[str, Callable[[Tensor], Tensor]] = {
    "reciprocal": torch.reciprocal,
    "log": torch.log,
    "exp": torch.exp,
    "sqrt": lambda a: _root(a),
    "relu": torch.relu,
    "relu2": lambda a: torch.relu(a).square(),
    "tanh": torch.tanh,
    "abs": torch.abs,
    "sigmoid": torch.sigmoid,
    "softplus": lambda a: torch.logaddexp(a, torch.zeros_like(a)),
    "copy": torch.clone,
}
REASONS = {
    "reciprocal": "a division by zero",
    "log": "the logarithm of a number that is not positive",
    "exp": "an exponential that overflows",
    "sqrt": "the root of a negative number",
    "product": "a product that overflows",
    "unit": "unit of a zero vector, and the equation has no `else`",
    "layer": "unit of a zero vector, and the equation has no `else`",
}


def apply(ffn: FFN, weights: Weights, z: Tensor, direction: Direction) -> tuple[Tensor, Tensor]:
    """The residual after the feed-forward, and for `unit` which rows were zero; an error where it has no value."""
    found, zero, wrong = attempt(ffn, weights, z, direction)
    if wrong is not None:
        token = int(wrong.nonzero()[0])
        raise RunError(failure(ffn, token), place=failure(ffn, token).rpartition(": ")[0])
    return found, zero


def attempt(ffn: FFN, weights: Weights, z: Tensor, direction: Direction) -> tuple[Tensor, Tensor, Tensor | None]:
    """The same, with rows that have no value as if the function were 0 there, and which these are (None: none)."""
    return unwatched(stages(ffn, weights, z, direction))


def unwatched(stages: Stages[Result]) -> Result:
    """The end of something that is made site by site, when nobody looks."""
    try:
        while True:
            next(stages)
    except StopIteration as stop:
        return cast(Result, stop.value)


def stages(ffn: FFN, weights: Weights, z: Tensor, direction: Direction) -> Stages[tuple[Tensor, Tensor, Tensor | None]]:
    """What `attempt` gives, shown on the way."""
    given = yield "hook_mlp_in", z
    read = z if given is None else given
    a = weights.linear(read, ffn.a)
    b = None if ffn.b is None else weights.linear(read, ffn.b)
    pre = yield "hook_pre", a if b is None else torch.cat([a, b], 1)
    if pre is not None:
        a, b = pre[:, : a.shape[1]], None if b is None else pre[:, a.shape[1] :]
    zero = torch.zeros(len(z), dtype=torch.bool, device=z.device)
    if ffn.function == "product":
        assert b is not None
        hidden = a * b
    elif ffn.function == "select":
        assert b is not None
        hidden = torch.where(b[:, -1:] > 0.5, a, b[:, :-1])
    elif ffn.function in NORMS:
        a = a if ffn.function == "unit" else _centred(a)
        if given is None and pre is None:
            a, zero = _settled(ffn, weights, z, a, direction)
        else:
            zero = (a.detach() == 0).all(1)
        hidden = _unit(a, b, zero)
    else:
        hidden = TOKENWISE[ffn.function](a)
    wrong = None if hidden.is_meta else (~torch.isfinite(hidden.detach())).any(1)
    wrong = wrong if wrong is not None and bool(wrong.any()) else None
    if wrong is not None:
        hidden = torch.where(wrong[:, None], 0.0, hidden)
    post = yield "hook_post", hidden
    made = weights.linear(hidden if post is None else post, ffn.out)
    out = yield "hook_mlp_out", made
    return weights.linear(z, ffn.carry) + (made if out is None else out), zero, wrong


def _settled(ffn: FFN, weights: Weights, z: Tensor, a: Tensor, direction: Direction) -> tuple[Tensor, Tensor]:
    """The vectors, those near zero exactly, and which are zero: rounding may hide a zero, and make one."""
    length, terms = a.detach().abs().amax(1), z.detach().abs() @ weights[ffn.a].detach().abs().T
    zero = length == 0
    if not z.is_meta:
        for row in ((length <= NEAR_ZERO * terms.amax(1)) & (terms.amax(1) > 0)).nonzero()[:, 0].tolist():
            found = direction(row)
            zero[row] = found is None
            if found is not None:
                exact = torch.tensor(found, dtype=a.dtype, device=a.device)
                a = torch.where((torch.arange(len(a), device=a.device) == row)[:, None], exact, a)
    return a, zero


def computed(ffn: FFN, weights: Weights, row: Tensor, known: Tensor | None = None) -> list[float] | None:
    """The vector that a norm reads, as computed, of one token; None where it is 0, or not known to be anything else."""
    a = weights.linear(row, ffn.a).detach()
    zero = (a.abs() <= (0.0 if known is None else known)).all()
    a = a if ffn.function == "unit" else _centred(a)
    return None if bool(zero) or not bool(a.any()) else [float(x) for x in a[0].tolist()]


def _centred(a: Tensor) -> Tensor:
    """The rows minus the mean of their entries."""
    return a - (exact_sum(a, 1) / a.shape[1])[:, None]


def _unit(a: Tensor, b: Tensor | None, zero: Tensor) -> Tensor:
    """a / |a|, scaled by a power of two first so that squares neither overflow nor underflow."""
    safe = torch.where(zero[:, None] | (a.detach() == 0).all(1, keepdim=True), 1.0, a)
    exponent = torch.frexp(safe.detach().abs().amax(1, keepdim=True)).exponent
    scaled = scale_by_power(safe, -exponent.to(torch.int64))
    length = _root(exact_sum(scaled.square(), 1))[:, None]
    fallback = torch.full_like(a, torch.nan) if b is None else b
    return torch.where(zero[:, None], fallback, scaled / length)


def _root(x: Tensor) -> Tensor:
    """The root, correctly rounded; torch takes some from a library that is off by a unit in the last place at times."""
    root = x.sqrt()
    if x.is_meta or x.device.type != "cpu":
        return root
    with np.errstate(invalid="ignore"):
        exact = torch.from_numpy(np.sqrt(x.detach().numpy()))
    apart = torch.nan_to_num(exact - root.detach(), nan=0.0, posinf=0.0, neginf=0.0)
    return root + apart


def failure(ffn: FFN, token: int) -> str:
    """Why a feed-forward has no value for a token."""
    origin = ffn.origin.rstrip(": ")
    return (f"{origin}: " if origin else "") + reason(ffn, token)


def reason(ffn: FFN, token: int) -> str:
    """The same without the equation it stands for."""
    why = REASONS.get(ffn.function, "a value that overflows")
    slots = ", ".join(ffn.writes) or "its output"
    return f"token {token} of {ffn.stream} (counted from 0): {why}, in slot {slots}"


def radius(ffn: FFN, weights: Weights, z: Tensor, error: Tensor, zero: Tensor) -> Tensor:
    """Radius of the residual after the feed-forward."""
    a, ea = weights.linear(z, ffn.a).detach(), weights.radius(z, error, ffn.a)
    b = eb = None
    if ffn.b is not None:
        b, eb = weights.linear(z, ffn.b).detach(), weights.radius(z, error, ffn.b)
    if ffn.function == "product":
        assert b is not None
        assert eb is not None
        hidden, spread = a * b, product_radius(a, b, ea, eb)
    elif ffn.function == "select":
        assert b is not None
        assert eb is not None
        flag = b[:, -1:]
        hidden = torch.where(flag > 0.5, a, b[:, :-1])
        spread = torch.where(flag > 0.5, ea, eb[:, :-1])
        spread = torch.where((flag - 0.5).abs() <= eb[:, -1:], torch.inf, spread)
    elif ffn.function in NORMS:
        fallback = torch.full_like(ea, torch.inf) if eb is None else eb
        if ffn.function == "layer":
            a, ea = _centred(a), widen(ea + ea.mean(1, keepdim=True) + 4 * U * a.abs().amax(1, keepdim=True))
        hidden, spread = _unit(a, b, zero), unit_radius(a, ea, fallback, zero).nan_to_num(nan=torch.inf)
    else:
        hidden, spread = TOKENWISE[ffn.function](a), function_radius(ffn.function, a, ea)
    kept, made = weights.linear(z, ffn.carry).detach(), weights.linear(hidden, ffn.out).detach()
    own = weights.radius(z, error, ffn.carry) + weights.radius(hidden, spread, ffn.out)
    return widen(own + added(kept + made, kept, made))
