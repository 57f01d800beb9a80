"""Polynomials in readable form, for reports of what was found on either side."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from weftc.prover.kernel.polynomials import Mono, Number, Poly, magnitude
from weftc.prover.kernel.products import Products
from weftc.prover.kernel.terms import Atom
from weftc_runtime.format.program import FFN, Head, ProgramStep

MOST_TERMS = 6
DEEPEST = 4
NAMES = "ijlmn"  # of the tokens 0, 1, ... of open sets


def show(algebra: Products, p: Poly, depth: int = 0) -> str:
    """A polynomial; long ones are cut."""
    if not p:
        return "0"
    parts: list[str] = []
    for mono, coefficient in sorted(p.items())[:MOST_TERMS]:
        text = _mono(algebra, mono, depth)
        size = _number(magnitude(coefficient))
        body = size if not text else text if abs(coefficient) == 1 else f"{size} {text}"
        sign = "-" if coefficient < 0 else "+"
        parts.append(f"{sign} {body}" if parts else (f"-{body}" if coefficient < 0 else body))
    if len(p) > MOST_TERMS:
        parts.append(f"+ ... ({len(p)} terms)")
    return " ".join(parts)


def _number(value: Number) -> str:
    exact = Fraction(value)
    if exact.denominator == 1 or exact.denominator < 10_000:
        return str(exact)
    return repr(float(exact))


def _mono(algebra: Products, mono: Mono, depth: int) -> str:
    parts = []
    for a, power in mono:
        text = show_atom(algebra, algebra.atoms[a], depth)
        parts.append(text if power == 1 else f"{text}^{_number(power)}" if power > 0 else f"{text}^({_number(power)})")
    return " ".join(parts)


def show_atom(algebra: Products, atom: Atom, depth: int) -> str:
    """An atom; what it holds only so deep."""
    tokens = [NAMES[t] if 0 <= t < len(NAMES) else f"t{t}" for t in atom.tokens]
    match atom.kind:
        case "field":
            name, column, token = atom.data
            return f"{name}[{tokens[0] if tokens else token + 1}].{column + 1}"
        case "count" | "position":
            return f"{atom.kind}({', '.join(tokens) or atom.data})"
        case "kept" | "other":
            return str(atom.data[0]) + (f"[{tokens[0]}]" if tokens else "")
        case "differ":
            return f"[{tokens[0]} != {tokens[1]}]"
    if depth >= DEEPEST:
        return f"{atom.kind}(...)"
    if atom.kind == "sum":
        over, mono = atom.data
        bound = NAMES[len(tokens)] if len(tokens) < len(NAMES) else "t"
        names = {**dict(enumerate(atom.tokens)), len(tokens): len(tokens)}
        term: Poly = {mono: 1}
        inside = algebra.rename(term, names) if len(set(names.values())) == len(names) else term
        return f"sum[{bound} in {over}]({show(algebra, inside, depth + 1)})"
    if atom.kind == "weight":
        number, _, place = atom.data
        choice = algebra.choices[number]
        which = f" of key {place + 1}" if isinstance(place, int) else ""
        word = "max" if place == "best" else choice.rule.kind
        return f"{word}{which}({show(algebra, dict(choice.scores[0]), depth + 1)})"
    data: Poly = {atom.data: 1} if atom.kind == "exp" else dict(atom.data)
    inside = algebra.rename(data, dict(enumerate(atom.tokens)))
    forms = {"above": "[{} > 0]", "atleast": "[{} >= 0]", "nothing": "[{} = 0]", "inverse": "1/({})"}
    return forms.get(atom.kind, atom.kind + "({})").format(show(algebra, inside, depth + 1))


def summary(steps: Sequence[ProgramStep]) -> str:
    """What steps consist of, in a few words."""
    heads = [head for step in steps for sub in step.sublayers if not isinstance(sub, FFN) for head in sub.heads]
    ffns = [sub for step in steps for sub in step.sublayers if isinstance(sub, FFN)]
    words = [head_words(head) for head in heads]
    if ffns:
        words.append(f"{len(ffns)} feed-forward{'s' if len(ffns) > 1 else ''} ({', '.join(f.function for f in ffns)})")
    return "; ".join(words) or "no sub-layer"


def head_words(head: Head) -> str:
    return f"head {head.name} ({head.weighting.kind}, {head.query} <- {head.keys})"
