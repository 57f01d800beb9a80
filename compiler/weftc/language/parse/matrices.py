"""Matrices -> vectors, one for every row, on the tokens of a fixed set.

    inputs A : R^m x d          tokens row' in rows_m : m    inputs A[row'] : R^d
    y[i] = A * x[i]             y[i] = sum[row'] <A[row'], x[i]> * onehot(row')
    z[i] = A^T * y[i]           z[i] = sum[row'] <y[i], onehot(row')> * A[row']
    P = A * P * A^T + Q         an equation for every row of P
    trace(A)                    sum[row'] <A[row'], onehot(row')>

A set that the spec has of this size holds the rows, if there is one: with e in coordinates : d, A[e] is a row of A and
A[e,f] an entry. Products are read from the right: no product of matrices is made where it meets a vector.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from weftc.core import syntax as ast
from weftc.core.source import Span
from weftc.core.syntax import Dimension
from weftc.core.trees import inside, nodes
from weftc.language.check.problems import Problems

IDENTITY = "identity"
ENTRYWISE = ("+", "-", ".*", "./")


@dataclass(frozen=True, slots=True)
class MatrixShape:
    """What an expression is: a number, a vector (a column or, transposed, a row), a matrix. Unknown sizes are None."""

    kind: str  # number, vector, row, matrix
    rows: Dimension | None = None
    columns: Dimension | None = None

    def __str__(self) -> str:
        if self.kind == "matrix":
            return f"R^{self.rows or '?'} x {self.columns or '?'}"
        return "a number" if self.kind == "number" else f"R^{self.rows or '?'}"

    @property
    def transposed(self) -> MatrixShape:
        kind = {"vector": "row", "row": "vector"}.get(self.kind, self.kind)
        return MatrixShape(kind, self.columns, self.rows) if kind == "matrix" else MatrixShape(kind, self.rows)


NUMBER = MatrixShape("number")
Part: TypeAlias = Any  # an expression, perhaps one of a matrix


def with_matrices(spec: ast.Spec, problems: Problems) -> ast.Spec:
    """The spec in which every matrix is written as its rows."""
    declared = any(f.type.kind == "matrix" for f in (*spec.inputs, *spec.state))
    written = any(isinstance(node, ast.Transpose | ast.Rows | ast.MatrixCall) for node in nodes(spec))
    return _Matrices(spec, problems).spec() if declared or written else spec


class _Refused(Exception):
    """Reported already."""


class _Matrices:
    def __init__(self, spec: ast.Spec, problems: Problems) -> None:
        self.old, self.problems = spec, problems
        self.indices = {index: one for one in spec.tokens for index in one.indices}
        self.declared = {f.target.name: f for f in (*spec.inputs, *spec.random, *spec.state)}
        self.lets = {let.target.name: let for let in spec.lets}
        self.equations: dict[str, ast.Equation] = {}
        for equation in (e for step in spec.steps for e in step.equations):
            self.equations.setdefault(equation.target.name, equation)
        self.params = {one.name for one in spec.params}
        sizes = (*(one.size for one in spec.tokens), *(f.type.width for f in self.declared.values()))
        self.taken = {*self.indices, *self.declared, *self.lets, *self.equations, *self.params}
        self.taken |= {one.name for one in spec.tokens} | {size for size in sizes if isinstance(size, str)}
        self.shapes: dict[str, MatrixShape | None] = {}
        self.homes: dict[Dimension, ast.TokenSet] = {}
        self.made: dict[str, list[str]] = {}  # set -> indices made for it
        self.used: dict[str, int] = {}  # how many of them the expression uses so far

    # ---- the whole spec

    def spec(self) -> ast.Spec:
        spec = self.old
        made = replace(
            spec,
            inputs=tuple(map(self._field, spec.inputs)),
            state=tuple(map(self._field, spec.state)),
            lets=tuple(replace(let, body=self._value(let.body)) for let in spec.lets if not self._is_matrix(let.body)),
            steps=tuple(
                replace(step, equations=tuple(self._written(e, "body") for e in step.equations)) for step in spec.steps
            ),
            outputs=tuple(self._written(o, "body") for o in spec.outputs),
            objective=None if spec.objective is None else self._value(spec.objective),
        )
        start = next((tokens.span for tokens in spec.tokens), spec.span)
        sets = {one.name: one for one in spec.tokens}
        sets |= {one.name: one for one in self.homes.values() if one.name not in sets}
        tokens = [replace(one, indices=(*one.indices, *self.made.get(one.name, ()))) for one in sets.values()]
        return replace(made, tokens=tuple(replace(one, span=one.span or start) for one in tokens))

    def _field(self, one: ast.Field) -> ast.Field:
        if one.type.kind != "matrix":
            return one if one.start is None else self._written(one, "start")
        if one.target.indices:
            self.say(
                "P150",
                "a matrix belongs to no token",
                one.target.span,
                f"write {one.target.name} : R^{one.type.rows} x {one.type.width}",
                "a matrix for every token would need three indices; for a diagonal one a vector per token will do",
            )
            return one
        made = one if one.start is None else self._written(one, "start")
        row = next(iter(made.target.indices), None) or self._row_index(one.type.rows, one.span)
        type_ = ast.TypeClause(one.type.span, "vector", one.type.width)
        return replace(made, target=replace(one.target, indices=(row,)), type=type_)

    def _written(self, one: Any, part: str) -> Any:
        """A declaration, equation or output with its value spelled out: for every row, if it is of a matrix."""
        self.used.clear()
        body = getattr(one, part)
        alone = isinstance(one, ast.Output) and isinstance(body, ast.Ref) and not body.indices
        if alone and not (body.name in self.lets and one.target is not body):
            return one
        try:
            shape = self._shape_of_name(one.target.name)
            found = self.shape(body)
        except _Refused:
            return one
        matrix = shape is not None and shape.kind == "matrix" and not isinstance(one, ast.Output)
        if one.target.indices or not (matrix or found.kind == "matrix"):
            return replace(one, **{part: self._value(body)})
        shape = shape if matrix and shape is not None else found
        self._fit(body.span, shape, found, one.target.name)
        try:
            if found.kind != "matrix" and not _is_zero(body):
                how = "0 is a matrix of zeros, identity the one with ones on its diagonal"
                raise self.say(
                    "P150", f"{one.target.name} is a matrix, {shape}", body.span, f"this is {_said(found)}", how
                )
            row = self._row_index(shape.rows or found.rows, one.target.span)
            return replace(one, target=replace(one.target, indices=(row,)), **{part: self.row(body, row)})
        except _Refused:
            return one

    def _fit(self, span: Span, shape: MatrixShape, found: MatrixShape, name: str) -> None:
        known = ((shape.rows, found.rows), (shape.columns, found.columns))
        if found.kind == "matrix" and any(None not in pair and pair[0] != pair[1] for pair in known):
            self.say("P150", f"{name} is {shape}, but this is {found}", span)

    def _value(self, node: Part) -> Any:
        """An expression that is a number or a vector."""
        try:
            found = self.value(node)
        except _Refused:
            return node
        return found

    def _is_matrix(self, body: Part) -> bool:
        try:
            return self.shape(body).kind == "matrix"
        except _Refused:
            return False

    # ---- shapes

    def shape(self, node: Part) -> MatrixShape:
        """What an expression is; what is no matrix is not looked at closely, the checker does that."""
        match node:
            case ast.Ref(name=name, indices=indices):
                return self._shape_of_ref(name, len(indices))
            case ast.ReadAt(name=name, places=places):
                return self._shape_of_ref(name, len(places))
            case ast.Position(index=index, onehot=True):
                return MatrixShape("vector", self.indices[index].size if index in self.indices else None)
            case ast.Symbol():
                return MatrixShape("vector")
            case ast.Transpose(body=body):
                of = self.shape(body)
                if isinstance(body, ast.Weigh):
                    message = f"does the score of this {body.kind} end before the ^T?"
                    how = f"for a score that goes on write {body.kind}[{body.index}](...) around all of it"
                    raise self.say("P143", message, body.span, "a weighting before ( is a call", how)
                if of.kind == "number":
                    how = "an exponent is a whole number, as in a^2"
                    raise self.say("P150", "a number has no transpose", node.span, "this is a number", how)
                return of.transposed
            case ast.MatrixCall(function="diag", body=body):
                of = self.shape(body)
                return (
                    MatrixShape("vector", of.rows) if of.kind == "matrix" else MatrixShape("matrix", of.rows, of.rows)
                )
            case ast.Rows(rows=rows):
                return MatrixShape("matrix", len(rows), len(rows[0]))
            case ast.Power(base=base):
                of = self.shape(base)
                return of if of.kind == "matrix" else NUMBER
            case ast.Binary(op="*"):
                return self._shape_of_product(node)
            case ast.Binary(op=op, left=left, right=right):
                return self._shape_of_sides(node, self.shape(left), self.shape(right), op)
            case ast.Else(body=body, fallback=fallback):
                return self._shape_of_sides(node, self.shape(body), self.shape(fallback), "else")
            case ast.Neg(body=body) | ast.Call(body=body) | ast.Reduce(kind="sum" | "mean", body=body):
                return self.shape(body)
        return NUMBER

    def _shape_of_ref(self, name: str, indices: int) -> MatrixShape:
        whole = self._shape_of_name(name)
        if whole is None:
            return NUMBER
        if whole.kind == "matrix":
            return (whole, MatrixShape("vector", whole.columns), NUMBER)[min(indices, 2)]
        target = self.declared.get(name) or self.lets.get(name) or self.equations.get(name)
        more = target is not None and indices > len(target.target.indices)
        return NUMBER if more else whole

    def _shape_of_name(self, name: str) -> MatrixShape | None:
        """The shape of a field or definition; None for what is neither."""
        if name in self.shapes:
            return self.shapes[name]
        self.shapes[name] = None  # what needs itself to be known
        found: MatrixShape | None = None
        if name in self.declared:
            of = self.declared[name].type
            if of.kind == "matrix":
                found = MatrixShape("matrix", of.rows, of.width)
            else:
                vector = of.kind in ("vector", "unit", "symbol")
                found = MatrixShape("vector", of.width) if vector else NUMBER
        elif name in self.lets:
            found = self.shape(self.lets[name].body)
        elif name in self.equations:
            found = self.shape(self.equations[name].body)
        elif name == IDENTITY and name not in self.taken:
            found = MatrixShape("matrix")
        self.shapes[name] = found
        return found

    def _shape_of_sides(self, node: Part, left: MatrixShape, right: MatrixShape, op: str) -> MatrixShape:
        kinds = {left.kind, right.kind}
        if "matrix" not in kinds:
            return left if left.kind != "number" else right
        if op == "/" and right.kind == "number":
            return left
        zero = _is_zero(node.right if isinstance(node, ast.Binary) else node.fallback)
        if kinds != {"matrix"} and not (zero and right.kind == "number"):
            how = "for a number times the identity write a * identity" if right.kind == "number" else ""
            raise self.say("P150", f"`{op}` of {_said(left)} and {_said(right)}", node.span, "", how)
        rows, columns = left.rows or right.rows, left.columns or right.columns
        if not zero and (rows, columns) not in ((right.rows or rows, right.columns or columns),):
            raise self.say("P150", f"`{op}` of matrices of different sizes: {left} and {right}", node.span)
        return MatrixShape("matrix", rows, columns)

    def _shape_of_product(self, node: ast.Binary) -> MatrixShape:
        left, right = self.shape(node.left), self.shape(node.right)
        match left.kind, right.kind:
            case ("number", _):
                return right
            case (_, "number"):
                return left
            case ("matrix", "matrix"):
                inner, out = (left.columns, right.rows), MatrixShape("matrix", left.rows or right.rows, right.columns)
                if left.columns is None or right.columns is None:  # the identity
                    out = MatrixShape("matrix", left.rows or right.rows, right.columns or left.columns)
            case ("matrix", "vector"):
                inner, out = (left.columns, right.rows), MatrixShape("vector", left.rows or right.rows)
            case ("row", "matrix"):
                inner, out = (left.rows, right.rows), MatrixShape("row", right.columns or left.rows)
            case ("row", "vector"):
                inner, out = (left.rows, right.rows), NUMBER
            case ("vector", "row"):
                return MatrixShape("matrix", left.rows, right.rows)
            case ("vector", "matrix"):
                how = "for the product of a row and a matrix write A^T * x"
                raise self.say("P150", "a vector stands before a matrix", node.span, "", how)
            case _:
                return left  # two vectors: the checker says what to write
        if None not in inner and inner[0] != inner[1]:
            what = "length" if right.kind == "vector" else "rows"
            says = f"the {what} of the right side is {right.rows}; {inner[0]} is needed"
            raise self.say("P150", f"these sizes do not fit: {left} times {right}", node.span, says)
        return out

    # ---- values: numbers and vectors

    def value(self, node: Part) -> Any:
        """A number or vector without matrices in it."""
        shape = self.shape(node)
        if shape.kind == "matrix":
            how = "a matrix stands alone on the right of an equation, as in S = A * B, or in a product: A * x[i]"
            raise self.say("P150", f"this is a matrix, {shape}", node.span, "a number or vector is expected", how)
        if shape.kind == "row":
            how = "x^T * y is a number and x * y^T a matrix; for x^T * A write A^T * x"
            raise self.say("P150", "a transposed vector stands alone", node.span, "", how)
        match node:
            case ast.Binary(op="*", left=left, right=right):
                of_left = self.shape(left)
                if of_left.kind == "matrix" and shape.kind == "vector":
                    return self.times(left, self.value(right))
                if of_left.kind == "row":
                    return ast.Inner(node.span, self.column(left), self.value(right))
            case ast.Transpose(body=body):  # of a transposed vector
                return self.column(body)
            case ast.MatrixCall(function="trace", body=body):
                if self.shape(body).kind != "matrix":
                    raise self.say("P150", "trace is of a matrix", body.span, f"this is {_said(self.shape(body))}")
                row = self._row_index(self.shape(body).rows, node.span)
                here = ast.Position(node.span, row, onehot=True)
                return ast.Reduce(node.span, "sum", row, ast.Inner(node.span, self.row(body, row), here))
            case ast.MatrixCall(body=body):  # the diagonal of a matrix
                row = self._row_index(shape.rows, node.span)
                here = ast.Position(node.span, row, onehot=True)
                entry = ast.Inner(node.span, self.row(body, row), here)
                return ast.Reduce(node.span, "sum", row, ast.Binary(node.span, "*", entry, here))
            case ast.Inner(left=left, right=right) if self._is_matrix(left) and self._is_matrix(right):
                row = self._row_index(self.shape(left).rows or self.shape(right).rows, node.span)
                return ast.Reduce(
                    node.span, "sum", row, ast.Inner(node.span, self.row(left, row), self.row(right, row))
                )
            case ast.Norm(body=body) | ast.Square(body=body) if self._is_matrix(body):
                row = self._row_index(self.shape(body).rows, node.span)
                whole = ast.Reduce(node.span, "sum", row, ast.Square(node.span, self.row(body, row)))
                return whole if isinstance(node, ast.Square) else ast.Call(node.span, "sqrt", whole)
        return inside(node, self.value_or_other)

    def value_or_other(self, node: Part) -> Any:
        """A part of a value: an expression, a condition or a rule for ties."""
        expression = not isinstance(node, ast.Condition | ast.Ties)
        return self.value(node) if expression else inside(node, self.value_or_other)

    def column(self, node: Part) -> Any:
        """A transposed vector as a vector."""
        match node:
            case ast.Transpose(body=body):
                return self.value(body)
            case ast.Binary(op="*", left=left, right=right) if self.shape(left).kind == "row":
                return self.transposed_times(right, self.column(left))
            case ast.Binary(op="*", left=left, right=right) if self.shape(left).kind == "number":
                return ast.Binary(node.span, "*", self.value(left), self.column(right))
            case ast.Reduce(body=body) | ast.Neg(body=body):
                return replace(node, body=self.column(body))
            case ast.Binary(left=left, right=right):
                sides = (self.value(s) if self.shape(s).kind == "number" else self.column(s) for s in (left, right))
                return ast.Binary(node.span, node.op, *sides)
        return self.value(node)

    # ---- matrices: a row, and products with vectors

    def row(self, node: Part, at: str) -> Any:
        """The row of a matrix that an index names, as a vector."""
        span: Span = node.span
        here = ast.Position(span, at, onehot=True)
        match node:
            case ast.Ref(name=name) if name in self.lets:
                return self.row(self.lets[name].body, at)
            case ast.Ref(name=name) if name == IDENTITY and name not in self.taken:
                return here
            case ast.Ref(name=name):
                return ast.Ref(span, name, (at,))
            case ast.Transpose(body=body):
                return self.times(body, here)
            case ast.MatrixCall(body=body):
                return ast.Binary(span, "*", ast.Inner(span, self.value(body), here), here)
            case ast.Rows(rows=rows):
                of_rows = [self._combined(row, span) for row in rows]
                picked = [ast.Inner(span, here, _constant(q, len(rows), span)) for q in range(len(rows))]
                return _total([ast.Binary(span, "*", a, b) for a, b in zip(picked, of_rows, strict=True)])
            case ast.Power(base=base, exponent=exponent):
                return self.row(self._repeated(base, exponent, span), at)
            case ast.Binary(op="*", left=left, right=right):
                kinds = self.shape(left).kind, self.shape(right).kind
                if kinds == ("matrix", "matrix"):
                    return self.transposed_times(right, self.row(left, at))
                if kinds == ("vector", "row"):
                    entry = ast.Inner(span, self.value(left), here)
                    return ast.Binary(span, "*", entry, self.column(right))
                return ast.Binary(span, "*", self._row_or_number(left, at), self._row_or_number(right, at))
            case ast.Binary(op=op, left=left, right=right):
                return ast.Binary(span, op, self._row_or_number(left, at), self._row_or_number(right, at))
            case ast.Else(body=body, fallback=fallback):
                return ast.Else(span, self._row_or_number(body, at), self._row_or_number(fallback, at))
            case ast.Reduce():
                others = {"weighted", "by", "where"}
                kept = {name: getattr(node, name) for name in others}
                made = replace(node, body=self.row(node.body, at))
                return replace(made, **{n: inside_tuple(v, self.value_or_other) for n, v in kept.items()})
            case ast.Neg(body=body) | ast.Call(body=body):
                return replace(node, body=self.row(body, at))
            case ast.Num(value=0):
                return node
        raise self.say("P150", "this is no matrix", span)

    def _row_or_number(self, node: Part, at: str) -> Any:
        return self.row(node, at) if self.shape(node).kind == "matrix" else self.value(node)

    def times(self, node: Part, v: Any) -> Any:
        """A matrix times a vector."""
        span: Span = node.span
        match node:
            case ast.Ref(name=name) if name in self.lets:
                return self.times(self.lets[name].body, v)
            case ast.Transpose(body=body):
                return self.transposed_times(body, v)
            case ast.Rows(rows=rows):
                return self._entries(rows, v, span)
            case ast.Binary(op="*", left=left, right=right) if self.shape(right).kind == "row":
                return ast.Binary(span, "*", ast.Inner(span, self.column(right), v), self.value(left))
        found = self._applied(node, v, self.times, first="right")
        if found is None and self._of_two(v):
            found = replace(v, left=self.times(node, v.left), right=self.times(node, v.right))
        if found is not None:
            return found
        row = self._row_index(self.shape(node).rows, span)
        entry = ast.Inner(span, self.row(node, row), v)
        return ast.Reduce(span, "sum", row, ast.Binary(span, "*", entry, ast.Position(span, row, onehot=True)))

    def transposed_times(self, node: Part, v: Any) -> Any:
        """The transpose of a matrix times a vector."""
        span: Span = node.span
        match node:
            case ast.Ref(name=name) if name in self.lets:
                return self.transposed_times(self.lets[name].body, v)
            case ast.Transpose(body=body):
                return self.times(body, v)
            case ast.Rows(rows=rows):
                return self._entries(tuple(zip(*rows, strict=True)), v, span)
            case ast.Binary(op="*", left=left, right=right) if self.shape(right).kind == "row":
                return ast.Binary(span, "*", ast.Inner(span, self.value(left), v), self.column(right))
        found = self._applied(node, v, self.transposed_times, first="left")
        if found is None and self._of_two(v):
            found = replace(v, left=self.transposed_times(node, v.left), right=self.transposed_times(node, v.right))
        if found is not None:
            return found
        row = self._row_index(self.shape(node).rows, span)
        entry = ast.Inner(span, v, ast.Position(span, row, onehot=True))
        return ast.Reduce(span, "sum", row, ast.Binary(span, "*", entry, self.row(node, row)))

    def _applied(self, node: Part, v: Any, times: Any, first: str) -> Any:
        """What a product with a vector is for either side of a matrix; None where its rows are needed."""
        span: Span = node.span
        match node:
            case ast.Ref(name=name) if name == IDENTITY and name not in self.taken:
                return v
            case ast.MatrixCall(body=body):
                return ast.Binary(span, ".*", self.value(body), v)
            case ast.Power(base=base, exponent=exponent):
                return times(self._repeated(base, exponent, span), v)
            case ast.Neg(body=body):
                return ast.Neg(span, times(body, v))
            case ast.Binary(op="*", left=left, right=right):
                if self.shape(left).kind == "number":
                    return ast.Binary(span, "*", self.value(left), times(right, v))
                if self.shape(right).kind == "number":
                    return ast.Binary(span, "*", self.value(right), times(left, v))
                inner, outer = (right, left) if first == "right" else (left, right)
                return times(outer, times(inner, v))
            case ast.Binary(op="/", left=left, right=right):
                return ast.Binary(span, "/", times(left, v), self.value(right))
            case ast.Binary(op="+" | "-" as op, left=left, right=right):
                return ast.Binary(span, op, times(left, v), times(right, v))
        return None

    def _entries(self, rows: tuple[tuple[Any, ...], ...], v: Any, span: Span) -> Any:
        """A matrix of entries times a vector: every coordinate is a combination of those of the vector."""
        coordinates = [ast.Inner(span, v, _constant(at, len(rows[0]), span)) for at in range(len(rows[0]))]
        products = (
            [ast.Binary(span, "*", self.value(c), x) for c, x in zip(row, coordinates, strict=True) if not _is_zero(c)]
            for row in rows
        )
        found = ((at, terms) for at, terms in enumerate(products) if terms)
        kept = [ast.Binary(span, "*", _total(terms), _constant(at, len(rows), span)) for at, terms in found]
        return _total(kept) if kept else ast.Binary(span, "*", ast.Num(span, 0), self._combined((), span, len(rows)))

    def _combined(self, entries: tuple[Any, ...], span: Span, width: int = 0) -> Any:
        """A vector by its coordinates."""
        many = width or len(entries)
        found = [(at, c) for at, c in enumerate(entries) if not _is_zero(c)] or [(0, ast.Num(span, 0))]
        return _total([ast.Binary(span, "*", self.value(c), _constant(at, many, span)) for at, c in found])

    def _of_two(self, v: Any) -> bool:
        """Whether a vector is a sum or difference of two tokens, A (x[i] - c[j]): each token takes its own product."""
        if not isinstance(v, ast.Binary) or v.op not in ("+", "-"):
            return False
        left, right = self._tokens(v.left), self._tokens(v.right)
        return not left <= right and not right <= left

    def _tokens(self, node: Part) -> set[str]:
        """The indices a node reads that nothing in it binds."""
        found = set().union(*(self._tokens(child) for child in ast.children(node)))
        if isinstance(node, ast.Ref):
            found |= set(node.indices)
        if isinstance(node, ast.Position | ast.Weigh):
            found.add(node.index)
        return found - {node.index} if isinstance(node, ast.Reduce) else found

    def _repeated(self, base: Part, exponent: int, span: Span) -> Part:
        out = base if exponent else ast.Ref(span, IDENTITY, ())
        for _ in range(exponent - 1):
            out = ast.Binary(span, "*", out, base)
        return out

    # ---- indices for rows

    def _row_index(self, size: Dimension | None, span: Span) -> str:
        """An index over a set of so many tokens that the expression does not use yet."""
        if size is None:
            how = "declare it: state S : R^m x d = 0"
            raise self.say("P150", "the size of this matrix does not follow from what it is made of", span, "", how)
        home = self._home(size, span)
        own = self.made.setdefault(home.name, [])
        number = self.used[home.name] = self.used.get(home.name, 0) + 1
        while len(own) < number:
            own.append(self._fresh("row'"))
        return own[number - 1]

    def _home(self, size: Dimension, span: Span) -> ast.TokenSet:
        """The set whose tokens hold the rows of matrices with so many: one that the spec reads rows by, or any."""
        if size not in self.homes:
            fitting = [one for one in self.old.tokens if one.size == size]
            matrices = {name for name, f in self.declared.items() if f.type.kind == "matrix" and f.type.rows == size}
            read = [
                n.indices[0] for n in nodes(self.old) if isinstance(n, ast.Ref) and n.name in matrices and n.indices
            ]
            named = [one for one in fitting if any(index in one.indices for index in read)]
            found = next(iter([*named, *fitting]), None)
            if found is None:
                found = ast.TokenSet(span, (), self._fresh(f"rows_{size}"), size)
            self.homes[size] = found
        return self.homes[size]

    def _fresh(self, word: str) -> str:
        while word in self.taken:
            word += "'"
        self.taken.add(word)
        return word

    # ---- words

    def say(self, code: str, message: str, span: Span, label: str = "", *notes: str) -> _Refused:
        """Reports a mistake; whoever cannot go on raises what is returned."""
        self.problems.add(code, span, message, label, *notes)
        return _Refused()


def inside_tuple(value: Any, rewrite: Any) -> Any:
    """A node or several, rewritten; None stays."""
    if isinstance(value, tuple):
        return tuple(rewrite(one) for one in value)
    return None if value is None else rewrite(value)


def _constant(at: int, width: int, span: Span) -> ast.Symbol:
    """The vector of a width with a 1 at a place, counted from 0."""
    return ast.Symbol(span, str(at + 1), tuple(str(n + 1) for n in range(width)))


def _total(terms: list[Any]) -> Any:
    first, *others = terms
    for term in others:
        first = ast.Binary(term.span, "+", first, term)
    return first


def _is_zero(node: Part) -> bool:
    return isinstance(node, ast.Num) and not node.value


def _said(shape: MatrixShape) -> str:
    return {"matrix": f"a matrix ({shape})", "row": f"a transposed vector ({shape})"}.get(
        shape.kind, f"a vector ({shape})" if shape.kind == "vector" else "a number"
    )
