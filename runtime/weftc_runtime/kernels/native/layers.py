"""The structures of `costs.cpp` and `layers.cpp`, field by field."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import POINTER, Structure, c_double, c_int32, c_int64, c_void_p
from typing import Any, ClassVar

DONE, MEMORY, MOVED, OVERFLOWN = range(4)  # how a call for layers ends


class PartStruct(Structure):
    """`WeftPart`: one summand of a score that stays."""

    _fields_: ClassVar[Sequence[tuple[str, Any]]] = [
        ("q", c_void_p),
        ("k", c_void_p),
        ("scale", c_void_p),
        ("coefficient", c_double),
        ("features", c_int32),
        ("distance", c_int32),
        ("side", c_int32),
    ]


class Costs(Structure):
    """`WeftCosts`: a matrix of exponentials to be made."""

    _fields_: ClassVar[Sequence[tuple[str, Any]]] = [
        ("matrix", c_void_p),
        ("rows", c_int64),
        ("columns", c_int64),
        ("padded", c_int64),
        ("stride", c_int64),
        ("is_double", c_int32),
        ("parts", c_int32),
        ("threads", c_int32),
        ("part", POINTER(PartStruct)),
        ("base", c_void_p),
        ("peak", c_void_p),
        ("least", c_double),
    ]


class AffineStruct(Structure):
    """`WeftAffine`."""

    _fields_: ClassVar[Sequence[tuple[str, Any]]] = [
        ("base", c_void_p),
        ("constant", c_double),
        ("terms", c_int32),
        ("cells", POINTER(c_int32)),
        ("factors", POINTER(c_double)),
    ]


class HeadStruct(Structure):
    """`WeftHead`."""

    _fields_: ClassVar[Sequence[tuple[str, Any]]] = [
        ("queries", c_int64),
        ("keys", c_int64),
        ("kind", c_int32),
        ("writes", c_int32),
        ("own_key", c_int32),
        ("own", AffineStruct),
        ("other", AffineStruct),
        ("self", AffineStruct),
        ("self_value", POINTER(AffineStruct)),
        ("value", POINTER(c_double)),
        ("key_base", c_void_p),
        ("query_base", c_void_p),
        ("slack", c_double),
    ]


class Write(Structure):
    """`WeftWrite`."""

    _fields_: ClassVar[Sequence[tuple[str, Any]]] = [
        ("tokens", c_int64),
        ("cell", c_int32),
        ("adds", c_int32),
        ("carry", AffineStruct),
        ("heads", POINTER(c_int32)),
        ("columns", POINTER(c_int32)),
    ]


class Pass(Structure):
    """`WeftPass`."""

    _fields_: ClassVar[Sequence[tuple[str, Any]]] = [
        ("matrix", c_void_p),
        ("rows", c_int64),
        ("columns", c_int64),
        ("stride", c_int64),
        ("along", c_int32),
        ("across", c_int32),
    ]


class StepStruct(Structure):
    """`WeftStep`."""

    _fields_: ClassVar[Sequence[tuple[str, Any]]] = [
        ("heads", c_int32),
        ("writes", c_int32),
        ("passes", c_int32),
        ("head", POINTER(HeadStruct)),
        ("write", POINTER(Write)),
        ("pass_", POINTER(Pass)),
    ]


class Layers(Structure):
    """`WeftLayers`."""

    _fields_: ClassVar[Sequence[tuple[str, Any]]] = [
        ("is_double", c_int32),
        ("single", c_int32),
        ("steps", c_int32),
        ("cells", c_int32),
        ("threads", c_int32),
        ("until_stable", c_int32),
        ("step", POINTER(StepStruct)),
        ("cell", POINTER(c_void_p)),
        ("before", POINTER(c_void_p)),
        ("tokens", POINTER(c_int64)),
        ("reach", c_double),
        ("layers", c_int64),
        ("at", c_int32),
        ("stable", c_int32),
    ]
