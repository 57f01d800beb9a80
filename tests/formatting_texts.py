"""Texts to format, one messy spec with its neat form, and when two texts say the same."""

from __future__ import annotations

import re
from pathlib import Path

import weftc
from spec_texts import GOOD, with_equation
from weftc.commands import new
from weftc.core.source import Source
from weftc.language.format.faithful import shape
from weftc.language.format.lexemes import lexemes
from weftc.language.parse.parse import parse

HERE = Path(__file__).parent
REFUSED = sorted((HERE / "refusals").glob("*.weft"))
PAGE = (HERE.parent / "specs" / "README.md").read_text(encoding="utf-8")
WHOLE = [block for block in re.findall(r"```weft\n(.*?)```", PAGE, re.DOTALL) if block.startswith("algorithm")]
EVERYTHING = [
    *(path.read_text(encoding="utf-8") for path in (*GOOD, *REFUSED)),
    *WHOLE,
    new.starter("mine", "mine.weft"),
    with_equation("s[j] = sum[i] 1 where i != l and |x[i]|^2 <= (1 + gamma) and <x[i], c[j]> > 0"),
    with_equation("c[j] -= mean[i] x[i] by lowest[i](D[i,j] where y[i,j], 99.9%) else (unit(c[j]) else 0) else c[j]"),
    with_equation("s[j] = ||x[i]|^2 - log w[i]| + exp |u[i]| - -2 * --3 - sum[i] (sum[l] u[l])^2"),
    with_equation("y[i,j] = argmin[j] D[i,j] ties within 1e-9"),
]  # fmt: skip


def comments(text: str) -> list[str]:
    found, end = lexemes(Source("spec", text))
    gaps = [*(lexeme.gap for lexeme in found), end]
    return [comment.text for gap in gaps for comment in gap.comments]


def assert_same(before: str, after: str) -> None:
    """Two texts say the same, the second is formatted, and looks it."""
    assert shape(parse(before)) == shape(parse(after))
    assert comments(before.replace("\r\n", "\n")) == comments(after)
    assert weftc.format(after) == after
    assert after.endswith("\n")
    assert "\n\n\n" not in after
    assert not re.search(r"[ \t]\n", after)
    assert "\t" not in re.sub(r'#[^\n]*|"[^"\n]*"', "", after)


MESSY = """#top
algorithm look "first"
 "second"
tokens i in points,j in centers:k,
l in others # trailing
# before inputs
inputs x[i]:R^d,weight[i]:R>=0 c[j]:R^d init spread(x)

  ,b[j] : unit R^d      # note
                        # and more of it
param a=1>0
 beta=2 in[0,1)   # range
 gamma=3 ,        # gamma
layer # one

 y[i,j]=argmin[j] (|x[i]-c[j]|^2)
 # about the next
 p[i,j] = softmax [j] - gamma*|x[i]-c[j]|^2/ 2


 then

 c[j] = mean[i] x[i]*weight[i] + sum[i] softmax[i](-gamma*|x[i]-c[j]|^2 where y[i,j]) * x[i] - 2*(mean[i] x[i] where y[i,j]) else c[j]
 b[j] +=
   1 +
   2   # two
   + sum [ i ] <  x[i] ,
      c [ j ] > ^ 2
 # end of the layer
# before outputs
outputs c,y, s[j]=sum[i] weight[i]
objective sum[i] min[j] |x[i]-c[j]|^2
example "t" x=[1],[2],c=[1,2] layers 1 c=[1]
 y=[1 / 2]
# the end"""  # noqa: E501

NEAT = """#top
algorithm look "first"
          "second"

tokens  i in points,  j in centers : k
        l in others                     # trailing

# before inputs
inputs  x[i] : R^d,  weight[i] : R >= 0,  c[j] : R^d  init spread(x)

        b[j] : unit R^d                 # note
                                        # and more of it
param   a     = 1 > 0
        beta  = 2 in [0, 1)             # range
        gamma = 3                       # gamma

layer                                   # one
  y[i,j] = argmin[j](|x[i] - c[j]|^2)
  # about the next
  p[i,j] = softmax[j] -gamma*|x[i] - c[j]|^2 / 2

  then
  c[j]   = mean[i] x[i]*weight[i] + sum[i] softmax[i](-gamma*|x[i] - c[j]|^2 where y[i,j]) * x[i]
           - 2*(mean[i] x[i] where y[i,j]) else c[j]
  b[j]  += 1
           + 2                          # two
           + sum[i] <x[i],
           c[j]>^2
  # end of the layer

# before outputs
outputs   c, y, s[j] = sum[i] weight[i]
objective sum[i] min[j] |x[i] - c[j]|^2

example "t"
  x = [1], [2]    c = [1, 2]    layers 1
  c = [1]
  y = [1/2]
# the end
"""
