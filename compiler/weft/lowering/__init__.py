"""From a checked spec to a transformer: graph, attention normal form, program and weights."""
