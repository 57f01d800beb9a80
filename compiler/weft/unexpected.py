"""Why a token does not fit, in the words of someone who writes specs.

Each rule below looks at one way people go wrong and either explains it or passes; the last one lists what could have stood
there. The order matters: special before general.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from weft.problems import Problems
from weft.regions import first_on_line
from weft.source import Span
from weft.syntax import FUNCTIONS, REDUCTIONS, WEIGHTINGS
from weft.tokens import CLASSES, END, SECTIONS, Token
from weft.words import closest, did_you_mean, joined, listed

VALUE = frozenset(("NAME", "NUMBER", "LPAR"))
OPERATORS = ("+", "-", "*", "/")
CLAUSES = ("where", "weighted", "by", "ties", "noise")
PREFIX = ("REDUCTION", "WEIGHTING")
ENDS_VALUE = ("NAME", "INT", "NUMBER", "RSQB", "RPAR", "PERCENT")
STARTS_VALUE = ("NAME", "INT", "NUMBER", "LPAR", "FUNCTION", "COUNT", "INDEX", *PREFIX)
WORDS = {"NAME": "a name", "INT": "a whole number", "NUMBER": "a number", "STRING": "a text in quotes", "SIGN": "-", "NEXT": ",",
         END: "the end of the file", "REDUCTION": "a reduction", "WEIGHTING": "a weighting", "FUNCTION": "a function"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Trouble:
    """A token that does not fit, with all tokens, and what could have stood in its place."""

    tokens: Sequence[Token]
    at: int
    token: Token
    expected: frozenset[str]
    region: int  # the first token of the region to blame
    terminals: Mapping[str, str]
    problems: Problems

    def before(self, count: int = 1) -> Token | None:
        """The token `count` places to the left."""
        return self.tokens[self.at - count] if self.at >= count else None

    def after(self) -> Token | None:
        return self.tokens[self.at + 1] if self.at + 1 < len(self.tokens) else None

    def allows(self, text: str) -> bool:
        return self.terminals.get(text) in self.expected

    @property
    def section(self) -> str:
        """The section the token is in."""
        words = (t.text for t in reversed(self.tokens[: self.at]) if t.text in SECTIONS)
        return next(words, "")

    def line_start(self, at: int) -> bool:
        return first_on_line(self.tokens, at, self.problems.source.text)

    def declared(self) -> set[str]:
        """Names that are declared or written somewhere: `NAME[` or `NAME =` at the start of something."""
        known = set()
        for at, token in enumerate(self.tokens[:-1]):
            if token.type == "NAME" and self.tokens[at + 1].text in ("=", "+=", "-=", ":", "in"):
                known.add(token.text)
            if token.text in ("=", "+=", "-=", ":") and at and self.tokens[at - 1].text == "]":
                start = at - 1
                while start and self.tokens[start].text != "[":
                    start -= 1
                known.add(self.tokens[max(0, start - 1)].text)
        return known

    def say(self, code: str, message: str, label: str = "", *notes: str, span: Span | None = None) -> bool:
        self.problems.add(code, span or self.token.span, message, label, *notes)
        return True


Rule = Callable[[Trouble], bool]


def explain(trouble: Trouble) -> None:
    """Reports the most helpful reason."""
    next(rule for rule in RULES if rule(trouble))


# ---- words -----------------------------------------------------------------------------------------------------------


def _head(t: Trouble) -> bool:
    if t.at == 0:
        guess = "did you mean 'algorithm'?" if closest(t.token.text, ["algorithm"]) else ""
        return t.say("P101", "a spec starts with: algorithm NAME", guess)
    return False


def _section_word(t: Trouble) -> bool:
    """`inptus x[i] : R^d`: the word before is not a section but looks like one."""
    for at in (t.at, t.at - 1):
        token = t.tokens[at] if 0 < at < len(t.tokens) else None
        if token is None or token.type != "NAME" or not t.line_start(at):
            continue
        follows = t.tokens[at + 1] if at + 1 < len(t.tokens) else None
        if follows is not None and follows.text in ("[", "=", ":", ",", "in"):
            continue
        words = [*SECTIONS, "then", "layers"]
        guess = closest(token.text, words)
        if guess:
            return t.say("P102", f"'{token.text}' is not a section", f"did you mean '{guess}'?",
                         f"sections: {listed(SECTIONS[1:])}", span=token.span)
        if token.text == "gives":
            return t.say("P102", "'gives' is not needed", "what follows `layers N` is what is expected", span=token.span)
    return False


def _operator_word(t: Trouble) -> bool:
    """`argmn[j] |...|`, `median[i] x[i]`, `lgo(x)`: a name where an operator or function was meant."""
    name = _called(t)
    if name is None or not (t.token.type in STARTS_VALUE or t.token.text in ("|", "<", "-")):
        return False
    call = t.tokens[t.at - 1] is name
    known = FUNCTIONS if call else (*WEIGHTINGS, *REDUCTIONS)
    if name.type == "NAME" and name.text in t.declared():
        return False
    if call and t.token.text != "(":
        guess = closest(name.text, known)
        return guess is not None and t.say("P103", f"'{name.text}' is not a function", f"did you mean '{guess}'?",
                                           f"functions: {listed(FUNCTIONS)}", span=name.span)
    guess = did_you_mean(name.text, known)
    if call:
        operator = closest(name.text, (*WEIGHTINGS, *REDUCTIONS))
        return t.say("P103", f"'{name.text}' is not a function", guess or (f"did you mean '{operator}[i](...)'?" if operator else ""),
                     f"functions: {listed(FUNCTIONS)}", span=name.span)
    what = "a reduction" if closest(name.text, known) in REDUCTIONS else "a weighting"
    return t.say("P103", f"'{name.text}' is not {what}" if guess else f"'{name.text}' is not a weighting or reduction", guess,
                 f"weightings: {' '.join(sorted(WEIGHTINGS))}", f"reductions: {' '.join(REDUCTIONS)}", span=name.span)


def _called(t: Trouble) -> Token | None:
    """The name directly before the token, or before `[index]` in front of it."""
    before = t.before()
    if before is None or t.line_start(t.at):
        return None
    if before.type == "NAME":
        return before if not t.line_start(t.at - 1) else None
    if before.text == "]" and t.at >= 4 and t.tokens[t.at - 3].text == "[" and not t.line_start(t.at - 4):
        name = t.tokens[t.at - 4]
        return name if name.type == "NAME" else None
    return None


def _reserved(t: Trouble) -> bool:
    """A word of the language where a name is expected."""
    word = t.token.text
    if not word.isidentifier() or t.token.type in ("NAME", END):
        return False
    naming = "NAME" in t.expected and not VALUE <= t.expected
    after = t.after()
    looks_named = after is not None and after.text in ("[", "=", "+=", "-=", ":", "]", ",", "in") and t.token.type not in PREFIX
    if t.line_start(t.at) and word in SECTIONS and not (after is not None and after.text in ("[", "=", "+=", "-=", ":")):
        return False
    if naming or (looks_named and (t.line_start(t.at) or t.token.type == "R")):
        what = {"REDUCTION": "a reduction", "WEIGHTING": "a weighting", "FUNCTION": "a function"}.get(CLASSES.get(word, ""),
                                                                                                  "a word of the language")
        return t.say("P123", f"'{word}' cannot be a name", f"it is {what}", f"choose another, such as {word}1 or my_{word}")
    return False


# ---- sections and equations ------------------------------------------------------------------------------------------


def _empty_section(t: Trouble) -> bool:
    before = t.before()
    ends = t.token.type == END or (t.token.text in (*SECTIONS, "then") and t.line_start(t.at))
    if not ends or before is None or before.text not in (*SECTIONS, "then"):
        return False
    examples = {
        "tokens": "i in points", "inputs": "x[i] : R^d", "random": "g[i,j] : gumbel", "state": "u[i] : R = 0", "param": "tau = 90",
        "let": "D[i,j] = |x[i] - c[j]|^2", "layer": "x[i] = 2 * x[i]", "then": "x[i] = 2 * x[i]", "repeat": "10",
        "outputs": "c", "objective": "sum[i] |x[i]|^2", "example": "x = [1], [2]  layers 1  c = [3/2]", "algorithm": "my_algorithm",
    }  # fmt: skip
    return t.say("P124", f"nothing follows `{before.text}`", "", f"as in: {before.text} {examples[before.text]}", span=before.span)


def _misplaced_then(t: Trouble) -> bool:
    if t.token.text != "then" or t.section == "layer":
        return False
    return t.say("P125", "`then` stands between the steps of a `layer`", f"this is in `{t.section}`")


def _example(t: Trouble) -> bool:
    if t.section != "example":
        return False
    words = [token.text for token in t.tokens[t.region : t.at]]
    if "layers" not in words and (t.token.type == END or t.token.text in SECTIONS):
        where = t.tokens[t.region]
        return t.say("P126", "this example does not say how many layers to run", "",
                     "as in: x = [1], [3]  layers 1  c = [2]", span=where.span)
    if words and words[-2:-1] == ["layers"] and (t.token.type == END or t.token.text in SECTIONS):
        return t.say("P126", "this example expects nothing", "", "write what comes out after `layers N`, as in: layers 1  c = [2]",
                     span=t.tokens[t.at - 1].span)
    return False


def _equals(t: Trouble) -> bool:
    """A missing or a doubled `=`."""
    before = t.before()
    if before is None:
        return False
    if t.token.text == "=" and before.text == "=":
        return t.say("P127", "write a single =", "", "equations and definitions use =", span=before.span.to(t.token.span))
    if t.token.text == "=" and before.text == ":":
        return t.say("P127", "write = instead of :=", "", span=before.span.to(t.token.span))
    if t.token.text == "=" and before.text in ("*", "/", "^"):
        return t.say("P127", f"there is no {before.text}=", "spell it out: a = a * b", span=before.span.to(t.token.span))
    if t.allows("=") and t.allows("+="):
        target = _text(t, t.region if t.tokens[t.region].type == "NAME" else t.at - 1)
        return t.say("P128", f"expected = after {target}", "", f"an equation reads {target} = value")
    if t.section == "param" and t.token.text == ":":
        return t.say("P129", "a parameter has no type", "parameters are numbers", "as in: param tau = 90 in [0, 100)")
    if t.section == "state" and t.allows("=") and not t.allows("+="):
        return t.say("P128", "a state field needs its start", "expected =", "as in: state u[i] : R = 0")
    if t.section in ("inputs", "random") and t.allows(":"):
        return t.say("P128", f"expected : and a type after {_text(t, t.region if t.tokens[t.region].type == 'NAME' else t.at - 1)}",
                     "", "as in: x[i] : R^d" if t.section == "inputs" else "as in: g[i,j] : gumbel")
    if t.section == "inputs" and t.token.text == "=":
        return t.say("P129", "an input gets its value from the user", "", "how it starts when none is given: init spread(x)",
                     "a field with a start of its own belongs under `state`")
    return False


def _text(t: Trouble, start: int) -> str:
    """The source from a token up to the one in trouble."""
    first, last = t.tokens[start], t.tokens[t.at - 1]
    text = " ".join(t.problems.source.text[first.start : last.end].split())
    return text if len(text) <= 24 else text[:21] + "..."


# ---- expressions -----------------------------------------------------------------------------------------------------


def _clause(t: Trouble) -> bool:
    if t.token.text not in CLAUSES:
        return False
    word = t.token.text
    owner = {"weighted": "a mean", "by": "a mean", "ties": "argmin or argmax", "noise": "sample"}.get(word, "a sum, mean or weighting")
    return t.say("P130", f"`{word}` has nothing to belong to here", f"it belongs to {owner}",
                 "a sum, mean or weighting reaches over the product to its right and stops at + and -; "
                 "put a longer body in parentheses: mean[i] (x[i] - c[j]) where ...")


def _nested_prefix(t: Trouble) -> bool:
    if t.token.type not in PREFIX:
        return False
    before = t.before()
    outer = next((token for token in reversed(t.tokens[t.region : t.at]) if token.type in PREFIX), None)
    if before is not None and before.text == "(" and outer is not None and t.at >= 5 and t.tokens[t.at - 5] is outer:
        return t.say("P131", f"put this {t.token.text} in parentheses of its own", f"it is an argument of {outer.text}",
                     f"as in {outer.text}[{t.tokens[t.at - 3].text}](({t.token.text}[...] ...))")
    if before is not None and before.type in ENDS_VALUE:
        return False
    return t.say("P131", "put a nested sum, mean or weighting in parentheses", f"so that it is clear where this {t.token.text} ends",
                 f"as in ({t.token.text}[...] ...)")


def _missing_index(t: Trouble) -> bool:
    before = t.before()
    if before is None or before.type not in PREFIX or t.token.text == "[":
        return False
    return t.say("P132", f"{before.text} needs the index it runs over", "expected [", f"as in {before.text}[i] ...", span=before.span)


def _exponent(t: Trouble) -> bool:
    before = t.before()
    if before is None or before.text != "^":
        return False
    if t.at >= 2 and t.tokens[t.at - 2].text == "R":
        return t.say("P133", "a width is a name or a whole number", "", "as in R^d or R^3")
    hint = "1 / a is a^-1" if t.token.text == "-" else "sqrt(a) is a^0.5" if t.token.type == "NUMBER" else ""
    return t.say("P133", "an exponent is a whole number", "expected 2, 3, ...", f"exp(b * log(a)) is a^b{'; ' + hint if hint else ''}")


def _stars(t: Trouble) -> bool:
    before = t.before()
    if t.token.text == "*" and before is not None and before.text == "*":
        return t.say("P133", "a power is written with ^", "as in a^2", span=before.span.to(t.token.span))
    return False


def _bars(t: Trouble) -> bool:
    """An odd number of | in what the parser could not read."""
    end = next((at for at in range(t.at, len(t.tokens)) if t.line_start(at) and at > t.region), len(t.tokens))
    bars = [token for token in t.tokens[t.region : max(end, t.at)] if token.text == "|"]
    if len(bars) % 2 == 0:
        return False
    first = bars[-1] if len(bars) == 1 else bars[0]
    return t.say("P122", "this | has no partner", "expected a second |", "|v| is the length of v, |v|^2 its square",
                 span=first.span)


def _angle(t: Trouble) -> bool:
    """`<a, b` without its end, or `<a>` without its second half."""
    opened = None
    for token in reversed(t.tokens[t.region : t.at]):
        if token.text == ">":
            break
        if token.text == "<":
            opened = token
            break
    if opened is None or not (t.allows(">") or t.allows(",")):
        return False
    wanted = ">" if t.allows(">") and not t.allows(",") else ","
    return t.say("P122", "this < has no partner" if wanted == ">" else "<a, b> needs two sides", f"expected {wanted} further on",
                 "<a, b> is the inner product of a and b", span=opened.span)


def _operator(t: Trouble) -> bool:
    before = t.before()
    if before is None or before.type not in ENDS_VALUE or t.token.type not in STARTS_VALUE or not t.allows("*"):
        return False
    left = _text(t, t.at - 1)
    return t.say("P134", "an operator is missing", f"between {left} and {t.token.text}", "a product is written with *, as in 2 * x[i]",
                 span=before.span.to(t.token.span) if not t.line_start(t.at) else t.token.span)


def _value(t: Trouble) -> bool:
    """An operator or the end of something where a value is expected."""
    before = t.before()
    if not t.expected >= VALUE or before is None:
        return False
    what = "the file ends here" if t.token.type == END else f"found {_shown(t.token)}"
    after = {"=": "what to store", "+=": "what to add", "-=": "what to subtract", "else": "the value to use then",
             "where": "a condition", "and": "a condition"}.get(before.text, "a value")  # fmt: skip
    return t.say("P135", f"expected {after} after `{before.text}`", what, span=t.token.span if t.token.type != END else before.span)


def _general(t: Trouble) -> bool:
    if t.token.type == END:
        before = t.tokens[-1]
        return t.say("P136", "the file ends too early", f"expected {_expected(t)} after this", span=before.span)
    return t.say("P100", f"unexpected {_shown(t.token)}", f"expected {_expected(t)}")


def _shown(token: Token) -> str:
    return f"'{token.text}'" if len(token.text) <= 30 else f"'{token.text[:27]}...'"


def _expected(t: Trouble) -> str:
    """What could have stood there, in words, the likely first."""
    names = {terminal: text for text, terminal in t.terminals.items()}
    expected = set(t.expected)
    words: list[str] = []
    if expected >= VALUE:
        words.append("a value")
        expected -= {*VALUE, "INT", "SIGN", "VBAR", "LESSTHAN", "FUNCTION", "COUNT", "INDEX", *PREFIX}
    if {"PLUS", "STAR"} <= expected:
        words.append("an operator")
        expected -= {"PLUS", "SIGN", "STAR", "SLASH", "CIRCUMFLEX", "PERCENT"}
    sections = {"TOKENS", "OUTPUTS", "LAYER"} <= expected
    if sections:
        expected -= {t.terminals[word] for word in SECTIONS}
    expected -= {END}
    words += sorted(WORDS.get(name) or f"`{names.get(name, name)}`" for name in expected)
    if sections:
        words.append("the next section")
    return joined(words[:6], "or") if words else "the end of the file"


RULES: tuple[Rule, ...] = (
    _head, _section_word, _empty_section, _misplaced_then, _example, _reserved, _operator_word, _equals, _stars, _exponent,
    _missing_index, _clause, _nested_prefix, _bars, _angle, _operator, _value, _general,
)  # fmt: skip
