"""Grammar, registries and signatures -> the tables of the documentation, in Markdown. See `__main__`."""
