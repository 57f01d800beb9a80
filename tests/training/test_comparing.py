"""Learned attention beside compiled attention: heads find each other, distances are what they are."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import weftc
import weftc_runtime
from weftc.cli import main
from weftc.core.errors import InputError
from weftc.variants.attention import far, matched, model_of, patterns_of, recorded

RNG = np.random.default_rng(0)


def shares(*shape: int) -> NDArray[np.float64]:
    made = RNG.random(shape)
    out: NDArray[np.float64] = made / made.sum(-1, keepdims=True)
    return out


def test_heads_find_each_other_in_any_order_and_depth() -> None:
    known = {f"h{n}": tuple(shares(3, 5, 4)) for n in range(4)}
    order = [2, 0, 3, 1]
    shuffled = {f"g{n}": tuple(np.repeat(np.array(known[f"h{n}"]), 2, axis=0)[:5]) for n in order}
    found = matched(known, {**shuffled, "wide": tuple(shares(5, 5, 9))}, wanted=known["h1"][0])
    assert {(m.head, m.other) for m in found.matches} == {(f"h{n}", f"g{n}") for n in order}
    assert all(m.apart[0] == 0 and m.layers == (0, 2, 4) for m in found.matches)
    assert found.alone == ((), ("wide",))
    assert found.optimum[0]["h1"][0] == 0
    assert found.optimum[1]["g1"][2] == pytest.approx(far(known["h1"][1], known["h1"][0]))


def test_null_keys_do_not_count() -> None:
    tokens, share = shares(2, 5, 4), RNG.random((2, 5, 1))
    weaker = np.concatenate([tokens * share, 1 - share], axis=2)
    for other in (weaker, weaker[..., :-1]):
        (match,) = matched({"a": tuple(tokens)}, {"b": tuple(other)}).matches
        assert match.distance == pytest.approx(0, abs=1e-15)


def test_a_distance_is_the_share_of_the_weight_that_moves() -> None:
    one, other = np.eye(3), np.eye(3)[[1, 2, 0]]
    assert far(one, one) == 0
    assert far(one, other) == 1
    assert far(one, (one + other) / 2) == 0.5


def test_models_are_compared_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = RNG.normal(size=(9, 2))
    np.savetxt(tmp_path / "x.csv", x, delimiter=",")
    for name, gamma in (("one", 1.0), ("two", 2.0)):
        made = weftc.compile("soft_kmeans", {"d": 2, "k": 3}, {"gamma": gamma}, layers=2)
        made.save(tmp_path / f"{name}.safetensors")
    one, two = (patterns_of(model_of(tmp_path / f"{name}.safetensors"), {"x": x}) for name in ("one", "two"))
    both = [f"{tmp_path}/one.safetensors", f"{tmp_path}/two.safetensors", "--data", f"{tmp_path}/x.csv"]
    assert main(["compare", *both, "-o", f"{tmp_path}/a.png", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {m["head"]: m["other"] for m in told["matches"]} == {"blocks.0.y": "blocks.0.y", "blocks.1.c": "blocks.1.c"}
    apart = {m["head"]: m["layers"] for m in told["matches"]}
    assert apart["blocks.0.y"] == pytest.approx(
        [far(a, b) for a, b in zip(one["blocks.0.y"], two["blocks.0.y"], strict=True)]
    )
    assert (tmp_path / "a.png").stat().st_size > 1000
    np.save(tmp_path / "other.npy", np.array(one["blocks.0.y"])[:, None])
    assert main(["compare", both[0], f"{tmp_path}/other.npy", *both[2:], "--json"]) == 0
    (match,) = json.loads(capsys.readouterr().out)["matches"]
    assert match["distance"] == pytest.approx(0, abs=1e-12)
    # the function behind the command: loaded models, checkpoints and recorded arrays
    loaded = weftc.load(tmp_path / "two.safetensors")
    found = weftc.compare(weftc_runtime.Checkpoint.load(tmp_path / "one.safetensors"), loaded, {"x": x})
    assert {m.head: list(m.apart) for m in found.matches} == {head: pytest.approx(far) for head, far in apart.items()}
    found = weftc.compare(loaded, np.array(two["blocks.0.y"]), {"x": x}, optimum=two["blocks.0.y"][1])
    assert found.matches[0].apart == pytest.approx((0, 0), abs=1e-12)
    step = far(two["blocks.0.y"][0], two["blocks.0.y"][1])
    assert found.optimum[0]["blocks.0.y"] == pytest.approx((step, 0), abs=1e-12)
    assert str(found).startswith("heads that attend most alike")


def test_what_is_no_attention_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", RNG.normal(size=(2, 1, 3, 3)))
    with pytest.raises(InputError, match="is no attention"):
        recorded(tmp_path / "a.npy")
    np.save(tmp_path / "a.npy", np.eye(3))
    with pytest.raises(InputError, match="layers, heads, queries, keys"):
        recorded(tmp_path / "a.npy")
    with pytest.raises(InputError, match="no head of the one"):
        matched({"a": (np.eye(3),)}, {"b": (np.eye(4),)})
