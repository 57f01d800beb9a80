"""`weftc show`: the text of a built-in spec, of a file, or of the spec inside a model."""

from __future__ import annotations

import argparse

from weftc.commands.inspect import in_colour
from weftc.commands.options import UsageError, add_json
from weftc.commands.telling import tell
from weftc.core.errors import InputError
from weftc.core.source import Source
from weftc.files.locate import find_model, find_spec, is_model
from weftc.language.highlight import coloured

SUMMARY = "print the text of a spec"
EXAMPLE = """example:
  weftc show lloyd
  weftc show model.safetensors     # the spec that the model was compiled from
  weftc show lloyd > mine.weft     # to change it; weftc new mine --from lloyd also renames it

--json prints {ok, name, text, warnings}."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """One spec or model."""
    parser.add_argument("target", metavar="SPEC|MODEL", help="a built-in spec, a .weft file or a .safetensors model")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Prints the text as it is written; in a terminal in colour."""
    source = _source(options.target)
    text = coloured(source.text) if in_colour() and not options.json else source.text
    tell(options, {"ok": True, "name": source.name, "text": source.text}, text.rstrip("\n"))
    return 0


def _source(target: str) -> Source:
    try:
        if not is_model(target):
            return find_spec(target)
        path = find_model(target)
    except InputError as error:
        raise UsageError(str(error)) from None
    from weftc_runtime.format.checkpoint import Checkpoint

    checkpoint = Checkpoint.load(path)
    return Source(checkpoint.spec_name, checkpoint.spec_text)
