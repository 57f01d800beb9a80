"""Evidence that a model computes its spec."""
