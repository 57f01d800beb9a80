"""Arithmetic that decides and adds exactly."""
