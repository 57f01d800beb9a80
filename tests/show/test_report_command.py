"""`weftc report` on the command line: files, refusals, summaries; and nothing from a file is trusted."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from playing import Play
from report_pages import Page, check_page
from weftc import cli

Weft = Callable[..., tuple[int, str, str]]

POINTS = "height,weight\n0,0\n0,1\n4,0\n4,1\n9,9\n"
EVIL = "</script><img src=x onerror=alert(1)>\u202e\u2066\x1b[31m\x07\x00"
HOSTILE = """# </script></code><img src=x onerror=alert(1)> <!-- \u202e\u2028\x1b[31m
algorithm hostile "</title><svg onload=alert(1)> & \u202edoc\x07"
tokens i in points
       j in centers : k
inputs x[i] : R^d   # "><script>alert(1)</script>
       c[j] : R^d init first(x)
layer
  y[i,j] = argmin[j] |x[i] - c[j]|^2   # <b>&amp;</b>
  then
  c[j] = mean[i] x[i] where y[i,j] else c[j]
outputs centers = c, labels = y
example "</pre><script>alert(1)</script>"
  x = [0], [1]    c = [0]    layers 1
  centers = [1/2]
"""


@pytest.fixture
def weftc(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Weft:
    monkeypatch.chdir(tmp_path)
    Path("points.csv").write_text(POINTS)

    def run(*words: object) -> tuple[int, str, str]:
        code = cli.main([str(word) for word in words])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_one_command_from_points_to_a_page(weftc: Weft) -> None:
    code, out, err = weftc("report", "lloyd", "--data", "points.csv", "-D", "k=2", "--cases", 2, "-o", "page.html")
    assert (code, err) == (0, "")
    assert "verdict    proved" in out
    assert "page.html" in out
    page = check_page(Path("page.html").read_text(encoding="utf-8"))
    assert page.data["plane"]["axes"] == ["height", "weight"]
    assert "points.csv" in page.text
    assert "weftc report lloyd -D k=2 --data points.csv" in page.text
    assert [path.name for path in Path().iterdir() if path.name.startswith(".")] == []


def test_json_summary_and_default_name(weftc: Weft) -> None:
    code, out, _ = weftc(
        "report", "lloyd", "--data", "points.csv", "-D", "k=2", "--layers", 1, "--no-verify", "--json", "--seed", 3
    )
    summary = json.loads(out)
    assert code == 0
    assert summary["file"] == "lloyd-report.html"
    assert summary["bytes"] == Path("lloyd-report.html").stat().st_size
    assert (summary["layers"], summary["stable"], summary["verdict"]) == (1, None, None)
    assert summary["drawn"] == {"points": 5, "centers": 2}


def test_a_model_file_and_its_start(weftc: Weft) -> None:
    assert weftc("compile", "lloyd", "-D", "d=2", "-D", "k=2", "--layers", 3, "-o", "model.safetensors")[0] == 0
    Path("start.csv").write_text("0,0\n4,4\n")
    words = (
        "report",
        "model.safetensors",
        "--data",
        "points.csv",
        "--init",
        "start.csv",
        "--no-verify",
        "-o",
        "a.html",
    )
    code, out, _ = weftc(*words)
    assert code == 0, out
    assert "3 layers" in out
    code, _, err = weftc(*words, "-D", "k=3", "--force")
    assert code == 2
    assert "compiled with k = 2" in err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["-o", "points.csv"], "the file points.csv exists; add --force"),
        (["-o", "missing/page.html"], "there is no folder missing"),
        (["-o", "."], "is a folder; name the file to write"),
        (["--layers", "2", "--limit", "3"], "--limit is for runs that end by themselves"),
        (["--weights", "unrolled", "--until-stable"], "cannot run until stable"),
        (["-D", "tau=3"], "no dimension or parameter of that name"),
    ],
)
def test_mistakes_are_told_before_any_work(weftc: Weft, words: list[str], told: str) -> None:
    code, out, err = weftc("report", "lloyd", "--data", "points.csv", "-D", "k=2", "--no-verify", *words)
    assert code == 2
    assert out == ""
    assert told in err
    assert Path("points.csv").read_text() == POINTS
    assert not list(Path().glob("*.html"))


def test_existing_file_needs_force(weftc: Weft) -> None:
    Path("page.html").write_text("mine")
    words = ("report", "lloyd", "--data", "points.csv", "-D", "k=2", "--no-verify", "-o", "page.html")
    assert weftc(*words)[0] == 2
    assert Path("page.html").read_text() == "mine"
    assert weftc(*words, "--force")[0] == 0
    assert Path("page.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_data_that_do_not_fit_leave_nothing_behind(weftc: Weft) -> None:
    Path("bad.csv").write_text("1,2\n3,nan\n")
    code, _, err = weftc("report", "lloyd", "--data", "bad.csv", "-D", "k=2", "-o", "page.html")
    assert code in (1, 2)
    assert "bad.csv" in err
    assert not Path("page.html").exists()


def test_failed_verification_is_exit_code_1(weftc: Weft) -> None:
    import weftc as package

    made = package.compile("lloyd", dims={"d": 2, "k": 2})
    name = next(name for name in made.tensors if name.endswith("y.l2.0.c"))
    tensors = {**made.tensors, name: np.array(1.0)}
    replace(made, tensors=tensors).save("wrong.safetensors")
    words = ("report", "wrong.safetensors", "--data", "points.csv", "--layers", 1, "--cases", 2, "--json")
    code, out, _ = weftc(*words)
    assert code == 1
    assert json.loads(out)["verdict"] == "refuted"
    assert Path("lloyd-report.html").exists()  # the page shows what is wrong


# ---- nothing from a file is trusted ----------------------------------------------------------------------------------


def check_harmless(html: str) -> Page:
    """A page with no element, attribute or invisible character that a file smuggled in."""
    page = check_page(html)
    assert not {"img", "iframe", "object", "embed", "link", "base", "form"} & {one.name for one in page.elements}
    assert not page.named("b") or all("&amp;" not in one.text for one in page.named("b"))
    foreign = {c for c in html if not c.isprintable() and c != "\n"}
    assert foreign <= {"\N{NARROW NO-BREAK SPACE}"}, foreign
    return page


def test_hostile_spec_text(weftc: Weft) -> None:
    Path("hostile.weft").write_text(HOSTILE, encoding="utf-8")
    code, _, err = weftc("report", "hostile.weft", "--data", "points.csv", "-D", "k=2", "--cases", 2, "-o", "h.html")
    assert code == 0, err
    page = check_harmless(Path("h.html").read_text(encoding="utf-8"))
    assert "</title><svg onload=alert(1)>" in page.text  # shown as text
    assert "\\u202e" in page.text
    assert "\\x1b[31m" in page.text
    assert page.named("title")[0].text == "hostile as a transformer"


def test_hostile_file_and_column_names(weftc: Weft) -> None:
    name = "x<img src=x onerror=alert(1)>&\u202e\x1b[31m.csv"
    column = '"<script>alert(1)</script>","\u202ea&b\x1b[31m"'
    Path(name).write_text(f"{column}\n0,0\n1,0\n5,5\n", encoding="utf-8")
    code, out, err = weftc("report", "lloyd", "--data", f"x={name}", "-D", "k=2", "--no-verify", "-o", "h.html")
    assert code == 0, err
    page = check_harmless(Path("h.html").read_text(encoding="utf-8"))
    assert "<img src=x onerror=alert(1)>" in page.text
    assert page.data["plane"]["axes"][0] == "<script>alert(1)</script>"
    assert "\x1b" not in out + err


def test_hostile_output_path_is_escaped_on_the_terminal(weftc: Weft) -> None:
    code, out, _ = weftc(
        "report", "lloyd", "--data", "points.csv", "-D", "k=2", "--no-verify", "-o", "a\x1b[31m\u202eb.html"
    )
    assert code == 0
    assert "\x1b" not in out
    assert "\u202e" not in out


def test_hostile_names_in_a_model_file() -> None:
    import weftc as package

    made = package.compile("lloyd", dims={"d": 2, "k": 2})
    step = replace(made.program.layer[0], equations=(EVIL,))
    program = replace(made.program, layer=(step, *made.program.layer[1:]), name=EVIL)
    slots = tuple(replace(s, meaning=EVIL) for s in program.streams[0].slots)
    program = replace(program, streams=(replace(program.streams[0], slots=slots), *program.streams[1:]))
    model = replace(made, program=program, compiler=EVIL)
    html = package.report(model, [[0.0, 0.0], [1.0, 1.0], [5.0, 5.0]], layers=1, verify=False)
    page = check_harmless(html)
    assert "</script><img src=x onerror=alert(1)>" in page.text


def test_a_model_that_is_not_of_its_spec_is_refused() -> None:
    import weftc as package

    made = package.compile("lloyd", dims={"d": 2, "k": 2})
    other = replace(made, spec_text=made.spec_text.replace("points", "spots"))
    with pytest.raises(package.InputError, match="does not hold x of spots"):
        package.report(other, [[0.0, 0.0], [1.0, 1.0]], layers=1, verify=False)


def test_the_page_about_reports_plays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(__file__).parents[2]
    (tmp_path / "examples").symlink_to(root / "examples")
    monkeypatch.chdir(tmp_path)
    play = Play((root / "docs" / "report.md").read_text(encoding="utf-8"))
    play.run()
    assert play.faults == []
    assert (root / "docs" / "pictures" / "report.png").stat().st_size < 150_000
