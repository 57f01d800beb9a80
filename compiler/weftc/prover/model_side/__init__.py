"""What the matrices of a program compute, as polynomials."""
