"""Pictures for papers: a spec or model (and data) -> a matplotlib figure, or the algorithm graph as SVG text."""
