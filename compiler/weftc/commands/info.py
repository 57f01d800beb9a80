"""`weftc info`: what runs here, to read and to put into a report of a problem."""

from __future__ import annotations

import argparse
import platform
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from weftc.commands.options import add_json
from weftc.commands.telling import tell
from weftc.core.source import printable
from weftc.verification.runs.processes import cores
from weftc.version import VERSION

SUMMARY = "say what is installed and what this machine offers"
EXAMPLE = """example:
  weftc info

--json prints {ok, info: {part: text}, warnings}."""
INSTRUCTIONS = ("avx2", "fma", "avx512f", "avx512_vnni", "avx_vnni", "amx_tile", "asimd", "sve")  # what kernels can use
LIBRARIES = ("numpy", "scikit-learn", "POT", "matplotlib", "pyarrow", "zstandard")


def arguments(parser: argparse.ArgumentParser) -> None:
    """No arguments but --json."""
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Prints a line for every part."""
    found = {name: part() for name, part in PARTS.items()}
    widest = max(map(len, found))
    lines = [printable(f"{name:<{widest}}  {text}") for name, text in found.items()]
    tell(options, {"ok": True, "info": found}, "\n".join(lines))
    return 0


def _python() -> str:
    return f"{platform.python_version()} ({platform.python_implementation()})"


def _system() -> str:
    return f"{platform.system()} {platform.release()}, {platform.machine()}"


def _processor() -> str:
    name = _cpu("model name") or platform.processor() or platform.machine()
    return f"{name}, {cores()} {'core' if cores() == 1 else 'cores'} for this process"


def _instructions() -> str:
    able = (_cpu("flags") or _cpu("Features")).split()
    return " ".join(word for word in INSTRUCTIONS if word in able) or "unknown"


def _cpu(entry: str) -> str:
    """A line of the description that Linux gives of its processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(entry)), "")


def _torch() -> str:
    try:
        import torch
    except ImportError as error:
        return f"cannot be imported: {error}"
    devices = ["cpu"]
    if torch.cuda.is_available():
        devices += [f"cuda:{at} ({torch.cuda.get_device_name(at)})" for at in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        devices.append("mps")
    return f"{torch.__version__}, {torch.get_num_threads()} threads, devices: {', '.join(devices)}"


def _kernels() -> str:
    from weftc_runtime.kernels.native.building import NotBuilt, cached

    try:
        return f"compiled, {cached()}" if cached() else "not compiled yet; the first run that needs them does that"
    except NotBuilt as error:
        return f"not available: {error}"


def _libraries() -> str:
    return ", ".join(f"{name} {_installed(name)}" for name in LIBRARIES)


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "(not installed)"


# A part is a name and a function; add one here and it is printed.
PARTS: dict[str, Callable[[], str]] = {
    "weftc": lambda: f"{VERSION}, {Path(__file__).resolve().parents[1]}",
    "python": _python,
    "system": _system,
    "processor": _processor,
    "instructions": _instructions,
    "torch": _torch,
    "native kernels": _kernels,
    "libraries": _libraries,
}
