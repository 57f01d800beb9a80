"""A page, from top to bottom -> what went otherwise than it says, and the page as it should be.

    ```csv points.csv     any fence that names a file: the file is written
    ```console            `$ weftc ...`, `$ cat FILE`, `$ ls FOLDER`: run in one folder, compared with what is quoted
    ```python             run in one namespace
    ```pycon              `>>> ...` likewise, and compared with what is quoted

A command must succeed, unless an error or `not shown` is quoted. What follows finds the files and names of what came
before.
"""

from __future__ import annotations

import doctest
import io
import shlex
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pages import GAP, Block, blocks_of, misquoted, requoted
from weftc.cli import main

PARSER = doctest.DocTestParser()
CHECKER = doctest.OutputChecker()


@dataclass(slots=True)
class Play:
    """A page while it is played, in the current folder. `faults` are what it gets wrong, `text` what it should say."""

    text: str
    faults: list[str] = field(default_factory=list)
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "__page__"})

    def run(self) -> None:
        """Plays every block; quotations that are wrong are replaced in `text`."""
        out, at = [], 0
        for block in blocks_of(self.text):
            out += [self.text[at : block.start], self._block(block)]
            at = block.start + len(block.text)
        self.text = "".join([*out, self.text[at:]])

    def _block(self, block: Block) -> str:
        if block.file and block.language != "diff":  # changes to the project are for `test_extending.py`
            path = Path(block.file)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        elif block.language == "console":
            return self._console(block.text)
        elif block.language == "pycon":
            return self._pycon(block.text)
        elif block.language == "python":
            with redirect_stdout(io.StringIO()):
                exec(compile(block.text, "page", "exec"), self.names)
        return block.text

    def _console(self, text: str) -> str:
        sessions: list[list[str]] = []
        for line in text.splitlines():
            if line.startswith("$ "):
                sessions.append([line])
            else:
                sessions[-1].append(line)
        out: list[str] = []
        for line, *quoted in sessions:
            code, printed = command(shlex.split(line[2:], comments=True))
            if (code != 0) != any(said.startswith("error") or said.endswith(": not shown") for said in quoted):
                self.faults.append(f"{line}\nexit code {code}\n{printed}")
            whole = GAP not in quoted and len(quoted) != len(printed.splitlines())
            wrong = whole or misquoted(quoted, printed, rounding=True)
            if wrong:
                self.faults.append(f"{line}\nis said to print\n" + "\n".join(quoted) + f"\nand prints\n{printed}")
                try:
                    quoted = requoted(quoted, printed)
                except ValueError:  # an excerpt whose first line is gone: show what there is, to be cut anew
                    quoted = printed.splitlines()
            out += [line, *quoted]
        return "\n".join([*out, ""])

    def _pycon(self, text: str) -> str:
        out: list[str] = []
        for example in PARSER.get_examples(text):
            caught = io.StringIO()
            with redirect_stdout(caught):
                try:
                    exec(compile(example.source, "page", "single"), self.names)
                except Exception as error:
                    if example.exc_msg is None:
                        self.faults.append(f">>> {example.source}raises {type(error).__name__}: {error}")
                        print(example.want, end="")
                    else:
                        print(f"Traceback (most recent call last):\n    ...\n{_named(error)}: {error}")
            printed = caught.getvalue()
            if not CHECKER.check_output(example.want, printed, doctest.ELLIPSIS):
                self.faults.append(f">>> {example.source}is said to print\n{example.want}and prints\n{printed}")
                example.want = printed
            first, *more = example.source.splitlines()
            out += [f">>> {first}", *(f"... {line}".rstrip() for line in more), *example.want.splitlines()]
        return "\n".join([*out, ""])


def _named(error: Exception) -> str:
    """The name of an exception as a traceback shows it."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def command(words: list[str]) -> tuple[int, str]:
    """The exit code of a command and what it prints. Of other programs than weftc, only what a reader needs to look."""
    caught = io.StringIO()
    with redirect_stdout(caught), redirect_stderr(caught):
        if words[0] == "weftc":
            return main(words[1:]), caught.getvalue()
    match words:
        case ["cat", name]:
            return 0, Path(name).read_text(encoding="utf-8")
        case ["head", "-n", count, name]:
            lines = Path(name).read_text(encoding="utf-8").splitlines(keepends=True)
            return 0, "".join(lines[: int(count)])
        case ["ls", name]:
            return 0, "".join(f"{path.name}\n" for path in sorted(Path(name).iterdir()))
    raise ValueError(f"pages do not run {words[0]}")
