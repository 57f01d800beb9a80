"""Random well-typed specs, held against the interpreter in every style and made small where they disagree."""
