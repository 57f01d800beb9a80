"""`weftc check`: every mistake in a spec, without compiling it; or a line that says what the spec declares."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from weftc.commands.options import add_json
from weftc.commands.target import spec_of
from weftc.commands.telling import json_text, tell
from weftc.core import syntax as ast
from weftc.core.errors import InputError, SpecError, WeftError
from weftc.core.source import printable
from weftc.core.styles import Styles
from weftc.core.types import Checked
from weftc.language.bind import bind
from weftc.language.check.check import check
from weftc.language.parse.parse import parse, parts

SUMMARY = "report every mistake in a spec without compiling it"
EXAMPLE = """example:
  weftc check mine.weft
  weftc check specs/*.weft         # every file is checked, whatever the others have
  weftc check - < mine.weft        # from standard input

--json prints, for one spec, {ok, name, doc, dims, params, sets, inputs, outputs, steps, examples, warnings}, with
parts: [{the same}] for the other algorithms of its file, or
{ok: false, error, problems: [{code, line, column, end_line, end_column, message, label, notes}]}, with file where a
problem is in another file that the spec uses; for several, {ok, files: [{file, and the same}], warnings}. The exit code
is 1 when there are problems. weftc explain CODE says more about a code."""

SAMPLE_SIZE = 2  # for every dimension; 1 would make some expressions simpler than they are


def arguments(parser: argparse.ArgumentParser) -> None:
    """Any number of specs."""
    parser.add_argument(
        "specs",
        metavar="SPEC",
        nargs="+",
        help="a built-in spec, a .weft file, or - for standard input",
    )
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Checks the specs; the mistakes of a single one leave as a `SpecError`, which the command line prints."""
    if len(options.specs) == 1:
        checked = _checked(options.specs[0])
        tell(options, {"ok": True, **_all_declared(checked)}, "\n".join(map(describe, checked)))
        return 0
    outcomes = []
    for word in options.specs:
        outcomes.append(_outcome(word))
        if not options.json:
            _print(outcomes[-1])
    ok = all(outcome["ok"] for outcome in outcomes)
    if options.json:
        print(json_text(options, {"ok": ok, "files": [{k: v for k, v in o.items() if k != "text"} for o in outcomes]}))
    return 0 if ok else 1


def _checked(word: str) -> list[Checked]:
    """The algorithms of a file, each by itself; the first is what the file stands for."""
    source = spec_of(word)  # standard input gives it once
    found = [check(parse(source)), *map(check, parts(source))]
    for checked in found:
        refuse_unlowerable(checked)
    return found


def _outcome(word: str) -> dict[str, Any]:
    """What one of several files is: what it declares, or what is wrong with it."""
    try:
        checked = _checked(word)
    except WeftError as error:
        found = problems(error) if isinstance(error, SpecError) else []
        return {"file": word, "ok": False, "error": str(error), "problems": found, "text": str(error)}
    return {"file": word, "ok": True, **_all_declared(checked), "text": "\n".join(map(describe, checked))}


def _print(outcome: dict[str, Any]) -> None:
    text = outcome["text"]
    if not outcome["ok"]:
        text = "\n".join(printable(line) for line in text.split("\n"))
        text = text if text.startswith("error") else f"error: {text}"
    print(text, file=sys.stdout if outcome["ok"] else sys.stderr)


def refuse_unlowerable(checked: Checked) -> None:
    """Raises what has no attention form. Whether an equation has one does not depend on sizes, so small ones serve."""
    params = {name: sample(param) for name, param in checked.params.items() if param.default is None}
    try:
        bound = bind(checked, dict.fromkeys(checked.dims, SAMPLE_SIZE), params)
    except InputError:
        return  # a default that these sizes put out of its range; the user's own sizes will tell
    from weftc.passes.pipeline import Goal, lowered

    lowered(checked, Goal(bound.dims, bound.params, Styles()))


def sample(param: ast.Param) -> float:
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
        file, line, column = error.source.origin(diagnostic.span.start)
        _, end_line, end_column = error.source.origin(diagnostic.span.end)
        found.append(
            {
                **({} if file == error.source.name else {"file": file}),
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


def _all_declared(found: list[Checked]) -> dict[str, object]:
    """What the algorithms of a file declare, as plain data."""
    first, *others = map(declared, found)
    return {**first, "parts": others} if others else first


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
    widths["symbol"] = f"one of {{{', '.join(field.type.symbols)}}}"
    indices = ",".join(field.target.indices)
    return f"{field.target.name}[{indices}] : {widths.get(field.type.kind, field.type.kind)}"
