"""What a spec means: an interpreter in NumPy that decides exactly. It shares nothing with lowering or runtime."""
