"""`weftc explain`: the code of an error -> what it says, and a real case of it with its fix."""

from __future__ import annotations

import argparse
import re
from functools import cache
from importlib.resources import files

from weftc.commands.options import UsageError, add_json
from weftc.commands.telling import tell
from weftc.core.source import printable
from weftc.core.words import did_you_mean

SUMMARY = "explain the code of an error, with an example"
EXAMPLE = """example:
  weftc explain C230
  weftc explain              # every code

Codes begin with P (the text is not a spec), C (the spec has no meaning) or L (it has no attention form).
--json prints {ok, codes: {code: text}, warnings}."""
KINDS = {
    "P": "found by the parser: the text is not a spec",
    "C": "found by the checker: a name, a type, or a value that may be undefined",
    "L": "found by the lowering: the spec has a meaning, but no attention form",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Any number of codes."""
    parser.add_argument("codes", metavar="CODE", nargs="*", help="a code such as C230 (default: list them all)")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Prints the explanation of each code, or a line for every code."""
    known = explanations()
    asked = [code.strip("[]").upper() for code in options.codes]
    for code in asked:
        if code not in known:
            raise UsageError(f"there is no code {printable(code)}; {did_you_mean(code, known) or 'see: weftc explain'}")
    if not asked:
        lines = [f"{code}  {text.splitlines()[0].removeprefix('- ')}" for code, text in known.items()]
        tell(options, {"ok": True, "codes": known}, "\n".join(lines))
        return 0
    shown = [f"{code}, {KINDS[code[0]]}\n\n{known[code]}" for code in asked]
    tell(options, {"ok": True, "codes": {code: known[code] for code in asked}}, "\n\n".join(shown))
    return 0


@cache
def explanations() -> dict[str, str]:
    """Every code with its text. `make docs` writes the page from the source and the tests."""
    page = files("weftc.commands").joinpath("explanations.md").read_text(encoding="utf-8")
    found = re.split(r"^### (\w+)\n", page, flags=re.M)[1:]
    plain = (re.sub(r"^```\w*\n?", "", text, flags=re.M).strip() for text in found[1::2])
    return dict(zip(found[::2], plain, strict=True))
