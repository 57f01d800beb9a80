"""A plan with the narrow matrices it applies: everything about a program that runs have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from weftc_runtime.exact.weights import Weights
from weftc_runtime.format.program import FFN, Head
from weftc_runtime.plan.instructions import Plan
from weftc_runtime.plan.narrow import NarrowFFN, NarrowHead, NarrowMatrices


@dataclass(slots=True)
class Prepared:
    """A plan with the narrow matrices it applies; valid as long as the tensors it was made from."""

    plan: Plan
    tensors: Mapping[str, Tensor]
    heads: dict[int, NarrowHead] = field(default_factory=dict)
    ffns: dict[int, NarrowFFN] = field(default_factory=dict)
    carries: dict[tuple[str, str], tuple[NarrowMatrices, Weights]] = field(default_factory=dict)
    encoded: dict[Any, Any] = field(default_factory=dict)  # instructions of the native machine, or why there are none

    def head(self, head: Head) -> NarrowHead:
        if id(head) not in self.heads:
            self.heads[id(head)] = NarrowHead.of(head, self.tensors)
        return self.heads[id(head)]

    def ffn(self, ffn: FFN) -> NarrowFFN:
        if id(ffn) not in self.ffns:
            self.ffns[id(ffn)] = NarrowFFN.of(ffn, self.tensors)
        return self.ffns[id(ffn)]

    def carry(self, name: str, slot: str, columns: slice) -> tuple[NarrowMatrices, Weights]:
        if (name, slot) not in self.carries:
            narrow = NarrowMatrices.of({"carry": self.tensors[name][columns]})
            self.carries[name, slot] = narrow, Weights(narrow.matrices)
        return self.carries[name, slot]
