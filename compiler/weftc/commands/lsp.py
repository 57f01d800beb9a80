"""`weftc lsp`: a language server for editors, over standard input and output."""

from __future__ import annotations

import argparse

SUMMARY = "serve an editor: mistakes as you type, types, completion, rename, formatting"
EXAMPLE = """example:
  weftc lsp

An editor starts this; editors/README.md says how (VS Code, Neovim, Helix, Emacs). It speaks the Language Server
Protocol over standard input and output, and needs the extra `lsp`: pip install "weftc[lsp]"."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """None; `--stdio` is what some editors add."""
    parser.add_argument("--stdio", action="store_true", help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> int:
    """Serves until the editor goes away."""
    from weftc.editor.server import serve

    serve()
    return 0
