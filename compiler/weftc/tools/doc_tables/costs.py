"""What programs cost, as tests/golden/costs.json records it -> the tables of docs/costs.md and docs/comparison.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weftc.files.locate import names

STYLES = (
    "",
    "scores=dot",
    "centre=off",
    "scores=dot centre=off",
    "scores=dot null=token",
    "hardmax=softmax",
    "hardmax=softmax scores=dot",
    "erase=attention",
    "erase=attention scores=dot",
    "members=offset",
    "members=offset scores=dot",
    "square=relu2",
    "norm=layer",
)
COST = ("levels", "heads", "feed-forwards", "columns", "parameters")
OF_ALL = ("levels", "heads", "feed-forwards", "columns")  # what the first edition was measured by

Record = Mapping[str, Mapping[str, Sequence[int] | None]]


def costs(record: Record) -> str:
    """Every built-in spec; styles of the same cost share a line."""
    lines = [f"| spec | style | {' | '.join(COST)} |", "|---|---|" + ":-:|" * len(COST)]
    for name in (name for name in names() if name in record):
        alike: dict[tuple[int, ...] | None, list[str]] = {}
        for style in STYLES:
            found = record[name][style]
            alike.setdefault(None if found is None else tuple(found[: len(COST)]), []).append(style or "default")
        for numbers, styles in alike.items():
            cells = ["refused"] + [""] * (len(COST) - 1) if numbers is None else [f"{n:,}" for n in numbers]
            others = "all others" if len(alike) > 1 and "default" in styles and len(styles) > 3 else "; ".join(styles)
            others = "all" if len(alike) == 1 else others
            lines.append(f"| {name} | {others} | {' | '.join(cells)} |")
    return "\n".join(lines)


def changes(record: Record, first: Mapping[str, Sequence[int]]) -> str:
    """What programs, specs and inventions of the tests, have less, or more, of than in the first edition."""
    alike: dict[tuple[str, str], list[str]] = {}
    same = 0
    for key, before in first.items():
        name, _, style = key.partition(" ")
        now = record[name][style]
        assert now is not None
        pairs = zip(OF_ALL, before, (now[0], now[5], now[6], now[3]), strict=True)
        text = ", ".join(f"{word} {a} -> {b}" for word, a, b in pairs if a != b)
        same += not text
        if text:
            alike.setdefault((name, text), []).append(style or "default")
    lines = [f"{same} of {len(first)} programs are as large as they were; the others:", ""]
    lines += ["| program | what changed | in the styles |", "|---|---|---|"]
    lines += [f"| {name} | {text} | {'; '.join(styles)} |" for (name, text), styles in alike.items()]
    return "\n".join(lines)


def sequences(record: Record) -> str:
    """What the sequence programs take: attention levels, heads, feed-forwards, columns, and all numbers."""
    lines = ["| program | levels | heads | feed-forwards | width | parameters |", "|---|:-:|:-:|:-:|:-:|:-:|"]
    for name in (name for name in names("sequences") if name in record):
        found = record[name][""]
        assert found is not None
        lines.append(f"| {name} | " + " | ".join(f"{number:,}" for number in found[: len(COST)]) + " |")
    return "\n".join(lines)
