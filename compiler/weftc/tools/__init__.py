"""For those who build Weft: the benchmark and the tables of the documentation."""
