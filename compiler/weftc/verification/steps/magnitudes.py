"""Equations at given fields -> whether something in them, computed as it is written, leaves the range of float64.

The interpreter finds values where a number on the way would be infinite (a quotient of exponentials, a length whose
square overflows). A model may refuse these, if it says so: that is the contract on range.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from weftc.core.errors import WeftError
from weftc.core.syntax import Binary, Call, Equation, Expr, Inner, Node, Norm, Power, Ref, Square, walk
from weftc.interpreter.decisions import Tally
from weftc.interpreter.environment import World
from weftc.interpreter.expressions import Evaluator
from weftc.interpreter.rationals import ExactEvaluator

LARGEST = float(np.finfo(np.float64).max)
EXPONENT = float(np.log(LARGEST))


def leaves_range(world: World, equations: tuple[Equation, ...]) -> bool:
    """Whether a power, product, square or exponential of these equations overflows on the way."""
    evaluator = Evaluator(world, ExactEvaluator(world), Tally())
    return any(_overflows(evaluator, node) for equation in equations for node in _parts(world, equation.body))


def _parts(world: World, body: Expr, seen: frozenset[str] = frozenset()) -> Iterator[Node]:
    for node in walk(body):
        yield node
        if isinstance(node, Ref) and node.name in world.checked.lets and node.name not in seen:
            yield from _parts(world, world.checked.lets[node.name].body, seen | {node.name})


def _overflows(evaluator: Evaluator, node: Node) -> bool:
    try:
        match node:
            case Call(function="exp", body=body):
                return bool((evaluator.table(body).data > EXPONENT).any())
            case Norm(body=body) | Square(body=body):
                with np.errstate(over="ignore"):
                    return bool((np.square(evaluator.table(body).data).sum(axis=-1) > LARGEST).any())
            case Binary(op="*" | "/" | ".*" | "./") | Power() | Inner():
                return not bool(evaluator.table(node).finite.all())
    except WeftError:
        pass
    return False
