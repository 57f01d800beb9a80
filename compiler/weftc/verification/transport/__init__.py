"""How far a coupling is from the optimum."""
