"""The command line: forms, exit codes, messages. Everything runs in this process unless the process itself matters."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from weftc import cli
from weftc.commands import list as command_list
from weftc.commands.compile import file_size
from weftc.commands.explain import explanations
from weftc.commands.help import page, topics
from weftc.commands.new import starter
from weftc.commands.options import STYLE_HELP, UsageError, definitions, split_definitions
from weftc.commands.telling import tell
from weftc.core.errors import InputError
from weftc.core.source import Source
from weftc.core.styles import CHOICES
from weftc.files.locate import builtin, catalogue, names
from weftc.language.check.check import check
from weftc.language.parse.parse import parse
from weftc.tools.doc_tables.codes import codes
from weftc.version import VERSION

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
def weftc(capsys: pytest.CaptureFixture[str]) -> Weft:
    def run(*words: object) -> tuple[int, str, str]:
        code = cli.main([str(word) for word in words])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def fresh(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "weftc", *words], capture_output=True, text=True, timeout=120, **options
    )


# ---- help and usage --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_help_of_every_command_shows_an_example(command: str, weftc: Weft) -> None:
    code, out, err = weftc(command, "--help")
    assert (code, err) == (0, "")
    assert f"example:\n  weftc {command}" in out
    assert ("--json" in out) is (command != "lsp")  # what that one writes is a protocol


def test_help_names_every_command(weftc: Weft) -> None:
    code, out, _ = weftc("--help")
    assert code == 0
    assert all(re.search(rf"^    {command}\b", out, re.M) for command in cli.COMMANDS)
    assert weftc("--version")[1].startswith("weftc ")


def test_no_command_is_a_usage_error_that_shows_the_help(weftc: Weft) -> None:
    code, out, _ = weftc()
    assert code == 2
    assert "commands:" in out


USAGE = {
    "command": (["chek", "x"], "error: there is no command chek; did you mean 'check'?"),
    "foreign command": (["frobnicate"], "error: there is no command frobnicate; commands are compile, run, verify,"),
    "option": (["list", "--jsn"], "error: weftc list has no option --jsn; did you mean '--json'?"),
    "abbreviated option": (["run", "tiny", "--until"], "error: weftc run has no option --until"),
    "extra argument": (["show", "lloyd", "soft_kmeans"], "error: unexpected argument soft_kmeans"),
    "spec without a command": (["lloyd"], "error: there is no command lloyd; to run it: weftc run lloyd"),
    "another name of a spec": (
        ["check", "K-means"],
        "error: there is no spec K-means: neither a built-in spec nor a file; did you mean 'lloyd'?",
    ),
    "a name of many specs": (
        ["check", "clustering"],
        "error: there is no spec clustering: neither a built-in spec nor a file; weftc list clustering shows ",
    ),
    "word of no spec": (["list", "blockchain"], "error: no built-in spec fits blockchain; weftc list names them all"),
    "unknown code": (["explain", "C999"], "error: there is no code C999; "),
    "unknown topic": (["help", "dats"], "error: there is no topic dats; did you mean 'data'?"),
    "copy of nothing": (["new", "mine", "--from", "lloyt"], "error: there is no spec lloyt"),
    "copy under a word of the language": (["new", "sum", "--from", "lloyd"], "error: 'sum' cannot be the name"),
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
def test_usage_errors(case: str, weftc: Weft, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words, message = USAGE[case]
    code, out, err = weftc(*words)
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


def test_every_style_is_an_option_that_help_explains(weftc: Weft) -> None:
    assert set(STYLE_HELP) == set(CHOICES)
    out = weftc("compile", "--help")[1]
    assert all(f"--{name} {{{','.join(values)}}}" in out for name, values in CHOICES.items())


# ---- list, check, new ------------------------------------------------------------------------------------------------


def test_list(weftc: Weft) -> None:
    listed = sorted(entry.name for entry in catalogue())
    code, out, _ = weftc("list")
    assert code == 0
    assert sorted(line.split()[0] for line in out.splitlines() if line.startswith("  ")) == listed
    subjects = [line for line in out.splitlines() if line[:1].strip()]
    assert "clustering" in subjects
    assert subjects[-1] == "other"
    data = json.loads(weftc("list", "--json")[1])
    assert sorted(spec["name"] for spec in data["specs"]) == listed
    assert all(spec["doc"] for spec in data["specs"])
    assert {spec["subject"] for spec in data["specs"]} == set(subjects)


@pytest.mark.parametrize("name", names())
def test_built_in_specs_check(name: str, weftc: Weft) -> None:
    code, out, err = weftc("check", name)
    assert (code, err) == (0, "")
    assert out.startswith(f"{name} is fine: tokens ")


def test_check_says_what_a_spec_declares(weftc: Weft, tmp_path: Path) -> None:
    path = tmp_path / "tiny.weft"
    path.write_text(GOOD)
    assert (
        weftc("check", path)[1] == "tiny is fine: tokens points (open); inputs x[i] : R; 1 step per layer; outputs x\n"
    )
    data = json.loads(weftc("check", path, "--json")[1])
    assert (data["ok"], data["sets"], data["inputs"]) == (True, {"points": "open"}, ["x[i] : R"])


def test_check_reports_all_problems(weftc: Weft, tmp_path: Path) -> None:
    path = tmp_path / "tiny.weft"
    path.write_text(BAD)
    code, out, err = weftc("check", path)
    assert (code, out) == (1, "")
    assert err.count("error[") == 2
    assert "tiny.weft:5:10" in err
    assert "tiny.weft:5:18" in err
    code, out, _ = weftc("check", path, "--json")
    data = json.loads(out)
    assert code == 1
    assert data["ok"] is False
    assert [(p["line"], p["column"], p["end_column"]) for p in data["problems"]] == [(5, 10, 15), (5, 18, 23)]


NO_FORM = """algorithm far "a kernel that has no value at 0, which no attention computes between open sets"
tokens i, l in points
inputs x[i] : R^d, h[i] : R
param width > 0, share in (0, 1)
layer
  h[i] = mean[l] (h[l] - h[i]) / |x[i] - x[l]|^2 where l != i else 0
outputs h
"""


def test_check_also_finds_what_has_no_attention_form(weftc: Weft, tmp_path: Path) -> None:
    path = tmp_path / "far.weft"
    path.write_text(NO_FORM)
    code, out, err = weftc("check", path)
    assert (code, out) == (1, "")
    assert err.startswith("error[L")
    assert "far.weft:6:" in err
    path.write_text(NO_FORM.replace("|x[i] - x[l]|^2", "(|x[i] - x[l]|^2 + width + share)"))
    assert weftc("check", path)[0] == 0


def test_a_refused_spec_is_refused_by_every_command(weftc: Weft, tmp_path: Path) -> None:
    path = tmp_path / "tiny.weft"
    path.write_text(BAD)
    for command in ("compile", "run", "verify", "inspect"):
        code, out, err = weftc(command, path)
        assert (code, out) == (1, ""), command
        assert err.startswith("error["), command


def test_new_writes_a_spec_that_checks(weftc: Weft, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, _ = weftc("new", "mine")
    assert code == 0
    assert out.startswith("wrote mine.weft; try: weftc check mine.weft")
    assert weftc("check", "mine.weft")[0] == 0
    assert weftc("check", "mine")[2] == "error: there is no spec mine: did you mean the file mine.weft?\n"
    code, _, err = weftc("new", "mine")
    assert code == 2
    assert err.startswith("error: the file mine.weft exists; add --force")
    assert weftc("new", "mine", "--force")[0] == 0
    assert weftc("new", "mine", "-o", "other.weft")[0] == 0
    assert json.loads(weftc("new", "mine", "-o", "-", "--json")[1])["text"] == starter("mine", "mine.weft")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mine.weft", "other.weft"]


def test_new_copies_another_spec_under_a_new_name(weftc: Weft, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, _ = weftc("new", "mine", "--from", "lloyd")
    assert (code, out) == (0, "wrote mine.weft; try: weftc check mine.weft, weftc run mine.weft points.csv -D k=3\n")
    copy, original = Path("mine.weft").read_text(), builtin("lloyd").text
    assert copy.startswith("algorithm mine ")
    assert copy.split("\n", 1)[1].strip() == original.partition("# keywords")[0].split("\n", 1)[1].strip()
    assert weftc("check", "mine.weft")[0] == 0
    assert weftc("new", "again", "--from", "mine.weft")[0] == 0
    assert weftc("check", "again.weft")[1].startswith("again is fine")


@pytest.mark.parametrize("name", names())
def test_every_spec_can_be_copied_and_shown(name: str, weftc: Weft) -> None:
    assert weftc("show", name)[1] == builtin(name).text
    code, out, _ = weftc("new", "other", "--from", name, "-o", "-")
    assert code == 0
    assert check(parse(Source("other.weft", out))).spec.name == "other"


def test_show_prints_the_spec_inside_a_model(weftc: Weft, tmp_path: Path) -> None:
    weftc("compile", "sort", "-o", tmp_path / "m.safetensors")
    assert weftc("show", tmp_path / "m.safetensors")[1] == builtin("sort").text
    assert json.loads(weftc("show", "sort", "--json")[1]) == {
        "ok": True,
        "name": "sort",
        "text": builtin("sort").text,
        "warnings": [],
    }


def test_list_finds_specs_by_their_keywords(weftc: Weft) -> None:
    found = [entry["name"] for entry in json.loads(weftc("list", "pca", "--json")[1])["specs"]]
    assert found == ["kernel_pca", "power_iteration", "spectral_init"]
    found = [entry["name"] for entry in json.loads(weftc("list", "optimal transport", "sort", "--json")[1])["specs"]]
    assert found == ["sort"]
    assert all(entry.keywords for entry in catalogue())


def test_check_of_several_files_and_of_standard_input(
    weftc: Weft, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bad.weft").write_text("algorithm bad\ntokens i of points\n")
    code, out, err = weftc("check", "lloyd", tmp_path / "bad.weft", tmp_path / "none.weft", "sort")
    assert code == 1
    assert [line.split(" is fine")[0] for line in out.splitlines()] == ["lloyd", "sort"]
    assert "bad.weft" in err
    assert "none.weft: no such file" in err
    data = json.loads(weftc("check", "lloyd", tmp_path / "bad.weft", "--json")[1])
    assert [entry["ok"] for entry in data["files"]] == [True, False]
    assert data["files"][1]["problems"][0]["code"].startswith("P")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(builtin("sort").text.encode())))
    assert weftc("check", "-")[1].startswith("sort is fine")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"algorithm bad\n")))
    assert "standard input:" in weftc("check", "-")[2]


# ---- explain, help, info, completion ---------------------------------------------------------------------------------


def test_explain_shows_a_real_case_of_every_code(weftc: Weft) -> None:
    assert set(explanations()) == set(codes())
    code, out, _ = weftc("explain", "c230")
    assert code == 0
    assert out.startswith("C230, found by the checker")
    assert "error[C230]: " in out
    assert "```" not in out
    assert len(weftc("explain")[1].splitlines()) == len(codes())


def test_help_shows_every_topic(weftc: Weft) -> None:
    out = weftc("help")[1]
    assert all(f"\n  {topic} " in out for topic in topics())
    for topic in topics():
        assert weftc("help", topic)[1] == page(topic)
        assert topic == "language" or len(page(topic).splitlines()) < 40  # a screen or two
    assert weftc("help", "run")[1] == weftc("run", "--help")[1]


def test_options_that_topics_name_exist(weftc: Weft) -> None:
    known = set(re.findall(r"--[a-z][a-z-]+", "".join(weftc(command, "--help")[1] for command in cli.COMMANDS)))
    for topic in topics():
        assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", page(topic))) <= known, topic


def test_info_says_what_runs_here(weftc: Weft) -> None:
    data = json.loads(weftc("info", "--json")[1])["info"]
    assert data["weftc"].startswith(VERSION)
    assert {"python", "processor", "instructions", "torch", "libraries"} <= set(data)
    assert "pyarrow" in data["libraries"]


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("weftc ru", {"run"}),
        ("weftc run --missing ", {"error", "drop", "mean"}),
        ("weftc show lloyd", {"lloyd", "lloyd_printed", "lloyd_split"}),
        ("weftc compile --sco", {"--scores"}),
    ],
)
def test_bash_completes(line: str, wanted: set[str], weftc: Weft, tmp_path: Path) -> None:
    words = line.split(" ")
    script = weftc("completion", "bash")[1]
    script += f"\nCOMP_WORDS=({' '.join(repr(w) for w in words)}); COMP_CWORD={len(words) - 1}; _weftc\n"
    script += 'printf "%s\\n" "${COMPREPLY[@]}"\n'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert (set(done.stdout.split()), done.stderr) == (wanted, "")


def test_completions_for_other_shells_name_every_command(weftc: Weft) -> None:
    for shell in ("zsh", "fish"):
        out = weftc("completion", shell)[1]
        assert all(re.search(rf"\b{command}\b", out) for command in cli.COMMANDS)


# ---- warnings --------------------------------------------------------------------------------------------------------


ARITHMETIC = "overflow encountered in multiply"  # says nothing to people: what is undefined is an error with a place


def test_warnings_of_libraries_are_sentences(weftc: Weft, monkeypatch: pytest.MonkeyPatch) -> None:
    def warn(options: Any) -> int:
        warnings.warn("the sky\n  falls", RuntimeWarning, stacklevel=1)
        warnings.warn("the sky\n  falls", RuntimeWarning, stacklevel=2)
        warnings.warn(ARITHMETIC, RuntimeWarning, stacklevel=2)
        tell(options, {"ok": True, "warnings": ["mine"]}, "done")
        return 0

    monkeypatch.setattr(cli.COMMANDS["list"], "run", warn)
    assert weftc("list") == (0, "done\n", "warning: the sky falls\n")
    code, out, err = weftc("list", "--json")
    assert (code, json.loads(out)["warnings"], err) == (0, ["mine", "the sky falls", ARITHMETIC], "")


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


def test_compile_tells_what_it_made(weftc: Weft, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    code, out, err = weftc("compile", "lloyd", "-D", "d=2", "-D", "k=3", "-o", path)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "lloyd with k = 3, d = 2"
    assert lines[1].startswith("  stream points: any number of tokens, width ")
    assert lines[2].startswith("  stream centers: 3 tokens, width ")
    assert "2 heads, 0 feed-forwards in 2 steps" in out
    assert lines[-1].startswith(f"wrote {path} (")
    assert [p.name for p in tmp_path.iterdir()] == ["m.safetensors"]


def test_compile_json_and_styles(weftc: Weft, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = json.loads(weftc("compile", "lloyd", "-Dd=2", "-Dk=3", "--scores", "dot", "--layers", "4", "--json")[1])
    assert (data["file"], data["layers"], data["dims"]) == ("lloyd.safetensors", 4, {"k": 3, "d": 2})
    assert data["bytes"] == (tmp_path / "lloyd.safetensors").stat().st_size
    assert data["options"]["scores"] == "dot"
    assert data["ffns"] > 0  # dot products need the squares of the centers, kept by a feed-forward
    points, centers = data["streams"]
    assert (points["size"], centers["size"]) == (None, 3)
    assert sum(slot["width"] for slot in centers["slots"]) == centers["width"]


def test_conditions_are_told_in_words(weftc: Weft, tmp_path: Path) -> None:
    words = ("lloyd", "-D", "d=2", "-D", "k=2", "--erase", "attention")
    told = "the tokens of points are pairwise distinct in x"
    code, out, _ = weftc("compile", *words, "-o", tmp_path / "m.safetensors")
    assert code == 0
    assert f"equals the spec when {told}" in out
    _, out, _ = weftc("compile", *words, "-o", tmp_path / "m.safetensors", "--json", "--force")
    assert json.loads(out)["conditions"][0].startswith(told)
    _, out, _ = weftc("inspect", tmp_path / "m.safetensors", "--stage", "ir")
    assert f"equals the spec when {told}" in out


def test_unrolled_weights_are_counted_per_layer(weftc: Weft, tmp_path: Path) -> None:
    words = ["compile", "lloyd", "-Dd=2", "-Dk=3", "--layers", "4", "--json", "--force"]
    words += ["-o", tmp_path / "m.safetensors"]
    shared, unrolled = (json.loads(weftc(*words, "--weights", kind)[1]) for kind in ("shared", "unrolled"))
    counts = ("heads", "ffns", "steps", "layers")
    assert [shared[name] for name in counts] == [unrolled[name] for name in counts]
    assert unrolled["bytes"] > shared["bytes"]


def test_file_sizes() -> None:
    assert [file_size(n) for n in (12, 1234, 4_560_000, 7_890_000_000)] == ["12 bytes", "1.2 kB", "4.6 MB", "7.9 GB"]


@pytest.mark.parametrize("stage", ["syntax", "graph", "normal", "ir", "weights", "plan"])
def test_inspect_prints_every_stage(stage: str, weftc: Weft, tmp_path: Path) -> None:
    words = ["inspect", "lloyd", "-D", "d=2", "-D", "k=3", "--stage", stage]
    code, out, err = weftc(*words)
    assert (code, err) == (0, "")
    assert len(out.splitlines()) > 3
    assert "\x1b" not in out
    assert json.loads(weftc(*words, "--json")[1])["text"] + "\n" == out


def test_inspect_of_a_model_shows_the_same_as_of_its_spec(weftc: Weft, tmp_path: Path) -> None:
    sizes = ["-D", "d=2", "-D", "k=3"]
    weftc("compile", "lloyd", *sizes, "--scores", "dot", "-o", tmp_path / "m.safetensors")
    for stage in ("graph", "normal", "weights"):
        of_model = weftc("inspect", tmp_path / "m.safetensors", "--stage", stage)
        assert of_model[0] == 0
        assert of_model == weftc("inspect", "lloyd", *sizes, "--scores", "dot", "--stage", stage)
    code, _, err = weftc("inspect", tmp_path / "m.safetensors", "-D", "k=4")
    assert code == 2
    assert err.startswith("error: -D k=4: this model was compiled with k = 3; compile the spec anew")


def test_inspect_needs_dimensions_for_weights(weftc: Weft) -> None:
    code, _, err = weftc("inspect", "lloyd", "--stage", "weights")
    assert code == 2
    assert err.startswith("error: lloyd needs the dimensions")


# ---- what goes wrong -------------------------------------------------------------------------------------------------


def broken(error: BaseException) -> Callable[[Any], int]:
    def run(options: Any) -> int:
        raise error

    return run


def test_unexpected_errors_ask_for_a_report(weftc: Weft, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_list, "run", broken(KeyError("\x1boops")))
    code, out, err = weftc("list")
    assert (code, out) == (3, "")
    assert err == (
        "error: unexpected KeyError: '\\x1boops'; this is a bug in weftc, please report it (--debug shows where)\n"
    )
    for words in (["list", "--debug"], ["--debug", "list"]):
        assert "Traceback" in weftc(*words)[2]


EXPECTED = {
    "weftc": (InputError("no\x07 good"), 1, "error: no\\x07 good\n"),
    "usage": (UsageError("no"), 2, "error: no\n"),
    "operating system": (PermissionError(13, "Permission denied", "a\x1bb"), 1, "error: a\\x1bb: Permission denied\n"),
    "memory": (MemoryError(), 1, "error: out of memory; use smaller dimensions or fewer rows\n"),
    "interrupt": (KeyboardInterrupt(), 130, "interrupted\n"),
}


@pytest.mark.parametrize("case", EXPECTED)
def test_expected_errors_are_one_line(case: str, weftc: Weft, monkeypatch: pytest.MonkeyPatch) -> None:
    error, code, text = EXPECTED[case]
    monkeypatch.setattr(command_list, "run", broken(error))
    assert weftc("list") == (code, "", text)


def test_runtime_errors_are_expected(weftc: Weft, monkeypatch: pytest.MonkeyPatch) -> None:
    from weftc_runtime.errors import RunError

    monkeypatch.setattr(command_list, "run", broken(RunError("x has a NaN")))
    assert weftc("list") == (1, "", "error: x has a NaN\n")


def test_errors_are_json_when_asked_for(weftc: Weft) -> None:
    code, out, err = weftc("compile", "lloyd", "--json")
    data = json.loads(out)
    assert code == 2
    assert data["ok"] is False
    assert data["error"].startswith("lloyd needs the dimensions")
    assert err.startswith("error: lloyd needs the dimensions")


# ---- the process -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["list"],
        ["check", "lloyd"],
        ["run", "--help"],
        ["show", "lloyd"],
        ["help", "data"],
        ["explain", "C230"],
    ],
    ids=" ".join,
)
def test_light_commands_import_no_heavy_library(words: list[str]) -> None:
    code = (
        "import sys; from weftc.cli import main; code = main(sys.argv[1:]); "
        "heavy = {'torch', 'ot', 'sklearn', 'scipy', 'pandas', 'pyarrow'} & set(sys.modules); "
        "print(sorted(heavy), file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "[]\n")


def test_a_reader_that_goes_away_is_no_error_message() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "weftc", "inspect", "lloyd", "--stage", "syntax"],
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


def test_the_console_script_and_the_module_are_the_same(weftc: Weft) -> None:
    script = Path(sys.executable).with_name("weftc")
    done = subprocess.run([script, "list"], capture_output=True, text=True, timeout=60)
    assert done.stdout == fresh("list").stdout == weftc("list")[1]
