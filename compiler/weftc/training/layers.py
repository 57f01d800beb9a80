"""A spec with `learn` -> the same with numbers; one for each layer means that its layers stand one after the other.

    learn   t = 1/3 in [0, 1] per layer          param   t1 = 0.41 in [0, 1],  t2 = 0.2 in [0, 1]
    layer                                        layer
      x[i] = (1 - t) * x[i]                        x[i] = (1 - t1) * x[i]
                                                   then
                                                   x[i] = (1 - t2) * x[i]

Random fields are drawn anew in every layer, so each layer has one of its own, and the number of the layer is a number.
The text is rewritten, not printed anew: comments and the author's way of writing stay. Examples, which speak of other
numbers, are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from weftc.core import syntax as ast
from weftc.core.errors import InputError
from weftc.core.source import Source, Span
from weftc.core.trees import fresh
from weftc.core.types import Checked
from weftc.core.unparse import written_bound, written_number
from weftc.language.check.problems import Problems
from weftc.language.format.formatter import format
from weftc.language.parse.grammar import load
from weftc.language.parse.lexer import Token, tokenize

LAYER = "layer"  # its number, in equations


def learned(checked: Checked) -> dict[str, ast.Param]:
    """The parameters that training may change."""
    return {name: param for name, param in checked.params.items() if param.learned}


def nothing_to_learn(checked: Checked) -> str:
    """What to say about a spec without such parameters."""
    return (
        f"{checked.spec.name} has nothing to learn; declare what may change, as in: learn h = 1 > 0, or "
        "learn h = 1 > 0 per layer"
    )


@dataclass(frozen=True, slots=True)
class Layered:
    """Names for the numbers of a spec: those of a parameter, one or one for each layer."""

    checked: Checked
    depth: int
    names: Mapping[str, tuple[str, ...]]  # learned parameter -> the parameters of the new spec

    def text(self, values: Mapping[str, Sequence[float]]) -> str:
        """The spec with these numbers."""
        return _Rewriter(self, values).text()


def layered(checked: Checked, depth: int) -> Layered:
    """The numbers of a spec that runs so many layers; an `InputError` where layers cannot stand one after the other."""
    names: dict[str, tuple[str, ...]] = {}
    for name, param in learned(checked).items():
        each = param.learned == "per layer"
        names[name] = tuple(fresh(checked, f"{name}{n}") for n in range(1, depth + 1)) if each else (name,)
    found = Layered(checked, depth, names)
    if _differ(found):
        _refuse(found)
    return found


def _differ(layers: Layered) -> set[str]:
    """What has another value in every layer: parameters, and what is defined by them."""
    checked = layers.checked
    found = {name for name in layers.names if checked.params[name].learned == "per layer"}
    if not found:
        return found
    found |= {LAYER, *(one.target.name for one in checked.spec.random)}
    bodies: dict[str, ast.Expr] = {name: one.default for name, one in checked.params.items() if one.default is not None}
    bodies |= {name: let.body for name, let in checked.lets.items()}
    size = -1
    while size < len(found):
        size = len(found)
        found |= {name for name, body in bodies.items() if found & _read(body)}
    return found


def _read(*bodies: ast.Expr) -> set[str]:
    return {node.name for body in bodies for node in ast.walk(body) if isinstance(node, ast.Ref)}


def _refuse(layers: Layered) -> None:
    spec, differ = layers.checked.spec, _differ(layers)
    outside = [one.body for one in spec.outputs] + [one.start for one in spec.state if one.start is not None]
    outside += [spec.objective] if spec.objective is not None else []
    if bad := differ & _read(*outside):
        what = sorted(bad)[0]
        raise InputError(
            f"{what} has a value for each layer, so it is read in the layer alone; "
            "outputs, starts and the objective belong to no layer"
        )


class _Rewriter:
    def __init__(self, layers: Layered, values: Mapping[str, Sequence[float]]) -> None:
        self.layers, self.values, self.spec = layers, values, layers.checked.spec
        self.source = self.spec.source
        self.differ = _differ(layers)
        self.copies = {
            name: layers.names.get(name)
            or tuple(fresh(layers.checked, f"{name}{n}") for n in range(1, layers.depth + 1))
            for name in self.differ - {LAYER}
        }
        self.copies[LAYER] = tuple(map(str, range(1, layers.depth + 1)))

    def text(self) -> str:
        edits: list[tuple[Span, str]] = []
        tokens = _tokens(self.source, Span(0, len(self.source.text)))
        for number, token in enumerate(tokens):
            if token.type == "LEARN":
                edits.append((token.span, "param"))
            if token.type == "REPEAT" and self.differ:
                edits.append((token.span.to(tokens[number + 1].span), ""))
        for param in self.spec.params:
            if param.name in self.layers.names:
                edits.append((param.span, ",  ".join(self._numbers(param))))
            elif param.name in self.differ:
                edits.append((param.span, ",  ".join(self._each(param.span))))
        edits += [
            (let.span, "\n".join(self._each(let.span))) for let in self.spec.lets if let.target.name in self.differ
        ]
        edits += [
            (one.span, ",  ".join(self._each(one.span))) for one in self.spec.random if one.target.name in self.differ
        ]
        edits += [(example.span, "") for example in self.spec.examples]
        if self.differ:
            region = _region(self.spec)
            edits.append((region, "\n  then\n  ".join(self._each(region))))
        text = self.source.text
        for span, new in sorted(edits, key=lambda edit: edit[0].start, reverse=True):
            text = text[: span.start] + new + text[span.end :]
        return format(text)

    def _numbers(self, param: ast.Param) -> Iterable[str]:
        for name, value in zip(self.layers.names[param.name], self.values[param.name], strict=True):
            yield f"{name} = {written_number(value)}{written_bound(param.bound)}"

    def _each(self, span: Span) -> Iterable[str]:
        """The text of a span for every layer, in the names of that layer."""
        every = _tokens(self.source, span)
        for layer in range(self.layers.depth):
            text = self.source.at(span)
            for before, token in reversed([*zip([None, *every], every, strict=False)]):
                if token.text not in self.copies or not (token.type == "NAME" or token.text == LAYER):
                    continue
                start, new = token.start, self.copies[token.text][layer]
                if token.text == LAYER and layer == 0 and before is not None and before.text == "^":
                    start, new = before.start, ""  # a^1 is a
                text = text[: start - span.start] + new + text[token.end - span.start :]
            yield text


def _region(spec: ast.Spec) -> Span:
    """The equations of the layer, as the text has them."""
    text = spec.source.text
    found = [
        one.span for step in spec.steps for one in step.equations if text.startswith(one.target.name, one.span.start)
    ]
    return Span(min(span.start for span in found), max(span.end for span in found))


def _tokens(source: Source, span: Span) -> list[Token]:
    problems = Problems(source)
    return [
        token._replace(start=token.start + span.start, end=token.end + span.start)
        for token in tokenize(source.at(span), load().terminals, problems)
    ]
