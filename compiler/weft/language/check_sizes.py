"""How large expressions become when every `let` is put in where it is used.

Thirty lines of `let b = a * a` would be a billion terms; what comes after the checker works on the expanded form.
"""

from __future__ import annotations

from collections.abc import Iterator

from weft import syntax as ast
from weft.language.check_names import Names
from weft.language.problems import Problems

MOST_PARTS = 20_000
DEEPEST = 200


def sizes(spec: ast.Spec, names: Names, problems: Problems) -> None:
    """Reports expressions that are too large once written out; `let`s that need themselves are reported elsewhere."""
    known: dict[str, tuple[int, int]] = {}
    for let in _inner_first(names):
        known[let.target.name] = _measure(let.body, known)
    for body in _bodies(spec):
        parts, depth = _measure(body, known)
        if parts > MOST_PARTS or depth > DEEPEST:
            large = f"{parts} parts" if parts > MOST_PARTS else f"{depth} levels"
            message = "this expression is too large once its definitions are put in"
            label = f"it would have {large if len(large) < 30 else 'more parts than can be counted'}"
            how = f"at most {MOST_PARTS} parts and {DEEPEST} levels; store parts of it as fields in an earlier step"
            problems.add("C215", body.span, message, label, how)


def _bodies(spec: ast.Spec) -> Iterator[ast.Expr]:
    yield from (equation.body for step in spec.steps for equation in step.equations)
    yield from (output.body for output in spec.outputs)
    yield from (field.start for field in spec.state if field.start is not None)
    if spec.objective is not None:
        yield spec.objective


def _inner_first(names: Names) -> list[ast.Let]:
    """The `let`s, each after those it uses; those on a cycle are left out."""
    uses = {
        name: {node.name for node in ast.walk(let.body) if isinstance(node, ast.Ref) and node.name in names.lets}
        for name, let in names.lets.items()
    }
    ordered: dict[str, ast.Let] = {}
    while ready := [name for name in uses if name not in ordered and uses[name] <= ordered.keys()]:
        ordered.update((name, names.lets[name]) for name in ready)
    return list(ordered.values())


def _measure(expr: ast.Expr, known: dict[str, tuple[int, int]]) -> tuple[int, int]:
    """Parts and levels of an expression with the `let`s written out."""
    parts = deepest = 0
    stack: list[tuple[ast.Node, int]] = [(expr, 1)]
    while stack:
        node, level = stack.pop()
        more, below = known.get(node.name, (1, 1)) if isinstance(node, ast.Ref) else (1, 1)
        parts, deepest = parts + more, max(deepest, level + below - 1)
        stack.extend((child, level + 1) for child in ast.children(node))
    return parts, deepest
