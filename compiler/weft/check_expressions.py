"""The type of an expression: width, free indices, definedness, sign, and whether it is a weighting.

`Typing.of` answers None when it has already reported a problem inside, so that one mistake gives one message. Reductions
and weightings are in `check_weights`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from weft import check_weights, simplex
from weft import syntax as ast
from weft.check_names import Names
from weft.problems import Problems
from weft.ranges import Range, range_of
from weft.source import Span
from weft.types import FieldType, Type
from weft.words import declared_at, did_you_mean, field_words, joined, listed, plural, width_words, written

NUMBER_FUNCTIONS = ("log", "exp", "sqrt")
NOTHING: frozenset[str] = frozenset()


@dataclass(slots=True)
class Typing:
    """Types expressions against the fields known at one point of a spec."""

    names: Names
    problems: Problems
    fields: dict[str, FieldType] = field(default_factory=dict)
    later: Mapping[str, Span] = field(default_factory=dict)  # fields that some step computes
    place: str = "layer"  # or `start` (of a state field: inputs only), `default` (of a parameter: constants only)
    _lets: dict[str, Type | None] = field(default_factory=dict)
    _open: list[str] = field(default_factory=list)  # `let`s being typed, to notice a cycle

    def knows(self, fields: Mapping[str, FieldType]) -> None:
        """Makes more fields readable; what was found out about `let`s may change with them."""
        self.fields.update(fields)
        self._lets.clear()

    def of(self, expr: ast.Expr, bound: frozenset[str]) -> Type | None:
        """The type of an expression whose free indices must all be in `bound`; None after reporting a problem."""
        match expr:
            case ast.Num(value=value):
                return Type(positive=value > 0, nonnegative=value >= 0)
            case ast.Count():
                return self._count(expr)
            case ast.Position():
                known = self.index(expr.index, expr.span, bound)
                return Type(indices=frozenset([expr.index]), positive=True, nonnegative=True) if known else None
            case ast.Ref():
                return self._ref(expr, bound)
            case ast.Percent():
                self.problems.add(
                    "C260",
                    expr.span,
                    "a percentage only makes sense as the share of `lowest` or `highest`",
                    "",
                    "as in lowest[i](S, 90%); for a factor write 0.9",
                )
                return None
            case ast.Weigh():
                return check_weights.weigh(self, expr, bound)
            case ast.Reduce():
                return check_weights.reduce(self, expr, bound)
            case ast.Else():
                return self._else(expr, bound)
            case ast.Binary():
                return self._binary(expr, bound)
            case ast.Inner():
                return self._inner(expr, bound)
            case _:
                return self._single(expr, bound)

    def number(self, expr: ast.Expr, bound: frozenset[str], what: str, *notes: str) -> Type | None:
        """The type of an expression that must be a number."""
        found = self.of(expr, bound)
        if found is not None and found.width is not None:
            self.problems.add(
                "C224", expr.span, f"{what} must be a number", f"this is {width_words(found.width)}", *notes
            )
            return None
        return found

    def index(self, name: str, span: Span, bound: frozenset[str] | None = None) -> bool:
        """Whether an index exists and, if asked, is bound; reports when not."""
        if name not in self.names.index:
            what = self.names.what(name)
            self.problems.add(
                "C201",
                self.problems.spot(span, name),
                f"{name} is {what}, not an index" if what else f"unknown index {name}",
                did_you_mean(name, self.names.index),
                f"indices: {listed(self.names.index)}" if self.names.index else "",
                f"declare it: tokens {name} in SOME_SET",
            )
            return False
        if bound is not None and name not in bound:
            home = self.names.index[name]
            self.problems.add(
                "C203",
                self.problems.spot(span, name),
                f"index {name} is free",
                f"nothing says which {home} token is meant",
                f"sum over it (sum[{name}] ...), or put {name} on the left-hand side",
            )
            return False
        return True

    def range(self, expr: ast.Expr) -> Range:
        """The interval an expression is known to lie in."""
        return range_of(expr, self.names.params, self.fields)

    # ---- names -------------------------------------------------------------------------------------------------------

    def _count(self, expr: ast.Count) -> Type | None:
        if expr.set in self.names.sets:
            return Type(positive=True, nonnegative=True)
        home = self.names.index.get(expr.set)
        label = f"{expr.set} is an index; write count({home})" if home else did_you_mean(expr.set, self.names.sets)
        self.problems.add(
            "C204",
            self.problems.spot(expr.span, expr.set),
            f"unknown token set {expr.set}",
            label,
            f"token sets: {listed(self.names.sets)}" if self.names.sets else "",
        )
        return None

    def _ref(self, expr: ast.Ref, bound: frozenset[str]) -> Type | None:
        name = expr.name
        if self.place == "default" and name not in self.names.params and name not in self.names.dims:
            what = self.names.what(name)
            message = f"the default of a parameter cannot read {name}" if what else f"unknown name {name}"
            label = f"{name} is {what}" if what else did_you_mean(name, [*self.names.params, *self.names.dims])
            self.problems.add(
                "C252",
                expr.span,
                message,
                label,
                "a default is made of numbers, other parameters, dimensions and count(...)",
            )
            return None
        if name in self.names.lets:
            return self._let(expr, bound)
        if name in self.names.params or name in self.names.dims:
            return self._constant(expr)
        if name in self.names.index or name in self.names.sets:
            return self._not_a_value(expr)
        if name not in self.fields:
            return self._unknown(expr)
        known = self.fields[name]
        if self.place == "start" and known.role != "input":
            self._start_reads(expr, known)
            return None
        if not self._indices_fit(expr, known.indices, field_words(known), bound):
            return None
        kind = known.kind if known.kind in ("onehot", "simplex") else ""
        return Type(known.width, frozenset(expr.indices), None, known.positive, known.nonnegative, kind)  # type: ignore[arg-type]

    def _constant(self, expr: ast.Ref) -> Type | None:
        what = "parameter" if expr.name in self.names.params else "dimension"
        if expr.indices:
            self.problems.add("C205", expr.span, f"{expr.name} is a {what} and has no index", f"write {expr.name}")
            return None
        if what == "dimension":
            return Type(positive=True, nonnegative=True)
        known = self.range(expr)
        return Type(positive=known.positive, nonnegative=known.nonnegative)

    def _not_a_value(self, expr: ast.Ref) -> None:
        if expr.name in self.names.index:
            self.problems.add(
                "C206",
                expr.span,
                f"{expr.name} is an index, not a value",
                f"write index({expr.name}) for the position of the token",
            )
        else:
            self.problems.add(
                "C206",
                expr.span,
                f"{expr.name} is a token set, not a value",
                f"write count({expr.name}) for the number of its tokens",
            )

    def _unknown(self, expr: ast.Ref) -> None:
        name = expr.name
        if name in self.later:
            self.problems.add(
                "C207",
                expr.span,
                f"{name} is read before it is computed",
                "no step before this one writes it",
                f"first computed at {self.problems.source.place(self.later[name])}",
                "compute it in an earlier step (`then` between), or declare it under `state` with its start",
            )
            return
        if self.place == "start" and name in self.names.written:
            self.problems.add(
                "C208",
                expr.span,
                f"a start cannot read {name}",
                "it is computed by the layer, later",
                "the start of a state field may read inputs only",
            )
            return
        what = "field" if expr.indices else "name"
        usable = [known for known in self.names.values() if bool(expr.indices) != (known in self.names.params)]
        self.problems.add(
            "C200",
            expr.span,
            f"unknown {what} {name}",
            did_you_mean(name, usable or self.names.values()),
            f"known here: {listed(self.names.values())}" if self.names.values() else "",
        )

    def _start_reads(self, expr: ast.Ref, known: FieldType) -> None:
        what = {"random": "a random field", "state": "a state field"}[known.role]
        self.problems.add(
            "C208",
            expr.span,
            f"a start cannot read {expr.name}",
            f"{expr.name} is {what}",
            "the start of a state field may read inputs only",
        )

    def _indices_fit(self, expr: ast.Ref, formal: tuple[str, ...], what: str, bound: frozenset[str]) -> bool:
        shape = written(expr.name, formal)
        if not expr.indices and formal:
            self.problems.add(
                "C209",
                expr.span,
                f"{expr.name} needs its {'index' if len(formal) == 1 else 'indices'} here",
                f"as in {shape}",
            )
            return False
        if len(expr.indices) != len(formal):
            self.problems.add(
                "C210",
                expr.span,
                f"{expr.name} has {plural(len(formal), 'index')}, not {len(expr.indices)}",
                f"{shape} is {what}",
            )
            return False
        if not all([self.index(i, expr.span, bound) for i in expr.indices]):
            return False
        for given, wanted in zip(expr.indices, formal, strict=True):
            ours, theirs = self.names.index[given], self.names.index.get(wanted)
            if theirs is not None and ours != theirs:
                self.problems.add(
                    "C211",
                    expr.span,
                    f"{expr.name} belongs to {theirs}, but {given} runs over {ours}",
                    f"{shape} is {what}",
                    _indices_of(theirs, self.names),
                )
                return False
        return True

    def _let(self, expr: ast.Ref, bound: frozenset[str]) -> Type | None:
        let = self.names.lets[expr.name]
        if not self._indices_fit(expr, let.target.indices, "a definition (`let`)", bound):
            return None
        body = self.let(let)
        if body is None:
            return None
        rename = dict(zip(let.target.indices, expr.indices, strict=True))
        return replace(body, indices=frozenset(rename.get(i, i) for i in body.indices), kind="")

    def let(self, let: ast.Let) -> Type | None:
        """The type of the body of a `let`, with the indices it was declared with."""
        name = let.target.name
        if name in self._open:
            chain = [*self._open[self._open.index(name) :], name]
            self.problems.add(
                "C212",
                let.target.span,
                f"the definition of {name} needs itself",
                " -> ".join(chain),
                "a `let` is put in where it is used, so it cannot be recursive; use a field for a value that changes",
            )
            return None
        if name not in self._lets:
            self._open.append(name)
            found = None
            if all([self.index(i, let.target.span) for i in let.target.indices]):
                found = self.of(let.body, frozenset(let.target.indices))
            self._open.pop()
            self._lets[name] = found
        return self._lets[name]

    # ---- operators ---------------------------------------------------------------------------------------------------

    def _else(self, expr: ast.Else, bound: frozenset[str]) -> Type | None:
        body, fallback = self.of(expr.body, bound), self.of(expr.fallback, bound)
        if body is None or fallback is None:
            return None
        guilty = body.undefined
        if isinstance(guilty, ast.Call) and guilty is not expr.body:
            self.unit_alone(guilty)
        if body.width != fallback.width and not is_zero(expr.fallback):
            self.problems.add(
                "C220",
                expr.fallback.span,
                "`else` must give the same kind of value",
                f"this is {width_words(fallback.width)}, but {width_words(body.width)} is expected",
            )
            return None
        both_over = self.weights_over(expr.body) == self.weights_over(expr.fallback)
        kind = (
            ""
            if not both_over
            else "onehot"
            if body.kind == fallback.kind == "onehot"
            else "simplex"
            if body.kind and fallback.kind
            else ""
        )
        return Type(
            body.width,
            body.indices | fallback.indices,
            fallback.undefined,
            body.positive and fallback.positive,
            body.nonnegative and fallback.nonnegative,
            kind,
        )  # type: ignore[arg-type]

    def unit_alone(self, call: ast.Expr) -> None:
        """Reports a `unit` whose `else` is further out than right behind it."""
        self.problems.add(
            "C231",
            call.span,
            "unit of a zero vector is undefined",
            "its `else` must follow it directly",
            "write (unit(v) else w)",
        )

    def weights_over(self, expr: ast.Expr) -> str:
        """The index a one-hot or simplex expression sums to one over."""
        match expr:
            case ast.Weigh():
                return expr.index
            case ast.Ref(indices=(_, second)):
                return second
            case ast.Else():
                return self.weights_over(expr.body)
        return ""

    def _binary(self, expr: ast.Binary, bound: frozenset[str]) -> Type | None:
        left, right = self.of(expr.left, bound), self.of(expr.right, bound)
        if left is None or right is None:
            return None
        indices, undefined = left.indices | right.indices, left.undefined or right.undefined
        known = self.range(expr) if left.width is None and right.width is None else Range()
        positive, nonnegative = known.positive, known.nonnegative
        if expr.op in "+-":
            width = self._same_width(expr, left, right, "add" if expr.op == "+" else "subtract")
            if width is False:
                return None
            if expr.op == "+":
                nonnegative |= left.nonnegative and right.nonnegative
                positive |= nonnegative and (left.positive or right.positive)
            return Type(width, indices, undefined, positive, nonnegative or positive)
        if expr.op == "*" and left.width is not None and right.width is not None:
            self.problems.add(
                "C222",
                expr.span,
                "vector times vector is not defined",
                "both sides are vectors",
                "write <a, b> for the inner product; one side of * must be a number",
            )
            return None
        if expr.op == "/" and right.width is not None:
            self.problems.add(
                "C223",
                expr.right.span,
                "cannot divide by a vector",
                f"this is {width_words(right.width)}",
                "divide by a number, such as its length |v| or squared length |v|^2",
            )
            return None
        if expr.op == "/" and is_zero(expr.right):
            self.problems.add("C225", expr.right.span, "division by zero", "this is 0")
            return None
        positive |= left.positive and right.positive
        nonnegative |= left.nonnegative and right.nonnegative or positive
        return Type(left.width if left.width is not None else right.width, indices, undefined, positive, nonnegative)

    def _same_width(self, expr: ast.Binary, left: Type, right: Type, verb: str) -> ast.Dimension | None | bool:
        """The common width of two sides, False after reporting that there is none; the number 0 fits any width."""
        if left.width == right.width or is_zero(expr.right):
            return left.width
        if is_zero(expr.left):
            return right.width
        one = f"cannot {verb} {'vectors of different width' if left.width and right.width else 'a number and a vector'}"
        self.problems.add(
            "C221",
            expr.span,
            one,
            self._sides(expr.left, left, expr.right, right),
            self._declared(expr.left, expr.right),
        )
        return False

    def _inner(self, expr: ast.Inner, bound: frozenset[str]) -> Type | None:
        left, right = self.of(expr.left, bound), self.of(expr.right, bound)
        if left is None or right is None:
            return None
        if left.width != right.width:
            self.problems.add(
                "C226",
                expr.span,
                "the two sides of <a, b> must have the same width",
                self._sides(expr.left, left, expr.right, right),
                self._declared(expr.left, expr.right),
            )
            return None
        same = simplex.same(expr.left, expr.right)
        scalar = left.width is None
        return Type(
            None,
            left.indices | right.indices,
            left.undefined or right.undefined,
            scalar and left.positive and right.positive,
            same or (scalar and left.nonnegative and right.nonnegative),
        )

    def _single(self, expr: ast.Expr, bound: frozenset[str]) -> Type | None:
        assert isinstance(expr, ast.Neg | ast.Power | ast.Norm | ast.Square | ast.Call)
        body = self.of(expr.base if isinstance(expr, ast.Power) else expr.body, bound)
        if body is None:
            return None
        match expr:
            case ast.Neg():
                return Type(body.width, body.indices, body.undefined)
            case ast.Norm() | ast.Square():
                return Type(None, body.indices, body.undefined, body.positive and body.width is None, True)
            case ast.Power():
                return self._power(expr, body)
            case ast.Call():
                return self._call(expr, body)

    def _power(self, expr: ast.Power, body: Type) -> Type | None:
        if body.width is not None:
            self.problems.add(
                "C227",
                expr.span,
                "a power of a vector is not defined",
                f"the base is {width_words(body.width)}",
                "write |v|^2 for the squared length",
            )
            return None
        even = expr.exponent % 2 == 0
        return Type(None, body.indices, body.undefined, body.positive or expr.exponent == 0, body.nonnegative or even)

    def _call(self, expr: ast.Call, body: Type) -> Type | None:
        name = expr.function
        if name == "unit":
            if body.width is None:
                self.problems.add("C228", expr.span, "unit needs a vector", "this is a number")
                return None
            return Type(body.width, body.indices, expr)
        if name in NUMBER_FUNCTIONS and body.width is not None:
            self.problems.add(
                "C229",
                expr.span,
                f"{name} needs a number",
                f"this is {width_words(body.width)}",
                "relu, tanh and unit take vectors" + ("; |v| is the length of v" if name == "sqrt" else ""),
            )
            return None
        known = self.range(expr.body) if body.width is None else Range()
        if (name == "log" and known.high <= 0) or (name == "sqrt" and known.high < 0):
            self.problems.add(
                "C225",
                expr.span,
                f"{name} of a number that is never positive" if name == "log" else "sqrt of a negative number",
                f"this is {'at most' if known.low != known.high else ''} {known.high:g}".replace("  ", " "),
            )
            return None
        positive = name == "exp" or (name in ("sqrt", "tanh", "relu") and body.positive)
        nonnegative = name in ("exp", "sqrt", "relu") or (name == "tanh" and body.nonnegative)
        if name == "log":
            positive, nonnegative = known.low > 1, known.low >= 1
        return Type(body.width, body.indices, body.undefined, positive, nonnegative)

    # ---- words -------------------------------------------------------------------------------------------------------

    def _sides(self, left: ast.Expr, a: Type, right: ast.Expr, b: Type) -> str:
        return f"{self._short(left, 'the left side')} is {_type_words(a)}, but {self._short(right, 'the right side')} is {_type_words(b)}"

    def _short(self, expr: ast.Expr, otherwise: str) -> str:
        text = " ".join(self.problems.source.at(expr.span).split())
        return text if len(text) <= 24 else otherwise

    def _declared(self, *exprs: ast.Expr) -> str:
        """Where the fields among some expressions are declared."""
        spans = []
        for expr in exprs:
            if isinstance(expr, ast.Ref) and (found := self.names.declared(expr.name)):
                spans.append(found.target.span)
        return declared_at(self.problems.source, *dict.fromkeys(spans)) if spans else ""


def is_zero(expr: ast.Expr) -> bool:
    """Whether an expression is the number 0, which fits a vector of any width."""
    return isinstance(expr, ast.Num) and expr.value == 0


def _type_words(found: Type) -> str:
    return "a number" if found.width is None else f"R^{found.width}"


def _indices_of(home: str, names: Names) -> str:
    own = [i for i, s in names.index.items() if s == home]
    return f"{joined(own)} run{'s' if len(own) == 1 else ''} over {home}" if own else ""
