"""The public names of `weftc`, `weftc_runtime` and their open modules -> signatures and first words, in Markdown."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

PACKAGES = ("weftc", "weftc_runtime", "weftc.variants", "weftc.prover")
WIDEST = 100
NOT_OURS = frozenset({"extra_repr"})  # hooks of torch that a class fills in


def public() -> dict[str, Any]:
    """Every public name with its value; what the compiler only passes on is listed where it comes from."""
    found: dict[str, Any] = {}
    for package in PACKAGES:
        module = import_module(package)
        found |= {f"{package}.{name}": getattr(module, name) for name in module.__all__}
    own = {id(value): name for name, value in found.items()}
    return {name: value for name, value in found.items() if own[id(value)] == name or not inspect.isclass(value)}


def described(name: str, value: Any) -> str:
    """The section of one name: signature, what it is, and the members of a class."""
    if inspect.isclass(value):
        return "\n".join([_fenced(f"class {name}{_bases(value)}"), "", _doc(value), *_members(value)])
    if callable(value):
        return "\n".join([_fenced(_signature(name, value)), "", _doc(value)])
    return _fenced(f"{name}: {type(value).__name__}")


def _fenced(text: str) -> str:
    return f"```py\n{text}\n```"


def _bases(value: type) -> str:
    bases = [base.__name__ for base in value.__bases__ if base is not object and not base.__name__.startswith("_")]
    return f"({', '.join(bases)})" if bases else ""


def _signature(name: str, value: Any) -> str:
    """A call with its annotations, one argument per line where one line is too long."""
    signature = inspect.signature(value)
    shown, starred = [], False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            shown.append("*")
            starred = True
        shown.append(_parameter(parameter))
    end = f" -> {_annotation(signature.return_annotation)}"
    line = f"{name}({', '.join(shown)}){end}"
    return line if len(line) <= WIDEST else f"{name}(\n    " + ",\n    ".join(shown) + f",\n){end}"


def _parameter(parameter: inspect.Parameter) -> str:
    default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}".replace("'", '"')
    return f"{_stars(parameter)}{parameter.name}: {_annotation(parameter.annotation)}{default}"


def _stars(parameter: inspect.Parameter) -> str:
    return "*" if parameter.kind is parameter.VAR_POSITIONAL else "**" * (parameter.kind is parameter.VAR_KEYWORD)


def _annotation(annotation: Any) -> str:
    return annotation.replace("'", '"') if isinstance(annotation, str) else str(annotation)


def _doc(value: Any) -> str:
    """The paragraphs of a docstring, up to its examples; those with columns are kept as they are aligned."""
    text = (inspect.getdoc(value) or "").partition(">>>")[0].strip()
    return "\n\n".join(_paragraph(part) for part in text.split("\n\n"))


def _paragraph(text: str) -> str:
    columns = re.search(r"^ *\S+ {2,}\S", text, re.M)
    return f"```text\n{text}\n```" if columns else text


def _members(value: type) -> Iterator[str]:
    rows = [(f"`{shown}`", said) for shown, said in _attributes(value)]
    if rows:
        yield ""
        yield "| member | |"
        yield "| --- | --- |"
        yield from (f"| {shown} | {said} |".replace("  |", " |") for shown, said in rows)


def _attributes(value: type) -> Iterator[tuple[str, str]]:
    """Fields, properties and methods that the class itself defines."""
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            if not field.name.startswith("_"):
                yield f"{field.name}: {str(field.type).replace('|', chr(92) + '|')}", ""
    for name, member in vars(value).items():
        if name.startswith("_") or name in NOT_OURS:
            continue
        if isinstance(member, property):
            yield name, _first(member)
        elif inspect.isfunction(member) or isinstance(member, classmethod | staticmethod):
            yield _short(name, getattr(value, name)), _first(member)


def _short(name: str, value: Any) -> str:
    """A method and the names of its arguments."""
    words = []
    for parameter in inspect.signature(value).parameters.values():
        if parameter.name == "self":
            continue
        default = "" if parameter.default is parameter.empty else f"={parameter.default!r}"
        words.append(f"{_stars(parameter)}{parameter.name}{default}")
    return f"{name}({', '.join(words)})"


def _first(value: Any) -> str:
    """The first sentence of a docstring, in one line."""
    text = " ".join((inspect.getdoc(value) or "").partition("\n\n")[0].split())
    return text.replace("|", "\\|")
