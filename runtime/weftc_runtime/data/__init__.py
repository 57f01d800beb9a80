"""What goes in and what comes out of a run."""
