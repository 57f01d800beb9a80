"""Passes: what happens between the algorithm graph and the matrices. `pipeline` is the table of contents."""
