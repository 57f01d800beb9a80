"""What the checker finds out about correct specs: types, signs, definedness; and what it must not be fooled by."""

from __future__ import annotations

from dataclasses import fields
from fractions import Fraction
from pathlib import Path

import pytest

from spec_texts import GOOD, SHIPPED, with_equation
from weftc.core import syntax as ast
from weftc.core.errors import SpecError
from weftc.core.types import Checked, FieldType
from weftc.language.check.check import check, type_of
from weftc.language.parse.files import read_spec
from weftc.language.parse.parse import parse


def checked(equation: str) -> Checked:
    return check(parse(with_equation(equation)))


def field(equation: str, name: str) -> FieldType:
    return checked(equation).fields[name]


def codes(text: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        check(parse(text))
    return [diagnostic.code for diagnostic in caught.value.diagnostics]


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_good_specs_check(path: Path) -> None:
    assert check(parse(read_spec(path))).spec.name == path.stem


def test_tables_of_a_spec() -> None:
    found = checked("z[i] = 2 * x[i]")
    assert found.sets == {"points": None, "centers": "k"}
    assert found.index == {"i": "points", "l": "points", "j": "centers", "h": "centers"}
    assert list(found.fields) == ["x", "w", "u", "b", "c", "A", "g", "s", "y", "p", "z"]
    assert found.dims == ("k", "d", "e")
    assert list(found.params) == ["gamma", "rate", "tau", "shift"]
    assert list(found.lets) == ["D"]
    assert [found.fields[name].role for name in "xgsy"] == ["input", "random", "state", "computed"]


@pytest.mark.parametrize(
    ("equation", "name", "width", "kind"),
    [
        ("z[i] = 2 * x[i]", "z", "d", "vector"),
        ("z[i] = |x[i]|", "z", None, "number"),
        ("z[i,j] = D[i,j]", "z", None, "real"),
        ("z[i,j] = argmax[j] D[i,j]", "z", None, "onehot"),
        ("z[i,j] = argmax[j] D[i,j] ties within 0.1", "z", None, "onehot"),
        ("z[i,j] = argmax[j] D[i,j] ties split", "z", None, "simplex"),
        ("z[i,j] = argmax[j] D[i,j] ties average", "z", None, "simplex"),
        ("z[i,j] = sample[j](D[i,j] noise g[i,j])", "z", None, "onehot"),
        ("z[i,j] = sparsemax[j] D[i,j]", "z", None, "simplex"),
        ("z[i,j] = lowest[j](D[i,j], 1)", "z", None, "simplex"),
        ("z[i,j] = argmax[i] D[i,j]", "z", None, "real"),  # its columns are one-hot, not its rows
        ("z[i,j] = softmax[i] D[i,j]", "z", None, "real"),
        ("z[i,j] = argmax[j](D[i,j] where D[i,j] < 1) else y[i,j]", "z", None, "onehot"),
        ("z[i,j] = argmax[j](D[i,j] where D[i,j] < 1) else p[i,j]", "z", None, "simplex"),
        ("z[i,j] = argmax[j](D[i,j] where D[i,j] < 1) else 0", "z", None, "real"),
        ("z[i,j] = (1 - rate) * p[i,j] + rate * y[i,j]", "z", None, "simplex"),
        ("z[i,j] = (1 - shift) * p[i,j] + shift * y[i,j]", "z", None, "real"),  # shift may leave [0, 1]
        ("z[i,j] = 1/k", "z", None, "simplex"),
        ("z[i,j] = 1/count(centers)", "z", None, "simplex"),
        ("z[i,j] = 1/count(points)", "z", None, "real"),
        ("z[i,j] = 2 * y[i,j]", "z", None, "real"),
        ("z[i,j] = mean[l] p[l,j]", "z", None, "simplex"),
    ],
)
def test_types_are_inferred(equation: str, name: str, width: str | None, kind: str) -> None:
    found = field(equation, name)
    assert (found.width, found.kind) == (width, kind)


@pytest.mark.parametrize(
    ("expr", "positive", "nonnegative"),
    [
        ("0", False, True),
        ("-1", False, False),
        ("gamma", True, True),
        ("rate", False, True),
        ("1 - rate", False, True),
        ("rate - 1", False, False),
        ("1 - p[i,j]", False, True),
        ("2 - p[i,j]", True, True),
        ("shift", False, False),
        ("w[i]", False, True),
        ("w[i] + 1", True, True),
        ("w[i] * gamma", False, True),
        ("w[i] - 1", False, False),
        ("u[i]^2", False, True),
        ("u[i]^3", False, False),
        ("exp(u[i])", True, True),
        ("exp(u[i]) * w[i]", False, True),
        ("sqrt(exp(u[i]))", True, True),
        ("relu(u[i])", False, True),
        ("tanh(gamma)", True, True),
        ("|u[i]|", False, True),
        ("D[i,j]", False, True),
        ("D[i,j] + 1", True, True),
        ("1 / (D[i,j] + gamma)", True, True),
        ("count(points) * d", True, True),
        ("index(i) - 1", False, True),
        ("p[i,j]", True, True),
        ("y[i,j]", False, True),
        ("A[h,j]", False, True),
        ("sum[l] p[l,j]", True, True),
        ("sum[l] w[l] where y[l,j]", False, True),
        ("max[l] exp(u[l])", True, True),
        ("logsumexp[l] w[l]", False, False),
        ("softmax[j](D[i,j])", True, True),
        ("sparsemax[j](D[i,j])", False, True),
        ("<x[i], x[i]>", False, True),
        ("<x[i], c[j]>", False, False),
        ("(softmax[j](D[i,j] where y[i,j]) else 1)", False, True),
        ("log(2)", True, True),
        ("log gamma", False, False),
    ],
)
def test_signs(expr: str, positive: bool, nonnegative: bool) -> None:
    text = f"z[i] = sum[j] sum[h] ({expr}) * index(h) * index(j) * index(i)"
    found = check(parse(with_equation(text)))
    node = found.spec.steps[-1].equations[0].body
    for _ in range(2):
        assert isinstance(node, ast.Reduce)
        node = node.body
    for _ in range(3):
        assert isinstance(node, ast.Binary)
        node = node.left
    kind = type_of(found, node, {"i", "j", "h"})
    assert (kind.positive, kind.nonnegative) == (positive, nonnegative)


def test_type_of_an_expression() -> None:
    found = checked("z[i] = mean[l] x[l] where y[l,j] and i != l else x[i]".replace("y[l,j]", "u[l] > 0"))
    body = found.spec.steps[-1].equations[0].body
    assert isinstance(body, ast.Else)
    mean = type_of(found, body.body, ("i",))
    assert mean.width == "d"
    assert mean.indices == {"i"}
    assert mean.undefined is body.body
    assert type_of(found, body, ("i",)).undefined is None


# ---- signs of fields that change -------------------------------------------------------------------------------------


def test_a_state_is_as_positive_as_its_start_and_all_its_equations() -> None:
    assert field("z[i] = 2", "s").positive
    assert field("s[j] = s[j] + w[i] * 0".replace("w[i] * 0", "1"), "s").positive
    assert not field("s[j] = s[j] - 1", "s").nonnegative
    weak = field("s[j] = sum[i] w[i]", "s")
    assert (weak.positive, weak.nonnegative) == (False, True)


def test_signs_that_depend_on_each_other_are_settled_together() -> None:
    text = with_equation("s[j] = r[j]\n  r[j] = s[j]\n  t[j] = s[j]")
    assert check(parse(text.replace("s[j] : R = 1", "s[j] : R = 1, r[j] : R = 1"))).fields["t"].positive
    weak = check(parse(text.replace("s[j] : R = 1", "s[j] : R = 1, r[j] : R = -1"))).fields
    assert not any(weak[name].nonnegative for name in "srt")


@pytest.mark.parametrize("length", [3, 18, 60])
def test_a_long_chain_of_signs_is_settled_soundly(length: int) -> None:
    """Each field takes the value of the next; the last one may be negative, so in the end all may."""
    state = "state " + ", ".join(f"a{n}[j] : R = 1" for n in range(length)) + f", a{length}[j] : R = -1\n"
    text = with_equation("\n  ".join(f"a{n}[j] = a{n + 1}[j]" for n in range(length)))
    found = check(parse(text.replace("state ", state + "state ", 1))).fields
    assert not any(found[f"a{n}"].nonnegative for n in range(length + 1))


def test_a_declared_range_holds_only_while_the_equations_keep_it() -> None:
    assert field("w[i] = 2 * w[i]", "w").nonnegative
    assert not field("w[i] = w[i] - 1", "w").nonnegative
    assert codes(with_equation("w[i] = w[i] - 1\n  then\n  z[j] = mean[i] u[i] weighted w[i] else 0")) == ["C236"]


def test_a_field_written_twice_is_as_weak_as_its_weakest_equation() -> None:
    assert field("y[i,j] = softmax[j] D[i,j]", "y").kind == "simplex"
    assert field("y[i,j] = D[i,j]", "y").kind == "real"


# ---- definedness -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "equation",
    [
        "z[j] = mean[i] u[i]",
        "z[j] = mean[i] u[i] weighted p[i,j]",
        "z[j] = mean[i] u[i] weighted exp(D[i,j])",
        "z[j] = mean[i] u[i] by lowest[i](D[i,j], tau%)",
        "z[j] = sum[i] u[i] where y[i,j]",
        "z[j] = max[i] u[i]",
        "z[i,j] = normalize[j] exp(D[i,j])",
        "z[j] = mean[i] u[i] where y[i,j] else s[j]",
        "z[j] = (mean[i] u[i] where y[i,j]) * 2 + 1 else s[j]",
        "c[j] = unit(mean[i] x[i] where y[i,j] else c[j]) else c[j]",
        "c[j] = (unit(c[j]) else 0) + c[j]",
        "c[j] = sum[i] sparsemax[i](-D[i,j] where y[i,j]) * x[i] else c[j]",
    ],
)
def test_defined_values_need_no_else(equation: str) -> None:
    checked(equation)


@pytest.mark.parametrize(
    "equation",
    [
        "z[j] = mean[i] u[i] where y[i,j]",
        "z[j] = mean[i] u[i] weighted y[i,j]",
        "z[j] = mean[i] u[i] weighted w[i]",
        "z[j] = mean[i] u[i] weighted p[i,j] where y[i,j]",
        "z[j] = mean[i] u[i] by lowest[i](D[i,j] where y[i,j], tau%)",
        "z[j] = max[i] u[i] where y[i,j]",
        "z[j] = logsumexp[i] u[i] where y[i,j]",
        "z[i,j] = normalize[j] D[i,j]",
        "c[j] = unit(c[j])",
        "z[j] = s[j] else (mean[i] u[i] where y[i,j])",
        "z[j] = sum[i] softmax[i](D[i,j] where y[i,j]) * u[i]",
        "z[j] = sum[i] (mean[l] u[l] where y[l,j]) * u[i]",
    ],
)
def test_undefined_values_need_an_else(equation: str) -> None:
    assert codes(with_equation(equation)) == ["C230"]


# ---- one mistake, one message ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("equation", "found"),
    [
        ("z[i] = xx[i]\n  then\n  v[i] = z[i] + 1\n  q[i] = |z[i]|", ["C200"]),
        ("z[i] = x[i] * x[i]\n  then\n  z[i] = 2 * z[i]", ["C222"]),
        ("z[q] = 2\n  v[q] = 3", ["C201"]),
        ("z[i] = xx[i] + yy[i] * x[i]", ["C200", "C200"]),
        ("z[i] = mean[l] xx[l] where yy[l,j] else zz[i]", ["C200", "C200", "C200"]),
        ("z[j] = mean[i] x[i] where y[i,j]\n  v[i] = sum[j] nothing[j]", ["C230", "C200"]),
    ],
)
def test_no_cascades_and_nothing_hidden(equation: str, found: list[str]) -> None:
    assert codes(with_equation(equation)) == found


def test_a_refused_declaration_is_not_unknown_later() -> None:
    assert codes(with_equation("z[i] = x[i]").replace("x[i] : R^d", "x[i] : R^d >= 0")) == ["C277"]


def test_a_let_with_a_mistake_is_reported_once() -> None:
    text = with_equation("z[i] = sum[j] D[i,j]").replace("x[i] - c[j]|^2", "x[i] - cc[j]|^2")
    assert codes(text) == ["C200"]


def test_at_most_a_hundred_problems_are_shown() -> None:
    text = with_equation("z[i] = 1" + "".join(f"\n  z{n}[i] = q{n}[i]" for n in range(500)))
    with pytest.raises(SpecError) as caught:
        check(parse(text))
    assert len(caught.value.diagnostics) == 100
    assert "only the first 100 problems are shown" in caught.value.diagnostics[-1].notes[-1]


def test_unused_things_are_no_mistakes() -> None:
    checked("z[i] = 2")


# ---- examples --------------------------------------------------------------------------------------------------------

SMALL = """algorithm small
tokens  i in points, j in centers : k
inputs  x[i] : R^d, w[i] : R, c[j] : R^d init first(x)
random  g[i,j] : normal
param   gamma = 1 > 0
layer
  y[i,j] = argmin[j] |x[i] - c[j]|^2
outputs c, y, w, wide[i] = 2 * x[i], size[i] = |x[i]|
"""


def example(text: str) -> ast.Example:
    return check(parse(SMALL + "example " + text)).spec.examples[0]


def test_values_take_the_shape_of_their_fields() -> None:
    found = example("x = [1], [2]  w = [3, 4]  c = [0]  layers 1  w = 3, 4  c = [0]  size = [1, 2]  wide = [2], [4]")
    one, two, three, four = (Fraction(n) for n in (1, 2, 3, 4))
    assert [given.value for given in found.given] == [((one,), (two,)), (three, four), ((0,),)]
    assert [e.value for e in found.expected] == [(three, four), ((Fraction(0),),), (one, two), ((two,), (four,))]


def test_a_single_token_may_be_given_as_a_bare_number() -> None:
    assert example("x = [1] w = 3 c = [0] layers 1 w = 3").given[1].value == (Fraction(3),)


def test_noise_of_several_layers_has_one_block_each() -> None:
    found = example("x = [1] w = 3 c = [0], [1] g = [[1, 2]], [[3, 4]] layers 2 w = 3")
    assert found.given[3].value == (((1, 2),), ((3, 4),))


def test_a_start_that_draws_nothing_may_be_left_out() -> None:
    example("x = [1], [2] w = 3, 4 k = 2 layers 1 c = [1], [2]")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("x = [1] w = 3 c = [0] x = [1] layers 1 w = 3", ["C311"]),
        ("x = [1] w = 3 c = [0] gamma = [1] layers 1 w = 3", ["C313"]),
        ("x = [1] w = 3 c = [0] gamma = -1 layers 1 w = 3", ["C314"]),
        ("x = [1] w = 3 k = 1/2 layers 1 w = 3", ["C313"]),
        ("x = [1] w = 3 c = [0] k = 2 layers 1 w = 3", ["C316"]),
        ("x = [1], [2] w = 3 c = [0] layers 1 w = 3", ["C316"]),
        ("x = [1] w = 3 c = [0] g = [1] layers 2 w = 3", ["C317"]),
        ("x = [[[1]]] w = 3 c = [0] layers 1 w = 3", ["C318"]),
        ("x = [] w = 3 c = [0] layers 1 w = 3", ["C318"]),
        ("x = [1] c = [0] layers 1 w = 3", ["C320"]),
        ("x = [1] w = 3 layers 1 w = 3", ["C321"]),
        ("x = [1] w = 3 c = [0] layers 1 w = 3, 4  d = 2", ["C316", "C312"]),
        ("x = [1] w = 3 c = [0] layers 1 y = [1, 0]", ["C316"]),
    ],
)
def test_examples_that_do_not_fit(text: str, found: list[str]) -> None:
    assert codes(SMALL + "example " + text) == found


# ---- the result ------------------------------------------------------------------------------------------------------


def test_shipped_specs_are_short() -> None:
    for path in SHIPPED:
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 30


def test_checking_twice_gives_the_same() -> None:
    one, two = (checked("z[i] = 2 * x[i]") for _ in range(2))
    assert all(getattr(one, f.name) == getattr(two, f.name) for f in fields(one) if f.name != "spec")


@pytest.mark.parametrize(
    ("body", "nonnegative"),
    [
        ("0.1 + 0.2 - 0.30000000000000004 + 0 * |u[i]|^2", False),  # -2.8e-17, which is 0 in float64
        ("0.1 + 0.2 - 0.3 + 0 * |u[i]|^2", True),
        ("1 - rate + 0 * |u[i]|^2", True),
        ("0.09 - rate * 0.1 * 0.9 + 0 * |u[i]|^2", False),  # 0.1 * 0.9 may be above 0.09
    ],
)
def test_signs_hold_in_exact_arithmetic(body: str, nonnegative: bool) -> None:
    assert checked(f"z[i] = {body}").fields["z"].nonnegative is nonnegative
