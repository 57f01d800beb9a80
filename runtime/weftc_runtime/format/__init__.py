"""The file: program, tensors, checks. NumPy only."""
