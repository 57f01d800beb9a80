"""`weftc bench`: tables, JSON, pages, the command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from benching import contest, measured, results, sample
from pages import ROOT
from weftc import cli
from weftc.tools.bench import page, running
from weftc.tools.bench.account import account
from weftc.tools.bench.results import Agreement
from weftc.tools.bench.specs import GROUPS
from weftc.tools.bench.tables import TextTable, closing_text, contest_table, contest_text, markdown, number
from weftc.tools.bench.workloads import NAMES


def test_table_of_a_contest() -> None:
    assert contest_text(sample().contests[0]).splitlines() == [
        "lloyd-16-64: n 1000000, d 16, k 64, T 10, gauss, float32",
        "implementation      min ms  median  CPU ms  ratio  median    CPU  wrong rows  inertia  bytes/point  runs",
        "weftc                   10      15      15     1x      1x     1x           0                    16     2",
        "scikit-learn lloyd    27.5    28.7    27.5  2.75x   1.92x  1.83x           2   +1.00%            8     2",
        "  faiss is left out: not installed",
        "  empty clusters at the end: weftc 1 (an empty cluster keeps its center)",
        "  weftc: backend planned; rows settled: bound 1,200, exact 3",
    ]


def test_targets_beside_what_was_measured() -> None:
    lines = closing_text(sample()).splitlines()
    assert lines[0] == "start"
    assert "import weftc            20      30" in lines
    (ratio,) = (line for line in lines if line.startswith("1e5..1e6, 16, 64  ") and "scikit" in line)
    assert ratio.split()[5:] == ["2.75x", "1.92x", "2.8x", "4x", "not", "met,", "not", "all", "measured", "lloyd-16-64"]
    assert "sizes are not those of the targets: the marks are an indication" in closing_text(sample())
    assert "indication" not in closing_text(replace(sample(), exact_sizes=True))
    assert lines[-1] == "that is all"


def test_markdown() -> None:
    text = markdown(sample())
    assert text.startswith(
        "### 2026-01-31\n\nabacus, 2 cores, 2 threads, Linux; python 3.\n\n```\n$ weftc bench\n```\n"
    )
    assert "| scikit-learn lloyd | 27.5 | 28.7 | 27.5 | 2.75x | 1.92x | 1.83x | 2 | +1.00% | 8 | 2 |" in text
    for table in text.split("\n\n"):
        if table.startswith("|"):
            assert len({line.count("|") for line in table.splitlines()}) == 1


def test_columns_in_which_nothing_is_said_are_left_out() -> None:
    table = TextTable(("a", "b", "c"), (("x", "", "1"), ("yy", "", "22")))
    assert table.text() == "a    c\nx    1\nyy  22"
    assert table.markdown() == "| a | c |\n| --- | ---: |\n| x | 1 |\n| yy | 22 |"
    assert contest_table(sample().contests[0]).header[0] == "implementation"
    assert [number(v) for v in (None, 0.01234, 1.236, 99.94, 123.6, 12345.0)] == [
        "",
        "0.0123",
        "1.24",
        "99.9",
        "124",
        "12,345",
    ]


def test_account() -> None:
    told = json.loads(json.dumps(account(sample())))
    assert told["ok"] is True
    ours, lloyd = told["contests"][0]["measurements"]
    assert lloyd["ratio"] == pytest.approx({"wall_min": 2.75, "wall_median": 0.2875 / 0.15, "cpu_min": 0.275 / 0.15})
    assert (ours["wall"], ours["memory_per_point"], lloyd["agreement"]["rows"]) == ([0.1, 0.2], 16.0, 2)
    assert told["targets"][0] == {
        "what": "1e5..1e6, 16, 64",
        "workloads": ["lloyd-16-64-small", "lloyd-16-64"],
        "against": ["sklearn-lloyd"],
        "must": 2.8,
        "aim": 4,
        "sense": "at least",
        "peer": "scikit-learn lloyd",
        "measured": pytest.approx(2.75),
        "median": pytest.approx(0.2875 / 0.15),
        "worst": "lloyd-16-64",
        "mark": "not met",
        "complete": False,
    }


def test_the_page_keeps_everything_but_its_block(tmp_path: Path) -> None:
    path = tmp_path / "bench.md"
    path.write_text(f"# Title\n\n{page.BEGIN}\nold \\1\n{page.END}\n\nThe end.\n")
    page.check(path)
    page.write(path, "new \\1")
    page.write(path, "newer \\1")
    assert path.read_text() == f"# Title\n\n{page.BEGIN}\n\nnewer \\1\n\n{page.END}\n\nThe end.\n"
    assert list(tmp_path.iterdir()) == [path]
    page.write(tmp_path / "fresh.md", "text")
    page.check(tmp_path / "fresh.md")


def test_the_page_of_the_project_has_its_block_and_every_workload() -> None:
    path = ROOT / "docs" / "bench.md"
    page.check(path)
    text = path.read_text(encoding="utf-8")
    assert all(f"`{name}`" in text for name in (*NAMES, *GROUPS))


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*words: object) -> tuple[int, str, str]:
        code = cli.main(["bench", *(str(word) for word in words)])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_list(run: Run) -> None:
    code, out, _ = run("--list")
    assert code == 0
    found = [line.split()[0] for line in out.splitlines() if not line.startswith((" ", "not"))]
    assert found == [*NAMES, *GROUPS, "start"]
    told = json.loads(run("--list", "--json", "--quick")[1])
    assert told["workloads"][1]["sizes"] == "n 100000, d 16, k 64, T 5, gauss, float32"


def test_wrong_words(run: Run, tmp_path: Path) -> None:
    assert run("loyd-2-10")[::2] == (2, "error: there is no workload loyd-2-10; did you mean 'lloyd-2-10'?\n")
    assert run("--profile", "start")[0] == 2
    assert run("--list", "--device", "nowhere")[0] == 0
    assert run("lloyd-2-10", "--device", "nowhere")[::2][0] == 2
    assert "--device nowhere cannot be used" in run("lloyd-2-10", "--device", "nowhere")[2]
    assert run("--scale", "0")[2].startswith("error: argument --scale: must be a number above 0")
    (tmp_path / "page.md").write_text("no block here")
    code, _, err = run("lloyd-2-10", "--quick", "--markdown", tmp_path / "page.md")
    assert code == 1
    assert "the page must hold one block" in err
    assert run("--markdown", tmp_path)[0] == 1


def test_a_whole_run(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    code, out, err = run(
        "iteration-128-256", "--quick", "--scale", 0.01, "--repeat", 2, "--threads", 1, "--json", "--markdown", path
    )
    told = json.loads(out)
    assert (code, told["ok"], told["troubles"], told["threads"]) == (0, True, [], 1)
    assert told["command"].startswith("weftc bench iteration-128-256 --quick --scale 0.01 --threads 1 --repeat 2")
    (found,) = told["contests"]
    assert [m["peer"] for m in found["measurements"]] == ["weftc-layer", "gemm"]
    ours, gemm = found["measurements"]
    assert (len(ours["wall"]), len(gemm["cpu"])) == (2, 2)
    assert gemm["ratio"]["wall_min"] == pytest.approx(min(gemm["wall"]) / min(ours["wall"]))
    assert (ours["agreement"]["rows"], ours["facts"]["labels"]) == (0, "held")
    assert told["targets"][0]["mark"] in ("aim met", "met", "not met")
    assert told["machine"]["torch"]
    assert "iteration-128-256: weftc, one layer: starts" in err
    assert "| pure GEMM (limit) |" in path.read_text()


@pytest.mark.slow
def test_what_a_certificate_costs(run: Run) -> None:
    """Compiles the kernels a second time."""
    code, out, _ = run("certificate-32-1000", "--scale", 0.05, "--repeat", 2, "--json")
    (found,) = json.loads(out)["contests"]
    assert code == 0
    assert [m["peer"] for m in found["measurements"]] == ["weftc-layer", "trusted", "certified"]
    ours, trusted, certified = found["measurements"]
    settled = [m["facts"]["tiers"] for m in found["measurements"]]
    assert settled[1]["bound"] == 1000  # the masks of 1,000 centers alone: no row was in doubt
    assert trusted["ratio"]["wall_min"] > 0
    assert (ours["agreement"]["rows"], certified["agreement"]["rows"]) == (0, 0)


def test_contests_are_told_one_by_one(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    made = sample().contests[0]
    monkeypatch.setattr(running, "hold", lambda *_: made)
    code, out, _ = run("lloyd-16-64", "--threads", 1)
    assert code == 0
    assert out.startswith(contest_text(made) + "\n\ntargets (wall time, fastest runs)\n")
    assert out.endswith("\n$ weftc bench lloyd-16-64 --threads 1\n")


def test_exit_code_tells_of_wrong_answers(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = contest("lloyd-2-10", measured("weftc", [1.0], agreement=Agreement(1, trouble="1 label is wrong")))
    monkeypatch.setattr(running, "bench", lambda *_, **__: results(wrong))
    code, out, err = run("lloyd-2-10", "--json")
    assert (code, json.loads(out)["ok"]) == (1, False)
    assert err.endswith("error: lloyd-2-10: weftc: 1 label is wrong\n")


def test_help_imports_no_tensor_library() -> None:
    code = "import sys; from weftc.cli import main; main(['bench', '--list']); print('torch' in sys.modules)"
    env = {**os.environ, "PYTHONPATH": ""}
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert found.stdout.splitlines()[-1] == "False"
