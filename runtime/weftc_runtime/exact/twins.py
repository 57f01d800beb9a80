"""Tokens that a score cannot tell apart: equal in all the data it reads. Only one of them needs exact arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Literal

import numpy as np
from torch import Tensor

from weftc_runtime.format.program import FFN, Score

Row = tuple[tuple[int, Fraction], ...]  # the non-zero entries of a row of a matrix
Makers = Mapping[tuple[str, int], FFN]  # (stream, column of a derived slot) -> the map that keeps it up to date


def columns_read(
    score: Score, side: Literal["query", "key"], stream: str, rows: Callable[[str], list[Row]], makers: Makers
) -> list[int]:
    """The columns of data that one side of a score depends on, through derived slots."""
    names = [part.q if side == "query" else part.k for part in score.parts]
    names += [part.scale[1] for part in score.parts if part.scale is not None and part.scale[0] == side]
    columns: set[int] = set()
    seen: set[str] = set()

    def follow(row: Row) -> None:
        for column, _ in row:
            maker = makers.get((stream, column))
            if maker is None:
                columns.add(column)
                continue
            follow(rows(maker.carry)[column])
            for name in (maker.a, maker.b):
                if name is not None and name not in seen:
                    seen.add(name)
                    for inner in rows(name):
                        follow(inner)

    for name in names:
        for row in rows(name):
            follow(row)
    return sorted(columns)


def first_twins(z: Tensor, columns: list[int]) -> list[int]:
    """For every token the first one that agrees with it in these columns."""
    if not columns:
        return [0] * len(z)
    data = z[:, columns].cpu().numpy() + 0.0  # -0.0 is 0.0
    _, first, group = np.unique(data, axis=0, return_index=True, return_inverse=True)
    firsts: list[int] = first[group.reshape(-1)].tolist()
    return firsts
