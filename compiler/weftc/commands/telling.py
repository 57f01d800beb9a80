"""What a command has to say -> text for people or one JSON object, with every warning in it.

Warnings that Python libraries raise on the way become sentences: on stderr, or under `warnings` in the JSON.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from weftc.core.source import printable

# What NumPy says about single operations. Values that are undefined are errors of their own, with a place; so this is
# for machines only.
ARITHMETIC = re.compile(r"(divide by zero|invalid value|overflow|underflow) encountered in ")


@contextmanager
def collected_warnings(as_json: bool) -> Iterator[list[str]]:
    """Python's warnings, once each, instead of file names and lines of code on stderr."""
    found: list[str] = []

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        text = printable(" ".join(str(message).split()))
        if text not in found:
            found.append(text)
            if not (as_json or ARITHMETIC.match(text)):
                print(f"warning: {text}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield found


def tell(options: argparse.Namespace, told: Mapping[str, Any], text: str) -> None:
    """Prints the text, or with --json what it says as an object."""
    print(json_text(options, told) if options.json else text)


def json_text(options: argparse.Namespace, told: Mapping[str, Any]) -> str:
    """An object for machines, with the warnings of this run."""
    return json.dumps({**told, "warnings": [*told.get("warnings", ()), *options.warned]})
