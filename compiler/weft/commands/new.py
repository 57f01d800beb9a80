"""`weft new`: a commented starter spec that checks, compiles and runs as it is."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from weft.commands.folder import whole_file
from weft.commands.inspect import in_colour
from weft.commands.options import UsageError, add_json
from weft.errors import SpecError
from weft.highlighting import coloured
from weft.language.check import check
from weft.language.parse import parse
from weft.source import Source, printable

SUMMARY = "write a commented starter spec"
EXAMPLE = """example:
  weft new mine            # writes mine.weft
  weft new mine -o -       # prints it"""

STARTER = """\
# A Weft spec states an algorithm over sets of tokens; weft turns it into a transformer that computes the same.
# What stands here works: change a line, then  weft check {file}
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

# What comes out, under the names of the files that  weft run  writes.
outputs centers = c, labels = y

# What the iteration makes smaller; shown by  weft run.
objective sum[i] min[j] |x[i] - c[j]|^2

# Worked by hand; checked by  weft verify.
example
  x = [-3], [-2], [0], [2], [3]    c = [-1], [1]    layers 1
  centers = [-5/3], [5/2]
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """The name of the algorithm, and where to write it."""
    parser.add_argument("name", metavar="NAME", help="name of the algorithm: letters, digits and _")
    parser.add_argument("-o", dest="output", metavar="FILE", help="file to write (default NAME.weft; - prints it)")
    parser.add_argument("--force", action="store_true", help="replace an existing file")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Writes the starter spec."""
    path = Path(options.output or f"{options.name}.weft")
    text = starter(options.name, path.name if options.output != "-" else f"{options.name}.weft")
    if options.output == "-":
        shown = coloured(text) if in_colour() else text
        print(json.dumps({"ok": True, "text": text}) if options.json else shown, end="\n" if options.json else "")
        return 0
    if path.is_dir() or (path.exists() and not options.force):
        raise UsageError(f"{printable(str(path))} exists; add --force to replace it, or choose another file with -o")
    with whole_file(path) as partial:
        partial.write_text(text, encoding="utf-8")
    shown = printable(str(path))
    told = f"wrote {shown}; try: weft check {shown}, weft run {shown} --data points.csv -D k=3"
    print(json.dumps({"ok": True, "file": str(path)}) if options.json else told)
    return 0


def starter(name: str, file: str) -> str:
    """The starter spec under a name, or an error when the name cannot be one."""
    text = STARTER.format(name=name, file=printable(file))
    try:
        fits = check(parse(Source(file, text))).spec.name == name
    except SpecError:
        fits = False
    if not fits:
        raise UsageError(
            f"'{printable(name)}' cannot be the name of an algorithm: a name starts with a letter, goes on with "
            "letters, digits and _, and is no word of the language"
        )
    return text
