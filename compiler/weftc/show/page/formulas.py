"""Matrices over slots -> formulas a reader knows: what a head scores and what it writes, read off its weights."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from weftc.emit.matrices import Array
from weftc.show.block_text import row_groups, shortened
from weftc_runtime.format import program as ir
from weftc_runtime.format.checkpoint import Checkpoint

MANY = 4  # terms of a formula that are still written out
MINUS, TIMES, SUM = "\N{MINUS SIGN}", "\N{MIDDLE DOT}", "\N{GREEK CAPITAL LETTER SIGMA}"
PRIME, ARROW = "\N{PRIME}", "\N{LEFTWARDS ARROW}"


class Formulas:
    """The heads of one checkpoint, as formulas; of a matrix that has no short one, its letter."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.tensors: Mapping[str, Array] = checkpoint.tensors
        self.slots = {stream.name: shortened(stream.slots) for stream in checkpoint.program.streams}

    def score(self, score: ir.Score, query: str, keys: str) -> str:
        """A score, with slots of the query on the left and of the key on the right."""
        terms = [term for part in score.parts for term in self._multiplied(part, query, keys)]
        if not terms:
            return "0"
        return _sum(terms) if len(terms) <= MANY else f"sum of {len(terms)} products"

    def masks(self, head: ir.Head) -> list[str]:
        """What a key must meet to count."""
        return [
            "only other tokens" if m.op == "other" else self._condition(m, self.score(m.score, head.query, head.keys))
            for m in head.masks
        ]

    @staticmethod
    def _condition(mask: ir.Mask, score: str) -> str:
        if mask.weighting is not None:
            return f"among the best ({mask.weighting.kind}) by {score}"
        return f"{score} {mask.op} 0"

    def value(self, head: ir.Head) -> list[str]:
        """What is written where: `y <- id()`."""
        slots = self.slots[head.query]
        if head.weighting.kind in ("lse", "max"):
            column = np.asarray(self.tensors[head.value])
            what = "log sum exp of the scores" if head.weighting.kind == "lse" else "the largest score"
            numbers = [(s, float(column[s.columns].flat[0])) for s in slots if column[s.columns].any()]
            return [f"{s.name} {ARROW} {_times(number, what)}" for s, number in numbers]
        return self._writes(head.value, head.query, head.keys)

    def own(self, head: ir.Head) -> str:
        """What the query token itself adds as a key of its own."""
        if head.self_key is None:
            return ""
        written = ", ".join(self._writes(head.self_key.value, head.query, head.query, primed=False)) or "nothing"
        if head.self_key.row is None:
            return f"the token itself, only when no key has weight: {written}"
        row = (
            self._form(np.atleast_2d(self.tensors[head.self_key.row]), self.slots[head.query]) or "a number of its own"
        )
        return f"a null key with score {row}: {written}"

    def map(self, ffn: ir.FFN) -> str:
        """A feed-forward: `|x|^2 <- product(x, x)`."""
        read = [
            self._rows(self.tensors[name], self.slots[ffn.stream]) or "..."
            for name in (ffn.a, ffn.b)
            if name is not None
        ]
        written = ", ".join(s.name for s in self.slots[ffn.stream] if self.tensors[ffn.out][s.columns].any())
        return f"{written} {ARROW} {ffn.function}({', '.join(read)})"

    # ---- inside

    def _multiplied(self, part: ir.Part, query: str, keys: str) -> list[str]:
        terms = self._part(part, query, keys)
        if not part.factors:
            return terms
        functions = [f"{one.function}({self.score(one.score, query, keys)})" for one in part.factors]
        return [f" {TIMES} ".join([terms[0] if len(terms) == 1 else f"({_sum(terms)})", *functions])]

    def _part(self, part: ir.Part, query: str, keys: str) -> list[str]:
        q, k = np.atleast_2d(self.tensors[part.q]), np.atleast_2d(self.tensors[part.k])
        key_slots = self._key_slots(query, keys)
        if part.kind == "l2":
            one, other = self._rows(q, self.slots[query]) or "Q z", self._rows(k, key_slots) or f"K z{PRIME}"
            factor = 1.0 if part.coefficient is None else float(self.tensors[part.coefficient])
            text = _times(factor, f"|{one} {MINUS} {other}|²")
            if part.scale is not None:
                side = self.slots[query] if part.scale[0] == "query" else key_slots
                scale = self._form(np.atleast_2d(self.tensors[part.scale[1]]), side)
                text = f"{text} {TIMES} {scale or 'a number of the ' + part.scale[0]}"
            return [text]
        groups = _common(row_groups(q, self.slots[query]), row_groups(k, self.slots[keys]))
        terms = []
        for rows in groups:
            left, right = self._form(q[rows], self.slots[query]), self._form(k[rows], key_slots)
            if left is None or right is None:
                return [f"⟨Q z, K z{PRIME}⟩"]
            terms.append(_product(left, right, wide=rows.stop - rows.start > 1))
        return terms

    def _key_slots(self, query: str, keys: str) -> Sequence[ir.Slot]:
        """The slots of the key, told apart from those of a query of the same stream."""
        slots = self.slots[keys]
        return slots if query != keys else [s if s.name == "1" else replace(s, name=s.name + PRIME) for s in slots]

    def _rows(self, matrix: Array, slots: Sequence[ir.Slot]) -> str | None:
        """All rows of a matrix; several groups of them stand in brackets."""
        forms = [self._form(matrix[rows], slots) for _, rows in row_groups(matrix, slots)]
        if not forms or len(forms) > MANY or any(form is None for form in forms):
            return None
        return str(forms[0]) if len(forms) == 1 else f"[{'; '.join(str(form) for form in forms)}]"

    def _form(self, rows: Array, slots: Sequence[ir.Slot]) -> str | None:
        """Rows that add up multiples of slots."""
        terms = []
        for s in slots:
            block = rows[:, s.columns]
            if not block.any():
                continue
            first = float(block[0, 0])
            if len(block) == s.width and np.array_equal(block, first * np.eye(s.width)):
                terms.append(_times(first, s.name))
            elif len(block) == 1 and np.all(block == first):
                terms.append(_times(first, f"{SUM} {s.name}"))
            elif np.count_nonzero(block) == 1 and len(block) == 1:
                at = int(np.flatnonzero(block)[0])
                terms.append(_times(float(block[0, at]), f"{s.name}[{at + 1}]"))
            elif s.width == 1 and np.all(block == first):
                terms.append(_times(first, s.name))
            else:
                return None
        return _sum(terms) if 0 < len(terms) <= MANY else None if terms else "0"

    def _writes(self, name: str, query: str, keys: str, primed: bool = True) -> list[str]:
        matrix, out = self.tensors[name], []
        for s in self.slots[query]:
            if matrix[s.columns].any():
                form = self._form(matrix[s.columns], self._key_slots(query, keys) if primed else self.slots[keys])
                out.append(f"{s.name} {ARROW} {form or 'V z' + PRIME}")
        return out


def _common(left: list[tuple[str, slice]], right: list[tuple[str, slice]]) -> list[slice]:
    """Rows cut wherever either side is cut."""
    cuts = sorted({0, *(rows.stop for _, rows in left), *(rows.stop for _, rows in right)})
    return [slice(a, b) for a, b in pairwise(cuts)]


def _number(value: float) -> str:
    return f"{value:.6g}".replace("-", MINUS)


def _is_number(text: str) -> bool:
    return re.fullmatch(rf"[{MINUS}0-9.e+]+", text) is not None


def _times(factor: float, what: str) -> str:
    if what == "1":
        return _number(factor)
    return what if factor == 1 else f"{MINUS}{what}" if factor == -1 else f"{_number(factor)} {what}"


def _product(left: str, right: str, wide: bool) -> str:
    if wide:
        return f"⟨{left}, {right}⟩"
    if left == "1":
        return right
    if right == "1":
        return left
    if _is_number(right) and not _is_number(left):
        left, right = right, left
    if left == f"{MINUS}1":
        return f"{MINUS}{right}"
    return " ".join(f"({side})" if " + " in side or f" {MINUS} " in side else side for side in (left, right))


def _sum(terms: Sequence[str]) -> str:
    return " + ".join(terms).replace(f"+ {MINUS}", f"{MINUS} ")
