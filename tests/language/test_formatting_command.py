"""`weftc fmt`: files, folders, pipes, and what it leaves alone."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest

from formatting_texts import MESSY, NEAT
from weftc.cli import main

# ---- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def messy(tmp_path: Path) -> Path:
    path = tmp_path / "messy.weft"
    path.write_text(MESSY)
    return path


def test_it_writes_the_file_and_only_when_it_changes(messy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    messy.chmod(0o640)
    assert main(["fmt", str(messy)]) == 0
    assert messy.read_text() == NEAT
    assert messy.stat().st_mode & 0o777 == 0o640
    assert capsys.readouterr().out == f"formatted {messy}\n"
    before = messy.stat()
    assert main(["fmt", str(messy)]) == 0
    assert (messy.stat().st_ino, messy.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert capsys.readouterr().out == ""
    assert [path.name for path in messy.parent.iterdir()] == ["messy.weft"]


def test_check_names_what_would_change(messy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    neat = messy.with_name("neat.weft")
    neat.write_text(NEAT)
    assert main(["fmt", "--check", str(messy), str(neat)]) == 1
    assert capsys.readouterr().out == f"would change {messy}\n"
    assert messy.read_text() == MESSY
    assert main(["fmt", "--check", str(neat)]) == 0


def test_diff_shows_how(messy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fmt", "--diff", str(messy)]) == 0
    shown = capsys.readouterr().out.split("\n")
    assert shown[:2] == [f"--- {messy} (now)", f"+++ {messy} (formatted)"]
    assert "-objective sum[i] min[j] |x[i]-c[j]|^2" in shown
    assert "+objective sum[i] min[j] |x[i] - c[j]|^2" in shown
    assert messy.read_text() == MESSY
    assert main(["fmt", "--check", "--diff", str(messy)]) == 1
    both = capsys.readouterr()
    assert both.out.split("\n") == shown
    assert both.err == f"would change {messy}\n"


def test_diff_does_not_let_a_file_write_to_the_terminal(messy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    messy.write_text(MESSY.replace("#top", "#top \x1b[31m"))
    main(["fmt", "--diff", str(messy)])
    assert "\x1b" not in capsys.readouterr().out


def feed(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_stdin_to_stdout(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    feed(monkeypatch, MESSY.encode())
    assert main(["fmt", "-"]) == 0
    assert capfd.readouterr().out == NEAT
    feed(monkeypatch, MESSY.encode())
    assert main(["fmt", "-", "--check"]) == 1
    assert capfd.readouterr().out == "would change -\n"
    feed(monkeypatch, b"algorithm \xff")
    assert main(["fmt", "-"]) == 1
    assert capfd.readouterr().err.startswith("error: stdin is not UTF-8 text")


def test_folders_are_walked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    places = ["b.weft", "a/c.weft", "a/d.txt", ".hidden/e.weft"]
    for place in places:
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_text(MESSY)
    assert main(["fmt", str(tmp_path), str(tmp_path / "b.weft")]) == 0
    assert [place for place in places if (tmp_path / place).read_text() == NEAT] == ["b.weft", "a/c.weft"]
    assert capsys.readouterr().out.count("formatted") == 2


def test_one_bad_file_does_not_keep_the_others(messy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = messy.with_name("bad.weft")
    bad.write_text("algorithm\n")
    assert main(["fmt", str(bad), str(messy)]) == 1
    assert messy.read_text() == NEAT
    assert bad.read_text() == "algorithm\n"
    assert "bad.weft:1" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["missing.weft", "empty"])
def test_nothing_is_touched_when_a_name_is_wrong(messy: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    (messy.parent / "empty").mkdir()
    assert main(["fmt", str(messy), str(messy.parent / name)]) == 2
    assert "there is no" in capsys.readouterr().err
    assert messy.read_text() == MESSY


def test_json(messy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    bad = messy.with_name("bad.weft")
    bad.write_text("algorithm\n")
    feed(monkeypatch, MESSY.encode())
    assert main(["fmt", "--json", "--diff", str(messy), str(bad), "-"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] is False
    first, second, third = told["files"]
    assert (first["file"], first["changed"], first["written"]) == (str(messy), True, False)
    assert "+tokens  i in points,  j in centers : k" in first["diff"].split("\n")
    assert second["error"].startswith("error[P")
    assert second["problems"][0]["line"] == 1
    assert third["text"] == NEAT


def test_marks_and_line_ends_of_a_file_stay(messy: Path) -> None:
    mark = b"\xef\xbb\xbf"
    messy.write_bytes(mark + MESSY.replace("\n", "\r\n").encode())
    assert main(["fmt", str(messy)]) == 0
    assert messy.read_bytes() == mark + NEAT.replace("\n", "\r\n").encode()
    assert main(["fmt", "--check", str(messy)]) == 0


def test_a_link_stays_a_link(messy: Path) -> None:
    link = messy.with_name("link.weft")
    link.symlink_to(messy)
    assert main(["fmt", str(link)]) == 0
    assert link.is_symlink()
    assert messy.read_text() == NEAT


def test_a_write_that_fails_leaves_the_file(
    messy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(self: Path, data: bytes) -> int:
        self.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    assert main(["fmt", str(messy)]) == 1
    assert f"cannot write {messy}: No space left on device" in capsys.readouterr().err
    assert messy.read_text() == MESSY
    assert [path.name for path in messy.parent.iterdir()] == ["messy.weft"]


def test_a_read_only_file_is_left(
    messy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    messy.chmod(0o444)
    if os.access(messy, os.W_OK):  # a user to whom nothing is forbidden
        monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    assert main(["fmt", str(messy)]) == 1
    assert "read-only" in capsys.readouterr().err
    assert messy.read_text() == MESSY
