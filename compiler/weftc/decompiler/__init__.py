"""A checkpoint -> the spec that its weights carry out, read from the weights alone, with a proof.

>>> import weftc
>>> model = weftc.compile("hopfield", dims={"d": 2})
>>> found = weftc.explain(model)
>>> found.verdict
'proved'
"""

from __future__ import annotations

from weftc.decompiler.explanation import Explanation, explain
from weftc.decompiler.linear import Unread

__all__ = ["Explanation", "Unread", "explain"]
