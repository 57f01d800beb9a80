"""Syntax tree -> checked spec."""
