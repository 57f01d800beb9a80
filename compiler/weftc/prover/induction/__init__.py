"""One layer after the other: what holds between steps."""
