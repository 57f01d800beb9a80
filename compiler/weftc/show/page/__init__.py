"""A spec or model and data -> one self-contained HTML page about the transformer, its run and its proof."""
