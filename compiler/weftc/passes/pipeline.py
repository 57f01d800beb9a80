"""From a bound spec to the normal form: the passes in order. This is the table of contents of the compiler's core.

    spec      finite_temperature   choices become softmaxes (style hardmax=softmax); the result is a spec like any other
    graph     build                expressions become nodes, each computation once; `let`s are put in
              bind                 parameters, dimensions and sizes of fixed sets become numbers
              lengths              the root of a square is a length
              ranking              increasing functions around scores of which only the order counts are taken off
              objective            a sum over tokens is the total of a slot
    normal    normal_form          nodes become polynomials, and those become slots:
                expressions          one rule per operation: what a node is as a polynomial
                sums                 a sum over tokens: query factors, a head, the value of the key; three-token terms
                ratios               quotients of sums are normalised heads; others are reciprocals
                fallbacks            `else` is a self key, or a feed-forward that selects
                heads                sums become heads, pair expressions rows; differences are centred
                scores               a polynomial of two tokens is inner products and distances
                members              memberships as offsets in place of masks (style members=offset)
                spaces               which fields are centred on the same value
                cost                 which of several ways is taken
              null_tokens          null keys become tokens (style null=token)
    order     schedule             as few levels of attention as the data allow; the commit joins the last heads
              allocate             scratch that is never needed at the same time shares columns

What no root reads is not part of a graph or normal form: nothing is removed by hand. `emit` writes the matrices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from weftc.core.styles import Styles
from weftc.core.types import Checked
from weftc.graph.build import build_graph
from weftc.graph.graph import Graph
from weftc.normal.form import NormalForm
from weftc.passes.bind import bind
from weftc.passes.lengths import lengths
from weftc.passes.normal_form import normal_form
from weftc.passes.null_tokens import null_tokens
from weftc.passes.objective import objective
from weftc.passes.ranking import ranking


@dataclass(frozen=True, slots=True)
class Goal:
    """What a spec is compiled for."""

    dims: Mapping[str, int]
    params: Mapping[str, float]
    styles: Styles


GRAPH_PASSES: dict[str, Callable[[Graph, Goal], Graph]] = {
    "bind": lambda graph, goal: bind(graph, goal.dims, goal.params),
    "lengths": lambda graph, goal: lengths(graph),
    "ranking": lambda graph, goal: ranking(graph),
    "objective": lambda graph, goal: objective(graph),
}
NORMAL_PASSES: dict[str, Callable[[NormalForm, Goal], NormalForm]] = {
    "null_tokens": lambda normal, goal: null_tokens(normal) if goal.styles.null == "token" else normal,
}
PASSES = ("build", *GRAPH_PASSES, "normal_form", *NORMAL_PASSES)


def graphs(checked: Checked, goal: Goal) -> dict[str, Graph]:
    """The graph as it is built, and after every pass, by their names."""
    out = {"build": build_graph(checked)}
    graph = out["build"]
    for name, apply in GRAPH_PASSES.items():
        graph = out[name] = apply(graph, goal)
    return out


def normal_forms(graph: Graph, goal: Goal) -> dict[str, NormalForm]:
    """The normal form of the last graph, and after every pass over it, by their names."""
    normal = normal_form(graph, goal.dims, goal.styles)
    out = {"normal_form": normal}
    for name, apply in NORMAL_PASSES.items():
        normal = out[name] = apply(normal, goal)
    return out


def lowered(checked: Checked, goal: Goal) -> NormalForm:
    """The attention normal form of a spec: all passes."""
    *_, graph = graphs(checked, goal).values()
    *_, normal = normal_forms(graph, goal).values()
    return normal
