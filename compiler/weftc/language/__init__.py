"""From text to a checked spec: grammar, syntax, names, types, diagnostics."""
