"""`weftc bench`: what users get from a compiled model, beside what they get from other libraries, in one run.

workloads.py   what is measured             targets.py    the ratios it is held against
samples.py     the data                     judges.py     exact answers, by an independent path
peers/         implementations, one process each (worker.py there, process.py here)
contest.py     alternating rounds -> Contest (results.py)
verdicts.py    Contest + targets -> met or not
tables.py      text and Markdown            page.py       the dated block of a page
"""
