"""Inputs to compare on."""
