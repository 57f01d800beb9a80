"""An `Algorithm` -> the text of a spec: sets t1, t2, ..., fields s1, s2, ..., outputs o1, o2, ..."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import count

from weftc.decompiler.linear import BlockReader, Feature
from weftc.decompiler.loop import Algorithm, ReadAnswer, ResidualCell
from weftc.decompiler.terms import (
    FIXED,
    KEY,
    ONE,
    PAIR,
    SELF,
    VECTORS,
    Atom,
    Frozen,
    FrozenVec,
    Mono,
    Poly,
    Vec,
    add,
    atom,
    atoms,
    free,
    freeze,
    moved,
    moved_vec,
    opened,
    opened_vec,
    order,
    place,
    scale,
    with_else,
)
from weftc_runtime.format.program import Input, Program, Weighting

SYMBOL = re.compile(r'"[^"]*"')
FACTS = ("holds", "differ", "same")  # what is 0 or 1
LETTERS = "ijlmpqruvwabcdefghkno"
Names = dict[int, str]  # free indices


class Unspeakable(Exception):
    """A term that the language has no words for."""


@dataclass(slots=True)
class SpecWriter:
    """Writes the terms of one algorithm."""

    program: Program
    algorithm: Algorithm
    sets: dict[str, str] = field(default_factory=dict)
    fields: dict[object, str] = field(default_factory=dict)  # names of inputs and numbers of cells -> names in the spec
    outputs: dict[str, str] = field(default_factory=dict)
    used: dict[str, list[str]] = field(default_factory=dict)  # index names of every set
    onehot: set[str] = field(default_factory=set)
    noises: set[str] = field(default_factory=set)
    pairs: dict[str, str] = field(default_factory=dict)  # inputs that hold rows -> the set of their second index
    symbols: dict[str, tuple[str, ...]] = field(default_factory=dict)  # fields that hold symbols -> their vocabulary
    matrices: dict[int, int] = field(default_factory=dict)  # those that the text names -> their number in it
    coefficients: set[Fraction] = field(default_factory=set)

    def __post_init__(self) -> None:
        for number, stream in enumerate(self.program.streams, 1):
            self.sets[stream.name] = f"t{number}"
            self.used[stream.name] = []
        fresh = (f"s{number}" for number in count(1))
        for given in (*self.program.inputs, *self.program.noises):
            self.fields[given.name] = next(fresh)
            if given.name in self.algorithm.inputs:
                self.fields[self.algorithm.inputs[given.name].number] = self.fields[given.name]
            if given.symbols:
                self.symbols[self.fields[given.name]] = given.symbols
            elif given.kind == "onehot":
                self.onehot.add(self.fields[given.name])
        self.noises = {self.fields[one.name] for one in self.program.noises}
        for step in self.algorithm.steps:
            for cell, value in step:
                name = self.fields.setdefault(cell.number, next(fresh) if cell.number not in self.fields else "")
                only = next(iter(value.number), ())
                if len(value.number) == 1 and len(only) == 1 and only[0][0][0] == "weight":
                    rule = only[0][0][2]
                    if rule.kind == "argmax" and rule.ties != "split":
                        self.onehot.add(name)
        for number, answer in enumerate(self.algorithm.answers, 1):
            self.outputs[answer.output.name] = f"o{number}"
            if answer.output.symbols and answer.cell is not None and answer.cell.number in self.fields:
                self.symbols[self.fields[answer.cell.number]] = answer.output.symbols
        for step in self.algorithm.steps:
            for cell, value in step:
                if known := self._vocabulary(value.vector):
                    self.symbols.setdefault(self.fields[cell.number], known)

    # ---- the whole spec ----------------------------------------------------------------------------------------------

    def text(self) -> str:
        """The spec; written twice, so that numbers and their inverses are written alike."""
        self._text()
        return self._text()

    def _text(self) -> str:
        inputs = [self._declared(one) for one in self.program.inputs]
        noises = [self._declared(one) for one in self.program.noises]
        states = []
        for cell in self.algorithm.starts:
            assert cell.start is not None
            names = self._indices(cell)
            kind = {"number": "R", "vector": f"R^{cell.directions.shape[1]}"}.get(cell.kind, "real")
            states.append(f"{self._target(cell, names)} : {kind} = {self._right(cell.start, names)}")
        steps = []
        for step in self.algorithm.steps:
            lines = []
            for cell, value in step:
                names = self._indices(cell)
                lines.append(f"  {self._target(cell, names)} = {self._right(value, names)}")
            steps.append("\n".join(lines))
        outputs = [self._output(one) for one in self.algorithm.answers]
        goal = None if self.algorithm.objective is None else self._objective(self.algorithm.objective)
        for home, found in self.used.items():
            if not found:
                self._index(home, {})
        tokens = []
        for stream in self.program.streams:
            size = "" if stream.size is None else f" : {stream.size}"
            tokens.append(f"{', '.join(self.used[stream.name])} in {self.sets[stream.name]}{size}")
        parts = ["algorithm explained", "tokens " + "\n       ".join(tokens)]
        for word, lines in (("inputs", inputs), ("random", noises), ("state", states)):
            if lines:
                parts.append(f"{word} " + ",\n       ".join(lines))
        if self.program.layers != 1:
            parts.append(f"repeat {self.program.layers}")
        parts.append("layer\n" + "\n  then\n".join(steps))
        parts.append("outputs " + ",\n        ".join(outputs))
        if goal is not None:
            parts.append(f"objective {goal}")
        return "\n\n".join(parts) + "\n"

    def _declared(self, given: Input) -> str:
        width = self.program.stream(given.stream).slot(given.slot).width
        names = {SELF: self._index(given.stream, {})}
        kind = {"number": "R", "vector": f"R^{width}", "unit": f"unit R^{width}"}.get(given.kind, given.kind)
        if given.symbols:
            kind = f"one of {{{', '.join(map(_quoted, given.symbols))}}}"
        elif given.kind not in ("number", "vector", "unit") and given.name in self.pairs:
            names[PAIR] = self._index(self.pairs[given.name], names)
        bound = ""
        if given.low and given.high:
            (a, no_a), (b, no_b) = given.low, given.high
            bound = f" in {'(' if no_a else '['}{_float(a)}, {_float(b)}{')' if no_b else ']'}"
        elif given.low:
            bound = f" {'>' if given.low[1] else '>='} {_float(given.low[0])}"
        elif given.high:
            bound = f" {'<' if given.high[1] else '<='} {_float(given.high[0])}"
        start = "" if given.init is None else f" init {given.init[0]}({self.fields[given.init[1]]})"
        return f"{self.fields[given.name]}[{', '.join(names.values())}] : {kind}{bound}{start}"

    def _indices(self, cell: ResidualCell) -> Names:
        names = {SELF: self._index(cell.stream, {})}
        if cell.kind not in ("number", "vector"):
            names[PAIR] = self._index(cell.kind, names)
        return names

    def _target(self, cell: ResidualCell, names: Names) -> str:
        return f"{self.fields[cell.number]}[{', '.join(names.values())}]"

    def _right(self, value: Feature, names: Names) -> str:
        return bare(self.vec(value.vector, names) if value.kind == "vector" else self.poly(value.number, names))

    def _output(self, answer: ReadAnswer) -> str:
        output, name = answer.output, self.outputs[answer.output.name]
        if answer.cell is not None:
            label = self._label(answer)
            return f"{name} = {self.fields[label]}"
        names = {SELF: self._index(output.stream, {})}
        if answer.value.kind not in ("number", "vector"):
            names[PAIR] = self._index(answer.value.kind, names)
        value = answer.value
        if output.head is not None:
            value = Feature(value.directions, value.kind, moved(value.number, {KEY: PAIR}))
        return f"{name}[{', '.join(names.values())}] = {self._right(value, names)}"

    def _label(self, answer: ReadAnswer) -> object:
        """The field an output shows: its cell, or the input that the cell holds."""
        cell = answer.cell
        assert cell is not None
        if cell.number in self.fields:
            return cell.number
        for p in (answer.value.number, answer.value.vector):
            for key in filter(None, p):
                label = key[0][0][1] if answer.value.kind != "vector" else key[1]
                if label in self.fields:
                    return label
        raise Unspeakable("an output that shows no field")

    def _objective(self, answer: ReadAnswer) -> str:
        if answer.output.kind not in ("total", "common"):
            raise Unspeakable(f"an objective of kind {answer.output.kind}")
        name, value = self._index(answer.output.stream, {}), answer.value.number
        inside = bare(self.poly(value, {SELF: name}))
        if answer.output.kind == "common" and SELF not in free(value):
            return inside
        word = "sum" if answer.output.kind == "total" else "mean"
        return f"{word}[{name}] {wrapped(self._about(inside, SELF, value, {SELF: name}))}"

    # ---- indices -----------------------------------------------------------------------------------------------------

    def _index(self, home: str, names: Names) -> str:
        """A name for an index over a set that is not in use."""
        taken = set(names.values())
        for name in self.used[home]:
            if name not in taken:
                return name
        letter = LETTERS[list(self.used).index(home) % len(LETTERS)]
        name = letter + (str(len(self.used[home]) + 1) if self.used[home] else "")
        self.used[home].append(name)
        return name

    def _open(self, home: str, names: Names) -> tuple[int, Names]:
        fresh = max([*names, 9]) + 1
        return fresh, {**names, fresh: self._index(home, names)}

    # ---- numbers -----------------------------------------------------------------------------------------------------

    def poly(self, p: Poly, names: Names, shift: int | None = None) -> str:
        """A number. `shift`: it may be changed by what does not depend on this index."""
        terms = []
        for below, part in _by_divisor(squares(with_else(p), shift)):
            if len(part) == 1:
                terms.append(self._term(_times(part[0][0], below), part[0][1], names))
            else:
                said = self.poly(dict(part), names)
                _, divisor = self._term(below, Fraction(1), names)
                terms.append(("+", f"({said}) / {divisor.removeprefix('1 / ')}" if below else said))
        if not terms:
            return "0"
        terms.sort(key=lambda one: one[0] == "-")
        sign, first = terms[0]
        text = f"-{first}" if sign == "-" else first
        for sign, term in terms[1:]:
            text += f" {sign} {term}"
        return text

    def _term(self, mono: Mono, c: Fraction, names: Names) -> tuple[str, str]:
        above, below = [], []
        factors = self._means(list(mono))
        facts = [a for a, _ in factors if a[0] in FACTS]
        counted = next((a for a, power in factors if a[0] == "sum" and power == 1 and _is_count(a)), None)
        if facts:
            above.append(self._indicator(facts, counted, names))
        for a, power in factors:
            if a in facts or (facts and a is counted):
                continue
            if a[0] == "extreme" and a[1] == "max" and power == 1 and self._is_negative(a):
                c = -c
                above.append(self._extreme(a, names, negate=True))
            elif a[0] == "function" and a[1] == "reciprocal":
                below += [wrapped(self.poly(dict(a[2]), names), product=False)] * power
            else:
                text = self._atom(a, names)
                above.append(text if power == 1 else f"({text})^{power}" if "^" in text[-2:] else f"{text}^{power}")
        sign, c = ("-", -c) if c < 0 else ("+", c)
        self.coefficients.add(c)
        said = _decimal(c)
        if c.denominator == 1 and 1 / c in self.coefficients and (part := _decimal(1 / c)) and c.numerator % 5 == 0:
            below.append(part)  # 10 and the float64 next to 1/10 are no inverses: the spec says one of them
        elif said is not None and (c.numerator != 1 or c.denominator % 2 or c.denominator % 5 == 0) and c != 1:
            above.insert(0, said)
        elif c != 1:
            if c.numerator != 1:
                above.insert(0, str(c.numerator))
            below.append(str(c.denominator))
        text = " * ".join(above or ["1"])
        for divisor in below:
            text += f" / {divisor}"
        return sign, text

    def _means(self, factors: list[tuple[Atom, int]]) -> list[tuple[Atom, int]]:
        """A sum over a set, divided by how many there are."""
        for a, power in factors:
            if a[0] == "sum" and power == 1:
                n = ("function", "reciprocal", freeze(atom("count", a[1])))
                if (n, 1) in factors:
                    return [*((b, e) for b, e in factors if b not in (a, n)), (("mean", *a[1:]), 1)]
        return factors

    def _single(self, a: Atom, names: Names) -> tuple[str, Atom, Names] | None:
        """An atom about a single token of a set, as one about an index; the condition that it is that token."""
        for token in free(a if a[0] in VECTORS else {((a, 1),): Fraction(1)}):
            if token >= FIXED:
                fresh, inside = self._open(self._homes[token // FIXED - 1], names)
                other = next(iter(moved_vec({a: ONE}, {token: fresh}))) if a[0] in VECTORS else None
                if other is None:
                    (((other, _),),) = moved({((a, 1),): Fraction(1)}, {token: fresh})
                return f"{inside[fresh]} = {place(token)}", other, inside
        return None

    @property
    def _homes(self) -> list[str]:
        sizes = {stream.name: stream.size for stream in self.program.streams}
        return list(BlockReader(sizes).bases)

    def _atom(self, a: Atom, names: Names) -> str:
        if a[0] not in FACTS and (single := self._single(a, names)) is not None:
            condition, other, inside = single
            return f"(sum[{inside[max(inside)]}] {self._atom(other, inside)} where {condition})"
        match a:
            case ("ref", label, indices):
                return f"{self._field(label)}[{', '.join(names[i] for i in indices)}]"
            case ("matrix", n, indices):
                return f"{self._matrix(n)}[{', '.join(names.get(i, '_') for i in indices)}]"
            case ("coordinate", ("vref", label, (i,)), e):
                return f"{self._field(label)}[{names[i]}, {names[e]}]"
            case ("inner", u, v):
                if u == v:
                    return f"|{bare(self._vector(u, names))}|^2"
                known = self._vocabulary({u: ONE, v: ONE})
                return f"<{self._vector(u, names, known)}, {self._vector(v, names, known)}>"
            case ("distance", u, v):
                return f"|{self._vector(u, names)} - {self._vector(v, names)}|^2"
            case ("count", home):
                return f"count({self.sets[home]})"
            case ("position", i):
                return f"index({names[i]})"
            case ("function", "absolute", p):
                return f"|{self.poly(dict(p), names)}|"
            case ("function", "relu2", p):
                return f"relu({self.poly(dict(p), names)})^2"
            case ("function", name, p):
                return f"{name}({self.poly(dict(p), names)})"
            case ("else", p, q):
                return f"({self.poly(dict(p), names)} else {self.poly(dict(q), names)})"
            case ("sum" | "mean", home, p):
                fresh, inside = self._open(home, names)
                ((mono, c),) = opened(p, fresh).items()
                return self._reduced(a[0], home, mono, c, None, fresh, inside)
            case ("extreme", _, _, _, _):
                return self._extreme(a, names, negate=False)
            case ("weight", home, rule, score, masks, i):
                return self._weighting(rule, score, masks, i, names)
        raise Unspeakable(f"{a[0]} has no words")

    def _indicator(self, facts: Sequence[Atom], counted: Atom | None, names: Names) -> str:
        """1 where conditions hold, times a count of tokens, or of the one token that they name: a sum."""
        if counted is not None:
            fresh, inside = self._open(counted[1], names)
            ((mono, _),) = opened(counted[2], fresh).items()
            return f"(sum[{inside[fresh]}] 1{self._where([{mono: Fraction(1)}, _all(facts)], inside)})"
        about = [one for a in facts for one in free(a) if one < FIXED]
        if not about:
            raise Unspeakable("a condition about no token")
        index = min(about)
        (home,) = (home for home, used in self.used.items() if names[index] in used)
        fresh, inside = self._open(home, names)
        return f"(sum[{inside[fresh]}] 1{self._where([atom('same', home, index, fresh), _all(facts)], inside)})"

    def _field(self, label: object) -> str:
        return self.fields[label[0] if isinstance(label, tuple) else label]

    def _is_negative(self, a: Atom) -> bool:
        _, _, _, score, _ = a
        return all(c < 0 for _, c in squares(opened(score, 99), None))

    def _extreme(self, a: Atom, names: Names, negate: bool) -> str:
        _, kind, home, score, masks = a
        fresh, inside = self._open(home, names)
        p = scale(opened(score, fresh), -1 if negate else 1)
        word = "logsumexp" if kind == "lse" else "min" if negate else "max"
        where = self._where([opened(mask, fresh) for mask in masks], inside)
        said = self._about(self.poly(p, inside), fresh, p, inside)
        return f"({word}[{inside[fresh]}] {wrapped(said)}{where})"

    def _about(self, said: str, index: int, value: Poly, names: Names) -> str:
        """A number in words that name an index: the language reduces and chooses what depends on the token."""
        return said if index in free(value) else f"{said} + 0 * index({names[index]})"

    def _where(self, masks: Sequence[Poly], names: Names) -> str:
        facts = [a for mask in masks for mono in mask for a, _ in mono]
        for best in facts:
            if (ranking := _ranking(best)) is not None:
                others = [mask for mask in masks if mask != atom(*best)]
                among = [opened(mask, ranking[5]) for mask in ranking[4]]
                if sorted(map(freeze, others), key=order) == sorted(map(freeze, among), key=order):
                    best_ones = self._weighting(ranking[2], ranking[3], (), ranking[5], names)
                    return f"{self._where(others, names)} among {best_ones}"
        said = []
        for at, a in enumerate(facts):
            back = ("holds", ">=", freeze(scale(dict(a[2]), -1))) if a[:2] == ("holds", ">=") else None
            if back in facts[:at]:
                continue
            said.append(self._condition(a, names, "=" if back in facts else ""))
        return f" where {' and '.join(said)}" if said else ""

    def _condition(self, a: Atom, names: Names, op: str = "") -> str:
        match a:
            case ("differ", i, j):
                return f"{_token(i, names)} != {_token(j, names)}"
            case ("same", _, i, j):
                return f"{_token(i, names)} = {_token(j, names)}"
            case ("holds", kind, p):
                q, op = dict(p), op or kind
                rest = {mono: c for mono, c in q.items() if mono}
                if op == ">" and len(rest) == 1 and q.get(()) == Fraction(-1, 2):
                    ((mono, c),) = rest.items()
                    is_row = c == 1 and len(mono) == 1 and mono[0][0][0] == "ref" and len(mono[0][0][2]) == 2
                    if is_row and self._field(mono[0][0][1]) in self.onehot:
                        return self._atom(mono[0][0], names)
                return f"{wrapped(self.poly(rest, names))} {op} {self.poly(scale(number_of(q), -1), names)}"
        raise Unspeakable("a condition that is none")

    def _weighting(self, rule: Weighting, score: Frozen, masks: Sequence[Frozen], i: int, names: Names) -> str:
        if i in free(("weight", "", rule, score, masks, -1)):
            raise Unspeakable("a weight of the token that its scores are about")
        p = opened(score, i)
        where = self._where([opened(mask, i) for mask in masks], names)
        noise = [
            mono
            for mono in p
            if len(mono) == 1 and mono[0][0][0] == "ref" and self._field(mono[0][0][1]) in self.noises
        ]
        if noise and rule.kind == "argmax" and p[noise[0]] == 1:
            said = self.poly({mono: c for mono, c in p.items() if mono != noise[0]}, names, i)
            return f"sample[{names[i]}]({said}{where} noise {self._atom(noise[0][0][0], names)})"
        negate = rule.kind in ("argmax", "top") and bool(p) and all(c < 0 for _, c in squares(p, i))
        said = self._about(self.poly(scale(p, -1) if negate else p, names, i), i, p, names)
        word = {"argmax": ("argmax", "argmin"), "top": ("highest", "lowest")}.get(rule.kind, (rule.kind,))[negate]
        ties = ""
        if rule.kind == "argmax" and rule.ties != "first":
            ties = f" ties {rule.ties}" if rule.ties == "split" else f" ties within {_number(rule.epsilon)}"
        last = ""
        if rule.kind == "top":
            last = f", {rule.count}" if rule.count is not None else f", {_number(rule.percent or Fraction(0))}%"
        if rule.kind == "normmax":
            last = f", {_number(rule.gamma or Fraction(0))}"
        return f"{word}[{names[i]}]({said}{where}{ties}{last})"

    def _reduced(
        self, word: str, home: str, mono: Mono, c: Fraction, vector: Atom | None, fresh: int, names: Names
    ) -> str:
        """A sum of a product: of a weight, of conditions, of the rest."""
        weights = [a for a, power in mono if a[0] == "weight" and a[5] == fresh and power == 1]
        masks = [a for a, _ in mono if a[0] in FACTS]
        rest = tuple(part for part in mono if part[0] not in masks and part[0] not in weights[:1])
        index = names[fresh]
        body = self._product(rest, c, vector, names)
        if weights and word == "sum" and not masks:
            _, _, rule, score, conditions, _ = weights[0]
            p = opened(score, fresh)
            where = self._where([opened(mask, fresh) for mask in conditions], names)
            if rule.kind == "softmax" and (inside := _logarithm(p)) is not None:
                rule, p = Weighting("normalize"), inside
            shown = (
                vector if not rest else rest[0][0] if vector is None and len(rest) == 1 and rest[0][1] == 1 else None
            )
            if rule.kind == "normalize" and set(p) == {()} and c == 1 and shown and shown[0] in ("ref", "vref"):
                place = self._place([opened(mask, fresh) for mask in conditions], fresh, names)
                if place is not None and shown[2] == (fresh,):
                    return f"{self._field(shown[1])}[{place}]"
            if rule.kind == "normalize":
                if set(p) == {()} and not conditions and not _is_about(fresh, rest, vector):
                    return body  # the mean of what is the same for all tokens
                weighted = "" if set(p) == {()} else f" weighted {wrapped(self.poly(p, names))}"
                return f"(mean[{index}] {body}{weighted}{where})"
            said = self._weighting(rule, score, conditions, fresh, names)
            picks = rule.kind == "argmax" and rule.ties != "split" and not rest and c == 1
            if rule.kind == "top" or (picks and vector is not None and self._vocabulary({vector: ONE})):
                return f"(mean[{index}] {body} by {said})"
            return f"(sum[{index}] {said} * {body})" if body != "1" else f"(sum[{index}] {said})"
        if weights:
            body = f"{self._atom(weights[0], names)} * {body}"
        where = self._where([{((a, 1),): Fraction(1)} for a in masks], names)
        return f"({word}[{index}] {body}{where})"

    def _place(self, masks: Sequence[Poly], fresh: int, names: Names) -> str | None:
        """The number that the position of a key has to be, where conditions say one."""
        found = [a for mask in masks for mono in mask for a, _ in mono]
        if len(found) != 2 or any(a[:2] != ("holds", ">=") for a in found):
            return None
        p, q = (dict(a[2]) for a in found)
        here = ((("position", fresh), 1),)
        rest = (
            {mono: -c * p[here] for mono, c in p.items() if mono != here} if p.get(here) in (1, -1) else {here: ONE[()]}
        )
        if add(p, q) or fresh in free(rest):
            return None
        return re.sub(r"index\((\w+)\)", r"\1", self.poly(rest, names))

    def _product(self, mono: Mono, c: Fraction, vector: Atom | None, names: Names) -> str:
        sign, text = self._term(mono, c, names)
        if vector is None:
            return f"(-{text})" if sign == "-" else f"({text})" if " / " in text else text
        said = self._vector(vector, names)
        if text != "1":
            said = f"{text} * {said}"
        return f"(-{said})" if sign == "-" else said

    # ---- vectors -----------------------------------------------------------------------------------------------------

    def vec(self, v: Vec, names: Names, known: tuple[str, ...] = ()) -> str:
        known = known or self._vocabulary(v)
        terms = []
        for a, p in sorted(with_else(v).items(), key=order):
            said = self._vector(a, names, known)
            if len(p) == 1:
                ((mono, c),) = p.items()
                sign, text = self._term(mono, c, names)
                terms.append((sign, said if text == "1" else f"{text} * {said}"))
            else:
                terms.append(("+", f"({self.poly(p, names)}) * {said}"))
        if not terms:
            return "0"
        terms.sort(key=lambda one: one[0] == "-")
        text = ("-" if terms[0][0] == "-" else "") + terms[0][1]
        for sign, term in terms[1:]:
            text += f" {sign} {term}"
        return text

    def _vector(self, a: Atom, names: Names, known: tuple[str, ...] = ()) -> str:
        """A vector. `known`: the vocabulary that its symbols are of."""
        if (single := self._single(a, names)) is not None:
            condition, other, inside = single
            return f"(sum[{inside[max(inside)]}] {self._vector(other, inside)} where {condition})"
        match a:
            case ("symbol", size, at):
                if len(known) != size:
                    raise Unspeakable("a symbol of a vocabulary that nothing tells")
                return _quoted(known[at])
            case ("vref", label, (i,)):
                return f"{self._field(label)}[{names[i]}]"
            case ("vmatrix", n, _):
                return self._matrix(n)
            case ("vfunction", "absolute", v):
                return f"abs({self.vec(thawed(v), names)})"
            case ("vfunction", "relu2", v):
                return f"relu({self.vec(thawed(v), names)}) .^ 2"
            case ("vfunction", name, v):
                return f"{name}({self.vec(thawed(v), names)})"
            case ("vtimes", powers):
                return self._by_coordinate(powers, names)
            case ("vsum", home, v):
                fresh, inside = self._open(home, names)
                ((b, p),) = opened_vec(v, fresh).items()
                ((mono, c),) = p.items()
                return self._reduced("sum", home, mono, c, b, fresh, inside)
            case ("unit", u, v):
                said = f"unit({self.vec(thawed(u), names)})"
                return said if v is None else f"({said} else {self.vec(thawed(v), names)})"
            case ("velse", u, v):
                known = known or self._vocabulary(thawed(u)) or self._vocabulary(thawed(v))
                return f"({bare(self.vec(thawed(u), names, known))} else {self.vec(thawed(v), names, known)})"
        raise Unspeakable(f"{a[0]} has no words")

    def _by_coordinate(self, powers: Sequence[tuple[Atom, int]], names: Names) -> str:
        """A product of vectors by coordinate, and what it is divided by."""
        above, below = [], []
        for a, power in powers:
            if a[:2] == ("vfunction", "reciprocal"):
                below += [wrapped(self.vec(thawed(a[2]), names), product=False)] * power
            else:
                said = self._vector(a, names)
                above.append(said if power == 1 else f"({said}) .^ {power}")
        if not above:
            raise Unspeakable("the reciprocal of a vector")
        return f"({' ./ '.join([' .* '.join(above), *below])})"

    def _matrix(self, n: int) -> str:
        return f"M{self.matrices.setdefault(n, len(self.matrices) + 1)}"

    def _vocabulary(self, v: Vec) -> tuple[str, ...]:
        """The symbols that a vector is one of, or a mean of."""
        for a in atoms(v):
            if a[0] == "vref" and (found := self.symbols.get(self._field(a[1]))):
                return found
        return ()


def _quoted(symbol: str) -> str:
    return f'"{symbol}"'


def _is_about(index: int, mono: Mono, vector: Atom | None) -> bool:
    """Whether a product depends on a token."""
    return index in free({mono: Fraction(1)}) or (vector is not None and index in free(vector))


def _is_count(a: Atom) -> bool:
    """Whether a sum counts the tokens that meet conditions."""
    ((mono, c),) = dict(a[2]).items()
    return c == 1 and all(one[0] in FACTS for one, _ in mono)


def _token(index: int, names: Names) -> str:
    return str(place(index)) if index >= FIXED else names[index]


def _ranking(fact: Atom) -> Atom | None:
    """The weight of a ranking, of a condition that says that it is not 0."""
    if fact[:2] != ("holds", ">") or len(fact[2]) != 1:
        return None
    ((mono, c),) = fact[2]
    is_weight = c == 1 and len(mono) == 1 and mono[0][1] == 1 and mono[0][0][0] == "weight"
    return mono[0][0] if is_weight and mono[0][0][2].kind == "top" else None


def _all(facts: Sequence[Atom]) -> Poly:
    return {tuple((a, 1) for a in facts): Fraction(1)}


def thawed(v: FrozenVec) -> Vec:
    return {a: dict(p) for a, p in v}


def number_of(p: Poly) -> Poly:
    """The constant in a number."""
    return {mono: c for mono, c in p.items() if not mono}


def _logarithm(p: Poly) -> Poly | None:
    """q where p = log q."""
    if len(p) == 1:
        ((mono, c),) = p.items()
        if c == 1 and len(mono) == 1 and mono[0][1] == 1 and mono[0][0][:2] == ("function", "log"):
            return dict(mono[0][0][2])
    return None


def squares(p: Poly, shift: int | None) -> list[tuple[Mono, Fraction]]:
    """The terms, 2<u, v> - |u|^2 - |v|^2 as -|u - v|^2; what does not depend on the index `shift` may be missing."""
    left = dict(p)
    found: list[tuple[Mono, Fraction]] = []
    for mono, c in p.items():
        for a, power in mono:
            if a[0] != "inner" or power != 1 or a[1] == a[2]:
                continue
            rest = tuple(part for part in mono if part[0] != a)
            both = [_with(rest, ("inner", one, one)) for one in a[1:]]
            missing = [one for one in both if left.get(one) != -c / 2]
            if shift is not None:
                missing = [one for one in missing if one in left or shift in free({one: Fraction(1)})]
            if not missing and mono in left and len(set(both) & set(left)) > 0:
                for one in (mono, *both):
                    left.pop(one, None)
                found.append((_with(rest, ("distance", *a[1:])), -c / 2))
    return found + list(left.items())


def _by_divisor(terms: list[tuple[Mono, Fraction]]) -> list[tuple[Mono, list[tuple[Mono, Fraction]]]]:
    """Terms by what they are divided by; those that are not are each on their own."""
    found: dict[Mono, list[tuple[Mono, Fraction]]] = {}
    for mono, c in terms:
        below = tuple(part for part in mono if part[0][:2] == ("function", "reciprocal"))
        below = tuple(part for part in below if len(part[0][2]) > 1)
        found.setdefault(below, []).append((tuple(part for part in mono if part not in below), c))
    plain = found.pop((), [])
    return [*(((), [one]) for one in plain), *found.items()]


def _times(left: Mono, right: Mono) -> Mono:
    return tuple(sorted((*left, *right), key=order))


def _with(mono: Mono, a: Atom) -> Mono:
    return tuple(sorted((*mono, (a, 1)), key=order))


def bare(text: str) -> str:
    """Without parentheses around the whole."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for at, letter in enumerate(SYMBOL.sub(_blank, text)):
        depth += (letter == "(") - (letter == ")")
        if not depth:
            return text[1:-1] if at == len(text) - 1 else text
    return text


def wrapped(text: str, product: bool = True) -> str:
    """In parentheses, unless it is a product (or, without `product`, a single factor)."""
    depth = 0
    plain = SYMBOL.sub(_blank, text)
    for at, letter in enumerate(plain):
        depth += (letter in "([") - (letter in ")]")
        if not depth and letter == " " and (not product or plain[at + 1] in "+-ew"):
            inside_bars = plain[:at].count("|") % 2 or plain[:at].count("<") > plain[:at].count(">")
            if not inside_bars:
                return f"({text})"
    return f"({text})" if text.startswith("-") else text


def _blank(symbol: re.Match[str]) -> str:
    return "_" * len(symbol[0])


def _decimal(c: Fraction) -> str | None:
    """A fraction as a decimal, where that is exact and short."""
    rest = c.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    if rest != 1:
        return None
    said = repr(float(c))
    return None if Fraction(said) != c else said.removesuffix(".0")


def _number(c: Fraction) -> str:
    return _decimal(c) or f"({c.numerator}/{c.denominator})"


def _float(value: float) -> str:
    return repr(float(value)).removesuffix(".0")
