"""Benchmarks of models with known circuits: whole folders, the same bytes twice, and parts that tell nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import weftc
from planned_cases import compiled, problem
from weftc.circuits.benchmark import judged, make
from weftc.circuits.circuit import circuit
from weftc.circuits.nameless import nameless
from weftc.cli import main
from weftc.files.locate import names
from weftc_runtime import Checkpoint
from weftc_runtime.format.codec import encode


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_seed_gives_the_same_bytes_and_circuits_that_score(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        make(2, tmp_path / name, seed=3)
    folder = tmp_path / "one"
    assert bytes_of(folder) == bytes_of(tmp_path / "two")
    index = json.loads((folder / "index.json").read_text())
    assert [model["part"] for model in index["models"]] == ["public", "hidden"]
    for part in ("public", "hidden"):
        found = {}
        for model in (model for model in index["models"] if model["part"] == part):
            answers = folder / (part if part == "public" else "answers") / model["name"]
            known = json.loads((answers / "circuit.json").read_text())
            found[model["name"]] = [edge["name"] for edge in known["edges"]]
            assert len(found[model["name"]]) == model["edges"]
        assert judged(folder, found, part) == {"models": 1, "f1": 1.0, "precision": 1.0, "recall": 1.0}
        assert judged(folder, {}, part) == {"models": 1}
    for name in (model["name"] for model in index["models"] if model["part"] == "hidden"):
        assert {path.name for path in (folder / "hidden" / name).iterdir()} == {
            "model.safetensors",
            "inputs.safetensors",
        }
        blind = Checkpoint.load(folder / "hidden" / name / "model.safetensors")
        assert not blind.spec_text
        assert not blind.dims
    words = json.dumps({name: [] for name in found})
    (tmp_path / "found.json").write_text(words)
    assert main(["benchmark", "score", str(folder), str(tmp_path / "found.json"), "--part", "hidden"]) == 0


@pytest.mark.parametrize("name", names(""))
def test_without_names_a_model_computes_the_same(name: str) -> None:
    checkpoint = compiled(name)
    blind = nameless(checkpoint)
    Checkpoint.from_bytes(blind.to_bytes())
    told = json.dumps(encode(blind.program))
    named = [*checkpoint.program.streams, *checkpoint.program.inputs, *checkpoint.program.outputs]
    assert not [one.name for one in named if f'"{one.name}"' in told and len(one.name) > 1]
    assert len(circuit(blind, 2).edges) == len(circuit(checkpoint, 2).edges)
    if checkpoint.program.noises:
        return
    data = problem(name, "random", 7, 2)
    renamed = dict(
        zip((one.name for one in blind.program.inputs), (data[i.name] for i in checkpoint.program.inputs), strict=True)
    )
    want, got = weftc.load(checkpoint)(data), weftc.load(blind)(renamed)
    for one, other in zip(want.values(), got.values(), strict=True):
        if isinstance(one, torch.Tensor):
            assert torch.equal(one, other)


def test_mistakes_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, told in (
        (["benchmark", "make"], "into a folder"),
        (["benchmark", "score", str(tmp_path)], "what was found"),
        (["benchmark", "score", str(tmp_path), "x.json"], "no index.json"),
        (["benchmark", "make", "-n", "1", "-o", str(tmp_path)], "exists"),
    ):
        assert main(words) == 2
        assert told in capsys.readouterr().err
