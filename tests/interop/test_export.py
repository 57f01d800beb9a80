"""Exported models: plain torch, torch.export and ONNX compute what the spec means, without Weft."""

from __future__ import annotations

import ast
import copy
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import weftc
import weftc_runtime
from agreement import default_dims
from planned_cases import compiled, plain, problem
from weftc.compiling import checked_spec
from weftc.core.errors import InputError
from weftc.core.source import Source
from weftc.files.locate import names
from weftc.interop.exporting import export, loaded, module_of
from weftc.interop.judging import judge_export
from weftc.interop.writer import write
from weftc.language.check.check import check
from weftc.language.parse.parse import parse
from weftc.variants import rotated

NAMES = names("")
STYLES: list[dict[str, Any]] = [
    {},
    {"scores": "dot"},
    {"erase": "attention"},
    {"members": "offset"},
    {"null": "token"},
    {"weights": "unrolled"},
    {"norm": "layer"},
    {"hardmax": "softmax", "sharpness": 64},
]


def given(name: str, checkpoint: Any, tokens: int = 17, seed: int = 1) -> tuple[dict[str, Any], dict[str, Any]]:
    """Inputs and noise for a model, as arrays."""
    rng = np.random.default_rng(seed)
    noise = {}
    for one in checkpoint.program.noises:
        stream = checkpoint.program.stream(one.stream)
        noise[one.name] = rng.uniform(0.1, 0.9, (3, stream.size or tokens, stream.slot(one.slot).width))
    return problem(name, "random", tokens, seed), noise


@pytest.mark.parametrize("style", STYLES, ids=lambda style: ",".join(map(str, style.values())) or "default")
@pytest.mark.parametrize("name", NAMES)
def test_a_plain_module_computes_what_the_model_computes(name: str, style: dict[str, Any]) -> None:
    try:
        checkpoint = compiled(name, **style)
    except weftc.WeftError:
        return  # a style that this spec is refused in
    inputs, noise = given(name, checkpoint)
    try:
        want = weftc.load(checkpoint, backend="reference")(inputs, layers=3, noise=noise)
    except weftc_runtime.RunError:
        assert style == {"erase": "attention"}, "only this style has a condition that ordinary inputs may not meet"
        return
    written = write(checkpoint)
    model = loaded(written)
    arrays = [torch.as_tensor(np.asarray(values)) for values in (*inputs.values(), *noise.values())]
    got = model(*arrays)
    for output in checkpoint.program.outputs:
        torch.testing.assert_close(got[output.name], plain(want[output.name]), rtol=1e-9, atol=1e-9)

    count, free = len(inputs), {one.name for one in checkpoint.program.streams if one.size is None}
    two = model(*(torch.stack([a, a], 0 if at < count else 1) for at, a in enumerate(arrays)))
    padded = []
    every = (*checkpoint.program.inputs, *checkpoint.program.noises)
    for at, (array, one) in enumerate(zip(arrays, every, strict=True)):
        axis = 0 if at < count else 1
        more = [torch.zeros_like(array.narrow(axis, 0, 3))] if one.stream in free else []
        padded.append(torch.cat([array, *more], axis))
    masks = {word: torch.arange(20) < 17 for word in written.masks.values()}
    longer = model(*padded, **masks)
    for output in checkpoint.program.outputs:
        value = got[output.name]
        torch.testing.assert_close(two[output.name][1], value, rtol=1e-9, atol=1e-9)
        short = longer[output.name][tuple(slice(size) for size in value.shape)]
        torch.testing.assert_close(short, value, rtol=1e-9, atol=1e-9)


AMONG = """algorithm nearest
tokens  i, l in points
inputs  x[i] : R^d, u[i] : R
layer
  a[i] = sum[l] softmax[l](-|x[i] - x[l]|^2 among lowest[l](|x[i] - x[l]|^2, 3)) * u[l]
  b[i] = max[l] u[l] where i != l and u[l] > 0 among lowest[l](|x[i] - x[l]|^2, 40%) else 0
outputs a, b
"""


def test_the_best_of_a_ranking_are_exported(tmp_path: Path) -> None:
    checkpoint = weftc.compile(AMONG, dims={"d": 2})
    rng = np.random.default_rng(4)
    x, u = (torch.as_tensor(rng.normal(size=shape)) for shape in ((11, 2), (11,)))
    want, model = weftc.load(checkpoint)(x=x, u=u), loaded(write(checkpoint))
    got = model(x, u)
    padded = model(F.pad(x, (0, 0, 0, 4)), F.pad(u, (0, 4)), points_mask=torch.arange(15) < 11)
    for name in ("a", "b"):
        torch.testing.assert_close(got[name], want[name])
        torch.testing.assert_close(padded[name][:11], want[name])
    assert got["margin"] > 0
    tied = model(torch.zeros(11, 2, dtype=x.dtype), u)  # all are equally near
    assert tied["margin"] > 0  # and that is exact: the first ones are kept
    export(checkpoint, tmp_path / "nearest.py")
    assert judge_export(checkpoint, check(parse(Source("nearest", AMONG))), tmp_path / "nearest.py", count=12).ok


@pytest.mark.parametrize("name", ["gmm_em", "kmedoids", "trimmed_kmeans"])
def test_a_rotated_model_is_exported_as_it_is(name: str) -> None:
    checkpoint = compiled(name)
    inputs, noise = given(name, checkpoint)
    arrays = [torch.as_tensor(np.asarray(values)) for values in (*inputs.values(), *noise.values())]
    want = loaded(write(checkpoint))(*arrays)
    got = loaded(write(rotated(checkpoint, seed=4)))(*arrays)
    for output in checkpoint.program.outputs:
        torch.testing.assert_close(got[output.name], want[output.name], rtol=1e-6, atol=1e-6)


def test_a_module_runs_where_there_is_torch_and_nothing_else(tmp_path: Path) -> None:
    export("lloyd", tmp_path / "lloyd.py", dims={"d": 2, "k": 3}, layers=3)
    code = (
        "import sys\n"
        "for name in ('weftc', 'weftc_runtime', 'safetensors', 'lark', 'networkx'): sys.modules[name] = None\n"
        "import torch, lloyd\n"
        "x = torch.tensor([[-3.0], [-2.0], [0.0], [2.0], [3.0]], dtype=torch.float64).expand(5, 2)\n"
        "print(lloyd.Lloyd()(x, x[:3])['labels'].tolist())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[0, 1, 2, 2, 2]"


def test_the_text_of_a_module_is_tidy() -> None:
    for name in NAMES:
        text = write(compiled(name)).text
        ast.parse(text)
        assert "weftc" not in text
        assert max(map(len, text.splitlines())) < 150


def test_names_that_are_no_identifiers_are_spelt_out() -> None:
    spec = """algorithm odd
tokens i in torch, j in self' : k
inputs x'[i] : R^d, F[j] : R^d
layer
  y[i,j] = argmin[j] |x'[i] - F[j]|^2
outputs margin = y
"""
    with pytest.raises(InputError, match="margin"):
        write(weftc.compile(spec, dims={"d": 1, "k": 2}))
    model = loaded(write(weftc.compile(spec.replace("margin =", "for_ ="), dims={"d": 1, "k": 2})))
    x = torch.tensor([[0.0], [5.0]], dtype=torch.float64)
    assert model(x, x)["for_"].tolist() == [0, 1]


def test_margin_tells_ties_from_clear_decisions() -> None:
    model = loaded(write(compiled("lloyd", count=2)))
    centers = torch.tensor([[-1.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    clear = torch.tensor([[-2.0, 0.0], [2.0, 0.0]], dtype=torch.float64)
    tied = torch.tensor([[0.0, 0.0], [2.0, 0.0]], dtype=torch.float64)
    assert 0.1 < float(model(clear * 1.1, centers * 1.1, layers=1)["margin"]) < 1
    assert float(model(tied * 1.1, centers * 1.1, layers=1)["margin"]) == 0.0
    assert float(model(tied, centers, layers=1)["margin"]) > 0.1  # whole numbers: the tie is exact, the first wins
    assert model(tied, centers, layers=1)["labels"].tolist() == [0, 1]


def test_functions_of_torch_go_through_a_module() -> None:
    model = loaded(write(compiled("soft_kmeans")))
    x, c = (torch.as_tensor(values) for values in problem("soft_kmeans", "random", 9, 3).values())
    want = model(x, c)["centers"]
    mapped = torch.vmap(lambda points: model(points, c)["centers"])(torch.stack([x, 2 * x]))
    torch.testing.assert_close(mapped[0], want)
    slopes = torch.func.jacrev(lambda start: model(x, start, layers=1)["centers"])(c)
    step = 1e-6 * torch.ones_like(c)
    moved = (model(x, c + step, layers=1)["centers"] - model(x, c - step, layers=1)["centers"]) / 2
    torch.testing.assert_close(torch.einsum("abcd,cd->ab", slopes, step), moved, rtol=1e-5, atol=1e-12)
    again = torch.func.functional_call(model, dict(model.named_buffers()), (x, c))
    torch.testing.assert_close(again["centers"], want)


@pytest.mark.parametrize(("name", "batch"), [("lloyd", True), ("soft_kmeans", False)])
def test_files_of_torch_export_and_onnx_are_judged_by_the_spec(name: str, batch: bool, tmp_path: Path) -> None:
    checkpoint = compiled(name)
    checked = checked_spec(name)
    for ending in (".pt2", ".onnx"):
        path = tmp_path / f"{name}{ending}"
        export(checkpoint, path, batch=batch)
        verdict = judge_export(checkpoint, checked, path, count=12)
        assert verdict.ok, verdict.text()


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_spec_as_torch_export_and_onnx(name: str, tmp_path: Path) -> None:
    checkpoint = compiled(name)
    for ending in (".py", ".pt2", ".onnx"):
        path = tmp_path / f"{name}{ending}"
        export(checkpoint, path)
        verdict = judge_export(checkpoint, checked_spec(name), path, count=40)
        assert not verdict.failures, verdict.text()


def test_a_wrong_export_is_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "lloyd.py"
    checkpoint = compiled("lloyd")
    export(checkpoint, path)
    text = path.read_text(encoding="utf-8")
    assert "argmax(score, eligible, 'first')" in text
    path.write_text(text.replace("argmax(score, eligible", "argmax(-score, eligible"), encoding="utf-8")
    verdict = judge_export(checkpoint, checked_spec("lloyd"), path, count=12)
    assert not verdict.ok


def test_what_cannot_be_exported_is_said(tmp_path: Path) -> None:
    dims = default_dims(checked_spec("lloyd"))
    with pytest.raises(InputError, match=r"\.py, \.pt2 or \.onnx"):
        export("lloyd", tmp_path / "lloyd.txt", dims=dims)
    with pytest.raises(InputError, match="there is no folder"):
        export("lloyd", tmp_path / "no" / "lloyd.py", dims=dims)
    export("lloyd", tmp_path / "lloyd.py", dims=dims)
    with pytest.raises(InputError, match="--force"):
        export("lloyd", tmp_path / "lloyd.py", dims=dims)
    with pytest.raises(InputError, match="3 layers"):
        export(compiled("lloyd", weights="unrolled"), tmp_path / "other.py", layers=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lloyd.py", "lloyd.safetensors"]
    assert type(module_of(tmp_path / "lloyd.py")).__name__ == "Lloyd"


def test_softmax_alone_is_near_the_spec(tmp_path: Path) -> None:
    given = {"dims": {"d": 2, "k": 3}, "layers": 2, "to": "softmax"}
    done = export("lloyd", tmp_path / "soft.py", sharpness=400.0, **given)
    assert "leads by" in done.card
    assert (
        "argmax" not in (tmp_path / "soft.py").read_text(encoding="utf-8").split("class Lloyd")[1].split("output_")[0]
    )
    x = torch.tensor([[-3.0, 0], [-2, 0], [0, 4], [2, 0], [3, 0], [0, 5]], dtype=torch.float64)
    start = x[[0, 2, 4]]
    want = weftc.load(weftc.compile("lloyd", dims={"d": 2, "k": 3}, layers=2))(x=x, c=start)["centers"]
    torch.testing.assert_close(module_of(tmp_path / "soft.py")(x, start)["centers"], want, rtol=1e-9, atol=1e-9)
    with pytest.raises(InputError, match=r"head c \(top\)"):
        export("trimmed_kmeans", tmp_path / "trimmed.py", **given)
    with pytest.raises(InputError, match=r"head y \(argmax\)"):
        export(compiled("lloyd"), tmp_path / "other.py", to="softmax")


def test_a_folder_for_hubs_is_the_model(tmp_path: Path) -> None:
    done = export(compiled("lloyd"), tmp_path / "folder", to="hub")
    assert sorted(path.name for path in done.paths) == ["README.md", "config.json", "model.safetensors"]
    again = weftc.load(tmp_path / "folder" / "model.safetensors")
    assert again.spec_text == compiled("lloyd").spec_text
    told = json.loads((tmp_path / "folder" / "config.json").read_text(encoding="utf-8"))
    assert (told["algorithm"], told["dims"], told["inputs"]) == ("lloyd", {"d": 2, "k": 3}, ["x", "c"])
    with pytest.raises(InputError, match="--force"):
        export(compiled("lloyd"), tmp_path / "folder", to="hub")


def test_a_model_goes_to_a_hub_and_comes_back(tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    from weftc.interop.hub import hub_model

    model, given = weftc.load(compiled("lloyd")), problem("lloyd", "random", 9, 1)
    hub_model()(model).save_pretrained(tmp_path / "folder")
    again = hub_model().from_pretrained(tmp_path / "folder")
    assert torch.equal(again(given)["centers"], model(given)["centers"])


def test_a_module_is_compiled_traced_copied_and_loaded() -> None:
    model = loaded(write(compiled("soft_kmeans"), 1))
    x, c = (torch.as_tensor(values) for values in problem("soft_kmeans", "random", 9, 3).values())
    want = model(x, c)["centers"]
    whole = torch.compile(model, fullgraph=True, backend="eager")
    torch.testing.assert_close(whole(x, c)["centers"], want)
    traced = torch.jit.trace(lambda *given: model(*given)["centers"], (x, c))
    torch.testing.assert_close(traced(x, c), want)
    stored = io.BytesIO()
    torch.save(model.state_dict(), stored)
    stored.seek(0)
    other = copy.deepcopy(model)
    for buffer in other.buffers():
        buffer.zero_()
    other.load_state_dict(torch.load(stored, weights_only=True))
    assert torch.equal(other(x, c)["centers"], want)


def test_accelerate_prepares_a_loaded_model() -> None:
    accelerate = pytest.importorskip("accelerate")
    model = weftc.load(compiled("soft_kmeans"), trainable=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    prepared, optimizer = accelerate.Accelerator(cpu=True).prepare(model, optimizer)
    before = model.tensor("layer.0.0.y.v").detach().clone()
    prepared(problem("soft_kmeans", "random", 9, 1))["centers"].square().sum().backward()
    optimizer.step()
    assert not torch.equal(model.tensor("layer.0.0.y.v"), before)
