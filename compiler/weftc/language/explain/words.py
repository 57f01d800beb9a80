"""Words that are not what they should be: misspelt sections and operators, reserved names."""

from __future__ import annotations

from weftc.core.vocabulary import FUNCTIONS, REDUCTIONS, WEIGHTINGS
from weftc.core.words import closest, listed
from weftc.language.explain.context import CLAUSES, PREFIX, STARTS_VALUE, VALUE, Trouble
from weftc.language.parse.lexer import END, SECTIONS, Token

OPERATOR_WORDS = (*WEIGHTINGS, *REDUCTIONS)


def head(t: Trouble) -> bool:
    """Something other than `algorithm` at the start."""
    if t.at == 0:
        guess = "did you mean 'algorithm'?" if closest(t.token.text, ["algorithm"]) else ""
        return t.say("P101", "a spec starts with: algorithm NAME", guess)
    return False


def meant_as_section(t: Trouble) -> tuple[int, str] | None:
    """Which token here is a misspelt section word (`inptus x[i] : R^d`), and the section it stands for."""
    for at in (t.at, t.at - 1):
        token = t.tokens[at] if 0 < at < len(t.tokens) else None
        if token is None or token.type != "NAME" or not t.line_start(at):
            continue
        follows = t.tokens[at + 1].text if at + 1 < len(t.tokens) else ""
        guess = closest(token.text, SECTIONS[1:], 0.7)
        if guess is not None and follows not in ("[", "=", ":", ",", "in"):
            return at, guess
    return None


def section_word(t: Trouble) -> bool:
    """A misspelt section word, or one of another language."""
    found = meant_as_section(t)
    if found is not None:
        at, guess = found
        token = t.tokens[at]
        known = f"sections: {listed(SECTIONS[1:])}"
        return t.say("P102", f"'{token.text}' is not a section", f"did you mean '{guess}'?", known, span=token.span)
    before = t.before()
    if "gives" in (t.token.text, before.text if before else ""):
        span = t.token.span if t.token.text == "gives" or before is None else before.span
        return t.say("P102", "'gives' is not needed", "what follows `layers N` is what is expected", span=span)
    return False


def operator_word(t: Trouble) -> bool:
    """`argmn[j] |...|`, `median[i] x[i]`, `lgo(x)`: a name where an operator or function was meant."""
    name = _called(t)
    starts = t.token.type in STARTS_VALUE or t.token.text in ("|", "<", "-")
    if name is None or not starts or name.text in t.declared():
        return False
    if t.tokens[t.at - 1] is name:
        return _function_word(t, name)
    return _unknown_operator(t, name)


def operator_with_clause(t: Trouble) -> bool:
    """`median[i] x[i] where ...`: the next value might begin another equation, so only the clause is unexpected."""
    if t.token.text not in CLAUSES:
        return False
    for at in range(t.at - 5, 0, -1):  # NAME [ index ] value
        name, opens, _, closes, value = t.tokens[at : at + 5]
        if name.type == value.type == "NAME" and (opens.text, closes.text) == ("[", "]") and not t.line_start(at + 4):
            return not t.line_start(at) and name.text not in t.declared() and _unknown_operator(t, name)
        if t.line_start(at + 4):
            return False
    return False


def _unknown_operator(t: Trouble, name: Token) -> bool:
    guess = closest(name.text, OPERATOR_WORDS)
    what = "a weighting or reduction" if guess is None else "a reduction" if guess in REDUCTIONS else "a weighting"
    label = f"did you mean '{guess}'?" if guess else ""
    known = f"weightings: {' '.join(sorted(WEIGHTINGS))}", f"reductions: {' '.join(REDUCTIONS)}"
    return t.say("P103", f"'{name.text}' is not {what}", label, *known, span=name.span)


def _function_word(t: Trouble, name: Token) -> bool:
    guess, operator = closest(name.text, FUNCTIONS), closest(name.text, OPERATOR_WORDS, 0.75)
    if t.token.text != "(" and guess is None:
        return False
    label = f"did you mean '{guess}'?" if guess else f"did you mean '{operator}[i](...)'?" if operator else ""
    return t.say("P103", f"'{name.text}' is not a function", label, f"functions: {listed(FUNCTIONS)}", span=name.span)


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


def reserved(t: Trouble) -> bool:
    """A word of the language where a name is expected."""
    word, after = t.token.text, t.after()
    if not word.isidentifier() or t.token.type in ("NAME", END):
        return False
    written_to = after is not None and after.text in ("[", "=", "+=", "-=", ":") and t.token.type not in PREFIX
    if t.line_start(t.at) and word in (*SECTIONS, "then") and not written_to:
        return False
    before = t.before()
    first = before is not None and (before.text in SECTIONS or before.text == ",")  # no clause can stand there
    only_a_name = "NAME" in t.expected and not t.expected >= VALUE and (first or word not in CLAUSES)
    if not only_a_name and not (written_to and t.line_start(t.at)):
        return False
    what = {"REDUCTION": "a reduction", "WEIGHTING": "a weighting", "FUNCTION": "a function"}
    label = f"it is {what.get(t.token.type, 'a word of the language')}"
    return t.say("P123", f"'{word}' cannot be a name", label, f"choose another, such as {word}1 or my_{word}")
