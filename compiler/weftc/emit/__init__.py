"""Attention normal form -> transformer program and its weights."""
