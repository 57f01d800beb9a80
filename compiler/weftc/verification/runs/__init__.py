"""Whole runs on both sides."""
