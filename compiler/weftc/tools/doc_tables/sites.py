"""The table of hook sites in docs/hooks.md."""

from __future__ import annotations


def sites() -> str:
    """Every site, its path and what passes there."""
    from weftc_runtime.data.hooks import HEAD_SITES, MLP_SITES, RESID_SITES

    rows = [("attn.{head}", HEAD_SITES), ("mlp", MLP_SITES), ("{set}", RESID_SITES)]
    lines = ["| site | what passes there |", "| --- | --- |"]
    lines += [f"| `{path}.{name}` | {text} |" for path, names in rows for name, text in names.items()]
    return "\n".join(lines)
