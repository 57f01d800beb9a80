"""The proof against changed models: a mutant that it calls proved must compute the same function.

The proof looks at what the weights compute and at nothing else. So every mutant that it lets pass is run beside the
original, and must be of a kind that is known to change nothing; the kinds and the reasons are listed here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

import pytest

from mutants import Behaviour, Mutant, loads, weight_mutants, wiring_mutants
from weft.compiling import checked_spec, compile
from weft.errors import WeftError
from weft.language.check import check
from weft.language.parse import parse
from weft.locate import find_spec
from weft.proof import prove
from weft.source import Source
from weft_runtime import Checkpoint

# Why a changed weight can leave the function as it is: use of the tensor, roles of the slots it connects -> reason.
EQUIVALENT: tuple[tuple[str, Callable[[tuple[str, ...]], bool]], ...] = (
    ("scratch is zero where it is read, and cleared where it is written", lambda kind: "scratch" in "|".join(kind[1:])),
    ("a derived slot is renewed after every step, whatever was there", lambda kind: "derived" in "|".join(kind[1:])),
    ("any threshold between 0 and 1 tells the two apart", lambda kind: kind[0].startswith("mask")),
    (
        "weights do not see this shift or scale of what they weigh",
        lambda kind: kind[0] in ("q", "k", "a", "b", "out", "coefficient", "row"),
    ),
    (
        "the field is set by a later sub-layer of the step",
        lambda kind: kind[0] in ("carry", "out") and "field" in kind[1],
    ),
    ("a constant that the prelude sets, or a field that it sets later", lambda kind: kind[0] in ("carry", "value")),
    ("a pattern is asked for its weights, not for its values", lambda kind: kind[0] == "value"),
)
# Why changed wiring can leave the function as it is.
REWIRED: Mapping[str, str] = {
    "sub-layer left out": "it renews derived slots, which happens after every step anyway; or reads out nothing",
    "step left out": "the same of a whole step; centring changes nothing in exact arithmetic",
    "steps swapped": "the two do not read what the other writes",
    "function": "it renews a derived slot that is renewed after the step anyway",
    "weighting": "weights of equal scores are even under either rule, and a single key has weight one",
    "ties": "the best key is unique: the token itself",
    "mask edge": "the score is never zero",
    "score part left out": "a shift that the weighting which reads the slot does not see",
    "embedding": "the first and only token is at position one",
    "contract": "an input that is declared positive already",
}

WEIGHTS = (
    ("lloyd", {}, 160),
    ("soft_kmeans", {}, 50),
    ("trimmed_kmeans", {"scores": "dot", "square": "relu2"}, 40),
    ("spherical_kmeans", {"erase": "attention"}, 40),
    ("sinkhorn_dual", {}, 40),
    ("weighted_kmeans", {}, 40),
    ("gmm_em", {}, 16),
)
WIRINGS = (("lloyd", {}), ("lloyd", {"erase": "attention"}), ("trimmed_kmeans", {}), ("soft_kmeans", {}))
MANY_WIRINGS = (
    ("soft_kmeans", {"scores": "dot"}),
    *((name, {}) for name in ("gmm_em", "sinkhorn_dual", "sort", "power_iteration", "kmedoids", "weighted_kmeans")),
    ("lloyd", {"scores": "dot", "square": "relu2"}),
    ("sinkhorn_log", {"scores": "dot"}),
    ("soft_spherical_kmeans", {"norm": "layer"}),
)


def made(name: str, styles: Mapping[str, str], d: int = 1) -> Checkpoint:
    checked = checked_spec(name)
    return compile(checked, {dim: 2 if dim == "k" else d for dim in checked.dims}, **styles)  # type: ignore[arg-type]


def survivors(name: str, original: Checkpoint, mutants: Iterable[Mutant]) -> Iterator[Mutant]:
    """The mutants that are called proved; each must behave as the original does."""
    behaviour = Behaviour(checked_spec(name), original)
    assert behaviour.same(original)
    killed = 0
    for mutant in mutants:
        file = loads(mutant)
        if file is None:
            continue
        proof = prove(file, slack=0.0)
        if proof.verdict == "not shown":
            killed += 1
            continue
        assert proof.verdict == "proved"
        assert behaviour.same(file), f"{mutant.change} changes the function, but is called proved"
        yield mutant
    assert killed > 5


def check_weights(name: str, styles: Mapping[str, str], count: int | None, seed: int = 0) -> None:
    original = made(name, styles)
    for mutant in survivors(name, original, weight_mutants(original, seed, count)):
        assert any(holds(mutant.kind) for _, holds in EQUIVALENT), f"{mutant.change} {mutant.kind}: no reason is known"


def check_wiring(name: str, styles: Mapping[str, str]) -> None:
    original = made(name, styles)
    for mutant in survivors(name, original, wiring_mutants(original)):
        word = mutant.change.removeprefix("derived ").split(":")[0]
        assert word in REWIRED, f"{mutant.change}: no reason is known"


@pytest.mark.parametrize(("name", "styles", "count"), WEIGHTS)
def test_changed_weights_are_caught(name: str, styles: Mapping[str, str], count: int | None) -> None:
    check_weights(name, styles, count)


@pytest.mark.parametrize(("name", "styles"), WIRINGS)
def test_changed_wiring_is_caught(name: str, styles: Mapping[str, str]) -> None:
    check_wiring(name, styles)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "styles"), [(name, styles) for name, styles, _ in WEIGHTS[:-1]])
def test_every_changed_weight_is_caught(name: str, styles: Mapping[str, str]) -> None:
    check_weights(name, styles, 600, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "styles"), MANY_WIRINGS)
def test_changed_wiring_of_more_specs_is_caught(name: str, styles: Mapping[str, str]) -> None:
    check_wiring(name, styles)


def test_a_weight_that_is_an_ulp_off_is_proved_up_to_that_ulp_only() -> None:
    original = made("lloyd", {})
    proofs = [prove(m.model) for m in weight_mutants(original, 0) if re.search(r"c\.v.*1\.0000000000000002", m.change)]
    assert proofs
    assert all(proof.verdict == "proved up to eps" and 1e-16 < proof.eps < 3e-16 for proof in proofs)


# ---- changed specs ---------------------------------------------------------------------------------------------------

SWAPS = (
    (" + ", " - "),
    (" - ", " + "),
    (" * ", " / "),
    (" / ", " * "),
    ("2", "3"),
    ("1", "2"),
    ("argmin", "argmax"),
    ("argmax", "argmin"),
    ("softmax", "sparsemax"),
    ("min[", "max["),
    ("mean[", "sum["),
    ("sum[", "mean["),
    ("lowest", "highest"),
    ("ties split", "ties first"),
    (" else c[j]", " else 0"),
    (" where y[i,j]", ""),
    ("weighted w[i] * y", "weighted y"),
    ("|x[i]", "|2 * x[i]"),
    ("0.9 ", "0.8 "),
    ("= 90", "= 80"),
    ("unit R", "R"),
    (": R^d\n", ": unit R^d\n"),
    ("init spread", "init random"),
    (" > 0", " >= 0"),
    ("logsumexp", "max"),
)
CHANGED = (
    "lloyd",
    "soft_kmeans",
    "trimmed_kmeans",
    "weighted_kmeans",
    "sinkhorn_dual",
    "kmedoids",
    "lloyd_split",
    "gmm_em",
)

# Changed texts that say the same for these dimensions and parameters, and why.
SAME: Mapping[str, Mapping[str, str]] = {
    "soft_kmeans": {"' / ' -> ' \\* '": "gamma is 1"},
    "kmedoids": {"'1' -> '2'": "1 - y and 2 - y differ by a shift, which no draw sees"},
}


def changed_texts(text: str) -> Iterator[tuple[str, str]]:
    """The text with one change in one place, as far as it is still a spec."""
    body = text.split("\nexample")[0]
    plain = re.sub(r"#.*|\"[^\"]*\"", lambda found: " " * len(found.group()), body)
    for old, new in SWAPS:
        for found in re.finditer(re.escape(old), plain):
            if old in "12" and re.match(r"[\w.]", plain[found.end() : found.end() + 1] or " "):
                continue
            if old in "12" and re.match(r"[\w.]", plain[found.start() - 1]):
                continue
            yield f"{old!r} -> {new!r} at {found.start()}", body[: found.start()] + new + body[found.end() :]


@pytest.mark.parametrize("name", CHANGED)
def test_a_model_does_not_prove_another_spec(name: str) -> None:
    text = find_spec(name).text
    original = made(name, {}, d=2)
    assert prove(original).verdict == "proved"
    wrong = 0
    for change, other in changed_texts(text):
        try:
            checked = check(parse(Source(name, other)))
            recompiled = compile(checked, original.dims)
        except WeftError:
            continue
        proof = prove(replace(original, spec_text=other))
        same = _proves_as_own(recompiled, original) or any(re.match(one, change) for one in SAME.get(name, {}))
        assert proof.verdict == "not shown" or same, f"{change} is another spec, but is called proved"
        wrong += proof.verdict == "not shown"
    assert wrong >= 5


def _proves_as_own(recompiled: Checkpoint, original: Checkpoint) -> bool:
    """Whether the compiler makes the same weights of the changed text: then it says the same."""
    same = recompiled.program == original.program and set(recompiled.tensors) == set(original.tensors)
    return same and all((recompiled.tensors[name] == array).all() for name, array in original.tensors.items())
