"""`weftc completion`: the command line -> a script that completes it in bash, zsh or fish."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

from weftc.commands.options import add_json
from weftc.commands.telling import tell
from weftc.files.locate import names

SUMMARY = "print a script that completes commands in your shell"
EXAMPLE = """example:
  weftc completion bash >> ~/.bashrc
  weftc completion zsh >> ~/.zshrc
  weftc completion fish > ~/.config/fish/completions/weftc.fish

--json prints {ok, shell, text, warnings}."""


@dataclass(frozen=True, slots=True)
class ShellCompletion:
    """What may follow a command: its options, and for some of them the values."""

    command: str
    about: str
    options: tuple[str, ...]
    values: dict[str, tuple[str, ...]]
    takes_spec: bool


def arguments(parser: argparse.ArgumentParser) -> None:
    """The shell."""
    parser.add_argument("shell", choices=tuple(SHELLS), help="the shell to complete in")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Prints the script."""
    text = SHELLS[options.shell](list(completions()))
    tell(options, {"ok": True, "shell": options.shell, "text": text}, text.rstrip("\n"))
    return 0


def completions() -> Iterator[ShellCompletion]:
    """Every command, as its parser describes it."""
    from weftc.cli import COMMANDS, build_parser

    parser = build_parser()
    commands = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    for name, module in COMMANDS.items():
        actions = [a for a in commands.choices[name]._actions if a.help is not argparse.SUPPRESS]
        flags = [a for a in actions if a.option_strings]
        values = {flag: tuple(map(str, a.choices)) for a in flags if a.choices for flag in a.option_strings}
        takes = any("SPEC" in str(a.metavar) for a in actions if not a.option_strings)
        yield ShellCompletion(name, module.SUMMARY, tuple(f for a in flags for f in a.option_strings), values, takes)


def bash(known: list[ShellCompletion]) -> str:
    """A function for bash; zsh runs it, too."""
    cases, values = [], []
    for one in known:
        words = " ".join((*one.options, *(names() if one.takes_spec else ())))
        cases.append(f'    {one.command}) words="{words}" ;;')
        values += [f'    "{one.command} {flag}") words="{" ".join(some)}" ;;' for flag, some in one.values.items()]
    return "\n".join(
        (
            "# weftc completion: written by `weftc completion`; write it anew after an update",
            "_weftc() {",
            '  local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" words=""',
            '  if [ "$COMP_CWORD" -eq 1 ]; then',
            f'    COMPREPLY=($(compgen -W "{" ".join(one.command for one in known)}" -- "$word"))',
            "    return",
            "  fi",
            '  case "${COMP_WORDS[1]} $before" in',
            *values,
            "  esac",
            '  if [ -n "$words" ]; then',
            '    COMPREPLY=($(compgen -W "$words" -- "$word"))',
            "    return",
            "  fi",
            '  case "${COMP_WORDS[1]}" in',
            *cases,
            "  esac",
            '  COMPREPLY=($(compgen -W "$words" -- "$word") $(compgen -f -- "$word"))',
            "}",
            "complete -o filenames -F _weftc weftc",
            "",
        )
    )


def zsh(known: list[ShellCompletion]) -> str:
    """The function of bash, in zsh's emulation."""
    return "autoload -Uz compinit bashcompinit && compinit && bashcompinit\n" + bash(known)


def fish(known: list[ShellCompletion]) -> str:
    """One line for every command and option."""
    lines = ["# weftc completion: written by `weftc completion`; write it anew after an update"]
    for one in known:
        lines.append(f"complete -c weftc -n __fish_use_subcommand -a {one.command} -d '{_quoted(one.about)}'")
        here = f"complete -c weftc -n '__fish_seen_subcommand_from {one.command}'"
        for flag in one.options:
            form = f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}"
            some = one.values.get(flag)
            lines.append(f"{here} {form}" + (f" -x -a '{' '.join(some)}'" if some else ""))
        if one.takes_spec:
            lines.append(f"{here} -a '{' '.join(names())}'")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")


SHELLS = {"bash": bash, "zsh": zsh, "fish": fish}
