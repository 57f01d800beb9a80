"""What a prelude wrote serves the next run of the same sizes; answers belong to who asked."""

from __future__ import annotations

import torch

import weftc
from weftc_runtime.exact.weights import Weights
from weftc_runtime.machines.kept_prelude import follows_from_sizes


def test_runs_of_several_sizes_begin_as_the_reference_does() -> None:
    file = weftc.compile("gmm_em", {"d": 2, "k": 3})
    planned, literal = weftc.load(file), weftc.load(file, backend="reference")
    chance = torch.Generator().manual_seed(0)
    for tokens in (40, 40, 30, 40):
        x = torch.randn(tokens, 2, generator=chance, dtype=torch.float64)
        one, other = (model(x=x, c=x[:3], layers=0) for model in (planned, literal))
        assert torch.equal(one["weights"], other["weights"])
        assert planned.report.heads == literal.report.heads
        one["weights"].zero_()
        one, other = (model(x=x, c=x[:3], layers=3) for model in (planned, literal))
        assert torch.allclose(one["means"], other["means"], rtol=1e-13, atol=1e-13)


def test_weights_that_changed_begin_anew() -> None:
    model = weftc.load(weftc.compile("gmm_em", {"d": 2, "k": 3}))
    x = torch.randn(20, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    before = model(x=x, c=x[:3], layers=0)["weights"].clone()
    for name in model._tensors():
        if name.startswith("start."):
            model.tensor(name).data.mul_(2)
    assert not torch.equal(model(x=x, c=x[:3], layers=0)["weights"], before)


def test_a_prelude_that_reads_inputs_is_run_every_time() -> None:
    for spec in ("gmm_em", "lloyd"):
        program = weftc.compile(spec, {"d": 2, "k": 3}).program
        tensors = {name: torch.as_tensor(a) for name, a in weftc.compile(spec, {"d": 2, "k": 3}).tensors.items()}
        assert follows_from_sizes(program, Weights(tensors)) == (spec == "gmm_em")
