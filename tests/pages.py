"""Markdown pages -> what they promise: fenced blocks, the commands in them, and what these are said to print.

A quoted session starts with `$ weftc ...`; the lines below it are an excerpt of what that prints, `...` where lines are
left out. Commands of one block follow each other in one folder. A block of the language whose first line is
`# NAME.weft`, and any block whose fence names a file (```csv points.csv), is the file that later commands read.
`playing.py` runs a page from top to bottom. Between `<!-- NAME: written by `make docs` -->` and `<!-- /NAME -->` stands
what a generator printed; see `marked`.

Pages and golden files are only ever replaced whole: see `rewrite`.
"""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
GAP = "..."


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, its text, the file its fence names, and the place of its text in the page."""

    language: str
    text: str
    file: str = ""
    start: int = 0


@dataclass(frozen=True, slots=True)
class Session:
    """A command line, the lines it is said to print, and the command lines before it in its block."""

    line: str
    quoted: tuple[str, ...]
    before: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join(words(self.line))


def words(line: str) -> list[str]:
    """A command line as the words after `$ weftc`."""
    return shlex.split(line)[2:]


def fenced(page: str) -> list[Block]:
    """The blocks of a page, in order."""
    return blocks_of((ROOT / page).read_text(encoding="utf-8"))


def blocks_of(text: str) -> list[Block]:
    """The blocks of a text, in order."""
    found = re.finditer(r"^```(\w*)(?: (\S+))?\n(.*?)^```", text, re.S | re.M)
    return [Block(block[1], block[3], block[2] or "", block.start(3)) for block in found]


def commands(blocks: Sequence[Block]) -> list[list[str]]:
    """Every line of a block that is a command, without its comment: the words after `weftc`."""
    lines = (line.partition("#")[0].strip() for block in blocks for line in block.text.splitlines())
    return [shlex.split(line)[1:] for line in lines if line.startswith("weftc ")]


def sessions(blocks: Sequence[Block]) -> list[Session]:
    """Every command with a prompt, and what is quoted below it."""
    found: list[Session] = []
    for block in (block for block in blocks if block.language == "console"):
        asked: list[str] = []
        said: list[list[str]] = []
        for line in block.text.splitlines():
            if line.startswith("$ weftc "):
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


def misquoted(quoted: Sequence[str], printed: str, rounding: bool = False) -> str:
    """The first excerpt that the output does not have at its place, or nothing.

    With `rounding`, numbers below 1e-12 are what rounding left, and may be others on another machine.
    """
    rest = _settled(printed.splitlines()) if rounding else printed.splitlines()
    for lines in _excerpts(quoted):
        wanted = _settled(lines) if rounding else lines
        starts = [at for at in range(len(rest) - len(wanted) + 1) if rest[at : at + len(wanted)] == wanted]
        if not starts:
            return "\n".join(lines)
        rest = rest[starts[0] + len(lines) :]
    return ""


def _settled(lines: Sequence[str]) -> list[str]:
    """Lines without the numbers that are rounding, and without the spaces that align them."""
    tiny = re.compile(r"(?<![\w.])\d(?:\.\d+)?e-(?:1[2-9]|[2-9]\d|\d{3})(?!\w)")
    return [" ".join(tiny.sub("tiny", line).split()) if tiny.search(line) else line for line in lines]


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


# ---- what generators write -------------------------------------------------------------------------------------------

_MARKED = re.compile(r"<!-- (?P<name>[^\n:]+): written by `make docs` -->\n(?P<text>.*?)<!-- /(?P=name) -->", re.S)


def marked(text: str) -> dict[str, str]:
    """What stands between the marks of a page, by name."""
    return {found["name"]: found["text"] for found in _MARKED.finditer(text)}


def remarked(text: str, fresh: Mapping[str, str]) -> str:
    """The page with other text between its marks."""

    def anew(found: re.Match[str]) -> str:
        head, tail = found[0][: found.start("text") - found.start()], found[0][found.end("text") - found.start() :]
        return head + fresh.get(found["name"], found["text"]) + tail

    return _MARKED.sub(anew, text)


# ---- links -----------------------------------------------------------------------------------------------------------


def anchors(text: str) -> set[str]:
    """The anchors of a page as GitHub makes them from its headings."""
    titles = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M), re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def links(text: str) -> list[str]:
    """The targets of the links of a page, but for those in code and on other machines."""
    prose = re.sub(r"`[^`\n]*`", "code", re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M))
    return [target for target in re.findall(r"\]\(([^)]+)\)", prose) if not target.startswith(("http:", "https:"))]


def _excerpts(quoted: Sequence[str]) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for line in quoted:
        if line == GAP:
            parts.append([])
        else:
            parts[-1].append(line)
    return [part for part in parts if part]
