"""The residual of one problem before the first step, as the embedding of a program says, and its null tokens."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from weftc_runtime.data.batch import Batch
from weftc_runtime.format.program import Program


def embed(
    program: Program, filled: Mapping[tuple[str, str], Tensor], batch: Batch, number: int, device: torch.device
) -> dict[str, Tensor]:
    """The residual of one problem before the first step: inputs and constants in their slots, zeros elsewhere."""
    instructions = {(embed.stream, embed.slot): embed for embed in program.embedding}
    sizes = {name: layout.counts[number] for name, layout in batch.layouts.items()}
    state: dict[str, Tensor] = {}
    for stream in program.streams:
        tokens = sizes[stream.name]
        pieces = []
        for slot in stream.slots:
            place = (stream.name, slot.name)
            piece = torch.zeros(tokens, slot.width, dtype=torch.float64, device=device)
            instruction = instructions.get(place)
            if place in filled:
                piece = filled[place].to(torch.float64)
            elif instruction is not None and instruction.kind == "one":
                piece = torch.ones_like(piece)
            elif instruction is not None and instruction.kind == "identity":
                piece = torch.eye(tokens, dtype=torch.float64, device=device)
            elif instruction is not None and instruction.kind == "position":
                piece = torch.arange(1, tokens + 1, dtype=torch.float64, device=device)[:, None]
            elif instruction is not None and instruction.kind == "count":
                piece = torch.full_like(piece, sizes[instruction.source])
            pieces.append(piece)
        state[stream.name] = torch.cat(pieces, 1)
    return state


def null_tokens(program: Program, sizes: Mapping[str, int], device: torch.device) -> dict[str, Tensor]:
    """The null tokens of the streams that have one: a row that is 0 but where the embedding says so."""
    rows = {s.name: torch.zeros(1, s.width, dtype=torch.float64, device=device) for s in program.streams if s.null}
    for embed in program.embedding:
        if embed.kind == "null":
            value = float(sizes[embed.source]) ** embed.power if embed.power else 1.0
            rows[embed.stream][:, program.stream(embed.stream).slot(embed.slot).columns] = value
    return rows
