"""Every built-in spec and style -> what its program costs, as docs/styles.md has it."""

from __future__ import annotations

from weftc.compiling import checked_spec, compile
from weftc.core.errors import InputError, SpecError
from weftc.emit.cost import program_cost
from weftc.files.locate import names
from weftc.show.style_effects import sizes

STYLES: dict[str, dict[str, str]] = {
    "default": {},
    "scores dot": {"scores": "dot"},
    "scores dot, null token": {"scores": "dot", "null": "token"},
    "hardmax softmax": {"hardmax": "softmax"},
    "erase attention": {"erase": "attention"},
    "members offset": {"members": "offset"},
}


def costs() -> str:
    """Levels of attention, heads and feed-forwards of a layer, and columns of all streams; d = 2, k = 3."""
    lines = ["| spec | " + " | ".join(STYLES) + " |", "|---|" + ":-:|" * len(STYLES)]
    for name in names(""):
        cells = [_cell(name, styles) for styles in STYLES.values()]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(name: str, styles: dict[str, str]) -> str:
    checked = checked_spec(name)
    try:
        made = compile(checked, sizes(checked), **styles)  # type: ignore[arg-type]
    except (SpecError, InputError):
        return "refused"
    cost = program_cost(made.program, made.tensors)
    return f"{cost.levels} / {cost.heads} / {cost.feed_forwards} / {cost.width}"


def sequences() -> str:
    """What the sequence programs take: attention levels, heads, feed-forwards, columns, and all numbers."""
    lines = ["| program | levels | heads | feed-forwards | width | parameters |", "|---|:-:|:-:|:-:|:-:|:-:|"]
    for name in names("sequences"):
        made = compile(checked_spec(name), {})
        cost = program_cost(made.program, made.tensors)
        numbers = cost.levels, cost.heads, cost.feed_forwards, cost.width, f"{cost.parameters:,}"
        lines.append(f"| {name} | " + " | ".join(map(str, numbers)) + " |")
    return "\n".join(lines)
