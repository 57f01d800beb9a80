"""`weftc new`: a commented starter spec that checks, compiles and runs as it is."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from weftc.commands.inspect import in_colour
from weftc.commands.options import UsageError, add_force, add_json
from weftc.commands.target import open_spec
from weftc.commands.telling import tell
from weftc.core.errors import SpecError
from weftc.core.source import Source, printable
from weftc.core.types import Checked
from weftc.files.folder import refuse_file, whole_file
from weftc.files.locate import KEYWORDS
from weftc.language.check.check import check
from weftc.language.highlight import coloured
from weftc.language.parse.parse import parse

SUMMARY = "write a commented starter spec, or a copy of another spec"
EXAMPLE = """example:
  weftc new mine                # writes mine.weft
  weftc new mine --from lloyd   # a copy of a built-in spec or a file, under a new name
  weftc new mine -o -           # prints it

--json prints {ok, file, warnings}, or with -o - {ok, text, warnings}."""

STARTER = """\
# A Weft spec states an algorithm over sets of tokens; weftc turns it into a transformer that computes the same.
# What stands here works: change a line, then  weftc check {file}
algorithm {name} "moves each center to the mean of the points nearest to it"

# Sets of tokens and the index that runs over each. An open set has as many tokens as the data have rows;
# a fixed set has a size that is given when the spec is compiled (-D k=5).
tokens  i in points
        j in centers : k

# What the user gives: one vector per token. `init` says how to start when nothing is given.
inputs  x[i] : R^d
        c[j] : R^d  init spread(x)

# Numbers the user may change (-D rate=0.5), with a default and a range.
param   rate = 1 in (0, 1]

# One iteration. Equations of a step happen at once and read the old values; `then` starts the next step.
layer
  # y[i,j] is 1 for the center j nearest to point i, and 0 for the others
  y[i,j] = argmin[j] |x[i] - c[j]|^2
  then
  # a mean over no points is undefined: `else` says what to use instead
  c[j]   = (1 - rate) * c[j] + rate * (mean[i] x[i] where y[i,j] else c[j])

# What comes out, under the names of the files that  weftc run  writes.
outputs centers = c, labels = y

# What the iteration makes smaller; shown by  weftc run.
objective sum[i] min[j] |x[i] - c[j]|^2

# Worked by hand; checked by  weftc verify.
example
  x = [-3], [-2], [0], [2], [3]    c = [-1], [1]    layers 1
  centers = [-5/3], [5/2]
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """The name of the algorithm, and where to write it."""
    parser.add_argument("name", metavar="NAME", help="name of the algorithm: letters, digits and _")
    parser.add_argument(
        "--from", dest="original", metavar="SPEC", help="start from a built-in spec or a .weft file (default: a tour)"
    )
    parser.add_argument("-o", dest="output", metavar="FILE", help="file to write (default NAME.weft; - prints it)")
    add_force(parser, "file")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Writes the starter spec, or a copy of another."""
    path = Path(options.output or f"{options.name}.weft")
    file = path.name if options.output != "-" else f"{options.name}.weft"
    text = starter(options.name, file) if options.original is None else renamed(options.original, options.name)
    if options.output == "-":
        shown = coloured(text) if in_colour() and not options.json else text
        tell(options, {"ok": True, "text": text}, shown.rstrip("\n"))
        return 0
    refuse_file(path, options.force, f"{options.name}.weft")
    with whole_file(path) as partial:
        partial.write_text(text, encoding="utf-8")
    shown = printable(str(path))
    checked = check(parse(Source(file, text)))
    told = f"wrote {shown}; try: weftc check {shown}, weftc run {shown} points.csv{_sizes(checked)}"
    tell(options, {"ok": True, "file": str(path)}, told)
    return 0


def _sizes(checked: Checked) -> str:
    """The dimensions that no data determine, as the command line takes them."""
    return "".join(f" -D {size}=3" for size in checked.sets.values() if isinstance(size, str))


def starter(name: str, file: str) -> str:
    """The starter spec under a name, or an error when the name cannot be one."""
    text = STARTER.format(name=name, file=printable(file))
    _require_name(name, text, file)
    return text


def renamed(original: str, name: str) -> str:
    """The text of another spec under a new name; its keywords, which are other names of it, stay behind."""
    checked = open_spec(original)
    text = KEYWORDS.sub("", checked.spec.source.text).rstrip("\n") + "\n"
    old = re.escape(checked.spec.name)
    text = re.sub(rf"^(\s*algorithm\s+){old}\b", lambda found: found[1] + name, text, count=1, flags=re.M)
    _require_name(name, text, f"{name}.weft")
    return text


def _require_name(name: str, text: str, file: str) -> None:
    try:
        fits = check(parse(Source(file, text))).spec.name == name
    except SpecError:
        fits = False
    if not fits:
        raise UsageError(
            f"'{printable(name)}' cannot be the name of an algorithm: a name starts with a letter, goes on with "
            "letters, digits and _, and is no word of the language"
        )
