"""Algorithm graph -> attention normal form, root by root. All refusals are collected before they are reported.

store c := mean over points of x where y, else c     ->     head centers <- points  normalize, score 1
                                                              where <id(), y> - 1/2 > 0
                                                              value ~1 += x
                                                              self  only if nothing else, ~1 += c
                                                            set   centers.c := ~1
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from weftc.core.errors import Diagnostic, SpecError
from weftc.core.styles import Styles
from weftc.graph.build import HOMELESS
from weftc.graph.graph import Graph, Root
from weftc.graph.node import VERSIONS, Axis, Node, Reduction, Weighing
from weftc.graph.order import canonical
from weftc.normal.form import Identity, NormalForm, NormalStep, Pattern, is_leaf
from weftc.normal.slots import OBJECTIVE, Form, Leaf, Map, NormalSlot, SlotTable, form, just
from weftc.passes.context import Context, NoAttentionForm, slot_poly
from weftc.passes.expressions import factored, poly
from weftc.passes.heads import ANY, head_of, is_positive, linear, rows, total, typical
from weftc.passes.polynomial import Exp, PendingSum, Poly, Scalar, Weight, axes, thaw, weigh
from weftc.passes.spaces import Spaces
from weftc.passes.written_out import stacked, too_many

ONE_WEIGHTING = "an output over two open sets must be one weighting or one exp, times factors of its first token"
AS_PATTERN = "it is shown as an attention pattern; nothing else has one number per pair of open sets"


def normal_form(graph: Graph, dims: Mapping[str, int], styles: Styles) -> NormalForm:
    """The attention normal form of a bound graph; a `SpecError` names every equation that has none."""
    anywhere = Axis(0, HOMELESS, next(iter(graph.checked.sets)))
    order = canonical(graph)
    cx = Context(graph.checked, dims, styles, Spaces(graph), _logged(graph), order, SlotTable(), {}, anywhere)
    for node in sorted((n for n in graph.nodes if n.op in VERSIONS), key=order.__getitem__):
        cx.field(node.label)  # fields come first
    fields = tuple(cx.field(name) for name in graph.checked.fields)
    problems: list[Diagnostic] = []
    prelude = [_step(cx, graph.starts, problems)] if graph.starts else []
    layer = [_step(cx, step, problems) for step in graph.steps]
    readout = [_step(cx, shown, problems)] if (shown := [o for o in graph.outputs if o.axes]) else []
    place = None
    if graph.objective is not None:  # in a step of its own: outputs do not need it to have a value
        root = _housed(cx, graph.objective)
        assert root.home is not None
        readout.append(_step(cx, (root,), problems))
        place = cx.leaf(root.home.set, Leaf("output", OBJECTIVE)), root.node.detail == "total"
    if problems:
        raise SpecError(graph.checked.spec.source, list(dict.fromkeys(problems)))
    steps = tuple(prelude), tuple(layer), tuple(readout)
    ones = {stream: cx.one(stream) for stream in graph.checked.sets}
    made = NormalForm(graph, dims, styles, *steps, fields, ones, place, _identities(cx))
    return _centred(cx, _without_unread_logs(made))


@dataclass(frozen=True, slots=True)
class _Stored:
    """What one root adds to its step."""

    commit: tuple[tuple[NormalSlot, Form], ...] = ()
    pattern: Pattern | None = None


def _step(cx: Context, roots: tuple[Root, ...] | list[Root], problems: list[Diagnostic]) -> NormalStep:
    """One step: every right-hand side reads the old values, then the commit writes all targets."""
    commit: list[tuple[NormalSlot, Form]] = []
    equations, writes, patterns = [], [], []
    text = cx.checked.spec.source
    made = {root.node: _lowered(cx, root) for root in sorted(roots, key=lambda root: cx.order[root.node])}
    for root in roots:
        node, found = root.node, made[root.node]
        if isinstance(found, Diagnostic):
            problems.append(found)
            continue
        commit += found.commit
        patterns += [found.pattern] if found.pattern else []
        said = text.said(node.span)
        equations.append(f"objective {said}" if node.detail in ("objective", "total") else said)
        if node.op != "output":
            writes.append(found.commit[0][0])
    return NormalStep(tuple(commit), tuple(equations), tuple(writes), tuple(patterns))


def _lowered(cx: Context, root: Root) -> _Stored | Diagnostic:
    node = root.node
    assert root.home is not None
    try:
        return _root(replace(cx, home=root.home, names=root.names, span=node.span, noted=[]), root)
    except NoAttentionForm as refused:
        span = refused.span or node.operands[0].span
        return Diagnostic(refused.code, span, refused.message, "", refused.notes)


def _root(cx: Context, root: Root) -> _Stored:
    node, body, i = root.node, root.node.operands[0], cx.home
    p = factored(cx, poly(cx, body))
    width = p.width
    if len(root.axes) == 2:
        j = root.axes[1]
        if cx.tokens(j) is None:
            return _Stored(pattern=_pattern(cx, node.label, p, i, j))
        width = cx.tokens(j) or 0
        p = _rows(cx, body, p, i, j)
    commit = [(_target(cx, node, i, max(1, width)), linear(cx, p, i))]
    if node.op == "store" and node.label in cx.logged:
        log = cx.leaf(i.set, Leaf("log", node.label), width)
        commit.append((log, _logarithms(cx, body, i, root.axes[1])))
    return _Stored(tuple(commit))


def _rows(cx: Context, body: Node, p: Poly, i: Axis, j: Axis) -> Poly:
    """A pair expression as a vector over j on token i; written out if it relates more than the two."""
    try:
        made = rows(cx, p, i, j)
        linear(cx, made, i)
        return made
    except NoAttentionForm as refused:
        if not refused.crowded or too_many(cx, j):
            raise
        return slot_poly(stacked(cx, body, poly, i, j), i, cx.tokens(j) or 1)


def _target(cx: Context, node: Node, i: Axis, width: int) -> NormalSlot:
    if node.op != "output":
        return cx.field(node.label)
    return cx.leaf(i.set, Leaf("output", node.label or OBJECTIVE), width)


def _housed(cx: Context, root: Root) -> Root:
    """An objective that is no sum over tokens lands on every token of the smallest set."""
    if root.home is not None:
        return root
    home = min(cx.checked.sets, key=lambda s: cx.size(s) or 1 << 60)
    return replace(root, home=Axis(list(cx.checked.sets).index(home), HOMELESS, home))


def _pattern(cx: Context, name: str, p: Poly, i: Axis, j: Axis) -> Pattern:
    """An output over two open sets: the weights of a head, times factors of the first token."""
    if not any(isinstance(a, Weight | Exp) for a in p.atoms):  # the scores themselves
        return Pattern(name, head_of(cx, i, j, weigh("sum", p.frozen)), just(cx.one(i.set)))
    single = p.single
    weights = [a for a in p.atoms if isinstance(a, Weight | Exp)]
    if single is None or single[1] or len(weights) != 1 or dict(single[0])[weights[0]] != 1:
        raise NoAttentionForm(ONE_WEIGHTING, AS_PATTERN)
    weight = weights[0]
    rest = Poly.term((tuple(z for z in single[0] if z[0] != weight), None), single[2])
    if isinstance(weight, Weight) and weight.query != i:
        mine, first = cx.said([weight.query]), f"{name}[{cx.said([j])},{cx.said([i])}]"
        message = f"these weights belong to {mine}, so {mine} must be the first index of the output"
        raise NoAttentionForm(message, f"write {first}")
    of_key = [(a, n) for a, n in single[0] if axes(a) == {j}]
    if isinstance(weight, Exp) and of_key and all(is_positive(cx, Poly.atom(a)) for a, _ in of_key):
        body = thaw(weight.body)  # b[j] exp(S) = exp(S + log b[j])
        for a, n in of_key:
            assert isinstance(a, Scalar)
            slot = cx.function(j.set, "log", just(a.slot))
            body = body + Poly.atom(Scalar(slot, j)).scale(n)
        weight = Exp(body.frozen)
        rest = Poly.term((tuple(z for z in single[0] if axes(z[0]) == {i}), None), single[2])
    rule = weight.rule if isinstance(weight, Weight) else weigh("exp", weight.body)
    return Pattern(name, head_of(cx, i, j, rule), linear(cx, rest, i))


# ---- logarithms of softmax fields ------------------------------------------------------------------------------------


def _logarithms(cx: Context, body: Node, i: Axis, j: Axis) -> Form:
    """log y[i,j] = S - lse[j] S of y[i,j] = softmax[j] S: stays finite where y itself underflows."""
    (weight,) = poly(cx, body).atoms
    assert isinstance(weight, Weight)
    row = total(cx, PendingSum(i, j, weigh("sum", weight.rule.score), (), (cx.one_hot(j),)))
    lse = total(cx, PendingSum(i, j, weigh("lse", weight.rule.score)))
    whole, one = linear(cx, row, i), linear(cx, lse, i)  # one number, taken from every column
    return form([*whole, *((slot, -c) for slot, c in one)])


def _logged(graph: Graph) -> frozenset[str]:
    """Fields that always hold a plain softmax over their second axis and stand where weights are normalised."""
    stores: dict[str, list[Root]] = {}
    for root in (root for step in graph.steps for root in step):
        stores.setdefault(root.node.label, []).append(root)

    def plain(root: Root) -> bool:
        body = root.node.operands[0]
        how = body.detail
        soft = isinstance(how, Weighing) and how.kind == "softmax" and not body.parts("where")
        return soft and isinstance(how, Weighing) and how.axis == root.axes[-1]

    weights = [x for node in graph.nodes for x in _normalised(node)]
    read = {x.label for root in weights for x in _below(root) if x.op == "read"}
    fields = graph.checked.fields
    return frozenset(
        name
        for name, roots in stores.items()
        if name in read and fields[name].role == "computed" and fields[name].is_pair and all(map(plain, roots))
    )


def _normalised(node: Node) -> tuple[Node, ...]:
    """What a node divides by its sum over tokens."""
    if isinstance(node.detail, Reduction):
        return node.parts("weighted")
    normal = isinstance(node.detail, Weighing) and node.detail.kind == "normalize"
    return node.parts("score") if normal else ()


def _below(node: Node) -> list[Node]:
    """A node and what it reads, within one step."""
    if node.op == "read":
        return [node]
    return [node, *(y for x in node.operands for y in _below(x))]


def _without_unread_logs(normal: NormalForm) -> NormalForm:
    """Keeps the logarithms of a field only where something reads them."""
    read = {s for step in normal.steps for s in step.slots}

    def kept(step: NormalStep) -> NormalStep:
        return replace(step, commit=tuple((t, f) for t, f in step.commit if t in read or not is_leaf(t, "log")))

    return replace(normal, layer=tuple(map(kept, normal.layer)))


# ---- what styles add -------------------------------------------------------------------------------------------------


def _centred(cx: Context, normal: NormalForm) -> NormalForm:
    """What differences are centred on: once, before anything else, the same on every token of every stream."""
    commit = []
    for slot in normal.slots:
        if not is_leaf(slot, "centre"):
            continue
        assert isinstance(slot.content, Leaf)
        field = cx.checked.fields[slot.content.name]
        source = cx.field(field.name)
        there = Axis(_rank(cx, field.home), ANY, field.home)
        value = slot_poly(source, there, 0 if field.width is None else slot.width)
        here = Axis(_rank(cx, slot.stream), 0, slot.stream)
        commit.append((slot, linear(cx, typical(cx, value, here), here)))
    if not commit:
        return normal
    return replace(normal, prelude=(NormalStep(tuple(commit), ("(centre the data)",)), *normal.prelude))


def _rank(cx: Context, stream: str) -> int:
    return list(cx.checked.sets).index(stream)


def _identities(cx: Context) -> dict[str, Identity]:
    """erase=attention: tokens of fixed sets find themselves by their one-hot ids; others by their inputs, and where
    scores are dot products also by the squares of those."""
    out: dict[str, Identity] = {}
    for stream in cx.checked.sets if cx.styles.erase == "attention" else ():
        size = cx.size(stream)
        if size:
            out[stream] = Identity((cx.leaf(stream, Leaf("name"), size),))
            continue
        fields = [f for f in cx.checked.fields.values() if f.home == stream and f.role == "input" and not f.is_pair]
        slots = tuple(cx.field(f.name) for f in fields)
        if any(f.symbols for f in fields):  # symbols repeat: such tokens differ by where they stand
            slots = (cx.leaf(stream, Leaf("position")),)
        if cx.styles.scores == "dot" and slots:
            squares = tuple(cx.derive(stream, 1, Map("dot", s, s)) for s in slots)
            out[stream] = Identity(slots, squares, cx.one(stream))
        else:
            out[stream] = Identity(slots)
    return out
