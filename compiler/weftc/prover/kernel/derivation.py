"""A proof as a value: the terms it speaks of, what was chosen, every application of a rule, and what they show.

Terms are polynomials over numbered atoms, and the table of atoms is part of the value. It is printed with `text`, and
goes to plain data and back with `json` and `from_json`; `checker` replays it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any

from weftc.prover.kernel.rules import Application, Factors, Operand, Question
from weftc.prover.kernel.terms import Atom, ChoiceTerm, Terms, WeighingTerm


@dataclass(frozen=True, slots=True)
class ProofGoal:
    """What was to be shown of one column: what the weights give, and what the spec says; or where each has no value."""

    place: str
    column: str
    given: Operand
    said: Operand


@dataclass(frozen=True, slots=True)
class Derivation:
    """One proof. `readings` are the tensors in which a number that the spec states is read as one it rounds to."""

    onehot: tuple[str, ...]
    positive: tuple[str, ...]
    nonnegative: tuple[str, ...]
    atoms: tuple[Atom, ...]
    choices: tuple[ChoiceTerm, ...]
    answers: tuple[tuple[Question, Operand, Any], ...]
    applications: tuple[Application, ...]
    goals: tuple[ProofGoal, ...]
    readings: tuple[str, ...] = ()
    slack: float = 0.0

    @classmethod
    def of(cls, terms: Terms, goals: tuple[ProofGoal, ...], readings: frozenset[str], slack: float) -> Derivation:
        """What a table of terms has been used for."""
        return cls(
            tuple(sorted(terms.onehot)),
            tuple(sorted(terms.positive_fields)),
            tuple(sorted(terms.nonnegative_fields)),
            tuple(terms.atoms),
            tuple(terms.choices),
            tuple((question, about, answer) for (question, about), answer in terms.journal.answers.items()),
            tuple(terms.journal.applications),
            goals,
            tuple(sorted(readings)),
            slack,
        )

    @property
    def rules(self) -> Mapping[str, int]:
        """How often each rule is applied."""
        return dict(sorted(Counter(one.rule for one in self.applications).items()))

    def json(self) -> Any:
        """The value as plain data."""
        return _plain(self)

    @classmethod
    def from_json(cls, data: Any) -> Derivation:
        """The value again."""
        found = _value(data)
        if not isinstance(found, Derivation):
            raise ValueError("these data are no derivation")
        return found


_CLASSES = {one.__name__: one for one in (Application, Atom, ChoiceTerm, Derivation, Factors, ProofGoal, WeighingTerm)}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if isinstance(value, Fraction):
        return {"": [value.numerator, value.denominator]}
    if type(value).__name__ in _CLASSES:
        return {type(value).__name__: [_plain(getattr(value, one.name)) for one in fields(value)]}
    return value


def _value(data: Any) -> Any:
    if isinstance(data, list):
        return tuple(_value(one) for one in data)
    if isinstance(data, dict):
        ((name, parts),) = data.items()
        return _CLASSES[name](*map(_value, parts)) if name else Fraction(*parts)
    return data
