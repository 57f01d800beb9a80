"""What a proof answers, for people."""
