"""Token sets, inputs, random fields and state: what each field holds, on which tokens, and how it starts."""

from __future__ import annotations

from weft import syntax as ast
from weft.check_equations import defined, fits, open_columns, stored
from weft.check_expressions import Typing
from weft.check_names import Names
from weft.check_params import check_bound
from weft.problems import Problems
from weft.types import FieldType, Role
from weft.words import did_you_mean, listed, plural, width_words, written

PAIR_KINDS = ("onehot", "simplex", "real")


def declare(spec: ast.Spec, names: Names, problems: Problems) -> dict[str, FieldType]:
    """The types of all declared fields that make sense, in the order inputs, random, state."""
    for group in names.homes.values():
        if isinstance(group.size, int) and group.size < 1:
            problems.add("C271", group.span, f"{group.name} needs at least one token", f"its size is {group.size}")
    typing = Typing(names, problems)
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
    for declared in names.inputs.values():
        if declared.init is not None:
            _init(declared, declared.init, names, fields, problems)
    _sizes_known(names, fields, problems)
    return fields


def _field(typing: Typing, role: Role, declared: ast.Field) -> FieldType | None:
    problems, names, target, kind = typing.problems, typing.names, declared.target, declared.type.kind
    name = target.name
    if not target.indices:
        problems.add(
            "C282",
            target.span,
            f"{name} needs an index: which tokens hold it?",
            "",
            f"as in {name}[{next(iter(names.index), 'i')}] : ...; a constant is a `param`",
        )
        return None
    if len(target.indices) > 2:
        problems.add(
            "C283",
            target.span,
            "a field has one index or two",
            f"{name} has {len(target.indices)}",
            "attention relates two tokens at a time",
        )
        return None
    if not all([typing.index(i, target.span) for i in target.indices]):
        return None
    if len(set(target.indices)) < len(target.indices):
        problems.add(
            "C284",
            target.span,
            "the two indices of a pair field must differ",
            "",
            f"declare a second index over {names.index[target.indices[0]]}",
        )
        return None
    sound = [
        _kind_fits(role, declared, problems),
        check_bound(declared.bound, problems),
        _bound_fits(declared, problems),
        open_columns(typing, target),
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
    )


def _kind_fits(role: Role, declared: ast.Field, problems: Problems) -> bool:
    """Whether the type is one this section and this number of indices allow."""
    type_, target = declared.type, declared.target
    pair, noise = len(target.indices) == 2, type_.kind in ast.NOISES
    if role == "random" and not noise:
        problems.add(
            "C272",
            type_.span,
            f"{target.name} is random, so its type says how it is drawn",
            "",
            f"one of: {listed(ast.NOISES)}",
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
    if isinstance(type_.width, int) and type_.width < 1:
        problems.add("C274", type_.span, "a vector has at least one coordinate", f"R^{type_.width} has none")
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


# ---- how inputs start ------------------------------------------------------------------------------------------------


def _init(declared: ast.Field, init: ast.Init, names: Names, fields: dict[str, FieldType], problems: Problems) -> None:
    name = declared.target.name
    ours = fields.get(name)
    if init.kind not in ast.INITIALISERS:
        problems.add(
            "C300",
            problems.spot(init.span, init.kind),
            f"'{init.kind}' is not a way to start",
            did_you_mean(init.kind, ast.INITIALISERS),
            f"ways to start: {listed(ast.INITIALISERS)}",
        )
        return
    if init.of is None:
        problems.add(
            "C301",
            init.span,
            f"init {init.kind} needs the input to start from",
            "",
            f"as in init {init.kind}({next((n for n in names.inputs if n != name), 'x')})",
        )
        return
    spot = problems.spot(init.span, init.of)
    if init.of not in names.inputs:
        what = names.what(init.of)
        others = [n for n in names.inputs if n != name]
        problems.add(
            "C302",
            spot,
            f"init {init.kind} starts from an input, but {init.of} is {what}" if what else f"unknown input {init.of}",
            "" if what else did_you_mean(init.of, others),
            f"inputs: {listed(others)}" if others else "",
        )
        return
    if init.of == name or names.inputs[init.of].init is not None:
        problems.add(
            "C303",
            spot,
            f"{name} cannot start from {init.of}",
            f"{init.of} has no start of its own" if init.of == name else f"{init.of} is itself started by `init`",
            "start from an input that the user always gives",
        )
        return
    theirs = fields.get(init.of)
    if ours is not None and theirs is not None:
        _init_types(ours, theirs, init, problems)


def _init_types(ours: FieldType, theirs: FieldType, init: ast.Init, problems: Problems) -> None:
    spot = problems.spot(init.span, theirs.name)
    if ours.is_pair or theirs.is_pair or (init.kind != "copy" and (ours.width is None or theirs.width is None)):
        guilty = ours if ours.is_pair or (ours.width is None and not theirs.is_pair) else theirs
        what = "a pair field" if guilty.is_pair else "a number per token"
        problems.add(
            "C304",
            init.span,
            f"init {init.kind} picks vectors",
            f"{guilty.name} is {what}",
            "give this input yourself, or declare it under `state` with a start",
        )
    elif ours.width != theirs.width:
        problems.add(
            "C305",
            spot,
            f"{ours.name} cannot start from {theirs.name}: their widths differ",
            f"{ours.name} is {width_words(ours.width)}, {theirs.name} is {width_words(theirs.width)}",
        )
    elif ours.kind == "unit" and theirs.kind != "unit":
        problems.add(
            "C306",
            spot,
            f"{ours.name} must have length one, but {theirs.name} need not",
            f"declare {theirs.name} as unit R^{theirs.width}",
        )


def _sizes_known(names: Names, fields: dict[str, FieldType], problems: Problems) -> None:
    """Every open set needs an input that says how many tokens it has."""
    for home, size in names.sets.items():
        if size is not None:
            continue
        own = [d for d in names.inputs.values() if d.target.indices and names.index.get(d.target.indices[0]) == home]
        if any(d.init is None or d.init.kind == "copy" or d.init.kind not in ast.INITIALISERS for d in own):
            continue
        group = names.homes[home]
        span = problems.spot(group.span, home)
        if own:
            first = own[0]
            assert first.init is not None
            problems.add(
                "C307",
                span,
                f"nothing says how many {home} there are",
                f"init {first.init.kind} does not know how many to make",
                f"give the set a size ({group.indices[0]} in {home} : k), or start {first.target.name} by init copy(...)",
            )
        elif not _sized_elsewhere(home, names):
            problems.add(
                "C308",
                span,
                f"nothing says how many {home} there are",
                "no input lives on this set",
                f"declare an input on it (x[{group.indices[0]}] : R^d), or give it a size ({group.indices[0]} in {home} : k)",
            )


def _sized_elsewhere(home: str, names: Names) -> bool:
    """Whether a faulty input declaration is already to blame for a set without inputs."""
    return any(not set(d.target.indices) <= set(names.index) for d in names.inputs.values())


def starts(typing: Typing, fields: dict[str, FieldType]) -> None:
    """Types the start of every state field; a field is no stronger than what it starts with."""
    typing.place = "start"
    weakened = {}
    for name, declared in typing.names.state.items():
        known, start = fields.get(name), declared.start
        assert start is not None
        found = typing.of(start, frozenset(declared.target.indices)) if known or declared.target.indices else None
        if found is None or known is None:
            continue
        if defined(typing, found, None) and fits(typing, known, declared.target, start, found):
            weakened[name] = stored(typing, known, declared.target, start, found)
    typing.place = "layer"
    typing.knows(weakened)
