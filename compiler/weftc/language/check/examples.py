"""Examples: every name exists, every value has the shape of its field and lies in its range, nothing is missing.

Values come out in the shape of their field: numbers per token as a flat tuple, vectors and pair fields as rows. Noise
for several layers has one block per layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from weftc.core import syntax as ast
from weftc.core.types import FieldType
from weftc.core.vocabulary import DRAWN
from weftc.core.words import did_you_mean, listed, plural
from weftc.language.check.example_shapes import ExampleSizes, shaped
from weftc.language.check.names import Names
from weftc.language.check.problems import Problems


def examples(
    spec: ast.Spec, names: Names, fields: dict[str, FieldType], shapes: dict[str, FieldType], problems: Problems
) -> tuple[ast.Example, ...]:
    """The examples with values in the shape of their fields; `shapes` are those of the outputs that make sense."""
    outputs = {output.target.name: shapes.get(output.target.name) for output in spec.outputs}
    checks = (_Check(example, names, fields, outputs, problems, ExampleSizes(names.sets)) for example in spec.examples)
    return tuple(check.run() for check in checks)


@dataclass(frozen=True, slots=True)
class _Check:
    example: ast.Example
    names: Names
    fields: dict[str, FieldType]
    outputs: dict[str, FieldType | None]
    problems: Problems
    sizes: ExampleSizes

    def run(self) -> ast.Example:
        before = len(self.problems.found)
        given: dict[str, ast.ExampleInput] = {}
        for item in self.example.given:
            if item.name in given:
                self.problems.add("C311", item.span, f"{item.name} is given twice")
            else:
                given[item.name] = replace(item, value=self._given(item))
        sound = len(self.problems.found) == before
        if sound:
            self._missing(set(given))
        expected = tuple(replace(item, value=self._expected(item, sound)) for item in self.example.expected)
        return replace(self.example, given=tuple(given.values()), expected=expected)

    # ---- what is given -----------------------------------------------------------------------------------------------

    def _given(self, item: ast.ExampleInput) -> ast.Value:
        name, names = item.name, self.names
        if name in names.params or name in names.dims:
            return self._constant(item)
        known = self.fields.get(name)
        if known is not None and known.role in ("input", "random"):
            if known.role == "random" and self.example.layers > 1:
                return self._per_layer(item, known)
            value = shaped(item.value, name, item.span, known, self.sizes, self.problems)
            if value is not None and known.bound is not None:
                self._in_range(item, value, known.bound)
            return item.value if value is None else value
        if known is None and names.declared(name) is not None:
            return item.value  # its declaration was refused
        what = names.what(name)
        usable = [*names.inputs, *names.params, *names.random, *names.dims]
        message = f"an example cannot set {name}" if what else f"unknown name {name}"
        label = f"it is {what}" if what else did_you_mean(name, usable)
        how = f"it can set inputs, parameters, random fields and dimensions: {listed(usable)}"
        self.problems.add("C315", self.problems.spot(item.span, name), message, label, how)
        return item.value

    def _constant(self, item: ast.ExampleInput) -> ast.Value:
        name, value = item.name, item.value
        if not isinstance(value, Fraction):
            self.problems.add("C313", item.span, f"{name} is one number", "this is a list")
        elif name in self.names.params:
            bound = self.names.params[name].bound
            if bound is not None:
                self._in_range(item, value, bound)
        elif value.denominator != 1 or value < 1:
            self.problems.add("C313", item.span, f"{name} is a whole number, at least 1", f"this is {value}")
        elif said := self.sizes.agree(name, int(value), name):
            self.problems.add("C316", item.span, f"{name} does not fit the rest of the example", said)
        return value

    def _in_range(self, item: ast.ExampleInput, value: ast.Value, bound: ast.ParamBound) -> None:
        outside = next((number for number in _numbers(value) if not bound.admits(float(number))), None)
        if outside is not None:
            label = f"{float(outside):g} is not {bound}"
            self.problems.add("C314", item.span, f"{item.name} is outside its range", label)

    def _per_layer(self, item: ast.ExampleInput, known: FieldType) -> ast.Value:
        """Noise of several layers: one block per layer."""
        value, layers = item.value, self.example.layers
        if not isinstance(value, tuple) or len(value) != layers:
            has = plural(len(value), "block") if isinstance(value, tuple) else "one number"
            message, how = f"{item.name} is drawn anew in every layer", "give one block in brackets per layer"
            self.problems.add("C317", item.span, message, f"{plural(layers, 'layer')}, but this has {has}", how)
            return value
        blocks = [shaped(block, item.name, item.span, known, self.sizes, self.problems) for block in value]
        return tuple(block for block in blocks if block is not None)

    def _missing(self, given: set[str]) -> None:
        """Reports inputs, parameters and dimensions without a value."""
        spot = self.problems.spot(self.example.span, "example")
        lacking = []
        for name, declared in self.names.inputs.items():
            if name not in given and declared.init is None:
                lacking.append((name, ""))
            elif name not in given and declared.init is not None and declared.init.kind in DRAWN:
                lacking.append((name, f"init {declared.init.kind} draws it, so the answer would depend on a seed"))
        params = (name for name, param in self.names.params.items() if param.default is None)
        lacking += [(name, "it has no default") for name in params if name not in given]
        for name, why in lacking:
            how = f"write {name} = ... before `layers`"
            self.problems.add("C320", spot, f"this example does not give {name}", why, how)
        unknown = [name for name in self.names.dims if name not in self.sizes.known]
        if unknown and not lacking:
            message = f"nothing in this example says how large {unknown[0]} is"
            self.problems.add("C321", spot, message, "", f"write {unknown[0]} = ... before `layers`")

    # ---- what is expected --------------------------------------------------------------------------------------------

    def _expected(self, item: ast.ExampleOutput, sound: bool) -> ast.Value:
        if item.name not in self.outputs:
            what = self.names.what(item.name)
            label = did_you_mean(item.name, self.outputs) or (f"it is {what}" if what else "")
            known = f"outputs: {listed(self.outputs)}" if self.outputs else ""
            order = "what is given comes before `layers`, what is expected after it" if what else ""
            spot = self.problems.spot(item.span, item.name)
            self.problems.add("C312", spot, f"{item.name} is not an output", label, known, order)
            return item.value
        shape = self.outputs[item.name]
        if shape is None or not sound:
            return item.value
        value = shaped(item.value, item.name, item.span, shape, self.sizes, self.problems)
        return item.value if value is None else value


def _numbers(value: ast.Value) -> Iterator[Fraction]:
    waiting = [value]
    while waiting:
        top = waiting.pop()
        if isinstance(top, tuple):
            waiting.extend(reversed(top))
        elif isinstance(top, Fraction):
            yield top
