"""`python -m weftc` -> the command line."""

from __future__ import annotations

import sys

from weftc.cli import main

sys.exit(main())
