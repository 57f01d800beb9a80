"""`python -m weft` -> the command line."""

from __future__ import annotations

import sys

from weft.cli import main

sys.exit(main())
