"""`Checked` and the user's values -> `BoundSpec`: every dimension has a size, every parameter a value in its range."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from weftc.core import syntax as ast
from weftc.core.errors import InputError
from weftc.core.source import Span
from weftc.core.types import Checked
from weftc.core.words import did_you_mean, joined, listed
from weftc.language.check.constants import NotConstant, constant

LARGEST_DIMENSION = 1_000_000


@dataclass(frozen=True, slots=True)
class BoundSpec:
    """A checked spec with sizes for its dimensions, and the parameters that were given; the others have defaults."""

    checked: Checked
    dims: dict[str, int]
    params: dict[str, float]


def bind(checked: Checked, dims: Mapping[str, int | str], params: Mapping[str, float | int | str]) -> BoundSpec:
    """Settles dimensions and parameters, or raises one `InputError` that lists everything wrong with them."""
    wrong: list[str] = []
    sizes = {}
    for name, given in dims.items():
        if name in checked.dims:
            size = _size(name, given, wrong)
            if size is not None:
                sizes[name] = size
        elif name in checked.params:
            wrong.append(
                f"{name} is a parameter of {checked.spec.name}, not a dimension; "
                f"give it among the parameters ({_place(checked, checked.params[name].span)})"
            )
        else:
            wrong.append(_unknown(checked, name))
    values = {}
    for name, setting in params.items():
        if name in checked.params:
            value = _value(checked, checked.params[name], setting, wrong)
            if value is not None:
                values[name] = value
        elif name in checked.dims:
            wrong.append(f"{name} is a dimension of {checked.spec.name}, not a parameter; give it among the dimensions")
        elif name not in dims:  # else reported above
            wrong.append(_unknown(checked, name))
    _missing(checked, dims, params, wrong)
    if not wrong:
        wrong.extend(_derived(checked, sizes, values))
    if wrong:
        raise InputError("\n".join(wrong))
    return BoundSpec(checked, {name: sizes[name] for name in checked.dims}, values)


def split(checked: Checked, given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Settings in one mapping (k: 5, tau: 90) as dimensions and parameters."""
    dims = {name: value for name, value in given.items() if name in checked.dims}
    return dims, {name: value for name, value in given.items() if name not in checked.dims}


def _place(checked: Checked, span: Span) -> str:
    return f"declared at {checked.spec.source.place(span)}"


def _unknown(checked: Checked, name: str) -> str:
    usable = [*checked.dims, *checked.params]
    field = name in checked.fields
    guess = did_you_mean(name, usable)
    why = "it is a field: give its values as data" if field else guess
    known = (
        f"{checked.spec.name} has {listed(usable)}"
        if usable
        else f"{checked.spec.name} has no dimensions or parameters"
    )
    return f"unknown dimension or parameter {_shown(name)}" + (f"; {why}" if why else "") + f" ({known})"


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return ascii(text) if not text.isprintable() or len(text) > 60 else text


def _size(name: str, given: object, wrong: list[str]) -> int | None:
    number = _number(given)
    if number is None or isinstance(given, bool) or not number.is_integer() or number < 1:
        wrong.append(
            f"the dimension {name} must be a positive whole number, not {_shown(given)}; "
            f"for example dims={{'{name}': 5}}"
        )
        return None
    if number > LARGEST_DIMENSION:
        wrong.append(f"the dimension {name} is {_shown(given)}; the largest supported is {LARGEST_DIMENSION}")
        return None
    return int(number)


def _number(given: object) -> float | None:
    """A finite float, or None."""
    try:
        number = float(given)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _value(checked: Checked, param: ast.Param, given: object, wrong: list[str]) -> float | None:
    number = _number(given)
    if number is None or isinstance(given, bool):
        wrong.append(
            f"the parameter {param.name} must be a finite number, not {_shown(given)}; "
            f"for example params={{'{param.name}': 0.5}}"
        )
        return None
    if param.bound is not None and not param.bound.admits(number):
        wrong.append(
            f"the parameter {param.name} must be {param.bound}, not {number:g} ({_place(checked, param.bound.span)})"
        )
        return None
    return number


def _missing(checked: Checked, dims: Mapping[str, object], params: Mapping[str, object], wrong: list[str]) -> None:
    lacking = [name for name in checked.dims if name not in dims and name not in params]
    if lacking:
        how = ", ".join(f"'{name}': {5 + at}" for at, name in enumerate(lacking))
        what = "dimension" if len(lacking) == 1 else "dimensions"
        wrong.append(f"{checked.spec.name} needs the {what} {joined(lacking)}; for example dims={{{how}}}")
    for name, param in checked.params.items():
        if param.default is None and name not in params and name not in dims:
            within = f" ({param.bound})" if param.bound is not None else ""
            wrong.append(
                f"the parameter {name} has no default{within}; give one, for example params={{'{name}': 1}} "
                f"({_place(checked, param.span)})"
            )


# ---- what follows from the values ------------------------------------------------------------------------------------


def _derived(checked: Checked, dims: Mapping[str, int], given: Mapping[str, float]) -> Iterator[str]:
    """Problems with computed defaults and with the arguments of weightings, as far as they are known before a run."""
    known: dict[str, float] = {**dims, **given}
    counts = {
        name: known[str(size)] if isinstance(size, str) else float(size)
        for name, size in checked.sets.items()
        if size is not None
    }
    waiting = [p for p in checked.params.values() if p.name not in known and p.default is not None]
    for _ in range(len(waiting)):  # defaults may use each other in any order; the checker refused cycles
        waiting = [p for p in waiting if p.name not in known]
        for param in waiting:
            assert param.default is not None
            try:
                value = constant(param.default, known, counts)
            except NotConstant:
                continue
            except (ArithmeticError, ValueError):
                yield (
                    f"the default of {param.name} cannot be computed from these values; "
                    f"give it, for example params={{'{param.name}': 1}} ({_place(checked, param.span)})"
                )
                known[param.name] = math.nan
                continue
            known[param.name] = value
            if param.bound is not None and not param.bound.admits(value):
                yield (
                    f"the default of {param.name} comes to {value:g} here, but must be {param.bound}; "
                    f"give it, for example params={{'{param.name}': 1}} ({_place(checked, param.span)})"
                )
    for node in _weightings(checked.spec):
        yield from _argument(checked, node, known, counts)


def _weightings(spec: ast.Spec) -> Iterator[ast.Weigh]:
    bodies = [equation.body for step in spec.steps for equation in step.equations]
    bodies += [let.body for let in spec.lets] + [output.body for output in spec.outputs]
    bodies += [field.start for field in spec.state if field.start is not None]
    bodies += [spec.objective] if spec.objective is not None else []
    for body in bodies:
        yield from (node for node in ast.walk(body) if isinstance(node, ast.Weigh))


def _argument(
    checked: Checked, node: ast.Weigh, known: Mapping[str, float], counts: Mapping[str, float]
) -> Iterator[str]:
    """Checks how many tokens, or which share, a weighting keeps."""
    if node.kind not in ("lowest", "highest"):
        return
    argument = node.arguments[0]
    share = isinstance(argument, ast.Percent)
    try:
        value = constant(argument.body if isinstance(argument, ast.Percent) else argument, known, counts)
    except (NotConstant, ArithmeticError, ValueError):
        return
    text = " ".join(checked.spec.source.at(argument.span).split())
    where = f"used at {checked.spec.source.place(argument.span)}"
    if share and not 0 <= value <= 100:
        yield f"{node.kind} keeps a share between 0% and 100%, but {text} is {value:g}% ({where})"
    if not share and not (value >= 1 and value.is_integer()):
        yield f"{node.kind} keeps a whole number of tokens, at least 1, but {text} is {value:g} ({where})"
