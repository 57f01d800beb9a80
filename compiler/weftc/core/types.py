"""What the checker finds out: kinds, widths, definedness and signs, and the tables every later pass reads.

`Checked` is a spec that means something: every name resolves, every width fits, every stored value is defined. The
interpreter and the compiler both start from it, and from nothing else of each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from weftc.core.display import html
from weftc.core.syntax import Dimension, Expr, Let, Param, ParamBound, Spec

Role = Literal["input", "random", "state", "computed"]


@dataclass(frozen=True, slots=True)
class FieldType:
    """The type of a field.

    A field lives on the tokens of `home`. A pair field also has `columns`, a fixed set: one number per token of it.
    `width` is None for numbers and pair fields, else the dimension of the vector.
    """

    name: str
    role: Role
    indices: tuple[str, ...]
    home: str
    columns: str | None = None
    width: Dimension | None = None
    kind: Literal["number", "vector", "unit", "symbol", "onehot", "simplex", "real", "gumbel", "normal", "uniform"] = (
        "number"
    )
    bound: ParamBound | None = None
    positive: bool = False  # known > 0 for every token
    nonnegative: bool = False  # known >= 0
    symbols: tuple[str, ...] = ()  # of a field of symbols: its vocabulary

    @property
    def is_pair(self) -> bool:
        return self.columns is not None


@dataclass(frozen=True, slots=True)
class Type:
    """The type of an expression.

    `width`: None for a number. `indices`: the index variables it depends on. `undefined`: the sub-expression that may
    be undefined (an empty mean, `unit` of zero), or None when the value is always defined. `kind` is set for
    expressions that are weights over an index: `onehot` or `simplex`.
    """

    width: Dimension | None = None
    indices: frozenset[str] = frozenset()
    undefined: Expr | None = None
    positive: bool = False
    nonnegative: bool = False
    kind: Literal["", "onehot", "simplex"] = ""
    symbols: tuple[str, ...] = ()  # it is always a symbol of this vocabulary


@dataclass(frozen=True, slots=True)
class Checked:
    """A spec and its tables."""

    spec: Spec
    sets: Mapping[str, Dimension | None]  # token set -> its size; None when open
    index: Mapping[str, str]  # index variable -> its set
    fields: Mapping[str, FieldType]  # every stored field, in order of first appearance
    lets: Mapping[str, Let]
    params: Mapping[str, Param]
    dims: tuple[str, ...]  # names of dimensions, in order of first appearance

    def line(self) -> str:
        """The spec in one line, with what it leaves open."""
        open_ = f"; dimensions {', '.join(self.dims)}" if self.dims else ""
        params = f"; parameters {', '.join(self.params)}" if self.params else ""
        return f"{self.spec.line()}{open_}{params}"

    def __repr__(self) -> str:
        return f"Checked({self.line()})"

    def _repr_html_(self) -> str | None:
        return html("checked", self)

    def set_of(self, index: str) -> str:
        """The set an index variable runs over."""
        return self.index[index]

    def is_open(self, name: str) -> bool:
        """Whether the size of a set is known only when it runs."""
        return self.sets[name] is None

    def output_field(self, name: str) -> str | None:
        """The field an output shows under its name, or None when it is an expression of its own."""
        for output in self.spec.outputs:
            if output.target.name == name:
                body = output.body
                return body.name if hasattr(body, "indices") and not body.indices else None  # type: ignore[union-attr]
        raise KeyError(name)
