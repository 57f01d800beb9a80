"""What carries out a plan."""
