"""The command line: forms, exit codes, messages. Everything runs in this process unless the process itself matters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from weft import cli
from weft.commands import list as command_list
from weft.commands.compile import file_size
from weft.commands.new import starter
from weft.commands.options import STYLE_HELP, UsageError, definitions, split_definitions
from weft.errors import InputError
from weft.language.check import check
from weft.language.parse import parse
from weft.locate import names
from weft.lowering.styles import CHOICES
from weft.source import Source

Weft = Callable[..., tuple[int, str, str]]

GOOD = """algorithm tiny "adds one"
tokens i in points
inputs x[i] : R
layer
  x[i] = x[i] + 1
outputs x
"""
BAD = GOOD.replace("x[i] + 1", "xx[i] + zz[i]")


@pytest.fixture
def weft(capsys: pytest.CaptureFixture[str]) -> Weft:
    def run(*words: object) -> tuple[int, str, str]:
        code = cli.main([str(word) for word in words])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def fresh(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "weft", *words], capture_output=True, text=True, timeout=120, **options
    )


# ---- help and usage --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_help_of_every_command_shows_an_example(command: str, weft: Weft) -> None:
    code, out, err = weft(command, "--help")
    assert (code, err) == (0, "")
    assert f"example:\n  weft {command}" in out
    assert "--json" in out


def test_help_names_every_command(weft: Weft) -> None:
    code, out, _ = weft("--help")
    assert code == 0
    assert all(f"\n    {command} " in out for command in cli.COMMANDS)
    assert weft("--version")[1].startswith("weft ")


def test_no_command_is_a_usage_error_that_shows_the_help(weft: Weft) -> None:
    code, out, _ = weft()
    assert code == 2
    assert "commands:" in out


USAGE = {
    "command": (["chek", "x"], "error: there is no command chek; did you mean 'check'?"),
    "foreign command": (["frobnicate"], "error: there is no command frobnicate; commands are compile, run, verify,"),
    "option": (["list", "--jsn"], "error: weft list has no option --jsn; did you mean '--json'?"),
    "abbreviated option": (["run", "tiny", "--until"], "error: weft run has no option --until"),
    "extra argument": (["check", "lloyd", "soft_kmeans"], "error: unexpected argument soft_kmeans"),
    "missing argument": (["compile"], "error: the following arguments are required: SPEC"),
    "choice": (["inspect", "lloyd", "--stage", "irr"], "error: argument --stage: invalid choice: 'irr'"),
    "number": (["run", "lloyd", "--layers", "two"], "error: argument --layers: 'two' is not a whole number from 0"),
    "contradiction": (
        ["run", "lloyd", "--layers", "2", "--until-stable"],
        "error: argument --until-stable: not allowed",
    ),
    "unknown spec": (
        ["check", "lloyt"],
        "error: there is no spec lloyt: neither a built-in spec nor a file; did you mean",
    ),
    "missing file": (["check", "no/such.weft"], "error: there is no spec no/such.weft: no such file"),
    "missing model": (["inspect", "no.safetensors"], "error: there is no model file no.safetensors"),
    "model for a spec": (["check", "no.safetensors"], "error: no.safetensors is a model; a spec is wanted here"),
    "definition": (["compile", "lloyd", "-D", "k"], "error: -D k: write a name and a value, as in -D k=5"),
    "definition twice": (["compile", "lloyd", "-D", "k=1", "-D", "k=2"], "error: -D k is given twice (1 and 2)"),
    "dimension": (["compile", "lloyd", "-D", "k=2.5"], "error: -D k=2.5: a dimension is a whole number from 1"),
    "parameter": (
        ["compile", "soft_kmeans", "-D", "gamma=a"],
        "error: -D gamma=a: a parameter is a number such as 0.5",
    ),
    "unknown definition": (
        ["compile", "soft_kmeans", "-D", "gama=1"],
        "error: -D gama: soft_kmeans has no dimension or parameter of that name; did you mean 'gamma'?",
    ),
    "foreign definition": (
        ["compile", "soft_kmeans", "-D", "temperature=1"],
        "error: -D temperature: soft_kmeans has no dimension or parameter of that name; "
        "it has dimensions k, d and parameters gamma",
    ),
    "missing dimensions": (["compile", "lloyd", "-D", "k=2"], "error: lloyd needs the dimension d"),
    "parameter out of range": (
        ["compile", "soft_kmeans", "-D", "gamma=0", "-D", "d=1", "-D", "k=1"],
        "error: the parameter gamma must be > 0, not 0",
    ),
    "ending of a model": (
        ["compile", "lloyd", "-D", "d=1", "-D", "k=1", "-o", "m.bin"],
        "error: -o m.bin: the name of a",
    ),
    "folder of a model": (
        ["compile", "lloyd", "-D", "d=1", "-D", "k=1", "-o", "no/m.safetensors"],
        "error: there is no folder no to put m.safetensors into",
    ),
    "name of a new spec": (["new", "sum"], "error: 'sum' cannot be the name of an algorithm"),
    "folder of a new spec": (
        ["new", "mine", "-o", "no/mine.weft"],
        "error: there is no folder no to put mine.weft into",
    ),
    "control characters": (["check", "a\x1b[31m"], "error: there is no spec a\\x1b[31m"),
}


@pytest.mark.parametrize("case", USAGE)
def test_usage_errors(case: str, weft: Weft, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words, message = USAGE[case]
    code, out, err = weft(*words)
    assert code == 2
    assert out == ""
    assert err.startswith(message)
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_definitions() -> None:
    given = definitions(["k=5", " tau = 1/8 ", "g=-2e3"])
    assert split_definitions(given, "s", ["k"], ["tau", "g"]) == ({"k": 5}, {"tau": 0.125, "g": -2000.0})
    for value in ("nan", "inf", "1_0", "1/0", "", "0x10"):
        with pytest.raises(UsageError):
            split_definitions(definitions([f"tau={value}"]), "s", [], ["tau"])


def test_every_style_is_an_option_that_help_explains(weft: Weft) -> None:
    assert set(STYLE_HELP) == set(CHOICES)
    out = weft("compile", "--help")[1]
    assert all(f"--{name} {{{','.join(values)}}}" in out for name, values in CHOICES.items())


# ---- list, check, new ------------------------------------------------------------------------------------------------


def test_list(weft: Weft) -> None:
    code, out, _ = weft("list")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == list(names())
    data = json.loads(weft("list", "--json")[1])
    assert [spec["name"] for spec in data["specs"]] == list(names())
    assert all(spec["doc"] for spec in data["specs"])


@pytest.mark.parametrize("name", names())
def test_built_in_specs_check(name: str, weft: Weft) -> None:
    code, out, err = weft("check", name)
    assert (code, err) == (0, "")
    assert out.startswith(f"{name} is fine: tokens ")


def test_check_says_what_a_spec_declares(weft: Weft, tmp_path: Path) -> None:
    path = tmp_path / "tiny.weft"
    path.write_text(GOOD)
    assert (
        weft("check", path)[1] == "tiny is fine: tokens points (open); inputs x[i] : R; 1 step per layer; outputs x\n"
    )
    data = json.loads(weft("check", path, "--json")[1])
    assert (data["ok"], data["sets"], data["inputs"]) == (True, {"points": "open"}, ["x[i] : R"])


def test_check_reports_all_problems(weft: Weft, tmp_path: Path) -> None:
    path = tmp_path / "tiny.weft"
    path.write_text(BAD)
    code, out, err = weft("check", path)
    assert (code, out) == (1, "")
    assert err.count("error[") == 2
    assert "tiny.weft:5:10" in err
    assert "tiny.weft:5:18" in err
    code, out, _ = weft("check", path, "--json")
    data = json.loads(out)
    assert code == 1
    assert data["ok"] is False
    assert [(p["line"], p["column"], p["end_column"]) for p in data["problems"]] == [(5, 10, 15), (5, 18, 23)]


NO_FORM = """algorithm far "a kernel of the distance, which no attention computes between open sets"
tokens i, l in points
inputs x[i] : R^d, h[i] : R
param width > 0, share in (0, 1)
layer
  h[i] = sum[l] softmax[l](-|x[i] - x[l]|) * h[l]
outputs h
"""


def test_check_also_finds_what_has_no_attention_form(weft: Weft, tmp_path: Path) -> None:
    path = tmp_path / "far.weft"
    path.write_text(NO_FORM)
    code, out, err = weft("check", path)
    assert (code, out) == (1, "")
    assert err.startswith("error[L")
    assert "far.weft:6:" in err
    path.write_text(NO_FORM.replace("(-|x[i] - x[l]|)", "(-|x[i] - x[l]|^2 / (width + share))"))
    assert weft("check", path)[0] == 0


def test_a_refused_spec_is_refused_by_every_command(weft: Weft, tmp_path: Path) -> None:
    path = tmp_path / "tiny.weft"
    path.write_text(BAD)
    for command in ("compile", "run", "verify", "inspect"):
        code, out, err = weft(command, path)
        assert (code, out) == (1, ""), command
        assert err.startswith("error["), command


def test_new_writes_a_spec_that_checks(weft: Weft, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, _ = weft("new", "mine")
    assert code == 0
    assert out.startswith("wrote mine.weft; try: weft check mine.weft")
    assert weft("check", "mine.weft")[0] == 0
    assert weft("check", "mine")[2] == "error: there is no spec mine: did you mean the file mine.weft?\n"
    code, _, err = weft("new", "mine")
    assert code == 2
    assert err.startswith("error: mine.weft exists; add --force")
    assert weft("new", "mine", "--force")[0] == 0
    assert weft("new", "mine", "-o", "other.weft")[0] == 0
    assert json.loads(weft("new", "mine", "-o", "-", "--json")[1])["text"] == starter("mine", "mine.weft")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mine.weft", "other.weft"]


def test_starter_spec_uses_what_a_beginner_needs() -> None:
    spec = check(parse(Source("mine.weft", starter("mine", "mine.weft")))).spec
    assert spec.params
    assert spec.objective is not None
    assert spec.examples
    assert any(field.init for field in spec.inputs)


@pytest.mark.parametrize("name", ["sum", "9lives", "a b", "a\nb", 'x"', "", "é", "-", "a/b"])
def test_names_that_no_algorithm_can_have(name: str) -> None:
    with pytest.raises(UsageError):
        starter(name, "x.weft")


# ---- compile, inspect ------------------------------------------------------------------------------------------------


def test_compile_tells_what_it_made(weft: Weft, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    code, out, err = weft("compile", "lloyd", "-D", "d=2", "-D", "k=3", "-o", path)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "lloyd with k = 3, d = 2"
    assert lines[1].startswith("  stream points: any number of tokens, width ")
    assert lines[2].startswith("  stream centers: 3 tokens, width ")
    assert "2 heads, 0 feed-forwards in 2 steps" in out
    assert lines[-1].startswith(f"wrote {path} (")
    assert [p.name for p in tmp_path.iterdir()] == ["m.safetensors"]


def test_compile_json_and_styles(weft: Weft, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = json.loads(weft("compile", "lloyd", "-Dd=2", "-Dk=3", "--scores", "dot", "--layers", "4", "--json")[1])
    assert (data["file"], data["layers"], data["dims"]) == ("lloyd.safetensors", 4, {"k": 3, "d": 2})
    assert data["bytes"] == (tmp_path / "lloyd.safetensors").stat().st_size
    assert data["options"]["scores"] == "dot"
    assert data["ffns"] > 0  # dot products need the squares of the centers, kept by a feed-forward
    points, centers = data["streams"]
    assert (points["size"], centers["size"]) == (None, 3)
    assert sum(slot["width"] for slot in centers["slots"]) == centers["width"]


def test_conditions_are_told_in_words(weft: Weft, tmp_path: Path) -> None:
    words = ("lloyd", "-D", "d=2", "-D", "k=2", "--erase", "attention")
    told = "the tokens of points are pairwise distinct in x"
    code, out, _ = weft("compile", *words, "-o", tmp_path / "m.safetensors")
    assert code == 0
    assert f"equals the spec when {told}" in out
    _, out, _ = weft("compile", *words, "-o", tmp_path / "m.safetensors", "--json")
    assert json.loads(out)["conditions"][0].startswith(told)
    _, out, _ = weft("inspect", tmp_path / "m.safetensors", "--stage", "ir")
    assert f"equals the spec when {told}" in out


def test_unrolled_weights_are_counted_per_layer(weft: Weft, tmp_path: Path) -> None:
    words = ["compile", "lloyd", "-Dd=2", "-Dk=3", "--layers", "4", "--json", "-o", tmp_path / "m.safetensors"]
    shared, unrolled = (json.loads(weft(*words, "--weights", kind)[1]) for kind in ("shared", "unrolled"))
    counts = ("heads", "ffns", "steps", "layers")
    assert [shared[name] for name in counts] == [unrolled[name] for name in counts]
    assert unrolled["bytes"] > shared["bytes"]


def test_file_sizes() -> None:
    assert [file_size(n) for n in (12, 1234, 4_560_000, 7_890_000_000)] == ["12 bytes", "1.2 kB", "4.6 MB", "7.9 GB"]


@pytest.mark.parametrize("stage", ["syntax", "graph", "normal", "ir", "weights", "plan"])
def test_inspect_prints_every_stage(stage: str, weft: Weft, tmp_path: Path) -> None:
    words = ["inspect", "lloyd", "-D", "d=2", "-D", "k=3", "--stage", stage]
    code, out, err = weft(*words)
    assert (code, err) == (0, "")
    assert len(out.splitlines()) > 3
    assert "\x1b" not in out
    assert json.loads(weft(*words, "--json")[1])["text"] + "\n" == out


def test_inspect_of_a_model_shows_the_same_as_of_its_spec(weft: Weft, tmp_path: Path) -> None:
    sizes = ["-D", "d=2", "-D", "k=3"]
    weft("compile", "lloyd", *sizes, "--scores", "dot", "-o", tmp_path / "m.safetensors")
    for stage in ("graph", "normal", "weights"):
        of_model = weft("inspect", tmp_path / "m.safetensors", "--stage", stage)
        assert of_model[0] == 0
        assert of_model == weft("inspect", "lloyd", *sizes, "--scores", "dot", "--stage", stage)
    code, _, err = weft("inspect", tmp_path / "m.safetensors", "-D", "k=4")
    assert code == 2
    assert err.startswith("error: -D k=4: this model was compiled with k = 3; compile the spec anew")


def test_inspect_needs_dimensions_for_weights(weft: Weft) -> None:
    code, _, err = weft("inspect", "lloyd", "--stage", "weights")
    assert code == 2
    assert err.startswith("error: lloyd needs the dimensions")


# ---- what goes wrong -------------------------------------------------------------------------------------------------


def broken(error: BaseException) -> Callable[[Any], int]:
    def run(options: Any) -> int:
        raise error

    return run


def test_unexpected_errors_ask_for_a_report(weft: Weft, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_list, "run", broken(KeyError("\x1boops")))
    code, out, err = weft("list")
    assert (code, out) == (3, "")
    assert err == (
        "error: unexpected KeyError: '\\x1boops'; this is a bug in weft, please report it (--debug shows where)\n"
    )
    for words in (["list", "--debug"], ["--debug", "list"]):
        assert "Traceback" in weft(*words)[2]


EXPECTED = {
    "weft": (InputError("no\x07 good"), 1, "error: no\\x07 good\n"),
    "usage": (UsageError("no"), 2, "error: no\n"),
    "operating system": (PermissionError(13, "Permission denied", "a\x1bb"), 1, "error: a\\x1bb: Permission denied\n"),
    "memory": (MemoryError(), 1, "error: out of memory; use smaller dimensions or fewer rows\n"),
    "interrupt": (KeyboardInterrupt(), 130, "interrupted\n"),
}


@pytest.mark.parametrize("case", EXPECTED)
def test_expected_errors_are_one_line(case: str, weft: Weft, monkeypatch: pytest.MonkeyPatch) -> None:
    error, code, text = EXPECTED[case]
    monkeypatch.setattr(command_list, "run", broken(error))
    assert weft("list") == (code, "", text)


def test_runtime_errors_are_expected(weft: Weft, monkeypatch: pytest.MonkeyPatch) -> None:
    from weft_runtime.errors import RunError

    monkeypatch.setattr(command_list, "run", broken(RunError("x has a NaN")))
    assert weft("list") == (1, "", "error: x has a NaN\n")


def test_errors_are_json_when_asked_for(weft: Weft) -> None:
    code, out, err = weft("compile", "lloyd", "--json")
    data = json.loads(out)
    assert code == 2
    assert data["ok"] is False
    assert data["error"].startswith("lloyd needs the dimensions")
    assert err.startswith("error: lloyd needs the dimensions")


# ---- the process -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [["--help"], ["list"], ["check", "lloyd"], ["run", "--help"]], ids=" ".join)
def test_light_commands_import_no_heavy_library(words: list[str]) -> None:
    code = (
        "import sys; from weft.cli import main; code = main(sys.argv[1:]); "
        "heavy = {'torch', 'ot', 'sklearn', 'scipy', 'pandas', 'pyarrow'} & set(sys.modules); "
        "print(sorted(heavy), file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "[]\n")


def test_a_reader_that_goes_away_is_no_error_message() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "weft", "inspect", "lloyd", "--stage", "syntax"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    error = process.stderr.read().decode()
    assert (process.wait(timeout=60), error) == (141, "")


def test_a_terminal_without_unicode_shows_escapes(tmp_path: Path) -> None:
    path = tmp_path / "größe.weft"
    done = fresh("new", "mine", "-o", str(path), env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, "")
    assert "gr\\xf6\\xdfe.weft" in done.stdout


def test_the_console_script_and_the_module_are_the_same(weft: Weft) -> None:
    script = Path(sys.executable).with_name("weft")
    done = subprocess.run([script, "list"], capture_output=True, text=True, timeout=60)
    assert done.stdout == fresh("list").stdout == weft("list")[1]
