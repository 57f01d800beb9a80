"""The programs compiled without a GPU, for those that are named, and rules that the code must keep.

Nothing is run. What can be seen in code is looked at: that products are rounded as IEEE says (no TF32, no approximate
roots, reciprocals or divisions), that sums over rows are atomic additions of integers, and that no register is spilled.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from weftc_runtime.kernels.triton.launch import BITS, choose_tiles, tile
from weftc_runtime.kernels.triton.programs import choose, gather_sum, soft

TARGETS = {
    "sm_75": GPUTarget("cuda", 75, 32),
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
INEXACT = re.compile(r"\b(sqrt|rsqrt|rcp|div|sin|cos|lg2|tanh)\.approx|\.tf32|\bdiv\.full")
EXPONENTIAL = re.compile(r"\bex2\.approx")


@dataclass(frozen=True, slots=True)
class Compiled:
    """A program for a target: its text (PTX, or the assembler of AMD), registers (0: not told) and spilled bytes."""

    text: str
    registers: int
    spilled: int


def compiled(name: str, dtype: str, target: str, features: int = 16) -> Compiled:
    """One of the programs, for numbers of a type (`fp32`, `fp64`)."""
    program, signature, constants = _described(name, dtype, features)
    source = ASTSource(fn=program, signature=signature, constexprs=constants)
    kernel: Any = triton.compile(source, target=TARGETS[target], options={"num_warps": 4, "enable_fp_fusion": True})
    text = kernel.asm.get("ptx") or kernel.asm["amdgcn"]
    registers, spilled = 0, 0
    if "cubin" in kernel.asm:
        registers, spilled = _resources(kernel.asm["cubin"])
    else:
        told = dict(re.findall(r"\.(vgpr_count|vgpr_spill_count|sgpr_spill_count):\s*(\d+)", text))
        registers = int(told.get("vgpr_count", 0))
        spilled = int(told.get("vgpr_spill_count", 0)) + int(told.get("sgpr_spill_count", 0))
    return Compiled(text, registers, spilled)


def _described(name: str, dtype: str, features: int) -> tuple[Any, dict[str, str], dict[str, Any]]:
    number, tiles = f"*{dtype}", {"d": features, "D": tile(features)}
    if name == "choose":
        pointers = dict.fromkeys(("queries", "keys", "bias", "limits"), number)
        pointers |= dict.fromkeys(("index", "doubt", "many"), "*i32")
        numbers = torch.float32 if dtype == "fp32" else torch.float64
        sizes = dict(zip(("ROWS", "KEYS"), choose_tiles(numbers, features), strict=True))
        return choose, pointers | dict.fromkeys(("n", "k", "stride"), "i32") | _named(tiles | sizes), tiles | sizes
    if name == "gather_sum":
        pointers = {"numbers": number, "labels": "*i32", **dict.fromkeys(("sums", "counts", "left"), "*i64")}
        pointers |= {**dict.fromkeys(("n", "segments", "stride"), "i32"), "scale": "*fp64"}
        constants = tiles | {"LEVELS": 2, "BITS": BITS, "ROWS": 64}
        return gather_sum, pointers | _named(constants), constants
    pointers = dict.fromkeys(("queries", "keys", "values", "peaks", "masses", "totals"), number)
    constants = {"d": features, "w": features, "W": tile(features), "DISTANCE": True, "ROWS": 32, "KEYS": 32}
    return soft, pointers | {"n": "i32", "k": "i32", "factor": number} | _named(constants), constants


def _named(constants: dict[str, Any]) -> dict[str, str]:
    return dict.fromkeys(constants, "constexpr")


def _resources(cubin: bytes) -> tuple[int, int]:
    """Registers and bytes of local memory of a program, as `cuobjdump` tells them."""
    import subprocess
    import tempfile
    from pathlib import Path

    from triton import knobs

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "program.cubin"
        place.write_bytes(cubin)
        command = [knobs.nvidia.cuobjdump.path, "--dump-resource-usage", str(place)]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = dict(re.findall(r"\b(REG|STACK|LOCAL):(\d+)", told))
    return int(found.get("REG", 0)), int(found.get("STACK", 0)) + int(found.get("LOCAL", 0))


def broken_rules(name: str, made: Compiled) -> list[str]:
    """What a program does that its bound does not allow."""
    found = [f"inexact: {text.group(0)}" for text in INEXACT.finditer(made.text)]
    if name != "soft" and EXPONENTIAL.search(made.text):
        found.append("an exponential where nothing is weighted")
    if made.spilled:
        found.append(f"{made.spilled} bytes of registers are spilled")
    return found
