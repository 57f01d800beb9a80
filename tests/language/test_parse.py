"""Text -> syntax tree: the reading rules, values of examples, limits, and files that are no specs."""

from __future__ import annotations

import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from spec_texts import GOOD, with_equation
from weftc.core import syntax as ast
from weftc.core.errors import InputError, SpecError
from weftc.core.source import Span
from weftc.core.syntax import Binary, Else, Inner, Neg, Norm, Num, Power, Reduce, Ref, Square, Weigh
from weftc.language.parse.files import LARGEST, read_spec
from weftc.language.parse.parse import parse


def shape(node: Any) -> Any:
    """A node without its places: the class, then everything it holds."""
    if isinstance(node, tuple):
        return tuple(shape(item) for item in node)
    if not hasattr(node, "__dataclass_fields__") or isinstance(node, Span):
        return node
    values = [shape(getattr(node, name)) for name in node.__dataclass_fields__ if name != "span"]
    return (type(node).__name__, *values)


def equation(text: str) -> ast.Equation:
    return parse(with_equation(text)).steps[-1].equations[-1]


def body(text: str) -> Any:
    return equation(f"z[i] = {text}").body


@pytest.mark.parametrize(
    ("text", "same"),
    [
        # 1. else is the loosest operator
        ("w[i] + mean[l] u[l] where y[l,j] else w[i]", "(w[i] + (mean[l] u[l] where y[l,j])) else w[i]"),
        ("u[i] else w[i] else 0", "u[i] else (w[i] else 0)"),
        # 2. a prefix operator reaches over the product to its right and stops at + and -
        ("sum[l] w[l] * u[l] + 1", "(sum[l] (w[l] * u[l])) + 1"),
        ("2 * sum[l] w[l] / 3 - u[i]", "(2 * (sum[l] (w[l] / 3))) - u[i]"),
        ("-sum[l] w[l] * 2", "-(sum[l] (w[l] * 2))"),
        ("sum[l] min[j] D[l,j] * 2", "sum[l] (min[j] (D[l,j] * 2))"),
        # 3. a weighting followed by ( is a call
        ("softmax[j](D[i,j]) / 2", "(softmax[j](D[i,j])) / 2"),
        ("softmax[j] -2 * D[i,j]", "softmax[j](-2 * D[i,j])"),
        # products and signs
        ("w[i] - u[i] - 1", "(w[i] - u[i]) - 1"),
        ("w[i] / u[i] * 2", "(w[i] / u[i]) * 2"),
        ("-w[i]^2", "-(w[i]^2)"),
        ("2 * -w[i]", "2 * (-w[i])"),
        ("log w[i] * 2", "(log(w[i])) * 2"),
        ("log |x[i]|", "log(|x[i]|)"),
        ("||x[i] - x[i]||^2", "|x[i] - x[i]|^2"),
    ],
)
def test_reading_rules(text: str, same: str) -> None:
    assert shape(body(text)) == shape(body(same))


def test_bars_open_where_a_value_is_expected() -> None:
    nested = body("||x[i]|^2 - u[i]|")
    assert isinstance(nested, Norm)
    assert isinstance(nested.body, Binary)
    assert isinstance(nested.body.left, Square)


def test_square_of_bars_is_a_squared_length_and_other_powers_are_powers() -> None:
    assert isinstance(body("|x[i]|^2"), Square)
    cube = body("|x[i]|^3")
    assert isinstance(cube, Power)
    assert cube.exponent == 3


def test_clauses_belong_to_the_reduction_before_them() -> None:
    mean = body("mean[l] u[l] weighted w[l] where y[l,j] and w[l] > 1 and i != l else 0")
    assert isinstance(mean, Else)
    assert isinstance(mean.body, Reduce)
    assert [type(c).__name__ for c in mean.body.where] == ["Member", "Compare", "Different"]
    assert isinstance(mean.body.weighted, Ref)


def test_clauses_in_a_call_belong_to_the_weighting() -> None:
    weigh = body("sum[l] lowest[l](D[l,j] where y[l,j], tau%) * u[l]").body.left
    assert isinstance(weigh, Weigh)
    assert weigh.kind == "lowest"
    assert isinstance(weigh.arguments[0], ast.Percent)
    assert len(weigh.where) == 1
    sample = body("sum[l] sample[l](-D[l,j] noise g[l,j]) * u[l]").body.left
    assert sample.noise == Ref(sample.noise.span, "g", ("l", "j"))


@pytest.mark.parametrize(
    ("clause", "rule", "epsilon"),
    [("", None, None), ("ties first", "first", None), ("ties split", "split", None), ("ties average", "average", None),
     ("ties within 1e-9", "within", 1e-9)],
)  # fmt: skip
def test_rules_for_ties(clause: str, rule: str | None, epsilon: float | None) -> None:
    weigh = equation(f"q[i,j] = argmin[j] D[i,j] {clause}").body
    assert isinstance(weigh, Weigh)
    assert (weigh.ties.rule if weigh.ties else None) == rule
    if epsilon is not None:
        assert weigh.ties is not None
        assert isinstance(weigh.ties.epsilon, Num)
        assert weigh.ties.epsilon.value == epsilon


def test_updates_are_spelt_out() -> None:
    assert shape(equation("s[j] += 2 * s[j]").body) == shape(equation("s[j] = s[j] + 2 * s[j]").body)
    assert shape(equation("s[j] -= 1").body) == shape(equation("s[j] = s[j] - 1").body)


def test_parentheses_leave_only_their_span() -> None:
    text = with_equation("z[i] = 2 * (u[i] + 1)")
    product = parse(text).steps[-1].equations[-1].body
    assert isinstance(product, Binary)
    assert text[product.right.span.start : product.right.span.end] == "(u[i] + 1)"
    assert isinstance(body("<x[i], (x[i])>"), Inner)
    assert isinstance(body("-(u[i])"), Neg)


@pytest.mark.parametrize("text", ["2", "0.5", ".5", "1e-3", "2.", "1E3", "0.1"])
def test_numbers_are_the_nearest_float64(text: str) -> None:
    number = body(text)
    assert isinstance(number, Num)
    assert number.value == float(text)


def test_words_that_are_only_special_in_their_place_may_be_names() -> None:
    text = with_equation("real[i] = 2 * first[i]").replace("u[i] : R", "first[i] : R")
    assert parse(text).steps[-1].equations[-1].target.name == "real"


def test_sections_may_repeat_and_keep_their_order() -> None:
    spec = parse(with_equation("z[i] = 2").replace("outputs c, y", "outputs c\nparam more = 1\noutputs y"))
    assert [output.target.name for output in spec.outputs] == ["c", "y"]
    assert [param.name for param in spec.params] == ["gamma", "rate", "tau", "shift", "more"]


def test_docstrings_and_comments() -> None:
    spec = parse('algorithm a "one" "two" # not "three"\ntokens i in p inputs x[i] : R layer x[i] = 1 # end\noutputs x')
    assert spec.doc == "one two"


# ---- examples --------------------------------------------------------------------------------------------------------


def example(text: str) -> ast.Example:
    return parse(with_equation("z[i] = 2") + "example " + text).examples[0]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", Fraction(3)),
        ("-5/3", Fraction(-5, 3)),
        ("0.1", Fraction(1, 10)),
        ("[-3], [2]", ((Fraction(-3),), (Fraction(2),))),
        ("[[-3], [2]]", ((Fraction(-3),), (Fraction(2),))),
        ("[1, 2]", ((Fraction(1), Fraction(2)),)),
        ("1, 2", (Fraction(1), Fraction(2))),
        ("[]", ((),)),
    ],
)
def test_values_of_examples_are_exact(text: str, value: ast.Value) -> None:
    assert example(f'"title" x = {text}, c = 1 layers 2 y = {text}').given[0].value == value


def test_commas_between_names_and_values_are_told_apart() -> None:
    found = example("x = 1, 2, c = [3], # one more\n w = 4 layers 2 y = [1, 0], c ~ 1.50, 2")
    assert [given.name for given in found.given] == ["x", "c", "w"]
    assert [len(given.value) if isinstance(given.value, tuple) else 0 for given in found.given] == [2, 1, 0]
    assert [(e.name, e.tolerance) for e in found.expected] == [("y", None), ("c", 0.01)]
    assert found.layers == 2


@pytest.mark.parametrize(("text", "tolerance"), [("1.9653", 1e-4), ("2", 1.0), ("1.5e-3", 1e-4), ("[0.25], [1]", 1e-2)])
def test_tolerance_is_one_unit_of_the_last_digit(text: str, tolerance: float) -> None:
    assert example(f"x = 1 layers 1 y ~ {text}").expected[0].tolerance == pytest.approx(tolerance, rel=1e-12)


def test_span_of_a_value_does_not_reach_into_the_next_line() -> None:
    text = with_equation("z[i] = 2") + "example x = [1], [2],\n c = [3]\n layers 1 y = 1\n"
    given = parse(text).examples[0].given[0]
    assert text[given.span.start : given.span.end] == "x = [1], [2]"


# ---- several mistakes at once ----------------------------------------------------------------------------------------


def codes(text: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        parse(text)
    return [diagnostic.code for diagnostic in caught.value.diagnostics]


def test_parsing_goes_on_after_a_mistake() -> None:
    text = with_equation("z[i] = (2\n  q[i] = 2 +\n  v[i] = argmn[j] |x[i] - c[j]|^2\n  then\n  r[i] = 2 2")
    assert codes(text) == ["P122", "P135", "P103", "P134"]


def test_a_misspelt_section_does_not_hide_what_follows() -> None:
    text = with_equation("z[i] = 2 +").replace("inputs", "inptus")
    assert codes(text) == ["P102", "P135"]


def test_every_bracket_mistake_is_found_in_its_own_equation() -> None:
    assert codes(with_equation("z[i] = ((2)\n  q[i] = 2)\n  v[i] = [2)")) == ["P122", "P121", "P122"]


def test_half_open_ranges_are_no_bracket_mistakes() -> None:
    assert parse(with_equation("z[i] = 2")).params[2].bound is not None


# ---- limits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("(" * 10_000 + "u[i]" + ")" * 10_000, "P120"),
        ("(" * 10_000, "P120"),
        ("-" * 40_000 + "u[i]", "P115"),
        ("u[i]" + " + u[i]" * 9_000, "P115"),
        ("u[i]" + " + u[i]" * 100_000, "P114"),
        ("u[i] else " * 9_000 + "u[i]", "P115"),
        ("|" * 20_000 + "u[i]" + "|" * 20_000, "P115"),
        ("unit(" * 150 + "x[i]" + ")" * 150, "P115"),
        ("sum[i] " * 9_000 + "u[i]", "P115"),
        ("a" * 900_000, "P113"),
        ("1" * 900_000, "P113"),
        ("1e" + "9" * 900, "P113"),
        ("u[i]^" + "9" * 30, "P116"),
        ("λ " * 100_000, "P112"),
        ('"' * 40_000, "P100"),
    ],
    ids=lambda value: value if len(value) == 4 else value[:6],
)
def test_huge_expressions_are_refused_quickly(text: str, code: str) -> None:
    start = time.perf_counter()
    found = codes(with_equation(f"z[i] = {text}"))
    assert code in found
    assert time.perf_counter() - start < 5


def test_a_hundred_levels_are_allowed() -> None:
    assert isinstance(body("u[i]" + " + u[i]" * 98), Binary)
    assert isinstance(body("(" * 190 + "u[i]" + ")" * 190), Ref)


# ---- files -----------------------------------------------------------------------------------------------------------


def test_specs_that_are_no_files_or_no_text(tmp_path: Path) -> None:
    cases: list[tuple[str, bytes | None, str]] = [
        ("missing.weft", None, "there is no file"),
        ("zero.weft", b"algorithm a\0", "is not a text file: byte 11 is zero"),
        ("latin.weft", b"algorithm a\n# caf\xe9\n", "is not UTF-8 text: byte 0xe9 in line 2"),
        ("large.weft", b"#" * 10_000_000, "is too large for a spec: more than 1 MB"),
    ]
    for name, data, message in cases:
        path = tmp_path / name
        if data is not None:
            path.write_bytes(data)
        with pytest.raises(InputError, match=message):
            read_spec(path)
    with pytest.raises(InputError, match="is a folder, not a spec file"):
        read_spec(tmp_path)
    with pytest.raises(InputError, match="cannot read"):
        read_spec("a\0b")


def test_names_of_files_are_escaped() -> None:
    with pytest.raises(InputError, match=r"there is no file no\\x1b\[31mred"):
        read_spec("no\x1b[31mred")


def test_byte_order_marks_and_line_ends_of_windows_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "windows.weft"
    path.write_bytes(b"\xef\xbb\xbf" + with_equation("z[i] = 2").replace("\n", "\r\n").encode())
    source = read_spec(path)
    assert "\r" not in source.text
    assert parse(source).name == "base"


def test_text_that_is_too_long_is_refused_before_it_is_read() -> None:
    assert codes("#" * (LARGEST + 1)) == ["P114"]


def test_control_characters_never_reach_the_terminal() -> None:
    with pytest.raises(SpecError) as caught:
        parse("algorithm a\x1b[31m\ntokens i in p\u202ex\n")
    assert "\x1b" not in str(caught.value)
    assert "\u202e" not in str(caught.value)
    assert r"\x1b" in str(caught.value)


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_good_specs_parse(path: Path) -> None:
    assert parse(read_spec(path)).name == path.stem


def test_a_condition_in_parentheses_does_not_go_on() -> None:
    """Many of them: what is found out about an expression is not taken for that of a later one."""
    grouped = " + ".join(f"(sum[l] w[l] where w[l] > {n})" for n in range(60))
    assert isinstance(body(f"{grouped} - 1"), Binary)
    with pytest.raises(SpecError, match="does this condition end before the `-`"):
        body("sum[l] w[l] where w[l] > 2 - 1")
