"""`weft check`: every mistake in a spec, without compiling it; or a line that says what the spec declares."""

from __future__ import annotations

import argparse
import json

from weft import syntax as ast
from weft.commands.options import add_json
from weft.commands.target import open_spec
from weft.errors import InputError, SpecError
from weft.language.bind import bind
from weft.lowering.styles import Styles
from weft.source import printable
from weft.types import Checked

SUMMARY = "report all problems of a spec without compiling it"
EXAMPLE = """example:
  weft check mine.weft

--json prints {ok, name, doc, dims, params, sets, inputs, outputs, steps, examples}, or
{ok: false, error, problems: [{code, line, column, end_line, end_column, message, label, notes}]}.
The exit code is 1 when there are problems."""

SAMPLE_SIZE = 2  # for every dimension; 1 would make some expressions simpler than they are


def arguments(parser: argparse.ArgumentParser) -> None:
    """One spec."""
    parser.add_argument("spec", metavar="SPEC", help="name of a built-in spec, or path of a .weft file")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Checks one spec; its mistakes leave as a `SpecError`, which the command line prints."""
    checked = open_spec(options.spec)
    refuse_unlowerable(checked)
    print(json.dumps({"ok": True, **declared(checked)}) if options.json else describe(checked))
    return 0


def refuse_unlowerable(checked: Checked) -> None:
    """Raises what has no attention form. Whether an equation has one does not depend on sizes, so small ones serve."""
    params = {name: _sample(param) for name, param in checked.params.items() if param.default is None}
    try:
        bound = bind(checked, dict.fromkeys(checked.dims, SAMPLE_SIZE), params)
    except InputError:
        return  # a default that these sizes put out of its range; the user's own sizes will tell
    from weft.lowering.graph import build_graph
    from weft.lowering.lower import lower

    lower(build_graph(checked), bound.dims, bound.params, Styles())


def _sample(param: ast.Param) -> float:
    """A value in the range of a parameter that has no default."""
    bound = param.bound
    if bound is None:
        return 1.0
    ends = [end[0] for end in (bound.low, bound.high) if end is not None]
    tried = [1.0, 0.5, sum(ends) / len(ends), *ends, *(end + 1 for end in ends), *(end - 1 for end in ends)]
    return next((value for value in tried if bound.admits(value)), 1.0)


def problems(error: SpecError) -> list[dict[str, object]]:
    """The diagnostics of an error as plain data."""
    found: list[dict[str, object]] = []
    for diagnostic in error.diagnostics:
        line, column = error.source.position(diagnostic.span.start)
        end_line, end_column = error.source.position(diagnostic.span.end)
        found.append(
            {
                "code": diagnostic.code,
                "line": line,
                "column": column,
                "end_line": end_line,
                "end_column": end_column,
                "message": diagnostic.message,
                "label": diagnostic.label,
                "notes": list(diagnostic.notes),
            }
        )
    return found


def declared(checked: Checked) -> dict[str, object]:
    """What a spec declares, as plain data."""
    spec = checked.spec
    return {
        "name": spec.name,
        "doc": spec.doc,
        "dims": list(checked.dims),
        "params": list(checked.params),
        "sets": {name: size if size is not None else "open" for name, size in checked.sets.items()},
        "inputs": [_declaration(field) for field in spec.inputs],
        "outputs": [output.target.name for output in spec.outputs],
        "steps": len(spec.steps),
        "examples": len(spec.examples),
    }


def describe(checked: Checked) -> str:
    """What a spec declares, in a line."""
    spec = checked.spec
    sets = ", ".join(
        f"{name} : {size}" if size is not None else f"{name} (open)" for name, size in checked.sets.items()
    )
    parts = [
        f"tokens {sets}",
        f"inputs {', '.join(_declaration(field) for field in spec.inputs)}",
        f"parameters {', '.join(checked.params)}" if checked.params else "",
        f"{len(spec.steps)} step{'s' if len(spec.steps) > 1 else ''} per layer",
        f"outputs {', '.join(output.target.name for output in spec.outputs)}",
    ]
    return printable(f"{spec.name} is fine: {'; '.join(part for part in parts if part)}")


def _declaration(field: ast.Field) -> str:
    widths = {"number": "R", "vector": f"R^{field.type.width}", "unit": f"unit R^{field.type.width}"}
    indices = ",".join(field.target.indices)
    return f"{field.target.name}[{indices}] : {widths.get(field.type.kind, field.type.kind)}"
