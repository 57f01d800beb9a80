"""Algorithm graph -> attention normal form, step by step. All refusals are collected before they are reported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from weft import syntax as ast
from weft.errors import Diagnostic, SpecError
from weft.lowering.algebra import Dot, Exp, Name, Poly, Vector, Weight
from weft.lowering.expressions import Expressions, companion
from weft.lowering.graph import Algorithm
from weft.lowering.members import Bounded
from weft.lowering.normal import NAME, ONE, Derived, Form, KeySum, NormalStep, Pattern, Rule
from weft.lowering.slots import Refused
from weft.lowering.spaces import Spaces
from weft.lowering.styles import Styles
from weft.source import Span
from weft.types import Checked

OBJECTIVE = "(objective)"
Looks = tuple[tuple[str, ...], tuple[str, ...]]  # slots, and the slots of their squares where scores are dot products


@dataclass(frozen=True, slots=True)
class NormalForm:
    """A whole algorithm in attention normal form."""

    algorithm: Algorithm
    dims: Mapping[str, int]
    params: Mapping[str, float]
    styles: Styles
    widths: Mapping[str, Mapping[str, int]]  # stream -> slot -> width
    derived: Mapping[tuple[str, str], Derived]
    prelude: tuple[NormalStep, ...]
    layer: tuple[NormalStep, ...]
    readout: tuple[NormalStep, ...]
    objective: tuple[str, str, bool] | None  # stream and slot that hold it; whether to sum over the tokens
    shifts: frozenset[tuple[str, str]]  # slots that differences are centred on, set once at the start
    bounded: tuple[Bounded, ...]  # numbers that must stay small for it to equal the spec
    looks: Mapping[str, Looks]  # open sets whose tokens find themselves by self-attention
    nulls: Mapping[str, Mapping[str, tuple[str, int]]] = field(
        default_factory=dict
    )  # stream -> slots of its null token

    def __repr__(self) -> str:
        streams = ", ".join(f"{name} (width {sum(slots.values())})" for name, slots in self.widths.items())
        return f"NormalForm({self.algorithm.checked.spec.name}: {streams}; {len(self.layer)} steps)"

    def _repr_html_(self) -> str:
        from weft.displays import normal_html

        return normal_html(self)

    def __str__(self) -> str:
        out = []
        for title, steps in (("start", self.prelude), ("layer", self.layer), ("outputs", self.readout)):
            for n, step in enumerate(steps):
                out.append(f"{title} step {n + 1}" if len(steps) > 1 else title)
                out += ["  " + line for line in step.lines()]
        if self.derived:
            out.append("kept up to date")
            out += [f"  {d}" for d in self.derived.values()]
        return "\n".join(out)


@dataclass(frozen=True, slots=True)
class Target:
    """The left-hand side an expression is lowered for: a slot on the tokens of the first index."""

    slot: str
    indices: tuple[str, ...]
    body: ast.Expr
    field: bool  # whether the slot is data of the spec
    span: Span  # the whole equation
    is_sum: bool = False  # the sum over the tokens is meant


class Lowering(Expressions):
    """Lowers the steps of one spec."""

    def __init__(
        self, algorithm: Algorithm, dims: Mapping[str, int], params: Mapping[str, float], styles: Styles
    ) -> None:
        checked = algorithm.checked
        super().__init__(checked, dims, params, styles)
        self.shifted, self.bounded, self.spaces, self.deciding = {}, {}, Spaces(checked), False
        self.algorithm = algorithm
        self.sums, self.landed, self.heads, self.spans, self.scratch = [], {}, {}, {}, 0
        self.opened, self.guarded = [], False
        self.problems: list[Diagnostic] = []
        for f in checked.fields.values():
            if f.columns is not None:
                width = self.size(f.columns)
                assert width is not None
            else:
                width = 1 if f.width is None else self.dimension(f.width)
            self.widths[f.home][f.name] = width
        self.looks: dict[str, Looks] = {}
        if styles.erase == "attention":  # tokens of fixed sets find themselves by name, others by what they look like
            for name in checked.sets:
                if self.size(name):
                    self.constant(name, NAME, self.size(name) or 0)
                else:
                    self.looks[name] = self._looks(name)
        self.logged = frozenset(name for name in _read_as_weights(checked) if _always_softmax(checked, name))
        for name in sorted(self.logged):
            self.widths[checked.fields[name].home][companion(name)] = self.widths[checked.fields[name].home][name]

    def _looks(self, stream: str) -> Looks:
        """The inputs by which the tokens of an open set are told apart, and with dot products also their squares."""
        fields = [f for f in self.checked.fields.values() if f.home == stream and f.role == "input" and not f.is_pair]
        index = f"({stream})"
        self.index[index] = stream
        squares = []
        for f in fields if self.styles.scores == "dot" else ():
            vector = Vector(f.name, index, self.widths[stream][f.name])
            squares.append(self.slot_for(stream, ((Dot(vector, vector), 1),)))
        return tuple(f.name for f in fields), tuple(squares)

    def run(self) -> NormalForm:
        spec = self.checked.spec
        starts = [
            Target(f.target.name, f.target.indices, f.start, True, f.span) for f in spec.state if f.start is not None
        ]
        prelude = [self.lower(starts)] if starts else []
        layer = [
            self.lower([Target(e.target.name, e.target.indices, e.body, True, e.span) for e in s.equations])
            for s in spec.steps
        ]
        shown = [
            Target(f"={o.target.name}", o.target.indices, o.body, False, o.span)
            for o in spec.outputs
            if o.target.indices
        ]
        objective = self._objective(spec)
        # the objective has a step of its own: outputs do not need it to have a value
        readout = [self.lower(targets) for targets in (shown, [objective] if objective else []) if targets]
        if self.problems:
            raise SpecError(spec.source, self.problems)
        if self.shifted:
            prelude.insert(0, self._shifts())
        place = (self.stream(objective.indices[0]), objective.slot, objective.is_sum) if objective else None
        return NormalForm(
            self.algorithm,
            dict(self.dims),
            {n: float(v) for n, v in self.given.items()},
            self.styles,
            self.widths,
            self.derived,
            tuple(prelude),
            tuple(layer),
            tuple(readout),
            place,
            frozenset(self.shifted),
            tuple(self.bounded),
            self.looks,
        )

    def _shifts(self) -> NormalStep:
        """What differences are centred on: once, before anything else, the same on every token of every stream."""
        self.step, self.heads = NormalStep(equations=["(centre the data)"]), {}
        for (stream, slot), source in self.shifted.items():
            i, k = f"({stream})", f"({source})"
            field = self.checked.fields[source]
            self.index[i], self.index[k] = stream, field.home
            value = self.slot_poly(source, k, 0 if field.width is None else self.widths[field.home][source])
            self.step.commit.setdefault(stream, {})[slot] = self.linear(self.typical(value, k, i), i)
        return self.step

    def _objective(self, spec: ast.Spec) -> Target | None:
        """A sum over tokens is the total of a slot; anything else lands on every token of the smallest set."""
        if spec.objective is None:
            return None
        part = summand(spec.objective)
        if part is not None:
            index, body = part
            return Target(OBJECTIVE, (index,), body, False, spec.objective.span, is_sum=True)
        home = min(self.checked.sets, key=lambda s: self.size(s) or 1 << 60)
        index = "()"  # no index of the text is called that
        self.index[index] = home
        return Target(OBJECTIVE, (index,), spec.objective, False, spec.objective.span)

    def lower(self, targets: list[Target]) -> NormalStep:
        """One step: every right-hand side reads the old values, then the commit writes all targets."""
        self.step, self.heads = NormalStep(), {}
        text = self.checked.spec.source
        for target in targets:
            stream = self.stream(target.indices[0])
            self.span = target.span  # of what belongs to the whole equation and to no part of it
            try:
                self._equation(target, stream)
            except Refused as refused:
                span = refused.span or target.body.span
                self.problems.append(Diagnostic(refused.code, span, refused.message, "", refused.notes))
                continue
            said = text.said(target.span)
            self.step.equations.append(f"objective {said}" if target.slot == OBJECTIVE else said)
            if target.field:
                self.step.writes.append((stream, target.slot))
        self.step.drop_unread()
        return self.step

    def _equation(self, target: Target, stream: str) -> None:
        i = target.indices[0]
        env = {index: index for index in target.indices}
        p = self.poly(target.body, env, i)
        width = p.width
        if len(target.indices) == 2:
            j = target.indices[1]
            if self.tokens(j) is None:
                self.step.patterns.append(self._pattern(target, p, i, j))
                return
            width = self.tokens(j) or 0
            p = self.rows(p, i, j)
        forms: dict[str, Form] = {target.slot: self.linear(p, i)}
        if target.slot in self.logged and target.field:
            forms[companion(target.slot)] = self._logarithms(target, i)
        self.widths[stream].setdefault(target.slot, max(1, width))
        self.step.commit.setdefault(stream, {}).update(forms)

    def _logarithms(self, target: Target, i: str) -> Form:
        """log y[i,j] = S - lse[j] S of y[i,j] = softmax[j] S: stays finite where y itself underflows."""
        j = target.indices[1]
        p = self.poly(target.body, {index: index for index in target.indices}, i)
        (weight,) = p.atoms
        assert isinstance(weight, Weight)
        assert isinstance(weight.rule, Rule)
        size = self.tokens(j)
        assert size is not None
        row = self.total(KeySum(i, j, Rule("sum", weight.rule.score), (), (Name(self.stream(j), j, size),)))
        lse = self.total(KeySum(i, j, Rule("lse", weight.rule.score)))
        form = dict(self.linear(row, i))
        for slot, c in self.linear(lse, i).items():  # one number, taken from every column
            form[slot] = form.get(slot, Fraction(0)) - c
        return form

    def _pattern(self, target: Target, p: Poly, i: str, j: str) -> Pattern:
        """An output over two open sets: the weights of a head, times factors of the first token."""
        single = p.single
        weights = [a for a in p.atoms if isinstance(a, Weight | Exp)]
        if single is None or single[1] or len(weights) != 1 or dict(single[0])[weights[0]] != 1:
            raise Refused(
                "an output over two open sets must be one weighting or one exp, times factors of its first token",
                "it is shown as an attention pattern; nothing else has one number per pair of open sets",
            )
        weight = weights[0]
        rest = Poly.term((tuple(z for z in single[0] if z[0] != weight), None), single[2])
        if isinstance(weight, Weight) and weight.query != i:
            raise Refused(
                f"these weights belong to {weight.query}, so {weight.query} must be the first index of the output",
                f"write {target.slot.removeprefix('=')}[{j},{i}]",
            )
        rule = weight.rule if isinstance(weight, Weight) else Rule("exp", weight.body)
        assert isinstance(rule, Rule)
        return Pattern(target.slot.removeprefix("="), self.head(i, j, rule), self.linear(rest, i) or {ONE: Fraction(0)})


def summand(expr: ast.Expr) -> tuple[str, ast.Expr] | None:
    """i and E of c * sum[i] E (E with the factor c, a number, inside), if an expression is that."""
    match expr:
        case ast.Reduce(kind="sum", weighted=None, by=None, where=()):
            return expr.index, expr.body
        case ast.Neg():
            found = summand(expr.body)
            return found and (found[0], ast.Neg(expr.span, found[1]))
        case ast.Binary(op="/"):
            found = summand(expr.left)
            constant = not any(isinstance(n, ast.Reduce) for n in ast.walk(expr.right))
            return (found[0], ast.Binary(expr.span, "/", found[1], expr.right)) if found and constant else None
    return None


def _always_softmax(checked: Checked, name: str) -> bool:
    """Whether every equation of a computed pair field is a plain softmax over its second index."""
    field = checked.fields[name]
    written = [e for s in checked.spec.steps for e in s.equations if e.target.name == name]

    def plain(e: ast.Equation) -> bool:
        b = e.body
        return isinstance(b, ast.Weigh) and b.kind == "softmax" and not b.where and b.index == e.target.indices[1]

    return field.role == "computed" and field.is_pair and bool(written) and all(plain(e) for e in written)


def _read_as_weights(checked: Checked) -> set[str]:
    """Fields that stand in a `weighted` clause or under `normalize`."""
    spec = checked.spec
    roots: list[ast.Expr] = [e.body for s in spec.steps for e in s.equations] + [o.body for o in spec.outputs]
    roots += [let.body for let in spec.lets] + ([spec.objective] if spec.objective is not None else [])
    out: set[str] = set()
    for root in roots:
        for node in ast.walk(root):
            weights: ast.Expr | None = None
            if isinstance(node, ast.Reduce):
                weights = node.weighted
            elif isinstance(node, ast.Weigh) and node.kind == "normalize":
                weights = node.score
            if weights is not None:
                out |= {n.name for n in ast.walk(weights) if isinstance(n, ast.Ref) and n.name in checked.fields}
    return out


def lower(algorithm: Algorithm, dims: Mapping[str, int], params: Mapping[str, float], styles: Styles) -> NormalForm:
    """The attention normal form of a spec; a `SpecError` names every equation that has none."""
    return Lowering(algorithm, dims, params, styles).run()
