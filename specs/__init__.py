"""The specs that ship with Weft: one algorithm a file, data only."""
