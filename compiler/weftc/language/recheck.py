"""A rewritten syntax tree -> a checked spec with a text of its own, as if a user had written it."""

from __future__ import annotations

from dataclasses import replace

from weftc.core.source import Source
from weftc.core.syntax import Spec
from weftc.core.types import Checked
from weftc.core.unparse import written
from weftc.language.check.check import check
from weftc.language.parse.parse import parse


def rechecked(spec: Spec) -> Checked:
    """Checks the text of a rewritten spec; a checkpoint of it carries that text and can be verified."""
    return check(replace(parse(Source(spec.source.name, written(spec))), pairs=spec.pairs))
