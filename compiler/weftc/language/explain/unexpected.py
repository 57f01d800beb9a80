"""Why a token does not fit, in the words of someone who writes specs.

Each rule looks at one way people go wrong and either explains it or passes; the last one lists what could have stood
there. The order matters: special before general.
"""

from __future__ import annotations

from weftc.core.words import joined
from weftc.language.explain import habits, sections, values, words
from weftc.language.explain.context import PREFIX, VALUE, Rule, Trouble
from weftc.language.parse.lexer import END, SECTIONS

MOST_LISTED = 6
WORDS = {
    "NAME": "a name",
    "ONE_OF": "`one of`",
    "UNTIL_STABLE": "`until stable`",
    "USE": "`use`",
    "FROM": "`from`",
    "WITH": "`with`",
    "INT": "a whole number",
    "NUMBER": "a number",
    "STRING": "a text in quotes",
    "SIGN": "`-`",
    "NEXT": "`,`",
    "REDUCTION": "a reduction",
    "WEIGHTING": "a weighting",
    "FUNCTION": "`unit`",  # the one function that can stand where no value can: in a type
    "RANDOM": "`random`",
}


def explain(trouble: Trouble) -> None:
    """Reports the most helpful reason."""
    next(rule for rule in RULES if rule(trouble))


def _general(t: Trouble) -> bool:
    if t.token.type == END:
        before = t.tokens[-1]
        return t.say("P136", "the file ends too early", f"expected {_expected(t)} after this", span=before.span)
    return t.say("P100", f"unexpected {values.shown(t.token)}", f"expected {_expected(t)}")


def _expected(t: Trouble) -> str:
    """What could have stood there, in words, the likely first."""
    spelt = {terminal: text for text, terminal in t.terminals.items()}
    expected = set(t.expected)
    named: list[str] = []
    if expected >= VALUE:
        named.append("a value")
        expected -= {*VALUE, "INT", "SIGN", "VBAR", "LESSTHAN", "FUNCTION", "OF_TWO", "COUNT", "INDEX", *PREFIX}
    if {"PLUS", "STAR"} <= expected:
        named.append("an operator")
        expected -= {"PLUS", "SIGN", "STAR", "SLASH", "CIRCUMFLEX", "PERCENT"}
        expected -= {t.terminals[mark] for mark in (".*", "./", ".^")}
    sections = {"TOKENS", "OUTPUTS", "LAYER"} <= expected
    if sections:
        expected -= {t.terminals[word] for word in SECTIONS}
    expected -= {END}
    named += sorted(WORDS.get(name) or f"`{spelt.get(name, name)}`" for name in expected)
    if sections:
        named.append("the next section")
    return joined(named[:MOST_LISTED], "or") if named else "the end of the file"


RULES: tuple[Rule, ...] = (
    words.head,
    words.section_word,
    sections.empty_section,
    sections.use,
    sections.per_layer,
    sections.misplaced_then,
    sections.example,
    habits.foreign_word,
    habits.foreign_function,
    habits.underscore,
    habits.index_list,
    habits.round_brackets,
    habits.two_brackets,
    habits.remainder,
    habits.clause_form,
    habits.condition_in_brackets,
    habits.sum_in_condition,
    habits.in_condition,
    habits.comparison,
    habits.stray_and,
    habits.arrow,
    words.operator_with_clause,
    values.clause,
    words.reserved,
    words.operator_word,
    sections.doubled,
    sections.range_as_chain,
    sections.equals,
    values.stars,
    values.slashes,
    values.exponent,
    values.missing_index,
    values.function_argument,
    values.nested_prefix,
    values.bars,
    values.angle,
    values.operator,
    values.value,
    _general,
)
