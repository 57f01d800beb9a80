"""A seed and a number -> a folder of models with known circuits, half of them to be looked into blindly.

    public/0001/    spec.weft, model.safetensors, inputs.safetensors, circuit.json
    hidden/0002/    model.safetensors and inputs.safetensors; no spec, no names
    answers/0002/   spec.weft and circuit.json, for those who score
    index.json      what there is, how large, and how disguised

Specs are those that ship and random ones; sizes, depths, styles and disguises vary. Every circuit was checked by
ablation; models whose circuit does not hold on the inputs tried, such as specs that compute what nothing depends on,
are not taken. The same seed gives the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from weftc.circuits.ablation import check
from weftc.circuits.circuit import Circuit, circuit
from weftc.circuits.nameless import nameless
from weftc.circuits.scoring import score
from weftc.compiling import checked_spec, compile
from weftc.core.errors import InputError, WeftError
from weftc.core.types import Checked
from weftc.files.locate import catalogue
from weftc.fuzz.specs import Drawn, draw
from weftc.variants.disguising import disguise
from weftc.verification.cases.inputs import Shape, open_sizes
from weftc.verification.cases.inputs import draw as draw_case
from weftc_runtime.errors import WeftRuntimeError
from weftc_runtime.format.checkpoint import Checkpoint

DISGUISES: Mapping[str, Mapping[str, Any]] = {  # what each is in the words of `weftc disguise`
    "superposed": {"superpose": True},
    "distractors": {"distract": 2},
    "heads split": {"split": 2},
    "heads mixed": {"gauge": True},
    "permuted": {"permute": True},
    "scaled": {"scale": True},
    "basis": {"rotate": True},
}
SMALLEST, LARGEST = 12, 400  # edges that there could be, inside and outside
CASES = 4  # inputs that every edge is cut on; twice as many where it has changed nothing
INPUTS = 8  # problems with every model
PARTS = ("public", "hidden")


@dataclass(frozen=True, slots=True)
class BenchmarkItem:
    """One model, the spec it was compiled from, its circuit, and inputs for it."""

    checked: Checked
    checkpoint: Checkpoint
    circuit: Circuit
    inputs: Mapping[str, npt.NDArray[np.float64]]  # "3.x": the input x of problem 3
    disguises: tuple[str, ...]
    shipped: bool


def make(count: int, folder: Path, seed: int = 0, tell: Any = None) -> dict[str, Any]:
    """Writes so many models into a folder that exists and is empty; what `index.json` says."""
    entries = []
    digits = max(4, len(str(count)))
    for number, item in enumerate(items(count, seed), start=1):
        name, part = f"{number:0{digits}}", PARTS[number % 2 == 0]
        entries.append(_save(folder, part, name, item))
        if tell is not None:
            tell(number, count)
    index = {"seed": seed, "count": count, "models": entries}
    (folder / "index.json").write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")
    return index


def items(count: int, seed: int) -> Iterator[BenchmarkItem]:
    """The models of a seed, one after the other."""
    found = number = 0
    while found < count:
        item = _drawn(seed, number)
        number += 1
        if item is not None:
            found += 1
            yield item


def judged(folder: Path, found: Mapping[str, Any], part: str = "public") -> dict[str, float]:
    """The mean scores of edges found, by the name of the model, over all models of a part; missing ones count as 0."""
    names = [
        model["name"] for model in json.loads((folder / "index.json").read_text())["models"] if model["part"] == part
    ]
    unknown = sorted(set(found) - set(names))
    if unknown:
        raise InputError(f"the {part} part of {folder} has no model {unknown[0]!r}")
    scores = [score(_known(folder, part, name), found[name]) for name in names if name in found]
    words = sorted({word for one in scores for word in one})
    return {"models": len(names)} | {word: sum(one.get(word, 0.0) for one in scores) / len(names) for word in words}


def _known(folder: Path, part: str, name: str) -> Circuit:
    return circuit(Checkpoint.load(folder / part / name / "model.safetensors"))


def _drawn(seed: int, number: int) -> BenchmarkItem | None:
    rng = Random(f"{seed}/{number}")
    shipped = rng.random() < 0.5
    layers, styles = rng.choice((1, 1, 2, 3)), {"scores": rng.choice(("l2", "dot"))}
    spec = _shipped(rng) if shipped else draw(seed, number)
    chosen = tuple(name for name in DISGUISES if rng.random() < 0.3)
    try:
        checkpoint = compile(spec.checked, spec.dims, layers=layers, **styles)  # type: ignore[arg-type]
        changes = {word: value for name in chosen for word, value in DISGUISES[name].items()}
        checkpoint = disguise(checkpoint, seed=rng.randrange(2**31), **changes)
        checkpoint = Checkpoint.from_bytes(checkpoint.to_bytes())
        found = circuit(checkpoint)
        if not SMALLEST <= len(found.candidates) <= LARGEST or not check(found, CASES, seed, rare=2).ok:
            return None
    except (WeftError, WeftRuntimeError):
        return None  # refused by the compiler, or not this disguise
    return BenchmarkItem(spec.checked, checkpoint, found, _inputs(spec, seed, number), chosen, shipped)


def _shipped(rng: Random) -> Drawn:
    checked = checked_spec(rng.choice([entry.name for entry in catalogue()]))
    counts = {size for size in checked.sets.values() if isinstance(size, str)}
    return Drawn(checked, {name: rng.choice((2, 3, 4) if name in counts else (1, 2, 3)) for name in checked.dims})


def _inputs(spec: Drawn, seed: int, number: int) -> dict[str, npt.NDArray[np.float64]]:
    rng = np.random.default_rng((seed, number))
    sizes = open_sizes(spec.checked, spec.dims, 1, rng)
    found: dict[str, npt.NDArray[np.float64]] = {}
    for at in range(INPUTS):
        case = draw_case(spec.checked, Shape(spec.dims, sizes), "random", rng)
        found |= {f"{at}.{name}": np.asarray(values, np.float64) for name, values in case.inputs.items()}
    return found


def _save(folder: Path, part: str, name: str, item: BenchmarkItem) -> dict[str, Any]:
    from safetensors.numpy import save

    home, inputs, checkpoint, found = folder / part / name, dict(item.inputs), item.checkpoint, item.circuit
    answers = home if part == "public" else folder / "answers" / name
    if part == "hidden":
        checkpoint = nameless(checkpoint)
        found = circuit(checkpoint)
        words = dict(zip((i.name for i in item.checkpoint.program.inputs), checkpoint.program.inputs, strict=True))
        inputs = {f"{key.split('.')[0]}.{words[key.split('.', 1)[1]].name}": rows for key, rows in inputs.items()}
    for one in {home, answers}:
        one.mkdir(parents=True)
    checkpoint.save(home / "model.safetensors")
    (home / "inputs.safetensors").write_bytes(save(dict(sorted(inputs.items()))))
    (answers / "circuit.json").write_text(found.written("json"), encoding="utf-8")
    (answers / "spec.weft").write_text(item.checked.spec.source.text, encoding="utf-8")
    program = checkpoint.program
    return {
        "name": name,
        "part": part,
        "layers": found.layers,
        "heads": sum(node.kind == "head" for node in found.nodes),
        "width": max(stream.width for stream in program.streams),
        "edges": len(found.edges),
        "candidates": len(found.candidates),
        "disguises": list(item.disguises),
        "shipped": item.shipped,
    }
