"""How much memory this process holds, and the most it held since a moment; None where the system does not say."""

from __future__ import annotations

import ctypes
import gc
import sys
from pathlib import Path

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def _status(field: str) -> int | None:
    """A size in /proc/self/status, in bytes."""
    try:
        line = next(line for line in STATUS.read_text().splitlines() if line.startswith(f"{field}:"))
    except (OSError, StopIteration):
        return None
    return int(line.split()[1]) * 1024


class Peak:
    """The most memory held from the moment this is made, beyond what was held then."""

    def __init__(self) -> None:
        gc.collect()
        _give_back()
        try:
            RESET.write_text("5")  # the peak starts anew at what is held now
            self._before = _status("VmRSS")
        except OSError:
            self._before = None

    def beyond(self) -> int | None:
        """Bytes."""
        peak = _status("VmHWM")
        return None if self._before is None or peak is None else max(0, peak - self._before)


def _give_back() -> None:
    """Returns freed memory to the system, so that a second use of it is seen."""
    if sys.platform.startswith("linux"):
        try:
            ctypes.CDLL(None).malloc_trim(0)
        except (OSError, AttributeError):  # another C library
            return
