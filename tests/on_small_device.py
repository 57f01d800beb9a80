"""Models on a device without float64: scans run there, everything has the bits of the CPU, errors say what to do.

Run by `test_small_device.py` in a process of its own; see `small_device.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import small_device
import weftc
import weftc_runtime
from few_points import data, ragged
from planned_cases import compiled, plain, problem, promises_bits
from weftc.cli import main
from weftc.files.locate import names
from weftc.sklearn import WeftClusterer
from weftc.verification.cases.inputs import FAMILIES
from weftc_runtime import Model, OneHot, RunError
from weftc_runtime.kernels import nearest
from weftc_runtime.kernels.native.library import Library
from weftc_runtime.machines import devices

SMALL = torch.device("small:0")
NAMES = names("")
HARD = [name for name in NAMES if promises_bits(weftc_runtime.load(compiled(name)).plan())]
CLOSE = ("exact ties on a grid", "near-ties of 1 to 16 ulp", "duplicates", "offset up to 1e6", "scale 1e-6 to 1e6")
SPLIT = "small:0 has no float64: best keys were looked for there, all else ran on the CPU"
STAYED = "small:0 has no float64: all ran on the CPU"
REFUSED = r"device small:0 has no float64; use dtype=float32, or device='cpu'"


@pytest.fixture(autouse=True)
def _counts_from_zero() -> None:
    devices.Placement.of(SMALL)  # tried out before
    small_device.ran.clear()


def pair(checkpoint: Any, backend: str = "planned") -> tuple[Model, Model]:
    """A model on the CPU and the same on the small device, float32."""
    cpu = weftc_runtime.load(checkpoint, dtype=torch.float32, backend=backend)
    return cpu, weftc_runtime.load(checkpoint, dtype=torch.float32, device="small", backend=backend)


def scanned() -> int:
    """How many matrix products ran on the device."""
    return small_device.ran["mm"]


def scans(model: Model) -> bool:
    return any(head.strategy in devices.SCANNED for path, head in model.plan().heads() if path.startswith("layer"))


def assert_same(here: Mapping[str, Any], there: Mapping[str, Any]) -> None:
    """The same bits, on the device of the user."""
    assert list(here) == list(there)
    for name in here:
        one, other = plain(here[name]), plain(there[name])
        assert other.device == SMALL, name
        assert one.dtype == other.dtype, name
        assert torch.equal(one, other.cpu()), name


def moved(inputs: Mapping[str, Any]) -> dict[str, Tensor]:
    return {name: torch.as_tensor(value).to(SMALL) for name, value in inputs.items()}


# ---------------------------------------------------------------------- same bits
@pytest.mark.parametrize("scores", ["l2", "dot"])
@pytest.mark.parametrize("name", HARD)
def test_hard_specs_have_the_bits_of_the_cpu(name: str, scores: str) -> None:
    cpu, _ = pair(compiled(name, scores=scores), "reference")
    _, small = pair(compiled(name, scores=scores))
    doubtful, compared = 0, 0
    for number, family in enumerate(CLOSE):
        inputs = problem(name, family, 23, number, "float32")
        try:
            expected = cpu.final(inputs, seed=number)
        except RunError as error:
            with pytest.raises(RunError, match=re.escape(str(error))):
                small.final(inputs, seed=number)
            continue
        small_device.ran.clear()
        assert_same(expected, small.final(moved(inputs) if number % 2 else inputs, seed=number))
        assert (small.report.backend, small.report.why) == ("planned", "")
        if scans(small):
            assert small.report.where == SPLIT
            assert scanned()
        doubtful += sum(tiers.bound + tiers.exact for tiers in small.report.heads.values() if tiers.fast)
        compared += 1
    assert compared > 1
    assert doubtful or not scans(small)


def test_scans_are_what_most_of_them_have() -> None:
    assert sum(scans(weftc_runtime.load(compiled(name))) for name in HARD) > len(HARD) // 2


@pytest.mark.parametrize("kind", ["l2", "dot"])
@pytest.mark.parametrize("scale", [1.0, 2.0**-70, 2.0**60])
def test_what_is_certain_there_is_true(kind: str, scale: float) -> None:
    """Numbers of very different sizes: many products and sums are flushed to zero, inputs among them."""
    generator = torch.Generator().manual_seed(3)
    size = 2.0 ** torch.randint(-130, 1, (300, 5), generator=generator).double()
    queries = torch.randn(300, 5, generator=generator, dtype=torch.float64) * size * scale
    keys = torch.cat([queries[:20] * (1 + 2.0**-20), queries[20:40], queries[20:30]])
    peak, zero = float(queries.abs().max()), torch.zeros(5, dtype=torch.float64)
    made = nearest.ready(kind, lambda rows: (queries[rows], None), [slice(0, 200), slice(200, 300)], zero, peak, SMALL)
    found = nearest.nearest(made, keys, None)
    assert scanned()
    assert found.doubt is not None
    assert found.index.device == found.doubt.device == keys.device
    open_rows = set(found.doubt.tolist())
    assert 0 < len(open_rows) < len(queries)
    exact = (queries / scale).unsqueeze(1) if kind == "l2" else queries / scale
    scores = -(exact - keys / scale).square().sum(2) if kind == "l2" else exact @ (keys / scale).T
    for row in set(range(len(queries))) - open_rows:
        assert int(scores[row].argmax()) == int(found.index[row])


def test_products_that_are_flushed_prove_nothing() -> None:
    """The first key is nearer, but all its products with the query are lost, and the second seems to be."""
    queries = torch.stack([torch.full((16,), 2.0**-64), torch.ones(16)]).double()
    keys = torch.stack([torch.full((16,), 0.9 * 2.0**-63), torch.zeros(16)]).double()
    assert torch.cdist(queries[:1] * 2.0**64, keys * 2.0**64).argmin() == 0
    parts, zero = [slice(0, 1), slice(1, 2)], torch.zeros(16, dtype=torch.float64)
    made = nearest.ready("l2", lambda rows: (queries[rows], None), parts, zero, 1.0, SMALL)
    found = nearest.nearest(made, keys, None)
    assert int(found.index[0]) == 1
    assert found.doubt is not None
    assert 0 in found.doubt


def test_many_keys_take_several_tiles() -> None:
    cpu, small = pair(compiled("lloyd", width=3, count=1100))
    x = torch.randn(2500, 3, generator=torch.Generator().manual_seed(1))
    x[1500:2000] = x[:500]  # twins
    inputs = {"x": x, "c": torch.cat([x[:600], x[1500:2000]])}
    assert_same(cpu.final(inputs, layers=2), small.final(inputs, layers=2))
    assert small.report.total.exact


def test_queries_go_there_once() -> None:
    _, small = pair(compiled("lloyd"))
    inputs = problem("lloyd", "random", 3000, 0, "float32")
    small(inputs, layers=1)
    one = small_device.ran["copy"]
    small_device.ran.clear()
    small(inputs, layers=4)
    each = (small_device.ran["copy"] - one) / 3  # copies of a layer: the same for each
    small_device.ran.clear()
    small(inputs, layers=10)
    assert small_device.ran["copy"] == one + 9 * each


def test_native_kernels_do_not_scan_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, small = pair(compiled("lloyd"))
    inputs = problem("lloyd", "duplicates", 200, 5, "float32")
    expected = cpu(inputs)
    for method in ("find", "machine", "nearest_groups"):
        monkeypatch.setattr(Library, method, None)
    assert_same(expected, small(inputs))
    batch = {name: np.stack([value, value]) for name, value in inputs.items()}
    found = small(batch)
    assert torch.equal(found["centers"].cpu()[1], expected["centers"])


def test_until_stable() -> None:
    cpu, small = pair(compiled("lloyd"))
    inputs = problem("lloyd", "random", 300, 2, "float32")
    assert_same(cpu(inputs, until_stable=True), small(inputs, until_stable=True))
    assert small.report.stable == (True,)
    assert small.report.layers == cpu.report.layers


def test_batches_and_ragged_batches() -> None:
    cpu, small = pair(compiled("lloyd"))
    parts = [problem("lloyd", family, 20, seed, "float32") for seed, family in enumerate(FAMILIES)][:4]
    batch = {name: np.stack([part[name] for part in parts]) for name in parts[0]}
    assert_same(cpu(batch, until_stable=True), small(batch, until_stable=True))
    assert small.report.layers == cpu.report.layers
    assert_same(cpu(batch), small(moved(batch)))
    x, mask = ragged([[0, 2, 3, 5], [1, 2, 4, 5, 6], [0, 1, 2, 3]], 8, [data(0, 4), data(1, 5), data(2, 4)])
    options = {"x": x.float(), "c": data(3, 3).float()}
    expected = cpu(**options, mask={"points": mask})
    assert_same(expected, small(**options, mask={"points": mask}))
    assert_same(expected, small(**moved(options), mask={"points": mask.to(SMALL)}))
    listed = [data(0, 4).float(), data(1, 5).float()]
    expected = cpu(x=listed, c=options["c"])
    assert_same(expected, small(x=[part.to(SMALL) for part in listed], c=options["c"]))


def test_soft_weights_stay_on_the_cpu() -> None:
    cpu, small = pair(compiled("soft_kmeans"))
    inputs = problem("soft_kmeans", "random", 40, 0, "float32")
    assert_same(cpu(inputs), small(moved(inputs)))
    assert small.report.where == STAYED
    assert not scanned()


def test_noise_and_one_hot_inputs_may_be_there() -> None:
    names = [name for name in HARD if weftc_runtime.load(compiled(name)).program.noises]
    assert names
    for name in names:
        cpu, small = pair(compiled(name))
        inputs = problem(name, "random", 12, 0, "float32")
        noises = {}
        for item in cpu.program.noises:
            width = cpu.program.stream(item.stream).slot(item.slot).width
            tokens = cpu.start(inputs)[item.slot].shape[0] if item.slot in cpu.start(inputs) else 12
            noises[item.name] = torch.randn(3, tokens, width, generator=torch.Generator().manual_seed(0))
        assert_same(cpu(inputs, noise=noises), small(inputs, noise=moved(noises)))


# ---------------------------------------------------------------------- as a module
def test_there_and_back() -> None:
    inputs = problem("lloyd", "exact ties on a grid", 40, 1, "float32")
    model = weftc_runtime.load(compiled("lloyd"), dtype=torch.float32, backend="planned")
    expected = model(inputs)
    assert model.to("small") is model
    assert model.device == SMALL
    assert {one.device.type for one in model.parameters()} == {"cpu"}
    assert "small:0" in repr(model)
    assert_same(expected, model(inputs))
    assert scanned()
    assert model.float().device == SMALL  # stays where it is
    assert model.to("cpu").device.type == "cpu"
    small_device.ran.clear()
    again = model(inputs)
    assert not small_device.ran
    assert torch.equal(again["centers"], expected["centers"])
    assert model.report.where == ""


def test_float64_is_refused() -> None:
    with pytest.raises(RunError, match=REFUSED):
        weftc.load(compiled("lloyd"), device="small")
    model = weftc_runtime.load(compiled("lloyd"))
    with pytest.raises(RunError, match=REFUSED):
        model.to("small")
    assert (model.device.type, model.dtype) == ("cpu", torch.float64)
    assert model.to("small", torch.float32).dtype == torch.float32
    with pytest.raises(RunError, match=REFUSED):
        model.double()
    with pytest.raises(RunError, match=REFUSED):
        model.to("small", torch.float64)
    with pytest.raises(RunError, match="float16 is not supported"):
        model.half()
    assert (model.device, model.dtype) == (SMALL, torch.float32)
    assert model.to("cpu", torch.float64).dtype == torch.float64
    assert torch.equal(model(x=data(0, 9))["centers"], weftc_runtime.load(compiled("lloyd"))(x=data(0, 9))["centers"])


def test_checkpoints_of_a_model_there() -> None:
    _, small = pair(compiled("lloyd"))
    saved = small.checkpoint()
    assert {name: array.tobytes() for name, array in saved.tensors.items()} == {
        name: np.asarray(array).tobytes() for name, array in compiled("lloyd").tensors.items()
    }


def test_the_reference_runs_on_the_cpu() -> None:
    cpu, small = pair(compiled("lloyd"), "reference")
    inputs = problem("lloyd", "near-ties of 1 to 16 ulp", 30, 4, "float32")
    assert_same(cpu(inputs), small(moved(inputs)))
    assert (small.report.backend, small.report.where) == ("reference", STAYED)
    assert not scanned()


def test_all_that_is_given_back_is_there() -> None:
    checkpoint = compiled("lloyd")
    inputs = problem("lloyd", "duplicates", 30, 4, "float32")
    for backend in ("planned", "reference"):
        cpu, small = pair(checkpoint, backend)
        assert torch.equal(cpu.objective(inputs), small.objective(inputs).cpu())
        assert small.objective(inputs).device == SMALL
        assert_same(cpu.fields(inputs), small.fields(inputs))
        start = small.start(inputs)
        assert_same(cpu.start(inputs), start)
        assert_same(cpu.advance(cpu.start(inputs), 0), small.advance(start, 0))
        one, other = cpu.trace(inputs), small.trace(inputs)
        assert_same(one, other)
        assert_same(one.outputs, other.outputs)
        for here, there in zip(one.fields, other.fields, strict=True):
            assert_same(here, there)
        seen: list[torch.device] = []

        def stop(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> bool:
            seen.append(before["c"].device)  # noqa: B023
            seen.append(after["c"].device)  # noqa: B023
            return True

        small(inputs, until=stop)
        assert seen == [SMALL, SMALL]
        labels = small(inputs)["labels"]
        assert isinstance(labels, OneHot)
        assert labels.dense().device == SMALL
        assert labels.numpy().dtype == np.float32


def test_hooks_see_the_cpu() -> None:
    cpu, small = pair(compiled("lloyd"), "auto")
    seen: list[Tensor] = []
    site = dict(small.named_modules())["blocks.0.points.hook_resid_pre"]
    handle = site.register_forward_hook(lambda _, __, out: seen.append(out))
    inputs = problem("lloyd", "random", 30, 4, "float32")
    assert_same(cpu(inputs), small(inputs))
    handle.remove()
    assert {(one.device.type, one.dtype) for one in seen} == {("cpu", torch.float64)}
    assert (small.report.backend, small.report.why) == ("reference", "a hook listens")


def test_gradients_reach_inputs_there_and_weights_here() -> None:
    inputs = problem("soft_kmeans", "random", 12, 4, "float32")
    found = []
    for device in ("cpu", "small"):
        model = weftc_runtime.load(compiled("soft_kmeans"), dtype=torch.float32, device=device, trainable=True)
        given = {name: torch.as_tensor(value).to(device).requires_grad_() for name, value in inputs.items()}
        out = model(given)["centers"]
        out.backward(torch.ones(out.shape).to(device))
        grads = [given["x"].grad, *(one.grad for one in model.parameters())]
        assert given["x"].grad is not None
        assert given["x"].grad.device.type == device
        found.append([None if one is None else one.cpu() for one in grads])
    assert any(one is not None and bool(one.any()) for one in found[0][1:])
    for one, other in zip(*found, strict=True):
        assert (one is None and other is None) or torch.equal(one, other)


# ---------------------------------------------------------------------- a device that is not what it says
@pytest.mark.parametrize(
    ("flaw", "why"), [("coarse", "it is less precise than float32"), ("rounding", "it leaves too much in doubt")]
)
def test_a_device_that_fails_its_trial_gets_no_scans(flaw: str, why: str) -> None:
    devices._fault.cache_clear()
    try:
        with small_device.broken(flaw):
            cpu, small = pair(compiled("lloyd"))
            small_device.ran.clear()
            inputs = problem("lloyd", "near-ties of 1 to 16 ulp", 200, 4, "float32")
            assert_same(cpu(inputs), small(inputs))
            assert not scanned()
            assert small.report.where == (f"small:0 has no float64, and no scan runs there ({why}): all ran on the CPU")
    finally:
        devices._fault.cache_clear()


def test_a_device_without_an_operation_gets_no_scans(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: Any) -> None:
        raise NotImplementedError("The operator 'aten::amin' is not implemented for small. Say so.\nAnd more")

    monkeypatch.setattr(devices, "nearest", missing)
    devices._fault.cache_clear()
    try:
        cpu, small = pair(compiled("lloyd"))
        inputs = problem("lloyd", "random", 20, 4, "float32")
        assert_same(cpu(inputs), small(inputs))
        assert "(The operator 'aten::amin' is not implemented for small): all ran on the CPU" in small.report.where
    finally:
        devices._fault.cache_clear()


# ---------------------------------------------------------------------- from outside
def test_the_command_line_says_what_ran_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = np.random.default_rng(0).integers(0, 4, size=(60, 2))
    table = tmp_path / "points.csv"
    table.write_text("a,b\n" + "\n".join(f"{a},{b}" for a, b in rows) + "\n")
    words = ["run", "lloyd", "--data", str(table), "-D", "k=3", "--backend", "planned", "--device", "small"]
    assert main([*words, "--dtype", "float32", "-o", str(tmp_path / "there")]) == 0
    assert f"  device     {SPLIT}\n" in capsys.readouterr().out
    assert scanned()
    words = words[:-2]
    assert main([*words, "--dtype", "float32", "-o", str(tmp_path / "here")]) == 0
    assert "device" not in capsys.readouterr().out
    for file in (tmp_path / "here").iterdir():
        assert file.read_bytes() == (tmp_path / "there" / file.name).read_bytes()
    assert main([*words, "--device", "small", "-o", str(tmp_path / "nowhere")]) == 1
    assert "device small:0 has no float64; use" in capsys.readouterr().err


def test_estimators_run_there() -> None:
    x = np.random.default_rng(0).integers(0, 5, size=(80, 2)).astype(np.float32)
    options: dict[str, Any] = {
        "spec": "lloyd",
        "n_clusters": 3,
        "dtype": "float32",
        "backend": "planned",
        "random_state": 0,
    }
    here, there = WeftClusterer(**options).fit(x), WeftClusterer(**options, device="small").fit(x)
    assert scanned()
    assert there.labels_.tolist() == here.labels_.tolist()
    assert there.cluster_centers_.tobytes() == here.cluster_centers_.tobytes()
