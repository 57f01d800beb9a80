"""Sections without content, `then` and `=` in the wrong place, examples that are cut short."""

from __future__ import annotations

from dataclasses import replace

from weftc.language.explain.context import Trouble
from weftc.language.explain.habits import foreign_word, underscore
from weftc.language.explain.values import operator
from weftc.language.explain.words import operator_word
from weftc.language.parse.lexer import END, SECTIONS

EXAMPLES = {
    "algorithm": "my_algorithm",
    "tokens": "i in points",
    "inputs": "x[i] : R^d",
    "random": "g[i,j] : gumbel",
    "state": "u[i] : R = 0",
    "param": "tau = 90",
    "learn": "h = 1 > 0",
    "let": "D[i,j] = |x[i] - c[j]|^2",
    "layer": "x[i] = 2 * x[i]",
    "phase": "main x[i] = 2 * x[i]",
    "then": "x[i] = 2 * x[i]",
    "repeat": "10",
    "outputs": "c",
    "objective": "sum[i] |x[i]|^2",
    "example": "x = [1], [2]  layers 1  c = [3/2]",
}


def empty_section(t: Trouble) -> bool:
    """A section word, or `then`, directly before the next one or the end."""
    before = t.before()
    ends = t.token.type == END or (t.token.text in (*SECTIONS, "then") and t.line_start(t.at))
    if not ends or before is None or before.text not in (*SECTIONS, "then"):
        return False
    how = f"as in: {before.text} {EXAMPLES[before.text]}"
    return t.say("P124", f"nothing follows `{before.text}`", "", how, span=before.span)


def per_layer(t: Trouble) -> bool:
    """`per` without `layer`, which then takes the word of the next section."""
    words = [token.text for token in t.tokens[: t.at]]
    if words[-1:] == ["per"]:
        return t.say("P135", "expected `layer` after `per`", "a number for each layer is learned: per layer")
    taken = next((at for at in range(t.at - 1, max(t.at - 4, 1), -1) if words[at - 1 : at + 1] == ["per", "layer"]), 0)
    if not taken or not t.line_start(taken):
        return False
    how = "the `layer` of the next line is taken for it; write `per layer`, and then the section `layer`"
    return t.say("P135", "expected `layer` after `per`", "", how, span=t.tokens[taken - 1].span)


def use(t: Trouble) -> bool:
    """`use` in another form than it has."""
    first = t.tokens[t.region]
    if first.text != "use" or (first.type == "NAME" and t.allows("=")):
        return False
    how = 'as in: use assign from "parts.weft" with x = z, c = b'
    return t.say("P149", "this is not how another algorithm is used", "", how)


def misplaced_then(t: Trouble) -> bool:
    """`then` outside a layer."""
    if t.token.text != "then" or t.section in ("layer", "phase"):
        return False
    return t.say("P125", "`then` stands between the steps of a `layer`", f"this is in `{t.section}`")


def example(t: Trouble) -> bool:
    """An example that stops before it is complete."""
    if t.section != "example" or not (t.token.type == END or t.token.text in SECTIONS):
        return False
    words = [token.text for token in t.tokens[t.region : t.at]]
    if "layers" not in words:
        message, how = "this example does not say how many layers to run", "as in: x = [1], [3]  layers 1  c = [2]"
        return t.say("P126", message, "", how, span=t.tokens[t.region].span)
    if words[-2] == "layers":
        how = "write what comes out after `layers N`, as in: layers 1  c = [2]"
        return t.say("P126", "this example expects nothing", "", how, span=t.tokens[t.at - 1].span)
    return False


def doubled(t: Trouble) -> bool:
    """`==`, `:=` and other signs people know from elsewhere."""
    before, after = t.before(), t.after()
    if before is not None and t.token.text == "=":
        both = before.span.to(t.token.span)
        if before.text == "=":
            return t.say("P127", "write a single =", "", "equations and definitions use =", span=both)
        if before.text in ("*", "/", "^"):
            return t.say("P127", f"there is no {before.text}=", f"spell it out: a = a {before.text} b", span=both)
    if t.token.text == ":" and after is not None and after.text == "=":
        return t.say("P127", "write = instead of :=", span=t.token.span.to(after.span))
    return False


def range_as_chain(t: Trouble) -> bool:
    """A range that is written as a chain of comparisons."""
    number = t.token.type in ("INT", "NUMBER", "SIGN") and t.section in ("param", "learn", "inputs", "state")
    following = [token.text for token in t.tokens[t.at + 1 : t.at + 3]]
    if not number or not {"<", "<=", ">", ">="}.intersection(following):
        return False
    how = f"{t.section} w = 0.5 in (0, 1)" if t.section in ("param", "learn") else "w[i] : R in (0, 1)"
    return t.say("P129", "a range stands behind what it is of", "write `in` and an interval", f"as in: {how}; or: > 0")


def equals(t: Trouble) -> bool:
    """Something other than `=` or `:` behind what is declared or computed."""
    section = t.section
    if t.allows("=") and t.allows("+="):
        return _equation(t)
    if section in ("param", "learn") and t.token.text == ":":
        how = f"as in: {section} tau = 90 in [0, 100)"
        matrix = "a matrix is a let, as in let W = [[1, 2], [0, 1]], or an input: inputs W : R^m x d"
        return t.say("P129", "a parameter has no type", "parameters are numbers", how, matrix)
    if section == "state" and t.allows("=") and (t.token.text in (">", ">=", "<", "<=") or t.token.text == "in"):
        how = "what its start and its equations keep is known without: state w[i] : R = 1 is > 0 if all of them are"
        return t.say("P129", "a state field has no range", "ranges are what is asked of inputs", how)
    if section == "state" and t.allows("="):
        how = "as in: state u[i] : R = 0"
        return t.say("P128", "a state field needs its start", "expected = behind this", how, span=t.behind())
    if section in ("inputs", "random", "state") and t.allows(":"):
        how = f"as in: {'g[i,j] : gumbel' if section == 'random' else 'x[i] : R^d'}"
        return t.say("P128", f"expected : and a type after {t.text(t.target())}", "", how, span=t.behind())
    if section == "inputs" and t.token.text == "=":
        how = "how it starts when none is given: init spread(x)"
        other = "a field with a start of its own belongs under `state`"
        return t.say("P129", "an input gets its value from the user", "", how, other)
    return False


def _equation(t: Trouble) -> bool:
    """A new equation seems to start, but no `=` follows; perhaps it belongs to the value before it."""
    start = t.target()
    if start > t.region and not t.line_start(start):
        earlier = replace(t, at=start, token=t.tokens[start], expected=t.expected | {t.terminals["*"]})
        if any(rule(earlier) for rule in (foreign_word, underscore, operator_word, operator)):
            return True
    target = t.text(start)
    return t.say("P128", f"expected = after {target}", "", f"an equation reads {target} = value", span=t.behind())
