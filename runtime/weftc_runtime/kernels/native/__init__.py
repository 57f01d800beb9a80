"""Kernels in C++ for the CPU: compiled once on the user's machine, for its instruction set, from the sources here."""
