"""What a run of a spec stands on: from stored fields, given dimensions and parameters to a `World`, noise included."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from weftc.core.errors import InputError
from weftc.core.syntax import Expr
from weftc.core.types import Checked, FieldType
from weftc.interpreter.decisions import Tally
from weftc.interpreter.environment import Constant, World, names_read
from weftc.interpreter.expressions import Evaluator
from weftc.interpreter.inputs import Shapes, array, known_names, real, whole
from weftc.interpreter.noise import draw
from weftc.interpreter.rationals import ExactEvaluator, Irrational
from weftc.interpreter.tables import Floats

Noise = Mapping[str, Any] | None


class Surroundings:
    """A checked spec with the dimensions and parameters that were given."""

    def __init__(self, checked: Checked, dims: Mapping[str, int], params: Mapping[str, float]) -> None:
        self.checked = checked
        known_names("dimension", dims, checked.dims, checked.spec.name)
        known_names("parameter", params, checked.params, checked.spec.name)
        self.dims = {name: whole(name, value) for name, value in dims.items()}
        self.params = {name: real(name, value) for name, value in params.items()}
        for name, value in self.params.items():
            self._in_range(name, value)

    def shapes(self) -> Shapes:
        """Sizes to be learnt from arrays, starting with the dimensions that were given."""
        return Shapes(self.checked, self.dims)

    def world(self, fields: Mapping[str, Floats], noise: Mapping[str, Floats] | None = None) -> World:
        """The world of stored fields: all inputs, and whatever else is stored by now."""
        checked, shapes = self.checked, self.shapes()
        known_names("field", fields, checked.fields, checked.spec.name)
        for name, values in fields.items():
            shapes.learn(name, values)
            if not np.isfinite(values).all():
                raise InputError(f"the stored field {name} holds a number that is not finite")
        missing = [f.target.name for f in checked.spec.inputs if f.target.name not in fields]
        if missing:
            raise InputError(f"the fields of {checked.spec.name} lack {', '.join(missing)}")
        shapes.settled()
        return World(checked, shapes.sizes, shapes.dims, self._params(shapes), fields, noise or {})

    # ---- parameters --------------------------------------------------------------------------------------------------

    def _params(self, shapes: Shapes) -> dict[str, Constant]:
        """All parameters: as given, or by their defaults, which may use sizes and other parameters."""
        known = {name: Constant.of(Fraction(value)) for name, value in self.params.items()}
        world = World(self.checked, shapes.sizes, shapes.dims, known, {})
        waiting = {name: p for name, p in self.checked.params.items() if name not in known}
        while waiting:
            for name, param in list(waiting.items()):
                if param.default is None:
                    raise InputError(
                        f"the parameter {name} has no default; give it, for example params={{'{name}': 1}}"
                    )
                if not names_read(self.checked, param.default) & set(waiting):
                    known[name] = self._default(world, name, param.default)
                    self._in_range(name, known[name].value)
                    del waiting[name]
        return known

    def _default(self, world: World, name: str, body: Expr) -> Constant:
        """The value of a default: exact if it is rational, else the float64 it comes to."""
        exact = ExactEvaluator(world)
        try:
            return Constant.of(exact.number(body, {}))
        except (Irrational, OverflowError):
            table = Evaluator(world, exact, Tally()).table(body)
        if not (table.defined & table.finite).all():
            raise InputError(
                f"the default of {name} cannot be computed from these values; give params={{'{name}': 1}}, say"
            )
        return Constant.of(Fraction(float(table.data[0])))

    def _in_range(self, name: str, value: float) -> None:
        bound = self.checked.params[name].bound
        if bound is not None and not bound.admits(value):
            raise InputError(f"the parameter {name} must be {bound}, but is {value:g}")

    # ---- noise -------------------------------------------------------------------------------------------------------

    def noise(self, sizes: Mapping[str, int], layer: int, seed: int, given: Noise) -> dict[str, Floats]:
        """The random fields of one layer: as given, or drawn."""
        randoms = {f.target.name: self.checked.fields[f.target.name] for f in self.checked.spec.random}
        known_names("random field", given or {}, randoms, self.checked.spec.name)
        result = {}
        for name, field in randoms.items():
            shape = tuple(sizes[self.checked.index[index]] for index in field.indices)
            if given is not None and name in given:
                result[name] = _supplied(field, array(name, given[name]), layer, shape)
            else:
                result[name] = draw(field.kind, seed, name, layer, shape)
        return result


def _supplied(field: FieldType, values: Floats, layer: int, shape: tuple[int, ...]) -> Floats:
    if values.ndim != len(shape) + 1 or values.shape[1:] != shape or len(values) <= layer:
        raise InputError(
            f"noise for {field.name} must have the shape [layers, {', '.join(map(str, shape))}] with more than "
            f"{layer} layers, not {list(values.shape)}"
        )
    if not np.isfinite(values[layer]).all():
        raise InputError(f"noise for {field.name} has a number that is not finite in layer {layer + 1}")
    return np.asarray(values[layer])
