"""Weights that are only near the constants they stand for."""
