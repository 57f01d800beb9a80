"""Text -> tokens, and the characters no spec may contain.

The words and marks are those of grammar.lark; a test lexes every spec with lark's own lexer and compares.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from weftc.core.source import Span, printable
from weftc.core.vocabulary import FUNCTIONS, REDUCTIONS, WEIGHTINGS
from weftc.language.check.problems import Problems

END = "$END"
SECTIONS = (
    "algorithm",
    "tokens",
    "inputs",
    "random",
    "state",
    "param",
    "learn",
    "let",
    "layer",
    "phase",
    "repeat",
    "outputs",
    "objective",
    "example",
)
LONGEST_NAME = 60
MOST_DIGITS = 60  # longer numbers say nothing more: float64 has 17 digits
LARGEST_EXPONENT = 300  # of ten; keeps numbers and their exact fractions within float64
MOST_TOKENS = 50_000  # words, numbers and signs of a spec; real ones have a few hundred
MOST_STRANGE = 20  # characters reported before giving up on a file

_LEXEME = re.compile(
    r"""(?P<blank>[ \t\r\n\f]+|\#[^\n]*)
      |(?P<vocabulary>one[ \t]+of(?=[ \t]*\{))
      |(?P<until>until[ \t]+stable\b)
      |(?P<use>use(?=[ \t]+(?!(?:in|else|where|and|weighted|by|among|ties|noise|init|layers)\b)[A-Za-z]))
      |(?P<from>from(?=[ \t]*"))
      |(?P<with>with(?=[ \t\r\n\f]+[A-Za-z][A-Za-z0-9_]*'*[ \t]*=))
      |(?P<word>[A-Za-z][A-Za-z0-9_]*'*)
      |(?P<number>(?:\d+(?:\.(?![*/^])\d*)?|\.\d+)(?:[eE][+-]?\d+)?)
      |(?P<string>"[^"\n]*")
      |(?P<mark>\+=|-=|>=|<=|!=|\.[*/^]|[-+*/^%|<>=~:,()\[\]])""",
    re.VERBOSE | re.ASCII,
)
_CALLED = re.compile(r"[ \t]*\(")
_OPENS_ROW = re.compile(r"[ \t]*\[")
_SIZE = re.compile(r"[ \t]+\w")
_IS_SET = re.compile(r"[ \t\r\n\f]*[=~]")
_STRANGE = re.compile(r"[^ -~\t\r\n\f]+")
_NORM = re.compile(r"_\w+|_\{\w+\}")  # as in |v|_1
CLASSES = {
    **dict.fromkeys(REDUCTIONS, "REDUCTION"),
    **dict.fromkeys(WEIGHTINGS, "WEIGHTING"),
    **dict.fromkeys(FUNCTIONS, "FUNCTION"),
}
PHRASES = {
    "string": "STRING",
    "vocabulary": "ONE_OF",
    "until": "UNTIL_STABLE",
    "use": "USE",
    "from": "FROM",
    "with": "WITH",
}
CALLS = {"max": "OF_TWO", "min": "OF_TWO", "trace": "OF_MATRIX", "diag": "OF_MATRIX", "onehot": "ONEHOT"}  # before (
DOT = "* between numbers, <a, b> for vectors"
INSTEAD = {
    "−": "-", "–": "-", "·": DOT, "×": "*", "⋅": DOT, "÷": "/", "≤": "<=", "≥": ">=", "≠": "!=", "∈": "in", "²": "^2",
    "³": "^3", "‖": "|", "∥": "|", "⟨": "<", "⟩": ">", "〈": "<", "〉": ">", "“": '"', "”": '"', "ℝ": "R",
    "∑": "sum[i]", "Σ": "sum[i]", "←": "=", "∞": "no bound", "√": "sqrt(...)", "‘": "'", "’": "'", "′": "'",
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "eps", "η": "eta", "θ": "theta", "κ": "kappa",
    "λ": "lambda", "μ": "mu", "ν": "nu", "ξ": "xi", "π": "pi", "ρ": "rho", "σ": "sigma", "τ": "tau", "φ": "phi",
    "χ": "chi", "ψ": "psi", "ω": "omega", "ϵ": "eps", "ϕ": "phi",
    ";": "a new line", "{": "(", "}": ")", "!": "!=", "&": "and", "'": '"', "_": "a letter first", "\u00a0": "a space",
    "@": "<a, b> for the inner product", "∧": "and", "∙": DOT, "•": DOT,
    "⊙": ".*", "∘": ".*", ".": "+ and - without a dot",
}  # fmt: skip


_BRACES = re.compile(r"(?<=[_^])\{([^{}\n]*)\}")
_COMMAND = re.compile(r"\\([A-Za-z]+)(?:_?\{[^{}\n]*\})*")
_METHOD = re.compile(r"\.([A-Za-z_]\w*)")
LATEX = {
    "left": "leave this out",
    "right": "leave this out",
    "langle": "write <a, b> for the inner product",
    "rangle": "write <a, b> for the inner product",
    **dict.fromkeys(("cdot", "times"), "write *"),
    **dict.fromkeys(("le", "leq"), "write <="),
    **dict.fromkeys(("ge", "geq"), "write >="),
    **dict.fromkeys(("ne", "neq"), "write !="),
    **dict.fromkeys(("Vert", "lVert", "rVert", "vert", "lvert", "rvert"), "write |v| for the length of v"),
}


class Token(NamedTuple):
    """One word, number, string or mark; `type` is its terminal in the grammar."""

    type: str
    text: str
    start: int
    end: int

    @property
    def span(self) -> Span:
        return Span(self.start, self.end)


def tokenize(text: str, terminals: Mapping[str, str], problems: Problems) -> list[Token]:
    """The tokens of a text; `terminals` gives the terminal of every word and mark. Strange characters are reported."""
    tokens: list[Token] = []
    at, end, in_example, in_vocabulary = 0, len(text), False, False
    match, append = _LEXEME.match, tokens.append
    while at < end:
        found = match(text, at)
        if found is None and text[at] == ("}" if in_vocabulary else "{") and (in_vocabulary or _opens(tokens)):
            append(Token(terminals[text[at]], text[at], at, at + 1))
            in_vocabulary, at = not in_vocabulary, at + 1
            continue
        if found is None:
            at = _strange(text, at, problems)
            continue
        at, kind, lexeme = found.end(), found.lastgroup, found.group()
        if kind == "blank":
            continue
        if kind == "word":
            if len(lexeme) > LONGEST_NAME:
                message = f"a name has at most {LONGEST_NAME} characters"
                problems.add("P113", Span(found.start(), at), message, f"this one has {len(lexeme)}")
            type_ = CLASSES.get(lexeme) or terminals.get(lexeme, "NAME")
            if lexeme in CALLS and _CALLED.match(text, at):
                type_ = CALLS[lexeme]
            elif lexeme == "T" and tokens and tokens[-1].text == "^":
                type_ = "TRANSPOSED"
            elif lexeme == "x" and [token.text for token in tokens[-3:-1]] == ["R", "^"] and _SIZE.match(text, at):
                type_ = "TIMES"
            type_ = "NAME" if in_vocabulary else type_
            if in_example and type_ == "NAME" and tokens and tokens[-1].type == "COMMA" and _IS_SET.match(text, at):
                tokens[-1] = tokens[-1]._replace(type="NEXT")
            elif lexeme in SECTIONS and not in_vocabulary:
                in_example = lexeme == "example"
        elif kind == "number":
            type_ = "INT" if lexeme.isdigit() else "NUMBER"
            if not _number(lexeme, found.start(), problems):
                lexeme = "1"  # parsing goes on; nothing may compute what was refused
        elif lexeme == "[" and _OPENS_ROW.match(text, at):
            type_ = "ROWS"
        else:
            type_ = PHRASES.get(str(kind)) or terminals[lexeme]
        append(Token(type_, lexeme, found.start(), at))
        if len(tokens) > MOST_TOKENS:
            message = f"this is too long for a spec: more than {MOST_TOKENS} words, numbers and signs"
            problems.add("P114", Span(found.start(), at), message, "the limit is here")
            problems.stop()
    return tokens


def section_before(tokens: Sequence[Token]) -> Token | None:
    """The section word that what follows belongs to: the last, but for the `repeat` of a phase."""
    for at in range(len(tokens) - 1, -1, -1):
        if tokens[at].text in SECTIONS and not (at > 1 and tokens[at - 2].text == "phase"):
            return tokens[at]
    return None


def _opens(tokens: list[Token]) -> bool:
    """Whether a vocabulary opens behind these tokens."""
    return bool(tokens) and tokens[-1].type == "ONE_OF"


def _strange(text: str, at: int, problems: Problems) -> int:
    """Reports what stands at a place where no token starts; where to go on."""
    if len(problems.found) >= MOST_STRANGE:
        return len(text)
    character = text[at]
    if character == '"':
        line_end = text.find("\n", at)
        line_end = len(text) if line_end < 0 else line_end
        problems.add(
            "P111", Span(at, line_end), "this text has no closing quote", "", 'a text ends on its line: "like this"'
        )
        return line_end
    norm = _NORM.match(text, at)
    if norm is not None and text[at - 1] == "|":
        how = "|v| is the length of a vector (its 2-norm), |a| the absolute value of a number"
        problems.add("P112", Span(at, norm.end()), "other norms than the length are not known", "leave this out", how)
        return norm.end()
    if (end := _foreign(text, at, problems)) is not None:
        return end
    instead = INSTEAD.get(character, "")
    run = None if instead else _STRANGE.match(text, at)
    end = run.end() if run else at + 2 if text.startswith("&&", at) else at + 1
    if character == "'" and text[:at].endswith(("]", ")")):
        problems.add("P133", Span(at, end), "a transpose is written ^T", "", "<a, b> is the inner product")
        return end
    control = not character.isprintable() and not character.isspace()
    if control:
        problems.add(
            "P112",
            Span(at, end),
            f"a control character {printable(character)} in the text",
            "it cannot be seen, and has no meaning here",
            "delete it",
        )
    else:
        what = "this character has" if end - at == 1 else "these characters have"
        ascii_only = "names are made of letters a to z, digits and _" if character.isalpha() or character == "_" else ""
        problems.add(
            "P112", Span(at, end), f"{what} no meaning here", f"write {instead}" if instead else "", ascii_only
        )
    return end


def _foreign(text: str, at: int, problems: Problems) -> int | None:
    r"""Reports LaTeX (`sum_{i}`, `\frac{a}{b}`) and Python (`np.exp`), each as a whole; where to go on, or None."""
    start = at
    while start and (text[start - 1].isalnum() or text[start - 1] == "_"):
        start -= 1
    if braces := _BRACES.match(text, at):
        inside, word = braces[1].strip(), text[start:at].rstrip("_")
        how = f"write {word}[{inside}]" if word else f"write {inside}"
        problems.add("P112", Span(start, braces.end()), "braces have no meaning here", how)
        return braces.end()
    if command := _COMMAND.match(text, at):
        how = _instead_of(command[1], re.findall(r"\{([^{}]*)\}", command[0]))
        problems.add("P112", Span(at, command.end()), "LaTeX has no meaning here", how)
        return command.end()
    method = _METHOD.match(text, at)
    if method and (start < at or text[:at].endswith(("]", ")"))):
        over = method[1] in (*REDUCTIONS, *WEIGHTINGS)
        how = f"write {method[1]}[i] ..., with the index it runs over" if over else ""
        how = f"write {method[1]} alone" if method[1] in FUNCTIONS else how
        notes = [] if over else [f"functions: {', '.join(FUNCTIONS)}"]
        problems.add("P112", Span(start, method.end()), "there are no modules and no methods", how, *notes)
        return method.end()
    return None


def _instead_of(command: str, arguments: list[str]) -> str:
    r"""`\frac{1}{n}` -> `write (1) / (n)`, `\sum_{i}` -> `write sum[i]`, `\lambda` -> `write lambda`."""
    if command == "frac" and len(arguments) == 2:
        return f"write ({arguments[0]}) / ({arguments[1]})"
    if command in REDUCTIONS or command in WEIGHTINGS:
        return f"write {command}[{arguments[0] if arguments else 'i'}]"
    if command in FUNCTIONS:
        return f"write {command}({arguments[0] if arguments else 'a'})"
    return LATEX.get(command, f"write {command}, without the backslash")


def in_range(value: Fraction) -> bool:
    """Whether float64 holds a number, to its usual precision."""
    return value == 0 or Fraction(1, 10**LARGEST_EXPONENT) <= abs(value) <= 10**LARGEST_EXPONENT


def _number(lexeme: str, start: int, problems: Problems) -> bool:
    """Whether float64 can hold a number; reports when not: its exact fraction would not fit in memory either."""
    mantissa, _, exponent = lexeme.lower().partition("e")
    span = Span(start, start + len(lexeme))
    if len(mantissa) > MOST_DIGITS or len(exponent) > MOST_DIGITS:
        problems.add("P113", span, f"a number has at most {MOST_DIGITS} digits", "", "float64 keeps 17 of them")
        return False
    if abs(int(exponent or 0)) > LARGEST_EXPONENT or not in_range(Fraction(lexeme)):
        problems.add(
            "P113",
            span,
            "this number is outside the range of float64",
            "",
            f"use numbers between 1e-{LARGEST_EXPONENT} and 1e{LARGEST_EXPONENT}",
        )
        return False
    return True
