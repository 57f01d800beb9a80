"""grammar.lark -> grammar.json: the parse tables, made by lark ahead of time. The only user of lark.

`python -m weftc.language.parse.build_parse_tables` writes the file anew; the same grammar always gives the same bytes.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from lark import Lark
from lark.grammar import Rule
from lark.lexer import TerminalDef

from weftc.language.parse.grammar import digest, grammar_text

START = "start"


def build() -> dict[str, Any]:
    """The tables of the grammar as plain data, from what lark serialises."""
    lark = Lark(grammar_text(), parser="lalr", lexer="basic", maybe_placeholders=True)
    data, memo = lark.memo_serialize([TerminalDef, Rule])
    parser = data["parser"]["parser"]
    numbered = [memo[reference["@"]] for reference in data["rules"]]
    position = {reference["@"]: at for at, reference in enumerate(data["rules"])}
    terminals = {}
    for terminal in (memo[reference["@"]] for reference in data["parser"]["lexer_conf"]["terminals"]):
        if terminal["pattern"]["__type__"] == "PatternStr":
            terminals[terminal["pattern"]["value"]] = terminal["name"]
    states = {
        state: {
            parser["tokens"][symbol]: arg if kind == 0 else -1 - position[arg["@"]]
            for symbol, (kind, arg) in row.items()
        }
        for state, row in parser["states"].items()
    }
    order = _reached(states, parser["start_states"][START])
    renumbered = {state: at for at, state in enumerate(order)}
    symbols = sorted({symbol for row in states.values() for symbol in row})
    index = {symbol: at for at, symbol in enumerate(symbols)}
    rows: dict[tuple[int, ...], int] = {}
    uses = []
    for state in order:
        row = []
        for symbol, action in sorted(states[state].items()):
            row += [index[symbol], renumbered[action] if action >= 0 else action]
        uses.append(rows.setdefault(tuple(row), len(rows)))
    return {
        "grammar": digest(),
        "terminals": dict(sorted(terminals.items())),
        "start": 0,
        "symbols": symbols,
        "rules": [_rule(rule) for rule in numbered],
        "rows": [list(row) for row in rows],
        "states": uses,
    }


def _reached(states: dict[int, dict[str, int]], start: int) -> list[int]:
    """The states in the order of a walk from the start; lark numbers them anew in every process."""
    order, seen = [start], {start}
    for state in order:
        for _, action in sorted(states[state].items()):
            if action >= 0 and action not in seen:
                seen.add(action)
                order.append(action)
    return order


def _rule(rule: dict[str, Any]) -> list[Any]:
    """What a rule keeps of its symbols, as lark's tree builder would: no plain words, absent options as None."""
    options, expansion = rule["options"], rule["expansion"]
    absent = [bool(flag) for flag in options["empty_indices"]] or [False] * len(expansion)
    parts: list[int] = []
    at = 0
    for empty in absent:
        if empty:
            parts.append(-1)
            continue
        symbol = expansion[at]
        if symbol["__type__"] == "NonTerminal":
            parts.append(-2 - at if symbol["name"].startswith("_") else at)
        elif options["keep_all_tokens"] or not symbol["filter_out"]:
            parts.append(at)
        at += 1
    origin = rule["origin"]["name"]
    lone = bool(options["expand1"]) and not rule["alias"]
    return [origin, len(expansion), rule["alias"] or origin, parts, origin.startswith("_"), lone]


def main() -> None:
    """Writes grammar.json beside the grammar."""
    target = files("weftc.language.parse").joinpath("grammar.json")
    with open(str(target), "w", encoding="utf-8") as file:
        json.dump(build(), file, separators=(",", ":"), sort_keys=True)
        file.write("\n")
    print(f"wrote {target}")


if __name__ == "__main__":
    main()
