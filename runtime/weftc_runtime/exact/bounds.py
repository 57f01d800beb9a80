"""Rigorous error bounds of what the reference computes, relative to exact arithmetic on the fields of a step.

A value v comes with a radius e: the exact number lies in [v - e, v + e]. Fields and constants have radius 0. Each
rule adds the error it passes on and the rounding of the operation itself (u = 2^-53 per rounding, 2^-1074 where a
product may underflow), and widens the result a little, because radii are computed in float64 too. What is not finite
gets the radius infinity: such a row is settled in exact arithmetic.
"""

from __future__ import annotations

import torch
from torch import Tensor

U = 2.0**-53
TINY = 2.0**-1074
SLACK = 1 + 2.0**-30  # covers the rounding of the radii: sums of at most 2^20 terms, each off by u
FUNCTION_ULPS = 4  # torch's exp, log and tanh are good to about one unit in the last place


def widen(radius: Tensor) -> Tensor:
    """The radius, safe against its own rounding; infinite where it is not a number."""
    return torch.nan_to_num(radius * SLACK, nan=torch.inf, posinf=torch.inf)


def added(total: Tensor, one: Tensor, two: Tensor) -> Tensor:
    """Rounding of total = one + two: none where a summand is 0."""
    return torch.where((one == 0) | (two == 0), 0.0, U * total.abs())


def product_radius(a: Tensor, b: Tensor, ea: Tensor, eb: Tensor) -> Tensor:
    """Radius of a * b."""
    return widen(a.abs() * eb + b.abs() * ea + ea * eb + U * (a * b).abs() + TINY)


def function_radius(function: str, a: Tensor, radius: Tensor) -> Tensor:
    """Radius of an element-wise function of a; see `ir.FFN` for the functions."""
    size = a.abs()
    if function in ("relu", "copy", "abs"):
        return radius
    if function == "relu2":
        return widen(2 * size * radius + radius.square() + U * a.square() + TINY)
    if function == "reciprocal":
        spread = torch.where(size > radius, radius / (size * (size - radius)), torch.inf)
        return widen(spread + U / size + TINY)
    if function == "exp":
        return widen(a.exp() * (torch.expm1(radius) + FUNCTION_ULPS * U) + TINY)
    if function == "log":
        spread = torch.where(a > radius, -torch.log1p(-radius / a), torch.inf)
        return widen(spread + FUNCTION_ULPS * U * (a.log().abs() + 1))
    if function == "sqrt":
        root = size.sqrt()
        return widen(torch.where(size > 0, torch.minimum(radius / root, radius.sqrt()), radius.sqrt()) + U * root)
    if function == "tanh":
        return widen(radius + FUNCTION_ULPS * U)
    if function == "sigmoid":
        return widen(radius / 4 + FUNCTION_ULPS * U)
    if function == "softplus":
        return widen(radius + FUNCTION_ULPS * U * (size + 1))
    raise AssertionError(f"no bound for {function}")


def unit_radius(a: Tensor, radius: Tensor, fallback: Tensor, zero: Tensor) -> Tensor:
    """Radius of a / |a|, and of the fallback in the rows where a is zero.

    |a/|a| - b/|b|| <= 2 |a - b| / |a|, and the norm is an exact sum of squares: one square root, one division.
    """
    peak = a.abs().amax(1, keepdim=True)
    norm = (a / peak).square().sum(1, keepdim=True).sqrt() * peak
    spread = 2 * torch.linalg.vector_norm(radius, dim=1, keepdim=True) / norm + 8 * U
    return widen(torch.where(zero[:, None], fallback, spread.expand_as(a)))


def sum_radius(numerators: Tensor, spread: Tensor, values: Tensor, radius: Tensor) -> Tensor:
    """Radius of sum_k t_k v_k, t_k known to +-spread, v_k to +-radius.     (q, k), (q, k), (k, c), (k, c) -> (q, c)"""
    size, weight = values.abs(), numerators.abs()
    return weight @ radius + spread @ (size + radius) + 3 * U * (weight @ size) + numerators.shape[1] * TINY


def quotient_radius(out: Tensor, above: Tensor, mass: Tensor, below: Tensor) -> Tensor:
    """Radius of out = sum / mass, the sum known to +-above and the mass (q, 1) to +-below."""
    room = torch.where(mass.abs() > below, mass.abs() - below, 0.0)
    return widen((above + out.abs() * below) / room + 2 * U * out.abs())
