"""`weftc help`: a topic or a command -> a page that fits on a screen or two."""

from __future__ import annotations

import argparse
from importlib.resources import files

from weftc.commands.options import UsageError, add_json
from weftc.commands.telling import tell
from weftc.core.source import printable
from weftc.core.words import did_you_mean

SUMMARY = "explain a topic or a command"
EXAMPLE = """example:
  weftc help            # the topics
  weftc help data
  weftc help run        # the same as weftc run --help

--json prints {ok, topics: {topic: title}, warnings}, or of a topic {ok, topic, text, warnings}."""
LANGUAGE = "language"  # the one-page description that ships beside the specs


def arguments(parser: argparse.ArgumentParser) -> None:
    """A topic, or a command."""
    parser.add_argument("topic", metavar="TOPIC", nargs="?", help="a topic or a command (default: list them)")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Prints a page, or what pages there are."""
    from weftc.cli import COMMANDS, build_parser

    known = topics()
    if options.topic is None:
        titles = {name: title(page(name)) for name in known}
        widest = max(map(len, known))
        lines = ["topics:", *(f"  {name:<{widest}}  {text}" for name, text in titles.items())]
        lines += ["", f"commands: {', '.join(COMMANDS)}", "", "weftc help TOPIC shows one of them"]
        tell(options, {"ok": True, "topics": titles}, "\n".join(lines))
    elif options.topic in (*known, *COMMANDS):
        text = page(options.topic) if options.topic in known else command_help(build_parser(), options.topic)
        tell(options, {"ok": True, "topic": options.topic, "text": text}, text.rstrip("\n"))
    else:
        hint = did_you_mean(options.topic, [*known, *COMMANDS]) or f"topics are {', '.join(known)}"
        raise UsageError(f"there is no topic {printable(options.topic)}; {hint}")
    return 0


def command_help(parser: argparse.ArgumentParser, command: str) -> str:
    """What --help of a command prints."""
    commands = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    text: str = commands.choices[command].format_help()
    return text


def topics() -> list[str]:
    """The names of the topics."""
    shipped = (item.name for item in files("weftc.commands").joinpath("topics").iterdir())
    return sorted([*(name.removesuffix(".md") for name in shipped if name.endswith(".md")), LANGUAGE])


def page(topic: str) -> str:
    """The text of a topic."""
    if topic == LANGUAGE:
        return files("weftc.specs").joinpath("README.md").read_text(encoding="utf-8")
    return files("weftc.commands").joinpath("topics", f"{topic}.md").read_text(encoding="utf-8")


def title(text: str) -> str:
    """The heading of a page."""
    return text.partition("\n")[0].removeprefix("# ")
