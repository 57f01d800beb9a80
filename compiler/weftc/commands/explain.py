"""`weftc explain`: the code of an error -> a real case of it with its fix; a model -> the spec of its weights."""

from __future__ import annotations

import argparse
import re
from functools import cache
from importlib.resources import files
from pathlib import Path

from weftc.commands.options import UsageError, add_json, told
from weftc.commands.progress import progress
from weftc.commands.telling import tell
from weftc.core.errors import InputError
from weftc.core.source import printable
from weftc.core.words import did_you_mean
from weftc.files.folder import refuse_file, whole_file
from weftc.files.locate import MODEL_SUFFIX, find_model, is_model
from weftc.language.parse.library import SPEC_SUFFIX

SUMMARY = "explain the code of an error; or a model, as a spec read from its weights"
EXAMPLE = """example:
  weftc explain C230
  weftc explain                              # every code
  weftc explain puzzle.safetensors           # a spec, and what is proved about it
  weftc explain puzzle.safetensors -o puzzle.weft --named named.safetensors

A word that ends in .safetensors is a model: its spec, its names and what its slots are called are not looked at. -o
writes the spec, --named the same weights under the names of that spec, which `weftc verify` takes. The exit code is 1
where the spec is not proved to be what the weights compute.
Codes begin with P (the text is not a spec), C (the spec has no meaning) or L (it has no attention form).
--json prints {ok, codes: {code: text}, warnings}, of a model {ok, verdict, spec, reason, unread,
warnings}."""
KINDS = {
    "P": "found by the parser: the text is not a spec",
    "C": "found by the checker: a name, a type, or a value that may be undefined",
    "L": "found by the lowering: the spec has a meaning, but no attention form",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Any number of codes, or a model."""
    parser.add_argument(
        "codes", metavar="CODE|MODEL", nargs="*", help="a code such as C230 (default: list them all), or one model"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="of a model: where to write the spec")
    parser.add_argument("--named", metavar="FILE", help="of a model: where to write its weights under the spec's names")
    parser.add_argument("--force", action="store_true", help="replace existing files")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Prints the explanation of each code, or a line for every code."""
    models = [word for word in options.codes if is_model(word)]
    if models:
        if len(options.codes) > 1:
            raise UsageError("one model at a time, and no codes beside it")
        return _model(options, models[0])
    if options.output or options.named:
        raise UsageError("-o and --named belong to a model: weftc explain MODEL -o FILE")
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


def _model(options: argparse.Namespace, word: str) -> int:
    """Prints the spec of a model, or writes it."""
    try:
        path = find_model(word)
    except InputError as error:
        raise UsageError(told(error)) from None
    for name, ending in ((options.output, SPEC_SUFFIX), (options.named, MODEL_SUFFIX)):
        if name is not None:
            if not name.endswith(ending):
                raise UsageError(f"{printable(name)}: the name of this file ends in {ending}")
            refuse_file(Path(name), options.force, f"explained{ending}")
    from weftc.decompiler.explanation import explain
    from weftc_runtime.format.checkpoint import Checkpoint

    with progress(f"reading {path.name}"):
        found = explain(Checkpoint.load(path))
    if options.output and found.is_proved:
        with whole_file(Path(options.output)) as part:
            part.write_text(str(found), encoding="utf-8")
    if options.named and found.is_proved and found.model is not None:
        found.model.save(options.named)
    said = {"ok": found.is_proved, "verdict": found.verdict, "spec": found.text, "reason": found.reason}
    wrote = [f"wrote {name}" for name in (options.output, options.named) if name and found.is_proved]
    unread = [f"M{number}: {one}" for number, one in found.unread]
    shown = "\n".join([f"{path.name}: {found.verdict}", *wrote]) if wrote and options.output else str(found).rstrip()
    tell(options, {**said, "unread": unread}, shown)
    return 0 if found.is_proved else 1


@cache
def explanations() -> dict[str, str]:
    """Every code with its text. `make docs` writes the page from the source and the tests."""
    page = files("weftc.commands").joinpath("explanations.md").read_text(encoding="utf-8")
    found = re.split(r"^### (\w+)\n", page, flags=re.M)[1:]
    plain = (re.sub(r"^```\w*\n?", "", text, flags=re.M).strip() for text in found[1::2])
    return dict(zip(found[::2], plain, strict=True))
