"""`weftc distance`: how far two models are apart."""

from __future__ import annotations

import argparse
import json

from weftc.commands.options import UsageError, add_json, natural, positive, told
from weftc.commands.progress import progress
from weftc.core.errors import InputError
from weftc.files.locate import find_model

SUMMARY = "tell how far two models are apart, as functions and as weights"
EXAMPLE = """example:
  weftc distance compiled.safetensors trained.safetensors

Functions are compared on random inputs, as the spec in the first file declares them: the largest difference of every
output, and the share of rows that differ. Weights are compared head by head, the farthest first."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Two models, and how many inputs."""
    parser.add_argument("first", metavar="A", help="a .safetensors model")
    parser.add_argument("second", metavar="B", help="another, with the same inputs")
    parser.add_argument("--cases", type=positive, default=20, metavar="N", help="inputs to compare on (default 20)")
    parser.add_argument("--seed", type=natural, default=0, metavar="N", help="of these inputs (default 0)")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Prints the distance."""
    try:
        first, second = find_model(options.first), find_model(options.second)
    except InputError as error:
        raise UsageError(told(error)) from None
    with progress("comparing"):
        from weftc.variants.distance import distance

        found = distance(first, second, options.cases, options.seed)
    print(json.dumps(found.json()) if options.json else found.text())
    return 0
