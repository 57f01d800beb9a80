"""Parameters: ranges that are not empty, and defaults made of constants, in their range, without a cycle."""

from __future__ import annotations

from collections.abc import Mapping

from weftc.core import syntax as ast
from weftc.core.words import joined, width_words
from weftc.language.check.constants import NotConstant, constant
from weftc.language.check.expressions import Typing
from weftc.language.check.names import Names
from weftc.language.check.problems import Problems
from weftc.language.check.references import CONSTANTS


def params(names: Names, problems: Problems) -> None:
    """Checks every parameter."""
    typing = Typing(names, problems, place="default")
    sound: dict[str, ast.Param] = {}
    for name, param in names.params.items():
        ranged = check_bound(param.bound, problems)
        if (param.default is None or _default(typing, param.default)) and ranged:
            sound[name] = param
    reads = {name: _reads(param) & sound.keys() for name, param in sound.items()}
    reported: set[str] = set()
    for name, param in sound.items():
        reached = _reached(reads, name)
        if name not in reached:
            _in_range(param, problems)
        elif name not in reported:  # one message per cycle, at its first parameter
            reported |= reached
            through = "through " + joined(sorted(reached - {name})) if len(reached) > 1 else "it reads itself"
            message, how = f"the default of {name} depends on itself", "give one of them a plain number"
            problems.add("C255", param.span, message, through, how if len(reached) > 1 else "give it a plain number")


def check_bound(bound: ast.ParamBound | None, problems: Problems) -> bool:
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
        typing.problems.add("C252", token.span, "the default of a parameter cannot look at tokens", "", CONSTANTS)
        return False
    found = typing.of(default, frozenset())
    if found is not None and found.width is not None:
        typing.problems.add("C252", default.span, "a parameter is a number", f"this is {width_words(found.width)}")
        return False
    return found is not None


def _reads(param: ast.Param) -> set[str]:
    return {node.name for node in ast.walk(param.default) if isinstance(node, ast.Ref)} if param.default else set()


def _reached(reads: Mapping[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    waiting = list(reads[start])
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(reads[name])
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
