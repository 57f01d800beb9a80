"""Phases: layers of several kinds, one after the other -> one layer whose equations act in their phase.

    phase warm repeat 5    layer
      x[i] = A               n[s] = min(n[s] + 1, 6)        with s in stages' : 1 and n[s] : R = 0
    phase main             then
      x[i] = B               x[i] = (sum[s] A where n[s] <= 5) + (sum[s] x[i] where n[s] > 5)
                           then
                             x[i] = (sum[s] B where n[s] > 5) + (sum[s] x[i] where n[s] <= 5)

The counter stops where the last phase begins, so that what follows can come to rest. Inputs and state keep their values
while another phase runs. What a phase computes for itself is computed in every layer; where it may divide by zero it is
0 while another phase runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from weftc.core import syntax as ast
from weftc.core.source import Span
from weftc.core.trees import nodes
from weftc.language.check.problems import Problems

SPECIAL = {"unit", "symbol", "onehot", "simplex"}  # what a sum of old and new need not be
SET, INDEX, COUNTER = "stages'", "stage'", "stage"


def with_phases(spec: ast.Spec, problems: Problems) -> ast.Spec:
    """The spec with one layer."""
    if not spec.phases:
        return spec
    if any(phase.repeat is None for phase in spec.phases[:-1]):
        for phase in spec.phases[:-1]:
            if phase.repeat is None:
                how = f"as in: phase {phase.name} repeat 5; only the last phase may run until nothing changes"
                problems.add("P108", phase.span, f"nothing says how often {phase.name} runs", "", how)
        problems.stop()
    _Reads(spec, problems).check()
    problems.stop()
    return _Joined(spec).spec()


class _Reads:
    """What one phase computes is not known in another, unless it is kept."""

    def __init__(self, spec: ast.Spec, problems: Problems) -> None:
        self.spec, self.problems = spec, problems
        self.kept = _kept(spec)
        self.writes = [{e.target.name for step in phase.steps for e in step.equations} for phase in spec.phases]
        self.lets = {let.target.name: let for let in spec.lets}

    def check(self) -> None:
        computed = set().union(*self.writes) - self.kept
        for one in (*self.spec.inputs, *self.spec.state) if len(self.writes) > 1 else ():
            if one.type.kind in SPECIAL and any(one.target.name in own for own in self.writes):
                kind = {"unit": "of length one", "symbol": "a symbol"}.get(one.type.kind, one.type.kind)
                how = "compute it in each phase that reads it, without declaring it"
                how += ", or declare it real" if one.target.indices[1:] else ""
                message = f"{one.target.name} is {kind}, which phases do not keep"
                self.problems.add("C288", one.span, message, "numbers and vectors are kept from phase to phase", how)
        for phase, own in zip(self.spec.phases, self.writes, strict=True):
            for step in phase.steps:
                for equation in step.equations:
                    self._equation(equation.body, computed - own, f"phase {phase.name}")
        shown = [output.body for output in self.spec.outputs]
        shown += [] if self.spec.objective is None else [self.spec.objective]
        for body in shown:
            self._equation(body, computed - self.writes[-1], f"the last phase, {self.spec.phases[-1].name},")

    def _equation(self, body: ast.Expr, elsewhere: set[str], here: str) -> None:
        for ref in self._reads(body, set()):
            if ref.name in elsewhere:
                label = f"{here} does not compute it"
                how = f"declare {ref.name} under `state` with its start, or compute it in this phase too"
                self.problems.add("C207", ref.span, f"{ref.name} is computed in another phase", label, how)
                return

    def _reads(self, body: ast.Expr, seen: set[str]) -> Iterator[ast.Ref | ast.ReadAt]:
        for node in ast.walk(body):
            if isinstance(node, ast.Ref | ast.ReadAt):
                yield node
                if node.name in self.lets and node.name not in seen:
                    seen.add(node.name)
                    yield from (replace(ref, span=node.span) for ref in self._reads(self.lets[node.name].body, seen))


class _Joined:
    def __init__(self, spec: ast.Spec) -> None:
        self.whole, self.kept = spec, _kept(spec)
        taken = {ref.name for ref in nodes(spec) if isinstance(ref, ast.Ref)} | self.kept
        self.counter = COUNTER
        while self.counter in taken:
            self.counter += "'"
        lengths = [phase.repeat or 0 for phase in spec.phases]
        self.ends = [sum(lengths[: number + 1]) for number in range(len(lengths))]

    def spec(self) -> ast.Spec:
        spec, span = self.whole, self.whole.phases[0].span
        count, warm = self._count(span), self.ends[-2] if len(self.ends) > 1 else 0
        more = ast.Binary(span, "+", count, ast.Num(span, 1.0))
        over = ast.Call(span, "relu", ast.Binary(span, "-", more, ast.Num(span, warm + 1.0)))
        first = ast.Step(span, (ast.Equation(span, count, ast.Binary(span, "-", more, over)),))
        steps = tuple(
            replace(step, equations=tuple(self._gated(e, number) for e in step.equations))
            for number, phase in enumerate(spec.phases)
            for step in phase.steps
        )
        last = spec.phases[-1].repeat
        if len(spec.phases) == 1:
            return replace(spec, phases=(), steps=steps, repeat=last)
        kind = ast.TypeClause(span, "number")
        return replace(
            spec,
            phases=(),
            steps=(first, *steps),
            tokens=(*spec.tokens, ast.TokenSet(span, (INDEX,), SET, 1)),
            state=(*spec.state, ast.Field(span, count, kind, start=ast.Num(span, 0.0))),
            repeat=None if last is None else self.ends[-1],
        )

    def _count(self, span: Span) -> ast.Ref:
        return ast.Ref(span, self.counter, (INDEX,))

    def _gated(self, equation: ast.Equation, number: int) -> ast.Equation:
        """An equation that acts in its phase alone."""
        if len(self.whole.phases) == 1:
            return equation
        span, body = equation.body.span, equation.body
        if equation.target.name not in self.kept:
            return equation if not _may_fail(body) else replace(equation, body=self._while(span, body, number, True))
        return replace(
            equation,
            body=ast.Binary(
                span, "+", self._while(span, body, number, True), self._while(span, equation.target, number, False)
            ),
        )

    def _while(self, span: Span, body: ast.Expr, number: int, active: bool) -> Any:
        """`body` in a phase, else 0; with `active` false the other way round."""

        def within(low: int | None, high: int | None) -> ast.Reduce:
            where = []
            if low is not None:
                where.append(ast.Compare(span, ">", self._count(span), ast.Num(span, float(low))))
            if high is not None:
                where.append(ast.Compare(span, "<=", self._count(span), ast.Num(span, float(high))))
            return ast.Reduce(span, "sum", INDEX, body, where=tuple(where))

        low = self.ends[number - 1] if number else None
        high = self.ends[number] if number < len(self.ends) - 1 else None
        if active:
            return within(low, high)
        parts = [within(None, low)] if low is not None else []
        parts += [within(high, None)] if high is not None else []
        return parts[0] if len(parts) == 1 else ast.Binary(span, "+", *parts)


def _kept(spec: ast.Spec) -> set[str]:
    """Fields with a value of their own before they are written."""
    return {one.target.name for one in (*spec.inputs, *spec.state)}


def _may_fail(body: ast.Expr) -> bool:
    """Whether a value may not exist for reasons that the data alone know, outside of weightings and `else`."""
    if isinstance(body, ast.Weigh | ast.Else):
        return False
    if isinstance(body, ast.Binary) and body.op in ("/", "./"):
        return any(isinstance(node, ast.Ref) and node.indices for node in ast.walk(body.right)) or _may_fail(body.left)
    if isinstance(body, ast.Call) and body.function in ("log", "sqrt"):
        return True
    return any(_may_fail(node) for node in ast.children(body) if isinstance(node, ast.Expr))
