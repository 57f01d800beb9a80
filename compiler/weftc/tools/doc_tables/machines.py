"""Every built-in spec, or the specs of a folder, and style -> what runs its layers.

    python -m weftc.tools.doc_tables.machines [FOLDER ...]

A line for every reason not to run natively, with the programs it holds for; then how many programs run where.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from weftc.compiling import checked_spec, compile
from weftc.core.errors import InputError, SpecError
from weftc.core.styles import CHOICES
from weftc.files.locate import names
from weftc.show.style_effects import sizes
from weftc_runtime import RunError, load
from weftc_runtime.machines.planned import layers_at_a_time
from weftc_runtime.plan.prepared import Prepared

DOT = {"scores": "dot"}
STYLES: tuple[dict[str, str], ...] = (
    {},
    *(
        ({**DOT, name: word} if name == "null" else {name: word})
        for name, words in CHOICES.items()
        for word in words[1:]
    ),
)


def runs(spec: str, styles: dict[str, str]) -> tuple[str, str]:
    """Where the layers of a spec run, and why not natively."""
    checked = checked_spec(spec)
    try:
        made = compile(checked, sizes(checked), layers=2, **styles)  # type: ignore[arg-type]
    except (SpecError, InputError):
        return "no such program", ""
    model = load(made)
    try:
        plan = model.plan()
    except RunError as reason:
        return "reference", str(reason)
    prepared = Prepared(plan, {name: model.tensor(name).detach() for name in made.tensors})
    told = layers_at_a_time(made.program, prepared)
    return ("torch", told.partition(": ")[2]) if told.startswith("one by one") else ("native", "")


def machines(names: list[str]) -> str:
    """The table."""
    counts, reasons = Counter[str](), dict[tuple[str, str], list[str]]()
    for name in names:
        for styles in STYLES:
            where, why = runs(name, styles)
            counts[where] += where != "no such program"
            if why:
                style = ", ".join(f"{k}={v}" for k, v in styles.items())
                reasons.setdefault((where, why), []).append(f"{Path(name).stem}{f' ({style})' if style else ''}")
    lines = [
        f"{len(programs):>4}  {where:<9}  {why}: {'; '.join(programs[:4])}{' ...' if len(programs) > 4 else ''}"
        for (where, why), programs in sorted(reasons.items(), key=lambda item: -len(item[1]))
    ]
    return "\n".join([*lines, ", ".join(f"{where}: {many}" for where, many in counts.most_common() if many)])


if __name__ == "__main__":
    folders = [str(path) for folder in sys.argv[1:] for path in sorted(Path(folder).glob("*.weft"))]
    print(machines(folders or list(names(""))))
