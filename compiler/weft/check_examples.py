"""Examples: every name exists, every value has the shape of its field, sizes agree, nothing is missing.

Values come out in the shape of their field: numbers per token as a flat tuple, vectors and pair fields as rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

from weft import syntax as ast
from weft.check_names import Names
from weft.problems import Problems
from weft.source import Span
from weft.types import FieldType
from weft.words import did_you_mean, listed, plural, width_words


@dataclass(slots=True)
class Sizes:
    """How large dimensions and open sets are in one example, and which value said so."""

    sets: Mapping[str, ast.Dimension | None]
    known: dict[str, tuple[int, str]] = field(default_factory=dict)

    def agree(self, name: ast.Dimension, size: int, who: str) -> str:
        """Records the size of a dimension or a set; what contradicts it, in words, or nothing."""
        if isinstance(name, str):
            fixed = self.sets.get(name)
            name = name if fixed is None else fixed
        if isinstance(name, int):
            return "" if name == size else f"{name} expected, as declared"
        first, said = self.known.setdefault(name, (size, who))
        return "" if first == size else f"{first} expected, as in {said} above" if said == who else f"{first} expected, as in {said}"


def examples(spec: ast.Spec, names: Names, fields: dict[str, FieldType], problems: Problems) -> tuple[ast.Example, ...]:
    """The examples with values in the shape of their fields."""
    return tuple(_example(spec, example, names, fields, problems) for example in spec.examples)


def _example(
    spec: ast.Spec, example: ast.Example, names: Names, fields: dict[str, FieldType], problems: Problems
) -> ast.Example:
    sizes = Sizes(names.sets)
    given: list[ast.Given] = []
    seen: set[str] = set()
    before = len(problems.found)
    if example.layers < 1:
        problems.add("C310", problems.spot(example.span, "layers"), "an example runs at least one layer", "")
    for item in example.given:
        if item.name in seen:
            problems.add("C311", item.span, f"{item.name} is given twice")
            continue
        seen.add(item.name)
        given.append(_given(item, example, names, fields, sizes, problems))
    if len(problems.found) == before:
        _missing(example, seen, names, sizes, problems)
    shown: list[ast.Expected] = []
    outputs = {output.target.name: output for output in spec.outputs}
    for expected in example.expected:
        if expected.name not in outputs:
            what = names.what(expected.name)
            problems.add(
                "C312",
                problems.spot(expected.span, expected.name),
                f"{expected.name} is not an output",
                did_you_mean(expected.name, outputs) or (f"it is {what}" if what else ""),
                f"outputs: {listed(outputs)}" if outputs else "",
                "what is given comes before `layers`, what is expected after it" if what else "",
            )
            continue
        shown.append(_expected(expected, outputs[expected.name], names, fields, sizes, problems))
    return replace(example, given=tuple(given), expected=tuple(shown))


def _given(
    item: ast.Given, example: ast.Example, names: Names, fields: dict[str, FieldType], sizes: Sizes, problems: Problems
) -> ast.Given:
    name, value = item.name, item.value
    spot = problems.spot(item.span, name)
    if name in names.params or name in names.dims:
        if not isinstance(value, Fraction):
            problems.add("C313", item.span, f"{name} is one number", "this is a list")
        elif name in names.dims:
            _dimension(item, value, sizes, problems)
        else:
            bound = names.params[name].bound
            if bound is not None and not bound.admits(float(value)):
                problems.add("C314", item.span, f"{name} is outside its range", f"{float(value):g} is not {bound}")
        return item
    known = fields.get(name)
    if known is not None and known.role in ("input", "random"):
        if known.role == "random" and example.layers > 1:
            return replace(item, value=_per_layer(item, known, example.layers, sizes, problems))
        shaped = _shaped(item.span, name, known.width, known, value, sizes, problems)
        if shaped is not None and known.bound is not None:
            _in_bound(item, shaped, known.bound, problems)
        return item if shaped is None else replace(item, value=shaped)
    if known is None and names.declared(name) is not None:
        return item  # its declaration was refused
    what = names.what(name)
    usable = [*names.inputs, *names.params, *names.random, *names.dims]
    problems.add(
        "C315",
        spot,
        f"an example cannot set {name}" if what else f"unknown name {name}",
        f"it is {what}" if what else did_you_mean(name, usable),
        "an example gives inputs, parameters and random fields",
    )
    return item


def _dimension(item: ast.Given, value: Fraction, sizes: Sizes, problems: Problems) -> None:
    if value.denominator != 1 or value < 1:
        problems.add("C313", item.span, f"{item.name} is a whole number, at least 1", f"this is {value}")
    elif said := sizes.agree(item.name, int(value), item.name):
        problems.add("C316", item.span, f"{item.name} does not fit the rest of the example", said)


def _per_layer(item: ast.Given, known: FieldType, layers: int, sizes: Sizes, problems: Problems) -> ast.Value:
    """Noise of several layers: one block per layer."""
    value = item.value
    if not isinstance(value, tuple) or len(value) != layers:
        count = plural(len(value), "block") if isinstance(value, tuple) else "one number"
        problems.add(
            "C317",
            item.span,
            f"{item.name} is drawn anew in every layer",
            f"{plural(layers, 'layer')}, but this has {count}",
            "give one block in brackets per layer",
        )
        return value
    blocks = [_shaped(item.span, item.name, None, known, block, sizes, problems) for block in value]
    return tuple(block for block in blocks if block is not None)


def _in_bound(item: ast.Given, value: ast.Value, bound: ast.Bound, problems: Problems) -> None:
    flat = [value]
    while flat:
        top = flat.pop()
        if isinstance(top, tuple):
            flat.extend(top)
        elif not bound.admits(float(top)):
            problems.add("C314", item.span, f"{item.name} is outside its range", f"{float(top):g} is not {bound}")
            return


def _expected(
    item: ast.Expected, output: ast.Output, names: Names, fields: dict[str, FieldType], sizes: Sizes, problems: Problems
) -> ast.Expected:
    if not output.target.indices:
        known = fields.get(output.body.name) if isinstance(output.body, ast.Ref) else None
        if known is None:
            return item
        shaped = _shaped(item.span, item.name, known.width, known, item.value, sizes, problems)
    else:
        homes = [names.index.get(i) for i in output.target.indices]
        if None in homes or len(homes) > 2:
            return item
        shape = FieldType(
            item.name, "computed", output.target.indices, str(homes[0]), str(homes[1]) if len(homes) == 2 else None
        )
        shaped = _shaped(item.span, item.name, Ellipsis, shape, item.value, sizes, problems)
    return item if shaped is None else replace(item, value=shaped)


def _shaped(
    span: Span, name: str, width: object, known: FieldType, value: ast.Value, sizes: Sizes, problems: Problems
) -> ast.Value | None:
    """A value in the shape of a field; None after reporting that it has another."""
    rows = value if isinstance(value, tuple) else (value,)
    flat = width is None and not known.is_pair
    if width is Ellipsis and not known.is_pair:  # an output expression: a number or a vector per token, as written
        flat = not any(isinstance(row, tuple) for row in rows)
        width = None
    single = flat and len(rows) == 1 and isinstance(rows[0], tuple) and not any(isinstance(v, tuple) for v in rows[0])
    if single:  # u = [1, 2, 3] for one number per token
        inner = rows[0]
        assert isinstance(inner, tuple)
        rows = inner
    what = "one number per token" if flat else "one row in brackets per token"
    if not rows or any(isinstance(row, tuple) is flat for row in rows):
        problems.add(
            "C318",
            span,
            f"{name} is {width_words(known.width)} per {known.home} token"
            if not known.is_pair
            else f"{name} is a pair field of {known.home} and {known.columns}",
            f"give {what}",
            f"as in {name} = 1, 2, 3" if flat else f"as in {name} = [1, 2], [3, 4]",
        )
        return None
    columns = known.width if not known.is_pair else known.columns
    for row in rows:
        if isinstance(row, tuple):
            if not row or any(isinstance(v, tuple) for v in row):
                problems.add(
                    "C318",
                    span,
                    f"a row of {name} is a list of numbers",
                    "this is nested deeper" if row else "this row is empty",
                )
                return None
            if len(row) != len(rows[0]):  # type: ignore[arg-type]
                problems.add(
                    "C319",
                    span,
                    f"the rows of {name} differ in length",
                    f"the first has {plural(len(rows[0]), 'number')}, another {len(row)}",
                )  # type: ignore[arg-type]
                return None
    said = sizes.agree(known.home, len(rows), name)
    if said:
        problems.add(
            "C316", span, f"{name} has {plural(len(rows), 'row' if not flat else 'number')}, which does not fit", said
        )
        return None
    if columns is not None and not flat:
        assert isinstance(rows[0], tuple)
        said = sizes.agree(columns, len(rows[0]), name)
        if said:
            problems.add(
                "C316", span, f"the rows of {name} have {plural(len(rows[0]), 'number')}, which does not fit", said
            )
            return None
    return rows


def _missing(example: ast.Example, given: set[str], names: Names, sizes: Sizes, problems: Problems) -> None:
    """Reports inputs, parameters and dimensions without a value."""
    spot = problems.spot(example.span, "example")
    for name, declared in names.inputs.items():
        if name in given:
            continue
        if declared.init is None or declared.init.kind in ("spread", "random"):
            why = (
                ""
                if declared.init is None
                else f"init {declared.init.kind} draws it, so the answer would depend on a seed"
            )
            problems.add("C320", spot, f"this example does not give {name}", why, f"write {name} = ... before `layers`")
            return
    for name, param in names.params.items():
        if name not in given and param.default is None:
            problems.add(
                "C320",
                spot,
                f"this example does not give {name}",
                "it has no default",
                f"write {name} = ... before `layers`",
            )
    for name in names.dims:
        if name not in sizes.known:
            problems.add(
                "C321",
                spot,
                f"nothing in this example says how large {name} is",
                "",
                f"write {name} = ... before `layers`",
            )
