"""What a run gives back: outputs by name, one-hot outputs as indices, the report of a run, and its trace."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from weftc_runtime.errors import RunError, suggestion
from weftc_runtime.format.display import frame, named_html, preview, table

SHOWN = 20  # symbols


class OneHot:
    """A one-hot output: which column is 1 in every row, -1 where none is (padding, or not computed yet)."""

    __slots__ = ("columns", "dtype", "held", "symbols")

    def __init__(
        self, indices: Tensor, columns: int, dtype: torch.dtype = torch.float64, symbols: tuple[str, ...] = ()
    ) -> None:
        self.held, self.columns, self.dtype, self.symbols = (
            indices,
            columns,
            dtype,
            symbols,
        )  # held: in any integer type

    @property
    def indices(self) -> Tensor:
        """Which column is 1, in int64."""
        if self.held.dtype != torch.int64:
            self.held = self.held.to(torch.int64)
        return self.held

    def tolist(self) -> Any:
        """The symbols of a vocabulary, None for padding; without one, rows of zeros and ones."""
        if not self.symbols:
            return self.dense().tolist()
        words = np.array([*self.symbols, None], dtype=object)
        return words[self.indices.cpu().numpy()].tolist()

    @property
    def shape(self) -> torch.Size:
        """The shape of the dense form."""
        return torch.Size([*self.held.shape, self.columns])

    def dense(self) -> Tensor:
        """The rows as zeros and ones."""
        order = torch.arange(self.columns, device=self.indices.device)
        return (self.indices[..., None] == order).to(self.dtype)

    def numpy(self) -> npt.NDArray[Any]:
        """The dense form as an array."""
        return np.asarray(self.dense().cpu().numpy())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return self.numpy().astype(dtype) if dtype is not None else self.numpy()

    def __len__(self) -> int:
        return len(self.held)

    def __getitem__(self, index: Any) -> OneHot:
        return OneHot(self.held[index], self.columns, self.dtype, self.symbols)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OneHot):
            return NotImplemented
        return self.columns == other.columns and torch.equal(self.indices, other.indices)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        if self.symbols and self.indices.dim() == 1:
            words = self[:SHOWN].tolist()
            more = ", ..." if len(self) > SHOWN else ""
            return f"OneHot({', '.join(map(str, words))}{more})"
        return f"OneHot({self.columns} columns, indices {preview(self.indices)})"

    def _repr_html_(self) -> str:
        return named_html("OneHot", {"": self})


@dataclass(frozen=True, slots=True)
class Lazy:
    """A value that is made when it is first asked for; `rows` makes some rows of it, where all need not be there."""

    make: Callable[[], Any]
    rows: Callable[[slice], Tensor] | None = None
    count: int = 0  # of rows
    width: int = 0
    dtype: torch.dtype = torch.float64


class _Named(Mapping[str, Any]):
    """Tensors by name."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> Any:
        if name not in self._values:
            raise KeyError(f"no {name!r}{suggestion(str(name), self._values)}")
        value = self._values[name]
        if isinstance(value, Lazy):
            value = self._values[name] = value.make()
        return value

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def unmade(self) -> dict[str, Any]:
        """The values as they are: what nobody has asked for yet is `Lazy`."""
        return self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        shapes = {n: "on request" if isinstance(v, Lazy) else list(v.shape) for n, v in self._values.items()}
        return f"{type(self).__name__}({', '.join(f'{name}: {shape}' for name, shape in shapes.items())})"

    def _repr_html_(self) -> str:
        return named_html(type(self).__name__, self._values)


class Outputs(_Named):
    """The named outputs of a run: tensors, or `OneHot`. Patterns (queries x keys) are made when they are asked for."""

    def blocks(self, name: str, entries: int = 1 << 17) -> Iterator[Tensor]:
        """An output in blocks of rows, in order; one that is not made yet is made block by block and not kept."""
        value = self._values.get(name)
        if isinstance(value, Lazy) and value.rows is not None:
            size = max(1, entries // max(1, value.width))
            yield from (value.rows(slice(at, min(value.count, at + size))) for at in range(0, value.count, size))
            return
        value = self[name]
        whole = value.held if isinstance(value, OneHot) else value
        rows = whole.reshape(whole.shape[0] if whole.dim() else 1, -1)
        for block in rows.split(max(1, entries // max(1, rows.shape[1]))):
            yield block.to(torch.int64) if isinstance(value, OneHot) else block


Later = Mapping[Literal["final", "objective"], Lazy]


class Fields(_Named):
    """The stored fields of a state: tensors by field name. A field that nothing has set yet is absent.

    Those at the end of a run can be asked for what `model.final` and `model.objective` give, without another run.
    """

    def __init__(self, values: Mapping[str, Any], later: Later | None = None) -> None:
        super().__init__(values)
        self.later = later

    @property
    def final(self) -> Outputs:
        """The outputs; those made from values that changed later in the layer are made once more at the end."""
        return cast(Outputs, self._made("final"))

    @property
    def objective(self) -> Tensor:
        """The objective of the final state."""
        return cast(Tensor, self._made("objective"))

    def _made(self, what: Literal["final", "objective"]) -> Any:
        if self.later is None:
            raise RunError("these fields are not those at the end of a run")
        return self.later[what].make()


class Trace(_Named):
    """Every slot of every stream after every sub-layer.

    start.{stream}.{slot}, layers.{t}.blocks.{i}.{stream}.{slot}, prelude.{i}..., readout.{i}...; with patterns also
    layers.{t}.blocks.{i}.{head}.pattern. `fields[t]` are the fields at the input of layer t, the last entry those at
    the end.
    """

    def __init__(self, values: Mapping[str, Tensor | Lazy], fields: list[Fields], outputs: Outputs) -> None:
        super().__init__(values)
        self.fields = fields
        self.outputs = outputs

    @property
    def layers(self) -> int:
        """How many layers ran."""
        return len(self.fields) - 1


@dataclass(slots=True)
class Tiers:
    """How many query rows each tier settled: float64 with its bound, exact arithmetic, or neither.

    `fast`: float32 with its bound, or bounds carried over from the layer before.
    """

    bound: int = 0
    exact: int = 0
    undecided: int = 0
    fast: int = 0

    @classmethod
    def of(cls, tiers: Tensor) -> Tiers:
        """Counts the rows of one call."""
        if tiers.is_meta:
            return cls()
        return cls(*torch.bincount(tiers.to(torch.int64).cpu(), minlength=3).tolist())

    def times(self, many: int) -> Tiers:
        """When every row stands for so many."""
        return Tiers(*(getattr(self, tier.name) * many for tier in fields(Tiers)))

    def add(self, tiers: Tensor) -> None:
        """Counts the rows of one call."""
        self.include(Tiers.of(tiers))

    def include(self, other: Tiers) -> None:
        """Adds another count."""
        self.bound += other.bound
        self.exact += other.exact
        self.undecided += other.undecided
        self.fast += other.fast

    def since(self, earlier: Tiers) -> Tiers:
        """What was added to an earlier count."""
        return Tiers(*(getattr(self, tier.name) - getattr(earlier, tier.name) for tier in fields(Tiers)))


def together(tiers: Iterable[Tiers]) -> Tiers:
    """The tiers of several heads."""
    total = Tiers()
    for each in tiers:
        total.include(each)
    return total


@dataclass(frozen=True, slots=True, repr=False)
class Report:
    """What a run did: layers per problem, whether the state stood still, and the tiers of every head that decides.

    `backend` is the one that ran, `why` says why it was not another one (empty when nobody could expect another).
    `where`: what ran where, on a device without float64.
    `by_layer`: the tiers of all heads of one layer together, for every layer that ran.
    `warnings`: conditions of finite temperature that did not hold, and digits that were lost; the answers are further
    from the spec then.
    """

    layers: tuple[int, ...] = ()
    stable: tuple[bool, ...] = ()
    heads: Mapping[str, Tiers] = field(default_factory=dict)
    backend: str = "reference"
    why: str = ""
    warnings: tuple[str, ...] = ()
    by_layer: tuple[Tiers, ...] = ()
    where: str = ""

    @property
    def total(self) -> Tiers:
        """The tiers of all heads together."""
        return together(self.heads.values())

    def described(self) -> dict[str, str]:
        """What happened, in a few words each."""
        ran = sorted(set(self.layers))
        depth = " to ".join(str(number) for number in (ran[:1] + ran[1:][-1:])) or "0"
        problems = f" in {len(self.layers)} problems" if len(self.layers) > 1 else ""
        still = f" ({sum(self.stable)} of them)" if not all(self.stable) else ""
        ending = f", at a fixed point{still}" if any(self.stable) else ""
        tiers = self.total
        counts = (tiers.fast, "in float32"), (tiers.bound, "in float64"), (tiers.exact, "exactly")
        settled = ", ".join(f"{count} {how}" for count, how in (*counts, (tiers.undecided, "undecided")) if count)
        found = {
            "layers": f"{depth}{problems}{ending}",
            "backend": self.backend + (f" ({self.why})" if self.why else ""),
            "device": self.where,
            "decisions": f"{settled} (rows)" if settled else "",
            "warnings": "; ".join(self.warnings),
        }
        return {name: text for name, text in found.items() if text}

    def __repr__(self) -> str:
        return f"Report({'; '.join(f'{name}: {text}' for name, text in self.described().items())})"

    def _repr_html_(self) -> str:
        heads = [(name, one.fast, one.bound, one.exact, one.undecided) for name, one in self.heads.items()]
        head = ("rows settled by head", "in float32", "in float64", "exactly", "undecided")
        parts = [table(("", ""), self.described().items()), *([table(head, heads)] if heads else [])]
        return frame("Report", "of the last run", *parts)
