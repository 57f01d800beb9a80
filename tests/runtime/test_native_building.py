"""Building the native kernels: a private cache, one build at a time, and a plain message when it cannot be."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

import weftc_runtime
from planned_cases import compiled, problem
from weftc_runtime.kernels.native import building
from weftc_runtime.kernels.native import library as library_module
from weftc_runtime.kernels.native.library import NativeWarning, forget, library
from weftc_runtime.machines import heads_nearest, heads_segment


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "weftc"


def stub(folder: Path, text: str) -> str:
    """A compiler that does something else."""
    path = folder / "stub-compiler"
    path.write_text(f'#!/bin/sh\ncase "$1" in --version) echo stub 1; exit 0;; esac\n{text}\n')
    path.chmod(0o755)
    return str(path)


def test_the_library_is_private_and_built_once(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = tmp_path / "count"
    once = f'case "$*" in *kernels.so) echo x >> {count};; esac'  # its units are compiled apart
    text = f'{once}\nwhile [ "$1" != -o ]; do shift; done\necho library > "$2"'
    monkeypatch.setenv("CXX", stub(tmp_path, text))
    found: list[Path] = []
    threads = [threading.Thread(target=lambda: found.append(building.built())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert count.read_text() == "x\n"
    assert cache.stat().st_mode & 0o777 == 0o700
    assert found[0].stat().st_mode & 0o077 == 0
    assert len(list(cache.iterdir())) == 2  # and a lock
    monkeypatch.setattr(building, "FLAGS", (*building.FLAGS, "-DOTHER"))
    assert building.built() != found[0]


def test_a_cache_that_others_may_write_to_is_not_used(cache: Path) -> None:
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    with pytest.raises(building.NotBuilt, match="may be written by others"):
        building.built()


def test_a_library_that_others_may_write_to_is_built_anew(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", stub(tmp_path, 'while [ "$1" != -o ]; do shift; done\necho good > "$2"'))
    path = building.built()
    path.chmod(0o777)
    assert building.cached() is None
    assert building.built().stat().st_mode & 0o777 == 0o700


@pytest.fixture
def copying(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a compiler that is as good as the real one and takes no time."""
    with monkeypatch.context() as real:
        real.delenv("XDG_CACHE_HOME")
        shutil.copy(building.built(), tmp_path / "good.so")
    text = 'while [ "$1" != -o ]; do shift; done\ncase "$2" in *kernels.so) cp {} "$2";; *) : > "$2";; esac'
    monkeypatch.setenv("CXX", stub(tmp_path, text.format(tmp_path / "good.so")))
    return cache


def cut(part: float) -> Callable[[Path], object]:
    return lambda path: os.truncate(path, int(path.stat().st_size * part))


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def make_a_folder(path: Path) -> None:
    path.unlink()
    (path / "something").mkdir(parents=True)


def link_nowhere(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


DAMAGE: dict[str, Callable[[Path], object]] = {
    **{f"cut off at {part}": cut(part) for part in (0, 0.01, 0.2, 0.5, 0.8, 0.999)},
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"more"),
    "garbage": lambda path: path.write_bytes(b"no library at all" * 1000),
    "a bit flipped": flip_a_bit,
    "a folder": make_a_folder,
    "a dead link": link_nowhere,
    "gone": Path.unlink,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_library_is_never_loaded_and_built_anew(damage: str, copying: Path) -> None:
    path = building.built()
    content = path.read_bytes()
    DAMAGE[damage](path)
    assert building.cached() is None
    assert building.built().read_bytes() == content
    assert building.cached() is not None
    assert len(list(copying.iterdir())) == 2  # and a lock


@pytest.mark.parametrize("damage", ["cut off at 0", "cut off at 0.5", "cut off at 0.8", "a bit flipped"])
def test_a_damaged_library_does_not_kill_later_processes(damage: str, copying: Path) -> None:
    DAMAGE[damage](building.built())
    code = (
        "import sys; from weftc_runtime.kernels.native.library import library;"
        "sys.exit((library(build=False) is not None) + 2 * (library() is None))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_processes_that_build_at_once_all_get_the_library(copying: Path) -> None:
    cut(0.3)(building.built())
    code = "from weftc_runtime.kernels.native.building import built; print(hash(built().read_bytes()) and 'built')"
    running = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert [one.communicate()[0] for one in running] == ["built\n"] * 4


def test_a_cache_that_cannot_be_written_is_named(copying: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut(0)(building.built())

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(30, "Read-only file system")

    monkeypatch.setattr(building.os, "open", refuse)  # a superuser may write where it is forbidden
    with pytest.raises(building.NotBuilt, match=r"cannot be written: Read-only file system; set XDG_CACHE_HOME"):
        building.built()


def test_a_cache_that_cannot_be_written_still_serves(copying: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = building.built()
    path.with_name(f"{path.name.rpartition('-')[0]}.lock").unlink()
    monkeypatch.setattr(building, "_locked", lambda path: pytest.fail("nothing is to be built"))
    assert building.built() == building.cached() == path


def test_the_first_compile_says_so_once(copying: Path, capsys: pytest.CaptureFixture[str]) -> None:
    building.built()
    told = capsys.readouterr().err
    assert "compiling native kernels, once" in told
    assert str(copying) in told
    building.built()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("no-such-compiler", "no C\\+\\+ compiler was found"),
        ("fails", "compiling failed: kernels.cpp:1: error: no"),
        ("empty", "no native kernels"),
    ],
)
def test_without_a_library_torch_runs_and_one_message_says_why(
    setting: str, reason: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if setting == "fails":
        setting = stub(tmp_path, "echo 'kernels.cpp:1: error: no' >&2; exit 1")
    elif setting == "empty":
        setting = stub(tmp_path, 'while [ "$1" != -o ]; do shift; done\necho nothing > "$2"')
    monkeypatch.setenv("CXX", setting)
    monkeypatch.setattr(heads_nearest, "NATIVE", 0)
    monkeypatch.setattr(heads_segment, "NATIVE", 0)
    forget()
    try:
        model = weftc_runtime.load(compiled("lloyd"), backend="planned")
        inputs = problem("lloyd", "random", 40, 1)
        with pytest.warns(NativeWarning, match=reason):
            model(inputs)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model(inputs)  # once is enough
        assert model.report.backend == "planned"
    finally:
        forget()


def test_kernels_that_were_missing_are_used_everywhere_once_they_are_built(monkeypatch: pytest.MonkeyPatch) -> None:
    path = building.built()
    forget()
    monkeypatch.setattr(library_module, "cached", lambda: None)  # not there yet
    monkeypatch.setattr(library_module, "built", lambda: path)
    try:
        assert library(build=False) is None
        made = library()
        assert made is not None
        assert library(build=False) is made
    finally:
        forget()


def test_it_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFTC_NATIVE", "off")
    forget()
    try:
        assert library() is None
    finally:
        forget()


def test_the_state_of_the_kernels_is_told_in_words(copying: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert building.told().startswith("not compiled yet")
    path = building.built()
    assert building.told() == f"compiled for this processor: {path}"
    monkeypatch.setenv("WEFTC_NATIVE", "off")
    assert building.told().startswith("switched off")
    monkeypatch.setenv("WEFTC_NATIVE", "mmx")
    assert "WEFTC_NATIVE=mmx: on this processor it may be one of on, off" in building.told()


def test_an_instruction_set_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    every = building.usable()
    for one in every:
        monkeypatch.setenv("WEFTC_NATIVE", one.name)
        assert building.usable() == (one,)
        assert building._machine_flags() == one.flags
    monkeypatch.setenv("WEFTC_NATIVE", "on")
    assert building.usable() == every


@pytest.mark.parametrize("features", [set(), {"sse2"}, {"avx2"}, building._AVX2, building._AVX512])
def test_no_library_asks_for_more_than_the_processor_has(features: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "_features", lambda: frozenset(features))
    monkeypatch.setattr(building.platform, "machine", lambda: "x86_64")
    found = building.usable()
    assert all(one.needs <= features for one in found)
    assert found[-1].name == "sse2"
    assert ("avx2" in {one.name for one in found}) == (features >= building._AVX2)


@pytest.mark.parametrize("unit", sorted(path.name for path in building.HERE.glob("*.cpp")))
def test_the_sources_compile_where_there_are_no_instructions_of_x86(unit: str) -> None:
    """What is left without them is what ARM compiles: vectors of the compiler, for NEON too."""
    none = [f"-U__{name}__" for name in ("SSE", "SSE2", "SSE3", "SSE4_1", "SSE4_2", "AVX", "AVX2", "AVX512F")]
    flags = ["-std=c++17", "-fsyntax-only", "-Wno-psabi", *none]
    subprocess.run([building._compiler(), *flags, str(building.HERE / unit)], check=True)


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("nearest.cpp", {"WeftQueries": "QueriesStruct", "WeftFind": "Find", "WeftGroups": "GroupsStruct"}),
        ("segment.cpp", {"WeftSegments": "Segments"}),
    ],
)
def test_the_structures_have_the_size_that_the_compiler_gives_them(
    source: str, names: dict[str, str], tmp_path: Path
) -> None:
    sizes = {name: ctypes.sizeof(getattr(library_module, mirror)) for name, mirror in names.items()}
    program = tmp_path / "sizes.cpp"
    lines = [f'#include "{Path(building.__file__).parent / source}"']
    lines += [f'static_assert(sizeof({name}) == {size}, "{name}");' for name, size in sizes.items()]
    program.write_text("\n".join(lines))
    subprocess.run([building._compiler(), "-std=c++17", "-fsyntax-only", str(program)], check=True)


def test_importing_the_runtime_builds_nothing(cache: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache.parent)}
    subprocess.run([sys.executable, "-c", "import weftc_runtime"], env=environment, check=True)
    assert not cache.exists()
