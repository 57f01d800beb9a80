"""The algorithm graph: typed operations known by what they compute, printed, drawn and verified."""
