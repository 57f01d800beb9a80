"""`use`: the layer of another algorithm -> its equations, in the words of the algorithm that uses it.

    algorithm assign                            algorithm main
    tokens  i in points                         tokens  q in queries
            j in centers : k                            m in modes : 3
    inputs  x[i] : R^d,  c[j] : R^d             inputs  z[q] : R^d,  b[m] : R^d
    layer                                       layer
      y[i,j] = argmin[j] |x[i] - c[j]|^2          use assign with x = z, c = b, y = a
    outputs labels = y                                ->  a[q,m] = argmin[m] |z[q] - b[m]|^2

What the algorithm takes (sets, inputs, parameters, sizes) is what `with` says, or what has the same name here; a set is
also known from the fields that lie on it. Its outputs are fields here, under their names or those that `with` gives.
Parameters that have no namesake here become parameters here; state and noise come along. All else that it computes is
its own: it gets another name if the name is taken. Its examples, objective and other outputs stay behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from weftc.core import syntax as ast
from weftc.core.source import Span
from weftc.core.trees import inside
from weftc.core.unparse import same
from weftc.core.words import did_you_mean, listed, written
from weftc.language.check.problems import Problems
from weftc.language.parse.library import folders
from weftc.language.parse.vocabularies import with_symbols

DEEPEST = 20  # algorithms that use one another
PROMISES = {"unit": "of length one", "symbol": "a symbol", "onehot": "onehot", "simplex": "simplex"}
Declared = TypeVar("Declared")


def with_uses(found: tuple[ast.Spec, ...], main: ast.Spec, problems: Problems) -> ast.Spec:
    """An algorithm of a text with all that it uses put in."""
    named: dict[str, ast.Spec] = {}
    for one in found:
        if one.name in named:
            label = "give one of them another name"
            problems.add("P147", one.span, f"two algorithms are called {one.name}", label)
        named.setdefault(one.name, one)
    problems.stop()
    return _Library(named, problems).whole(main, ())


def steps(spec: ast.Spec) -> Iterable[ast.Step]:
    """All steps as they are written, those of phases too."""
    yield from spec.steps
    for phase in spec.phases:
        yield from phase.steps


class _Library:
    def __init__(self, named: Mapping[str, ast.Spec], problems: Problems) -> None:
        self.named, self.problems = named, problems
        self.done: dict[str, ast.Spec] = {}

    def whole(self, spec: ast.Spec, above: tuple[str, ...]) -> ast.Spec:
        """A spec without `use`."""
        if not any(step.uses for step in steps(spec)):
            return spec
        above = (*above, spec.name)
        host = _Host(spec, self.problems)
        for step in steps(spec):
            for use in step.uses:
                part = self._part(use, above)
                if part is not None:
                    host.add(use, part)
        self.problems.stop()
        return host.spec(self.problems)

    def _part(self, use: ast.Use, above: tuple[str, ...]) -> ast.Spec | None:
        """What a `use` names, itself without any."""
        if use.name in above or len(above) > DEEPEST:
            ring = " -> ".join((*above[above.index(use.name) :], use.name)) if use.name in above else ""
            label = f"{ring} would never end" if ring else f"more than {DEEPEST} algorithms use one another"
            self.problems.add("P146", self._at(use), f"{use.name} uses itself" if ring else "this goes too deep", label)
            self.problems.stop()
        part = self.named.get(use.name)
        if part is None:
            near = did_you_mean(use.name, [*(name for name in self.named if name not in above), *folders()])
            how = f'name its file: use {use.name} from "FILE.weft"; or a built-in one: weftc list'
            self.problems.add("P145", self._at(use), f"there is no algorithm {use.name} here", near, how)
            return None
        if use.name not in self.done:
            self.done[use.name] = with_symbols(self.whole(part, above))
        part = self.done[use.name]
        if part.phases:
            how = "use an algorithm for each phase"
            self.problems.add("P146", self._at(use), f"{use.name} has phases", "one `use` is one layer", how)
            return None
        return part

    def _at(self, use: ast.Use) -> Span:
        """Where a `use` says the name."""
        return self.problems.spot(Span(use.span.start + 3, use.span.end), use.name)


class _Host:
    """The algorithm that uses others, as it grows."""

    def __init__(self, spec: ast.Spec, problems: Problems) -> None:
        self.written, self.problems = spec, problems
        self.grown = spec
        self.homes = _homes(spec)  # every field here -> its indices
        self.taken = _names(spec) | set(self.homes)
        self.bodies: dict[Span, tuple[ast.Step, ...]] = {}

    def add(self, use: ast.Use, part: ast.Spec) -> None:
        """Puts a part in."""
        placing = _Placing(self, use, part)
        if placing.agree():
            self.grown, self.bodies[use.span] = placing.placed()
            self.homes = {**_homes(self.grown), **self.homes, **placing.writes()}
            self.taken |= _names(self.grown) | set(self.homes)

    def spec(self, problems: Problems) -> ast.Spec:
        made = replace(
            self.grown,
            steps=self._steps(self.written.steps, problems),
            phases=tuple(replace(one, steps=self._steps(one.steps, problems)) for one in self.written.phases),
        )
        problems.stop()
        return made

    def _steps(self, written: tuple[ast.Step, ...], problems: Problems) -> tuple[ast.Step, ...]:
        out: list[ast.Step] = []
        for step in written:
            parts = [self.bodies[use.span] for use in step.uses]
            long = next((use for use, own in zip(step.uses, parts, strict=True) if len(own) > 1), None)
            if long is not None and (step.equations or len(parts) > 1):
                how = "put `then` between it and what stands beside it"
                problems.add("P148", long.span, f"{long.name} has several steps", "it is no part of one step", how)
            elif long is not None:
                out += parts[0]
            else:
                own = (equation for part in parts for one in part for equation in one.equations)
                out.append(ast.Step(step.span, (*step.equations, *own)))
        return tuple(out)


class _Placing:
    """One `use`: what every name of the part is here."""

    def __init__(self, host: _Host, use: ast.Use, part: ast.Spec) -> None:
        self.host, self.use, self.part, self.problems = host, use, part, host.problems
        self.given = {one.name: one for one in use.given}
        self.sets = {one.name: one for one in part.tokens}
        self.of_index = {index: one.name for one in part.tokens for index in one.indices}
        self.inputs = {one.target.name: one for one in part.inputs}
        self.homes = _homes(part)
        self.outputs = dict(_shown_fields(part))
        self.params = {one.name: one for one in part.params}
        self.dims = _sizes(part)
        self.names: dict[str, str] = {}
        self.values: dict[str, ast.Expr] = {}
        self.indices: dict[str, str] = {}
        self.more: dict[str, list[str]] = {}  # set here -> indices it needs besides its own

    # ---- what goes where, or what is wrong

    def agree(self) -> bool:
        """Whether everything has its place; reports what has none."""
        before = len(self.problems.found)
        self._known()
        for check in (self._fields, self._sets, self._sized, self._numbers, self._own):
            if len(self.problems.found) == before:
                check()
        return len(self.problems.found) == before

    def _known(self) -> None:
        """`with` speaks of what the part has."""
        known = [*self.sets, *self.homes, *self.outputs, *self.params, *self.dims]
        seen: set[str] = set()
        for one in self.use.given:
            if one.name in seen:
                self.problems.add("P148", one.span, f"{one.name} is given twice")
            elif one.name not in known:
                label = did_you_mean(one.name, known) or f"it has: {listed(dict.fromkeys(known))}"
                self.problems.add("P148", one.span, f"{self.part.name} has no {one.name}", label)
            seen.add(one.name)

    def _named(self, one: ast.Binding, what: str) -> str | None:
        """The name that `with` gives, where only a name will do."""
        if isinstance(one.value, ast.Ref) and not one.value.indices:
            return one.value.name
        self.problems.add(
            "P148",
            one.span,
            f"{one.name} is {what}, so only a name can stand for it",
            "",
            f"as in: with {one.name} = ...",
        )
        return None

    def _fields(self) -> None:
        """Inputs, outputs, and what else `with` names."""
        host = self.host
        for name, field in self.inputs.items():
            given = self.given.get(name)
            if given is not None and not field.target.indices and not self._is_field(given.value):
                self.values[name] = given.value
                continue
            there = name if given is None else self._named(given, "a field")
            if there is None:
                continue
            span = self.use.span if given is None else given.span
            if there in host.homes:
                self.names[name] = there
                self._promised(field, there, span)
            elif given is None and not field.target.indices and there in _values(host.grown):
                self.names[name] = there
            else:
                near = did_you_mean(there, host.homes) or f"{self.part.name} reads it"
                how = f"say what it is here: use {self.part.name} with {name} = ..."
                self.problems.add("P148", span, f"there is no field {there} here", near, how if given is None else "")
        for shown, name in self.outputs.items():
            both = [self.given[word] for word in dict.fromkeys((shown, name)) if word in self.given]
            if name in self.names:
                continue
            there = name if not both else self._named(both[0], "an output")
            if there is not None:
                self.names[name] = there
                if there in host.taken and there not in host.homes and there not in _read(host.written):
                    how = f"give it another name: use {self.part.name} with {name} = ..."
                    self.problems.add(
                        "P148",
                        self.use.span,
                        f"{there} is an output of {self.part.name} and something else here",
                        "",
                        how,
                    )
        for name in self.homes:
            if name in self.given and name not in self.names and name not in self.values:
                there = self._named(self.given[name], "a field")
                if there is not None:
                    self.names[name] = there

    def _is_field(self, value: ast.Expr) -> bool:
        return isinstance(value, ast.Ref) and value.name in self.host.homes

    def _promised(self, field: ast.Field, there: str, span: Span) -> None:
        """What the part demands of an input has to be declared of the field that takes its place."""
        found = next((f for f in (*self.host.grown.inputs, *self.host.grown.state) if f.target.name == there), None)
        if found is None:
            return
        name, kind = field.target.name, field.type.kind
        if kind in PROMISES and (found.type.kind != kind or found.type.symbols != field.type.symbols):
            self.problems.add(
                "P148",
                span,
                f"{self.part.name} needs {name} to be {PROMISES[kind]}, which {there} is not declared to be",
            )
        elif field.bound is not None and found.bound != field.bound and not _within(found.bound, field.bound):
            how = f"declare {there} with the range {field.bound}"
            self.problems.add(
                "P148",
                span,
                f"{self.part.name} needs {name} {field.bound}, which {there} is not declared to be",
                "",
                how,
            )

    def _sets(self) -> None:
        """Sets, from `with`, from the fields that lie on them, or by name; and an index here for each index."""
        host = {one.name: one for one in self.host.grown.tokens}
        index = {i: one.name for one in self.host.grown.tokens for i in one.indices}
        for name in self.sets:
            if name in self.given:
                there = self._named(self.given[name], "a set")
                if there is not None and there not in host:
                    self.problems.add(
                        "P148", self.given[name].span, f"there is no set {there} here", did_you_mean(there, host)
                    )
                elif there is not None:
                    self.names[name] = there
        for name, own in self.homes.items():
            found = self.host.homes.get(self.names.get(name, ""))
            if found is None:
                continue
            if len(found) != len(own):
                message = f"{written(name, own)} of {self.part.name} is {written(self.names[name], found)} here"
                self.problems.add("P148", self._span(name), message, "the two have not as many indices")
                continue
            for one, other in zip(own, found, strict=True):
                if one not in self.of_index or other not in index:
                    continue
                home, placed = self.of_index[one], index[other]
                if self.names.setdefault(home, placed) != placed:
                    message = f"{name} of {self.part.name} belongs to {home}, which is {self.names[home]} here"
                    self.problems.add("P148", self._span(name), message, f"{self.names[name]} belongs to {placed}")
        for name in self.sets:
            if name not in self.names and name in host:
                self.names[name] = name
            elif name not in self.names:
                how = f"say which it is: use {self.part.name} with {name} = ..."
                self.problems.add(
                    "P148", self.use.span, f"nothing says what the {name} of {self.part.name} are here", "", how
                )
                return
        used: set[str] = set()
        for one, home in sorted(self.of_index.items(), key=lambda item: item[0] not in index):
            there = self.names[home]
            free = [i for i in (*host[there].indices, *self.more.get(there, ())) if i not in used]
            chosen = one if one in free else next(iter(free), None)
            if chosen is None:
                chosen = self._fresh(one)
                self.more.setdefault(there, []).append(chosen)
            used.add(chosen)
            self.indices[one] = chosen

    def _sized(self) -> None:
        """Sizes of the part, as they are called here."""
        host = {one.name: one for one in self.host.grown.tokens}
        widths = {f.target.name: f.type.width for f in (*self.host.grown.inputs, *self.host.grown.state)}
        pairs: list[tuple[ast.Dimension, ast.Expr, str]] = []
        for name, own in self.sets.items():
            size, span = host[self.names[name]].size, self.use.span
            if own.size is not None:
                count: ast.Expr = ast.Count(span, self.names[name])
                pairs.append(
                    (own.size, count if size is None else _dimension(size, span), f"{name} of {self.part.name}")
                )
        for name, field in self.inputs.items():
            found = widths.get(self.names.get(name, ""))
            if field.type.width is not None and found is not None and field.type.kind != "symbol":
                pairs.append((field.type.width, _dimension(found, self.use.span), f"{name} of {self.part.name}"))
        for size, value, what in pairs:
            there: ast.Expr | None = (
                self.values.get(size) if isinstance(size, str) else ast.Num(self.use.span, float(size))
            )
            if there is None and isinstance(size, str):
                self.values[size] = value
            elif there is not None and not same(there, value):
                self.problems.add(
                    "P148",
                    self.use.span,
                    f"the size of {what} does not fit",
                    f"{_shown(there)} is needed, {_shown(value)} found",
                )
        for size in self.dims:
            given = self.given.get(size)
            if given is not None and size in self.values and not same(self.values[size], given.value):
                self.problems.add(
                    "P148",
                    given.span,
                    f"{size} of {self.part.name} is {_shown(self.values[size])} here",
                    "leave this out",
                )
            elif given is not None:
                self.values[size] = given.value
            elif size not in self.values and size in self.host.taken:
                self.values[size] = ast.Ref(self.use.span, size, ())

    def _numbers(self) -> None:
        """Parameters: a value from `with`, the parameter of that name here, or one more parameter."""
        host = {one.name: one for one in self.host.grown.params}
        for name, one in self.params.items():
            given = self.given.get(name)
            if given is not None:
                if any(isinstance(n, ast.Ref) and n.indices for n in ast.walk(given.value)):
                    self.problems.add(
                        "P148", given.span, f"{name} is a parameter: one number", "it cannot depend on a token"
                    )
                number = _number(given.value)
                if number is not None and one.bound is not None and not one.bound.admits(number):
                    self.problems.add(
                        "P148", given.span, f"{name} of {self.part.name} must be {one.bound}", f"this is {number:g}"
                    )
                self.values[name] = given.value
            elif name in host or name in self.host.homes:
                self.names[name] = name
            elif name in self.host.taken:
                how = f"say what it is: use {self.part.name} with {name} = ..."
                self.problems.add(
                    "P148", self.use.span, f"{name} is a parameter of {self.part.name} and something else here", "", how
                )
            else:
                self.names[name] = name

    def _own(self) -> None:
        """Names of what is the part's own."""
        for name in (*self.homes, *(one.target.name for one in self.part.lets)):
            if name not in self.names and name not in self.values:
                self.names[name] = self._fresh(name)

    def _fresh(self, name: str) -> str:
        taken = self.host.taken | set(self.names.values()) | set(self.indices.values())
        taken |= {index for more in self.more.values() for index in more}
        while name in taken:
            name += "'"
        return name

    def _span(self, name: str) -> Span:
        return self.given[name].span if name in self.given else self.use.span

    # ---- the part in the words of the host

    def writes(self) -> dict[str, tuple[str, ...]]:
        """The fields that the part computes, as they are here."""
        return {
            self.names[e.target.name]: tuple(self.indices.get(i, i) for i in e.target.indices)
            for step in self.part.steps
            for e in step.equations
        }

    def placed(self) -> tuple[ast.Spec, tuple[ast.Step, ...]]:
        host, part, put = self.host.grown, self.part, self._put
        params = {one.name for one in host.params}
        known = {f.target.name for f in (*host.inputs, *host.state, *host.random)} | set(self.host.homes)

        def come_along(fields: Iterable[ast.Field]) -> tuple[ast.Field, ...]:
            return tuple(
                replace(
                    f, target=put(f.target), type=self._type(f.type), start=None if f.start is None else put(f.start)
                )
                for f in fields
                if self.names[f.target.name] not in known
            )

        grown = replace(
            host,
            tokens=tuple(replace(t, indices=(*t.indices, *self.more.get(t.name, ()))) for t in host.tokens),
            state=(*host.state, *come_along(part.state)),
            random=(*host.random, *come_along(part.random)),
            params=(
                *host.params,
                *(
                    replace(p, default=None if p.default is None else put(p.default))
                    for p in part.params
                    if p.name in self.names and p.name not in params and p.name not in self.host.homes
                ),
            ),
            lets=(*host.lets, *(replace(one, target=put(one.target), body=put(one.body)) for one in part.lets)),
        )
        body = tuple(
            replace(
                step,
                equations=tuple(replace(e, target=put(e.target), body=put(e.body)) for e in step.equations),
                uses=(),
            )
            for step in part.steps
        )
        return grown, body

    def _type(self, one: ast.TypeClause) -> ast.TypeClause:
        value = self.values.get(one.width) if isinstance(one.width, str) else None
        if isinstance(value, ast.Ref):
            return replace(one, width=value.name)
        return replace(one, width=int(value.value)) if isinstance(value, ast.Num) else one

    def _put(self, node: Any) -> Any:
        match node:
            case ast.Ref(name=name, indices=()) if name in self.values:
                return self.values[name]
            case ast.Ref(name=name):
                name = self.names.get(name, self.indices.get(name, name))
                return replace(node, name=name, indices=tuple(self.indices.get(i, i) for i in node.indices))
            case ast.ReadAt(name=name, places=places):
                return replace(node, name=self.names.get(name, name), places=tuple(map(self._put, places)))
            case ast.Count(set=name):
                return replace(node, set=self.names.get(name, name))
            case ast.Different(left=left, right=right):
                both = {**self.names, **self.indices}
                return replace(node, left=both.get(left, left), right=both.get(right, right))
        made = inside(node, self._put)
        if isinstance(made, ast.Position | ast.Weigh | ast.Reduce):
            return replace(made, index=self.indices.get(made.index, made.index))
        return made


def _homes(spec: ast.Spec) -> dict[str, tuple[str, ...]]:
    """Every field of a spec that is declared, defined or computed -> its indices."""
    found: dict[str, tuple[str, ...]] = {}
    for target in (f.target for f in (*spec.inputs, *spec.state, *spec.random)):
        found.setdefault(target.name, target.indices)
    found.update((let.target.name, let.target.indices) for let in spec.lets if let.target.indices)
    for step in steps(spec):
        for equation in step.equations:
            found.setdefault(equation.target.name, equation.target.indices)
    return found


def _values(spec: ast.Spec) -> set[str]:
    """Names that stand for one number."""
    return {one.name for one in spec.params} | {one.target.name for one in spec.lets if not one.target.indices}


def _sizes(spec: ast.Spec) -> dict[str, None]:
    """Dimensions that a spec leaves open."""
    sizes = [*(t.size for t in spec.tokens), *(f.type.width for f in (*spec.inputs, *spec.state))]
    return dict.fromkeys(size for size in sizes if isinstance(size, str))


def _read(spec: ast.Spec) -> set[str]:
    """Names that the algorithm reads as fields."""
    found = {o.body.name for o in spec.outputs if isinstance(o.body, ast.Ref)}
    bodies = [e.body for step in steps(spec) for e in step.equations]
    bodies += [one.body for one in spec.lets] + [one.body for one in spec.outputs]
    bodies += [spec.objective] if spec.objective is not None else []
    return found | {
        n.name for body in bodies for n in ast.walk(body) if isinstance(n, ast.Ref | ast.ReadAt) and _many(n)
    }


def _many(node: ast.Ref | ast.ReadAt) -> bool:
    return isinstance(node, ast.ReadAt) or bool(node.indices)


def _names(spec: ast.Spec) -> set[str]:
    """Everything that is called something, and words that may be symbols."""
    found = {name for one in spec.tokens for name in (one.name, *one.indices)} | set(_sizes(spec))
    found |= {one.name for one in spec.params} | {one.target.name for one in spec.lets}
    bodies = [e.body for step in steps(spec) for e in step.equations] + [o.body for o in spec.outputs]
    bodies += [one.body for one in spec.lets]
    return found | {n.name for body in bodies for n in ast.walk(body) if isinstance(n, ast.Ref)}


def _shown_fields(spec: ast.Spec) -> Iterator[tuple[str, str]]:
    """Outputs that are fields: their names, and the fields."""
    for output in spec.outputs:
        if isinstance(output.body, ast.Ref) and not output.body.indices:
            yield output.target.name, output.body.name


def _dimension(size: ast.Dimension, span: Span) -> ast.Expr:
    return ast.Ref(span, size, ()) if isinstance(size, str) else ast.Num(span, float(size))


def _shown(value: ast.Expr) -> str:
    return value.name if isinstance(value, ast.Ref) else f"{value.value:g}" if isinstance(value, ast.Num) else "open"


def _number(value: ast.Expr) -> float | None:
    if isinstance(value, ast.Neg):
        below = _number(value.body)
        return None if below is None else -below
    return value.value if isinstance(value, ast.Num) else None


def _within(inner: ast.ParamBound | None, outer: ast.ParamBound) -> bool:
    """Whether a range lies in another."""
    if inner is None:
        return False
    low = outer.low is None or (inner.low is not None and (inner.low[0], inner.low[1]) >= (outer.low[0], outer.low[1]))
    high = outer.high is None or (
        inner.high is not None and (-inner.high[0], inner.high[1]) >= (-outer.high[0], outer.high[1])
    )
    return low and high
