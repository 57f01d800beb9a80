"""A spec -> specs a little simpler: without a step, an equation, a clause, a declaration, or with less to compute.

Every one is strictly smaller, so that taking the first that still fails comes to an end. Whether they mean something is
left to the checker.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any, TypeVar

from weftc.core.source import NOWHERE
from weftc.core.syntax import (
    Binary,
    Call,
    Else,
    Inner,
    Neg,
    Norm,
    Num,
    Percent,
    Power,
    Reduce,
    Ref,
    Spec,
    Square,
    Step,
    Ties,
    Weigh,
    walk,
)

Item = TypeVar("Item")
EXPRESSIONS = (Num, Ref, Neg, Binary, Power, Norm, Square, Inner, Call, Percent, Else, Weigh, Reduce)


def simpler(spec: Spec) -> Iterator[Spec]:
    """Specs that have a little less, those with much less first."""
    spec = replace(spec, examples=())
    for steps in _without_one(spec.steps):
        yield _shown(replace(spec, steps=steps))
    for outputs in _without_one(spec.outputs):
        yield replace(spec, outputs=outputs)
    if spec.objective is not None:
        yield replace(spec, objective=None)
    for at, step in enumerate(spec.steps):
        for equations in _without_one(step.equations):
            yield _shown(replace(spec, steps=_set(spec.steps, at, Step(NOWHERE, equations))))
    for section in ("lets", "random", "state", "inputs", "params"):
        for left in _without_one(getattr(spec, section), least=0):
            yield _replaced(spec, section, left)
    yield from _without_sets(spec)
    for at, step in enumerate(spec.steps):
        for place, equation in enumerate(step.equations):
            for body in smaller(equation.body):
                changed = _set(step.equations, place, replace(equation, body=body))
                yield replace(spec, steps=_set(spec.steps, at, Step(NOWHERE, changed)))
    for section in ("lets", "outputs"):
        for at, one in enumerate(getattr(spec, section)):
            for body in smaller(one.body):
                yield _replaced(spec, section, _set(getattr(spec, section), at, replace(one, body=body)))
    if spec.objective is not None:
        yield from (replace(spec, objective=body) for body in smaller(spec.objective))
    for at, field in enumerate(spec.inputs):
        if field.bound is not None or field.init is not None:
            yield replace(spec, inputs=_set(spec.inputs, at, replace(field, bound=None, init=None)))


def _shown(spec: Spec) -> Spec:
    """The spec without outputs of fields that nothing writes any more."""
    known = {e.target.name for step in spec.steps for e in step.equations}
    known |= {f.target.name for f in (*spec.inputs, *spec.state)}
    kept = tuple(o for o in spec.outputs if o.target.indices or (isinstance(o.body, Ref) and o.body.name in known))
    return replace(spec, outputs=kept or spec.outputs)


def _without_one(items: tuple[Item, ...], least: int = 1) -> Iterator[tuple[Item, ...]]:
    if len(items) > least:
        yield from (items[:at] + items[at + 1 :] for at in range(len(items)))


def _without_sets(spec: Spec) -> Iterator[Spec]:
    """The spec without a token set and everything that lives on it."""
    for one in spec.tokens if len(spec.tokens) > 1 else ():

        def lives(field: Any, gone: tuple[str, ...] = one.indices) -> bool:
            return not set(field.target.indices) & set(gone)

        yield replace(
            spec,
            tokens=tuple(t for t in spec.tokens if t is not one),
            inputs=tuple(f for f in spec.inputs if lives(f)),
            random=tuple(f for f in spec.random if lives(f)),
            state=tuple(f for f in spec.state if lives(f)),
            lets=tuple(f for f in spec.lets if lives(f)),
        )


def _replaced(spec: Spec, section: str, items: Any) -> Spec:
    changed: dict[str, Any] = {section: items}
    return replace(spec, **changed)


def _set(items: tuple[Item, ...], at: int, item: Item) -> tuple[Item, ...]:
    return (*items[:at], item, *items[at + 1 :])


def smaller(node: Any) -> Iterator[Any]:
    """Expressions with fewer nodes: a part instead of the whole, a clause less, 1 instead of a number."""
    yield from _own(node)
    for one in fields(node):
        value = getattr(node, one.name)
        if isinstance(value, tuple):
            for at, part in enumerate(value):
                if hasattr(part, "span"):
                    yield from (replace(node, **{one.name: _set(value, at, less)}) for less in smaller(part))
        elif hasattr(value, "span"):
            fixed = type(value) if one.name in ("by", "noise", "field", "ties") else object
            yield from (replace(node, **{one.name: less}) for less in smaller(value) if isinstance(less, fixed))


def _own(node: Any) -> Iterator[Any]:
    if isinstance(node, Weigh | Reduce):
        yield from (replace(node, where=left) for left in _without_one(node.where, least=0))
    if isinstance(node, Weigh) and node.ties is not None:
        yield replace(node, ties=None)
    if isinstance(node, Reduce) and node.weighted is not None:
        yield replace(node, weighted=None)
    if isinstance(node, Reduce) and node.by is not None:
        yield replace(node, by=None)
    if not isinstance(node, EXPRESSIONS) or isinstance(node, Num | Percent):
        return
    # a reference has no parts; anything else counts more nodes than each of its parts
    for one in fields(node):
        value = getattr(node, one.name)
        if isinstance(value, EXPRESSIONS) and not isinstance(value, Percent | Ties):
            yield value
    if not isinstance(node, Ref) or node.indices:
        yield Num(NOWHERE, 1.0)


def size(spec: Spec) -> int:
    """How many nodes a spec has."""
    bodies = [e.body for step in spec.steps for e in step.equations] + [let.body for let in spec.lets]
    bodies += [o.body for o in spec.outputs] + ([spec.objective] if spec.objective is not None else [])
    return sum(1 for body in bodies for _ in walk(body))
