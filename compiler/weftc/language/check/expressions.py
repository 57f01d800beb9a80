"""The type of an expression: width, free indices, definedness, sign, and whether it is a weighting.

`Typing.of` answers None when it has already reported a problem inside, so that one mistake gives one message. The rules
are in `check_references`, `check_operators`, `check_reductions` and `check_weightings`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from weftc.core import syntax as ast
from weftc.core.source import Span
from weftc.core.types import FieldType, Type
from weftc.core.words import did_you_mean, listed, width_words
from weftc.language.check import operators as check_operators
from weftc.language.check import reductions as check_reductions
from weftc.language.check import references as check_references
from weftc.language.check import weightings as check_weightings
from weftc.language.check.equalities import Compared
from weftc.language.check.names import Names
from weftc.language.check.problems import Problems
from weftc.language.check.ranges import Range, range_of


@dataclass(slots=True)
class Typing:
    """Types expressions against the fields known at one point of a spec."""

    names: Names
    problems: Problems
    fields: dict[str, FieldType] = field(default_factory=dict)
    place: str = "layer"  # or `start` of a state field, `default` of a parameter, `output`: each may read less
    refused: set[str] = field(default_factory=set)  # names already reported; silent from then on
    compared: dict[int, Compared] = field(default_factory=dict)  # id of `a = b`, `a != b` -> what the sides are
    _lets: dict[str, Type | None] = field(default_factory=dict)
    _open: list[str] = field(default_factory=list)  # `let`s being typed, to notice a cycle

    def knows(self, fields: Mapping[str, FieldType]) -> None:
        """Makes more fields readable; what was found out about `let`s may change with them."""
        self.fields.update(fields)
        self._lets.clear()

    def move(self, place: str) -> None:
        """Goes on at another place, where other fields may be read."""
        self.place = place
        self._lets.clear()

    def of(self, expr: ast.Expr, bound: frozenset[str]) -> Type | None:
        """The type of an expression whose free indices must all be in `bound`; None after reporting a problem."""
        match expr:
            case ast.Num(value=value):
                return Type(positive=value > 0, nonnegative=value >= 0)
            case ast.Symbol():
                return check_references.symbol(self, expr)
            case ast.Ref():
                return check_references.reference(self, expr, bound)
            case ast.Binary():
                return check_operators.binary(self, expr, bound)
            case ast.Count():
                return check_references.count(self, expr)
            case ast.Position():
                known = self.index(expr.index, expr.span, bound)
                if known and expr.onehot:
                    return check_references.onehot(self, expr)
                return Type(indices=frozenset([expr.index]), positive=True, nonnegative=True) if known else None
            case ast.Percent():
                self.no_percentage(expr, "as in lowest[i](S, 90%); for a factor write 0.9")
                return None
            case ast.Weigh():
                return check_weightings.weighting(self, expr, bound)
            case ast.Reduce():
                return check_reductions.reduction(self, expr, bound)
            case ast.Else():
                return check_operators.otherwise(self, expr, bound)
            case ast.Inner():
                return check_operators.inner(self, expr, bound)
            case _:
                return check_operators.single(self, expr, bound)

    def number(self, expr: ast.Expr, bound: frozenset[str], what: str, *notes: str) -> Type | None:
        """The type of an expression that must be a number."""
        found = self.of(expr, bound)
        if found is not None and found.width is not None:
            label = f"this is {width_words(found.width)}"
            self.problems.add("C224", expr.span, f"{what} must be a number", label, *notes)
            return None
        return found

    def index(self, name: str, span: Span, bound: frozenset[str] | None = None) -> bool:
        """Whether an index exists and, if asked, is bound; reports when not, an unknown one only once."""
        if name not in self.names.index:
            if name not in self.refused:
                self._unknown_index(name, self.problems.spot(span, name))
                self.refused.add(name)
            return False
        if bound is None or name in bound:
            return True
        self.problems.add(
            "C203",
            self.problems.spot(span, name),
            f"index {name} is free",
            f"nothing says which {self.names.index[name]} token is meant",
            f"sum over it (sum[{name}] ...), or put {name} on the left-hand side",
        )
        return False

    def _unknown_index(self, name: str, span: Span) -> None:
        what = self.names.what(name)
        self.problems.add(
            "C201",
            span,
            f"{name} is {what}, not an index" if what else f"unknown index {name}",
            did_you_mean(name, self.names.index),
            f"indices: {listed(self.names.index)}" if self.names.index else "",
            "" if what else f"declare it: tokens {name} in SOME_SET",
        )

    def range(self, expr: ast.Expr) -> Range:
        """The interval an expression is known to lie in."""
        return range_of(expr, self.names.params, self.fields)

    def let(self, let: ast.Let) -> Type | None:
        """The type of the body of a `let`, with the indices it was declared with."""
        name = let.target.name
        if name in self._open:
            chain = " -> ".join([*self._open[self._open.index(name) :], name])
            why = "a `let` is put in where it is used, so it cannot need itself; use a field for a value that changes"
            self.problems.add("C212", let.target.span, f"the definition of {name} needs itself", chain, why)
            return None
        if name not in self._lets:
            self._open.append(name)
            found = None
            if all([self.index(i, let.target.span) for i in let.target.indices]):
                found = self.of(let.body, frozenset(let.target.indices))
            self._open.pop()
            self._lets[name] = found
        return self._lets[name]

    def weights_over(self, expr: ast.Expr) -> str:
        """The index a onehot or simplex expression sums to one over."""
        match expr:
            case ast.Weigh():
                return expr.index
            case ast.Ref(indices=(_, second)):
                return second
            case ast.Else():
                return self.weights_over(expr.body)
        return ""

    def unit_alone(self, call: ast.Expr) -> None:
        """Reports a `unit` whose `else` is further out than right behind it."""
        label = "its `else` must follow it directly"
        self.problems.add("C231", call.span, "unit of a zero vector is undefined", label, "write (unit(v) else w)")

    def no_percentage(self, expr: ast.Percent, note: str) -> None:
        """Reports a percentage where it has no meaning."""
        message = "a percentage only makes sense as the share of `lowest` or `highest`"
        self.problems.add("C260", expr.span, message, "", note)
