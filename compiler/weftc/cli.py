"""Words on the command line -> one command and its exit code.

    0 success    1 a spec was refused, data do not fit, a verification failed    2 the command line is wrong
    3 a bug in weftc    130 interrupted    141 the reader of the output went away

Importing this module, `--help`, `list`, `show`, `new`, `check`, `explain`, `help` and `completion` touch no tensor
library.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any, NoReturn

from weftc.commands import bench as command_bench
from weftc.commands import benchmark as command_benchmark
from weftc.commands import check as command_check
from weftc.commands import circuit as command_circuit
from weftc.commands import compare as command_compare
from weftc.commands import compile as command_compile
from weftc.commands import completion as command_completion
from weftc.commands import disguise as command_disguise
from weftc.commands import distance as command_distance
from weftc.commands import explain as command_explain
from weftc.commands import export as command_export
from weftc.commands import fmt as command_fmt
from weftc.commands import fuzz as command_fuzz
from weftc.commands import help as command_help
from weftc.commands import info as command_info
from weftc.commands import inspect as command_inspect
from weftc.commands import list as command_list
from weftc.commands import lsp as command_lsp
from weftc.commands import new as command_new
from weftc.commands import plot as command_plot
from weftc.commands import report as command_report
from weftc.commands import reproduce as command_reproduce
from weftc.commands import run as command_run
from weftc.commands import show as command_show
from weftc.commands import train as command_train
from weftc.commands import verify as command_verify
from weftc.commands.options import UsageError, told
from weftc.commands.telling import collected_warnings
from weftc.core.errors import SpecError, WeftError
from weftc.core.source import printable
from weftc.core.words import did_you_mean
from weftc.files.locate import MODEL_SUFFIX, names
from weftc.language.parse.library import SPEC_SUFFIX

# The order is that of a working day. Each module has SUMMARY, EXAMPLE, arguments(parser) and run(options) -> exit code.
COMMANDS: dict[str, ModuleType] = {
    "compile": command_compile,
    "run": command_run,
    "verify": command_verify,
    "train": command_train,
    "check": command_check,
    "inspect": command_inspect,
    "export": command_export,
    "circuit": command_circuit,
    "distance": command_distance,
    "compare": command_compare,
    "disguise": command_disguise,
    "explain": command_explain,
    "report": command_report,
    "plot": command_plot,
    "list": command_list,
    "show": command_show,
    "new": command_new,
    "fmt": command_fmt,
    "help": command_help,
    "info": command_info,
    "completion": command_completion,
    "fuzz": command_fuzz,
    "bench": command_bench,
    "benchmark": command_benchmark,
    "reproduce": command_reproduce,
    "lsp": command_lsp,
}
SUCCESS, REFUSED, USAGE, BUG, INTERRUPTED, BROKEN_PIPE = 0, 1, 2, 3, 130, 141
RARELY = 50_000, 20, 50  # collections of garbage: a command is short, and what it imports is large and stays


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are `UsageError`s and whose options may not be abbreviated."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{**options, "allow_abbrev": False})

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{printable(message)}\ntry: {self.prog} --help")


def build_parser() -> Parser:
    """The parser with one sub-parser per command."""
    parser = Parser(
        prog="weftc",
        description="Compiles a short spec of an algorithm over sets of vectors into an exact transformer.",
        epilog="example:\n"
        "  weftc run lloyd points.csv -D k=5 -o out/\n"
        "  weftc new mine\n"
        "  weftc check mine.weft\n\n"
        "weftc help TOPIC explains more: data, language, exactness, styles, python, machines\n"
        "exit codes: 0 success, 1 refused or failed, 2 wrong command line, 3 a bug in weftc",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"weftc {_version()}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an unexpected error")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name, module in COMMANDS.items():
        command = commands.add_parser(
            name,
            help=module.SUMMARY,
            description=module.SUMMARY[0].upper() + module.SUMMARY[1:] + ".",
            epilog=module.EXAMPLE,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.arguments(command)
        command.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    return parser


def _version() -> str:
    try:
        return version("weftc")
    except PackageNotFoundError:
        return "(not installed)"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code; no exception leaves it."""
    words = list(sys.argv[1:] if argv is None else argv)
    gc.set_threshold(*RARELY)
    _write_anything()
    try:
        code = _dispatch(words)
        sys.stdout.flush()
        return code
    except SystemExit as stop:  # argparse, after --help and --version
        return stop.code if isinstance(stop.code, int) else SUCCESS
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        _close_stdout()
        return BROKEN_PIPE
    except Exception as error:
        return _report(error, words)


def _dispatch(words: Sequence[str]) -> int:
    parser = build_parser()
    _refuse_unknown_command(words)
    options, rest = parser.parse_known_args(words)
    if options.command is None:
        parser.print_help()
        return USAGE
    if hasattr(options, "data") and not any(word.startswith("-") and word != "-" for word in rest):
        options.data, rest = [*options.data, *rest], []  # a file without --data
    if rest:
        raise UsageError(_unexpected(parser, options.command, rest[0]))
    with collected_warnings(getattr(options, "json", False)) as options.warned:
        code: int = COMMANDS[options.command].run(options)
    return code


def _refuse_unknown_command(words: Sequence[str]) -> None:
    first = next((word for word in words if not word.startswith("-")), None)
    if first is not None and first not in COMMANDS:
        hint = did_you_mean(first, COMMANDS) or f"commands are {', '.join(COMMANDS)}"
        if first in names() or first.endswith((SPEC_SUFFIX, MODEL_SUFFIX)):
            hint = f"to run it: weftc run {printable(first)}"
        raise UsageError(f"there is no command {printable(first)}; {hint}")


def _unexpected(parser: Parser, command: str, word: str) -> str:
    """What to say about an argument that no command asked for."""
    if not word.startswith("-"):
        return f"unexpected argument {printable(word)}\ntry: weftc {command} --help"
    actions = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    known = [text for action in actions.choices[command]._actions for text in action.option_strings]
    hint = did_you_mean(word.partition("=")[0], known)
    return f"weftc {command} has no option {printable(word)}{'; ' + hint if hint else ''}\ntry: weftc {command} --help"


# ---- what goes wrong -------------------------------------------------------------------------------------------------


def _report(error: Exception, words: Sequence[str]) -> int:
    """Tells the user, in text on stderr and with --json also as an object on stdout; returns the exit code."""
    if _is_expected(error):
        text, code = told(error), USAGE if isinstance(error, UsageError) else REFUSED
    elif isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        text, code = f"{place}{error.strerror or error}", REFUSED
    elif isinstance(error, MemoryError) or "allocate memory" in str(error):  # as torch says it
        text, code = "out of memory; use smaller dimensions or fewer rows", REFUSED
    else:
        if "--debug" in words:
            traceback.print_exception(error)
        raised = f"{type(error).__name__}: {error}".splitlines()[0]
        text, code = f"unexpected {raised}; this is a bug in weftc, please report it (--debug shows where)", BUG
    if "--json" in words:
        print(json.dumps({"ok": False, "error": text, "problems": _problems(error)}))
    _complain(text)
    return code


def _is_expected(error: Exception) -> bool:
    """Whether an error is one that Weft raises on purpose. The runtime's errors exist only once it is imported."""
    runtime = sys.modules.get("weftc_runtime.errors")
    return isinstance(error, WeftError) or (runtime is not None and isinstance(error, runtime.WeftRuntimeError))


def _problems(error: Exception) -> list[dict[str, object]]:
    return command_check.problems(error) if isinstance(error, SpecError) else []


def _complain(text: str) -> None:
    shown = "\n".join(printable(line) for line in text.split("\n"))
    print(shown if shown.startswith("error") else f"error: {shown}", file=sys.stderr)


def _write_anything() -> None:
    """Lets a terminal that cannot show a character show its escape instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _close_stdout() -> None:
    """Points stdout at nothing, so that the interpreter's last flush does not fail again."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
