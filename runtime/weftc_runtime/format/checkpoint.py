"""A model on disk: one safetensors file, float64 tensors, and one metadata key `weftc` with everything else as JSON.

Reading trusts nothing: sizes, depth, counts, names, shapes and references are checked from the header before any
tensor is read, values after. The same model always gives the same bytes. Edited weights are legitimate: there is no
digest over them, only over the text of the spec. Nothing is ever unpickled or executed.
"""

from __future__ import annotations

import io
import json
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from math import isfinite, prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from weftc_runtime.errors import ModelError, need, shown
from weftc_runtime.format.codec import decode_program, dumps, encode, loads
from weftc_runtime.format.program import FORMAT, Program
from weftc_runtime.format.structure import one_at_a_time, shapes
from weftc_runtime.format.tensor_checks import check_values
from weftc_runtime.format.validate import verify
from weftc_runtime.format.whole_file import whole_file

MAX_HEADER = 16 << 20  # bytes of the JSON header
MAX_TENSORS = 1 << 18
KEY = "weftc"

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """A compiled model: program, tensors, and where it came from."""

    program: Program
    tensors: Mapping[str, Array]
    spec_name: str = ""
    spec_text: str = ""
    dims: Mapping[str, int] = field(default_factory=dict)
    params: Mapping[str, float] = field(default_factory=dict)
    compiler: str = ""

    def __repr__(self) -> str:
        from weftc_runtime.format.display import checkpoint_line

        return f"Checkpoint({checkpoint_line(self)})"

    def _repr_html_(self) -> str:
        from weftc_runtime.format.display import checkpoint_html

        return checkpoint_html(self)

    def to_bytes(self) -> bytes:
        """The file as bytes; the same checkpoint always gives the same ones."""
        return b"".join(self._pieces())

    def _pieces(self) -> Iterator[bytes | memoryview]:
        """The file from its beginning to its end, one matrix at a time, as safetensors lays it out."""
        tensors, sizes = one_at_a_time(self.tensors), shapes(self.tensors)
        verify(self.program, sizes)
        check_values(self.program, tensors)
        metadata = {
            "format": FORMAT,
            "program": encode(self.program),
            "spec": {"name": self.spec_name, "text": self.spec_text, "sha256": _digest(self.spec_text)},
            "dims": dict(self.dims),
            "params": dict(self.params),
            "compiler": self.compiler,
        }
        header: dict[str, Any] = {"__metadata__": {KEY: dumps(metadata)}}
        at = 0
        for name in sorted(sizes):
            begin, at = at, at + 8 * prod(sizes[name])
            header[name] = {"dtype": "F64", "shape": list(sizes[name]), "data_offsets": [begin, at]}
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        text += b" " * (-len(text) % 8)
        need(len(text) <= MAX_HEADER, f"the description of this model is larger than {MAX_HEADER >> 20} MB")
        yield struct.pack("<Q", len(text)) + text
        for name in sorted(sizes):
            yield np.ascontiguousarray(tensors[name], dtype="<f8").reshape(-1).data

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the file whole or not at all: a temporary file in the same folder, then a rename."""
        target = Path(path)
        pieces = self._pieces()
        first = next(pieces)  # it fails, if at all, before there is a file
        try:
            with whole_file(target) as part, part.open("wb") as file:
                file.write(first)
                file.writelines(pieces)
        except OSError as error:
            raise ModelError(f"{target}: cannot be written ({error.strerror})") from None

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled by others, it is the bytes of its file: they are checked like those of any file."""
        return Checkpoint.from_bytes, (self.to_bytes(), self.spec_name or "model")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Checkpoint:
        """Reads and checks a file."""
        source = Path(path)
        if not source.is_file():
            raise ModelError(f"{source}: {'is no ordinary file' if source.exists() else 'no such file'}")
        try:
            with source.open("rb") as file:
                return _read(file, source.stat().st_size, shown(source, 200))
        except OSError as error:
            raise ModelError(f"{source}: cannot be read ({error.strerror})") from None

    @classmethod
    def from_bytes(cls, data: bytes, name: str = "model") -> Checkpoint:
        """Reads and checks the bytes of a file."""
        return _read(io.BytesIO(data), len(data), name)


def _digest(text: str) -> str:
    try:
        return sha256(text.encode()).hexdigest()
    except UnicodeEncodeError:
        raise ModelError("the spec text is not valid Unicode") from None


def _read(file: BinaryIO, size: int, name: str) -> Checkpoint:
    try:
        header, start = _header(file, size)
        shapes, spans = _entries(header, size - start)
        checkpoint = _document(header)
        verify(checkpoint["program"], shapes)
        tensors = _tensors(file, start, shapes, spans)
        check_values(checkpoint["program"], tensors)
    except ModelError as error:
        raise ModelError(f"{name}: {error}") from None
    return Checkpoint(tensors=tensors, **checkpoint)


def _header(file: BinaryIO, size: int) -> tuple[dict[str, Any], int]:
    need(size > 0, "the file is empty")
    first = file.read(8)
    need(len(first) == 8, "not a safetensors file: it is shorter than 8 bytes")
    (length,) = struct.unpack("<Q", first)
    too_long = f"not a safetensors file, or its header is longer than {MAX_HEADER >> 20} MB"
    need(2 <= length <= MAX_HEADER, too_long)
    need(8 + length <= size, f"the file is cut off: its header needs {8 + length} bytes, it has {size}")
    raw = file.read(length)
    need(len(raw) == length, "the file is cut off inside its header")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise ModelError("not a safetensors file: its header is not text") from None
    header = loads(text, "the header")
    if not isinstance(header, dict):
        raise ModelError("not a safetensors file: its header is not an object")
    return header, 8 + length


def _entries(header: dict[str, Any], room: int) -> tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, int]]]:
    """Shapes and byte ranges of the tensors; together the ranges fill the rest of the file without a gap."""
    entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
    need(len(entries) <= MAX_TENSORS, f"{len(entries)} tensors; the limit is {MAX_TENSORS}")
    shapes: dict[str, tuple[int, ...]] = {}
    spans: dict[str, tuple[int, int]] = {}
    for name, entry in entries.items():
        what = f"tensor {shown(name)}"
        fine = isinstance(entry, dict) and set(entry) == {"dtype", "shape", "data_offsets"}
        need(fine, f"{what} is not described as safetensors does")
        need(entry["dtype"] == "F64", f"{what} is stored as {shown(entry['dtype'])}; Weft stores float64")
        shape, offsets = entry["shape"], entry["data_offsets"]
        need(_sizes(shape, 8), f"{what} has a bad shape")
        need(_sizes(offsets, 2) and len(offsets) == 2, f"{what} has bad offsets")
        count = 1
        for dimension in shape:
            count *= dimension
        need(offsets[1] - offsets[0] == 8 * count, f"{what} of shape {tuple(shape)} does not fill its bytes")
        need(offsets[1] <= room, f"the file is cut off: {what} ends at byte {offsets[1]} of {room}")
        shapes[name], spans[name] = tuple(shape), (offsets[0], offsets[1])
    at = 0
    for name, (begin, end) in sorted(spans.items(), key=lambda item: item[1]):
        need(begin == at, f"tensor {shown(name)} overlaps another or leaves a gap in the file")
        at = end
    need(at == room, f"the file has {room - at} bytes that belong to no tensor")
    return shapes, spans


def _sizes(value: Any, most: int) -> bool:
    """Whether this is a short list of sizes."""
    good = isinstance(value, list) and len(value) <= most
    return good and all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 1 << 48 for n in value)


def _document(header: dict[str, Any]) -> dict[str, Any]:
    metadata = header.get("__metadata__")
    if not isinstance(metadata, dict) or not isinstance(metadata.get(KEY), str):
        raise ModelError("a safetensors file, but not one that Weft wrote: it has no `weftc` metadata")
    document = loads(metadata[KEY], "the `weftc` metadata")
    if not isinstance(document, dict):
        raise ModelError("the `weftc` metadata is not an object")
    version = document.get("format")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ModelError(f"its format version is {shown(repr(version))}; a whole number from 1 is expected")
    need(version <= FORMAT, f"it has format {version}, but this Weft reads up to {FORMAT}; install a newer Weft")
    wanted = {"format", "program", "spec", "dims", "params", "compiler"}
    need(set(document) == wanted, f"the `weftc` metadata must have exactly {', '.join(sorted(wanted))}")
    spec = document["spec"]
    good = isinstance(spec, dict) and set(spec) == {"name", "text", "sha256"}
    need(good and all(isinstance(text, str) for text in spec.values()), "the `weftc` metadata has no spec text")
    need(_digest(spec["text"]) == spec["sha256"], "the spec text in it does not match its sha256; the text was changed")
    need(isinstance(document["compiler"], str), "the compiler's version must be a string")
    return {
        "program": decode_program(document["program"]),
        "spec_name": spec["name"],
        "spec_text": spec["text"],
        "dims": _numbers(document["dims"], "dims", int),
        "params": _numbers(document["params"], "params", float),
        "compiler": document["compiler"],
    }


def _numbers(value: Any, what: str, kind: type[int] | type[float]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ModelError(f"{what} must be an object")
    for name, number in value.items():
        plain = isinstance(number, int) or (kind is float and isinstance(number, float) and isfinite(number))
        good = plain and not isinstance(number, bool)
        need(good, f"{what}.{shown(name)} must be {'a whole number' if kind is int else 'a number'}")
    return {name: kind(number) for name, number in value.items()}


def _tensors(
    file: BinaryIO, start: int, shapes: Mapping[str, tuple[int, ...]], spans: Mapping[str, tuple[int, int]]
) -> dict[str, Array]:
    tensors: dict[str, Array] = {}
    for name in sorted(shapes):
        begin, end = spans[name]
        file.seek(start + begin)
        raw = file.read(end - begin)
        need(len(raw) == end - begin, f"the file is cut off inside tensor {shown(name)}")
        tensors[name] = np.frombuffer(raw, dtype="<f8").reshape(shapes[name]).astype(np.float64)
    return tensors
