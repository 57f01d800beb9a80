"""Inputs, dimensions and parameters as given -> sizes and arrays that fit the spec, or an `InputError`.

Every message names the input, the row (counted from one) and what to do.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from weftc.core.errors import InputError
from weftc.core.source import printable
from weftc.core.syntax import Dimension, Symbol
from weftc.core.types import Checked, FieldType
from weftc.interpreter.tables import Bools, Floats

# Rows declared `unit` or `simplex` may miss a squared length, or a sum, of 1 by this many roundings per coordinate.
ROUNDINGS = 16


def known_names(what: str, given: Iterable[str], known: Iterable[str], owner: str) -> None:
    """Refuses a name that the spec does not have."""
    known = list(known)
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(str(name), known, 1)
            guess = f"; did you mean {close[0]}?" if close else ""
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise InputError(f"{owner} has no {what} {printable(str(name))}{guess} ({has})")


def whole(name: str, given: Any) -> int:
    """A dimension as a positive whole number."""
    try:
        size = int(given)
    except (TypeError, ValueError, OverflowError):
        size = 0
    if size < 1 or size != given:
        raise InputError(f"the dimension {name} must be a positive whole number, not {given!r}")
    return size


def real(name: str, given: Any) -> float:
    """A parameter as a finite number."""
    try:
        value = float(given)
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"the parameter {name} must be a finite number, not {given!r}")
    return value


def array(name: str, given: Any) -> Floats:
    """An input as float64; numbers only."""
    if isinstance(given, np.ma.MaskedArray) and np.ma.is_masked(given):
        raise InputError(f"{name} has masked entries; remove those rows or fill the gaps", input=name)
    try:
        values = np.asarray(given)
    except (TypeError, ValueError):
        values = np.asarray(None)
    if values.dtype.kind not in "fiub":
        raise InputError(f"{name} must be an array of numbers, all rows of one length", input=name)
    return values.astype(np.float64)


def with_token(checked: Checked, name: str, values: Floats) -> Floats:
    """Values with an axis for the tokens, which those of a set of one token may lack."""
    field = checked.fields[name]
    alone = checked.sets[field.home] == 1 and values.ndim == int(field.is_pair or field.width is not None)
    return values[np.newaxis] if alone else values


def encoded(field: FieldType, given: Any) -> Any:
    """An input of symbols as rows with a single 1; other inputs as they are."""
    values = np.asarray(list(given) if isinstance(given, str) else given) if field.symbols else None
    if values is None or (values.dtype.kind not in "US" and not _of_words(values)):
        return given
    table = {symbol: place for place, symbol in enumerate(field.symbols)}
    words = [str(word) for word in values.reshape(-1).tolist()]
    for row, word in enumerate(words):
        if word not in table:
            known = ", ".join(field.symbols)
            text = f"{field.name}, row {row + 1}: {printable(word)} is no symbol of its vocabulary ({known})"
            raise InputError(text, input=field.name, place=f"row {row + 1}")
    return np.eye(len(field.symbols))[[table[word] for word in words]].reshape(*values.shape, -1)


def _of_words(values: np.ndarray[Any, Any]) -> bool:
    return values.dtype == object and all(isinstance(value, str) for value in values.reshape(-1).tolist())


def one_hot(symbol: Symbol) -> Floats:
    """The vector that a symbol is."""
    return np.array([float(symbol.text == other) for other in symbol.vocabulary])


class Shapes:
    """Learns sizes of token sets and dimensions from what is given, and refuses contradictions."""

    def __init__(self, checked: Checked, dims: Mapping[str, int]) -> None:
        self.checked = checked
        self.dims = dict(dims)
        self.sizes: dict[str, int] = {}
        self._because = dict.fromkeys(dims, "as given")
        for name, size in checked.sets.items():
            if isinstance(size, int):
                self.sizes[name] = size

    def learn(self, name: str, values: Floats) -> None:
        """Takes the sizes from the array of one field."""
        field = self.checked.fields[name]
        wanted = 2 if field.is_pair or field.width is not None else 1
        if values.ndim and len(values) == 0:
            raise InputError(f"{name} has no rows; {field.home} needs at least one token", input=name)
        if values.ndim != wanted:
            raise InputError(f"{name} must have {_shape_words(field)}, but has {values.ndim}; reshape it", input=name)
        self._tokens(field.home, len(values), f"{name} has {_counted(len(values), 'row')}")
        columns = f"{name} has {_counted(values.shape[1], 'column')}" if wanted == 2 else ""
        if field.columns is not None:
            self._tokens(field.columns, values.shape[1], columns)
        elif field.width is not None:
            self._dimension(field.width, values.shape[1], columns)

    def _tokens(self, name: str, size: int, because: str) -> None:
        declared = self.checked.sets[name]
        if declared is not None:
            self._dimension(declared, size, because)
            return
        known = self.sizes.setdefault(name, size)
        if known != size:
            raise InputError(f"{because}, but {self._because[name]}: one row for each of {name}, in every input")
        self._because.setdefault(name, because)

    def _dimension(self, dimension: Dimension, size: int, because: str) -> None:
        known = dimension if isinstance(dimension, int) else self.dims.setdefault(dimension, size)
        if known != size:
            why = f" ({self._because[str(dimension)]})" if isinstance(dimension, str) else " in the spec"
            label = f"{dimension} is {known}" if isinstance(dimension, str) else f"it must be {known}"
            raise InputError(f"{because}, but {label}{why}")
        self._because.setdefault(str(dimension), because)

    def settled(self) -> None:
        """Fills in what follows; refuses what is still unknown."""
        for name in self.checked.dims:
            if name not in self.dims:
                raise InputError(
                    f"{self.checked.spec.name} needs the dimension {name}; give dims={{'{name}': ...}}, "
                    "or an input that shows it"
                )
        for name, size in self.checked.sets.items():
            if size is not None:
                self.sizes[name] = self.size(size)
            elif name not in self.sizes:
                raise InputError(f"nothing says how many {name} there are; give an input that lives on them")

    def size(self, dimension: Dimension) -> int:
        return dimension if isinstance(dimension, int) else self.dims[dimension]

    def shape(self, field: FieldType) -> tuple[int, ...]:
        """The shape a field has."""
        if field.columns is not None:
            return self.sizes[field.home], self.sizes[field.columns]
        if field.width is not None:
            return self.sizes[field.home], self.size(field.width)
        return (self.sizes[field.home],)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _shape_words(field: FieldType) -> str:
    if field.columns is not None:
        return f"two axes, [{field.home}, {field.columns}]"
    if field.width is not None:
        return f"two axes, [{field.home}, {field.width}]"
    return f"one axis, [{field.home}]"


# ---- contents --------------------------------------------------------------------------------------------------------


def admit(field: FieldType, values: Floats, given: Any) -> None:
    """Refuses numbers that the declaration of an input rules out."""
    _every(field, np.isfinite(values), values, lambda v: f"is {v:g}; remove the row or replace the number")
    if field.bound is not None:
        bound = field.bound
        low, high = bound.low, bound.high
        inside = np.ones_like(values, dtype=bool)
        if low is not None:
            inside &= values > low[0] if low[1] else values >= low[0]
        if high is not None:
            inside &= values < high[0] if high[1] else values <= high[0]
        _every(field, inside, values, lambda v: f"is {v!r}, but the spec declares {field.name} {bound}")
    # numbers that came as float32 are as good as float32 can be
    dtype = np.asarray(given).dtype
    epsilon = float(np.finfo(dtype).eps) if dtype.kind == "f" else float(np.finfo(np.float64).eps)
    allowed = ROUNDINGS * epsilon * (values.shape[1] if values.ndim == 2 else 1)
    if field.kind == "unit":
        total = np.sum(values * values, axis=1)
        fix = f"has squared length {{}}, but {field.name} is declared unit: divide the row by its length"
        _every_row(field, np.abs(total - 1) <= allowed, total, fix)
    if field.kind == "simplex":
        _every(field, values >= 0, values, lambda v: f"is {v!r}, but the rows of a simplex field are not negative")
        total = np.sum(values, axis=1)
        fix = f"adds up to {{}}, but {field.name} is declared simplex: divide the row by its sum"
        _every_row(field, np.abs(total - 1) <= allowed, total, fix)
    if field.kind in ("onehot", "symbol"):
        ones = (values == 1).sum(axis=1)
        good = ((values == 0) | (values == 1)).all(axis=1) & (ones == 1)
        _every_row(field, good, ones, f"is not one-hot: {field.name} needs a single 1 and zeros in every row")


def _every(field: FieldType, good: Bools, values: Floats, says: Callable[[float], str]) -> None:
    if not good.all():
        row, *column = (int(at[0]) for at in np.nonzero(~good))
        place = f"row {row + 1}" + (f", column {column[0] + 1}" if column else "")
        text = f"{field.name}, {place}: {says(float(values[(row, *column)]))}"
        raise InputError(text, input=field.name, place=place)


def _every_row(field: FieldType, good: Bools, values: Any, fix: str) -> None:
    if not good.all():
        row = int(np.flatnonzero(~good)[0])
        text = f"{field.name}, row {row + 1}: {fix.format(float(values[row]))}"
        raise InputError(text, input=field.name, place=f"row {row + 1}")
