"""Files made to look proved: each computes something else than its spec, or stops where the spec has a value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from weftc.compiling import checked_spec, compile
from weftc.prover import prove
from weftc.prover.kernel import ONE, Candidates, Kernel, WeighingTerm, equal
from weftc.prover.kernel.polynomials import Poly, number, subtract
from weftc.prover.search import search
from weftc.verification.proofs import proofs
from weftc_runtime import Checkpoint
from weftc_runtime.format import program as ir
from weftc_runtime.format.writes import stated

T, D = 0.1234, 1 / 1024  # the band: points within D of T
WIDTH = 5  # of either stream of lloyd with d = 1, k = 2: x or c, two of y or id(), 1, (objective)
Changed = Callable[[], Checkpoint]


def lloyd() -> Checkpoint:
    return compile("lloyd", {"d": 1, "k": 2})


def with_head(head: ir.Head, step: int = 0, **tensors: np.ndarray | float) -> Checkpoint:
    """Lloyd with one more head in the first sub-layer of a step of its layer."""
    base = lloyd()
    old = base.program.layer[step]
    attend = old.sublayers[0]
    assert isinstance(attend, ir.Attend)
    new = replace(old, sublayers=(replace(attend, heads=(*attend.heads, head)), *old.sublayers[1:]))
    layer = tuple(new if at == step else one for at, one in enumerate(base.program.layer))
    more = {name.replace("__", "."): np.asarray(value, np.float64) for name, value in tensors.items()}
    return replace(base, program=replace(base.program, layer=layer), tensors={**base.tensors, **more})


def band(op: str) -> tuple[ir.Mask, dict[str, np.ndarray | float]]:
    """Eligible where (x - T)^2 - D^2 op 0, of the query."""
    q, q2, k2 = np.zeros((1, WIDTH)), np.zeros((1, WIDTH)), np.zeros((1, WIDTH))
    q[0, 0], q[0, 3], q2[0, 3], k2[0, 3] = 1, -T, 1, -D * D
    score = ir.Score((ir.Part("l2", "b.q", "b.k", "b.c"), ir.Part("dot", "b.q2", "b.k2")))
    return ir.Mask(op, score), {"b__q": q, "b__k": np.zeros((1, WIDTH)), "b__c": 1.0, "b__q2": q2, "b__k2": k2}  # type: ignore[arg-type]


def rival(kind: str) -> Checkpoint:
    """The constant 1 is set again by a head whose self key, without a value, sometimes wins."""
    carry, value, row, q = np.array(lloyd().tensors["layer.0.0.carry.points"]), *(np.zeros(s) for s in SHAPES)
    carry[3, 3], value[3, 3], row[3], q[0, 0], q[0, 3] = 0, 1, D * D, 1, -T
    score = ir.Score((ir.Part("l2", "e.q", "e.k", "e.c"),))
    count = 1 if kind == "top" else None
    gamma = 1 if kind == "normmax" else None
    weighting = ir.Weighting(kind, count=count, gamma=gamma)  # type: ignore[arg-type]
    head = ir.Head("e", "points", "points", score, weighting, "e.v", (), ir.SelfKey("", "e.row"))
    zero = np.zeros((1, WIDTH))
    return with_head(head, layer__0__0__carry__points=carry, e__v=value, e__row=row, e__q=q, e__k=zero, e__c=1.0)


SHAPES = ((WIDTH, WIDTH), (WIDTH,), (1, WIDTH))


def silent(kind: str, op: str) -> Checkpoint:
    """A head that adds nothing, and stops where no key is eligible."""
    mask, more = band(op)
    weighting = ir.Weighting(kind, count=1 if kind == "top" else None, gamma=1 if kind == "normmax" else None)  # type: ignore[arg-type]
    score = ir.Score((ir.Part("dot", "b.q2", "b.k2"),)) if kind == "normalize" else ir.Score()
    head = ir.Head("e", "points", "points", score, weighting, "e.v", (mask,))
    return with_head(head, e__v=np.zeros((WIDTH, WIDTH)), **more)


def signed(competes: bool) -> Checkpoint:
    """A head that adds nothing, and stops where the weights x_i add up to zero."""
    q, k = np.zeros((1, WIDTH)), np.zeros((1, WIDTH))
    q[0, 3], k[0, 0] = 1, 1
    row = np.zeros(WIDTH)
    row[0] = 1
    own = ir.SelfKey("", "e.row") if competes else None
    head = ir.Head(
        "e", "points", "points", ir.Score((ir.Part("dot", "e.q", "e.k"),)), ir.Weighting("normalize"), "e.v", (), own
    )
    tensors: dict[str, np.ndarray | float] = {"e__q": q, "e__k": k, "e__v": np.zeros((WIDTH, WIDTH))}
    return with_head(head, **tensors, **({"e__row": row} if competes else {}))


def feed_forward(function: str) -> Checkpoint:
    """A feed-forward that adds nothing, and stops where x is outside its domain."""
    base = lloyd()
    first = base.program.layer[0]
    ffn = ir.FFN("points", function, "e.keep", "e.a", None, "e.out", ())  # type: ignore[arg-type]
    new = replace(first, sublayers=(*first.sublayers, ffn))
    a = np.zeros((1, WIDTH))
    a[0, 0] = 1
    tensors = {"e.keep": np.eye(WIDTH), "e.a": a, "e.out": np.zeros((WIDTH, 1))}
    layer = (new, *base.program.layer[1:])
    return replace(base, program=replace(base.program, layer=layer), tensors={**base.tensors, **tensors})


def delayed(layers: int) -> Checkpoint:
    """What a layer leaves in a scratch slot moves on by one slot in every layer, and reaches y in the end."""
    base = lloyd()
    wide = WIDTH + layers
    keep = np.eye(wide)
    keep[WIDTH:] = 0
    keep[WIDTH, 3] = 1
    keep[range(WIDTH + 1, wide), range(WIDTH, wide - 1)] = 1
    keep[1, wide - 1] = 5
    tensors = {"e.keep": keep, "e.a": np.zeros((1, wide)), "e.out": np.zeros((wide, 1))}
    for name, (use, *_) in base.program.tensors().items():
        rows, columns = (layers if side == "points" else 0 for side in (use.rows, use.columns))
        old = base.tensors[name]
        tensors[name] = np.pad(old, [(0, rows), (0, columns)][-old.ndim :]) if old.ndim else old
        if rows and columns:
            tensors[name][WIDTH:, WIDTH:] = np.eye(layers)
    scratch = tuple(ir.Slot(f"s{at}", WIDTH + at, 1, "scratch") for at in range(layers))
    streams = tuple(
        replace(one, slots=one.slots + scratch) if one.name == "points" else one for one in base.program.streams
    )
    first, *others = base.program.layer
    ffn = ir.FFN("points", "copy", "e.keep", "e.a", None, "e.out", ())
    layer = (replace(first, sublayers=(*first.sublayers, ffn)), *others)
    program = stated(replace(base.program, streams=streams, layer=layer), tensors)
    return replace(base, program=program, tensors=tensors)


def weighed_by_a_field_that_is_not_set() -> Checkpoint:
    """Shares are positive, but zero before the first layer has made them: there a head that adds nothing stops."""
    base = compile("soft_spherical_kmeans", {"d": 1, "k": 2})
    points = base.program.stream("points")
    first, *others = base.program.layer
    attend, *more = first.sublayers
    assert isinstance(attend, ir.Attend)
    row = np.zeros(points.width)
    row[points.slot("y").offset] = 2
    head = ir.Head("e", "points", "points", ir.Score(), ir.Weighting("normalize"), "e.v", (), ir.SelfKey("", "e.row"))
    step = replace(first, sublayers=(replace(attend, heads=(*attend.heads, head)), *more))
    tensors = {**base.tensors, "e.v": np.zeros((points.width, points.width)), "e.row": row}
    return replace(base, program=replace(base.program, layer=(step, *others)), tensors=tensors)


DIVIDING = """algorithm dividing
tokens i in points
       j in centers : 2
inputs x[i] : R,  s[j] : R
state  q[i] : R = 0
layer
  q[i] = sum[j] x[i] / s[j]
outputs q,  r[j] = 1/s[j] else 0
"""


def answered_by_a_slot_without_a_value() -> Checkpoint:
    """Where s is zero the spec answers 0; the file reads a slot that has no value there."""
    base = compile(DIVIDING)
    outputs = tuple(replace(o, slot="reciprocal(s)") if o.name == "r" else o for o in base.program.outputs)
    return over_what_is_used(replace(base.program, outputs=outputs, readout=()), base)


ASKED = """algorithm asked
tokens  i, l in points
inputs  x[i] : R
layer
  s[i] = sum[l] {}
outputs s
"""


def divides_instead_of_asking() -> Checkpoint:
    """The spec counts tokens whose quotient is large; the file adds up the quotients."""
    return replace(
        compile(ASKED.format("(1 / x[l] else 0)")), spec_text=ASKED.format("1 where (1 / x[l] else 0) >= 0.5")
    )


def forgets_which_keys_are_read(spec: str, file: str) -> Checkpoint:
    """The `else` of the spec is taken for other keys than that of the file."""
    return replace(
        compile(ASKED.replace("= sum[l] {}", f"= {file}")), spec_text=ASKED.replace("= sum[l] {}", f"= {spec}")
    )


def over_what_is_used(program: ir.Program, base: Checkpoint) -> Checkpoint:
    return replace(base, program=program, tensors={name: base.tensors[name] for name in program.tensors()})


CHOICES = ("argmax", "top", "normmax", "sparsemax")
HOSTILE: dict[str, Changed] = {
    **{f"self key competes, {kind}": (lambda kind=kind: rival(kind)) for kind in (*CHOICES, "softmax")},
    **{
        f"silent head stops, {kind} {op}": (lambda kind=kind, op=op: silent(kind, op))
        for kind in (*CHOICES, "softmax", "normalize")
        for op in (">", ">=", "<", "<=")
    },
    "a head weighs by a field that is not set": weighed_by_a_field_that_is_not_set,
    "an answer is read where there is no value": answered_by_a_slot_without_a_value,
    "a quotient for the question whether it is large": divides_instead_of_asking,
    "an else for keys that are not read": lambda: forgets_which_keys_are_read(
        "(sum[l] (1 / x[l]) where x[l] >= x[i]) else 9", "(sum[l] (1 / x[l]) where x[l] > x[i]) else 9"
    ),
    "an else within the sum": lambda: forgets_which_keys_are_read(
        "(sum[l] 1 / x[l]) else 0", "sum[l] (1 / x[l] else 0)"
    ),
    "an else of one key for another": lambda: forgets_which_keys_are_read(
        "(sum[l] 1 / x[l]) else 9", "(sum[l] 1 / x[l]) else 8"
    ),
    "signed weights without a mass": lambda: signed(False),
    "signed weights without a mass, with the self key's": lambda: signed(True),
    **{f"y changes after {layers} layers": (lambda layers=layers: delayed(layers)) for layers in (1, 2, 3, 4, 9, 40)},
    **{
        f"silent feed-forward stops, {function}": (lambda function=function: feed_forward(function))
        for function in ("reciprocal", "log", "sqrt", "unit")
    },
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_that_differs_from_its_spec_somewhere_is_not_proved(name: str) -> None:
    made = HOSTILE[name]()
    made.program.tensors()  # every tensor is there
    assert prove(made).verdict == "not shown"


def test_what_may_show_after_any_number_of_layers_is_not_tested_by_a_few() -> None:
    check, _ = proofs(checked_spec("lloyd"), [delayed(30)], "l2")
    assert check.strength == "not shown"
    assert "left in scratch slots" in check.detail


def test_the_model_that_was_changed_is_proved() -> None:
    assert prove(lloyd()).verdict == "proved"


# ---- the rules themselves --------------------------------------------------------------------------------------------


def symbols(algebra: Kernel) -> tuple[Poly, Poly]:
    return algebra.atom("field", ("a", 0, 0)), algebra.atom("field", ("b", 0, 0))


def test_a_number_cancels_its_inverse_only_where_it_is_not_zero() -> None:
    algebra = Kernel(search)
    a, b = symbols(algebra)
    quotient = algebra.multiply(b, algebra.inverse(a))
    there = subtract(ONE, algebra.nothing(a))
    assert algebra.multiply(a, quotient) != b
    assert equal(algebra, algebra.multiply(a, quotient), algebra.multiply(b, there))
    assert not equal(algebra, algebra.multiply(a, quotient), b)
    assert equal(algebra, algebra.multiply(a, quotient), b, [algebra.nothing(a)])


def test_the_logarithm_is_undone_only_of_what_is_positive() -> None:
    algebra = Kernel(search, positive=["b"])
    a, b = symbols(algebra)
    assert algebra.exp(algebra.log(a)) != a
    assert algebra.exp(algebra.log(b)) == b


def test_the_square_of_a_root_is_not_negative() -> None:
    algebra = Kernel(search)
    a, b = symbols(algebra)
    assert algebra.power(algebra.sqrt(a), 2) == algebra.relu(a)
    square = algebra.square([subtract(a, b)])
    assert algebra.power(algebra.sqrt(square), 2) == square


def test_weights_beside_a_self_key_add_up_to_what_it_leaves() -> None:
    algebra = Kernel(search)
    score, own = algebra.atom("field", ("a", 0, -1), (1,)), number(0)
    mask = algebra.compare(">", score)
    found = algebra.weigh(WeighingTerm("argmax"), Candidates((score,), (mask,), "points", 1, own))
    total = algebra.total("points", 1, found.weights[0])
    assert total == subtract(ONE, found.own)
    nobody = algebra.nothing(algebra.total("points", 1, mask))
    assert algebra.multiply(nobody, found.own)  # where no key is eligible, the self key has all the weight


def test_weights_of_tokens_for_themselves_do_not_add_up_to_one() -> None:
    algebra = Kernel(search)
    score = algebra.multiply(algebra.atom("field", ("a", 0, -1), (0,)), algebra.atom("field", ("a", 0, -1), (1,)))
    weight = algebra.weigh(WeighingTerm("argmax"), Candidates((score,), (ONE,), "points", 1)).weights[0]
    assert algebra.total("points", 1, weight) == ONE
    diagonal = algebra.rename(weight, {1: 0})
    assert algebra.total("points", 0, diagonal) != ONE


def test_two_tokens_that_become_one_keep_both_factors() -> None:
    algebra = Kernel(search)
    a, b = (algebra.atom("field", ("a", 0, -1), (token,)) for token in (0, 1))
    assert algebra.rename(algebra.multiply(a, b), {1: 0}) == algebra.power(a, 2)
    assert algebra.rename(subtract(a, b), {1: 0}) == {}
