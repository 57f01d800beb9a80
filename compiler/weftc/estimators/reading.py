"""A clustering -> the spec that assigns points to centers that no longer move, and judges them.

It is the part of the layer that the assignment follows from. What the fixed sets hold at the end of a run (centers,
mixing weights, variances) are inputs of it; what follows from these, and all that points hold, is computed anew. The
objective stays. Of shares it also takes the largest: that is the label.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from weftc.core import syntax as ast
from weftc.core.source import Span
from weftc.core.trees import fresh
from weftc.core.types import Checked, FieldType
from weftc.estimators.mistakes import EstimatorError
from weftc.estimators.roles import Clustering
from weftc.language.recheck import rechecked


@dataclass(frozen=True, slots=True)
class ReadingSpec:
    """The spec, of one layer and without memory.

    `state` are the fields of fixed sets that it takes; `labels` and `shares` name outputs (shares is empty where the
    assignment is a choice). `judged_at_once`: the objective needs nothing that the layer computes.
    """

    checked: Checked
    state: tuple[str, ...]
    labels: str
    shares: str
    judged_at_once: bool


def reading(roles: Clustering) -> ReadingSpec:
    """The spec that reads off what a settled clustering says about points."""
    whole = _Slice(roles)
    made = rechecked(whole.spec())
    inputs = (made.fields[field.target.name] for field in made.spec.inputs)
    state = tuple(field.name for field in inputs if not made.is_open(field.home))
    labels, shares = (whole.label, roles.assignment) if roles.soft else (roles.assignment, "")
    return ReadingSpec(made, state, labels, shares, _reads_only_inputs(made))


def _reads_only_inputs(checked: Checked) -> bool:
    objective = checked.spec.objective
    written = {equation.target.name for step in checked.spec.steps for equation in step.equations}
    roots = [] if objective is None else [objective, *(let.body for let in checked.spec.lets)]
    return not any(isinstance(n, ast.Ref) and n.name in written for root in roots for n in ast.walk(root))


class _Slice:
    """Collects, from the assignment backwards, what it follows from."""

    def __init__(self, roles: Clustering) -> None:
        self.roles, self.checked = roles, roles.checked
        self.equations: list[ast.Equation] = []  # in an order in which they can be carried out
        self.inputs: dict[str, ast.Field] = {}
        self.random: dict[str, ast.Field] = {}
        self.lets: dict[str, ast.Let] = {}
        self.under_way: list[str] = []
        self.last = {e.target.name: e for step in self.checked.spec.steps for e in step.equations}
        if roles.equation is not None:
            self.last[roles.field] = roles.equation
        self.label = fresh(self.checked, "label", "labels", roles.assignment)

    def spec(self) -> ast.Spec:
        """The slice as a spec."""
        whole, roles, span = self.checked.spec, self.roles, self.checked.spec.span
        self.declare(roles.points)
        self.compute(roles.field)
        if whole.objective is not None:
            self.follow(whole.objective)
        outputs = [_output(span, roles.assignment, roles.field)]
        if roles.soft:
            self.equations.append(self._largest())
            outputs.append(_output(span, self.label, self.label))
        made = replace(
            whole,
            name=f"{whole.name}_settled",
            doc="",
            inputs=tuple(self.inputs.values()),
            random=tuple(self.random.values()),
            state=(),
            lets=tuple(let for let in whole.lets if let.target.name in self.lets),
            steps=tuple(ast.Step(e.span, (e,)) for e in self.equations),
            repeat=None,
            outputs=tuple(outputs),
            examples=(),
        )
        spoken = {self.checked.index.get(word, word) for word in _sets(made)}
        return replace(made, tokens=tuple(tokens for tokens in whole.tokens if tokens.name in spoken))

    def _largest(self) -> ast.Equation:
        """label[i,j] = argmax[j] y[i,j]."""
        target = self.last[self.roles.field].target
        score = ast.Ref(target.span, self.roles.field, target.indices)
        choice = ast.Weigh(target.span, "argmax", target.indices[1], score)
        return ast.Equation(target.span, ast.Ref(target.span, self.label, target.indices), choice)

    def compute(self, name: str) -> None:
        """Takes up the last equation of a field, and before it those that it follows from."""
        if name in self.under_way:
            raise EstimatorError(
                f"{self.checked.spec.name} cannot assign new points: {name} of a point depends on its own past"
            )
        if any(e.target.name == name for e in self.equations):
            return
        self.under_way.append(name)
        self.follow(self.last[name].body)
        self.under_way.pop()
        self.equations.append(self.last[name])

    def follow(self, body: ast.Expr) -> None:
        """Makes everything known that an expression reads."""
        for node in ast.walk(body):
            if not isinstance(node, ast.Ref):
                continue
            if node.name in self.checked.lets:
                if node.name not in self.lets:
                    self.lets[node.name] = self.checked.lets[node.name]
                    self.follow(self.lets[node.name].body)
            elif node.name in self.last and self._is_remade(node.name):
                self.compute(node.name)
            elif node.name in self.checked.fields:
                self.declare(self.checked.fields[node.name])

    def _is_remade(self, name: str) -> bool:
        """Whether a field is computed anew: of points always, of a fixed set if it follows from what is known of it."""
        field = self.checked.fields.get(name)
        if field is None or self.checked.is_open(field.home):
            return True
        return field.role == "computed" and not self._asks_points(self.last[name].body, (name,))

    def _asks_points(self, body: ast.Expr, above: tuple[str, ...]) -> bool:
        """Whether an expression reads what points hold, or one of the fields above it."""
        for ref in (node for node in ast.walk(body) if isinstance(node, ast.Ref)):
            if ref.name in above or any(self.checked.is_open(self.checked.index[index]) for index in ref.indices):
                return True
            let, field = self.checked.lets.get(ref.name), self.checked.fields.get(ref.name)
            if let is not None and self._asks_points(let.body, above):
                return True
            is_made = field is not None and field.role == "computed"
            if is_made and self._asks_points(self.last[ref.name].body, (*above, ref.name)):
                return True
        return False

    def declare(self, field: FieldType) -> None:
        """Makes a field an input; random ones stay random, and what no equation changes is what it starts as."""
        spec, span = self.checked.spec, self.checked.spec.span
        if field.role == "random":
            self.random[field.name] = next(f for f in spec.random if f.target.name == field.name)
            return
        target = ast.Ref(span, field.name, field.indices)
        if field.role == "state" and self.checked.is_open(field.home):
            start = next(f.start for f in spec.state if f.target.name == field.name)
            assert start is not None
            self.last[field.name] = ast.Equation(start.span, target, start)
            self.compute(field.name)
            return
        sign = (0.0, field.positive) if field.positive or field.nonnegative else None
        bound = field.bound or (None if sign is None else ast.ParamBound(span, sign, None))
        if field.kind in ("onehot", "simplex"):
            bound = None
        self.inputs[field.name] = ast.Field(span, target, ast.TypeClause(span, field.kind, field.width), bound)


def _output(span: Span, name: str, field: str) -> ast.Output:
    return ast.Output(span, ast.Ref(span, name, ()), ast.Ref(span, field, ()))


def _sets(spec: ast.Spec) -> Iterator[str]:
    """Every index, and every set by name, that a spec speaks of."""
    for field in (*spec.inputs, *spec.random):
        yield from field.target.indices
    roots = [equation.body for step in spec.steps for equation in step.equations] + [let.body for let in spec.lets]
    roots += [param.default for param in spec.params if param.default is not None]
    roots += [] if spec.objective is None else [spec.objective]
    for node in (node for root in roots for node in ast.walk(root)):
        match node:
            case ast.Ref(indices=indices):
                yield from indices
            case ast.Reduce(index=index) | ast.Weigh(index=index) | ast.Position(index=index):
                yield index
            case ast.Count(set=name):
                yield name
