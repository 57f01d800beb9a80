"""The command line: one module a command, and the files and options they share."""
