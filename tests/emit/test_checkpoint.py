"""Checkpoints: one reproducible file, everything checked before use, nothing but ModelError for what is wrong."""

from __future__ import annotations

import json
import os
import random
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save as save_arrays

from programs import dual_ascent, hard_clustering, largest, with_objective
from weftc_runtime.errors import ModelError
from weftc_runtime.format.checkpoint import Checkpoint
from weftc_runtime.format.codec import decode_program, encode
from weftc_runtime.format.program import FORMAT, Slot, Weighting

GOOD = with_objective(hard_clustering(2, 3, style="dot", layers=4))


def unpack(data: bytes) -> tuple[dict[str, Any], bytes]:
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def pack(header: Any, body: bytes) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def edit(change: Callable[[dict[str, Any]], None]) -> bytes:
    """A valid file with its document changed."""
    header, body = unpack(GOOD.to_bytes())
    document = json.loads(header["__metadata__"]["weftc"])
    change(document)
    header["__metadata__"]["weftc"] = json.dumps(document)
    return pack(header, body)


def edit_program(change: Callable[[dict[str, Any]], None]) -> bytes:
    return edit(lambda document: change(document["program"]))


# ---------------------------------------------------------------------- good files
@pytest.mark.parametrize(
    "checkpoint",
    [
        GOOD,
        dual_ascent(3, 0.1),
        largest("exp", 3, noisy=True),
        hard_clustering(1, 2, update=Weighting("top", percent=Fraction(1, 3))),
        hard_clustering(1, 2, update=Weighting("normmax", gamma=Fraction(0.1))),
        hard_clustering(1, 2, weighting=Weighting("argmax", "within", Fraction(1, 10))),
    ],
    ids=lambda c: c.program.name,
)
def test_a_file_gives_back_what_was_saved(checkpoint: Checkpoint, tmp_path: Path) -> None:
    checkpoint = replace(checkpoint, params={"gamma": 0.1, "tau": 1e-300})
    checkpoint.save(tmp_path / "model.safetensors")
    again = Checkpoint.load(tmp_path / "model.safetensors")
    assert again.program == checkpoint.program
    assert (again.spec_text, again.dims, again.params) == (checkpoint.spec_text, checkpoint.dims, checkpoint.params)
    assert set(again.tensors) == set(checkpoint.tensors)
    for name, array in checkpoint.tensors.items():
        assert np.array_equal(again.tensors[name], array)
    assert again.to_bytes() == checkpoint.to_bytes()


def test_the_same_model_gives_the_same_bytes_whatever_the_order() -> None:
    turned = replace(GOOD, tensors=dict(reversed(GOOD.tensors.items())))
    assert turned.to_bytes() == GOOD.to_bytes()
    assert hard_clustering(3, 2).to_bytes() == hard_clustering(3, 2).to_bytes()


def test_the_same_bytes_in_another_process() -> None:
    code = "import hashlib, programs; print(hashlib.sha256(programs.dual_ascent(2).to_bytes()).hexdigest())"
    runs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[1])},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(runs) == 1


def test_other_readers_can_open_it(tmp_path: Path) -> None:
    GOOD.save(tmp_path / "m.safetensors")
    with safe_open(tmp_path / "m.safetensors", "np") as file:
        assert set(file.keys()) == set(GOOD.tensors)
        assert list(file.metadata()) == ["weftc"]
        assert np.array_equal(file.get_tensor("assign.q"), GOOD.tensors["assign.q"])


def test_edited_weights_are_legitimate() -> None:
    header, body = unpack(GOOD.to_bytes())
    begin, _ = header["assign.q"]["data_offsets"]
    changed = body[:begin] + struct.pack("<d", 2.5) + body[begin + 8 :]
    assert Checkpoint.from_bytes(pack(header, changed)).tensors["assign.q"].flat[0] == 2.5


def test_a_program_survives_json() -> None:
    for checkpoint in (GOOD, dual_ascent(2)):
        assert decode_program(json.loads(json.dumps(encode(checkpoint.program)))) == checkpoint.program


def test_saving_is_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "m.safetensors"
    GOOD.save(target)
    before = target.read_bytes()
    broken = replace(GOOD, tensors={**GOOD.tensors, "assign.q": np.full((3, 7), np.nan)})
    with pytest.raises(ModelError):
        broken.save(target)
    assert target.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["m.safetensors"]
    with pytest.raises(ModelError, match="cannot be written"):
        GOOD.save(tmp_path / "no" / "such" / "folder.safetensors")


def test_importing_the_file_format_does_not_import_torch() -> None:
    code = (
        "import sys, weftc_runtime, weftc_runtime.format.program, weftc_runtime.format.checkpoint;"
        "import weftc_runtime.data.noise, weftc_runtime.data.initial;"
        "assert not {'torch', 'lark', 'networkx', 'sklearn', 'ot', 'weftc'} & set(sys.modules), 'too much';"
        "weftc_runtime.load; assert 'torch' in sys.modules and 'weftc' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# ---------------------------------------------------------------------- files that are no models
def deep(document: dict[str, Any]) -> None:
    nested: Any = 1
    for _ in range(100):
        nested = [nested]
    document["dims"] = nested


def moved() -> bytes:
    """A file in which two tensors of one size share their bytes."""
    header, body = unpack(GOOD.to_bytes())
    header["assign.k"]["data_offsets"] = header["assign.q"]["data_offsets"]
    return pack(header, body)


def infinite() -> bytes:
    """A parameter that JSON can write but float64 cannot hold."""
    header, body = unpack(edit(lambda document: document.update(params={"g": 12345})))
    header["__metadata__"]["weftc"] = header["__metadata__"]["weftc"].replace("12345", "1e999")
    return pack(header, body)


BAD_FILES: list[tuple[str, bytes, str]] = [
    ("empty", b"", "the file is empty"),
    ("five bytes", b"hello", "shorter than 8 bytes"),
    ("text", b"algorithm lloyd\ntokens i in points\n" * 10, "not a safetensors file"),
    ("zip", b"PK\x03\x04" + bytes(100), "not a safetensors file"),
    ("header beyond the file", struct.pack("<Q", 1000) + b"{}", "cut off"),
    ("huge header", struct.pack("<Q", 1 << 40) + b"{}", "longer than 16 MB"),
    ("header no text", pack(b"\xff\xfe\xfd", b""), "not text"),
    ("header no json", pack(b"{'a': 1}", b""), "not valid JSON"),
    ("header a list", pack(b"[1, 2]", b""), "not an object"),
    ("header doubled key", pack(b'{"a": 1, "a": 2}', b""), "twice"),
    ("foreign", save_arrays({"w": np.zeros(3)}), "not one that Weft wrote"),
    ("foreign metadata", save_arrays({"w": np.zeros(3)}, metadata={"format": "pt"}), "not one that Weft wrote"),
    ("float32", save_arrays({"w": np.zeros(3, np.float32)}, metadata={"weftc": "{}"}), "stored as F32"),
    ("overlap", moved(), "overlaps another or leaves a gap"),
    ("cut off", GOOD.to_bytes()[:-9], "cut off"),
    ("appended", GOOD.to_bytes() + b"12345678", "8 bytes that belong to no tensor"),
    ("newer", edit(lambda d: d.update(format=FORMAT + 1)), f"format {FORMAT + 1}.*newer"),
    ("no version", edit(lambda d: d.update(format="one")), "format version"),
    ("no program", edit(lambda d: d.pop("program")), "must have exactly"),
    ("changed spec", edit(lambda d: d["spec"].update(text="algorithm other")), "sha256"),
    ("bad dims", edit(lambda d: d.update(dims={"d": 1.5})), "dims.d must be a whole number"),
    ("infinite params", infinite(), "params.g must be a number"),
    ("bad params", edit(lambda d: d.update(params={"g": "1"})), "params.g must be a number"),
    ("deep", edit(deep), "nested deeper"),
    ("surrogate", edit(lambda d: d["spec"].update(text="\ud800")), "Unicode"),
]


@pytest.mark.parametrize(("data", "message"), [row[1:] for row in BAD_FILES], ids=[row[0] for row in BAD_FILES])
def test_files_that_are_no_models(data: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.safetensors"
    path.write_bytes(data)
    with pytest.raises(ModelError, match=message) as caught:
        Checkpoint.load(path)
    assert "bad.safetensors" in str(caught.value)
    with pytest.raises(ModelError, match=message):
        Checkpoint.from_bytes(data)


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such file"):
        Checkpoint.load(tmp_path / "none.safetensors")
    with pytest.raises(ModelError, match="no ordinary file"):
        Checkpoint.load(tmp_path)


# ---------------------------------------------------------------------- programs that do not hold together
def at(*path: str | int) -> Callable[[dict[str, Any]], Any]:
    def get(program: dict[str, Any]) -> Any:
        for key in path:
            program = program[key]  # type: ignore[index]
        return program

    return get


def change(*path: str | int, **entries: Any) -> Callable[[dict[str, Any]], None]:
    return lambda program: at(*path)(program).update(entries)


ERASING = {"erase": "attention"}
CONDITION = {"kind": "distinct", "stream": "points", "slots": ["x"], "text": "points must differ", "limit": 0.0}
ASSIGN = ("layer", 0, "sublayers", 0, "heads", 0)
UPDATE = ("layer", 1, "sublayers", 0, "heads", 0)

BAD_PROGRAMS: list[tuple[str, Callable[[dict[str, Any]], None], str]] = [
    ("unknown entry", change(shape=3), "unknown entry shape"),
    ("missing entry", lambda p: p["streams"][0].pop("size"), r"streams.0 lacks size"),
    ("wrong type", change("streams", 0, size="5"), "streams.0.size must be an integer"),
    ("wrong literal", change(*ASSIGN, "weighting", kind="median"), "weighting.kind is 'median'"),
    ("no streams", change(streams=[]), "0 streams"),
    ("too many streams", lambda p: p.update(streams=p["streams"] * 50), "100 streams"),
    ("stream twice", lambda p: p["streams"][1].update(name="points"), "stream points appears twice"),
    ("slot twice", change("streams", 0, "slots", 1, name="x"), "field slot x appears twice"),
    ("slot gap", change("streams", 0, "slots", 1, offset=3), "slot y of stream points starts at column 3"),
    ("slot overlap", change("streams", 0, "slots", 1, offset=1), "starts at column 1"),
    ("slot width", change("streams", 0, "slots", 0, width=0), "has width 0"),
    ("slot huge", change("streams", 0, "slots", 3, width=1 << 40), "wider than"),
    ("size zero", change("streams", 1, size=0), "has size 0"),
    ("query unknown", change(*ASSIGN, query="pixels"), "stream pixels that does not exist"),
    ("head writes", change(*ASSIGN, writes=["q"]), "slot q that stream points does not have"),
    ("head twice", lambda p: p["layer"][0]["sublayers"][0]["heads"].append(at(*ASSIGN)(p)), "appears twice"),
    ("step writes", change("layer", 0, writes=[["points", "one"]]), "writes slot one, which is constant"),
    ("mask other", change(*UPDATE, "masks", 0, op="other"), "different streams"),
    ("top alone", change(*ASSIGN, "weighting", kind="top"), "count or a percentage"),
    ("top zero", change(*ASSIGN, "weighting", kind="top", count=0), "at least 1"),
    ("top percent", change(*ASSIGN, "weighting", kind="top", percent="101/1"), "from 0 to 100"),
    ("fraction", change(*ASSIGN, "weighting", kind="top", percent="1/0"), "fraction"),
    ("normmax", change(*ASSIGN, "weighting", kind="normmax"), "gamma above 0"),
    ("epsilon", change(*ASSIGN, "weighting", epsilon="1/2"), "without `ties within`"),
    ("ties", change(*UPDATE, "weighting", ties="split"), "has no tie rule"),
    ("l2 without c", lambda p: at(*ASSIGN, "score", "parts", 0)(p).update(kind="l2"), "without a coefficient"),
    ("tensor missing", change(*ASSIGN, value="nothing"), "nothing, which is not in the file"),
    ("tensor unused", lambda p: p["readout"].clear(), "tensor cost.carry is not used"),
    ("constant twice", change("streams", 1, "slots", 2, name="one"), "slot of stream centers one appears twice"),
    ("tensor shape", change(*ASSIGN, value="assign.q"), r"tensor assign.q has shape \(3, 7\), but .* needs \(7, 7\)"),
    ("rows differ", lambda p: at(*ASSIGN, "score", "parts", 0)(p).update(k="update.q"), "assign.score.0.k needs"),
    (
        "derived lost",
        lambda p: p["streams"][1]["derived"].clear(),
        "derived slot c2 of stream centers is never computed",
    ),
    ("derived writes", change("streams", 1, "derived", 0, writes=["c"]), "writes slot c, which is field"),
    ("ffn b", change("streams", 1, "derived", 0, b=None), "lacks its tensor b"),
    ("ffn no b", change("streams", 1, "derived", 0, function="exp"), "tensor b it cannot use"),
    ("sub-layer", lambda p: p["layer"][0]["sublayers"][0].update(sublayer="conv"), "known are attend, ffn"),
    ("embedding", lambda p: p["embedding"].pop(0), "input x is never embedded"),
    ("embedding twice", lambda p: p["embedding"].append(p["embedding"][0]), "appears twice"),
    ("identity", lambda p: p["streams"][1].update(size=4), "has width 3 for 4 tokens"),
    ("input slot", change("inputs", 1, slot="id", init=None), "belongs to slot id"),
    ("init", change("inputs", 1, init=["guess", "x"]), "starts by guess"),
    ("init source", change("inputs", 1, init=["first", "z"]), "which is no input"),
    ("output twice", lambda p: p["outputs"].append(p["outputs"][0]), "output centers appears twice"),
    ("output slot", change("outputs", 0, slot="y"), "slot y that stream centers does not have"),
    ("output again", change("outputs", 1, again=2), "a layer has 2 steps"),
    ("output number", change("outputs", 0, kind="number"), "its slot has width 2"),
    ("pattern", change("outputs", 0, kind="pattern"), "pattern without a head"),
    ("layers", change(layers=-1), "-1 layers"),
    ("condition", change(conditions=[CONDITION | {"slots": ["q"]}], options=ERASING), "condition 0 names a slot q"),
    ("condition of no style", change(conditions=[CONDITION]), r"condition 0 \(distinct\) belongs to erase=attention"),
    (
        "condition of another style",
        change(conditions=[CONDITION | {"kind": "bounded"}], options=ERASING),
        r"condition 0 \(bounded\) belongs to members=offset",
    ),
    ("condition of nothing", change(conditions=[CONDITION | {"slots": []}]), "condition 0 names no slot"),
    ("condition unknown", change(conditions=[CONDITION | {"kind": "sorted"}]), "kind is 'sorted'; known are distinct"),
    ("unrolled", change(options={"weights": "unrolled"}, layers=3), "do not divide"),
]


@pytest.mark.parametrize(("edit_it", "message"), [r[1:] for r in BAD_PROGRAMS], ids=[r[0] for r in BAD_PROGRAMS])
def test_programs_that_do_not_hold_together(edit_it: Callable[[dict[str, Any]], None], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        Checkpoint.from_bytes(edit_program(edit_it))


def test_values_are_checked() -> None:
    with pytest.raises(ModelError, match=r"assign\.k holds a value that is not finite"):
        replace(GOOD, tensors={**GOOD.tensors, "assign.k": np.full((3, 7), np.inf)}).to_bytes()
    cyclic = np.array(GOOD.tensors["centers.c2.a"])
    cyclic[0, -1] = 1.0
    with pytest.raises(ModelError, match=r"derived\.0 reads derived slot c2 before it is computed"):
        replace(GOOD, tensors={**GOOD.tensors, "centers.c2.a": cyclic}).to_bytes()
    with pytest.raises(ModelError, match="not finite"):
        replace(GOOD, params={"gamma": float("nan")}).to_bytes()


def test_verify_names_what_is_wrong_without_tensors() -> None:
    stream = GOOD.program.streams[0]
    wrong = replace(stream, slots=(*stream.slots, Slot("more", 99, 1, "field")))
    with pytest.raises(ModelError, match="slot more"):
        replace(GOOD.program, streams=(wrong, GOOD.program.streams[1])).verify()
    GOOD.program.verify()


# ---------------------------------------------------------------------- damage of all kinds
def test_damaged_files_give_success_or_a_model_error() -> None:
    data = GOOD.to_bytes()
    rng = random.Random(5)
    outcomes = {"loaded": 0, "refused": 0}
    for trial in range(600):
        damaged = bytearray(data)
        if trial % 3 == 0:
            del damaged[rng.randrange(len(damaged)) :]
        for _ in range(rng.choice((1, 1, 2, 20)) if trial % 3 else 0):
            damaged[rng.randrange(min(len(damaged), 12000) if trial % 2 else len(damaged))] = rng.randrange(256)
        try:
            Checkpoint.from_bytes(bytes(damaged))
            outcomes["loaded"] += 1
        except ModelError:
            outcomes["refused"] += 1
    assert outcomes["loaded"] > 20
    assert outcomes["refused"] > 200


def test_damaged_documents_give_success_or_a_model_error() -> None:
    """Random changes inside the JSON, which single bytes rarely survive to reach."""
    header, body = unpack(GOOD.to_bytes())
    rng = random.Random(6)
    outcomes = {"loaded": 0, "refused": 0}
    values: list[Any] = [None, 0, -1, 1.5, "", "x", [], {}, True, [[]], 1 << 70, "points", "1/2", "c2"]
    for _ in range(600):
        document = json.loads(header["__metadata__"]["weftc"])
        node: Any = document
        while True:
            keys = list(node) if isinstance(node, dict) else range(len(node))
            key = rng.choice(list(keys))
            if isinstance(node[key], dict | list) and node[key] and rng.random() < 0.85:
                node = node[key]
                continue
            node[key] = rng.choice(values)
            break
        changed = {**header, "__metadata__": {"weftc": json.dumps(document)}}
        try:
            Checkpoint.from_bytes(pack(changed, body))
            outcomes["loaded"] += 1
        except ModelError:
            outcomes["refused"] += 1
    assert outcomes["loaded"] > 20
    assert outcomes["refused"] > 200
