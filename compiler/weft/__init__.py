"""Weft: algorithms over sets of vectors, compiled to exact transformers."""
from weft.compiling import compile
def load(*a,**k):
    from weft_runtime import load
    return load(*a,**k)
