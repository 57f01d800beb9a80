"""Matrix products in float32 as IEEE defines them, whatever precision the user has allowed for them.

torch keeps a switch for each library that multiplies: cuBLAS for NVIDIA's and AMD's devices, oneDNN for CPUs and
Intel's. They hold what `set_float32_matmul_precision`, `allow_tf32` or `fp32_precision` chose last. Other devices have
none. The switches are those of the process, so they go back only when the last thread has left.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, cast

import torch

_SWITCHES = (torch.backends.cuda.matmul, cast(Any, torch.backends.mkldnn).matmul)
_lock = Lock()
_inside = 0  # how many have asked for it and not left
_allowed: list[str] = []  # before the first of them


@contextmanager
def full_precision() -> Iterator[None]:
    """All 24 bits of a float32 number count in products that start in here."""
    global _inside
    with _lock:
        if not _inside:
            _allowed[:] = [switch.fp32_precision for switch in _SWITCHES]
            for switch in _SWITCHES:
                switch.fp32_precision = "ieee"
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                for switch, before in zip(_SWITCHES, _allowed, strict=True):
                    switch.fp32_precision = before
