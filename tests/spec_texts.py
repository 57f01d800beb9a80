"""Texts of specs that several tests read: everything shipped, invented for tests, and one small base to vary."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent
SHIPPED = sorted((HERE.parent / "specs").glob("*.weft"))
INVENTED = sorted((HERE / "inventions").glob("*.weft"))
GOOD = [*SHIPPED, *INVENTED]

BASE = """algorithm base
tokens  i, l in points
        j, h in centers : k
inputs  x[i] : R^d, w[i] : R >= 0, u[i] : R, b[i] : R^e
        c[j] : R^d
        A[h,j] : simplex
state   s[j] : R = 1
random  g[i,j] : gumbel
param   gamma = 0.5 > 0, rate = 0.3 in [0, 1], tau = 90 in [0, 100), shift = 1
let     D[i,j] = |x[i] - c[j]|^2
layer
  y[i,j] = argmin[j] D[i,j]
  p[i,j] = softmax[j] -gamma * D[i,j]
  then
  {equation}
outputs c, y
"""


def with_equation(equation: str) -> str:
    """The base with one more equation."""
    return BASE.format(equation=equation)
