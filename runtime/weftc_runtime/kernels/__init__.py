"""Searches, sums and threads, by device."""
