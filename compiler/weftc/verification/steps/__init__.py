"""A model against the interpreter, step by step."""
