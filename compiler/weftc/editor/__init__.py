"""What an editor asks about a spec while it is typed: mistakes, types, completions, places of a name, formatting."""
