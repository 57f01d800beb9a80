"""The compiler: normal forms as agreed, refusals that teach, the same bytes every time, no algorithm known by name."""

from __future__ import annotations

import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import weftc
from conftest import Golden
from weftc.core.errors import SpecError
from weftc.core.source import NOWHERE
from weftc.core.styles import Styles
from weftc.emit.matrices import float_parts
from weftc.files.locate import names
from weftc.graph.build import build_graph
from weftc.graph.node import Node
from weftc.graph.verify import verify
from weftc.interpreter.interpreter import Interpreter
from weftc.normal.slots import Leaf, NormalSlot
from weftc.passes.pipeline import Goal, lowered

HERE = Path(__file__).parents[1]
ROOT = HERE.parent
REFUSALS = sorted((HERE / "refusals").glob("*.weft"))
SPECS = names("")
SIZES = {"d": 2, "k": 3, "m": 2}


def dims_of(spec: weftc.Checked) -> dict[str, int]:
    return {name: SIZES[name] for name in spec.dims}


@pytest.mark.parametrize("scores", ["l2", "dot"])
@pytest.mark.parametrize("name", ["lloyd", "soft_kmeans", "sinkhorn_dual", "trimmed_kmeans", "gmm_em"])
def test_normal_form_is_as_agreed(name: str, scores: str, golden: Golden) -> None:
    checked = weftc.check(name)
    normal = lowered(checked, Goal(dims_of(checked), {}, Styles(scores=scores)))  # type: ignore[arg-type]
    golden(HERE / "golden" / "normal" / f"{name}.{scores}.txt", str(normal))


@pytest.mark.parametrize("path", REFUSALS, ids=lambda p: p.stem)
def test_refusal_says_what_why_and_what_would(path: Path, golden: Golden) -> None:
    checked = weftc.check(weftc.Source(path.name, path.read_text(encoding="utf-8")))
    with pytest.raises(SpecError) as caught:
        weftc.compile(checked, dims_of(checked))
    golden(path.with_suffix(".txt"), str(caught.value))


@pytest.mark.parametrize("name", SPECS)
def test_graph_is_typed_and_has_no_cycle(name: str) -> None:
    graph = build_graph(weftc.check(name))
    verify(graph)
    seen: set[Node] = set()
    for node in graph.nodes:
        assert set(node.operands) <= seen
        seen.add(node)


def test_graph_tells_equal_reads_of_different_tokens_apart() -> None:
    text = """algorithm t tokens s, t in p inputs x[t] : R^d, y[t] : R^d
layer a[s] = sum[t] <x[s], y[t]> b[s] = sum[t] <x[t], y[s]> outputs a, b"""
    kinds = [node.kind for node in build_graph(weftc.check(text)).nodes]
    assert kinds.count("inner") == 2


def test_equal_expressions_are_one_node() -> None:
    text = """algorithm t tokens s, t in p inputs x[t] : R^d
layer a[s] = sum[t] <x[s], x[t]> + (sum[t] <x[s], x[t]>) outputs a"""
    kinds = [node.kind for node in build_graph(weftc.check(text)).nodes]
    assert kinds.count("inner") == 1


def test_stale_outputs_are_found() -> None:
    algorithm = build_graph(weftc.check("lloyd"))
    assert algorithm.is_stale("y") == 0
    assert algorithm.is_stale("c") is None


EVERY_SPEC_TO_BYTES = """
import hashlib, weftc
from weftc.files.locate import names
sizes, found = {"d": 2, "k": 3, "m": 2}, hashlib.sha256()
for name in names(""):
    checked = weftc.check(name)
    for scores in ("l2", "dot"):
        found.update(weftc.compile(checked, {n: sizes[n] for n in checked.dims}, scores=scores).to_bytes())
print(found.hexdigest())
"""


def test_same_input_same_bytes_in_every_process() -> None:
    """Every spec in both score styles, under two orders of Python's sets."""
    command = [sys.executable, "-c", EVERY_SPEC_TO_BYTES]
    found = [
        subprocess.run(command, env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True).stdout
        for seed in ("0", "1")
    ]
    assert found[0] == found[1]


def test_weights_do_not_depend_on_the_number_of_tokens() -> None:
    program = weftc.compile("sinkhorn_dual", {"d": 2}).program
    assert all(stream.size is None for stream in program.streams)


def test_float_parts_add_up_exactly() -> None:
    exact = Fraction(1, 3) * Fraction(2) ** -60 + Fraction(2**100 + 1)
    dyadic = Fraction(round(exact * 2**200), 2**200)
    slot = NormalSlot(0, "points", 1, Leaf("one"), 0, NOWHERE)
    parts = [dict(form) for form in float_parts(((slot, dyadic),))]
    assert sum((p[slot] for p in parts), Fraction(0)) == dyadic
    assert all(Fraction(float(p[slot])) == p[slot] for p in parts)


def test_coefficients_of_decisions_are_not_rounded() -> None:
    """1/3 is no float; the score is scaled until every coefficient is one."""
    text = """algorithm t
tokens i in points
       j in centers : k
inputs x[i] : R^d, u[j] : R, c[j] : R^d
layer y[i,j] = argmin[j] (|x[i] - c[j]|^2 / 3 - u[j] / 7)
outputs y"""
    checkpoint = weftc.compile(text, {"d": 1, "k": 2})
    values = np.concatenate([array.ravel() for array in checkpoint.tensors.values()])
    assert set(np.unique(values)) <= {-7.0, 0.0, 1.0, 3.0}


@pytest.mark.parametrize(
    ("name", "said"), [("lloyd", "it chooses (argmax)"), ("fuzzy_c_means", "its weights do not add up to 1")]
)
def test_softmax_heads_alone(name: str, said: str) -> None:
    with pytest.raises(SpecError, match="L306") as caught:
        weftc.compile(name, {"d": 2, "k": 3}, heads="softmax")
    assert said in str(caught.value)


def test_a_kernel_is_no_softmax_and_a_gaussian_is() -> None:
    text = """algorithm t
tokens i, l in points
inputs x[i] : R^d
layer x[i] = mean[l] x[l] weighted {}
outputs x"""
    with pytest.raises(SpecError, match="reciprocal"):
        weftc.compile(text.format("1 / (1 + |x[i] - x[l]|^2)"), {"d": 2}, heads="softmax")
    assert weftc.compile(text.format("exp(-|x[i] - x[l]|^2)"), {"d": 2}, heads="softmax").program.layer


def test_refusal_lists_every_equation_at_once() -> None:
    text = (HERE / "refusals" / "several_at_once.txt").read_text(encoding="utf-8")
    assert text.count("error[L301]") == 2


ALGORITHMS = r"\b(lloyd|k-?means|kmedoids|medoids?|sinkhorn|trimmed|spherical|hopfield|mean.?shift|gmm)\b"


@pytest.mark.parametrize("folder", ["compiler/weftc", "runtime/weftc_runtime"])
def test_no_algorithm_is_known_by_name(folder: str) -> None:
    """Names of algorithms may stand in examples of docstrings and help texts, never in code that decides anything.

    The defaults of the estimator have a file of their own: nothing in it decides either. Benchmarks may know what they
    measure, and the experiments of the papers are users of Weft.
    """
    for path in sorted((ROOT / folder).rglob("*.py")):
        if path.parts[-2:] == ("estimators", "defaults.py") or {"bench", "experiments"} & set(path.parts):
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            quoted = re.match(r'\s*(#|>>>|"""|weftc |f?"[^"]*weftc )', line)
            assert quoted or not re.search(ALGORITHMS, line, re.I), f"{path}:{number}: {line}"


@pytest.mark.parametrize(
    ("one", "two", "u"),
    [
        ("exp(0.12345678*u[i])", "exp(0.12345699*u[i])", 100.0),
        ("1/(u[i]+1000000.1)", "1/(u[i]+1000000.4)", 1.0),
        ("tanh(0.1*u[i])", "tanh(0.10000000000000002*u[i])", 1.0),
        ("sqrt(u[i]^2+3.0000001)", "sqrt(u[i]^2+3.0000002)", 0.5),
        ("sum[l] exp(-2.0000001*u[l]*u[i])", "sum[l] exp(-2.0000002*u[l]*u[i])", 0.5),
        ("max(u[i], 0.70000001)", "max(u[i], 0.70000002)", 0.5),
    ],
)
def test_slots_are_known_by_what_they_compute_not_by_six_digits(one: str, two: str, u: float) -> None:
    text = f"""algorithm t tokens i, l in points inputs u[i] : R >= 0
layer a[i] = {one} b[i] = {two} outputs a, b"""
    expected = Interpreter(weftc.check(text), {}).run({"u": np.array([u])}, layers=1).outputs
    found = weftc.load(weftc.compile(text))(u=[u])
    assert expected["a"] != expected["b"]
    for name in "ab":
        assert found[name].tolist() == pytest.approx(np.asarray(expected[name]).tolist(), rel=1e-15)


def test_a_prime_is_a_letter_like_any_other() -> None:
    two = """algorithm t tokens i in points inputs c[i] : R, c'[i] : R
layer c[i] = c'[i] + 1 c'[i] = c[i] outputs c, c'"""
    assert weftc.load(weftc.compile(two))({"c": [1.0], "c'": [3.0]})["c"].tolist() == [4.0]
    stale = """algorithm t tokens i in points inputs x[i] : R
layer x'[i] = 2*x[i] then x[i] = x[i]+1 outputs x, x'"""
    assert weftc.load(weftc.compile(stale)).final(x=[100.0])["x'"].tolist() == [202.0]
    index = """algorithm t tokens i in points, i' in others inputs x[i] : R, z[i'] : R
let m[i'] = sum[i] x[i]*z[i']
layer a[i] = x[i]*(sum[i'] m[i']) outputs a"""
    assert weftc.load(weftc.compile(index))(x=[100.0], z=[3.0, 4.0])["a"].tolist() == [70000.0]
    shadowed = """algorithm t tokens i, i' in points inputs x[i] : R
let m[i'] = sum[i] x[i]*x[i']
layer a[i] = m[i] + (sum[i'] m[i']*x[i]) outputs a"""
    assert weftc.load(weftc.compile(shadowed))(x=[1.0, 2.0])["a"].tolist() == [12.0, 24.0]
    everything = """algorithm t' tokens i, i', i'' in p, j' in p' : k' inputs x'[i] : R^d', c[j'] : R^d'
param r' = 2 let x''[i'] = r' * x'[i']
layer x'[i''] = x''[i''] + (sum[j'] c[j']) then y'[i'',j'] = argmin[j'] |x'[i''] - c[j']|^2
outputs x', y'"""
    found = weftc.load(weftc.compile(everything, {"k'": 2, "d'": 1}))({"x'": [[1.0]], "c": [[0.0], [4.0]]})
    assert found["x'"].tolist() == [[6.0]]
    assert found["y'"].indices.tolist() == [1]


@pytest.mark.parametrize("factor", ["", " * w[{0}]", " * w[{0}]^2 / 3", " * <c[{0}], x[l]>", " where w[{0}] > 0"])
def test_no_head_is_unread_and_names_of_indices_change_nothing(factor: str) -> None:
    def heads(name: str) -> list[tuple[str, ...]]:
        text = f"""algorithm t tokens l in points, {name} in cs : 2, b in ds : 3
inputs x[l] : R^2, c[{name}] : R^2, w[{name}] : R, y[l,b] : real
layer s[{name},b] = sum[l] exp(-|x[l]-c[{name}]|^2)*y[l,b]{factor.format(name)} outputs s"""
        layer = weftc.compile(text).program.layer
        return [h.writes for step in layer for sub in step.sublayers for h in getattr(sub, "heads", ())]

    assert heads("a") == heads("q")
    assert len(heads("a")) == 1


def refusal(text: str) -> str:
    with pytest.raises(SpecError) as caught:
        weftc.compile(text)
    return str(caught.value)


def test_a_refusal_counts_the_tokens_it_names() -> None:
    text = """algorithm t tokens e in es, i in is, j in js inputs a[e] : R, b[i] : R, c[j] : R
layer s[e] = sum[i] (sum[j] tanh(a[e]*b[i]*c[j])) outputs s"""
    assert "a function of 3 tokens (e, i, j); attention relates two" in refusal(text)


@pytest.mark.parametrize(
    ("body", "named"),
    {
        "(sum[i] x[i]) * (sum[i] x[i]^2)": "line 5: s[g] = (sum[i]",
        "1 / (sum[i] x[i])": "line 5: 1 / (sum[i]",  # a quotient names itself
    }.items(),
)
def test_a_slot_of_a_whole_equation_names_its_line(body: str, named: str) -> None:
    text = f"""algorithm t
tokens i in points, g in groups : 2
inputs x[i] : R
layer
  s[g] = {body}
outputs s"""
    checkpoint = weftc.compile(text)
    origins = [getattr(sub, "origin", "") for step in checkpoint.program.layer for sub in step.sublayers]
    assert any(origin.startswith(named) for origin in origins)
