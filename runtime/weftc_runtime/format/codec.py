"""A program <-> the JSON that a checkpoint carries.

The dataclasses of `ir` are the schema: every field is written (but for a basis where there is none), and reading
demands exactly those fields with exactly those types. Fractions are strings "n/d"; floats keep their bits (JSON numbers
are written as shortest exact repr).
"""

from __future__ import annotations

import json
import math
import re
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from fractions import Fraction
from functools import cache
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from weftc_runtime.errors import ModelError, shown
from weftc_runtime.format import program as ir

MAX_DEPTH = 64  # nesting of the JSON; programs need about 12
MAX_STRING = 1 << 20  # characters of one string; the spec text is the longest
_OPTIONAL: dict[type, frozenset[str]] = {  # written where there is one
    ir.Program: frozenset({"basis", "pairs"}),
    ir.Input: frozenset({"symbols"}),
    ir.ProgramOutput: frozenset({"symbols"}),
    ir.Part: frozenset({"factors"}),
    ir.Mask: frozenset({"weighting"}),
}
_TAGS: dict[type, str] = {ir.Attend: "attend", ir.FFN: "ffn"}
_TOKENS = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[{]|[\]}]', re.DOTALL)  # strings, and brackets outside of them
_FRACTION = re.compile(r"-?[0-9]{1,1000}/[0-9]{1,1000}")


def dumps(document: Mapping[str, Any]) -> str:
    """JSON with sorted keys and no spaces: the same document always gives the same text."""
    try:
        return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except ValueError as error:
        raise ModelError(f"a number in the program is not finite ({error}); it cannot be stored") from None


def loads(text: str, what: str) -> Any:
    """Parses JSON from a file: limited depth, no duplicate keys, no NaN or infinity, nothing but ModelError."""
    _check_depth(text, what)
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse, parse_int=_integer)
    except ModelError as error:
        raise ModelError(f"{what}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{what} is not valid JSON: {shown(error, 200)}") from None


def _check_depth(text: str, what: str) -> None:
    depth = 0
    for token in _TOKENS.finditer(text):
        if token[0] in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise ModelError(f"{what} is nested deeper than {MAX_DEPTH} levels; this is no model that Weft wrote")
        elif token[0] in "]}":
            depth -= 1


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ModelError("a key appears twice in one JSON object")
    return found


def _refuse(constant: str) -> Any:
    raise ModelError(f"{constant} is not a finite number")


def _integer(digits: str) -> int:
    if len(digits) > 20:
        raise ModelError("an integer has more than 20 digits")
    return int(digits)


def encode(value: Any) -> Any:
    """A value of the IR as plain JSON data."""
    if is_dataclass(value) and not isinstance(value, type):
        rare = _OPTIONAL.get(type(value), frozenset())
        said = {field.name: getattr(value, field.name) for field in fields(value)}
        body = {name: encode(one) for name, one in said.items() if one or name not in rare}
        tag = _TAGS.get(type(value))
        return body if tag is None else {"sublayer": tag, **body}
    if isinstance(value, Fraction):
        return f"{value.numerator}/{value.denominator}"
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise ModelError(f"a {type(value).__name__} cannot be part of a program")


def decode_program(data: Any) -> ir.Program:
    """The program that `encode` wrote, or a ModelError that names the entry that does not fit."""
    return cast(ir.Program, _decode(ir.Program, data, "program"))


def _decode(kind: Any, data: Any, where: str) -> Any:
    origin = get_origin(kind)
    if is_dataclass(kind):
        return _dataclass(cast(type, kind), data, where)
    if origin is Literal:
        if not isinstance(data, str) or data not in get_args(kind):
            raise ModelError(f"{where} is {shown(repr(data))}; known are {', '.join(map(str, get_args(kind)))}")
        return data
    if origin in (Union, types.UnionType):
        return _union(get_args(kind), data, where)
    if origin is tuple:
        return _tuple(get_args(kind), data, where)
    if origin is not None and issubclass(origin, Mapping):
        _expect(isinstance(data, dict), "an object", where)
        return {
            _text(key, where): _decode(get_args(kind)[1], item, f"{where}.{shown(key)}") for key, item in data.items()
        }
    return _scalar(kind, data, where)


def _dataclass(kind: type, data: Any, where: str) -> Any:
    _expect(isinstance(data, dict), "an object", where)
    hints = _hints(kind)
    extra = sorted(set(data) - set(hints) - ({"sublayer"} if kind in _TAGS else set()))
    missing = sorted(set(hints) - set(data) - _OPTIONAL.get(kind, frozenset()))
    if missing or extra:
        wrong = f"lacks {missing[0]}" if missing else f"has an unknown entry {shown(extra[0])}"
        raise ModelError(f"{where} {wrong}")
    told = {name: hint for name, hint in hints.items() if name in data}
    return kind(**{name: _decode(hint, data[name], f"{where}.{name}") for name, hint in told.items()})


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _union(options: tuple[Any, ...], data: Any, where: str) -> Any:
    if data is None and type(None) in options:
        return None
    rest = tuple(option for option in options if option is not type(None))
    if len(rest) == 1:
        return _decode(rest[0], data, where)
    _expect(isinstance(data, dict), "an object", where)
    for option in rest:
        if data.get("sublayer") == _TAGS[option]:
            return _decode(option, data, where)
    raise ModelError(f"{where}.sublayer is {shown(repr(data.get('sublayer')))}; known are attend, ffn")


def _tuple(items: tuple[Any, ...], data: Any, where: str) -> tuple[Any, ...]:
    _expect(isinstance(data, list), "a list", where)
    if len(items) == 2 and items[1] is Ellipsis:
        return tuple(_decode(items[0], item, f"{where}.{index}") for index, item in enumerate(data))
    _expect(len(data) == len(items), f"a list of {len(items)}", where)
    return tuple(
        _decode(kind, item, f"{where}.{index}") for index, (kind, item) in enumerate(zip(items, data, strict=True))
    )


def _scalar(kind: Any, data: Any, where: str) -> Any:
    if kind is str:
        return _text(data, where)
    if kind is bool:
        _expect(isinstance(data, bool), "true or false", where)
        return data
    if kind is int:
        _expect(isinstance(data, int) and not isinstance(data, bool), "an integer", where)
        return data
    if kind is float:
        _expect(isinstance(data, int | float) and not isinstance(data, bool), "a number", where)
        _expect(math.isfinite(data), "a finite number", where)
        return float(data)
    if kind is Fraction:
        _expect(isinstance(data, str) and _FRACTION.fullmatch(data) is not None, 'a fraction "n/d"', where)
        top, bottom = map(int, data.split("/"))
        _expect(bottom != 0, 'a fraction "n/d" with d > 0', where)
        return Fraction(top, bottom)
    raise AssertionError(f"no rule to read {kind}")


def _text(data: Any, where: str) -> str:
    _expect(isinstance(data, str) and len(data) <= MAX_STRING, f"a string of at most {MAX_STRING} characters", where)
    return cast(str, data)


def _expect(holds: bool, what: str, where: str) -> None:
    if not holds:
        raise ModelError(f"{where} must be {what}")
