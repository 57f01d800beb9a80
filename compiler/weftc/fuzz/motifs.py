"""Pieces of text for drawn specs: vocabularies, pointers, numbers of pairs, parts."""

from __future__ import annotations

from random import Random

VOCABULARY = "inputs  t0[i] : one of {north, south, {more}}\n"
ENTRIES = "inputs  A0[i,l] : real >= 0\n"
POINTERS = "inputs  p0[i] : R\n"
MOTIFS = (  # sections, and equations over points with their vector x
    (VOCABULARY, "m0[i] = sum[l] 1 where t0[l] = t0[i]"),
    (VOCABULARY, 'm0[i] = t0[i-1] else "north"'),
    (VOCABULARY, "m0[i] = mean[l] t0[l] by argmax[l](|x[l]|^2)"),
    (VOCABULARY, "m0[i] = sum[l] <t0[l], south> where l <= i"),
    (POINTERS, "m0[i] = x[p0[i]] else 0"),
    (POINTERS, "m0[i] = mean[l] x[l] where p0[l] = i else x[i]"),
    ("", "m0[i] = x[i-1] else x[last]"),
    ("", "m0[i] = x[count(points) + 1 - i] else 0"),
    (ENTRIES, "m0[i] = mean[l] x[l] weighted A0[i,l] else x[i]"),
    (ENTRIES, "m0[i] = sum[l] A0[l,i] * |x[l] - x[i]|^2"),
    (ENTRIES, "m0[i] = sum[l] softmax[l](<x[i], x[l]> where A0[i,l] > 0) * x[l] else 0"),
    (ENTRIES, "m0[i] = max[l] |x[l]|^2 where A0[i,l] else -1"),
    ("", "use part0 with y0 = m0"),
)
PART = """
algorithm part0
tokens  i, l in points
inputs  x[i] : R^d
param   rate0 = {rate}
layer
  n0[i] = x[i] - mean[l] x[l]
  then
  y0[i] = rate0 * n0[i] + x[i]
outputs y0
"""


def with_motif(rng: Random, text: str) -> str:
    """The text of a drawn spec with one of these in a last step of its own."""
    sections, equation = rng.choice(MOTIFS)
    sections = sections.replace("{more}", rng.choice(("east", '"("', "7")))
    before, outputs, after = text.partition("\noutputs ")
    part = PART.format(rate=rng.choice((0.5, 1, 2))) if equation.startswith("use") else ""
    return f"{before}\n  then\n  {equation}\n{sections}outputs m0\noutputs {after}{part}" if outputs else text
