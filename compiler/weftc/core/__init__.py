"""What every stage shares: sources, syntax, types, errors. Imports nothing above it."""
