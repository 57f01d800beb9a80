"""`python -m weftc.tools.doc_tables [TABLE ...]` prints tables of the documentation; without a name, all of them."""

from __future__ import annotations

import sys

from weftc.tools.doc_tables.tables import TABLES

for name in sys.argv[1:] or TABLES:
    if name not in TABLES:
        sys.exit(f"there is no table {name}; there are {', '.join(TABLES)}")
    print(f"{name}\n\n{TABLES[name]()}\n")
