"""Requests of the Language Server Protocol -> answers from `weftc.editor`, over standard input and output.

The only module that knows the protocol and its library. Editors count columns in UTF-16 units and lines from zero;
here everything is an offset into the text, and `_Lines` turns one into the other.
"""

from __future__ import annotations

import logging
import os
import sys
from bisect import bisect_right
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any

from weftc.core.errors import Diagnostic, InputError, SpecError
from weftc.core.source import Span
from weftc.editor.completion import completions
from weftc.editor.document import Document, read
from weftc.editor.hover import hover
from weftc.editor.rename import rename
from weftc.editor.symbols import definition, place_at, places_of
from weftc.language.format.formatter import format
from weftc.version import VERSION

MISSING = 'the language server needs pygls; install it with: pip install "weftc[lsp]"'


def serve() -> None:
    """Answers one editor until it goes away."""
    try:
        from pygls.lsp.server import LanguageServer
    except ModuleNotFoundError:
        raise InputError(MISSING) from None
    server = LanguageServer("weftc", VERSION)
    answers = _Answers(server)
    answers.register()
    logging.getLogger("pygls.protocol.json_rpc").addFilter(answers.is_worth_logging)
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as out:  # the library closes what it writes to
        server.start_io(sys.stdin.buffer, out)


class _Lines:
    """Offsets of one text <-> positions as editors count them."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.starts = [0, *(at + 1 for at, c in enumerate(text) if c == "\n")]

    def offset(self, position: Any) -> int:
        """The offset of a line and a column; behind the end of a line there is nothing."""
        if position.line >= len(self.starts):
            return len(self.text)
        at, units = int(self.starts[position.line]), int(position.character)
        while units > 0 and at < len(self.text) and self.text[at] != "\n":
            units -= 2 if self.text[at] > "\uffff" else 1
            at += 1
        return at

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column of an offset."""
        line = bisect_right(self.starts, offset) - 1
        return line, len(self.text[self.starts[line] : offset].encode("utf-16-le")) // 2


class _Answers:
    """One method per request; a document is read once per version."""

    def __init__(self, server: Any) -> None:
        from lsprotocol import types
        from pygls import exceptions

        self.server, self.lsp, self.exceptions = server, types, exceptions
        self.known: dict[str, tuple[str, Document]] = {}

    def register(self) -> None:
        """Tells the server which requests are answered."""
        lsp = self.lsp
        starters = lsp.CompletionOptions(trigger_characters=["[", ":", "(", "^"])
        self.feature(lsp.TEXT_DOCUMENT_DID_OPEN, self.opened)
        self.feature(lsp.TEXT_DOCUMENT_DID_CHANGE, self.opened)
        self.feature(lsp.TEXT_DOCUMENT_DID_CLOSE, self.closed)
        self.feature(lsp.TEXT_DOCUMENT_HOVER, self.hover)
        self.feature(lsp.TEXT_DOCUMENT_COMPLETION, self.completion, starters)
        self.feature(lsp.TEXT_DOCUMENT_DEFINITION, self.definition)
        self.feature(lsp.TEXT_DOCUMENT_REFERENCES, self.references)
        self.feature(lsp.TEXT_DOCUMENT_PREPARE_RENAME, self.prepare_rename)
        self.feature(lsp.TEXT_DOCUMENT_RENAME, self.rename)
        self.feature(lsp.TEXT_DOCUMENT_FORMATTING, self.formatting)

    def feature(self, request: str, answer: Callable[[Any], Any], options: Any = None) -> None:
        """Registers an answer, as a function: the library notes things on it, which a method does not take."""
        self.server.feature(request, options)(lambda params: answer(params))

    def is_worth_logging(self, record: logging.LogRecord) -> bool:
        """A refusal goes to the editor, in words; only what nobody expected is logged."""
        return record.exc_info is None or not isinstance(record.exc_info[1], self.exceptions.JsonRpcException)

    # ---- documents ---------------------------------------------------------------------------------------------------

    def document(self, params: Any) -> tuple[str, Document, _Lines]:
        """The document a request is about, as it is now."""
        uri = params.text_document.uri
        text = self.server.workspace.get_text_document(uri).source
        if self.known.get(uri, ("", None))[0] != text or uri not in self.known:
            self.known[uri] = (text, read(text, PurePosixPath(uri).name))
        return uri, self.known[uri][1], _Lines(text)

    def range(self, lines: _Lines, span: Span) -> Any:
        start, end = lines.position(span.start), lines.position(span.end)
        return self.lsp.Range(self.lsp.Position(*start), self.lsp.Position(*end))

    # ---- notifications -----------------------------------------------------------------------------------------------

    def opened(self, params: Any) -> None:
        """Shows what is wrong with a text that was opened or changed."""
        uri, document, lines = self.document(params)
        self.publish(uri, [self.problem(lines, one) for one in document.diagnostics])

    def closed(self, params: Any) -> None:
        """Forgets a document, and takes back what was shown of it."""
        self.known.pop(params.text_document.uri, None)
        self.publish(params.text_document.uri, [])

    def publish(self, uri: str, problems: list[Any]) -> None:
        self.server.text_document_publish_diagnostics(self.lsp.PublishDiagnosticsParams(uri=uri, diagnostics=problems))

    def problem(self, lines: _Lines, found: Diagnostic) -> Any:
        """One mistake: message, what to do, notes."""
        said = [found.message + (f": {found.label}" if found.label else ""), *found.notes]
        end = max(found.span.end, min(found.span.start + 1, len(lines.text)))
        return self.lsp.Diagnostic(
            range=self.range(lines, Span(found.span.start, end)),
            message="\n".join(said),
            severity=self.lsp.DiagnosticSeverity.Error,
            code=found.code,
            source="weftc",
        )

    # ---- requests ----------------------------------------------------------------------------------------------------

    def hover(self, params: Any) -> Any:
        """What stands at a place, and its type."""
        _, document, lines = self.document(params)
        found = hover(document, lines.offset(params.position))
        if found is None:
            return None
        content = self.lsp.MarkupContent(self.lsp.MarkupKind.Markdown, found.markdown)
        return self.lsp.Hover(content, self.range(lines, found.span))

    def completion(self, params: Any) -> Any:
        """What can be typed at a place."""
        _, document, lines = self.document(params)
        kinds = self.lsp.CompletionItemKind
        shown = {
            "field": kinds.Field,
            "param": kinds.Constant,
            "set": kinds.Enum,
            "index": kinds.Variable,
            "type": kinds.TypeParameter,
            "section": kinds.Module,
            "keyword": kinds.Keyword,
        }
        return [
            self.lsp.CompletionItem(one.text, kind=shown.get(one.sort, kinds.Function), detail=one.detail)
            for one in completions(document, lines.offset(params.position))
        ]

    def definition(self, params: Any) -> Any:
        """Where a name is declared."""
        uri, document, lines = self.document(params)
        place = place_at(document, lines.offset(params.position))
        return None if place is None else self.lsp.Location(uri, self.range(lines, definition(document, place)))

    def references(self, params: Any) -> Any:
        """Every place of a name."""
        uri, document, lines = self.document(params)
        place = place_at(document, lines.offset(params.position))
        found = [] if place is None else places_of(document, place)
        return [self.lsp.Location(uri, self.range(lines, one.span)) for one in found]

    def prepare_rename(self, params: Any) -> Any:
        """Which part of the text is the name."""
        _, document, lines = self.document(params)
        place = place_at(document, lines.offset(params.position))
        return None if place is None else self.range(lines, place.span)

    def rename(self, params: Any) -> Any:
        """A name changed wherever it stands; an error says why it cannot be."""
        uri, document, lines = self.document(params)
        place = place_at(document, lines.offset(params.position))
        if place is None:
            return None
        try:
            edits = rename(document, place, params.new_name)
        except InputError as error:
            raise self.exceptions.JsonRpcInvalidParams(str(error)) from None
        changes = [self.lsp.TextEdit(self.range(lines, edit.span), edit.text) for edit in edits]
        return self.lsp.WorkspaceEdit(changes={uri: changes})

    def formatting(self, params: Any) -> Any:
        """The whole text as `weftc fmt` writes it; nothing while it does not parse."""
        _, document, lines = self.document(params)
        try:
            formatted = format(document.source)
        except SpecError:
            return None
        whole = self.range(lines, Span(0, len(lines.text)))
        return [self.lsp.TextEdit(whole, formatted)] if formatted != lines.text else []
