"""Transformers, runs and proofs as text, figures and pages."""
