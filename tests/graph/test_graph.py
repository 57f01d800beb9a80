"""The graph and its passes: rules that always hold, worked examples, and programs that do not depend on names."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weftc
from agreement import INVENTIONS, default_dims, invention
from weftc.cli import main
from weftc.core.errors import InputError, SpecError
from weftc.core.source import Span
from weftc.core.styles import CHOICES, Styles
from weftc.core.types import Checked
from weftc.core.unparse import written as spec_text
from weftc.emit.cost import program_cost
from weftc.files.locate import names
from weftc.fuzz.specs import draw
from weftc.graph import build
from weftc.graph.build import build_graph
from weftc.graph.graph import Graph, Nodes, Root
from weftc.graph.node import Axis, FieldAt, NodeType
from weftc.graph.text import difference, written
from weftc.graph.verify import BrokenGraph, verify
from weftc.normal.form import NormalForm
from weftc.normal.slots import Attended, label, show_form
from weftc.passes import allocate, finite_temperature, null_tokens, schedule
from weftc.passes.bind import bind
from weftc.passes.lengths import lengths
from weftc.passes.pipeline import GRAPH_PASSES, Goal, graphs, normal_forms
from weftc_runtime.format.checkpoint import Checkpoint
from weftc_runtime.format.program import Attend

HERE = Path(__file__).parents[1]
SPECS = names("")
NAMES = sorted(path.stem for path in INVENTIONS.glob("*.weft"))
CONSTRUCTS = {path.stem: path for path in sorted((HERE / "constructs").glob("*.weft"))}
EVERY = [*SPECS, *(f"invention {name}" for name in NAMES), *(f"construct {name}" for name in CONSTRUCTS)]


def checked_of(name: str) -> Checked:
    if name.startswith("construct "):
        return weftc.check(CONSTRUCTS[name.removeprefix("construct ")])
    return invention(name.removeprefix("invention ")) if name.startswith("invention ") else weftc.check(name)


# ---- rules -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EVERY)
def test_every_pass_leaves_a_graph_that_keeps_the_rules(name: str) -> None:
    checked = checked_of(name)
    for graph in graphs(checked, Goal(default_dims(checked), {}, Styles())).values():
        verify(graph)


def test_every_pass_leaves_fuzzed_graphs_that_keep_the_rules() -> None:
    seen = 0
    for number in range(40):
        drawn = draw(14, number)
        if compiled(drawn.checked, drawn.dims, {}) is not None:
            seen += 1
            for graph in graphs(drawn.checked, Goal(drawn.dims, {}, Styles())).values():
                verify(graph)
    assert seen > 20


SIMPLE = """algorithm t tokens i in points, j in cs : k inputs x[i] : R^d, c[j] : R^d
layer y[i,j] = argmin[j] |x[i] - c[j]| outputs y objective sum[i] min[j] sqrt(|x[i] - c[j]|^2)"""


def broken(change: Callable[[Graph, Nodes], Graph]) -> str:
    graph = build_graph(weftc.check(SIMPLE))
    verify(graph)
    with pytest.raises(BrokenGraph) as caught:
        verify(change(graph, Nodes(graph.nodes)))
    return str(caught.value)


def with_store(graph: Graph, root: Root) -> Graph:
    return replace(graph, steps=((root,),))


def test_the_verifier_finds_what_breaks_the_rules() -> None:
    def twice(graph: Graph, nodes: Nodes) -> Graph:
        (root,) = graph.steps[0]
        return replace(graph, steps=((root, root),))

    def stale(graph: Graph, nodes: Nodes) -> Graph:
        (root,) = graph.steps[0]
        read = next(n for n in graph.nodes if n.op == "read" and n.label == "c")
        old = nodes.add("store", (read,), FieldAt(1, 1), read.shape, label="c")
        again = nodes.add("store", (read,), FieldAt(1, 2), read.shape, label="c")
        axes = read.shape.axes
        return replace(graph, steps=((root, Root(old, {}, axes[0], axes)), (Root(again, {}, axes[0], axes),)))

    def elsewhere(graph: Graph, nodes: Nodes) -> Graph:
        (root,) = graph.steps[0]
        x = next(n for n in graph.declared if n.label == "x")
        wrong = nodes.add("read", (x,), (Axis(1, 0, "cs"),), NodeType((Axis(1, 0, "cs"),), "d"))
        return with_store(graph, replace(root, node=nodes.add("store", (wrong,), FieldAt(2, 1), root.node.shape)))

    def coordinates(graph: Graph, nodes: Nodes) -> Graph:
        (root,) = graph.steps[0]
        x = next(n for n in graph.declared if n.label == "x")
        points = root.node.shape.axes[0]
        wrong = nodes.add("read", (x,), (points, Axis(1, 0, "cs")), NodeType((points, Axis(1, 0, "cs"))))
        return with_store(graph, replace(root, node=nodes.add("store", (wrong,), FieldAt(2, 1), root.node.shape)))

    def undefined(graph: Graph, nodes: Nodes) -> Graph:
        (root,) = graph.steps[0]
        body = root.node.operands[0]
        shape = replace(body.shape, defined=False)
        lacking = nodes.add("function", (body,), "log", shape)
        return with_store(graph, replace(root, node=nodes.add("store", (lacking,), FieldAt(2, 1), root.node.shape)))

    def left_over(graph: Graph, nodes: Nodes) -> Graph:
        (root,) = graph.steps[0]
        return with_store(graph, replace(root, axes=root.axes[:1]))

    assert "stored twice" in broken(twice)
    assert "reads c of another step" in broken(stale)
    assert "tokens of other sets" in broken(elsewhere)
    assert "coordinates that its field has not" in broken(coordinates)
    assert "may lack a value" in broken(undefined)
    assert "tokens that it is not for" in broken(left_over)


# ---- worked examples -------------------------------------------------------------------------------------------------


EXAMPLES = {"build": build, **{name: import_module(f"weftc.passes.{name}") for name in GRAPH_PASSES}}


def example(module: Any) -> dict[str, list[str]]:
    """The worked example of a pass: `spec`, `before` and `after`, as its docstring has them."""
    out: dict[str, list[str]] = {}
    key = ""
    for line in module.__doc__.splitlines():
        word, rest = line[:10].strip(), line[10:]
        key = word if word in ("spec", "before", "after") else key
        if key and rest:
            out.setdefault(key, []).append(rest)
    return out


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_pass_does_what_its_docstring_says(name: str) -> None:
    shown = example(EXAMPLES[name])
    checked = weftc.check("algorithm t " + shown["spec"][0])
    made = graphs(checked, Goal({n: 3 if n == "k" else 2 for n in checked.dims}, {}, Styles()))
    order = list(made)
    after = written(made[name], types=False).splitlines()
    assert [line for line in after if line in shown["after"]] == shown["after"]
    if name != "build":
        before = written(made[order[order.index(name) - 1]], types=False).splitlines()
        assert [line for line in before if line in shown["before"]] == shown["before"]
        assert before != after


def words(lines: Iterable[str]) -> list[str]:
    """Lines without what only makes them line up."""
    return [" ".join(line.split()) for line in lines if line.strip()]


def normal_example(module: Any, styles: Styles) -> tuple[dict[str, list[str]], dict[str, NormalForm]]:
    """The example of a pass behind the graph, and the normal forms of its spec."""
    shown = example(module)
    checked = weftc.check("algorithm t " + shown["spec"][0])
    goal = Goal(dict.fromkeys(checked.dims, 3), {}, styles)
    *_, graph = graphs(checked, goal).values()
    return {key: words(lines) for key, lines in shown.items()}, normal_forms(graph, goal)


def test_finite_temperature_does_what_its_docstring_says() -> None:
    shown = example(finite_temperature)
    checked = weftc.check("algorithm t " + shown["spec"][0])
    for key, found in (("before", checked), ("after", finite_temperature.tempered(checked, 50.0))):
        assert set(shown[key]) <= set(words(spec_text(found.spec).splitlines()))


def test_null_tokens_do_what_their_docstring_says() -> None:
    shown, made = normal_example(null_tokens, Styles(scores="dot", null="token"))
    for key, normal in zip(("before", "after"), made.values(), strict=True):
        lines = words(str(normal).splitlines())
        assert shown[key] == [line for line in lines if line.split()[0] in ("head", "score", "value", "self")]


def test_the_schedule_is_what_its_docstring_says() -> None:
    shown, made = normal_example(schedule, Styles())
    (step,) = made["normal_form"].layer
    (attended,) = (slot for slot in step.local if isinstance(slot.content, Attended))
    (block,) = schedule.schedule(step)
    assert isinstance(block, schedule.AttentionBlock)
    (run,) = block.heads
    before = {attended: attended.content.value}  # type: ignore[union-attr]
    after = {slot: brought.value for slot, brought in run.brings.items()}
    names = {attended: "~1"}
    for key, brings, sets in (("before", before, dict(step.commit)), ("after", after, block.sets)):
        values = [f"{label(slot, names)} += {show_form(form or ())}" for slot, form in brings.items()]
        stored = [f"set {label(slot)} := {show_form(form, names)}" for slot, form in sets.items()]
        assert shown[key] == [" ".join([f"head {run.head.query} <- {run.head.keys}", *values, *stored])]


def test_the_allocation_is_what_its_docstring_says() -> None:
    shown, made = normal_example(allocate, Styles())
    _, layer, _ = allocate.allocate(made["normal_form"])
    for key, called in (("before", label), ("after", None)):
        steps = [[called(s) if called else r.name for s, r in step.registers.items()] for step in layer]
        assert shown[key] == [" ".join(f"step {n}: {' and '.join(names)}" for n, names in enumerate(steps, start=1))]


def test_equal_lengths_are_one_node_once_they_are_lengths() -> None:
    text = """algorithm t tokens i in points inputs x[i] : R^d
layer a[i] = sqrt(|x[i]|^2) b[i] = |x[i]| outputs a, b"""
    graph = build_graph(weftc.check(text))
    assert [node.kind for node in graph.nodes].count("length") == 1
    kinds = [node.kind for node in lengths(graph).nodes]
    assert (kinds.count("length"), kinds.count("square"), kinds.count("sqrt")) == (1, 0, 0)
    assert "length" in difference(graph, lengths(graph))
    assert difference(graph, graph) == ""


def test_bind_puts_numbers_in() -> None:
    text = """algorithm t tokens i in points, j in cs : k inputs x[i] : R param tau = 90, rho = tau / count(cs)
layer a[i] = x[i] * tau + d * k * rho + count(points) outputs a""".replace("d * k", "k")
    graph = bind(build_graph(weftc.check(text)), {"k": 3}, {"tau": 7.0})
    assert {node.op for node in graph.nodes} & {"parameter", "dimension"} == set()
    assert [str(node.detail) for node in graph.nodes if node.op == "count"] == ["points"]
    assert sorted(node.value for node in graph.nodes if node.op == "const") == [3, 7]


# ---- names and order -------------------------------------------------------------------------------------------------


def renamed(node: Any, names: Mapping[str, str]) -> Any:
    """A part of a syntax tree with other names for everything that has one; spans and words of the language stay."""
    if isinstance(node, tuple):
        return tuple(renamed(part, names) for part in node)
    if not is_dataclass(node) or isinstance(node, Span | weftc.Source):
        return node
    new = {}
    for f in fields(node):
        value = getattr(node, f.name)
        named = f.name in ("name", "indices", "index", "set", "size", "width", "left", "right", "of")
        if named and isinstance(value, str):
            new[f.name] = names.get(value, value)
        elif named and isinstance(value, tuple):
            new[f.name] = tuple(names.get(part, part) for part in value)
        elif f.name not in ("kind", "op", "function", "rule", "doc"):
            new[f.name] = renamed(value, names)
    return replace(node, **new)


def backwards(checked: Checked) -> dict[str, str]:
    """New names for everything, in the opposite order of the alphabet, with a letter of Greek and a prime."""
    old = {*checked.sets, *checked.index, *checked.fields, *checked.lets, *checked.params, *checked.dims}
    old |= {output.target.name for output in checked.spec.outputs}
    return {name: f"ξ{900 - at}'" for at, name in enumerate(sorted(old))}


def plainly(made: Checkpoint, names: Mapping[str, str]) -> tuple[str, dict[str, list[Any]]]:
    """A program and its matrices as text and lists, under the old names."""

    def old(text: str) -> str:
        for name, new in names.items():
            text = text.replace(new, name)
        return text

    return old(repr(made.program)), {old(name): array.tolist() for name, array in made.tensors.items()}


def compiled(checked: Checked, dims: Mapping[str, int], styles: Mapping[str, str]) -> Checkpoint | None:
    try:
        return weftc.compile(checked, dims, **styles)  # type: ignore[arg-type]
    except (SpecError, InputError):
        return None


def assert_names_change_nothing(checked: Checked, dims: Mapping[str, int], styles: Mapping[str, str]) -> bool:
    names = backwards(checked)
    other = weftc.check(renamed(replace(checked.spec, examples=()), names))
    one = compiled(checked, dims, styles)
    two = compiled(other, {names[name]: size for name, size in dims.items()}, styles)
    assert (one is None) == (two is None)
    if one is None or two is None:
        return False
    (program, arrays), (program_, arrays_) = plainly(one, {}), plainly(two, names)
    assert program_.replace(f"name='{two.program.name}'", f"name='{one.program.name}'") == program
    assert arrays_ == arrays
    return True


@pytest.mark.parametrize("scores", CHOICES["scores"])
@pytest.mark.parametrize("name", EVERY)
def test_names_change_nothing(name: str, scores: str) -> None:
    checked = checked_of(name)
    assert assert_names_change_nothing(checked, default_dims(checked), {"scores": scores})


@cache
def drawn_many() -> list[Any]:
    return [draw(15, number) for number in range(60)]


def test_names_change_nothing_in_fuzzed_specs() -> None:
    same = [
        assert_names_change_nothing(d.checked, d.dims, {"scores": scores})
        for d in drawn_many()
        for scores in CHOICES["scores"]
    ]
    assert sum(same) > 50


def reordered(checked: Checked) -> Checked:
    """The same spec with the equations of every step in the opposite order."""
    steps = tuple(replace(step, equations=step.equations[::-1]) for step in checked.spec.steps)
    return weftc.check(replace(checked.spec, steps=steps, examples=()))


def summary(made: Checkpoint | None) -> object:
    """What does not depend on the order of columns: cost, slots (scratch is numbered), heads, feed-forwards."""
    if made is None:
        return None
    program = made.program
    slots = Counter((s.name, x.width, x.role, re.sub(r"~\d+", "~", x.name)) for s in program.streams for x in s.slots)
    parts = [(n, p) for n, s in enumerate((*program.prelude, *program.layer, *program.readout)) for p in s.sublayers]
    heads = Counter(
        (n, h.query, h.keys, h.weighting, len(h.masks), h.self_key is None, *weight(made, h.score, h.value))
        for n, p in parts
        if isinstance(p, Attend)
        for h in p.heads
    )
    maps = Counter((n, p.stream, p.function) for n, p in parts if not isinstance(p, Attend))
    return program_cost(program, made.tensors), slots, heads, maps


def weight(made: Checkpoint, score: Any, value: str) -> tuple[object, ...]:
    """How many numbers a head has, and what they add up to."""
    tensors = [made.tensors[t] for part in score.parts for t in (part.q, part.k)] + [made.tensors[value]]
    return tuple(sorted((np.count_nonzero(t), float(np.abs(t).sum())) for t in tensors))


@pytest.mark.parametrize("name", EVERY)
def test_the_order_of_equations_changes_nothing(name: str) -> None:
    checked = checked_of(name)
    dims = default_dims(checked)
    for scores in CHOICES["scores"]:
        one, two = compiled(checked, dims, {"scores": scores}), compiled(reordered(checked), dims, {"scores": scores})
        assert summary(one) == summary(two)


def test_the_order_of_equations_changes_nothing_in_fuzzed_specs() -> None:
    seen = 0
    for d in drawn_many():
        for scores in CHOICES["scores"] if any(len(step.equations) > 1 for step in d.checked.spec.steps) else ():
            made = summary(compiled(d.checked, d.dims, {"scores": scores}))
            assert made == summary(compiled(reordered(d.checked), d.dims, {"scores": scores})), d.text
            seen += made is not None
    assert seen > 10


# ---- the command -----------------------------------------------------------------------------------------------------


def inspected(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert main(["inspect", "trimmed_kmeans", "-D", "d=2", "-D", "k=3", *options]) == 0
    return capsys.readouterr().out


def test_inspect_shows_every_pass_what_it_changed_and_that_the_rules_hold(capsys: pytest.CaptureFixture[str]) -> None:
    assert "parameter  R" in inspected(capsys, "--after", "build")
    assert "parameter  R" not in inspected(capsys, "--after", "bind")
    changed = inspected(capsys, "--after", "bind", "--diff").splitlines()
    assert changed[:2] == ["--- build", "+++ bind"]
    assert any(line.startswith("-") and "parameter" in line for line in changed[2:])
    assert inspected(capsys, "--after", "lengths", "--diff") == "lengths changes nothing\n"
    assert "head centers <- points  top 90%" in inspected(capsys, "--after", "normal_form")
    rules = "the graph keeps its rules after build, bind, lengths, ranking, objective\n"
    assert inspected(capsys, "--check") == rules


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--after", "magic"], "the passes are build, bind"),
        (["--after", "bind", "--stage", "weights"], "shows the graph or the normal form"),
        (["--diff"], "--diff needs --after a pass"),
    ],
)
def test_inspect_refuses_what_makes_no_sense(options: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "lloyd", "-D", "d=2", "-D", "k=3", *options]) == 2
    assert said in capsys.readouterr().err


def test_compile_says_what_the_program_costs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "a.safetensors")
    assert main(["compile", "lloyd", "-D", "d=2", "-D", "k=3", "-o", out, "--json"]) == 0
    cost = json.loads(capsys.readouterr().out)["cost"]
    made = weftc.compile("lloyd", {"d": 2, "k": 3})
    assert cost == program_cost(made.program, made.tensors).as_data
    assert (cost["levels"], cost["heads"], cost["widths"]) == (2, 2, {"points": 7, "centers": 6})
    unrolled = weftc.compile("lloyd", {"d": 2, "k": 3}, layers=3, weights="unrolled")
    assert program_cost(unrolled.program, unrolled.tensors).heads == 2
