"""Attention normal form: heads, token-wise maps and commits over slots, with exact coefficients."""
