"""Sums over one index: each monomial splits into query factors, the pair part (a head) and the value of the key.

    pair part                 head        value                                        afterwards
    a weighting               that one    key factors * key vectors of the products    contract with the query vectors
    exp(S)                    exp         the same                                     the same
    products, vector value    sum         the free vector of the key                   multiply query factors
    products, number          sum         key factors * the other key vectors          contract
    nothing                   sum of 1    key factors, vector                          multiply

Factors that belong to no token (counts) go into the value, so that the head alone finishes the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction

from weft.lowering.algebra import (
    Atom,
    Distance,
    Dot,
    Exp,
    Name,
    Poly,
    Scalars,
    Size,
    Vector,
    VectorAtom,
    Weight,
    indices,
    monomial,
    thaw,
)
from weft.lowering.heads import Heads
from weft.lowering.normal import KeySum, MaskRule, Rule
from weft.lowering.slots import Refused

STORE_FIRST = "store an intermediate field first, in a step of its own"


def said(ids: Iterable[str]) -> str:
    """Indices as the spec calls them; one that was renamed apart is another of that name."""
    return ", ".join(("another " if "~" in i else "") + i.split("~")[0] for i in sorted(ids))


def mask_indices(masks: Iterable[MaskRule]) -> frozenset[str]:
    return frozenset().union(*(m.indices for m in masks))


class Reductions(Heads):
    """Sums over the tokens of one index."""

    def query_of(self, ids: frozenset[str], k: str, context: str, what: str) -> str:
        """The token that a sum over k is for."""
        others = ids - {k}
        if len(others) > 1:
            raise Refused(f"{what} relates three tokens ({said(others | {k})}); attention relates two", STORE_FIRST)
        return next(iter(others), context)

    def sum_over(self, body: Poly, k: str, context: str, masks: tuple[MaskRule, ...] = ()) -> Poly:
        """sum[k] body, for each token of the one remaining index (or of `context` when there is none)."""
        body, named = self._name_third(self.finalise(body, k), k, masks)
        ids = (body.indices | mask_indices(masks)) - ({named} if named else set())
        q = self.query_of(ids, k, context, "this sum")
        if q == k:
            raise Refused(
                f"a sum over {k} has to land on another token",
                f"declare a second index over the set of {k} and use it on one side",
            )
        body = self._separate(body, q, k)
        out = Poly()
        for (scalars, v), c in body.terms.items():
            out = out + self._one(scalars, v, c, q, k, named, masks)
        return out

    def _separate(self, body: Poly, q: str, k: str) -> Poly:
        """Stores what a single head cannot hold: distances beside another pair part, second weightings."""
        far = self.crowded_distances(body)
        if self.tokens(q) or self.tokens(k):  # tabulated distances never cancel; expanded ones do
            body = body.replace(lambda a: self.tabulate(Poly.atom(a)) if a in far else None)
        else:
            body = body.replace(lambda a: self.multiplied_out(a) if a in far and isinstance(a, Distance) else None)
        body = self._weighted_exponentials(body, q, k)
        crowded = {
            a
            for scalars, _ in body.terms
            for a, _ in scalars
            if isinstance(a, Weight) and (a.key != k or sum(n for b, n in scalars if isinstance(b, Weight)) > 1)
        }
        if crowded and self.tokens(q) is None and self.tokens(k) is None:
            raise Refused(
                "a product of two weightings over open sets has no attention form",
                "store one of them in a pair field first: its second set must be fixed",
            )
        if crowded:
            keep = next((a for a in sorted(crowded, key=repr) if a.key == k), None)
            body = body.replace(lambda a: self.tabulate(Poly.atom(a)) if a in crowded and a != keep else None)
        return self.finalise(self.merge_rows(body), k)

    def _weighted_exponentials(self, body: Poly, q: str, k: str) -> Poly:
        """Exponentials beside a weighting are values of its keys: rows, if one of the sets is fixed."""
        beside = {
            a
            for scalars, _ in body.terms
            for a, _ in scalars
            if isinstance(a, Exp) and any(isinstance(b, Weight) for b, _ in scalars)
        }
        if beside and self.tokens(q) is None and self.tokens(k) is None:
            raise Refused(
                "a weighting times an exponential of two tokens of open sets has no attention form",
                "add the exponent to the score of a softmax, or store one of the two first",
            )
        return body.replace(lambda a: self.tabulate(Poly.atom(a)) if a in beside else None) if beside else body

    def _one(
        self,
        scalars: Scalars,
        v: VectorAtom | None,
        c: Fraction,
        q: str,
        k: str,
        named: str | None,
        masks: tuple[MaskRule, ...],
    ) -> Poly:
        """The sum of one monomial."""
        rule: Rule | None = None
        of_query: list[tuple[Atom, int]] = []
        of_key: list[tuple[Atom, int]] = []
        pairs: list[Dot] = []
        columns: list[Dot] = []
        distance: Distance | None = None
        exponent = Poly()
        for atom, power in scalars:
            on = indices(atom)
            if isinstance(atom, Weight):
                if rule is not None or power != 1:
                    raise Refused(
                        "a product of two weightings has no attention form",
                        "store one of them in a pair field first (its second set must be fixed)",
                    )
                if atom.key != k:
                    raise Refused(f"the weighting runs over {atom.key} but the sum over {k}", STORE_FIRST)
                assert isinstance(atom.rule, Rule)
                rule = atom.rule
            elif isinstance(atom, Exp):
                exponent = exponent + thaw(atom.body).scale(power)
            elif isinstance(atom, Distance):
                distance = atom
            elif named and on == {k, named} and isinstance(atom, Dot):
                columns += [atom] * power
            elif named and on == {q, named}:
                of_query.append((atom, power))
            elif isinstance(atom, Dot) and len(on) == 2:
                if power < 0:
                    raise Refused("dividing by an expression of two tokens has no attention form here", STORE_FIRST)
                pairs += [atom] * power
            elif on == {k} or isinstance(atom, Size):
                of_key.append((atom, power))
            elif on <= {q}:
                of_query.append((atom, power))
            else:
                raise Refused("this sum relates three tokens; attention relates two", STORE_FIRST)
        if columns and (v or len(columns) > 1):
            raise Refused("this sum relates three tokens; store the product of the pair fields first")
        free: tuple[VectorAtom, ...] = (v,) if v and indices(v) == {k} else ()
        column: VectorAtom | None = None
        if columns:  # the row stored on k is the value; its column is named afterwards
            left, right = columns[0].left, columns[0].right
            column, row = (left, right) if indices(left) == {named} else (right, left)
            free = (row,)
        if distance is not None:
            rule, pulled = Rule("sum", Poly.atom(distance).frozen, masks), list[Dot]()
        else:
            rule, pulled = self._rule(rule, exponent, pairs, bool(free), masks)
        self.spans.setdefault(rule, self.span)
        query_vectors = [d.left if indices(d.left) == {q} else d.right for d in pulled]
        key_vectors = [d.right if indices(d.left) == {q} else d.left for d in pulled]
        out = self.total(KeySum(q, k, rule, tuple(of_key), (*key_vectors, *free)))
        if query_vectors and free:
            out = self._contract(out, query_vectors, q, free[0].width)
        elif query_vectors:
            out = out.dot(self._outer(query_vectors, q))
        if column is not None:
            out = out.dot(Poly.atom(column))
        return Poly.term(monomial(of_query, v if v and not free else None), c) * out

    def _rule(
        self, rule: Rule | None, exponent: Poly, pairs: list[Dot], has_vector: bool, masks: tuple[MaskRule, ...]
    ) -> tuple[Rule, list[Dot]]:
        """How the head weighs its keys, and the products that are pulled out of the score into the value."""
        if rule is not None:
            if masks:
                raise Refused("write the `where` inside the weighting")
            return rule, pairs
        if exponent.terms:
            return Rule("exp", exponent.frozen, masks), pairs
        named = [d for d in pairs if isinstance(d.left, Name) or isinstance(d.right, Name)]
        keep = pairs if has_vector else (named or pairs[:1])
        pulled = list(pairs)
        for d in keep:
            pulled.remove(d)
        return Rule("sum", Poly.term(monomial([(d, 1) for d in keep])).frozen, masks), pulled

    def _outer(self, vectors: list[VectorAtom], q: str) -> Poly:
        slot = self.slot_for(self.stream(q), (), vectors)
        return Poly.atom(Vector(slot, q, self.widths[self.stream(q)][slot]))

    def _contract(self, total: Poly, vectors: list[VectorAtom], q: str, width: int) -> Poly:
        """Contracts the table that came back with the query's own vectors."""
        stream = self.stream(q)
        (table,) = self.finalise(total).atoms
        assert isinstance(table, Vector)
        a = self.slot_for(stream, (), vectors)
        slot = self.derive(stream, f"{a}.{table.slot}", "contract", width, a=a, b=table.slot)
        return Poly.atom(Vector(slot, q, width))

    def _name_third(self, body: Poly, k: str, masks: tuple[MaskRule, ...]) -> tuple[Poly, str | None]:
        """sum[k] a[q,k] * B[k,j]: a third index j over a fixed set is fine when it only names columns of rows.

        What is no row yet may have to be stored as one; an index for which that is not needed is taken first.
        """
        ids = body.indices - {k}
        if len(ids) != 2:
            return body, None
        candidates = []
        for j in self.in_order(ids - mask_indices(masks)):
            uses = [a for a in body.atoms if j in indices(a)]
            missing = [a for a in uses if not self._is_row(a, j)]
            if self.tokens(j) and uses and all(self._can_be_row(a, k, j) for a in missing):
                candidates.append((len(missing), j, missing))
        for _, j, missing in sorted(candidates, key=lambda c: c[0]):
            try:
                return body.replace(self._into_rows(missing, k, j)), j
            except Refused:
                continue
        return body, None

    def _is_row(self, a: Atom, j: str) -> bool:
        """Whether an atom is column j of a row that another token holds."""
        return isinstance(a, Dot) and any(isinstance(v, Name) and v.index == j for v in (a.left, a.right))

    def _can_be_row(self, a: Atom, k: str, j: str) -> bool:
        return indices(a) == {k, j} and isinstance(a, Exp | Distance | Weight | Dot)

    def _into_rows(self, atoms: list[Atom], k: str, j: str) -> Callable[[Atom], Poly | None]:
        return lambda a: self.tabulate(Poly.atom(a), "copy", (k, j)) if a in atoms else None
