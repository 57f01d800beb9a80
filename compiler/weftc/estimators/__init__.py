"""Specs as estimators: what a spec assigns to what, found in its structure, and the specs derived from it."""
