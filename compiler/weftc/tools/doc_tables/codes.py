"""The compiler's own source -> the codes of its diagnostics, each with what it says.

Codes are written where a mistake is found, so the source is the registry. What a message takes from the spec is shown
as an ellipsis.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path

CODE = re.compile(r"[PCL]\d{3}")
PLACES = ("weftc.language", "weftc.passes")
NO_FORM = "L301"  # what a refusal of the lowering has unless it says otherwise
ELLIPSIS = "…"


@cache
def codes() -> dict[str, tuple[str, ...]]:
    """Every code, in order, with its messages."""
    found: dict[str, dict[str, None]] = {}
    for tree in _modules():
        for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
            before = 0
            for code, message in sorted(_said(function), key=lambda said: said[1].lineno):
                found.setdefault(code, {}).update(dict.fromkeys(_templates(message, tree, function, before)))
                before = message.lineno
    return {code: tuple(messages) for code, messages in sorted(found.items())}


def _modules() -> Iterator[ast.Module]:
    for package in PLACES:
        for path in sorted(Path(str(files(package))).rglob("*.py")):
            yield ast.parse(path.read_text(encoding="utf-8"))


def _said(function: ast.FunctionDef) -> Iterator[tuple[str, ast.expr]]:
    """Codes and messages that a function reports."""
    for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        first = call.args[0] if call.args else None
        if name in ("add", "say") and isinstance(first, ast.Constant) and CODE.fullmatch(str(first.value)):
            yield str(first.value), call.args[2 if name == "add" else 1]
        elif name == "NoAttentionForm" and first is not None:
            named = (word.value for word in call.keywords if word.arg == "code")
            code = next((str(value.value) for value in named if isinstance(value, ast.Constant)), NO_FORM)
            yield code, first


def _templates(message: ast.expr, tree: ast.Module, function: ast.FunctionDef, after: int) -> Iterator[str]:
    """What a message may read; of a name, what it was given since the last report (at line `after`), or at all."""
    match message:
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr(values=parts):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else ELLIPSIS for part in parts)
        case ast.IfExp(body=one, orelse=other):
            yield from _templates(one, tree, function, after)
            yield from _templates(other, tree, function, after)
        case ast.Name(id=name):
            given = [pair for pair in _assigned(name, tree, function) if pair[0] <= message.lineno]
            for _, value in [pair for pair in given if pair[0] > after] or given:
                yield from _templates(value, tree, function, after)


def _assigned(name: str, tree: ast.Module, function: ast.FunctionDef) -> Iterator[tuple[int, ast.expr]]:
    """Everything a function or its module gives to a name, with the line; `a, b = f(...)` gives what f returns."""
    for node in (node for node in tree.body if isinstance(node, ast.Assign)):
        if isinstance(node.targets[0], ast.Name) and node.targets[0].id == name:
            yield node.lineno, node.value
    for node in (node for node in ast.walk(function) if isinstance(node, ast.Assign)):
        target = node.targets[0]
        if isinstance(target, ast.Name) and target.id == name:
            yield node.lineno, node.value
        elif isinstance(target, ast.Tuple):
            places = [place.id for place in target.elts if isinstance(place, ast.Name)]
            if name in places:
                yield from ((node.lineno, value) for value in _at(places.index(name), node.value, tree))


def _at(place: int, value: ast.expr, tree: ast.Module) -> Iterator[ast.expr]:
    """One part of a tuple, or of the tuples that a function of the module returns."""
    if isinstance(value, ast.Tuple):
        yield value.elts[place]
    elif isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        called = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == value.func.id)
        for function in called:
            for node in ast.walk(function):
                if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
                    yield node.value.elts[place]
