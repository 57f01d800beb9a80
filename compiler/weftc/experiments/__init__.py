"""The experiments of the papers behind Weft, run again: what a paper states beside what is measured here.

An experiment measures (numbers as plain data), judges them (a finding for every claim of the paper) and draws them.
Names of algorithms belong here: this package uses Weft, and nothing in Weft uses it but its command.
"""
