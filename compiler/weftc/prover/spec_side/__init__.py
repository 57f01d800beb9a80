"""What the equations of a spec compute, as polynomials."""
