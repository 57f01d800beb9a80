"""Small equations, asked of the checker: what it infers about them, or what it says against them.

The tables of the reference are answers to such questions, so they cannot say anything else than the checker does.
"""

from __future__ import annotations

from functools import cache

from weftc.core.errors import Diagnostic, SpecError
from weftc.core.source import Source
from weftc.core.types import FieldType
from weftc.language.check.check import check
from weftc.language.parse.parse import parse

FRAME = """algorithm frame
tokens  i, l in points
        j, h in centers : k
inputs  x[i] : R^d,  u[i] : R,  w[i] : R >= 0,  m[i] : R > 0,  c[j] : R^d,  b[j] : R,  y[i,j] : onehot
random  g[i,j] : gumbel
param   gamma = 1 > 0
let     D[i,j] = |x[i] - c[j]|^2
layer
  {equation}
outputs c
"""
UNDEFINED = frozenset({"C230", "C231"})  # what the checker reports where an `else` is missing


@cache
def ask(equation: str, more: str = "") -> FieldType | Diagnostic:
    """The type of the field an equation of the frame writes, or the first thing wrong with it."""
    source = Source("frame", FRAME.format(equation=equation) + more)
    try:
        checked = check(parse(source))
    except SpecError as error:
        return error.diagnostics[0]
    return checked.fields[equation.partition("[")[0].strip()]


def accepted(equation: str, more: str = "") -> bool:
    """Whether an equation is one."""
    return isinstance(ask(equation, more), FieldType)


def undefined(equation: str) -> bool:
    """Whether what an equation says may be undefined."""
    found = ask(equation)
    if isinstance(found, Diagnostic) and found.code not in UNDEFINED:
        raise ValueError(f"{equation}: {found.message}")
    return isinstance(found, Diagnostic)


def sign(equation: str) -> str:
    """What is known about the sign of what an equation stores."""
    found = ask(equation)
    if isinstance(found, Diagnostic):
        raise ValueError(f"{equation}: {found.message}")
    return "> 0" if found.positive else ">= 0" if found.nonnegative else ""
