"""What a proof expects: the equations of a spec as polynomials, and the constants in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from weftc.core import syntax as ast
from weftc.core.types import Checked
from weftc.prover.induction.boundary import Boundary
from weftc.prover.induction.state import Rows, TokenCounts
from weftc.prover.kernel import Kernel, Oracle, equal
from weftc.prover.kernel.derivation import ProofGoal
from weftc.prover.kernel.polynomials import Mono, Number, Poly, TooLarge, freeze, magnitude
from weftc.prover.kernel.rules import Unproved
from weftc.prover.model_side.heads import SymbolicResidual
from weftc.prover.model_side.matrices import ProgramMatrices, plain
from weftc.prover.model_side.scores import KEY
from weftc.prover.model_side.sublayers import ModelTerms
from weftc.prover.near.constants import Constants, numeric
from weftc.prover.near.error_matrix import Array
from weftc.prover.report.report import ProvedEquation, Strength
from weftc.prover.spec_side.reductions import SpecTerms
from weftc.prover.spec_side.values import SpecToken, Value
from weftc_runtime.format.checkpoint import Checkpoint
from weftc_runtime.format.program import FFN, Program

Undefined = tuple[Poly, ...]
LEFTOVER = "it depends on what is left in scratch slots by the layers before"
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What one equation of the spec stores: rows, and the indicators of having no value."""

    target: str
    text: str
    rows: Rows
    undefined: Undefined


@dataclass(slots=True)
class Expectation:
    """The side of the spec in one attempt; `slack` admits weights within that relative error of a constant."""

    checkpoint: Checkpoint
    checked: Checked
    oracle: Oracle
    slack: float = 0.0
    others: frozenset[str] = frozenset()  # tensors in which a number the spec states is read as one it rounds to
    errors: Mapping[str, Array] = field(default_factory=dict)  # bounds, of tensors that are known up to one
    equations: list[ProvedEquation] = field(default_factory=list)
    goals: dict[ProofGoal, None] = field(default_factory=dict)  # those that were shown
    assumptions: dict[str, None] = field(default_factory=dict)
    invariants: dict[str, None] = field(default_factory=dict)
    wanted: dict[int, Wanted] = field(default_factory=dict)  # by the body of the equation, read on the symbols
    ran: dict[tuple[int, int], tuple[SymbolicResidual, SymbolicResidual]] = field(default_factory=dict)
    seen: list[Poly] = field(default_factory=list)  # polynomials of the spec
    unset: dict[str, Rows] = field(default_factory=dict)  # symbols for fields that have not been set yet
    remembers: bool = True  # whether layers may leave anything in scratch slots
    program: Program = field(init=False)
    sizes: TokenCounts = field(init=False)
    algebra: Kernel = field(init=False)
    symbols: dict[str, Rows] = field(init=False)
    constants: Constants = field(init=False)
    model: ModelTerms = field(init=False)
    boundary: Boundary = field(init=False)

    def __post_init__(self) -> None:
        self.program = self.checkpoint.program
        self.sizes = TokenCounts(self.checked, self.checkpoint.dims)
        fields = self.checked.fields.values()
        self.algebra = Kernel(
            self.oracle,
            (f.name for f in fields if f.kind == "onehot"),
            (f.name for f in fields if f.positive and f.kind != "onehot"),
            (f.name for f in fields if f.nonnegative),
        )
        self.symbols = {f.name: self.sizes.symbols(self.algebra, f) for f in fields}
        self.constants = Constants(self.algebra, self.slack, self.others)
        matrices = ProgramMatrices(self.algebra, self.checkpoint.tensors, self.constants, self.errors)
        self.model = ModelTerms(self.algebra, self.program, matrices)
        self.boundary = Boundary(self.algebra, self.program, self.model, self.symbols)

    def guard(self, place: str, text: str, work: Callable[[], Result]) -> Result | None:
        """What `work` returns, or None, with a note, where a rule is missing."""
        try:
            return work()
        except Unproved as error:
            self.note(place, text, "", str(error))
        except (TooLarge, RecursionError, OverflowError):
            self.note(place, text, "", "the expressions become too large to compare")
        except ZeroDivisionError:
            self.note(place, text, "", "a division by zero")
        return None

    def note(self, place: str, text: str, matched: str, reason: str = "") -> None:
        strength: Strength = "not shown" if reason else "proved up to eps" if self.slack else "proved"
        leftover = reason.startswith(LEFTOVER)
        self.equations.append(ProvedEquation(place, text, matched, strength, reason, leftover))

    def shown(self, place: str, column: str, given: Poly, said: Poly, undefined: Undefined) -> bool:
        """Whether the weights give what the spec says, where that has a value."""
        same = equal(self.algebra, given, said, undefined)
        if same:
            self.goals[ProofGoal(place, column, freeze(given), freeze(said))] = None
        return same

    # ---- the side of the spec ----------------------------------------------------------------------------------------

    def _terms(self, state: Mapping[str, Rows] | None = None) -> SpecTerms:
        return SpecTerms(self.algebra, self.checked, self.sizes, self.checkpoint.params, state or self.symbols)

    def text(self, node: ast.Equation | ast.Output | ast.Field | ast.Expr) -> str:
        return " ".join(self.checked.spec.source.at(node.span).split())

    def wanted_rows(self, target: ast.Ref, body: ast.Expr, state: Mapping[str, Rows] | None = None) -> Wanted:
        width = self.sizes.width(self.checked.fields[target.name])
        rows, undefined = self._terms(state).equation(target, body, width)
        self.seen += [p for row in rows for p in row]
        source = self.checked.spec.source
        text = " ".join(f"{source.at(target.span)} = {source.at(body.span)}".split())
        found = Wanted(target.name, text, rows, undefined)
        if state is None:
            self.wanted[id(body)] = found
        return found

    def wanted_step(self, step: ast.Step) -> list[Wanted]:
        """What the equations of a step store."""
        return [self.wanted_rows(equation.target, equation.body) for equation in step.equations]

    def start(self, one: ast.Field) -> Wanted:
        assert one.start is not None
        return self.wanted_rows(one.target, one.start)

    def answer(self, output: ast.Output) -> tuple[Rows, Undefined] | Value:
        """Rows of an output; or, for two open sets, its value for a pair of tokens."""
        indices = output.target.indices
        terms = self._terms()
        if len(indices) == 2 and self.sizes.size(self.checked.set_of(indices[1])) is None:
            first, second = (self.checked.set_of(i) for i in indices)
            query = SpecToken(first, None, 0)
            if self.sizes.size(first) is not None:
                raise Unproved("an output between a fixed and an open set")
            value = terms.value(output.body, {indices[0]: query, indices[1]: SpecToken(second, None, KEY)})
            self.seen += value.rows
            return value
        width = 1
        if len(indices) == 2:
            width = self.sizes.size(self.checked.set_of(indices[1])) or 1
        rows, undefined = terms.equation(output.target, output.body, width)
        self.seen += [p for row in rows for p in row]
        return rows, undefined

    def goal(self) -> Value:
        assert self.checked.spec.objective is not None
        value = self._terms().value(self.checked.spec.objective, {})
        self.seen += value.rows
        return value

    def learn(self) -> None:
        """Tells the reader of weights which constants the spec has."""
        algebra = self.algebra
        found: dict[object, Number | Poly] = {}
        fixed = {
            a: numeric(algebra, {((a, 1),): 1}) is not None
            for a, atom in enumerate(algebra.atoms)
            if atom.kind not in ("field", "weight", "sum") and not atom.tokens
        }

        def note(terms: Iterable[tuple[Mono, Number]]) -> None:
            for mono, coefficient in terms:
                if fixed:
                    constant = tuple(part for part in mono if fixed.get(part[0], False))
                    if constant:
                        found[constant, coefficient] = {constant: magnitude(coefficient)}
                        continue
                if coefficient not in found:
                    found[coefficient] = magnitude(coefficient)
                for _, power in mono:
                    if power not in found:
                        found[power] = magnitude(power)

        for atom in list(algebra.atoms):
            if atom.kind != "weight":
                note(algebra.terms_inside(atom))
        for choice in algebra.choices:
            note(choice.terms())
        for p in self.seen:
            note(p.items())
        for value in (*self.checkpoint.params.values(), *_numbers(self.checked)):
            found[value] = magnitude(plain(float(value)))
        widths = [self.sizes.width(f) for f in self.checked.fields.values() if f.width is not None]
        self.constants.learn(found.values(), widths if _has_layer_norm(self.program) else ())


def _has_layer_norm(program: Program) -> bool:
    used = [sub for step in program.steps() for sub in step.sublayers if isinstance(sub, FFN)]
    used += [ffn for stream in program.streams for ffn in stream.derived]
    return any(ffn.function == "layer" for ffn in used)


def _numbers(checked: Checked) -> Iterator[float]:
    spec = checked.spec
    bodies: list[ast.Expr] = [e.body for step in spec.steps for e in step.equations]
    bodies += [let.body for let in spec.lets] + [o.body for o in spec.outputs]
    bodies += [f.start for f in spec.state if f.start is not None]
    bodies += [p.default for p in spec.params if p.default is not None]
    bodies += [spec.objective] if spec.objective is not None else []
    for body in bodies:
        yield from (node.value for node in ast.walk(body) if isinstance(node, ast.Num))
