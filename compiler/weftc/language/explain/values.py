"""Expressions that break off, lack an operator or a partner, or nest operators without parentheses."""

from __future__ import annotations

from weftc.language.explain.context import CLAUSES, ENDS_VALUE, PREFIX, STARTS_VALUE, VALUE, Trouble
from weftc.language.parse.lexer import SECTIONS, Token

TIMES = "a matrix times a vector is A * x[i]"
AFTER = {
    "=": "what to store",
    "+=": "what to add",
    "-=": "what to subtract",
    "else": "the value to use then",
    "where": "a condition",
    "and": "a condition",
}


def clause(t: Trouble) -> bool:
    """`where` and its like behind something that is no sum, mean or weighting."""
    word, before, after = t.token.text, t.before(), t.after()
    if before is not None and (before.text in SECTIONS or before.text == ","):
        return False
    if word not in CLAUSES or (after is not None and after.text in ("[", "=", "+=", "-=", ":")):
        return False
    owner = {"weighted": "a mean", "by": "a mean", "ties": "argmin or argmax", "noise": "sample"}
    label = f"it belongs to {owner.get(word, 'a sum, mean or weighting')}"
    why = "a sum, mean or weighting reaches over the product to its right and stops at + and -"
    how = f"put a longer body in parentheses: mean[i] (x[i] - c[j]) {word} ..."
    return t.say("P130", f"`{word}` has nothing to belong to here", label, why, how)


def nested_prefix(t: Trouble) -> bool:
    """A sum, mean or weighting where only parentheses would say how far it reaches."""
    before, word = t.before(), t.token.text
    if t.token.type not in PREFIX or (before is not None and before.type in ENDS_VALUE):
        return False
    outer = t.before(5)  # outer [ index ] ( here
    if before is not None and before.text == "(" and outer is not None and outer.type in PREFIX:
        message, label = f"put this {word} in parentheses of its own", f"it is an argument of {outer.text}"
        return t.say("P131", message, label, f"as in {outer.text}[{t.tokens[t.at - 3].text}](({word}[...] ...))")
    label = f"so that it is clear where this {word} ends"
    return t.say("P131", "put a nested sum, mean or weighting in parentheses", label, f"as in ({word}[...] ...)")


def missing_index(t: Trouble) -> bool:
    """`sum x[i]`: over which index?"""
    before = t.before()
    if before is None or before.type not in PREFIX or t.token.text == "[":
        return False
    message, how = f"{before.text} needs the index it runs over", f"as in {before.text}[i] ..."
    return t.say("P132", message, "expected [", how, span=before.span)


def function_argument(t: Trouble) -> bool:
    """`log 2`: a function before something other than a name, bars or parentheses."""
    before = t.before()
    if before is None or before.type != "FUNCTION" or not t.allows("("):
        return False
    message, how = f"put the argument of {before.text} in parentheses", f"as in {before.text}(2 * x[i])"
    return t.say("P132", message, "expected (", how)


def exponent(t: Trouble) -> bool:
    """`w^0.5`, `R^(2)`."""
    before, base = t.before(), t.before(2)
    if before is None or before.text != "^":
        return False
    if base is not None and base.text == "R":
        return t.say("P133", "a width is a name or a whole number", "", "as in R^d or R^3")
    if base is not None and base.text == "e" and "e" not in t.declared():
        how = "exp(-|x[i]|^2 / 2) is the exponential function"
        return t.say("P133", "the exponential function is exp", "write exp(...)", how, span=base.span.to(before.span))
    hint = (
        "; 1 / a is a^-1" if t.token.text == "-" else "; sqrt(a) is a^0.5" if t.token.type in ("NUMBER", "LPAR") else ""
    )
    return t.say("P133", "an exponent is a whole number", "expected 2, 3, ...", f"exp(b * log(a)) is a^b{hint}")


def stars(t: Trouble) -> bool:
    """`a ** 2`."""
    before = t.before()
    if t.token.text == "*" and before is not None and before.text == "*":
        return t.say("P133", "a power is written with ^", "as in a^2", span=before.span.to(t.token.span))
    return False


def slashes(t: Trouble) -> bool:
    """`a // 2`."""
    before = t.before()
    if t.token.text == "/" and before is not None and before.text == "/":
        span = before.span.to(t.token.span)
        return t.say("P133", "there is no whole-number division", "a / b divides", "a comment starts with #", span=span)
    return False


def bars(t: Trouble) -> bool:
    """An odd number of | in what the parser could not read."""
    end = next((at for at in range(t.at, len(t.tokens)) if t.line_start(at) and at > t.region), len(t.tokens))
    bars = [token for token in t.tokens[t.region : max(end, t.at)] if token.text == "|"]
    if len(bars) % 2 == 0:
        return False
    how = "|v| is the length of v, |v|^2 its square"
    return t.say("P122", "this | has no partner", "expected a second |", how, span=bars[0].span)


def angle(t: Trouble) -> bool:
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
    message = "this < has no partner" if wanted == ">" else "<a, b> needs two sides"
    how = "<a, b> is the inner product of a and b"
    return t.say("P122", message, f"expected {wanted} further on", how, span=opened.span)


def operator(t: Trouble) -> bool:
    """Two values side by side."""
    before = t.before()
    if before is None or before.type not in ENDS_VALUE or t.token.type not in STARTS_VALUE or not t.allows("*"):
        return False
    label = f"between {t.text(t.at - 1)} and {t.token.text}"
    span = t.token.span if t.line_start(t.at) else before.span.to(t.token.span)
    product = "a product is written with *, as in 2 * x[i]"
    matrix = [TIMES] if before.type == "NAME" and t.token.type == "NAME" else []
    return t.say("P134", "an operator is missing", label, product, *matrix, span=span)


def value(t: Trouble) -> bool:
    """An operator or the end of something where a value is expected."""
    before = t.before()
    if not t.expected >= VALUE or before is None:
        return False
    wanted = AFTER.get(before.text, "a value")
    label = "nothing follows on this line" if t.line_start(t.at) else f"found {shown(t.token)}"
    return t.say("P135", f"expected {wanted} after `{before.text}`", label, span=t.behind())


def shown(token: Token) -> str:
    """A token as messages quote it."""
    return f"'{token.text}'" if len(token.text) <= 30 else f"'{token.text[:27]}...'"
