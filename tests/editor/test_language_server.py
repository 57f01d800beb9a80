"""`weftc lsp` and a client of its own kind: headers and JSON over standard input and output, as editors speak."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import weftc
from weftc.editor import server as server_module

LLOYD = (Path(weftc.__file__).parents[2] / "specs" / "lloyd.weft").read_text(encoding="utf-8")
URI = "file:///specs/mine.weft"
SECONDS = 60


class Client:
    """An editor: sends requests, and remembers what the server says unasked."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "weftc", "lsp"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.number, self.version = 0, 0

    def send(self, method: str, params: Any, **extra: Any) -> None:
        body = json.dumps({"jsonrpc": "2.0", "method": method, "params": params, **extra}).encode()
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        length = 0
        while line := self.process.stdout.readline().strip():
            name, _, value = line.partition(b": ")
            length = int(value) if name.lower() == b"content-length" else length
        message: dict[str, Any] = json.loads(self.process.stdout.read(length))
        return message

    def ask(self, method: str, params: Any) -> Any:
        """The result of a request; its error message, if it is refused."""
        self.number += 1
        self.send(method, params, id=self.number)
        while True:
            message = self.receive()
            if message.get("id") == self.number and "method" not in message:
                return message["result"] if "result" in message else message["error"]["message"]

    def diagnostics(self) -> list[dict[str, Any]]:
        """The next diagnostics the server sends."""
        while True:
            message = self.receive()
            if message.get("method") == "textDocument/publishDiagnostics":
                found: list[dict[str, Any]] = message["params"]["diagnostics"]
                return found

    def open(self, text: str) -> list[dict[str, Any]]:
        self.send(
            "textDocument/didOpen", {"textDocument": {"uri": URI, "languageId": "weft", "version": 1, "text": text}}
        )
        return self.diagnostics()

    def change(self, line: int, start: int, end: int, text: str) -> list[dict[str, Any]]:
        """Replaces some columns of a line, as typing does."""
        self.version += 1
        spot = {"start": {"line": line, "character": start}, "end": {"line": line, "character": end}}
        document = {"uri": URI, "version": 1 + self.version}
        self.send(
            "textDocument/didChange", {"textDocument": document, "contentChanges": [{"range": spot, "text": text}]}
        )
        return self.diagnostics()

    def at(self, method: str, line: int, character: int, **extra: Any) -> Any:
        place = {"textDocument": {"uri": URI}, "position": {"line": line, "character": character}}
        return self.ask(f"textDocument/{method}", {**place, **extra})


@pytest.fixture
def client() -> Iterator[Client]:
    made = Client()
    told = made.ask("initialize", {"processId": None, "rootUri": None, "capabilities": {}})
    for provider in ("hover", "completion", "definition", "references", "rename", "documentFormatting"):
        assert told["capabilities"][f"{provider}Provider"]
    made.send("initialized", {})
    yield made
    made.ask("shutdown", None)
    made.send("exit", None)
    out, err = made.process.communicate(timeout=SECONDS)
    assert made.process.returncode == 0, err.decode()
    assert out == b""
    assert b"Traceback" not in err


def test_a_session_of_typing(client: Client) -> None:
    assert client.open(LLOYD) == []
    line = LLOYD.split("\n").index(next(row for row in LLOYD.split("\n") if "argmin" in row))
    found = client.change(line, 11, 17, "argmn")
    assert [(one["code"], one["range"]["start"], one["range"]["end"]) for one in found] == [
        ("P103", {"line": line, "character": 11}, {"line": line, "character": 16})
    ]
    assert "did you mean 'argmin'?" in found[0]["message"]
    assert client.change(line, 11, 16, "argmin") == []

    assert "x[i] : R^d" in client.at("hover", line, 22)["contents"]["value"]
    offered = {item["label"]: item for item in client.at("completion", line, 29)}
    assert "a vector of R^d per centers token" in offered["c[j]"]["detail"]
    assert client.at("definition", line, 29)["range"]["start"] == {"line": 6, "character": 8}
    assert len(client.at("references", line, 29, context={"includeDeclaration": True})) == LLOYD.count("c[j]") + 3

    edits = client.at("rename", line, 29, newName="mu")["changes"][URI]
    assert {edit["newText"] for edit in edits} == {"mu"}
    assert "an input already" in client.at("rename", line, 29, newName="x")
    assert client.at("rename", 0, 0, newName="a") is None


def test_formatting_is_that_of_weftc_fmt(client: Client) -> None:
    text = LLOYD.replace("c[j]   = mean", "c[j] =  mean")
    client.open(text)
    options = {"tabSize": 2, "insertSpaces": True}
    (edit,) = client.ask("textDocument/formatting", {"textDocument": {"uri": URI}, "options": options})
    assert edit["newText"] == weftc.format(text)
    client.change(0, 0, 9, "algorism")
    assert client.ask("textDocument/formatting", {"textDocument": {"uri": URI}, "options": options}) is None


def test_columns_are_counted_as_editors_count_them(client: Client) -> None:
    found = client.open('algorithm a "\U0001f600"  é\n')
    assert found[0]["range"]["start"] == {"line": 0, "character": 18}  # the face is two units, and one character
    assert found[0]["range"]["end"]["character"] == 19


def test_without_its_library_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    from weftc.cli import main

    monkeypatch.setitem(sys.modules, "pygls.lsp.server", None)
    assert main(["lsp"]) == 1
    assert server_module.MISSING in capsys.readouterr().err
