"""A spec -> the same spec under names that are easily confused: primes, methods of Python and torch, words of ours."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from weftc.core.source import Source
from weftc.core.types import Checked
from weftc.language.check.problems import Problems
from weftc.language.parse.grammar import load
from weftc.language.parse.lexer import tokenize

NAMES = (
    "self cls None True lambda import class def type id len print eval dict super forward training parameters "
    "buffers modules children state_dict weight bias device dtype float double half cpu cuda to apply "
    "register_buffer named_modules T grad data shape head heads attn streams stream slot slots blocks hooks "
    "hook_z weights readout prelude program report plan start final fields trace dims params layers seed mask "
    "until limit progress inputs_ centre objective_ log_y sign reciprocal select copy other"
)


def hostile(rng: Random, checked: Checked) -> tuple[str, dict[str, str]]:
    """The text of a spec with some of its names replaced, and what replaced what."""
    spec = checked.spec
    names = [*checked.fields, *checked.params, *checked.dims, *checked.lets, *checked.sets, *checked.index]
    names += [output.target.name for output in spec.outputs]
    own = list(dict.fromkeys(name for name in names if name != spec.name))
    rng.shuffle(own)
    free = [name for name in NAMES.split() if name not in own]
    rng.shuffle(free)
    found: dict[str, str] = {}
    for name in own[: rng.randint(1, len(own))]:
        found[name] = _primed(rng, name, own, found) if rng.random() < 0.4 else free.pop()
    return renamed(spec.source.text, found), found


def _primed(rng: Random, name: str, own: list[str], taken: Mapping[str, str]) -> str:
    """A name that differs from another one by primes only."""
    base = rng.choice(own)
    primes = "'"
    while base + primes in own or base + primes in taken.values():
        primes += "'"
    return base + primes


def renamed(text: str, names: Mapping[str, str]) -> str:
    """The text with its names replaced, and nothing else."""
    tokens = tokenize(text, load().terminals, Problems(Source("fuzz", text)))
    out, at = [], 0
    for token in tokens:
        if token.type == "NAME" and token.text in names:
            out += [text[at : token.start], names[token.text]]
            at = token.end
    return "".join([*out, text[at:]])
