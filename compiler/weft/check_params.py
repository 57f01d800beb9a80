"""Parameters: ranges that are not empty, and defaults made of constants, in their range, without a cycle."""

from __future__ import annotations

from collections.abc import Mapping

from weft import syntax as ast
from weft.check_expressions import Typing
from weft.check_names import Names
from weft.constants import NotConstant, constant
from weft.problems import Problems
from weft.words import width_words


def params(names: Names, problems: Problems) -> None:
    """Checks every parameter."""
    typing = Typing(names, problems, place="default")
    sound: dict[str, ast.Param] = {}
    for name, param in names.params.items():
        ranged = check_bound(param.bound, problems)
        if param.default is None or (_default(typing, param.default) and ranged):
            sound[name] = param
    cyclic = _cyclic(sound)
    while cyclic:
        name = next(name for name in sound if name in cyclic)  # one message per cycle, at its first parameter
        cyclic -= {name, *_reached({n: _reads(p.default) for n, p in sound.items() if p.default is not None}, name)}
        param = sound.pop(name)
        assert param.default is not None
        problems.add(
            "C255",
            param.span,
            f"the default of {name} depends on itself",
            "through " + ", ".join(sorted(_reads(param.default) & set(names.params))),
            "give one of them a plain number",
        )
    for param in sound.values():
        _in_range(param, problems)


def check_bound(bound: ast.Bound | None, problems: Problems) -> bool:
    """Whether a range contains anything; reports when not."""
    if bound is None or bound.low is None or bound.high is None:
        return True
    (low, low_strict), (high, high_strict) = bound.low, bound.high
    if low < high or (low == high and not low_strict and not high_strict):
        return True
    problems.add(
        "C256",
        bound.span,
        "this range is empty",
        f"no number lies {bound}",
        "the smaller end comes first" if low > high else "[a, a] contains a; (a, a) contains nothing",
    )
    return False


def _default(typing: Typing, default: ast.Expr) -> bool:
    token = next((n for n in ast.walk(default) if isinstance(n, ast.Reduce | ast.Weigh | ast.Position)), None)
    if token is not None:
        typing.problems.add(
            "C252",
            token.span,
            "the default of a parameter cannot look at tokens",
            "",
            "a default is made of numbers, other parameters, dimensions and count(...)",
        )
        return False
    found = typing.of(default, frozenset())
    if found is not None and found.width is not None:
        typing.problems.add("C252", default.span, "a parameter is a number", f"this is {width_words(found.width)}")
        return False
    return found is not None


def _reads(default: ast.Expr) -> set[str]:
    return {node.name for node in ast.walk(default) if isinstance(node, ast.Ref)}


def _cyclic(params: Mapping[str, ast.Param]) -> set[str]:
    """Parameters that reach themselves through their defaults."""
    reads = {name: _reads(p.default) & set(params) if p.default is not None else set() for name, p in params.items()}
    settled: set[str] = set()
    while ready := {name for name in reads if name not in settled and reads[name] <= settled}:
        settled |= ready
    stuck = set(reads) - settled  # on a cycle, or reading one: keep only those that reach themselves
    return {name for name in stuck if name in _reached(reads, name)}


def _reached(reads: Mapping[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    waiting = list(reads[start])
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(reads.get(name, ()))
    return found


def _in_range(param: ast.Param, problems: Problems) -> None:
    if param.default is None:
        return
    try:
        value = constant(param.default)
    except NotConstant:
        return
    except (ArithmeticError, ValueError):
        problems.add("C257", param.default.span, f"the default of {param.name} has no value", "this cannot be computed")
        return
    if param.bound is not None and not param.bound.admits(value):
        problems.add(
            "C258",
            param.default.span,
            f"the default of {param.name} is outside its range",
            f"{value:g} is not {param.bound}",
        )
