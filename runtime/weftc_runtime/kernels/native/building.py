"""The sources beside this file -> a shared library: one that came with the package, or one compiled on this machine.

A wheel holds a library for each of `INSTRUCTION_SETS`; the best that the processor has is taken. Installed from source
there is none, and a C++ compiler makes one for this processor, once, in a private cache. That folder belongs to the
user alone (`$XDG_CACHE_HOME/weftc` or `~/.cache/weftc`); one that others may write to is not used. Processes that need
the same library at the same time wait for one of them to build it; the file appears whole or not at all.

The name of a library ends in the digest of its content, which is compared before anybody loads it: one that was cut off
(a full disk, a machine that went down) would kill the process with a signal. It is built anew instead.

`setup.py` loads this file by its path, without the package: it imports the standard library only.
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
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).parent
SHIPPED = HERE / "shipped"  # the libraries that came with the package; only wheels have this folder
# No relaxed mathematics: NaN, infinities and the order of additions are as written.
FLAGS: tuple[str, ...] = ("-O3", "-std=c++17", "-fPIC", "-shared", "-pthread", "-fno-math-errno", "-fno-trapping-math")
# bits are promised: no product and sum in one
UNIT_FLAGS = {name: ("-ffp-contract=off",) for name in ("starts.cpp", "machine.cpp", "rank.cpp")}
STAND_ALONE = ("-static-libstdc++", "-static-libgcc", "-s")  # other machines have other versions of these
OFF = ("off", "0", "no")
LIMIT = 180.0  # seconds to wait for another process, and for the compiler
USUAL = 10  # seconds that compiling takes, to tell who waits


@dataclass(frozen=True, slots=True)
class InstructionSet:
    """What a library may ask of a processor: `needs` are the names that Linux has for it."""

    name: str
    flags: tuple[str, ...]
    needs: frozenset[str] = frozenset()


_AVX2 = frozenset({"avx2", "fma", "bmi1", "bmi2", "f16c", "movbe", "abm"})
_AVX512 = _AVX2 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
# by `platform.machine()`, the best first; every such processor has the last one
INSTRUCTION_SETS: dict[str, tuple[InstructionSet, ...]] = {
    "x86_64": (
        InstructionSet("avx512vnni", ("-march=x86-64-v4", "-mavx512vnni"), _AVX512 | {"avx512_vnni"}),
        InstructionSet("avx512", ("-march=x86-64-v4",), _AVX512),
        InstructionSet("avx2", ("-march=x86-64-v3",), _AVX2),
        InstructionSet("sse2", ("-march=x86-64",)),
    ),
    "aarch64": (InstructionSet("neon", ("-march=armv8-a",)),),
    "arm64": (InstructionSet("neon", ()),),
}


class NotBuilt(Exception):
    """There is no library; the text says why and what would help."""


def shipped() -> Path | None:
    """The library that came with the package, the best that this processor can run; None if there is none."""
    if not SHIPPED.is_dir():
        return None
    for one in usable():
        found = _whole(SHIPPED / f"kernels-{one.name}", private=False)
        if found is not None:
            return found
    return None


def told() -> str:
    """Which kernels a run would use, in words: for `weftc info`."""
    try:
        if os.environ.get("WEFTC_NATIVE", "").lower() in OFF:
            return "switched off by WEFTC_NATIVE; torch runs instead"
        came = shipped()
        if came is not None:
            return f"{came.name.split('-')[1]}, came with the package: {came}"
        made = cached()
        if made is not None:
            return f"compiled for this processor: {made}"
    except NotBuilt as reason:
        return f"none, torch runs instead: {reason}"
    return f"not compiled yet; the first large problem does that, in about {USUAL} s"


def usable() -> tuple[InstructionSet, ...]:
    """What this processor can run, the best first; only the one that `WEFTC_NATIVE` names, if it names one."""
    has = _features()
    able = tuple(one for one in INSTRUCTION_SETS.get(platform.machine(), ()) if one.needs <= has)
    asked = os.environ.get("WEFTC_NATIVE", "").lower()
    if asked in ("", "on"):
        return able
    chosen = tuple(one for one in able if one.name == asked)
    if not chosen:
        names = ", ".join(["on", "off", *(one.name for one in able)])
        raise NotBuilt(f"WEFTC_NATIVE={asked}: on this processor it may be one of {names}")
    return chosen


def can_ship() -> bool:
    """Whether there is a compiler, and a machine of a known kind."""
    try:
        return os.name == "posix" and platform.machine() in INSTRUCTION_SETS and bool(_compiler())
    except NotBuilt:
        return False


def ship(folder: Path) -> list[Path]:
    """Libraries for every instruction set of machines like this one, to go with a package."""
    made = []
    for one in INSTRUCTION_SETS[platform.machine()]:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder, prefix="build-") as name:
            fresh = _compiled(_compiler(), [*FLAGS, *one.flags], STAND_ALONE, Path(name))
            fresh.chmod(0o755)
            path = _named(folder / f"kernels-{one.name}", fresh.read_bytes())
            os.replace(fresh, path)
        made.append(path)
    return made


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


def _machine_flags() -> tuple[str, ...]:
    """For this very processor, unless an instruction set is asked for by name."""
    if os.environ.get("WEFTC_NATIVE", "").lower() not in ("", "on"):
        return usable()[0].flags
    return ("-mcpu=native",) if platform.machine() in ("arm64", "aarch64") else ("-march=native",)


def _sources() -> list[Path]:
    """Headers and units."""
    return sorted(path for path in HERE.iterdir() if path.suffix in (".h", ".cpp"))


def _key(compiler: str, flags: list[str]) -> str:
    """Differs when the library would."""
    program = Path(compiler).resolve()
    told = program.stat()  # which version it is, without asking it
    made = hashlib.sha256()
    version = f"{program} {told.st_size} {told.st_mtime_ns}"
    for text in (compiler, version, *flags, repr(UNIT_FLAGS), sys.platform, _libc(), _processor()):
        made.update(text.encode() + b"\0")
    for path in _sources():
        made.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return made.hexdigest()[:24]


def _libc() -> str:
    """The C library that what is compiled here needs; another machine with the same home may have an older one."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, ValueError, OSError):  # it has another one
        return platform.release()


def _processor() -> str:
    """Which processor this is, and what it can do."""
    lines = _first_core()
    wanted = ("model name", "flags", "Features", "CPU part", "CPU implementer")
    return "\n".join(sorted(line for line in lines if line.startswith(wanted))) or (
        f"{platform.machine()} {platform.processor()}"
    )


def _first_core() -> list[str]:
    """What Linux tells of the first core; other systems tell nothing. (Of hundreds of cores it would take long.)"""
    found: list[str] = []
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if not line.strip():
                    break
                found.append(line.rstrip("\n"))
    except OSError:
        pass
    return found


def _features() -> frozenset[str]:
    """What the processor has, by the names that Linux has for it; without them nothing is taken for granted."""
    lines = (line.partition(":")[2] for line in _first_core() if line.startswith("flags"))
    return frozenset(word for line in lines for word in line.split())


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = Path(base) / "weftc"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        told = folder.stat()
    except OSError as error:
        raise NotBuilt(f"the cache {folder} cannot be used: {error.strerror}; set XDG_CACHE_HOME") from None
    if told.st_uid != os.getuid() or told.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise NotBuilt(f"the cache {folder} may be written by others; make it private: chmod 700 {folder}")
    return folder


def _whole(stem: Path, private: bool = True) -> Path | None:
    """The library of this key whose content is what its name says; `private`: and nobody else can have written it."""
    for path in _libraries(stem):
        try:
            if (_ours(path) or not private) and path == _named(stem, path.read_bytes()):
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
    print(f"weftc: compiling native kernels, once, about {USUAL} s, into {stem.parent}", file=sys.stderr, flush=True)
    with TemporaryDirectory(dir=stem.parent, prefix="build-") as name:
        made = _compiled(compiler, flags, (), Path(name))
        made.chmod(0o700)
        _flush(made)  # the name must not outlive the content
        for path in _libraries(stem):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        path = _named(stem, made.read_bytes())
        os.replace(made, path)
        _flush(stem.parent)
    return path


def _compiled(compiler: str, flags: list[str], link: tuple[str, ...], folder: Path) -> Path:
    """A library in this folder; the units are compiled one beside the other, each in its process."""
    units = [path for path in _sources() if path.suffix == ".cpp"]
    objects = [str(folder / f"{path.name}.o") for path in units]
    made = folder / "kernels.so"
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        commands = [
            [compiler, *flags, *UNIT_FLAGS.get(path.name, ()), "-c", str(path), "-o", unit]
            for path, unit in zip(units, objects, strict=True)
        ]
        list(pool.map(_run, commands))
    _run([compiler, *flags, *link, *objects, "-o", str(made)])
    return made


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
