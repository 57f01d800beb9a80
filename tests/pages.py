"""Markdown pages -> what they promise: fenced blocks, the commands in them, and what these are said to print.

A quoted session starts with `$ weft ...`; the lines below it are an excerpt of what that prints, `...` where lines are
left out. Commands of one block follow each other in one folder. A block of the language whose first line is
`# NAME.weft` is the file that later commands read.

Pages and golden files are only ever replaced whole: see `rewrite`.
"""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
GAP = "..."


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language and its text."""

    language: str
    text: str


@dataclass(frozen=True, slots=True)
class Session:
    """A command line, the lines it is said to print, and the command lines before it in its block."""

    line: str
    quoted: tuple[str, ...]
    before: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join(words(self.line))


def words(line: str) -> list[str]:
    """A command line as the words after `$ weft`."""
    return shlex.split(line)[2:]


def fenced(page: str) -> list[Block]:
    """The blocks of a page, in order."""
    found = re.findall(r"^```(\w*)\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.S | re.M)
    return [Block(language, text) for language, text in found]


def commands(blocks: Sequence[Block]) -> list[list[str]]:
    """Every line of a block that is a command, without its comment: the words after `weft`."""
    lines = (line.partition("#")[0].strip() for block in blocks for line in block.text.splitlines())
    return [shlex.split(line)[1:] for line in lines if line.startswith("weft ")]


def sessions(blocks: Sequence[Block]) -> list[Session]:
    """Every command with a prompt, and what is quoted below it."""
    found: list[Session] = []
    for block in (block for block in blocks if block.language == "console"):
        asked: list[str] = []
        said: list[list[str]] = []
        for line in block.text.splitlines():
            if line.startswith("$ weft "):
                asked.append(line)
                said.append([])
            else:
                said[-1].append(line)
        found += [Session(line, tuple(said[at]), tuple(asked[:at])) for at, line in enumerate(asked)]
    return found


def files(blocks: Sequence[Block]) -> dict[str, str]:
    """The spec files a page writes down."""
    named = ((re.match(r"# (\S+\.weft)\n", block.text), block.text) for block in blocks)
    return {name[1]: text for name, text in named if name}


def misquoted(quoted: Sequence[str], printed: str) -> str:
    """The first excerpt that the output does not have at its place, or nothing."""
    rest = printed.splitlines()
    for lines in _excerpts(quoted):
        starts = [at for at in range(len(rest) - len(lines) + 1) if rest[at : at + len(lines)] == lines]
        if not starts:
            return "\n".join(lines)
        rest = rest[starts[0] + len(lines) :]
    return ""


def requoted(quoted: Sequence[str], printed: str) -> list[str]:
    """The quotation as it should be: every excerpt from its first line on, as long as it was; whole if it was whole."""
    rest = printed.splitlines()
    if GAP not in quoted:
        return rest
    fresh = []
    for lines in _excerpts(quoted):
        at = rest.index(lines[0])
        fresh.append(rest[at : at + len(lines)])
        rest = rest[at + len(lines) :]
    out = [line for lines in fresh for line in (GAP, *lines)]
    return [*(out if quoted[0] == GAP else out[1:]), *([GAP] if quoted[-1] == GAP else [])]


def requote(path: Path, session: Session, printed: str) -> None:
    """Writes the quotation of a session anew, at its place and nowhere else."""
    old, new = ("\n".join((session.line, *lines, "")) for lines in (session.quoted, requoted(session.quoted, printed)))
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{path.name} does not quote `{session}` once"
    rewrite(path, text.replace(old, new))


def rewrite(path: Path, text: str) -> None:
    """Replaces a file by a rename: whoever reads it, or dies while writing it, finds the old text or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as fresh:
            fresh.write(text)
        Path(name).chmod(path.stat().st_mode if path.exists() else 0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink()
        raise


def _excerpts(quoted: Sequence[str]) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for line in quoted:
        if line == GAP:
            parts.append([])
        else:
            parts[-1].append(line)
    return [part for part in parts if part]
