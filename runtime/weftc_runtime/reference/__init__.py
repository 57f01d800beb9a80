"""The matrices, literally."""
