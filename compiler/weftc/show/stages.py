"""Every stage of the pipeline as text: what `weftc inspect` prints."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from difflib import unified_diff
from typing import Any, Protocol

from weftc.compiling import at_temperature, settled
from weftc.core.source import Span, printable
from weftc.core.styles import Styles
from weftc.core.types import Checked
from weftc.graph.build import build_graph
from weftc.graph.graph import Graph
from weftc.graph.verify import verify
from weftc.language.bind import bind
from weftc.normal.form import NormalForm
from weftc.passes.pipeline import PASSES, Goal, graphs, lowered, normal_forms
from weftc.show.weights_text import Drawing, weighting_text
from weftc_runtime.format import program as ir
from weftc_runtime.format.checkpoint import Checkpoint


class Options(Protocol):
    """What the stages need to know of the command line."""

    @property
    def dims(self) -> Any: ...
    @property
    def params(self) -> Any: ...
    @property
    def styles(self) -> Any: ...
    @property
    def colour(self) -> bool: ...


def syntax(checked: Checked, options: Options) -> str:
    """The syntax tree, one construct a line."""
    spec = checked.spec
    out = [f"algorithm {spec.name}"]
    for name in ("tokens", "inputs", "random", "state", "params", "lets", "steps", "outputs", "objective", "examples"):
        value = getattr(spec, name)
        if value:
            out.append(name)
            out += ["  " + line for item in (value if isinstance(value, tuple) else (value,)) for line in _tree(item)]
    return "\n".join(out)


def _tree(node: Any) -> Iterator[str]:
    """A node and what is below it."""
    plain, below = [], []
    for f in fields(node):
        value = getattr(node, f.name)
        if isinstance(value, Span) or value is None or value == ():
            continue
        parts = value if isinstance(value, tuple) else (value,)
        if all(is_dataclass(p) for p in parts):
            below += list(parts)
        else:
            plain.append(printable(",".join(map(str, parts))))
    yield f"{type(node).__name__} {' '.join(plain)}".rstrip()
    for part in below:
        yield from ("  " + line for line in _tree(part))


def graph(checked: Checked, options: Options) -> str:
    """The algorithm graph: a number, the operation, the type and what each node reads."""
    return str(build_graph(checked))


def after(checked: Checked, options: Options, name: str, diff: bool) -> str:
    """The graph or normal form after a pass, or as `diff` what the pass changed."""
    compiled, goal = _goal(checked, options)
    made: dict[str, Graph | NormalForm] = {**graphs(compiled, goal)}
    if name not in made:
        made |= normal_forms(made[list(made)[-1]], goal)  # type: ignore[arg-type]
    if not diff:
        return str(made[name])
    before = PASSES[PASSES.index(name) - 1]
    lines = unified_diff(str(made[before]).splitlines(), str(made[name]).splitlines(), before, name, "", "", 2, "")
    return "\n".join(lines) or f"{name} changes nothing"


def check(checked: Checked, options: Options) -> str:
    """Says that the graph keeps its rules after every pass; raises if it does not."""
    made = graphs(*_goal(checked, options))
    for one in made.values():
        verify(one)
    return f"the graph keeps its rules after {', '.join(made)}"


def normal(checked: Checked, options: Options) -> str:
    """Attention normal form: heads, maps and commits over named slots."""
    return str(lowered(*_goal(checked, options)))


def _goal(checked: Checked, options: Options) -> tuple[Checked, Goal]:
    """What is compiled in the styles asked for, and for which sizes."""
    chosen = bind(checked, options.dims, options.params)
    styles = settled(Styles.read({name: str(value) for name, value in options.styles.items()}), chosen)
    return at_temperature(checked, styles), Goal(chosen.dims, chosen.params, styles)


def program(checkpoint: Checkpoint, options: Options) -> str:
    """The transformer program: streams with their slots, then every sub-layer."""
    out = []
    for stream in checkpoint.program.streams:
        size = "open" if stream.size is None else f"{stream.size} tokens"
        size += " and a null token" if stream.null else ""
        out.append(f"stream {stream.name} ({size}, width {stream.width})")
        out += [f"  {s.offset:>4}:{s.offset + s.width:<4} {s.role:<9} {s.name}" for s in stream.slots]
    for e in checkpoint.program.embedding:
        out.append(f"embed  {e.stream}.{e.slot} <- {_embedded(e)}")
    for place, step in checkpoint.program.places():
        out.append(f"step {place}")
        out += [f"  # {equation}" for equation in step.equations]
        for sublayer in step.sublayers:
            out += ["  " + line for line in _sublayer(sublayer)]
    for o in checkpoint.program.answers():
        again = f", evaluated again by layer.{o.again} at the end" if o.again is not None else ""
        out.append(f"output {o.name}: {o.kind} of {o.stream}{'.' + o.slot if o.slot else ''}{again}")
    out += [f"equals the spec when {condition.text}" for condition in checkpoint.program.conditions]
    return "\n".join(out)


def _embedded(e: ir.Embed) -> str:
    if e.kind == "null":
        number = {-1: f"1 / #{e.source}", 0: "1", 1: f"#{e.source}"}[e.power]
        return f"0, on the null token {number}"
    return f"{e.kind} {e.source}".rstrip()


def _sublayer(sublayer: ir.Sublayer) -> Iterator[str]:
    if isinstance(sublayer, ir.FFN):
        yield f"ffn    {sublayer.stream}.{', '.join(sublayer.writes)} := {sublayer.function}"
        return
    yield f"attend sets {', '.join(f'{s}.{t}' for s, t in sublayer.writes) or 'nothing'}"
    for head in sublayer.heads:
        yield f"  head {head.name}: {head.query} <- {head.keys}, {weighting_text(head.weighting)}{_extras(head)}"


def _extras(head: ir.Head) -> str:
    parts = [p.kind for p in head.score.parts]
    out = f", score {' + '.join(parts) or '0'}"
    if head.masks:
        out += f", {len(head.masks)} mask{'s' if len(head.masks) > 1 else ''}"
    if head.self_key:
        out += ", self key if nothing else" if head.self_key.row is None else ", null key"
    return out


def weights(checkpoint: Checkpoint, options: Options) -> str:
    """Every matrix of the file as a block matrix with slot names."""
    out: list[str] = []
    drawing = Drawing(checkpoint, options.colour)
    for place, step in checkpoint.program.places():
        for n, sublayer in enumerate(step.sublayers):
            out += drawing.sublayer(sublayer, f"{place}.{n}")
    for o in checkpoint.program.answers():
        out += drawing.output(o)
    return "\n".join(out)


def plan(checkpoint: Checkpoint, options: Options) -> str:
    """What the backends do: the linear one by its plan, the reference one with every matrix as it is."""
    from weftc_runtime import RunError, load
    from weftc_runtime.machines.planned import layers_at_a_time
    from weftc_runtime.plan.prepared import Prepared

    try:
        model = load(checkpoint)
        found = Prepared(model.plan(), {name: model.tensor(name).detach() for name in checkpoint.tensors})
        lines = (*str(found.plan).splitlines(), *f"layers: {layers_at_a_time(checkpoint.program, found)}".splitlines())
        out = ["backend planned", *(f"  {line}" for line in lines)]
    except RunError as error:
        out = [f"backend planned: not for this program; {error}"]
    out += ["backend reference: every matrix as it is, float64, one problem at a time"]
    for place, step in checkpoint.program.places():
        for n, sublayer in enumerate(step.sublayers):
            if isinstance(sublayer, ir.FFN):
                out.append(f"  {place}.{n}  dense feed-forward on {sublayer.stream}")
                continue
            for head in sublayer.heads:
                exact = head.weighting.kind in ir.HARD or bool(head.masks)
                how = "settled exactly where rounding could decide" if exact else "float64"
                out.append(f"  {place}.{n}  head {head.name}: all {head.query} x {head.keys} scores, {how}; exact sums")
    return "\n".join(out)


STAGES: dict[str, Callable[[Any, Any], str]] = {
    "syntax": syntax,
    "graph": graph,
    "normal": normal,
    "ir": program,
    "weights": weights,
    "plan": plan,
}
