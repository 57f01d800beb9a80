"""Conditions behind `where`: membership in a onehot field, comparisons of numbers, different tokens of one set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftc.core import syntax as ast
from weftc.core.types import Type
from weftc.core.words import listed, width_words, written

if TYPE_CHECKING:
    from weftc.language.check.expressions import Typing


def conditions(typing: Typing, where: tuple[ast.Condition, ...], bound: frozenset[str]) -> frozenset[str] | None:
    """The indices some conditions depend on; None after reporting a problem."""
    found = [_condition(typing, condition, bound) for condition in where]
    known = [indices for indices in found if indices is not None]
    return frozenset().union(*known) if len(known) == len(found) else None


def _condition(typing: Typing, condition: ast.Condition, bound: frozenset[str]) -> frozenset[str] | None:
    match condition:
        case ast.Member(field=ref):
            return _member(typing, ref, bound)
        case ast.Compare(op="=" | "!="):
            return _equality(typing, condition, bound)
        case ast.Compare(left=left, right=right):
            one, other = _side(typing, left, bound), _side(typing, right, bound)
            return None if one is None or other is None else one | other
        case ast.Different():
            return _different(typing, condition, bound)


def _member(typing: Typing, ref: ast.Ref, bound: frozenset[str]) -> frozenset[str] | None:
    problems, name = typing.problems, ref.name
    shown = written(name, ref.indices)
    if name in typing.names.lets:
        typing.of(ref, bound)
        note = f"store it by an equation in an earlier step: {shown} = argmin[...] ..."
        message = "`where` needs a stored onehot field or a comparison"
        problems.add("C261", ref.span, message, f"{name} is a definition (`let`)", note)
        return None
    found = typing.of(ref, bound)
    if found is None:
        return None
    if found.kind == "onehot":
        return found.indices
    if found.kind == "simplex":
        problems.add(
            "C262",
            ref.span,
            f"`where` cannot use {name}: a token may be shared by several",
            f"{name} holds weights (simplex), not one choice (onehot)",
            f"weigh by it instead: mean[...] ... weighted {shown}; or use `ties first`, which chooses one",
        )
    else:
        how = f"compare it, as in where {shown} > 0" if found.width is None else "compare a number: |v|^2 or <a, b>"
        label = f"{shown} is {width_words(found.width)}"
        problems.add("C261", ref.span, "`where` needs a onehot field or a comparison", label, how)
    return None


def _equality(typing: Typing, node: ast.Compare, bound: frozenset[str]) -> frozenset[str] | None:
    """`a = b` and `a != b`, of numbers or of vectors of one width; notes which."""
    left, right = (typing.of(side, bound) for side in (node.left, node.right))
    if left is None or right is None or not _defined(typing, left) or not _defined(typing, right):
        return None
    if left.symbols and right.symbols and left.symbols != right.symbols:
        label = f"one is one of {listed(left.symbols)}, the other of {listed(right.symbols)}"
        how = "symbols are compared with symbols of the same vocabulary"
        typing.problems.add("C265", node.span, f"`{node.op}` compares values of one kind", label, how)
        return None
    if left.width != right.width:
        label = f"{width_words(left.width)} and {width_words(right.width)}"
        how = "compare numbers with numbers, and vectors with vectors of the same width"
        typing.problems.add("C265", node.span, f"`{node.op}` compares values of one kind", label, how)
        return None
    symbols = left.symbols and right.symbols
    typing.compared[id(node)] = "symbols" if symbols else "numbers" if left.width is None else "vectors"
    return left.indices | right.indices


def _side(typing: Typing, side: ast.Expr, bound: frozenset[str]) -> frozenset[str] | None:
    found = typing.number(side, bound, "each side of a comparison", "compare |v|^2 or <a, b>")
    return found.indices if found is not None and _defined(typing, found) else None


def _defined(typing: Typing, found: Type) -> bool:
    if found.undefined is not None:
        message = "a comparison needs values that are always defined"
        note = "give it an `else`, in parentheses: (... else 0)"
        typing.problems.add("C263", found.undefined.span, message, "this may be undefined", note)
        return False
    return True


def _different(typing: Typing, node: ast.Different, bound: frozenset[str]) -> frozenset[str] | None:
    left, right = node.left, node.right
    if not all([typing.index(i, node.span, bound) for i in (left, right)]):
        return None
    ours, theirs = typing.names.index[left], typing.names.index[right]
    if ours != theirs:
        label, note = f"{left} runs over {ours}, {right} over {theirs}", "tokens of two sets are never the same"
        typing.problems.add("C264", node.span, "`!=` compares two indices of one token set", label, note)
        return None
    if left == right:
        note = f"declare a second index over {ours}"
        typing.problems.add("C264", node.span, f"{left} != {right} is never true", "this is one index, twice", note)
        return None
    return frozenset((left, right))
