"""How inputs start when the user gives none, and whether every open set gets to know its size."""

from __future__ import annotations

from weftc.core import syntax as ast
from weftc.core.types import FieldType
from weftc.core.vocabulary import DRAWN, INITIALISERS
from weftc.core.words import did_you_mean, listed, width_words
from weftc.language.check.names import Names
from weftc.language.check.problems import Problems


def inits(names: Names, fields: dict[str, FieldType], problems: Problems) -> None:
    """Checks every `init`, and that something says how many tokens each open set has."""
    for declared in names.inputs.values():
        if declared.init is not None:
            _init(declared, declared.init, names, fields, problems)
    for home, size in names.sets.items():
        if size is None:
            _size_known(home, names, problems)


def _init(declared: ast.Field, init: ast.Init, names: Names, fields: dict[str, FieldType], problems: Problems) -> None:
    name, source = declared.target.name, init.of
    others = [other for other in names.inputs if other != name]
    if init.kind not in INITIALISERS:
        label, known = (
            did_you_mean(init.kind, INITIALISERS),
            f"ways to start: {listed(INITIALISERS)}",
        )
        problems.add("C300", problems.spot(init.span, init.kind), f"'{init.kind}' is not a way to start", label, known)
    elif source is None:
        how = f"as in init {init.kind}({next(iter(others), 'x')})"
        problems.add("C301", init.span, f"init {init.kind} needs the input to start from", "", how)
    elif source not in names.inputs:
        what = names.what(source)
        message = f"unknown input {source}"
        if what:
            message = f"init {init.kind} starts from an input, but {source} is {what}"
        label = "" if what else did_you_mean(source, others)
        known = f"inputs: {listed(others)}" if others else ""
        problems.add("C302", problems.spot(init.span, source), message, label, known)
    elif source == name or names.inputs[source].init is not None:
        label = "that is itself" if source == name else f"{source} is itself started by `init`"
        how = "start from an input that the user always gives"
        problems.add("C303", problems.spot(init.span, source), f"{name} cannot start from {source}", label, how)
    elif name in fields and source in fields:
        _types_fit(fields[name], fields[source], init, problems)


def _types_fit(ours: FieldType, theirs: FieldType, init: ast.Init, problems: Problems) -> None:
    spot = problems.spot(init.span, theirs.name)
    pairs = [field for field in (ours, theirs) if field.is_pair]
    numbers = [field for field in (ours, theirs) if field.width is None and init.kind != "copy"]
    if pairs or numbers:
        label = f"{pairs[0].name} is a pair field" if pairs else f"{numbers[0].name} is a number per token"
        how = "give this input yourself, or declare it under `state` with a start"
        problems.add("C304", init.span, f"init {init.kind} picks vectors", label, how)
    elif ours.width != theirs.width:
        label = f"{ours.name} is {width_words(ours.width)}, {theirs.name} is {width_words(theirs.width)}"
        problems.add("C305", spot, f"{ours.name} cannot start from {theirs.name}: their widths differ", label)
    elif ours.kind == "unit" and theirs.kind != "unit":
        message = f"{ours.name} must have length one, but {theirs.name} need not"
        problems.add("C306", spot, message, f"declare {theirs.name} as unit R^{theirs.width}")


def _size_known(home: str, names: Names, problems: Problems) -> None:
    """Reports an open set that no input gives a size: one without `init`, or a copy of one."""
    if any(not d.target.indices or not set(d.target.indices) <= names.index.keys() for d in names.inputs.values()):
        return  # a faulty declaration may be the one; it is reported
    own = [d for d in names.inputs.values() if names.index[d.target.indices[0]] == home]
    if any(d.init is None or d.init.kind not in {*DRAWN, "first"} for d in own):
        return
    group = names.homes[home]
    index, fixed = group.indices[0], f"give the set a size ({group.indices[0]} in {home} : k)"
    if own:
        assert own[0].init is not None
        label = f"init {own[0].init.kind} does not know how many to make"
        how = f"{fixed}, or start {own[0].target.name} by init copy(...)"
    else:
        label, how = "no input lives on this set", f"declare an input on it (x[{index}] : R^d), or {fixed}"
    problems.add("C307", problems.spot(group.span, home), f"nothing says how many {home} there are", label, how)
