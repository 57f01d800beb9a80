"""Weft: algorithms over sets of vectors, compiled to exact transformers."""
from weft.compiling import compile
from weft.catalogue import catalogue
from weft.types import Checked
from weft.source import Source
from weft.compiling import checked_spec as check
def load(*a,**k):
    from weft_runtime import load
    return load(*a,**k)
def __getattr__(n):
    if n=="Model":
        from weft_runtime import Model
        return Model
    raise AttributeError(n)
