"""Registries -> the tables of the language reference, in Markdown.

Which words there are, and what they mean, comes from `weftc.core.vocabulary`, the grammar and `meanings`; what is
allowed and inferred from the checker (`probes`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from weftc.core.errors import Diagnostic
from weftc.core.vocabulary import FUNCTIONS, INITIALISERS, NOISES, REDUCTIONS, TIE_RULES, WEIGHTINGS
from weftc.language.parse.grammar import load
from weftc.language.parse.lexer import SECTIONS
from weftc.tools.doc_tables.codes import codes
from weftc.tools.doc_tables.ebnf import grammar, productions
from weftc.tools.doc_tables.meanings import LEVELS, SECTION, TYPES, WORD
from weftc.tools.doc_tables.probes import accepted, ask, sign, undefined


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; bars in its cells are escaped."""
    lines = [list(head), ["---"] * len(head), *map(list, rows)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def keywords() -> str:
    """Every word of the language that cannot be a name."""
    words = {word for word in load().terminals if word.isalpha()} - {*REDUCTIONS, *WEIGHTINGS, *FUNCTIONS}
    sections = [(f"`{word}`", "section", SECTION[word]) for word in SECTIONS]
    others = [(f"`{word}`", "", WORD[word]) for word in sorted(words - {*SECTIONS}, key=str.lower)]
    return markdown(("word", "", "meaning"), sections + others)


def weightings() -> str:
    """Every weighting: arguments, type, ties, definedness."""
    rows = []
    for kind in WEIGHTINGS:
        plain, positive = f"a[i,j] = {_call(kind)}", f"a[i,j] = {_call(kind, score='exp(u[i] + b[j])')}"
        found = ask(positive)
        assert not isinstance(found, Diagnostic), f"{kind} has no form that is always defined"
        empty = "with `where`" if undefined(f"a[i,j] = {_call(kind, 'where w[i] > 0')}") else "never"
        empty += ", and unless S is known > 0" if undefined(plain) else ""
        rows.append((f"`{_written(kind)}`", WEIGHTINGS[kind].meaning, found.kind, _ties(kind), empty))
    return markdown(("weighting", "weights", "stored as", "equal scores", "needs `else`"), rows)


def _call(kind: str, clause: str = "", score: str = "D[i,j]") -> str:
    noise = " noise g[i,j]" if kind == "sample" else ""
    argument = ", gamma" if kind == "normmax" else ", 3" if WEIGHTINGS[kind].argument else ""
    return f"{kind}[j]({score}{noise} {clause}{argument})"


def _written(kind: str) -> str:
    noise = " noise g" if kind == "sample" else ""
    argument = {"normmax": ", gamma"}.get(kind, ", N or P%" if WEIGHTINGS[kind].argument else "")
    return f"{kind}[j](S{noise}{argument})"


def _ties(kind: str) -> str:
    taken = [rule for rule in TIE_RULES if accepted(f"a[i,j] = {_call(kind, _tie(rule))}")]
    return "`ties` " + ", ".join(taken) if taken else WEIGHTINGS[kind].ties or "make no difference"


def _tie(rule: str) -> str:
    return f"ties {rule}" + (" 0.5" if rule == "within" else "")


def ties() -> str:
    """The rules for equal scores, and what a choice is with each."""
    rows = []
    for rule in TIE_RULES:
        found = ask(f"a[i,j] = argmin[j](D[i,j] {_tie(rule)})")
        assert not isinstance(found, Diagnostic)
        shown = "ties within EPS" if rule == "within" else f"ties {rule}"
        rows.append((f"`{shown}`", TIE_RULES[rule], found.kind))
    return markdown(("clause of `argmin` and `argmax`", "meaning", "stored as"), rows)


def reductions() -> str:
    """The reductions: of what, with which clauses, and when undefined."""
    rows = []
    for kind in REDUCTIONS:
        of = "numbers, vectors" if accepted(f"a[j] = {kind}[i] x[i]") else "numbers"
        clauses = ["`where`"] + (["`weighted`", "`by`"] if accepted(f"a[j] = {kind}[i] u[i] weighted m[i]") else [])
        masked = undefined(f"a[j] = {kind}[i] u[i] where w[i] > 0")
        weighted = "`by`" in "".join(clauses) and undefined(f"a[j] = {kind}[i] u[i] weighted w[i]")
        empty = ["with `where`"] * masked + ["`weighted` by what may be 0"] * weighted
        rows.append(
            (
                f"`{kind}[i] E`",
                REDUCTIONS[kind],
                of,
                ", ".join(clauses),
                ", ".join(empty) or "never: a sum of nothing is 0",
            )
        )
    return markdown(("reduction", "value", "of", "clauses", "needs `else`"), rows)


def functions() -> str:
    """The functions: of what, and what is known about the result."""
    rows = []
    for name in FUNCTIONS:
        number, vector = (not _refused(f"a[i] = {name}({of}) else 0", name) for of in ("m[i]", "x[i]"))
        of = ", ".join(["numbers"] * number + ["vectors"] * vector)
        known = (sign(f"a[i] = {name}(u[i])") or sign(f"a[i] = {name}(m[i])") + " of what is > 0") if number else ""
        empty = "always: directly after it" if vector and undefined(f"a[i] = {name}(x[i])") else "no"
        rows.append((f"`{name}(a)`", FUNCTIONS[name].meaning, of, "" if known == " of what is > 0" else known, empty))
    return markdown(("function", "value", "of", "sign known", "needs `else`"), rows)


def _refused(equation: str, name: str) -> bool:
    plain = equation if name == "unit" else equation.removesuffix(" else 0")
    return not accepted(plain)


def operators() -> str:
    """What binds how tightly, from the rules of the grammar."""
    ladder = {production.name: production.alternatives for production in productions()}
    rows = []
    for rule, meaning in LEVELS.items():
        own = " ".join(a for a in ladder[rule] if a not in LEVELS and a not in ("chain", "prefix", "power_np", "paren"))
        signs = dict.fromkeys(word.strip('"') for word in own.split() if word.startswith('"'))
        left = any(a.startswith(f"{rule} ") for a in ladder[rule])
        right = any(a.endswith(f" {rule}") and not a.startswith('"') for a in ladder[rule])
        shown = ["sum[i] ...", "softmax[j] ..."] if rule == "term" else list(signs)
        group = "from the left" if left else "from the right" if right else ""
        rows.append((", ".join(f"`{word}`" for word in shown), meaning, group))
    return markdown(("operators, loosest first", "meaning", "grouped"), rows)


def types() -> str:
    """The types a field may be declared with, and where."""
    rows = []
    for name, field, meaning in TYPES:
        where = [word for word in ("inputs", "state") if accepted("c[j] = c[j]", _declared(word, field))]
        ranged = accepted("c[j] = c[j]", f"inputs {field} in [0, 1]\n")
        rows.append((f"`{name}`", meaning, ", ".join(where), "yes" if ranged else ""))
    rows += [(f"`{name}`", f"noise: {NOISES[name]}", "random", "") for name in NOISES]
    return markdown(("type", "a field of it holds", "declared under", "may have a range"), rows)


def _declared(section: str, field: str) -> str:
    start = {
        "R^m x d": "0",
        "onehot": "y[i,j]",
        "one of {a, b, c}": "a",
        "simplex": "1/k",
        "unit R^d": "unit(x[i]) else x[i]",
    }
    name = field.partition(": ")[2]
    return f"{section} {field}" + (f" = {start.get(name, '0')}" if section == "state" else "") + "\n"


def starts() -> str:
    """The ways an input starts."""
    return markdown(("`init`", "rows of the source"), [(f"`{name}(x)`", INITIALISERS[name]) for name in INITIALISERS])


def error_codes() -> str:
    """Every code with what it says."""
    rows = ((f"[{code}](errors.md#{code.lower()})", "; ".join(messages)) for code, messages in codes().items())
    return markdown(("code", "messages"), rows)


def ebnf() -> str:
    """The grammar, fenced."""
    return f"```ebnf\n{grammar()}\n```"


TABLES: dict[str, Callable[[], str]] = {
    "keywords": keywords,
    "types": types,
    "starts": starts,
    "operators": operators,
    "functions": functions,
    "reductions": reductions,
    "weightings": weightings,
    "ties": ties,
    "grammar": ebnf,
    "codes": error_codes,
}
