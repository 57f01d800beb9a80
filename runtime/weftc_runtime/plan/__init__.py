"""A program and its matrices -> what is to be done, as data."""
