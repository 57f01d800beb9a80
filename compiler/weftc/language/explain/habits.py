"""Habits from other languages: `if`, `or`, `==`, `sum_i`, `y(i,j)`, `<-`, `norm(v)`; and how it is said here."""

from __future__ import annotations

import re
from itertools import takewhile

from weftc.core.vocabulary import REDUCTIONS, WEIGHTINGS
from weftc.language.explain.context import PREFIX, STARTS_VALUE, VALUE, Trouble
from weftc.language.parse.lexer import Token

COMPARISONS = ("<", "<=", ">", ">=", "!=")
CONDITIONS = "as in sum[i] x[i] where 0 < w[i] and w[i] < 1"
OPERATOR_WORDS = (*WEIGHTINGS, *REDUCTIONS)
LOOPS = "there are no loops: an equation holds for every token, a layer repeats by itself"
FOREIGN = {
    "if": "write `where` for a condition, and `else` for what to use when nothing meets it",
    "or": "conditions are only joined by `and`; for `or`, add two sums",
    "not": "write the opposite comparison, as in y[i,j] < 1",
    "for": LOOPS,
    "while": LOOPS,
    "do": LOOPS,
    "end": "nothing needs to be closed by a word",
    "return": "what comes out is listed under `outputs`",
    "def": "a name for an expression is a `let`",
    "function": "a name for an expression is a `let`",
}
FUNCTIONS = {
    "norm": "|v| is the length of a vector",
    "sq": "a^2 is the square",
    "square": "a^2 is the square",
    "pow": "a^3 is a power",
    "dot": "<a, b> is the inner product",
    "inner": "<a, b> is the inner product",
    "dist": "|a - b| is the distance",
    "distance": "|a - b| is the distance",
    "ln": "log(a) is the natural logarithm",
    "avg": "mean[i] v[i] is the average",
    "average": "mean[i] v[i] is the average",
    "top": "highest[i](S, 3) keeps the best three",
    "len": "count(points) is the number of tokens",
    "size": "count(points) is the number of tokens",
}


def foreign_word(t: Trouble) -> bool:
    """`if`, `or`, loops: names only to the parser."""
    for token in (t.token, t.before()):
        if token is not None and token.type == "NAME" and token.text in FOREIGN and token.text not in t.declared():
            return t.say("P140", f"there is no `{token.text}`", "", FOREIGN[token.text], span=token.span)
    return False


def foreign_function(t: Trouble) -> bool:
    """`norm(v)`, `dot(a, b)`."""
    before = t.before()
    if before is None or before.type != "NAME" or t.token.text != "(" or before.text in t.declared():
        return False
    how = FUNCTIONS.get(before.text.lower())
    return how is not None and t.say("P103", f"'{before.text}' is not a function", how, span=before.span)


def underscore(t: Trouble) -> bool:
    """`sum_i x[i]`, `argmin_j |...|`."""
    before = t.before()
    found = re.fullmatch(rf"({'|'.join(OPERATOR_WORDS)})_(\w+)", before.text) if before is not None else None
    if before is None or found is None:
        return False
    how = f"write {found.group(1)}[{found.group(2)}]"
    return t.say("P103", f"'{before.text}' is a name, not {found.group(1)} over an index", how, span=before.span)


def index_list(t: Trouble) -> bool:
    """`sum[i in points]`, `sum[i,l]`, `mean[]`, `x[0]`, `y(i,j) = ...`."""
    opened, before = _opened(t), t.before()
    if opened is None or before is None:
        return False
    owner = opened.text
    if opened.type in PREFIX and t.token.text == "in":
        return t.say(
            "P141", f"{owner}[{before.text}] is enough", "the index knows its set", "its set is declared under `tokens`"
        )
    if opened.type in PREFIX and t.token.text == ",":
        how = f"write one after the other: {owner}[{before.text}] {owner}[...] ..."
        return t.say("P141", f"{owner} runs over one index at a time", "", how)
    if before.text == "[" and t.token.text == "]":
        return t.say(
            "P141", f"{owner} needs an index here", "expected a name, such as i", span=before.span.to(t.token.span)
        )
    if t.token.text == ":" and before.text == "[":
        how = "an equation holds for every token; sum[i], mean[i] and max[i] run over all of them"
        return t.say("P141", "an index is a name", f"expected one, as in {owner}[i]", how)
    if t.token.type in ("INT", "NUMBER"):
        how = "an index stands for every token of its set; to pick some, compare index(i), the position 1, 2, ..."
        return t.say("P141", "an index is a name, not a number", "expected a name, such as i", how)
    return False


def _opened(t: Trouble) -> Token | None:
    """The word before the `[` that is open at the token."""
    for at in range(t.at - 1, max(t.region, t.at - 8), -1):
        if t.tokens[at].text == "[":
            return t.tokens[at - 1]
        if t.tokens[at].type not in ("NAME", "COMMA"):
            return None
    return None


def round_brackets(t: Trouble) -> bool:
    """`y(i,j) = ...`, `2 * w(i)`."""
    before, after = t.before(), t.after()
    if t.token.text != "(" or before is None or before.type != "NAME" or after is None:
        return False
    if not t.line_start(t.at - 1) and not (before.text in t.declared() and after.text in _indices(t)):
        return False
    inside = list(takewhile(lambda token: token.text != ")" and len(token.text) < 10, t.tokens[t.at + 1 : t.at + 4]))
    how = f"as in {before.text}[{''.join(token.text for token in inside)}]"
    return t.say("P141", "indices stand in square brackets", how, span=t.token.span)


def _indices(t: Trouble) -> set[str]:
    """The names that are declared as indices: those before `in`."""
    found: set[str] = set()
    for at, token in enumerate(t.tokens):
        if token.text == "in":
            before = at - 1
            while before >= 0 and (t.tokens[before].type == "NAME" or t.tokens[before].text == ","):
                found.add(t.tokens[before].text)
                before -= 1
    return found


def two_brackets(t: Trouble) -> bool:
    """`x[i][j]`, `[w[i] > 0]`, `1[w[i] > 0]`."""
    before = t.before()
    if t.token.text != "[" or before is None:
        return False
    if before.text == "]":
        start = t.tokens[t.target()]
        return t.say("P141", "all indices of a field stand in one pair of brackets", f"as in {start.text}[i,j]")
    if t.expected >= VALUE or before.type in ("INT", "NUMBER"):
        how = "sum[l] 1 where w[l] > w[i] counts the tokens that meet it; relu(a) is a where a > 0, else 0"
        return t.say("P142", "a condition is not a value", "conditions stand behind `where`", how)
    return False


def remainder(t: Trouble) -> bool:
    """`w[i] % 2`, `w[i] mod 2`."""
    before = t.before()
    if before is None or before.text not in ("%", "mod") or before.text in t.declared():
        return False
    if t.token.type not in STARTS_VALUE:
        return False
    how = "% stands behind a share, as in lowest[i](S, 90%)"
    return t.say("P133", "there is no remainder", "", how, span=before.span)


def arrow(t: Trouble) -> bool:
    """`c[j] <- ...`, `c[j] *= 2`."""
    after = t.after()
    if after is None or not (t.allows("=") and t.allows("+=")):
        return False
    both = t.token.span.to(after.span)
    if t.token.text == "<" and after.text == "-":
        return t.say("P127", "write = instead of <-", span=both)
    if t.token.text in ("*", "/", "^") and after.text == "=":
        return t.say("P127", f"there is no {t.token.text}=", f"spell it out: a = a {t.token.text} b", span=both)
    if t.token.text == ",":
        return t.say("P127", "an equation writes one field", "", "give every field an equation of its own")
    return False


def in_condition(t: Trouble) -> bool:
    """`where y[i,j] = 1`, `where a > 0, b > 0`."""
    words = [token.text for token in t.tokens[t.region : t.at]]
    if "where" not in words or t.token.text not in ("=", ","):
        return False
    if t.token.text == ",":
        return t.say("P142", "conditions are joined by `and`", "write `and` here")
    before = t.before()
    if before is None or before.text != "=":
        return False
    how = "a onehot field is a condition by itself: where y[i,j]"
    return t.say("P142", "a condition compares by =, not by ==", "one is enough", how)


def sum_in_condition(t: Trouble) -> bool:
    """`where i - l <= 2`, `where a[i] + b[i] > 0 and ...`: a condition ends at + and -."""
    if t.token.text not in (*COMPARISONS, "="):
        return False
    start = t.at - 1
    while start > t.region and t.tokens[start].text not in ("where", "and"):
        start -= 1
    side = t.tokens[start + 1 : t.at]
    if t.tokens[start].text not in ("where", "and") or any(token.text in (*COMPARISONS, "=") for token in side):
        return False
    depth, added = 0, False
    for number, token in enumerate(side):
        depth += (token.text in ("(", "[")) - (token.text in (")", "]"))
        added = added or (number > 0 and not depth and token.text in ("+", "-"))
    if not added:
        return False
    said = t.problems.source.text[side[0].start : side[-1].end]
    span = side[0].span.to(side[-1].span)
    how = f"as in where ({' '.join(said.split())}) {t.token.text} ..."
    return t.say("P142", "a sum in a condition stands in parentheses", "a condition ends at + and -", how, span=span)


def comparison(t: Trouble) -> bool:
    """`where 0 < w[i] < 1`, `where (a > 0) and (b > 0)`, `y[i] = w[i] > 0`."""
    if t.token.text not in COMPARISONS or t.line_start(t.at):
        return False
    if t.allows("and"):
        return t.say("P142", "a condition compares two values", "join two comparisons by `and`", CONDITIONS)
    if not t.allows("+") or any(token.text == "<" for token in t.tokens[t.region : t.at]):  # perhaps of <a, b>
        return False
    label = "conditions stand behind `where`, without parentheses"
    return t.say("P142", "a comparison is a condition, not a value", label, CONDITIONS)


def stray_and(t: Trouble) -> bool:
    """`c[j] = a[j] and b[j]`: `and` where there is no condition."""
    after = t.after()
    named = after is not None and after.text in ("[", "=", "+=", "-=", ":", ",")
    if t.token.text != "and" or named or "NAME" not in t.expected or t.allows("and"):
        return False
    return t.say("P142", "`and` joins two conditions", "there is no condition before it", CONDITIONS)


def clause_form(t: Trouble) -> bool:
    """`weighted by w`, `by y[i,j]`, `S, ties split`, `ties: split`."""
    before, word = t.before(), t.token.text
    if before is None:
        return False
    if before.text == "weighted" and word == "by":
        how = "as in mean[i] x[i] weighted w[i], or mean[i] x[i] by softmax[i](S)"
        return t.say("P130", "`weighted` takes numbers, `by` takes a weighting", "use one of the two words", how)
    if before.text == "by":
        how = "as in mean[i] x[i] by lowest[i](S, 3); for stored weights: mean[i] x[i] weighted y[i,j]"
        return t.say("P130", "`by` takes a weighting", "this is not one", how)
    if before.text == "among":
        how = "as in softmax[i](S among highest[i](S, 3))"
        return t.say("P130", "`among` takes lowest or highest", "this is neither", how)
    if before.text == "," and word in ("ties", "noise", "where", "among"):
        return t.say("P130", f"no comma before `{word}`", "it belongs to what is before it", span=before.span)
    if before.text == "ties":
        return t.say("P118", "`ties` needs its rule", "first, split, average, or within EPS", span=before.span)
    return False


def condition_in_brackets(t: Trouble) -> bool:
    """`max[h != j] S`, `sum[l < i] x[l]`."""
    bracket, word = t.before(2), t.before(3)
    if bracket is None or bracket.text != "[" or word is None or word.type not in ("REDUCTION", "WEIGHTING"):
        return False
    index, sign, other = t.before(), t.token.text, t.after()
    if index is None or sign not in ("!=", "<", "<=", ">", ">=", "="):
        return False
    named = other.text if other is not None and other.type == "NAME" else "..."
    how = f"as in {word.text}[{index.text}] ... where {index.text} {sign} {named}"
    return t.say("P142", "a condition stands behind `where`", "not in the brackets of an index", how)
