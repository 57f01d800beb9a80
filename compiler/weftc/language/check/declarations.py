"""Token sets, inputs, random fields and state: what each field holds, on which tokens, and how it starts."""

from __future__ import annotations

from weftc.core import syntax as ast
from weftc.core import vocabulary
from weftc.core.types import FieldType, Role
from weftc.core.words import listed, plural, written
from weftc.language.check.equations import defined, fits, fixed_columns, shaped, stored
from weftc.language.check.expressions import Typing
from weftc.language.check.params import check_bound
from weftc.language.check.problems import Problems

PAIR_KINDS = ("onehot", "simplex", "real")


def declare(typing: Typing) -> dict[str, FieldType]:
    """The types of all declared fields that make sense, in the order inputs, random, state."""
    names = typing.names
    fields: dict[str, FieldType] = {}
    tables: tuple[tuple[Role, dict[str, ast.Field]], ...] = (
        ("input", names.inputs),
        ("random", names.random),
        ("state", names.state),
    )
    for role, table in tables:
        for name, declared in table.items():
            found = _field(typing, role, declared)
            if found is not None:
                fields[name] = found
    return fields


def _field(typing: Typing, role: Role, declared: ast.Field) -> FieldType | None:
    problems, names, target, kind = typing.problems, typing.names, declared.target, declared.type.kind
    assert kind != "matrix", "the parser spells matrices out"
    name = target.name
    if not shaped(typing, target, "field", ": ...; a constant is a `param`"):
        return None
    if not all([typing.index(i, target.span) for i in target.indices]):
        return None
    sound = [
        _kind_fits(role, declared, problems),
        check_bound(declared.bound, problems),
        _bound_fits(declared, problems),
        fixed_columns(typing, target),
    ]
    if not all(sound):
        return None
    homes = [names.index[i] for i in target.indices]
    low = declared.bound.low if declared.bound is not None else None
    share = kind in ("onehot", "simplex", "uniform")
    positive = low is not None and (low[0] > 0 or (low[0] == 0 and low[1]))
    nonnegative = share or (low is not None and low[0] >= 0)
    if role == "state":  # as strong as its start; `starts` weakens it
        positive = nonnegative = True
    if declared.type.width is not None:
        positive = nonnegative = False
    return FieldType(
        name,
        role,
        target.indices,
        homes[0],
        homes[1] if len(homes) == 2 else None,
        declared.type.width,
        kind,
        declared.bound,
        positive,
        nonnegative,
        declared.type.symbols,
    )


def _kind_fits(role: Role, declared: ast.Field, problems: Problems) -> bool:
    """Whether the type is one this section and this number of indices allow."""
    type_, target = declared.type, declared.target
    pair, noise = len(target.indices) == 2, type_.kind in vocabulary.NOISES
    if role == "random" and not noise:
        problems.add(
            "C272",
            type_.span,
            f"{target.name} is random, so its type says how it is drawn",
            "",
            f"one of: {listed(vocabulary.NOISES)}",
        )
        return False
    if role != "random" and noise:
        problems.add(
            "C273",
            type_.span,
            f"{type_.kind} noise is declared under `random`",
            "",
            f"random  {written(target.name, target.indices)} : {type_.kind}",
        )
        return False
    if noise:
        return True
    if pair and type_.kind not in PAIR_KINDS:
        what = "a vector" if type_.width is not None else "R"
        problems.add(
            "C275",
            type_.span,
            "a pair field holds one number per pair of tokens",
            f"not {what}" if what == "a vector" else "",
            "its type is onehot (a single 1 per row), simplex (weights that sum to one) or real (any numbers)",
        )
        return False
    if not pair and type_.kind in PAIR_KINDS:
        problems.add(
            "C276",
            type_.span,
            f"{type_.kind} is the type of a pair field",
            f"{target.name} has {plural(len(target.indices), 'index')}",
            f"write R for a number per token, or give it a second index: {target.name}[{target.indices[0]},j]",
        )
        return False
    return True


def _bound_fits(declared: ast.Field, problems: Problems) -> bool:
    if declared.bound is None or declared.type.kind in ("number", "real"):
        return True
    problems.add(
        "C277",
        declared.bound.span,
        "only numbers have a range",
        f"{declared.target.name} is {'a vector' if declared.type.width is not None else declared.type.kind}",
        "for vectors of length one write `: unit R^d`" if declared.type.width is not None else "",
    )
    return False


def starts(typing: Typing, fields: dict[str, FieldType]) -> None:
    """Types the start of every state field; a field is no stronger than what it starts with."""
    typing.move("start")
    weakened = {}
    for name, declared in typing.names.state.items():
        known, start = fields.get(name), declared.start
        assert start is not None
        found = typing.of(start, frozenset(declared.target.indices)) if known or declared.target.indices else None
        if found is None or known is None:
            continue
        if defined(typing, found, None) and fits(typing, known, declared.target, start, found):
            weakened[name] = stored(typing, known, declared.target, start, found)
    typing.move("layer")
    typing.knows(weakened)
