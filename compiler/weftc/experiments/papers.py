"""What the papers state, from the data files: quotations, printed numbers, and what is left unstated."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Claim:
    """One sentence or number of a paper: what a table shows of it, and the words it stands in."""

    says: str
    quote: str


@dataclass(frozen=True, slots=True)
class Stated:
    """What a paper says about one experiment."""

    title: str  # of the paper
    where: str
    claims: Mapping[str, Claim]
    unstated: tuple[str, ...]


@cache
def stated(experiment: str) -> Stated:
    """What the paper of an experiment states about it."""
    name = f"papers/{experiment.partition('-')[0]}.json"
    paper = json.loads(files("weftc.experiments").joinpath(name).read_text(encoding="utf-8"))
    said = paper["experiments"][experiment]
    claims = {key: Claim(one["says"], one["quote"]) for key, one in said["claims"].items()}
    return Stated(paper["title"], said["where"], claims, tuple(said["unstated"]))
