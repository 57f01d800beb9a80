"""A checked spec -> cases of all sizes: widths and fixed sets of 1 to 64, open sets of 1 to 4096, every family of data.

`inputs.cases` stays small, because every case is judged in exact arithmetic where it has to be; these reach the sizes
at which blocks, chunks and vectorised kernels change over. What a case may cost is bounded by the numbers in a table of
queries, keys and coordinates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.random import Generator

from weftc.core.types import Checked
from weftc.verification.cases.inputs import ALL, Case, Shape, draw

WIDTHS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64)
COUNTS = (1, 2, 3, 4, 5, 8, 10, 16, 17, 32, 33, 63, 64)
TOKENS = (1, 2, 3, 7, 8, 9, 31, 32, 33, 64, 100, 150, 178, 255, 256, 257, 569, 1000, 1024, 1797, 2048, 4095, 4096)
BUDGET = 2**21  # numbers in the largest table


def sweep(
    checked: Checked, count: int, seed: int = 0, dtype: Any = np.float64, budget: int = BUDGET
) -> Iterator[tuple[dict[str, int], Case]]:
    """`count` times dimensions to compile for, and a case of a family in turn."""
    families = list(ALL)
    for number in range(count):
        rng = np.random.default_rng((seed, 4096, number))
        dims = dimensions(checked, rng)
        case = draw(
            checked, Shape(dims, sizes(checked, dims, rng, budget)), families[number % len(families)], rng, dtype
        )
        yield dims, case


def dimensions(checked: Checked, rng: Generator) -> dict[str, int]:
    """A size for every dimension: of vectors, of fixed sets."""
    counts = {size for size in checked.sets.values() if isinstance(size, str)}
    return {name: int(rng.choice(COUNTS if name in counts else WIDTHS)) for name in checked.dims}


def sizes(checked: Checked, dims: Mapping[str, int], rng: Generator, budget: int = BUDGET) -> dict[str, int]:
    """A size for every token set; open ones as large as the budget allows, at most."""
    found = {name: dims[size] if isinstance(size, str) else size for name, size in checked.sets.items() if size}
    open_sets = [name for name in checked.sets if checked.is_open(name)]
    widths = [dims[w] if isinstance(w, str) else w for w in (one.width for one in checked.fields.values()) if w]
    # an open set may meet itself, another open set or a fixed one
    left = budget / max(1, *widths, 1)
    most = left / max(1, *found.values(), 1)
    for number, name in enumerate(open_sets):
        meets = max(1, *(found[other] for other in open_sets[:number]), 1) if number else 1
        limit = min(most, left / meets, left**0.5 if pairs_within(checked, name) else np.inf)
        found[name] = int(rng.choice([n for n in TOKENS if n <= limit] or [1]))
    return found


def pairs_within(checked: Checked, name: str) -> bool:
    """Whether two indices run over a set, so that its tokens may meet each other."""
    return sum(home == name for home in checked.index.values()) > 1
