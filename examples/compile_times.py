"""How long a first compilation takes: every built-in spec at d = 128, k = 256, each in a process of its own.

    python examples/compile_times.py

Imports are not counted; reading the grammar, parsing, checking, lowering and writing the matrices are. What a process
compiles later is faster.
"""

from __future__ import annotations

import subprocess
import sys

import weftc

ONE = """
import sys, time
import weftc
import weftc.compiling
from weftc.files.locate import builtin
start = time.perf_counter()
checked = weftc.check(builtin(sys.argv[1]))
sizes = {"d": 128, "k": 256, "m": 8}
weftc.compile(checked, {name: sizes[name] for name in checked.dims})
print(1e3 * (time.perf_counter() - start))
"""


def main() -> int:
    print("spec                      first compilation, ms (best of 3)")
    for entry in weftc.catalogue():
        command = [sys.executable, "-c", ONE, entry.name]
        times = [float(subprocess.run(command, capture_output=True, text=True, check=True).stdout) for _ in range(3)]
        print(f"{entry.name:24}  {min(times):8.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
