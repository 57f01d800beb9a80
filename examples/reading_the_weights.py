"""Reading the weights by hand: a compiled file, opened without Weft, and one layer of it redone in NumPy.

    python examples/reading_the_weights.py

Compiles `lloyd` for points in the plane and three centers; from there on the file is read with safetensors and json
alone. Printed: the slots of both residual streams, and every matrix of the two heads, row by row, in the names of the
slots it reads. Then the layer is redone by hand, as the docstring of weftc_runtime/format/program.py states it, and
compared with the model: the points have few binary digits, so that sums are exact, and not a bit may differ.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file

import weftc


def opened(path: Path) -> tuple[dict, dict[str, np.ndarray]]:
    """The program and the tensors of a file."""
    with safe_open(path, framework="numpy") as file:
        return json.loads(file.metadata()["weftc"])["program"], load_file(path)


def rows(matrix: np.ndarray, reads: list[str], writes: list[str] | None = None) -> str:
    """A matrix as what each of its rows computes from slots, and into which slot it goes."""
    said = []
    for at, row in enumerate(matrix):
        terms = [
            reads[column] if row[column] == 1 else f"{row[column]:g} {reads[column]}" for column in np.flatnonzero(row)
        ]
        if terms:
            said.append((f"{writes[at]} <- " if writes else "") + " + ".join(terms))
    return ", ".join(said)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lloyd.safetensors"
        weftc.compile("lloyd", {"d": 2, "k": 3}).save(path)
        program, tensors = opened(path)
        model = weftc.load(path)
    columns = {}
    for stream in program["streams"]:
        slots = [(slot["name"], slot["width"]) for slot in stream["slots"]]
        columns[stream["name"]] = [f"{name}.{at}" if many > 1 else name for name, many in slots for at in range(many)]
        print(f"stream {stream['name']}: {' '.join(columns[stream['name']])}")
    assign, update = (step["sublayers"][0] for step in program["layer"])
    for sublayer, (head,) in ((assign, assign["heads"]), (update, update["heads"])):
        query, keys = columns[head["query"]], columns[head["keys"]]
        print(f"\nhead {head['name']}: {head['query']} <- {head['keys']}, {head['weighting']['kind']}")
        parts = {"": head["score"], **{f"mask {m['op']} 0: ": m["score"] for m in head["masks"]}}
        for title, score in parts.items():
            (part,) = score["parts"]
            print(f"  {title}{part['kind']}  Q = {rows(tensors[part['q']], query)}")
            print(f"  {' ' * len(title)}{part['kind']}  K = {rows(tensors[part['k']], keys)}")
        print(f"  V: {rows(tensors[head['value']], keys, query)}")
        print(f"  kept: {rows(tensors[sublayer['carry'][head['query']]], query)}")

    rng = np.random.default_rng(0)
    x, c = (np.round(rng.normal(size=(many, 2)) * 64) / 64 for many in (40, 3))
    t = tensors
    points = np.concatenate([x, np.zeros((40, 3)), np.ones((40, 1)), np.zeros((40, 1))], axis=1)
    centers = np.concatenate([c, np.eye(3), np.ones((3, 1))], axis=1)
    # head y: distances of Q z and K z', the nearest key, its value V z'
    gaps = (points @ t["layer.0.0.y.l2.0.q"].T)[:, None] - (centers @ t["layer.0.0.y.l2.0.k"].T)[None]
    nearest = np.argmax(t["layer.0.0.y.l2.0.c"] * (gaps**2).sum(axis=2), axis=1)
    points = points @ t["layer.0.0.carry.points"].T + centers[nearest] @ t["layer.0.0.y.v"].T
    # head c: the mean of V z' over the keys that the mask lets through, else the center itself
    members = (centers @ t["layer.1.0.c.mask.0.q"].T) @ (points @ t["layer.1.0.c.mask.0.k"].T).T > 0
    scores = np.where(members, (centers @ t["layer.1.0.c.q"].T) @ (points @ t["layer.1.0.c.k"].T).T, 0)
    total = scores.sum(axis=1, keepdims=True)
    mean = scores @ (points @ t["layer.1.0.c.v"].T) / np.where(total > 0, total, 1)
    kept = np.where(total > 0, mean, centers @ t["layer.1.0.c.self.v"].T)
    centers = centers @ t["layer.1.0.carry.centers"].T + kept

    answer = model(x=x, c=c, layers=1)
    same = np.array_equal(points[:, 2:5], answer["labels"]) and np.array_equal(centers[:, :2], answer["centers"])
    print(f"\nby hand and by the model: {'the same bits' if same else 'DIFFERENT'}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
