"""Circuits come from the matrices alone, and cutting every edge shows that they are right."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

import weftc
import weftc_runtime
from planned_cases import compiled, problem
from weftc.circuits.circuit import circuit
from weftc.circuits.routed import Change, RoutedModel, key_of
from weftc.cli import main
from weftc.core.errors import InputError
from weftc.files.locate import names
from weftc.variants import mixed_heads, permuted_heads, rotated, split_heads

NAMES = names("")
SCORES = ("l2", "dot")


@pytest.mark.parametrize("scores", SCORES)
@pytest.mark.parametrize("name", ["lloyd", "soft_kmeans"])
def test_every_edge_counts_and_no_other(name: str, scores: str) -> None:
    verdict = circuit(compiled(name, scores=scores), 2).check(cases=3)
    assert verdict.ok, verdict.text()


def test_edges_of_a_head_that_attends_among_the_best_count() -> None:
    text = """algorithm nearest
tokens  i, l in points
inputs  x[i] : R^2, z[i] : R^2, u[i] : R
layer
  a[i] = sum[l] softmax[l](-|x[i] - x[l]|^2 among lowest[l](|z[i] - z[l]|^2, 2)) * u[l]
outputs a
"""
    found = circuit(weftc.compile(text), 1)
    head = next(node.name for node in found.nodes if node.kind == "head")
    assert {edge.port for edge in found.edges if (edge.source, edge.target) == ("input.z", head)} == {"q", "k"}
    verdict = found.check(cases=4)
    assert verdict.ok, verdict.text()


@pytest.mark.slow
@pytest.mark.parametrize("scores", SCORES)
@pytest.mark.parametrize("name", NAMES)
def test_every_edge_of_every_spec_counts_and_no_other(name: str, scores: str) -> None:
    verdict = circuit(compiled(name, scores=scores), 2).check()
    assert verdict.ok, verdict.text()


@pytest.mark.parametrize("name", NAMES)
def test_a_circuit_needs_no_spec_and_no_names(name: str) -> None:
    known = circuit(compiled(name), 2)
    without = circuit(replace(compiled(name), spec_text="", spec_name="?"), 2)
    assert (without.edges, without.candidates) == (known.edges, known.candidates)
    assert set(known.edges) < set(known.candidates)
    outputs = [node.name for node in known.nodes if node.kind == "output"]
    assert set(outputs) <= {edge.target for edge in known.edges}


@pytest.mark.parametrize("name", ["gmm_em", "lloyd", "sinkhorn_log", "trimmed_kmeans"])
def test_disguises_change_nothing(name: str) -> None:
    plain = compiled(name, scores="dot" if name == "lloyd" else "l2")
    edges = circuit(plain, 2).edges
    assert set(circuit(rotated(plain, seed=3), 2).edges) == set(edges)
    assert set(circuit(mixed_heads(plain, seed=3), 2).edges) == set(edges)
    assert set(circuit(permuted_heads(rotated(plain, seed=3, kind="signed"), seed=1), 2).edges) == set(edges)


def test_a_disguised_circuit_holds() -> None:
    hidden = rotated(mixed_heads(split_heads(compiled("lloyd"), seed=1), seed=2), seed=3)
    verdict = circuit(hidden, 2).check(cases=3)
    assert verdict.ok, verdict.text()


def test_a_wrong_circuit_does_not_hold() -> None:
    right = circuit(compiled("lloyd"), 1)
    missing, added = right.edges[3], right.outside[2]
    wrong = replace(right, edges=(*(edge for edge in right.edges if edge != missing), added))
    verdict = wrong.check(cases=1)
    assert list(verdict.leaks) == [missing.name]
    assert verdict.idle == [added.name]


def test_an_edited_weight_is_a_new_edge() -> None:
    checkpoint = compiled("lloyd")
    name = next(name for name in checkpoint.tensors if name.endswith("y.l2.0.q"))
    edited = {**checkpoint.tensors, name: checkpoint.tensors[name].copy()}
    edited[name][0, 5] = 0.5  # the queries of the assignment read the constant
    assert edited[name].shape[1] == 7
    before, after = set(circuit(checkpoint, 1).edges), set(circuit(replace(checkpoint, tensors=edited), 1).edges)
    assert [edge.name for edge in after - before] == ["embed.points.1->layers.0.blocks.0.attn.y<q>"]


@pytest.mark.parametrize("name", ["lloyd", "soft_kmeans"])
def test_an_edge_cut_here_is_a_path_cut_in_the_model(name: str) -> None:
    """The model's own path patches, which go through the file's matrices, move outputs as the circuit says."""
    checkpoint = compiled(name)
    found, model = circuit(checkpoint, 2), weftc.load(checkpoint, backend="reference")
    routed, data = RoutedModel(found), problem(name, "random", 5, 5)
    want = model(data, layers=2)
    paths = 0
    for edge in found.candidates:
        if ".attn." in edge.source and edge.port in "qkv" and "layers" in edge.target and "derived" not in edge.target:
            change = {key_of(edge): Change(torch.ones(1, dtype=torch.float64))}
            cut = routed.run(data, change).outputs
            with model.patch({(f"{edge.source}.hook_result", f"{edge.target}.hook_{edge.port}_input"): "zero"}):
                try:
                    got = model(data, layers=2)
                except weftc_runtime.RunError:
                    continue  # no value any more
            for output in checkpoint.program.outputs:
                if output.kind != "onehot":
                    mine, theirs = cut[output.name][0], got[output.name]
                    torch.testing.assert_close(mine, theirs.reshape(mine.shape), rtol=1e-9, atol=1e-9, equal_nan=True)
            moved = any(
                not torch.equal(got[o.name], want[o.name]) for o in checkpoint.program.outputs if o.kind != "onehot"
            )
            assert not moved or edge in found.edges, edge.name
            paths += 1
    assert paths > 5


def test_files_say_the_same(tmp_path: Path) -> None:
    assert main(["compile", "lloyd", "-D", "d=2", "-D", "k=3", "-o", str(tmp_path / "m.safetensors")]) == 0
    for form, name in (("json", "c.json"), ("mib", "m.json"), ("graphml", "c.graphml")):
        words = ["circuit", str(tmp_path / "m.safetensors"), "--format", form, "-o", str(tmp_path / name)]
        assert main(words) == 0
        assert main(words) != 0, "a file that exists is kept"
    plain = json.loads((tmp_path / "c.json").read_text())
    inside = {edge["name"] for edge in plain["edges"]}
    mib = json.loads((tmp_path / "m.json").read_text())
    assert {name for name, edge in mib["edges"].items() if edge["in_graph"]} == inside
    assert set(mib["edges"]) == inside | set(plain["outside"])
    assert {name for name, node in mib["nodes"].items() if node["in_graph"]} == {
        node["name"] for node in plain["nodes"] if node["inside"]
    }
    space = "{http://graphml.graphdrawing.org/xmlns}"
    drawn = ElementTree.parse(tmp_path / "c.graphml").getroot()
    assert len(list(drawn.iter(f"{space}edge"))) == len(inside)


def test_scores_of_methods() -> None:
    found = circuit(compiled("lloyd"), 1)
    assert found.score(found.edges) == {"precision": 1.0, "recall": 1.0, "f1": 1.0}
    half = found.score([*found.edges[:7], *found.outside[:7]])
    assert half == {"precision": 0.5, "recall": 0.5, "f1": 0.5}
    perfect = found.score({edge.name: 2.0 for edge in found.edges})
    assert perfect == {"auroc": 1.0, "average_precision": 1.0, "f1": 1.0}
    nothing = found.score({edge: 1.0 for edge in found.candidates})
    assert nothing["auroc"] == 0.5
    assert nothing["average_precision"] == len(found.edges) / len(found.candidates)
    with pytest.raises(InputError, match="no edge"):
        found.score(["a->b"])


def test_gradients_go_through_cut_edges() -> None:
    found = circuit(compiled("soft_kmeans"), 1)
    model, data = RoutedModel(found), problem("soft_kmeans", "random", 9, 3)
    edge = next(edge for edge in found.edges if edge.port == "v" and edge.source == "input.x")
    share = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(model.run(data, {key_of(edge): Change(share)}).outputs["centers"].sum(), share)
    step = torch.full((1,), 1e-6, dtype=torch.float64)
    moved = [float(model.run(data, {key_of(edge): Change(s)}).outputs["centers"].sum()) for s in (step, 0 * step)]
    assert np.isclose(float(slope), (moved[0] - moved[1]) / 1e-6, rtol=1e-4)
