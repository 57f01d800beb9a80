"""Numbers for pairs of two open sets: a set of entries, each at a row and a column.

    inputs A[i,l] : real >= 0                 tokens e in nodes_to_nodes       (whose rows and columns are positions)
                                              inputs A[e] : R >= 0,  nodes_to_nodes_row[e] : R,  ..._column[e] : R
    mean[l] x[l] weighted A[i,l] else x[i]    x_column[e] = mean[l] x[l] where l = nodes_to_nodes_column[e] else 0
                                              then
                                              mean[e] x_column[e] weighted A[e] where ..._row[e] = i else x[i]

What is added up, chosen or weighed over l is taken over the entries of row i: what stands there of l alone is looked up
at the column of an entry, what stands there of i at its row. A pair without an entry counts as 0. Where that 0 matters
(no factor A, no condition that 0 does not meet) the entries have to be those of all pairs: `complete`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from fractions import Fraction
from typing import Any

from weftc.core import syntax as ast
from weftc.core.trees import expressions, factors, inside, rewritten, with_indices
from weftc.language.check.problems import Problems

LONGEST_WORD = 50
MIRRORED: dict[str, str] = {">": "<", ">=": "<=", "<": ">", "<=": ">=", "=": "=", "!=": "!="}


def with_pairs(spec: ast.Spec, problems: Problems) -> ast.Spec:
    """The spec in which every pair field has a set of fixed size."""
    size = {one.name: one.size for one in spec.tokens}
    home = {index: one.name for one in spec.tokens for index in one.indices}

    def is_open(one: ast.Field) -> bool:
        found = [home.get(index) for index in one.target.indices]
        return len(found) == 2 and all(name is not None and size[name] is None for name in found)

    given = [one for one in spec.inputs if is_open(one) and len(set(one.target.indices)) == 2]
    for one in given:
        if one.type.kind != "real":
            how = f"as in: {one.target.name}[{','.join(one.target.indices)}] : real >= 0"
            problems.add("C276", one.type.span, "the numbers of pairs of two open sets are `real`", "", how)
        elif one.init is not None:
            problems.add("C276", one.init.span, "numbers of pairs have no start", "the user gives them")
    problems.stop()
    return _Entries(spec, given, home, problems).spec() if given else spec


class _Entries:
    def __init__(self, spec: ast.Spec, given: list[ast.Field], home: dict[str, str], problems: Problems) -> None:
        self.whole, self.given, self.home, self.problems = spec, given, home, problems
        self.inputs = {one.target.name: one for one in given}
        self.lets = {one.target.name: one for one in spec.lets}
        self.taken = _words(spec)
        self.sets: dict[str, ast.PairInput] = {}
        self.of: dict[str, str] = {}  # input -> the first of those that share its entries
        self.indices: dict[str, list[str]] = {}  # set -> the indices that are made
        self.before: dict[str, ast.Equation] | None = None  # what a step needs before it; None: there is no before
        self.names: dict[tuple[str, ...], str] = {}  # what is kept -> the field that holds it
        self.levels: dict[str, int] = {}  # such a field -> how many steps are before its own
        for one in given:
            rows, columns = (home[index] for index in one.target.indices)
            key = self.of.setdefault(one.target.name, one.target.name)
            if key not in self.sets:
                entries = self._name(f"{rows}_to_{columns}")
                row, column = self._name(f"{entries}_row"), self._name(f"{entries}_column")
                values = tuple(other.target.name for other in given if self._together(one, other))
                self.of.update(dict.fromkeys(values, key))
                self.sets[key] = ast.PairInput(one.span, entries, rows, columns, row, column, values)
                self._index(entries, "e", set())

    def _together(self, one: ast.Field, other: ast.Field) -> bool:
        """Whether two inputs are of the same pairs, and some expression reads both."""
        if [self.home[i] for i in one.target.indices] != [self.home[i] for i in other.target.indices]:
            return False
        names = {one.target.name, other.target.name}
        return one is other or any(names <= self._reached(body, set()) for body in expressions(self.whole))

    def _reached(self, body: ast.Expr, seen: set[str]) -> set[str]:
        """Names that an expression reads, those of its definitions too."""
        found = {n.name for n in ast.walk(body) if isinstance(n, ast.Ref)}
        for name in (found & self.lets.keys()) - seen:
            seen.add(name)
            found |= self._reached(self.lets[name].body, seen)
        return found

    def _name(self, word: str) -> str:
        word = word.replace("'", "")[:LONGEST_WORD]  # a prime ends a name, and names are not longer than 60 characters
        while word in self.taken:
            word += "'"
        self.taken.add(word)
        return word

    def _index(self, of: str, word: str, used: set[str]) -> str:
        """An index over a set that stands for nothing yet."""
        for name in self.indices.setdefault(of, []):
            if name not in used:
                return name
        self.indices[of].append(self._name(word))
        return self.indices[of][-1]

    def spec(self) -> ast.Spec:
        for step in self.whole.steps:
            for equation in step.equations:
                if equation.target.name in self.inputs:
                    message = f"{equation.target.name} is given for pairs of two open sets and cannot be written"
                    self.problems.add("C281", equation.target.span, message)
        steps = [one for step in self.whole.steps for one in self._steps(step)]
        made = replace(rewritten(replace(self.whole, steps=()), self._rewrite), steps=tuple(steps))
        used = [let for let in made.lets if not self._reads(let.body)]
        bodies = [e.body for step in made.steps for e in step.equations]
        bodies += [one.start for one in made.state if one.start is not None] + [o.body for o in made.outputs]
        bodies += [made.objective] if made.objective is not None else []
        for body in bodies if not self.problems.found else ():
            for ref in self._reads(body):
                how = f"as in: sum[l] {ref.name}[i,l] * x[l]"
                message = f"{ref.name} is read outside of a sum, mean or choice over one of its tokens"
                self.problems.add("C286", ref.span, message, "its numbers belong to pairs of two open sets", how)
        self.problems.stop()
        return replace(
            made,
            tokens=tuple(self._tokens()),
            inputs=tuple(self._inputs()),
            lets=tuple(used),
            examples=tuple(map(self._example, self.whole.examples)),
            pairs=tuple(self.sets.values()),
        )

    def _steps(self, step: ast.Step) -> Iterator[ast.Step]:
        """A step, and before it the steps that look up what entries need of their tokens."""
        self.before = {}
        equations = tuple(replace(e, body=self._rewrite(e.body)) for e in step.equations)
        before, self.before = self.before, None
        for level in sorted(set(self.levels[name] for name in before)):
            yield ast.Step(step.span, tuple(e for name, e in before.items() if self.levels[name] == level))
        yield replace(step, equations=equations)

    def kept(self, key: tuple[str, ...], word: str, indices: tuple[str, ...], body: ast.Expr) -> str:
        """The field that holds an expression before the step."""
        assert self.before is not None
        if key not in self.names:
            self.names[key] = self._name(word)
        name = self.names[key]
        if name not in self.before:
            inner = (self.levels.get(n.name, -1) for n in ast.walk(body) if isinstance(n, ast.Ref))
            self.levels[name] = 1 + max(inner, default=-1)
            self.before[name] = ast.Equation(body.span, ast.Ref(body.span, name, indices), body)
        return name

    def _tokens(self) -> Iterator[ast.TokenSet]:
        for one in self.whole.tokens:
            yield replace(one, indices=(*one.indices, *self.indices.get(one.name, ())))
        for made in self.sets.values():
            yield ast.TokenSet(made.span, tuple(self.indices[made.entries]), made.entries, None)

    def _inputs(self) -> Iterator[ast.Field]:
        seen: set[str] = set()
        for one in self.whole.inputs:
            if one.target.name not in self.inputs:
                yield one
                continue
            found = self.sets[self.of[one.target.name]]
            index = (self.indices[found.entries][0],)
            number = ast.TypeClause(one.type.span, "number")
            yield replace(one, target=replace(one.target, indices=index), type=number)
            if found.entries not in seen:
                seen.add(found.entries)
                for name in (found.row, found.column):
                    yield ast.Field(one.span, ast.Ref(one.span, name, index), number)

    def _example(self, one: ast.Example) -> ast.Example:
        """Rows of numbers in an example become entries: all of them, zeros too."""
        given: list[ast.ExampleInput] = []
        placed: set[str] = set()
        for value in one.given:
            found = self.sets[self.of[value.name]] if value.name in self.of else None
            rows = value.value
            if found is None or not isinstance(rows, tuple) or not all(isinstance(row, tuple) for row in rows):
                given.append(value)
                continue
            sizes = [row for row in rows if isinstance(row, tuple)]
            listed = [(r, c) for r, row in enumerate(sizes, 1) for c in range(1, len(row) + 1)]
            given.append(replace(value, value=tuple(number for row in sizes for number in row)))
            if found.entries not in placed:
                placed.add(found.entries)
                for name, at in ((found.row, 0), (found.column, 1)):
                    given.append(replace(value, name=name, value=tuple(Fraction(entry[at]) for entry in listed)))
        return replace(one, given=tuple(given))

    # ---- expressions

    def _reads(self, node: Any) -> list[ast.Ref]:
        refs = (n for n in ast.walk(node) if isinstance(n, ast.Ref) and n.name in self.inputs)
        return [ref for ref in refs if len(ref.indices) != 1]  # one index: an entry

    def _rewrite(self, node: Any) -> Any:
        """An expression, its innermost sums first."""
        if isinstance(node, ast.Reduce | ast.Weigh):
            node = self._spelled(node)
        node = inside(node, self._rewrite)
        if isinstance(node, ast.Reduce | ast.Weigh):
            here = [ref for ref in self._reads(node) if node.index in ref.indices]
            if here and isinstance(node, ast.Reduce):  # weightings that are factors of a sum are rewritten with it
                return self._over_entries(node, here)
        return node

    def _spelled(self, node: Any) -> Any:
        """A node with the definitions put in that read pairs."""

        def put(below: Any) -> Any:
            if isinstance(below, ast.Ref) and below.name in self.lets and self._needs(below.name, set()):
                let = self.lets[below.name]
                return put(_renamed(let.body, dict(zip(let.target.indices, below.indices, strict=False)), self))
            return inside(below, put)

        return inside(node, put)

    def _needs(self, name: str, seen: set[str]) -> bool:
        """Whether a definition reads a pair, or belongs to one."""
        let = self.lets[name]
        if len(let.target.indices) > 1 or self._reads(let.body):
            return True
        seen.add(name)
        refs = (n.name for n in ast.walk(let.body) if isinstance(n, ast.Ref) and n.name in self.lets)
        return any(one not in seen and self._needs(one, seen) for one in refs)

    def _over_entries(self, node: Any, here: list[ast.Ref]) -> Any:
        """A sum or choice over one token of pairs as one over the entries that belong to the other."""
        first = here[0]
        bound = node.index
        at = first.indices.index(bound)
        other = first.indices[1 - at]
        for ref in here[1:]:
            if ref.indices != first.indices or self.of[ref.name] != self.of[first.name]:
                label = f"beside {first.name}[{','.join(first.indices)}]"
                how = "give its mirror image, or what the two make together, as an input of its own"
                message = f"{ref.name}[{','.join(ref.indices)}] is of other pairs"
                self.problems.add("C286", ref.span, message, label, how)
                return node
        key = self.of[first.name]
        if not self._restricted(node):
            self.sets[key] = replace(self.sets[key], complete=True)
        found = self.sets[key]
        used = {n for below in ast.walk(node) for n in _mentioned(below)}
        entry = self._index(found.entries, "e", used)
        mine, theirs = (found.row, found.column) if at else (found.column, found.row)
        look = _Look(self, found, entry, other, bound, mine, theirs, used | {entry})
        span = node.span
        where = ast.Compare(span, "=", ast.Ref(span, mine, (entry,)), ast.Ref(span, other, ()))
        return look.taken(node, where)

    def _restricted(self, node: Any) -> bool:
        """Whether a pair without an entry, whose number is 0, adds nothing."""
        if any(self._fails_at_zero(one) for one in node.where):
            return True
        if isinstance(node, ast.Weigh):
            return False
        if node.by is not None and self._restricted(node.by):
            return True
        if node.weighted is not None and self._is_factor(node.weighted, node.index):
            return True
        return node.kind == "sum" and self._is_factor(node.body, node.index)

    def _is_factor(self, body: ast.Expr, index: str) -> bool:
        """Whether an expression is 0 where the number of the pair is 0."""
        match body:
            case ast.Ref(name=name, indices=indices):
                return name in self.inputs and index in indices
            case ast.Neg(body=below) | ast.Power(base=below) | ast.Norm(body=below) | ast.Square(body=below):
                return self._is_factor(below, index)
            case ast.Binary(op="*" | ".*", left=left, right=right) | ast.Inner(left=left, right=right):
                return self._is_factor(left, index) or self._is_factor(right, index)
            case ast.Binary(op="/" | "./", left=left):
                return self._is_factor(left, index)
            case ast.Binary(op="+" | "-", left=left, right=right):
                return self._is_factor(left, index) and self._is_factor(right, index)
            case ast.Call(function="relu" | "tanh" | "abs" | "sqrt", body=below):
                return self._is_factor(below, index)
            case ast.Weigh(index=own):
                return own == index and self._restricted(body)
        return False

    def _fails_at_zero(self, one: ast.Condition) -> bool:
        if isinstance(one, ast.Member):
            return one.field.name in self.inputs
        if not isinstance(one, ast.Compare):
            return False
        left, right, op = one.left, one.right, str(one.op)
        if isinstance(right, ast.Ref) and right.name in self.inputs:
            left, right, op = right, left, MIRRORED[op]
        if not (isinstance(left, ast.Ref) and left.name in self.inputs and isinstance(right, ast.Num)):
            return False
        number = right.value
        fails = {
            ">": number >= 0,
            ">=": number > 0,
            "=": number != 0,
            "!=": number == 0,
            "<": number <= 0,
            "<=": number < 0,
        }
        return fails[op]


class _Look:
    """What stands in a sum over the token `theirs` of pairs, said of an entry."""

    def __init__(
        self,
        whole: _Entries,
        found: ast.PairInput,
        entry: str,
        other: str,
        bound: str,
        mine: str,
        theirs: str,
        used: set[str],
    ) -> None:
        self.whole, self.found, self.entry, self.used = whole, found, entry, used
        self.other, self.bound, self.mine, self.theirs = other, bound, mine, theirs

    def taken(self, node: Any, where: ast.Condition) -> Any:
        """A reduction or weighting over entries."""
        conditions = (*(self.at(one) for one in node.where), where)
        if isinstance(node, ast.Weigh):
            return replace(
                node,
                index=self.entry,
                score=self.at(node.score),
                arguments=tuple(self.at(one) for one in node.arguments),
                where=conditions,
            )
        return replace(
            node,
            index=self.entry,
            body=self.at(node.body),
            weighted=None if node.weighted is None else self.at(node.weighted),
            by=None if node.by is None else self.taken(node.by, where),
            where=conditions[: -1 if node.by is not None or self._weighs(node.body) else None],
        )

    def _weighs(self, body: ast.Expr) -> bool:
        """Whether a factor is a weighting over the same token, which takes the condition."""
        return any(isinstance(one, ast.Weigh) and one.index == self.bound for one in factors(body))

    def at(self, node: Any) -> Any:
        """An expression of both tokens, at an entry."""
        if isinstance(node, ast.Ref) and node.name in self.whole.inputs and self.bound in node.indices:
            return replace(node, indices=(self.entry,))
        if isinstance(node, ast.Member) and node.field.name in self.whole.inputs:
            zero = ast.Num(node.span, 0.0)
            return ast.Compare(node.span, "!=", self.at(node.field), zero)
        if isinstance(node, ast.Different) and {node.left, node.right} == {self.bound, self.other}:
            return ast.Compare(
                node.span, "!=", *(ast.Ref(node.span, n, (self.entry,)) for n in (self.mine, self.theirs))
            )
        if isinstance(node, ast.Weigh) and node.index == self.bound:
            equal = ast.Compare(
                node.span, "=", ast.Ref(node.span, self.mine, (self.entry,)), ast.Ref(node.span, self.other, ())
            )
            return self.taken(node, equal)
        free = _free(node) & {self.bound, self.other}
        if not free:
            return node
        if isinstance(node, ast.Ref | ast.Position) and (place := self._place(node)) is not None:
            return place
        if isinstance(node, ast.Member):
            half = ast.Num(node.span, 0.5)
            return ast.Compare(node.span, ">", self.at(node.field), half)
        whole = isinstance(node, ast.Reduce | ast.Else) and self.whole.before is not None
        alone = whole or isinstance(node, ast.Ref | ast.ReadAt)
        if alone and len(free) == 1:
            return self._looked_up(node, *free)
        return inside(node, self.at)

    def _place(self, node: ast.Ref | ast.Position) -> ast.Expr | None:
        """A position is what an entry says."""
        name = node.index if isinstance(node, ast.Position) else node.name if not node.indices else None
        if name not in (self.bound, self.other):
            return None
        return ast.Ref(node.span, self.theirs if name == self.bound else self.mine, (self.entry,))

    def _looked_up(self, node: Any, token: str) -> ast.Expr:
        """What one of the two tokens holds, at an entry."""
        whole, span, home = self.whole, node.span, self.whole.home[token]
        place = self.theirs if token == self.bound else self.mine
        own = whole._index(home, token + "'", self.used | _all_names(node))
        body = _renamed(node, {token: own}, whole)
        if whole.before is None:
            return self._found(body, own, ast.Ref(span, place, (self.entry,)))
        if not isinstance(body, ast.Ref) or body.indices[0] != own:
            word = f"of_{home}"
            name = whole.kept((word, _shape(body)), word, (own,), body)
            body = ast.Ref(span, name, (own,))
        side = "row" if place == self.found.row else "column"
        entry, rest = whole.indices[self.found.entries][0], body.indices[1:]
        looked_up = self._found(body, own, ast.Ref(span, place, (entry,)))
        name = whole.kept((body.name, place), f"{body.name}_{side}", (entry, *rest), looked_up)
        return ast.Ref(span, name, (self.entry, *rest))

    def _found(self, body: Any, index: str, place: ast.Ref) -> ast.Expr:
        span = body.span
        where = ast.Compare(span, "=", ast.Ref(span, index, ()), place)
        found = ast.Reduce(span, "mean", index, body, where=(where,))
        fields = (f for f in self.whole.whole.inputs if isinstance(body, ast.Ref) and f.target.name == body.name)
        symbols = next((f.type.symbols for f in fields), ())
        empty: ast.Expr = ast.Symbol(span, symbols[0], symbols) if symbols else ast.Num(span, 0.0)
        return ast.Else(span, found, empty)


def _shape(value: Any) -> str:
    """An expression without the places it was read from."""
    if isinstance(value, tuple):
        return f"({','.join(map(_shape, value))})"
    if not hasattr(value, "span"):
        return repr(value)
    kept = (one.name for one in fields(value) if one.name != "span")
    return f"{type(value).__name__}({','.join(_shape(getattr(value, name)) for name in kept)})"


def _mentioned(node: Any) -> Iterator[str]:
    """Names that may be indices of a node itself."""
    if isinstance(node, ast.Ref):
        yield from node.indices
        yield node.name
    elif isinstance(node, ast.Position | ast.Weigh | ast.Reduce):
        yield node.index
    elif isinstance(node, ast.Different):
        yield from (node.left, node.right)


def _all_names(node: Any) -> set[str]:
    return {name for below in ast.walk(node) for name in _mentioned(below)}


def _free(node: Any) -> set[str]:
    """Names in an expression that it does not bind."""
    found = set(_mentioned(node)) if not isinstance(node, ast.Reduce | ast.Weigh) else set()
    for below in ast.children(node):
        found |= _free(below)
    if isinstance(node, ast.Reduce):
        found.discard(node.index)
    return found


def _renamed(node: Any, names: dict[str, str], whole: _Entries) -> Any:
    """A node with other indices; what it binds itself keeps apart from them."""
    if isinstance(node, ast.Reduce):
        names = {old: new for old, new in names.items() if old != node.index}
        index = node.index
        if index in names.values() and index in whole.home:
            index = whole._index(whole.home[index], index + "'", {*names.values(), *_all_names(node)})
            names = {**names, node.index: index}
        made = inside(node, lambda below: _renamed(below, names, whole))
        return replace(made, index=index)
    return with_indices(inside(node, lambda below: _renamed(below, names, whole)), names)


def _words(spec: ast.Spec) -> set[str]:
    """Every name of a spec."""
    found = {name for one in spec.tokens for name in (one.name, *one.indices)}
    found |= {one.name for one in spec.params} | {one.target.name for one in spec.lets}
    found |= {one.target.name for one in (*spec.inputs, *spec.state, *spec.random)}
    found |= {size for one in spec.tokens if isinstance(size := one.size, str)}
    found |= {f.type.width for f in (*spec.inputs, *spec.state) if isinstance(f.type.width, str)}
    bodies = [e.body for step in spec.steps for e in step.equations] + [o.body for o in spec.outputs]
    bodies += [e.target for step in spec.steps for e in step.equations] + [one.body for one in spec.lets]
    return found | {name for body in bodies for name in _all_names(body)}
