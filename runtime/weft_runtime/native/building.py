"""The sources beside this file -> a shared library in a private cache, compiled once per source, compiler and CPU.

Only a C++ compiler is needed. The folder belongs to the user alone (`$XDG_CACHE_HOME/weft` or `~/.cache/weft`); one
that others may write to is not used. Processes that need the same library at the same time wait for one of them to
build it; the file appears whole or not at all.

The name of a library ends in the digest of its content, which is compared before anybody loads it: one that was cut off
(a full disk, a machine that went down) would kill the process with a signal. It is built anew instead.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory

SOURCES = (
    "vectors.h",
    "team.h",
    "table.h",
    "fine.h",
    "shorts.h",
    "searcher.h",
    "finder.h",
    "groups.h",
    "adder.h",
    "exponentials.h",
    "product.h",
    "nearest.cpp",
    "rounds.cpp",
    "product.cpp",
    "costs.cpp",
    "layers.cpp",
    "segment.cpp",
    "starts.cpp",
)
# No relaxed mathematics: NaN, infinities and the order of additions are as written.
FLAGS: tuple[str, ...] = ("-O3", "-std=c++17", "-fPIC", "-shared", "-pthread", "-fno-math-errno", "-fno-trapping-math")
UNIT_FLAGS = {"starts.cpp": ("-ffp-contract=off",)}  # bits are promised: no product and sum in one
LIMIT = 180.0  # seconds to wait for another process, and for the compiler
USUAL = 10  # seconds that compiling takes, to tell who waits


class NotBuilt(Exception):
    """There is no library; the text says why and what would help."""


def cached() -> Path | None:
    """The library for this machine, if it has been compiled and is whole."""
    return _whole(_place()[2])


def built() -> Path:
    """The library for this machine, compiled if it is not there yet or is damaged."""
    compiler, flags, stem = _place()
    found = _whole(stem)
    if found is not None:
        return found
    try:
        with _locked(stem.with_name(f"{stem.name}.lock")):
            return _whole(stem) or _build(compiler, flags, stem)
    except OSError as error:
        told = f"the cache {stem.parent} cannot be written: {error.strerror or error}; set XDG_CACHE_HOME"
        raise NotBuilt(told) from None


def _place() -> tuple[str, list[str], Path]:
    """The compiler, its flags, and where the library belongs: how its path begins."""
    if os.name != "posix":
        raise NotBuilt("native kernels are built on Linux and macOS only")
    compiler, flags = _compiler(), [*FLAGS, *_machine_flags()]
    return compiler, flags, _cache() / f"kernels-{_key(compiler, flags)}"


def _compiler() -> str:
    names = [os.environ["CXX"]] if os.environ.get("CXX") else ["c++", "g++", "clang++"]
    for name in names:
        found = shutil.which(name)
        if found:
            return found
    raise NotBuilt(f"no C++ compiler was found ({', '.join(names)}); install one, or set CXX")


def _machine_flags() -> list[str]:
    return ["-mcpu=native"] if platform.machine() in ("arm64", "aarch64") else ["-march=native"]


def _source(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def _key(compiler: str, flags: list[str]) -> str:
    """Differs when the library would."""
    try:
        version = subprocess.run(
            [compiler, "--version"], capture_output=True, text=True, timeout=LIMIT, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise NotBuilt(f"the C++ compiler {compiler} does not run: {error}") from None
    made = hashlib.sha256()
    told = (compiler, version, *flags, repr(UNIT_FLAGS), sys.platform, _libc(), _processor())
    for part in (*(_source(name) for name in SOURCES), *told):
        made.update(part.encode() + b"\0")
    return made.hexdigest()[:24]


def _libc() -> str:
    """The C library that what is compiled here needs; another machine with the same home may have an older one."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, ValueError, OSError):  # it has another one
        return platform.release()


def _processor() -> str:
    """What the processor can do."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    wanted = ("model name", "flags", "Features", "CPU part", "CPU implementer")
    return "\n".join(sorted({line for line in lines if line.startswith(wanted)}))


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = Path(base) / "weft"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        told = folder.stat()
    except OSError as error:
        raise NotBuilt(f"the cache {folder} cannot be used: {error.strerror}; set XDG_CACHE_HOME") from None
    if told.st_uid != os.getuid() or told.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise NotBuilt(f"the cache {folder} may be written by others; make it private: chmod 700 {folder}")
    return folder


def _whole(stem: Path) -> Path | None:
    """The library of this key whose content is what its name says, and which nobody else can have written."""
    for path in _libraries(stem):
        try:
            if _ours(path) and path == _named(stem, path.read_bytes()):
                return path
        except OSError:
            continue
    return None


def _libraries(stem: Path) -> list[Path]:
    return sorted(stem.parent.glob(f"{stem.name}-*.so"))


def _named(stem: Path, content: bytes) -> Path:
    """Where a library with this content belongs."""
    return stem.with_name(f"{stem.name}-{hashlib.sha256(content).hexdigest()[:32]}.so")


def _ours(path: Path) -> bool:
    """Whether this is a file that nobody else can have written."""
    told = path.lstat()
    private = told.st_uid == os.getuid() and not told.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISREG(told.st_mode) and private


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    import fcntl

    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        end = time.monotonic() + LIMIT
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() > end:
                    raise NotBuilt(f"another process has been building for {LIMIT:.0f} s (lock {path})") from None
                time.sleep(0.1)
        yield
    finally:
        os.close(file)


def _build(compiler: str, flags: list[str], stem: Path) -> Path:
    """Compiles, and puts a whole library in place of what is damaged."""
    print(f"weft: compiling native kernels, once, about {USUAL} s, into {stem.parent}", file=sys.stderr, flush=True)
    with TemporaryDirectory(dir=stem.parent, prefix="build-") as name:
        folder = Path(name)
        for source in SOURCES:
            (folder / source).write_text(_source(source), encoding="utf-8")
        units = [source for source in SOURCES if source.endswith(".cpp")]
        objects = [str(folder / f"{source}.o") for source in units]
        made = folder / "kernels.so"
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:  # the units one beside the other, each in its process
            commands = [
                [compiler, *flags, *UNIT_FLAGS.get(source, ()), "-c", str(folder / source), "-o", unit]
                for source, unit in zip(units, objects, strict=True)
            ]
            list(pool.map(_run, commands))
        _run([compiler, *flags, *objects, "-o", str(made)])
        made.chmod(0o700)
        _flush(made)  # the name must not outlive the content
        for path in _libraries(stem):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        path = _named(stem, made.read_bytes())
        os.replace(made, path)
        _flush(stem.parent)
    return path


def _flush(path: Path) -> None:
    """Waits until the disk has a file or folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _run(command: list[str]) -> None:
    """Runs the compiler, which must leave what it was asked for."""
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        raise NotBuilt(f"compiling failed: {error}") from None
    if run.returncode or not Path(command[-1]).exists():
        first = next((line for line in run.stderr.splitlines() if "error" in line), run.stderr.strip()[:200])
        raise NotBuilt(f"compiling failed: {first}")
